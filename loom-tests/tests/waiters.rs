//! Submitters that wait for space (`src/parts/waiters.rs`). A thread that sleeps counts
//! as one that has waited for long.
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

/// Space that is made and taken by `SeqCst` steps, as that of a pool is. Whoever is not aged leaves
/// as much of it as there are aged threads.
struct Space {
    waiters: Waiters,
    free: AtomicUsize,
}

impl Space {
    fn new() -> Arc<Self> {
        let free = AtomicUsize::new(0);
        // Every write `SeqCst`, the first one, too: see the README.
        free.store(0, Ordering::SeqCst);
        let waiters = Waiters::new();
        Arc::new(Self { waiters, free })
    }

    fn take(&self, is_aged: bool) -> bool {
        let others = if is_aged { 0 } else { self.waiters.aged() };
        let less = |free: usize| free.checked_sub(1).filter(|left| *left >= others as usize);
        let taken = self
            .free
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        taken.is_ok()
    }

    fn make(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.waiters.notify();
    }
}

fn waits(space: &Arc<Space>) -> thread::JoinHandle<()> {
    let space = Arc::clone(space);
    thread::spawn(move || space.waiters.wait_for(|is_aged| space.take(is_aged)))
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

/// Two that wait, the second of which may leave space to the first, and space for both. Excludes: one
/// that sleeps beside the space that it left to a thread that has gone, or whose notification the
/// other used up. Preemptions: 3.
#[test]
fn space_left_to_an_aged_one() {
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
        if space
            .waiters
            .wait_until(&deadline, |is_aged| space.take(is_aged))
        {
            space.make();
        }
        maker.join().unwrap();
        other.join().unwrap();
        clock.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// The same where space is all that one of them leaves to the other. Excludes: one that sleeps beside
/// it, as who left it has gone at its deadline. Preemptions: 2.
#[test]
fn space_left_by_one_that_leaves() {
    check(Some(2), || {
        let space = Space::new();
        let other = waits(&space);
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let take = |is_aged| is_aged && space.take(true);
        if space.waiters.wait_until(&deadline, take) {
            space.make();
        }
        space.make();
        other.join().unwrap();
        clock.join().unwrap();
        space.waiters.assert_at_rest();
    });
}

/// Two that wait, and an event for all. Excludes: one that is not told.
/// Preemptions: 3.
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
