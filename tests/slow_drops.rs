//! Threads are woken before captures are dropped. The drop of captures is user code and may take
//! long; no thread whose answer is known waits for it.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{DeadlineError, Group, Pool, Refused, Shutdown, WhenFull};

/// A value whose drop waits at a gate.
struct AtGate(Key);

impl Drop for AtGate {
    fn drop(&mut self) {
        self.0.pass();
    }
}

/// Returns a task whose captures are dropped only once the gate is open.
fn drops_at(gate: &Gate) -> impl FnOnce() + Send + 'static {
    let capture = AtGate(gate.key());
    move || drop(capture)
}

/// Returns a pool with one worker, which runs a task at `busy`, and a queue of one that holds the
/// task that `queued` submits.
fn full(busy: &Gate, queued: impl FnOnce(&Pool)) -> Arc<Pool> {
    let builder = Pool::builder().max_workers(1).queue_capacity(1);
    let pool = builder.when_full(WhenFull::Block).build().expect("pool");
    must_serve(&pool, busy.task());
    busy.wait_entered(1);
    queued(&pool);
    assert_eq!(pool.stats().queued, 1);
    Arc::new(pool)
}

/// Starts a thread whose submission waits for room. The receiver gets its outcome.
fn blocked(pool: &Arc<Pool>, group: Option<&Group>) -> mpsc::Receiver<Result<(), Refused<()>>> {
    let (told, outcome) = mpsc::channel();
    let before = pool.stats().waiting;
    let (core, group) = (Arc::clone(pool), group.cloned());
    thread::spawn(move || {
        let served = match group {
            Some(group) => group.serve(|| ()).map_err(Refused::without_closure),
            None => core.serve(|| ()).map_err(Refused::without_closure),
        };
        drop(core);
        told.send(served)
    });
    wait_until("the submission to wait", || {
        pool.stats().waiting == before + 1
    });
    outcome
}

/// Laws 10 and 14: a shutdown answers blocked submitters before it drops the captures of discarded
/// tasks. A capture's drop may well wait for those submitters.
#[test]
fn law10_blocked_submitters_are_refused_before_captures_are_dropped() {
    timed(|| {
        for mode in [Shutdown::Discard, Shutdown::Cancel] {
            let (busy, slow) = (Gate::new(), Gate::new());
            let pool = full(&busy, |pool| must_serve(pool, drops_at(&slow)));
            let outcome = blocked(&pool, None);
            let closer = Arc::clone(&pool);
            let shutdown = thread::spawn(move || closer.shutdown(mode, Duration::ZERO).discarded);
            slow.wait_entered(1);
            let refused = outcome
                .recv_timeout(LIMIT)
                .expect("the submitter has its answer");
            assert!(refused.unwrap_err().is_closed());
            assert!(!shutdown.is_finished());
            slow.open();
            assert_eq!(shutdown.join().expect("no panic"), 1);
            busy.open();
        }
    });
}

/// Laws 14 and 20: a cancel first answers the blocked submitters of its group and gives the room it
/// makes to those behind them. Then it drops the captures of the tasks that it discards.
#[test]
fn law14_a_cancel_wakes_blocked_submitters_before_captures_are_dropped() {
    timed(|| {
        for members in [1, 2] {
            let (busy, slow) = (Gate::new(), Gate::new());
            let mut group = None;
            let pool = full(&busy, |pool| {
                group
                    .insert(pool.group())
                    .serve(drops_at(&slow))
                    .map_err(Refused::without_closure)
                    .expect("room");
            });
            let group = group.expect("made");
            let of_group: Vec<_> = (0..members).map(|_| blocked(&pool, Some(&group))).collect();
            let stranger = blocked(&pool, None);
            let canceller = group.clone();
            let cancel = thread::spawn(move || canceller.cancel());
            slow.wait_entered(1);
            // Some of them may find the room that the cancel makes; their tasks are discarded.
            let mut accepted = 0;
            for outcome in of_group {
                match outcome
                    .recv_timeout(LIMIT)
                    .expect("the submitter has its answer")
                {
                    Ok(()) => accepted += 1,
                    Err(refused) => assert!(refused.to_string().contains("cancelled")),
                }
            }
            let served = stranger.recv_timeout(LIMIT).expect("there is room");
            assert!(served.is_ok());
            assert!(!cancel.is_finished());
            slow.open();
            cancel.join().expect("no panic");
            assert_eq!((group.discarded(), group.pending()), (1 + accepted, 0));
            busy.open();
        }
    });
}

