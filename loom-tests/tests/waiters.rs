//! Submitters that wait for space (`src/parts/waiters.rs`). A thread that sleeps counts
//! as one that has waited for long (aged): others take only what such threads leave.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_until, Waiters};
use lazypool::{DeadlineError, Pool, Shutdown, WhenFull};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{beside, check, end, quietly, two_serve, Ran};
use std::sync::Arc;
use std::time::Duration;

fn blocking_pool() -> Pool {
    quietly(|| {
        let pool = Pool::builder()
            .max_workers(1)
            .when_full(WhenFull::Block)
            .idle_timeout(Duration::MAX)
            .build()
            .unwrap();
        assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
        pool
    })
}

/// Two submitters, one worker: whoever comes second waits until it is free.
/// Excludes: a submitter that sleeps although there is room. Preemptions: 2.
#[test]
fn blocked_against_room() {
    check(Some(2), || {
        two_serve(blocking_pool());
    });
}

/// A blocked submitter and a shutdown from within the task it waits for.
/// Excludes: a submitter that sleeps on although the pool has closed; one that
/// is accepted by it and lost. Preemptions: 3.
#[test]
fn blocked_against_shutdown() {
    check(Some(3), || {
        let pool = Arc::new(blocking_pool());
        let ran = Ran::new();
        let closer = Arc::clone(&pool);
        let close = move || drop(closer.shutdown(Shutdown::Drain, Duration::MAX));
        assert!(pool.serve(close).is_ok());
        let accepted = match pool.serve(ran.task()) {
            Ok(()) => 1,
            Err(back) => {
                assert!(back.is_closed());
                0
            }
        };
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
    });
}

/// The same, where that task ends only once the submitter has been told. Excludes: a
/// shutdown that leaves it to the end of a task to tell. Preemptions: 3.
#[test]
fn blocked_beside_shutdown() {
    check(Some(3), || {
        let pool = Arc::new(blocking_pool());
        let closer = Arc::clone(&pool);
        let (open, gate) = mpsc::channel();
        let close = move || {
            let _ = closer.shutdown(Shutdown::Drain, Duration::MAX);
            gate.recv().unwrap();
        };
        assert!(pool.serve(close).is_ok());
        assert!(pool.serve(|| ()).is_err_and(|back| back.is_closed()));
        open.send(()).unwrap();
        end(&pool);
    });
}

/// Two blocked submitters, one of which leaves at its deadline: the room it was
/// notified of, if any, is the other's. Excludes: a notification that is lost
/// with the one who got it. Four threads; preemptions: 1.
#[test]
fn room_is_passed_on() {
    check(Some(1), || {
        let pool = Arc::new(blocking_pool());
        assert!(pool.serve(|| ()).is_ok());
        let other = beside(&pool, |pool| assert!(pool.serve(|| ()).is_ok()));
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let mine = do_until(&pool, || (), &deadline);
        assert!(!matches!(mine, Err(DeadlineError::Refused(_))));
        other.join().unwrap();
        clock.join().unwrap();
        end(&pool);
    });
}

/// Space that is made and taken by `SeqCst` steps, as that of a pool is.
struct Space {
    waiters: Waiters,
    free: AtomicUsize,
}

impl Space {
    fn new() -> Arc<Self> {
        Self::of(0)
    }

    fn of(n: usize) -> Arc<Self> {
        let free = AtomicUsize::new(0);
        // Every write `SeqCst`, the first one, too: see the README.
        free.store(n, Ordering::SeqCst);
        let waiters = Waiters::new();
        Arc::new(Self { waiters, free })
    }

    fn left(&self) -> u64 {
        self.free.load(Ordering::SeqCst) as u64
    }

    fn take(&self) -> bool {
        let less = |free: usize| free.checked_sub(1);
        let taken = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        taken.is_ok()
    }

    fn make(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.waiters.notify();
    }

    /// As a submission that must not wait.
    fn try_once(&self) -> bool {
        self.waiters.try_once(|| self.left(), || self.take())
    }
}

fn waits(space: &Arc<Space>) -> thread::JoinHandle<()> {
    let space = Arc::clone(space);
    thread::spawn(move || space.waiters.wait_for(|| space.left(), || space.take()))
}

