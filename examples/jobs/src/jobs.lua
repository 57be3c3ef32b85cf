#!lua flags=allow-oom
-- The steps that change jobs. Redis runs a step alone and logs its writes as one. If a process or
-- the server is killed in the middle, either all of these writes are kept or none.
-- With `allow-oom` the steps also work in a full Redis. They do not fill it further: a dead letter
-- replaces its entry, and the number of done keys is bounded.
-- The set `retry` has "ID ATTEMPT" by due time. The entry itself stays in the stream, and is not
-- pending. The delivery count of a pending entry is 1000 * failed attempts + deliveries of this
-- attempt. All times are in ms.
local stream, retry, dead, done = unpack(KEYS)
local step, group, me, visibility, backoff, keep, deaths, most = unpack(ARGV, 1, 8)
local steps, complaint, time = {}, '', redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns nil if the key is of the wrong type. `extend` says so, and the rest goes on.
local function try(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  complaint = reply.err .. ': ' .. key
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

-- Gives an entry back. Others can claim it once its idle time reaches the visibility timeout.
-- `idle` is its idle time now.
local function give(id, idle, count)
  claim('nobody', id, 'IDLE', idle, 'RETRYCOUNT', math.max(count, 0), 'JUSTID')
end

local function leave(id)
  redis.call('XACK', stream, group, id)
  return redis.call('XDEL', stream, id)
end

local function is_done(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'key' then return try('ZSCORE', done, fields[i + 1]) end
  end
end

-- Adds a dead letter. Packs the fields into one if they are too many for `unpack`.
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
end

-- Takes jobs of dead consumers if `claims` is 1, then retries that are due, then new ones: up to
-- `count`, and until they have `room` bytes. A job that would be a dead letter after one more death
-- comes alone, to a consumer that has no `others`. Also returns how long until a retry is due.
function steps.take(count, room, others, claims)
  count, room, deaths = tonumber(count), tonumber(room), tonumber(deaths)
  local taken, alone = {}, false
  local function add(entry, times)
    if is_done(entry[2]) then return leave(entry[1]) end
    for _, text in ipairs(entry[2]) do room = room - #text end
    table.insert(taken, {entry[1], times, entry[2]})
  end
  local function full() return #taken >= count or room <= 0 or alone end

  local silent = claims == '1' and redis.call('XPENDING', stream, group, 'IDLE', visibility, '-', '+', 100)
  for _, job in ipairs(silent or {}) do
    local id, times, died = job[1], job[4], job[4] % 1000
    if full() then break end
    if died >= deaths then
      kill(id, 'consumers died: ' .. died, times)
    else
      alone = died > 0 and died + 1 >= deaths
      local entry = not (alone and others + #taken > 0) and claim(me, id, 'RETRYCOUNT', times + 1)
      if entry then add(entry, times + 1) end
    end
  end
  for _, member in ipairs(try('ZRANGE', retry, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100) or {}) do
    if full() then break end
    local id, attempt = member:match('^(%d+%-%d+) (%d+)$')
    local times = (tonumber(attempt) or 0) * 1000 + 1
    local entry = id and claim(me, id, 'FORCE', 'RETRYCOUNT', times)
    if id or bury({'key', member}, 'unreadable retry') then redis.call('ZREM', retry, member) end
    if entry then add(entry, times) end
  end
  while not full() do
    local new = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', 1, 'STREAMS', stream, '>')
    if not new then break end
    add(new[1][2][1], 1)
  end
  local due = try('ZRANGE', retry, 0, 0, 'WITHSCORES') or {}
  return {math.max((tonumber(due[2]) or now + 60000) - now, 0), taken}
end

-- Returns 1 if a job is done, and acknowledges it.
function steps.skip(id, key)
  return is_done({'key', key}) and leave(id) or 0
end

-- Marks a job as done, even if another consumer has it by now.
function steps.done(id, key)
  leave(id)
  try('ZADD', done, now, key)
end

-- Schedules another attempt of a job that has failed, or moves it to the dead letters. Does nothing
-- if another consumer has the job by now, because that consumer reports it.
function steps.failed(id, reason, attempts)
  local job = mine(id)
  if not job then return end
  local attempt = math.floor(job[4] / 1000) + 1
  local due = now + backoff * 2 ^ math.min(attempt - 1, 10)
  if attempt < tonumber(attempts) and try('ZADD', retry, due, id .. ' ' .. attempt) then
    redis.call('XACK', stream, group, id)
  else
    kill(id, reason, job[4])
  end
end

-- Gives a job back, so that others can claim it at once. Does not count this delivery.
function steps.released(id)
  local job = mine(id)
  if job then give(id, visibility, job[4] - 1) end
end

-- Restarts the visibility timeout of the jobs that this consumer knows (ARGV from 10). Gives back
-- its other jobs: an answer was lost or, if `start` is 1, an earlier process died. Forgets old
-- keys, and consumers that have gone. Returns what is wrong with a key; at the start as an error.
function steps.extend(start)
  local known = {}
  for i = 10, #ARGV do known[ARGV[i]] = true end
  for _, job in ipairs(redis.call('XPENDING', stream, group, '-', '+', 1000000, me)) do
    local id, count = job[1], job[4] - 1 + start
    if known[id] then claim(me, id, 'JUSTID') else give(id, visibility, count) end
  end
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
    local gone = consumer[4] == 0 and consumer[6] > 4 * visibility
    if gone then redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer[2]) end
  end
  try('ZCARD', retry)
  try('XLEN', dead)
  try('ZREMRANGEBYSCORE', done, '-inf', now - keep)
  try('ZREMRANGEBYRANK', done, 0, -1 - most)
  return start == '1' and complaint ~= '' and redis.error_reply(complaint) or complaint
end

return steps[step](unpack(ARGV, 9, 12)) or ''
