-- Removes the entries below a sequence, except the youngest ones, which watchers that reconnect late still need.
-- KEYS: meta, log.  ARGV: sequence, how many to keep at least.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'n')
if not stored[1] then
  return 0
end
local keep_from = tonumber(stored[1]) * 4294967296 + tonumber(stored[2]) - tonumber(ARGV[2]) + 1
local below = math.max(0, math.min(tonumber(ARGV[1]), keep_from))
return redis.call('XTRIM', KEYS[2], 'MINID', string.format('%.0f-0', below))
