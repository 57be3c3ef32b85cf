//! Tasks that wait for each other; drops of a pool beside others; wrappers round tasks; destructors
//! of thread-locals; waits for space that end.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use lazypool::Shutdown;
use shuttle_tests::{
    explore, join_all, planned_panic, step, ticks, Bench, Dice, Meeting, Via, MODES,
};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// As many tasks come as there may be workers, each of which ends once all of them run, beside
/// others that end by themselves. None of them stays queued behind another while a worker is idle
/// or could be started. Law 5.
#[test]
fn all_run_at_once() {
    explore("all_run_at_once", |dice| {
        let (workers, queue) = (dice.between(2, 4), dice.of(&[0, 1, 2, 3, 6]));
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
        let bench = Bench::blocking(workers as usize, queue, |b| b.idle_timeout(idle));
        let raises = dice.one_in(3);
        if raises {
            bench.pool.set_limit(1).expect("within bounds");
        }
        if dice.one_in(2) {
            bench.wait_small(Duration::MAX);
        }
        let meeting = Meeting::of(workers);
        let mut all = bench.submitters(dice, workers, move |bench, dice| {
            for _ in 0..dice.below(3) {
                bench.act(dice, 0);
            }
            let meeting = Arc::clone(&meeting);
            let meet = move || meeting.meet();
            let served = if dice.one_in(2) {
                bench.serve_work(Via::Pool, meet)
            } else {
                bench.wait_work(meet)
            };
            assert!(served, "it waits for room");
        });
        let threads = dice.below(3);
        all.extend(bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act(dice, 0);
            }
        }));
        if raises {
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                dice.pause(40);
                bench
                    .pool
                    .set_limit(workers as usize)
                    .expect("within bounds");
            }));
        }
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// The limit is raised beside one or two pushes behind occupied workers, whose tasks wait for the
/// pushed ones; nothing is submitted after that. No pushed task stays behind a worker while another
/// may be started. Laws 4 and 5.
#[test]
fn raised_beside_one_push() {
    explore("raised_beside_one_push", |dice| {
        let workers = dice.between(2, 3);
        let queue = dice.between(workers - 1, 3) as usize;
        let idle = dice.of(&[Duration::MAX, Duration::MAX, ticks(10)]);
        let bench = Bench::new(workers as usize, queue, |b| b.idle_timeout(idle));
        bench.pool.set_limit(1).expect("within bounds");
        bench.expect_limit(1);
        let meeting = Meeting::of(workers);
        let meet = move |bench: &Arc<Bench>, waits| {
            let meeting = Arc::clone(&meeting);
            let meet = move || meeting.meet();
            let served = if waits {
                bench.wait_work(meet)
            } else {
                bench.serve_work(Via::Pool, meet)
            };
            assert!(served, "the queue has room for all");
        };
        meet(&bench, false);
        let mut all = bench.submitters(dice, workers - 1, move |bench, dice| {
            dice.pause(20);
            meet(bench, dice.one_in(2));
        });
        all.extend(bench.submitters(dice, 1, move |bench, dice| {
            dice.pause(30);
            let limit = workers as usize;
            bench.pool.set_limit(limit).expect("within bounds");
        }));
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// The last handle of a pool is dropped while others submit through groups, tasks hold handles of
/// their own pool, and perhaps a thread shuts it down. Whichever thread drops it, every closure ran
/// or was discarded, and every thread ends. Law 10.
#[test]
fn dropped_beside_others() {
    explore("dropped_beside_others", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let mode = dice.of(&MODES);
        let timeout = dice.of(&[Duration::ZERO, ticks(20), Duration::MAX]);
        let bench = Bench::new(workers, queue, |b| {
            b.idle_timeout(idle).shutdown_on_drop(mode, timeout)
        });
        let ledger = bench.ledger();
        bench.judge_no_refusal();
        let group = bench.pool.group();
        let threads = dice.between(1, 4);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                // The task's closure holds the pool.
                bench.act(dice, 1);
            }
        });
        for _ in 0..dice.between(1, 2) {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(lazypool::model::spawn(move || {
                for _ in 0..dice.between(1, 4) {
                    dice.pause(20);
                    let _ = group.serve(step);
                }
            }));
        }
        let closer = bench.may_shut_down(dice, 3, 60);
        let shuts_down = closer.is_some();
        all.extend(closer);
        dice.pause(60);
        drop(bench);
        join_all(all);
        ledger.settle(shuts_down || mode != Shutdown::Drain);
        // The group's tasks end, too, whichever thread held the pool last.
        group.wait();
        assert_eq!(group.pending(), 0);
    });
}

/// A wrapper runs its task, forgets to, runs it twice, submits, or panics before or after it. Each
/// task runs once, and its caller gets its own outcome. Law 16.
#[test]
fn wrapped() {
    explore("wrapped", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(4) as usize);
        let slot: Arc<OnceLock<Weak<Bench>>> = Arc::default();
        let (served, seed) = (Arc::clone(&slot), dice.below(1 << 30));
        let turns = AtomicU64::new(0);
        let around = move |run: &mut dyn FnMut()| {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            let mut dice = Dice::new(seed + turn);
            let bench = || served.get().and_then(Weak::upgrade);
            if dice.one_in(8) {
                planned_panic();
            }
            // The number is limited, so that the submissions come to an end.
            if let (true, Some(bench)) = (turn < 4 && dice.one_in(3), bench()) {
                if dice.one_in(2) {
                    bench.wait_small(ticks(dice.below(10)));
                } else {
                    let _ = bench.serve_small();
                }
            }
            for _ in 0..dice.of(&[0, 1, 1, 1, 2]) {
                run();
            }
            if dice.one_in(8) {
                planned_panic();
            }
        };
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let blocks = dice.one_in(3);
        let set = |b: lazypool::Builder| b.around(around).idle_timeout(idle);
        let bench = if blocks {
            Bench::blocking(workers, queue, set)
        } else {
            Bench::new(workers, queue, set)
        };
        slot.set(Arc::downgrade(&bench)).expect("once");
        let threads = dice.between(1, 4);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                bench.act(dice, 1);
            }
        });
        let closer = bench.may_shut_down(dice, 4, 80);
        let discards = closer.is_some();
        all.extend(closer);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(discards);
    });
}

