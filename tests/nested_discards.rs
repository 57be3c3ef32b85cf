//! The captures of a discarded task may, as they are dropped, cancel tasks, wait for tasks or end
//! the pool. This includes tasks that the same call discards.

mod common;

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Handle, Pool, Shutdown, TaskError};

/// With this many tasks, a stack overflows if each of them adds a level of calls.
const MANY: usize = cut(20_000) as usize;

/// A value whose drop shuts the pool down.
struct Ends(Arc<Pool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.shutdown(Shutdown::Discard, Duration::ZERO);
    }
}

/// The subtasks of a value, which have all ended once it is dropped.
struct Subtasks {
    group: Group,
    cancels: bool,
}

impl Drop for Subtasks {
    fn drop(&mut self) {
        if self.cancels {
            self.group.cancel();
        }
        self.group.wait();
    }
}

/// Queues tasks, each of which cancels its group unless it runs to its end.
fn queue_guarded(group: &Group, ran: &Arc<AtomicUsize>) {
    for _ in 0..MANY {
        let (guard, ran) = (group.drop_guard(), Arc::clone(ran));
        must_serve_in(group, move || {
            ran.fetch_add(1, Ordering::SeqCst);
            guard.disarm();
        });
    }
}

/// Law 2: each task that a cancel discards cancels its group again as it is dropped.
#[test]
fn law02_a_cancel_discards_tasks_that_each_guard_their_group() {
    isolated(
        "law02_a_cancel_discards_tasks_that_each_guard_their_group",
        || {
            let busy = Gate::new();
            let pool = occupied(&busy, MANY);
            let (group, ran) = (pool.group(), Arc::default());
            queue_guarded(&group, &ran);
            group.cancel();
            assert_eq!((group.discarded(), group.pending()), (MANY, 0));
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            busy.open();
            check_at_rest(&pool, &settle(&pool));
        },
    );
}

/// Laws 2 and 7: a task that panics drops its guard on its worker; each task that this discards
/// cancels its group again.
#[test]
fn law07_a_panic_cancels_tasks_that_each_guard_their_group() {
    isolated(
        "law07_a_panic_cancels_tasks_that_each_guard_their_group",
        || {
            let busy = Gate::new();
            let pool = pool(1, MANY);
            let (group, ran) = (pool.group(), Arc::default());
            let (guard, key) = (group.drop_guard(), busy.key());
            must_serve_in(&group, move || {
                let _guard = guard;
                key.pass();
                quiet_panic("on purpose");
            });
            busy.wait_entered(1);
            queue_guarded(&group, &ran);
            busy.open();
            group.wait();
            assert_eq!((group.panicked(), group.discarded()), (1, MANY));
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            check_at_rest(&pool, &settle(&pool));
        },
    );
}

/// Laws 2 and 10: each task that a shutdown discards cancels its group as it is dropped.
#[test]
fn law10_a_shutdown_discards_tasks_that_each_guard_their_group() {
    isolated(
        "law10_a_shutdown_discards_tasks_that_each_guard_their_group",
        || {
            let busy = Gate::new();
            let pool = occupied(&busy, MANY);
            let (group, ran) = (pool.group(), Arc::default());
            queue_guarded(&group, &ran);
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, MANY as u64);
            assert_eq!((group.discarded(), group.pending()), (MANY, 0));
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            busy.open();
        },
    );
}

/// Laws 2 and 10: each task that a shutdown discards shuts the pool down again as it is dropped.
#[test]
fn law10_a_shutdown_discards_tasks_that_each_end_the_pool() {
    isolated(
        "law10_a_shutdown_discards_tasks_that_each_end_the_pool",
        || {
            let busy = Gate::new();
            let pool = Arc::new(occupied(&busy, MANY));
            for _ in 0..MANY {
                let ends = Ends(Arc::clone(&pool));
                must_serve(&pool, move || drop(ends));
            }
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, MANY as u64);
            assert_eq!(Arc::strong_count(&pool), 1, "each is dropped");
            busy.open();
        },
    );
}

