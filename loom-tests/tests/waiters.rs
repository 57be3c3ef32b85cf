//! Submitters that wait for room (`src/parts/waiters.rs`). A thread that sleeps counts
//! as one that has waited for long: newcomers line up behind it.
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

/// Room that is made and taken by `SeqCst` steps, as that of a pool is.
struct Room {
    waiters: Waiters,
    free: AtomicUsize,
}

impl Room {
    fn new() -> Arc<Self> {
        let free = AtomicUsize::new(0);
        // Every write `SeqCst`, the first one, too: see the README.
        free.store(0, Ordering::SeqCst);
        let waiters = Waiters::new();
        Arc::new(Self { waiters, free })
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
}

fn waits(room: &Arc<Room>) -> thread::JoinHandle<()> {
    let room = Arc::clone(room);
    thread::spawn(move || room.waiters.wait_for(|| room.take()))
}

/// One waits, one makes room. Excludes: a thread that sleeps beside room. All
/// interleavings.
#[test]
fn join_against_notify() {
    check(None, || {
        let room = Room::new();
        let other = waits(&room);
        room.make();
        other.join().unwrap();
        room.waiters.assert_at_rest();
    });
}

/// Two that wait, the second of which may line up behind the first without a try, and room
/// for both. Excludes: one that is stranded behind an entry that has left, or whose
/// notification the other used up. Preemptions: 3.
#[test]
fn lined_up_behind_one() {
    check(Some(3), || {
        let room = Room::new();
        let others = [waits(&room), waits(&room)];
        room.make();
        room.make();
        for other in others {
            other.join().unwrap();
        }
        room.waiters.assert_at_rest();
    });
}

/// Two that wait, one of which leaves at its deadline, and room for one. Excludes: a
/// notification that is lost with who leaves. Preemptions: 2.
#[test]
fn who_leaves_at_its_deadline_passes_on() {
    check(Some(2), || {
        let room = Room::new();
        let other = waits(&room);
        let maker = beside(&room, |room| room.make());
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        if room.waiters.wait_until(&deadline, || room.take()) {
            room.make();
        }
        maker.join().unwrap();
        other.join().unwrap();
        clock.join().unwrap();
        room.waiters.assert_at_rest();
    });
}

/// Two that wait, lined up or not, and an event for all. Excludes: one that is not told.
/// Preemptions: 3.
#[test]
fn all_are_notified() {
    check(Some(3), || {
        let room = Room::new();
        let others = [waits(&room), waits(&room)];
        room.free.fetch_add(2, Ordering::SeqCst);
        room.waiters.notify_all();
        for other in others {
            other.join().unwrap();
        }
        room.waiters.assert_at_rest();
    });
}
