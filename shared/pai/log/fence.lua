-- Refuses older attempts of steps from now on.
-- KEYS: meta.  ARGV: epoch, then pairs of step number and the attempt that is the lowest allowed.
-- Answers {status, last sequence, last revision}.
local meta = KEYS[1]
local stored = redis.call('HMGET', meta, 'epoch', 'n', 'revision', 'deleted')
if stored[4] then
  return {'deleted', '0', '0'}
end
if tonumber(stored[1]) ~= tonumber(ARGV[1]) then
  return {'lost', '0', '0'}
end
for index = 2, #ARGV, 2 do
  local slot, attempt = 's:' .. ARGV[index], tonumber(ARGV[index + 1])
  local fence = redis.call('HGET', meta, slot)
  local owner = fence and tonumber(string.match(fence, '^(%d+)')) or 0
  if attempt > owner then
    redis.call('HSET', meta, slot, ARGV[index + 1] .. ':0:0:0')
  end
end
local last = tonumber(stored[1]) * 4294967296 + tonumber(stored[2])
return {'published', string.format('%.0f', last), stored[3]}
