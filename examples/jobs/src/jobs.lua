#!lua flags=allow-oom
-- All that changes jobs. Redis runs a step alone and logs its writes as one: a process or a server
-- killed in the middle leaves all of them or none. With `allow-oom` the steps work in a full Redis, too.
--
-- KEYS: the stream; retries ("ID ATTEMPT" by due time: the entry stays in the stream and is not
-- pending); dead letters (a stream); done keys (by time). ARGV: step, group, consumer, visibility
-- timeout in ms, and what the step names. An entry's delivery count is 1000 * attempts + deliveries.
local stream, retry, dead, done = unpack(KEYS)
local step, group, me, visibility = unpack(ARGV, 1, 4)
local steps, complaint = {}, ''

-- Returns nil if the key is of the wrong type. The reply says so, and the rest goes on.
local function try(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  complaint = '`' .. key .. '`: ' .. reply.err
end

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns {id, consumer, idle, count} of an entry that is pending with this consumer, or nil.
local function mine(id)
  return redis.call('XPENDING', stream, group, id, id, 1, me)[1]
end

-- Makes an entry pending with a consumer, and returns it unless it was deleted.
local function claim(consumer, id, ...)
  local entry = redis.pcall('XCLAIM', stream, group, consumer, 0, id, ...)
  return not entry.err and entry[1]
end

-- Leaves an entry to others: after the visibility timeout, less what it has been idle for.
local function give(id, idle, count)
  claim('nobody', id, 'IDLE', idle, 'RETRYCOUNT', math.max(count, 0), 'JUSTID')
end

local function leave(id)
  redis.call('XACK', stream, group, id)
  redis.call('XDEL', stream, id)
end

local function field(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

local function is_done(fields)
  local key = field(fields, 'key')
  return key and try('ZSCORE', done, key)
end

-- Adds a dead letter. `unpack` has a limit.
local function bury(fields, reason)
  if #fields > 4000 then fields = {'packed', cmsgpack.pack(fields)} end
  return try('XADD', dead, '*', 'reason', reason, 'consumer', me, unpack(fields))
end

-- Moves an entry to the dead letters. If these cannot be written, others try it again later.
local function kill(id, reason, count)
  local entry = redis.call('XRANGE', stream, id, id)[1] or {id, {'key', id}}
  if bury(entry[2], reason) then leave(id) else give(id, 0, count) end
end

function steps.open()
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  if made.err and not made.err:find('BUSYGROUP') then return made end
  return complaint
end

-- Takes jobs of dead consumers if `claims` is 1, then retries that are due, then new ones: up to
-- `count`, and until they have `room` bytes. A job that one more death makes a dead letter comes as
-- the last one, and its delivery counts once it begins. Returns how long until a retry is due, too.
function steps.take(count, room, deaths, claims)
  count, room, deaths = tonumber(count), tonumber(room), tonumber(deaths)
  local taken, alone, now = {}, 0, millis()
  local function add(entry, times)
    if is_done(entry[2]) then return leave(entry[1]) end
    for _, text in ipairs(entry[2]) do room = room - #text end
    table.insert(taken, {entry[1], times, alone, entry[2]})
  end
  local function full() return #taken >= count or room <= 0 or alone > 0 end

  local silent = claims == '1' and redis.call('XPENDING', stream, group, 'IDLE', visibility, '-', '+', 100)
  for _, job in ipairs(silent or {}) do
    if full() then break end
    local id, times, died = job[1], job[4], job[4] % 1000
    if died >= deaths then
      kill(id, 'consumers died: ' .. died, times)
    else
      if died > 0 and died + 1 >= deaths then alone = 1 else times = times + 1 end
      local entry = claim(me, id, 'RETRYCOUNT', times)
      if entry then add(entry, times) end
    end
  end
  for _, member in ipairs(try('ZRANGE', retry, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100) or {}) do
    if full() then break end
    local id, attempt = member:match('^(%d+%-%d+) (%d+)$')
    local times = (tonumber(attempt) or 0) * 1000 + 1
    local entry = id and claim(me, id, 'FORCE', 'RETRYCOUNT', times)
    if entry or bury({'key', member}, 'unreadable retry') then redis.call('ZREM', retry, member) end
    if entry then add(entry, times) end
  end
  while not full() do
    local new = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', 1, 'STREAMS', stream, '>')
    if not new then break end
    add(new[1][2][1], 1)
  end
  local due = try('ZRANGE', retry, 0, 0, 'WITHSCORES') or {}
  return {complaint, math.max((tonumber(due[2]) or now + 60000) - now, 0), taken}
end

-- Returns 1 if a job may begin, which then counts as this delivery; 0 if it is done, or with others.
function steps.begin(id, times)
  local entry = mine(id) and claim(me, id, 'RETRYCOUNT', times)
  if entry and is_done(entry[2]) then leave(id) end
  return mine(id) and 1 or 0
end

-- Whoever has the job by now: it is done.
function steps.done(id, key)
  leave(id)
  try('ZADD', done, millis(), key)
  return complaint
end

-- A delay below 0: to the dead letters. Nothing if another consumer has the job: it reports it.
function steps.failed(id, reason, delay, attempt)
  local job = mine(id)
  if not job then return complaint end
  if tonumber(delay) >= 0 and try('ZADD', retry, millis() + delay, id .. ' ' .. attempt) then
    redis.call('XACK', stream, group, id)
  else
    kill(id, reason, job[4])
  end
  return complaint
end

-- Gives a job back at once, and takes this delivery back unless it never counted.
function steps.released(id, counted)
  local job = mine(id)
  if job then give(id, visibility, job[4] - counted) end
  return complaint
end

-- Starts the visibility timeout of all that this consumer knows (ARGV from 8) again, and gives back
-- what it does not know: its answer was lost. Forgets old keys, and consumers that have gone.
function steps.extend(counted, keep, most)
  local known = {}
  for i = 8, #ARGV do known[ARGV[i]] = true end
  for _, job in ipairs(redis.call('XPENDING', stream, group, '-', '+', 1000000, me)) do
    if known[job[1]] then claim(me, job[1], 'JUSTID') else give(job[1], visibility, job[4] - counted) end
  end
  try('ZREMRANGEBYSCORE', done, '-inf', millis() - keep)
  try('ZREMRANGEBYRANK', done, 0, -1 - most)
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local gone = consumer[4] == 0 and consumer[6] > 4 * visibility
    if gone then redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2]) end
  end
  return complaint
end

function steps.status()
  local pending = redis.call('XPENDING', stream, group)[4] or {}
  return {redis.call('XLEN', stream), redis.call('ZCARD', retry), redis.call('XLEN', dead),
    redis.call('ZCARD', done), pending}
end

-- Lists, sends again or deletes dead letters: at most 100, without their payloads.
function steps.letters(act, from, to)
  local letters = redis.call('XRANGE', dead, from, to, 'COUNT', 100)
  for i, letter in ipairs(letters) do
    local id, fields = letter[1], letter[2]
    if act == 'send' then redis.call('XADD', stream, '*', unpack(fields, 5)) end
    if act ~= 'list' then redis.call('XDEL', dead, id) end
    local function short(name) return (field(fields, name) or ''):sub(1, 200) end
    letters[i] = {id, short('key'), short('kind'), short('reason')}
  end
  return letters
end

return steps[step](unpack(ARGV, 5, 8))
