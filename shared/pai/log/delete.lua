-- Leaves a tombstone that refuses every publish, and tells watchers.
-- KEYS: meta, log, live channel.  ARGV: ttl seconds.
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'n', 'deleted')
local last = stored[3] or '0'
if stored[1] then
  last = string.format('%.0f', tonumber(stored[1]) * 4294967296 + tonumber(stored[2]) + 1)
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'deleted', last)
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('PUBLISH', KEYS[3], last .. '\nd\t\t')
return last