/// Law 10: the drop of a discarded capture may wait for a group whose tasks the same shutdown
/// discards. The wait may return before their captures are dropped.
#[test]
fn law10_a_capture_may_wait_for_a_group_that_the_same_shutdown_discards() {
    timed(|| {
        for cancels in [true, false] {
            let busy = Gate::new();
            let pool = occupied(&busy, 4);
            let group = pool.group();
            let subtasks = Subtasks {
                group: group.clone(),
                cancels,
            };
            must_serve_in(&group, || ());
            must_serve(&pool, move || drop(subtasks));
            must_serve_in(&group, || ());
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, 3);
            assert_eq!((group.discarded(), group.pending()), (2, 0));
            busy.open();
        }
    });
}

/// Returns a pool whose worker waits until the last clone of the sender is dropped.
fn until_unsent(queue: usize) -> (Arc<Pool>, mpsc::Sender<()>) {
    let pool = Arc::new(pool(1, queue));
    let (stop, stopped) = mpsc::channel::<()>();
    let (told, started) = mpsc::channel();
    must_serve(&pool, move || {
        told.send(()).unwrap();
        let _ = stopped.recv();
    });
    started.recv().unwrap();
    (pool, stop)
}

/// Law 10: the drop of a discarded capture may shut the pool down again while a worker waits for
/// another capture of the same discard. The inner call returns at once and reports that worker.
#[test]
fn law10_a_capture_may_end_the_pool_for_which_another_is_to_be_dropped() {
    timed(|| {
        let (pool, stop) = until_unsent(2);
        let its = Arc::clone(&pool);
        let (tell, told) = mpsc::channel();
        let ends = OnDrop(Some(move || {
            tell.send(its.shutdown(Shutdown::Discard, LONG)).unwrap();
        }));
        must_serve(&pool, move || drop(ends));
        must_serve(&pool, move || drop(stop));
        let report = pool.shutdown(Shutdown::Discard, LIMIT);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.discarded, 2);
        let inner = told.recv().expect("a report");
        assert!(!inner.is_clean(), "{inner:?}");
    });
}

/// Law 10: the drops of several discarded captures each shut the pool down without a timeout, while
/// its worker waits for a capture that is dropped after them. Once, the third nested call waited
/// for that worker.
#[test]
fn law10_captures_end_the_pool_one_within_the_other() {
    timed(|| {
        for captures in 0..4 {
            let (pool, stop) = until_unsent(8);
            for _ in 0..captures {
                let its = Arc::clone(&pool);
                let ends = OnDrop(Some(move || {
                    its.shutdown(Shutdown::Drain, Duration::MAX);
                }));
                must_serve(&pool, move || drop(ends));
            }
            must_serve(&pool, move || drop(stop));
            let report = pool.shutdown(Shutdown::Discard, Duration::MAX);
            assert!(report.is_clean(), "{report:?}");
            assert_eq!(report.discarded, captures + 1);
        }
    });
}

/// Law 10: a capture that a cancel drops may shut the pool down, while the pool's worker waits for
/// the next capture of the same cancel. Once, that shutdown waited for the worker and hung.
#[test]
fn law10_a_capture_that_a_cancel_drops_may_end_the_pool() {
    timed(|| {
        for mode in [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel] {
            let (pool, stop) = until_unsent(8);
            let group = pool.group();
            let its = Arc::clone(&pool);
            let ends = OnDrop(Some(move || {
                its.shutdown(mode, Duration::MAX);
            }));
            must_serve_in(&group, move || drop(ends));
            must_serve_in(&group, move || drop(stop));
            group.cancel();
            assert_eq!((group.discarded(), group.pending()), (2, 0));
            assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        }
    });
}