/// Law 10: while a cancel still drops captures, a drop of the pool does not wait for the group's
/// running task.
#[test]
fn law10_a_drop_does_not_wait_while_a_cancel_drops_captures() {
    timed(|| {
        let (busy, slow) = (Gate::new(), Gate::new());
        let pool = pool(1, 1);
        let group = pool.group();
        group
            .serve(busy.task())
            .map_err(Refused::without_closure)
            .expect("a worker");
        busy.wait_entered(1);
        group
            .serve(drops_at(&slow))
            .map_err(Refused::without_closure)
            .expect("room");
        let canceller = group.clone();
        let cancel = thread::spawn(move || canceller.cancel());
        slow.wait_entered(1);
        assert_eq!(pool.stats().abandoned, 1);
        let ended = drop_aside(pool);
        ended
            .recv_timeout(LIMIT)
            .expect("the drop does not wait for the task");
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().expect("no panic");
    });
}

/// Serves eight tasks that must run. Returns the count of those that have run.
fn serve_eight(pool: &Pool) -> Arc<AtomicUsize> {
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let ran = Arc::clone(&ran);
        must_serve(pool, move || {
            ran.fetch_add(1, Ordering::SeqCst);
        });
    }
    ran
}

/// Asserts that the drop of the pool waits for the eight tasks, which wait for a slow drop in
/// front.
#[track_caller]
fn assert_waits_for_eight(ended: &mpsc::Receiver<()>, slow: &Gate, ran: &AtomicUsize) {
    assert!(
        ended.recv_timeout(ms(50)).is_err(),
        "eight tasks are wanted"
    );
    slow.open();
    ended
        .recv_timeout(LIMIT)
        .expect("the drop returns once all tasks have run");
    assert_eq!(ran.load(Ordering::SeqCst), 8);
}

/// Law 10: a drop that drains waits for the tasks queued behind one that is too late to start, even
/// while the late task's captures are dropped. The late task does not count as abandoned, since it
/// does not run.
#[test]
fn law10_a_drop_waits_for_what_is_queued_behind_a_late_task() {
    timed(|| {
        let (busy, slow) = (Gate::new(), Gate::new());
        let pool = occupied(&busy, 16);
        let late = pool.with_deadline(ms(1)).serve(drops_at(&slow));
        late.map_err(Refused::without_closure).expect("room");
        let ran = serve_eight(&pool);
        let ended = drop_aside(pool);
        thread::sleep(ms(20)); // past the deadline; the pool is closed
        busy.open();
        slow.wait_entered(1);
        assert_waits_for_eight(&ended, &slow, &ran);
    });
}

/// Law 10: here the late task's group is cancelled while its captures are dropped, and an earlier
/// task of the group has run. The drop of the pool waits for the tasks behind it.
#[test]
fn law10_a_drop_waits_for_what_is_queued_behind_a_late_task_of_a_cancelled_group() {
    timed(|| {
        let (busy, slow) = (Gate::new(), Gate::new());
        let pool = pool(1, 16);
        // Long enough for the first task to start in time.
        let group = pool.with_deadline(ms(1000)).group();
        must_serve_in(&group, busy.task());
        busy.wait_entered(1);
        must_serve_in(&group, drops_at(&slow));
        let ran = serve_eight(&pool);
        thread::sleep(ms(1050)); // past the deadline
        busy.open();
        slow.wait_entered(1);
        group.cancel();
        assert_eq!(pool.stats().abandoned, 0);
        let ended = drop_aside(pool);
        assert_waits_for_eight(&ended, &slow, &ran);
    });
}

