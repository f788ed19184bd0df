-- The head of a log and entries of it, as of one moment.
-- KEYS: meta, log.  ARGV: lowest sequence, limit (-1: none), then pairs of message id and the sequence it is known up to:
-- when there are any, only chunks of these messages are given.
-- Answers {state, epoch, n, revision, oldest sequence, lines}; a line is sequence, field, revision, body.
local meta, log = KEYS[1], KEYS[2]
local stored = redis.call('HMGET', meta, 'epoch', 'n', 'revision', 'deleted')
if stored[4] then
  return {'deleted', '0', '0', '0', '0', ''}
end
if not stored[1] then
  return {'missing', '0', '0', '0', '0', ''}
end

local known
for index = 3, #ARGV, 2 do
  known = known or {}
  known[ARGV[index]] = tonumber(ARGV[index + 1])
end

local function number_of(id)
  return string.match(id, '^%d+')
end

local oldest = redis.call('XRANGE', log, '-', '+', 'COUNT', 1)
local limit, found = tonumber(ARGV[2]), {}
if limit < 0 then
  found = redis.call('XRANGE', log, ARGV[1] .. '-0', '+')
elseif limit > 0 then
  found = redis.call('XRANGE', log, ARGV[1] .. '-0', '+', 'COUNT', limit)
end

local lines = {}
for _, entry in ipairs(found) do
  local sequence, fields = number_of(entry[1]), entry[2]
  local wanted = true
  if known then
    local message = string.match(fields[1], '/(.*)$')
    local up_to = message and known[message]
    wanted = up_to and tonumber(sequence) > up_to
  end
  if wanted then
    lines[#lines + 1] = table.concat({sequence, fields[1], fields[4] or '', fields[2]}, '\t')
  end
end
return {
  'live', stored[1], stored[2], stored[3] or '0', oldest[1] and number_of(oldest[1][1]) or '0', table.concat(lines, '\n')
}