/// One waits, one makes space. Excludes: a thread that sleeps beside space. All
/// interleavings.
#[test]
fn join_against_notify() {
    check(None, || {
        let space = Space::new();
        let other = waits(&space);
        space.make();
        other.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// Two that wait, aged or not, and space for both. Excludes: one that sleeps beside the space left for
/// another that has left, or whose notification the other used up. Preemptions: 3.
#[test]
fn two_wait_for_two() {
    check(Some(3), || {
        let space = Space::new();
        let others = [waits(&space), waits(&space)];
        space.make();
        space.make();
        for other in others {
            other.join().unwrap();
        }
        space.waiters.assert_at_rest();
    });
}

/// Two that wait, one of which leaves at its deadline, and space for one. Excludes: a
/// notification that is lost with who leaves. Preemptions: 2.
#[test]
fn who_leaves_at_its_deadline_passes_on() {
    check(Some(2), || {
        let space = Space::new();
        let other = waits(&space);
        let maker = beside(&space, |space| space.make());
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (left, take) = (|| space.left(), || space.take());
        if space.waiters.wait_until(&deadline, left, take) {
            space.make();
        }
        maker.join().unwrap();
        other.join().unwrap();
        clock.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// Two that wait and an event for all. Excludes: one that is not told. Preemptions: 3.
#[test]
fn all_are_notified() {
    check(Some(3), || {
        let space = Space::new();
        let others = [waits(&space), waits(&space)];
        space.free.fetch_add(2, Ordering::SeqCst);
        space.waiters.notify_all();
        for other in others {
            other.join().unwrap();
        }
        space.waiters.assert_at_rest();
    });
}

/// One waits and may be aged; others, who must not wait, try, and return what they get. Excludes: one
/// that sleeps for good beside space that was taken and given back. Preemptions: 3.
#[test]
fn who_must_not_wait_against_one_that_waits() {
    check(Some(3), || {
        let space = Space::new();
        let other = waits(&space);
        let tries = beside(&space, |space| {
            if space.try_once() {
                space.make();
            }
        });
        space.make();
        tries.join().unwrap();
        other.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// One that has waited for long, and as much space as it needs. Excludes: a newcomer that takes it; one
/// that is denied what is left over (law 20). Preemptions: 3.
#[test]
fn law20_aged_first() {
    check(Some(3), || {
        let space = Space::new();
        let (say, is_aged) = loom::sync::mpsc::channel();
        let (go, may_go) = loom::sync::mpsc::channel();
        let other = beside(&space, move |space| {
            let mut tries = 0;
            let take = || {
                tries += 1;
                // Joined, slept, aged: and then it tries.
                if tries == 3 {
                    say.send(()).unwrap();
                    may_go.recv().unwrap();
                }
                space.take()
            };
            space.waiters.wait_for(|| space.left(), take);
        });
        is_aged.recv().unwrap();
        space.make();
        assert!(!space.try_once(), "the aged thread's");
        space.make();
        assert!(space.try_once(), "left over");
        go.send(()).unwrap();
        other.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// A pool's submitter that has waited for long and a newcomer that must not wait, beside a worker that
/// comes free. Excludes: space that neither gets; a submitter that sleeps on. Preemptions: 2.
#[test]
fn law20_blocked_against_refused() {
    check(Some(2), || {
        let pool = Arc::new(blocking_pool());
        let ran = Ran::new();
        let (open, gate) = mpsc::channel();
        quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
        let task = ran.task();
        let blocked = beside(&pool, move |pool| assert!(pool.serve(task).is_ok()));
        open.send(()).unwrap();
        let newcomer = pool.when_full(WhenFull::Refuse).serve(ran.task()).is_ok();
        blocked.join().unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (1 + usize::from(newcomer), 0));
    });
}

/// A queue of two is full: the place behind `head` is dead. Two wait; a pop makes space for both. Excludes:
/// one that sleeps beside a dead cell at `head`. Preemptions: 1.
#[test]
fn space_for_two_by_one_pop() {
    check(Some(1), || {
        let pool = Arc::new(quietly(|| {
            let pool = Pool::builder().max_workers(1).queue_capacity(2);
            let pool = pool.when_full(WhenFull::Block).idle_timeout(Duration::MAX);
            pool.build().expect("valid settings")
        }));
        let [(open, gate), (open_next, next)] = [mpsc::channel(), mpsc::channel()];
        let group = pool.group();
        quietly(|| {
            assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
            assert!(pool.serve(move || next.recv().unwrap()).is_ok());
            assert!(group.serve(|| ()).is_ok());
            group.cancel();
        });
        let others = [(), ()].map(|()| beside(&pool, |pool| assert!(pool.serve(|| ()).is_ok())));
        open.send(()).unwrap();
        for other in others {
            other.join().unwrap();
        }
        open_next.send(()).unwrap();
        end(&pool);
    });
}
