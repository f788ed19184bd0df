-- Takes one token out of a bucket that fills with time. KEYS: the bucket. ARGV: tokens per second, size of the bucket.
-- -> milliseconds to wait; 0: taken.
local rate, size = tonumber(ARGV[1]) / 1000, tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local held = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(held[1]) or size, tonumber(held[2]) or now
-- The clock of a server may be set back, and settings may change.
tokens = math.min(size, tokens + math.max(0, now - at) * rate)
local wait = 0
if tokens >= 1 then
  tokens = tokens - 1
else
  wait = math.ceil((1 - tokens) / rate)
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(size / rate) + 1000)
return wait