/// Law 10: a caller whose task a shutdown hands back does not wait for the drop of another task's
/// captures, whether that task was queued before or behind its own.
#[test]
fn law10_a_discarded_call_comes_back_before_captures_are_dropped() {
    timed(|| {
        for slow_is_first in [false, true] {
            let (busy, slow) = (Gate::new(), Gate::new());
            let pool = Arc::new(occupied(&busy, 2));
            if slow_is_first {
                must_serve(&pool, drops_at(&slow));
            }
            let (told, outcome) = mpsc::channel();
            let caller = Arc::clone(&pool);
            thread::spawn(move || told.send(caller.do_with_deadline(|| (), LONG)));
            wait_until("the call to be queued", || {
                pool.stats().queued == 1 + usize::from(slow_is_first)
            });
            if !slow_is_first {
                must_serve(&pool, drops_at(&slow));
            }
            let closer = Arc::clone(&pool);
            let shutdown =
                thread::spawn(move || closer.shutdown(Shutdown::Discard, Duration::ZERO));
            slow.wait_entered(1);
            match outcome
                .recv_timeout(LIMIT)
                .expect("the caller has its answer")
            {
                Err(DeadlineError::Refused(refused)) => assert!(refused.is_closed()),
                other => panic!("{other:?}"),
            }
            slow.open();
            assert_eq!(shutdown.join().expect("no panic").discarded, 2);
            busy.open();
        }
    });
}

/// Returns a task that counts its run.
fn counted(ran: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let ran = Arc::clone(ran);
    move || {
        ran.fetch_add(1, Ordering::SeqCst);
    }
}

/// Laws 2 and 10: once a shutdown discards, no queued task runs, even while captures are being
/// dropped. By then all tasks are counted, so another shutdown does not wait for the drops.
#[test]
fn law10_nothing_queued_runs_while_a_shutdown_drops_captures() {
    timed(|| {
        for mode in [Shutdown::Discard, Shutdown::Cancel] {
            let (busy, slow) = (Gate::new(), Gate::new());
            let pool = Arc::new(occupied(&busy, 4));
            let ran = Arc::new(AtomicUsize::new(0));
            must_serve(&pool, drops_at(&slow));
            for _ in 0..3 {
                must_serve(&pool, counted(&ran));
            }
            let closer = Arc::clone(&pool);
            let shutdown = thread::spawn(move || closer.shutdown(mode, Duration::MAX));
            slow.wait_entered(1);
            busy.open();
            wait_until("the worker to end", || pool.stats().workers == 0);
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
            assert!(report.is_clean());
            assert_eq!(report.discarded, 4);
            slow.open();
            assert!(shutdown.join().expect("no panic").is_clean());
            assert_eq!(Arc::strong_count(&ran), 1);
            check_at_rest(&pool, &pool.stats());
        }
    });
}

/// Law 15: a scope's task runs while a shutdown drops captures.
#[test]
fn law15_a_scopes_task_runs_while_a_shutdown_drops_captures() {
    timed(|| {
        let (busy, slow) = (Gate::new(), Gate::new());
        let pool = Arc::new(occupied(&busy, 2));
        must_serve(&pool, drops_at(&slow));
        let (scoping, ran) = (Arc::clone(&pool), Arc::new(AtomicUsize::new(0)));
        let task = counted(&ran);
        let scope = thread::spawn(move || scoping.scope(|s| s.serve(task).is_ok()));
        wait_until("the scope's task to be queued", || pool.stats().queued == 2);
        let closer = Arc::clone(&pool);
        let shutdown = thread::spawn(move || closer.shutdown(Shutdown::Discard, Duration::MAX));
        slow.wait_entered(1);
        busy.open();
        assert!(scope.join().expect("no panic"));
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        assert!(!shutdown.is_finished());
        slow.open();
        assert_eq!(shutdown.join().expect("no panic").discarded, 1);
    });
}

/// Laws 2 and 10: once a group is cancelled, none of its queued tasks runs, even while captures of
/// one of them are being dropped. All of them have ended for the group too, so its wait does not
/// wait for the drops.
#[test]
fn law02_nothing_queued_of_a_cancelled_group_runs_while_captures_are_dropped() {
    timed(|| {
        let (busy, slow) = (Gate::new(), Gate::new());
        let pool = occupied(&busy, 8);
        let (group, ran) = (pool.group(), Arc::new(AtomicUsize::new(0)));
        must_serve_in(&group, drops_at(&slow));
        for _ in 0..3 {
            must_serve_in(&group, counted(&ran));
        }
        let canceller = group.clone();
        let cancel = thread::spawn(move || canceller.cancel());
        slow.wait_entered(1);
        assert_eq!((pool.stats().queued, pool.stats().discarded), (0, 4));
        assert_eq!((group.pending(), group.discarded()), (0, 4));
        group.wait();
        group.cancel();
        busy.open();
        settle(&pool);
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().expect("no panic");
        assert_eq!(Arc::strong_count(&ran), 1);
        check_at_rest(&pool, &settle(&pool));
    });
}