/// The last worker ends, with or without a hook, while one or two threads push. No task is queued
/// without a worker. Laws 2 and 6.
#[test]
fn last_worker_leaves() {
    explore("last_worker_leaves", |dice| {
        let (workers, queue) = (dice.between(1, 2) as usize, dice.between(1, 3) as usize);
        let (idle, steps) = (ticks(dice.of(&[0, 0, 1])), dice.of(&[0, 2, 8]));
        let bench = Bench::new(workers, queue, |b| {
            b.idle_timeout(idle).on_worker_stop(move |_| {
                for _ in 0..steps {
                    step();
                }
            })
        });
        let threads = dice.between(1, 2);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(2, 5) {
                if dice.one_in(3) {
                    bench.wait_small(ticks(dice.between(1, 40)));
                } else {
                    let _ = bench.serve_small();
                }
                // Comes at a random step of the worker's end.
                dice.pause(60);
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// The last worker ends, with or without a hook, while one or two threads push, or take their tasks
/// back, and the OS gives no other thread. The pool runs the tasks that it accepts. Laws 6 and 13.
#[test]
fn last_thread_leaves() {
    explore("last_thread_leaves", |dice| {
        let (queue, steps) = (dice.between(1, 3) as usize, dice.of(&[0, 2, 8]));
        let idle = ticks(dice.of(&[0, 0, 1]));
        let hook = !dice.one_in(3);
        let bench = Bench::new(2, queue, |b| {
            let b = b.idle_timeout(idle);
            if !hook {
                return b;
            }
            b.on_worker_stop(move |_| {
                for _ in 0..steps {
                    step();
                }
            })
        });
        let done = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&done);
        let long = move || {
            while !until.load(Ordering::SeqCst) {
                shuttle::thread::yield_now();
            }
        };
        assert!(bench.serve_work(Via::Pool, long), "a new pool");
        assert!(bench.serve_small().is_ok(), "another worker");
        // The thread that ended one worker ends the other later, too; it needs no new thread for
        // that.
        while bench.pool.stats().workers > 1 {
            lazypool::model::sleep(ticks(20));
        }
        set_options(|o| o.refuse_one_in = 1);
        let threads = dice.between(1, 2);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 2) {
                // Comes at a random step of the worker's end.
                dice.pause(120);
                if dice.one_in(3) {
                    bench.wait_small(ticks(dice.between(1, 20)));
                } else {
                    let _ = bench.serve_small();
                }
            }
        });
        done.store(true, Ordering::SeqCst);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// Submits, or shuts the pool down, in the destructor of a thread-local.
struct AtTheEnd {
    bench: Weak<Bench>,
    verb: u64,
    limit: Duration,
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let Some(bench) = self.bench.upgrade() else {
            return;
        };
        match self.verb {
            0 => drop(bench.serve_small()),
            1 => drop(bench.wait_small(self.limit)),
            2 => drop(bench.pool.shutdown(Shutdown::Discard, self.limit)),
            _ => drop(bench.pool.shutdown(Shutdown::Drain, self.limit)),
        }
    }
}

shuttle::thread_local! {
    static AT_THE_END: RefCell<Option<AtTheEnd>> = RefCell::new(None);
}

/// Tasks leave a thread-local behind whose destructor submits to the pool or shuts it down, after
/// the worker's last step. The submitted tasks end, and so does the pool.
#[test]
fn thread_local_destructors() {
    explore("thread_local_destructors", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(3) as usize);
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX]);
        let bench = Bench::new(workers, queue, |b| b.idle_timeout(idle));
        let threads = dice.between(1, 4);
        let all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 3) {
                if dice.one_in(2) {
                    bench.act(dice, 0);
                    continue;
                }
                let left = AtTheEnd {
                    bench: Arc::downgrade(bench),
                    verb: dice.of(&[0, 0, 1, 1, 2, 3]),
                    limit: Bench::limit(dice),
                };
                bench.serve_work(Via::Pool, move || {
                    AT_THE_END.with(|it| *it.borrow_mut() = Some(left));
                });
            }
        });
        join_all(all);
        bench.wait_until_idle();
        bench.finish(true);
    });
}

/// Submitters wait for space for a while, beside others that wait or do not. Each is refused no
/// sooner than its time is up, and only if there was no space. Law 1.
#[test]
fn waits_for_a_while() {
    explore("waits_for_a_while", |dice| {
        let (workers, queue) = (dice.between(1, 2) as usize, dice.below(3) as usize);
        let bench = Bench::new(workers, queue, |b| b);
        let threads = dice.between(3, 6);
        let mut all = bench.submitters(dice, threads, |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                match dice.below(3) {
                    0 => bench.act(dice, 1),
                    _ => drop(bench.serve_blocking_for(ticks(dice.of(&[0, 1, 4, 20, 60])))),
                }
            }
        });
        let closer = bench.may_shut_down(dice, 4, 80);
        let discards = closer.is_some();
        all.extend(closer);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(discards);
    });
}
