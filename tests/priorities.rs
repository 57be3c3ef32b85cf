//! Threads of other priorities, all on one processor: workers that nothing preempts, and a reader that gets no time
//! while others are busy. Laws 1, 3 and 20.
//!
//! The tests run in processes of their own, in which the system kills if a real-time thread uses the processor for a fifth of a second without a sleep.
#![cfg(all(target_os = "linux", not(miri)))]

mod common;

use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use common::*;
use lazypool::{task, DeadlineError, Pool, Refused, Shutdown, WhenFull};

/// How much longer than its own steps, or than its deadline, a call may take: many times as long as
/// it needs on a busy machine.
const MOST: Duration = limit(3);
/// A machine that is too busy for all rounds makes fewer, after this long.
const LASTS: Duration = ms(1500);

/// Sets the policy of the calling thread.
fn set_policy(policy: libc::c_int, priority: libc::c_int) -> Result<(), Error> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` is valid for the call, which is about the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &param) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Makes the calling thread one of real-time priority. It runs whenever it can, before all ordinary threads.
fn become_urgent() {
    set_policy(libc::SCHED_FIFO, 1).expect("it was allowed before");
}

/// Returns `false`, and says why, if the system allows no real-time priority. Else lets it kill the process if such a
/// thread runs for a fifth of a second without a sleep. A thread that waits like that for one that it has preempted would
/// stop the machine, until the system lets others run, once in a second.
fn may_be_urgent() -> bool {
    if let Err(why) = set_policy(libc::SCHED_FIFO, 1) {
        eprintln!("left out: no SCHED_FIFO: {why}");
        return false;
    }
    set_policy(libc::SCHED_OTHER, 0).expect("the usual policy");
    let micros = 200_000;
    let limit = libc::rlimit {
        rlim_cur: micros,
        rlim_max: micros,
    };
    // SAFETY: `limit` is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) }, 0);
    true
}

/// Keeps the calling thread, and those that it starts, on one of the processors that it may use.
fn stay_here() {
    // SAFETY: a set is an array of words, and each call gets one of its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&set);
        assert_eq!(libc::sched_getaffinity(0, size, &mut set), 0);
        let usable = |cpu: &usize| libc::CPU_ISSET(*cpu, &set);
        let first = (0..libc::CPU_SETSIZE as usize).find(usable);
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(first.expect("a processor"), &mut one);
        assert_eq!(libc::sched_setaffinity(0, size, &one), 0);
    }
}

/// Calls `round` with increasing numbers, at most `most` times and for `LASTS`. Fails if one takes too long.
fn each_in_time(most: u64, limit: Duration, mut round: impl FnMut(u64)) {
    let began = Instant::now();
    for n in 0..most {
        let start = Instant::now();
        round(n);
        let took = start.elapsed();
        assert!(took < limit, "round {n} took {took:?}");
        if began.elapsed() > LASTS {
            break;
        }
    }
}

/// A pool with a worker of real-time priority, on this thread's processor.
fn urgent(queue: usize, idle_timeout: Duration) -> Arc<Pool> {
    Arc::new(pool_with(1, queue, |b| {
        b.idle_timeout(idle_timeout)
            .on_worker_start(|_| become_urgent())
    }))
}

/// Wakes a worker up again and again, at any moment of the calls of others, until `over` is set.
fn prod(worker: &Thread, over: &AtomicBool) {
    stay_here();
    become_urgent();
    let mut rng = Rng::new(1);
    while !over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_micros(50 + rng.below(50)));
        worker.unpark();
    }
}

/// Laws 1 and 3: calls to a worker of real-time priority return with their values, although it may preempt the caller
/// between any two of its steps, whenever it wakes up. Formerly such a worker yielded for ever to a caller that it had
/// preempted.
#[test]
fn law03_calls_to_a_worker_of_real_time_priority() {
    isolated_each([0, 4], |queue| {
        if !may_be_urgent() {
            return;
        }
        stay_here();
        let pool = urgent(queue, ms(1));
        let over = AtomicBool::new(false);
        let worker = pool.do_with_deadline(thread::current, LONG).unwrap();
        thread::scope(|s| {
            let _ends = on_drop(|| over.store(true, Ordering::SeqCst));
            s.spawn(|| prod(&worker, &over));
            each_in_time(20_000, MOST, |n| {
                assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
                // A refusal would be wrong: the pool is at rest.
                must_await(pool.awaitable(), || ()).join().unwrap();
            });
        });
        let s = at_rest(&pool);
        assert_stats!(s, panicked: 0, expired: 0, refused: 0, hook_panics: 0);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Law 1: a submission with `Refuse` beside a full pool and its line is answered by its own steps, whether the pool's only
/// worker, of real-time priority, waits in its task or wakes up for another one.
#[test]
fn law01_refusals_beside_a_worker_of_real_time_priority() {
    isolated(|| {
        if !may_be_urgent() {
            return;
        }
        stay_here();
        let pool = urgent(2, Duration::MAX);
        let (gate, ledger) = (hold(&pool, 1), Ledger::new(3));
        (0..2).for_each(|id| must_serve(&pool, ledger.task(id)));
        let task = ledger.task(2);
        let blocked = move |pool: &Pool| pool.when_full(WhenFull::Block).serve(task).is_ok();
        let blocked = beside(&pool, blocked);
        wait_in_line(&pool, 1);
        let mut refused = 0;
        each_in_time(1_000, MOST, |_| {
            drop(saturated(pool.serve(|| ())));
            drop(refused_call(&pool));
            refused += 2;
        });
        gate.open();
        assert!(blocked.join().unwrap(), "it has waited for its turn");
        let s = at_rest(&pool);
        ledger.assert_all_ran();
        assert_stats!(s, completed: 4, refused: refused, refusals.saturated: refused);
    });
}

/// Calls with `Refuse`. The pool must be full.
#[track_caller]
fn refused_call(pool: &Pool) -> Refused<fn()> {
    let refused = refused(pool.do_with_deadline((|| ()) as fn(), LONG));
    assert!(refused.is_saturated(), "{refused:?}");
    refused
}

/// Laws 2, 14 and 20: a worker of real-time priority runs tasks as fast as threads submit them. Those that wait get their
/// turns, and one that does not wait is answered. Each accepted task runs once, and no refused one does.
#[test]
fn law20_a_line_for_a_worker_of_real_time_priority() {
    const EACH: usize = 4_000;
    isolated(|| {
        if !may_be_urgent() {
            return;
        }
        stay_here();
        let (pool, over) = (urgent(1, Duration::MAX), AtomicBool::new(false));
        let (waits, asks) = (Ledger::new(2 * EACH), Ledger::new(EACH));
        let (turns, mut accepted) = (AtomicU64::new(0), 0);
        thread::scope(|s| {
            let _ends = on_drop(|| over.store(true, Ordering::SeqCst));
            let submits = |id| {
                let served = pool.when_full(WhenFull::Block).serve(waits.task(id));
                served.map_err(Refused::without_closure).expect("its turn");
                turns.fetch_add(1, Ordering::SeqCst);
            };
            let goes_on = || !over.load(Ordering::SeqCst);
            for mut ids in [0..EACH, EACH..2 * EACH] {
                s.spawn(move || while ids.next().filter(|_| goes_on()).map(submits).is_some() {});
            }
            wait_until("a turn", || turns.load(Ordering::SeqCst) > 0);
            each_in_time(EACH as u64, MOST, |id| {
                match pool.serve(asks.task(id as usize)) {
                    Ok(()) => accepted += 1,
                    Err(refused) => assert!(refused.is_saturated(), "{refused:?}"),
                }
            });
        });
        let s = at_rest(&pool);
        let turns = turns.load(Ordering::SeqCst);
        assert_eq!((waits.total_runs(), asks.total_runs()), (turns, accepted));
        assert_stats!(s, completed: turns + accepted, accepted: turns + accepted, panicked: 0);
    });
}

const LABELS: [&str; 2] = ["first", "second"];

/// A reader of the idle class, and threads that keep its processor busy from time to time.
#[derive(Default)]
struct Busy {
    is_busy: AtomicBool,
    over: AtomicBool,
    reads: AtomicU64,
}

impl Busy {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    /// Spins on the reader's processor while that is to be busy.
    fn spin(&self) {
        stay_here();
        while self.goes_on() {
            if self.is_busy.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Reads the workers again and again: at first as other threads, then in the idle class, which is stopped wherever it is
    /// once others are busy.
    fn read(&self, pool: &Pool) {
        stay_here();
        while self.goes_on() {
            for worker in pool.workers() {
                assert!(worker.slot < pool.max_workers(), "{worker:?}");
                let is_right = |label| LABELS.contains(&label);
                assert!(worker.label.is_none_or(is_right), "{worker:?}");
            }
            if self.reads.fetch_add(1, Ordering::SeqCst) == 100 {
                set_policy(libc::SCHED_IDLE, 0).expect("this needs no privilege");
            }
        }
    }

    /// Lets the reader go on, up to an arbitrary point of a later call. It may get no time even so: then this returns `false`
    /// after a while.
    fn let_read(&self, rng: &mut Rng) -> bool {
        self.is_busy.store(false, Ordering::SeqCst);
        let (began, reads) = (Instant::now(), self.reads.load(Ordering::SeqCst));
        while self.reads.load(Ordering::SeqCst) < reads + 2 {
            if began.elapsed() > LASTS {
                return false;
            }
            thread::yield_now();
        }
        spin(Duration::from_micros(rng.below(200)));
        self.is_busy.store(true, Ordering::SeqCst);
        true
    }
}

/// Laws 3 and 20: calls with labels return by their deadlines, with their values, beside a reader of `workers()` that gets no
/// time for seconds. So do those that start a thread each.
#[test]
fn law03_calls_beside_a_reader_of_idle_priority() {
    const LIMIT_OF_CALL: Duration = ms(100);
    isolated_each([Duration::MAX, Duration::ZERO], |idle_timeout| {
        let pool = pool_with(2, 1, |b| b.idle_timeout(idle_timeout));
        let (busy, mut rng, mut values) = (Busy::default(), Rng::new(3), 0);
        // A new thread needs memory from the system, which may have stopped the reader as that asked for memory, too.
        let most = if idle_timeout.is_zero() { LIMIT } else { MOST };
        pool.do_with_deadline(|| (), LONG).unwrap();
        thread::scope(|s| {
            let _ends = on_drop(|| busy.over.store(true, Ordering::SeqCst));
            s.spawn(|| busy.read(&pool));
            // The more of them, the longer the reader waits for its turn.
            (0..8).for_each(|_| drop(s.spawn(|| busy.spin())));
            wait_until("the reader", || busy.reads.load(Ordering::SeqCst) > 100);
            busy.is_busy.store(true, Ordering::SeqCst);
            each_in_time(500, LASTS + 10 * (LIMIT_OF_CALL + most), |round| {
                if round > 0 && !busy.let_read(&mut rng) {
                    return;
                }
                for n in 0..10 {
                    let label = LABELS[n % 2];
                    let (start, on) = (Instant::now(), pool.labeled(label));
                    let outcome = on.do_with_deadline(move || (n, task::label()), LIMIT_OF_CALL);
                    let took = start.elapsed();
                    assert!(took < LIMIT_OF_CALL + most, "a call took {took:?}");
                    match outcome {
                        Ok(value) => {
                            assert_eq!(value, (n, Some(label)));
                            values += 1;
                        }
                        Err(DeadlineError::Expired(_) | DeadlineError::TimedOut) => {
                            assert!(took >= LIMIT_OF_CALL);
                        }
                        other => unexpected("an outcome of a call", other),
                    }
                }
            });
        });
        let s = at_rest(&pool);
        assert!(values > 0, "every call was late: {s}");
        assert_stats!(s, completed: s.accepted - s.expired, refused: 0, panicked: 0);
    });
}