/// Law 10: a discarded capture may poll a group, without a limit, until the tasks of the same
/// discard have ended for it. Once, polling with `wait_timeout` never ended.
#[test]
fn law10_a_capture_may_poll_for_a_group_that_the_same_shutdown_discards() {
    timed(|| {
        let busy = Gate::new();
        let pool = occupied(&busy, 4);
        let group = pool.group();
        let its = group.clone();
        let polls = OnDrop(Some(move || while its.wait_timeout(ms(1)).is_err() {}));
        must_serve(&pool, move || drop(polls));
        must_serve_in(&group, || ());
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!((report.discarded, group.discarded()), (2, 1));
        busy.open();
    });
}

/// Law 10: each group's task holds the guard of the next group. Once, the drops were nested and
/// took some hundred bytes of stack for each group, so a long chain ended the process.
#[test]
fn law10_a_long_chain_of_groups_is_cancelled_on_any_stack() {
    const LEVELS: usize = cut(2_500) as usize;
    isolated(
        "law10_a_long_chain_of_groups_is_cancelled_on_any_stack",
        || {
            for on_worker in [false, true] {
                let busy = Gate::new();
                let pool = pool(2, LEVELS);
                must_serve(&pool, busy.task());
                let (start, started) = mpsc::channel();
                let (done, over) = mpsc::channel();
                must_serve(&pool, move || {
                    drop(started.recv().ok());
                    done.send(()).unwrap();
                });
                busy.wait_entered(1);
                wait_until("both workers to be busy", || pool.stats().running == 2);
                let mut guard = None;
                for _ in 0..LEVELS {
                    let (group, inner) = (pool.group(), guard.take());
                    must_serve_in(&group, move || drop::<Option<lazypool::CancelGuard>>(inner));
                    guard = Some(group.drop_guard());
                }
                if on_worker {
                    start.send(guard).unwrap();
                } else {
                    drop(guard);
                }
                drop(start);
                over.recv().unwrap();
                assert_eq!(pool.stats().discarded, LEVELS as u64);
                busy.open();
            }
        },
    );
}

/// Law 10: a long chain of tasks, each of which holds the handle of the next, needs no more stack
/// than one.
#[test]
fn law10_a_long_chain_of_handles_is_cancelled_on_any_stack() {
    isolated(
        "law10_a_long_chain_of_handles_is_cancelled_on_any_stack",
        || {
            let busy = Gate::new();
            let pool = occupied(&busy, MANY);
            let mut first = None::<Handle<()>>;
            for _ in 0..MANY {
                let next = first.take();
                first = Some(must_await(pool.awaitable(), move || drop(next)));
            }
            drop(first);
            assert_eq!(pool.stats().discarded, MANY as u64);
            busy.open();
        },
    );
}

/// Law 10: a task's handle is dropped or cancelled, and the drop of the task's capture waits for
/// the task's own group. Once, that wait hung: it waited for a task that its own thread was about
/// to end.
#[test]
fn law10_a_capture_may_wait_for_its_group_as_its_handle_goes() {
    timed(|| {
        for by_drop in [false, true] {
            let busy = Gate::new();
            let pool = occupied(&busy, 2);
            let group = pool.group();
            let waits = Subtasks {
                group: group.clone(),
                cancels: false,
            };
            let handle = must_await(group.awaitable(), move || drop(waits));
            if by_drop {
                drop(handle);
            } else {
                handle.cancel();
                let outcome = handle.join();
                assert!(matches!(outcome, Err(TaskError::Cancelled)), "{outcome:?}");
            }
            assert_eq!((group.discarded(), group.pending()), (1, 0));
            busy.open();
        }
    });
}

