#!lua name=lazypool_jobs
-- Steps that write more than once. Redis runs each function alone and logs its writes as one: a
-- process or a server killed in the middle leaves all of them or none.
--
-- KEYS: the stream, its retries (sorted by due time), dead letters (a stream), done keys (a set).
-- ARGV: group, consumer, and what each function names.

-- {id, consumer, idle, deliveries} of an entry that is pending with this consumer, or nil.
local function mine(keys, argv, id)
  return redis.call('XPENDING', keys[1], argv[1], id, id, 1, argv[2])[1]
end

local function leave(keys, argv, id)
  redis.call('XACK', keys[1], argv[1], id)
  redis.call('XDEL', keys[1], id)
end

local function give_away(keys, argv, id, idle, deliveries)
  return redis.call('XCLAIM', keys[1], argv[1], 'nobody', 0, id,
    'IDLE', idle, 'RETRYCOUNT', deliveries, 'JUSTID')
end

local function millis()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- id, key. Whoever has the job by now: it is done.
redis.register_function('jobs_done', function(keys, argv)
  leave(keys, argv, argv[3])
  return redis.call('SADD', keys[4], argv[4])
end)

-- id, delay in ms or -1 for the dead letters, reason, the fields of the next attempt. Nothing if
-- another consumer has claimed the job: then that one reports it.
redis.register_function('jobs_failed', function(keys, argv)
  if not mine(keys, argv, argv[3]) then return 0 end
  leave(keys, argv, argv[3])
  if tonumber(argv[4]) >= 0 then
    local due = millis() + argv[4]
    return redis.call('ZADD', keys[2], due, cmsgpack.pack({unpack(argv, 6)}))
  end
  return redis.call('XADD', keys[3], '*', 'reason', argv[5], 'consumer', argv[2], unpack(argv, 6))
end)

-- id, visibility timeout in ms. Gives a job to a consumer that does not exist, to be claimed at
-- once; this delivery does not count.
redis.register_function('jobs_released', function(keys, argv)
  local job = mine(keys, argv, argv[3])
  if not job then return 0 end
  return give_away(keys, argv, job[1], argv[4], math.max(job[4] - 1, 0))
end)

-- visibility timeout in ms, ids. Gives away all that is pending with this consumer except these:
-- the answer that delivered the rest was lost. The delivery counts: perhaps a consumer died with it.
redis.register_function('jobs_unknown', function(keys, argv)
  local known = {}
  for i = 4, #argv do known[argv[i]] = true end
  local pending = redis.call('XPENDING', keys[1], argv[1], '-', '+', 1000000, argv[2])
  for _, job in ipairs(pending) do
    if not known[job[1]] then give_away(keys, argv, job[1], argv[3], job[4]) end
  end
  return 1
end)

-- ids. Starts their visibility timeout again. (XCLAIM alone would take back what others claimed.)
redis.register_function('jobs_extend', function(keys, argv)
  for i = 3, #argv do
    if mine(keys, argv, argv[i]) then
      redis.call('XCLAIM', keys[1], argv[1], argv[2], 0, argv[i], 'JUSTID')
    end
  end
  return 1
end)

-- Moves retries that are due into the stream.
redis.register_function('jobs_due', function(keys)
  local due = redis.call('ZRANGE', keys[2], '-inf', millis(), 'BYSCORE', 'LIMIT', 0, 100)
  for _, job in ipairs(due) do
    redis.call('XADD', keys[1], '*', unpack(cmsgpack.unpack(job)))
    redis.call('ZREM', keys[2], job)
  end
  return #due
end)
