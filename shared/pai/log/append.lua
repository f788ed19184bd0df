-- Goes before both publish scripts: what the log of a thread is, opening it under a new epoch, appending to it.
-- KEYS: meta, log, live channel.  ARGV: epoch, opening, seen, ttl seconds, reason, revision, lines, ...
local meta, log, live = KEYS[1], KEYS[2], KEYS[3]
local epoch, opening, seen, ttl = tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local reason, revision, lines = ARGV[5], ARGV[6], ARGV[7]
local base = epoch * 4294967296

local stored = redis.call('HMGET', meta, 'epoch', 'n', 'revision', 'floor', 'deleted')
local current, n = tonumber(stored[1]), tonumber(stored[2]) or 0
local last_revision, floor, deleted = tonumber(stored[3]) or 0, tonumber(stored[4]) or 0, stored[5]

-- A double prints as 9.007e+15 by itself.
local function whole(number)
  return string.format('%.0f', number)
end

local function answer(status, first, last)
  return {status, whole(first or 0), whole(last or 0)}
end

-- Why this batch cannot be appended whatever it is, or nil.
local function refusal()
  if deleted then
    return 'deleted'
  end
  if opening then
    if current and current >= epoch then
      return 'lost'
    end
  elseif current ~= epoch or base + n < seen then
    return 'lost'
  end
  return nil
end

-- Fences outlive the epoch; numbers of batches and entries do not.
local function open()
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.sub(field, 1, 2) == 's:' then
      local attempt = string.match(redis.call('HGET', meta, field), '^(%d+)')
      redis.call('HSET', meta, field, attempt .. ':0:0:0')
    end
  end
  redis.call('DEL', log)
  n = 0
end

-- Appends the lines, after a reset when there is a reason for one. Answers the first sequence and the number of entries.
local function append()
  if reason ~= '' then
    local reset = 'x\t' .. revision .. '\t' .. reason
    lines = lines == '' and reset or reset .. '\n' .. lines
  end
  local first, count = base + n + 1, 0
  for field, made_by, body in string.gmatch(lines, '([^\t\n]+)\t(%d*)\t([^\n]*)') do
    local id = whole(first + count) .. '-0'
    if made_by == '' then
      redis.call('XADD', log, id, field, body)
    else
      redis.call('XADD', log, id, field, body, 'r', made_by)
    end
    count = count + 1
  end
  n = n + count
  redis.call('HSET', meta, 'epoch', whole(epoch), 'n', whole(n), 'revision', whole(last_revision), 'floor', whole(floor))
  redis.call('EXPIRE', meta, ttl)
  redis.call('EXPIRE', log, ttl)
  if count > 0 then
    redis.call('PUBLISH', live, whole(first) .. '\n' .. lines)
  end
  return first, count
end
