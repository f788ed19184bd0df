-- The batch of one transaction. ARGV goes on: floor, finished step numbers ("5,7"), forced, values for the lists that
-- KEYS goes on with. Answers {status, first sequence, last sequence}. Repeating a batch is dropped, because its revision
-- is known.
local function settled(status, first, last)
  for index = 4, #KEYS do
    redis.call('LPUSH', KEYS[index], ARGV[7 + index])
  end
  return answer(status, first, last)
end

local refused = refusal()
if refused then
  return settled(refused)
end

-- Whatever becomes of the entries, the transaction has happened: its fences hold.
local raised = math.max(floor, tonumber(ARGV[8]))
for number in string.gmatch(ARGV[9], '%d+') do
  -- Above the floor nothing else refuses a late publish of this step.
  redis.call('HSET', meta, 's:' .. number, '2147483647:0:0:0')
end
if raised > floor or ARGV[9] ~= '' then
  floor = raised
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    local number = tonumber(string.match(field, '^s:(%d+)$'))
    if number and number < floor then
      redis.call('HDEL', meta, field)
    end
  end
  redis.call('HSET', meta, 'floor', whole(floor))
end

if opening then
  open()
else
  local made = tonumber(revision)
  if made <= last_revision then
    return settled('dropped')
  end
  if made > last_revision + 1 then
    if ARGV[10] ~= '1' then
      return answer('early')
    end
    lines, reason = '', 'order'
  end
end
last_revision = math.max(last_revision, tonumber(revision))
local first, count = append()
return settled('published', first, first + count - 1)