/// Law 10: a discarded capture joins a task that the same thread discards after it. That task is
/// discarded by the same shutdown, or the capture has just cancelled it or its group.
#[test]
fn law10_a_capture_may_join_what_is_to_be_dropped_after_it() {
    timed(|| {
        type Cancels = fn(&Group, &Handle<()>);
        let by_itself: [Cancels; 3] = [|_, _| (), |group, _| group.cancel(), |_, its| its.cancel()];
        for (cancels, discarded) in by_itself.into_iter().zip([true, false, false]) {
            let busy = Gate::new();
            let pool = occupied(&busy, 2);
            let (give, take) = mpsc::channel();
            let (tell, told) = mpsc::channel();
            let group = pool.group();
            let its = group.clone();
            let joins = OnDrop(Some(move || {
                let handle: Handle<()> = take.recv().unwrap();
                cancels(&its, &handle);
                tell.send(handle.join()).unwrap();
            }));
            let outer = pool.group();
            must_serve_in(&outer, move || drop(joins));
            give.send(must_await(group.awaitable(), || ())).unwrap();
            if discarded {
                pool.shutdown(Shutdown::Discard, Duration::ZERO);
            } else {
                outer.cancel();
            }
            match told.recv().unwrap() {
                Err(TaskError::Discarded) => assert!(discarded),
                Err(TaskError::Cancelled) => assert!(!discarded),
                other => panic!("{other:?}"),
            }
            busy.open();
        }
    });
}

/// Laws 7 and 10: a discarded capture drops another pool. A task of that pool is discarded too, and
/// a hook of that pool panics as it is dropped. Once, the discard kept that pool alive, so the
/// panic unwound through the discard and the rest of its list was lost.
#[test]
fn law10_a_discard_keeps_no_pool_alive_that_it_drops() {
    timed(|| {
        let (busy, its_busy) = (Gate::new(), Gate::new());
        let pool = occupied(&busy, 1);
        let bomb = Bomb("of a hook");
        let its = Pool::builder()
            .max_workers(1)
            .queue_capacity(1)
            .shutdown_on_drop(Shutdown::Discard, Duration::ZERO)
            .on_panic(move |_| {
                let _ = &bomb;
            })
            .build()
            .expect("a pool");
        let key = its_busy.key();
        let (tell, told) = mpsc::channel();
        must_serve(&its, move || {
            // Dropped when the thread ends, after it has released its pool.
            thread_local!(static END: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) });
            let last = OnDrop(Some(move || tell.send(()).unwrap()));
            END.set(Some(Box::new(last)));
            key.pass();
        });
        its_busy.wait_entered(1);
        let dropped = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&dropped);
        let queued = OnDrop(Some(move || {
            counts.fetch_add(1, Ordering::SeqCst);
        }));
        must_serve(&its, move || drop(queued));
        let ends = OnDrop(Some(move || {
            drop(its);
            its_busy.open();
            told.recv().unwrap();
        }));
        let group = pool.group();
        must_serve_in(&group, move || drop(ends));
        group.cancel();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        assert_eq!((group.discarded(), group.pending()), (1, 0));
        busy.open();
        // This thread no longer counts as one that discards, so its wait does not return early.
        let (slow, group) = (Gate::new(), pool.group());
        must_serve_in(&group, slow.task());
        assert!(group.wait_timeout(ms(1)).is_err());
        slow.open();
    });
}

/// Law 10: many tasks that each guard a group are discarded in time proportional to their number.
/// Once, each cancel searched all captures that were still to be dropped.
#[test]
fn law10_many_tasks_that_each_guard_their_own_group_are_discarded_quickly() {
    timed(|| {
        let busy = Gate::new();
        let pool = occupied(&busy, 2 * MANY);
        for _ in 0..2 * MANY {
            let group = pool.group();
            let guard = group.drop_guard();
            must_serve_in(&group, move || drop(guard));
        }
        let start = Instant::now();
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        let took = start.elapsed();
        assert_eq!(report.discarded, 2 * MANY as u64);
        // Many times as long as it takes.
        assert!(took < Duration::from_secs(4), "{took:?}");
        busy.open();
    });
}
