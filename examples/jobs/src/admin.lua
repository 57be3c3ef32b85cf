#!lua flags=allow-oom
-- The operator's commands. They also work in a full Redis. KEYS: as in `jobs.lua`. ARGV: step,
-- group, arguments.
local stream, retry, dead, done = unpack(KEYS)
local steps = {}

function steps.status(group)
  local pending = redis.call('XPENDING', stream, group)[4] or {}
  return {redis.call('XLEN', stream), redis.call('ZCARD', retry), redis.call('XLEN', dead),
    redis.call('ZCARD', done), pending}
end

-- Lists at most 100 dead letters, without their payloads. `send` also adds their jobs to the stream
-- again. `send` and `delete` also delete the letters.
function steps.letters(_, act, from, to)
  local letters = redis.call('XRANGE', dead, from, to, 'COUNT', 100)
  for i, letter in ipairs(letters) do
    local id, fields = letter[1], letter[2]
    -- The first two are the reason and the consumer.
    if act == 'send' then redis.call('XADD', stream, '*', unpack(fields, 5)) end
    if act ~= 'list' then redis.call('XDEL', dead, id) end
    local function short(name)
      for j = 1, #fields, 2 do
        if fields[j] == name then return fields[j + 1]:sub(1, 200) end
      end
      return ''
    end
    letters[i] = {id, short('key'), short('kind'), short('reason')}
  end
  return letters
end

return steps[ARGV[1]](unpack(ARGV, 2))
