-- A batch of a model step. ARGV goes on: number, attempt, batch.
-- Answers {status, first sequence, last sequence}. Repeating a batch appends nothing and answers its old sequences.
local number, attempt, batch = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local slot = 's:' .. ARGV[8]

local refused = refusal()
if refused then
  return answer(refused)
end
if number < floor then
  return answer('fenced')
end
local fence = redis.call('HGET', meta, slot)
if fence then
  local owner, done, first, count = string.match(fence, '^(%d+):(%d+):(%d+):(%d+)$')
  if attempt < tonumber(owner) then
    return answer('fenced')
  end
  if not opening and attempt == tonumber(owner) and batch <= tonumber(done) then
    return answer('duplicate', tonumber(first), tonumber(first) + tonumber(count) - 1)
  end
end

if opening then
  open()
end
if revision ~= '' then
  last_revision = math.max(last_revision, tonumber(revision))
end
local first, count = append()
redis.call('HSET', meta, slot, table.concat({ARGV[9], ARGV[10], whole(first), whole(count)}, ':'))
return answer('published', first, first + count - 1)
