//! Law 10: threads are woken before the captures of discarded tasks are dropped. That drop is user
//! code and may take long; no thread whose answer is known waits for it.

mod common;

use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::gates::*;
use common::*;
use lazypool::{Group, Pool, Refused, Shutdown, ShutdownReport, WhenFull};

const DISCARDING: [Shutdown; 2] = [Shutdown::Discard, Shutdown::Cancel];

/// Shuts the pool down on another thread, and waits until that drops the captures at the gate.
fn shut_down(
    pool: &Arc<Pool>,
    mode: Shutdown,
    timeout: Duration,
    slow: &Gate,
) -> JoinHandle<ShutdownReport> {
    let pool = Arc::clone(pool);
    let shutdown = thread::spawn(move || pool.shutdown(mode, timeout));
    slow.wait_entered(1);
    shutdown
}

/// Cancels the group on another thread, and waits until that drops the captures at the gate.
fn cancel(group: &Group, slow: &Gate) -> JoinHandle<()> {
    let group = group.clone();
    let cancel = thread::spawn(move || group.cancel());
    slow.wait_entered(1);
    cancel
}

/// Starts a thread whose submission waits for room. The receiver gets its outcome.
fn blocked(pool: &Arc<Pool>, group: Option<&Group>) -> mpsc::Receiver<Result<(), Refused<()>>> {
    let (tell, told) = mpsc::channel();
    let waiting = pool.stats().waiting;
    let (core, group) = (Arc::clone(pool), group.cloned());
    thread::spawn(move || {
        let task = || ();
        let served = match group {
            Some(group) => group.serve(task),
            None => core.when_full(WhenFull::Block).serve(task),
        };
        drop(core);
        tell.send(served.map_err(Refused::without_closure))
    });
    wait_in_line(pool, waiting + 1);
    told
}

/// Laws 10 and 14: a shutdown answers a blocked submitter, and a caller whose task it hands back,
/// before it drops captures, whether the task of these was queued before or behind the caller's.
#[test]
fn law10_a_discarded_call_comes_back_before_captures_are_dropped() {
    timed(|| {
        for (mode, slow_is_first) in [(DISCARDING[0], false), (DISCARDING[1], true)] {
            let (pool, _busy) = held(2);
            let slow = Gate::new();
            if slow_is_first {
                must_serve(&pool, dropping(slow.task()));
            }
            let (tell, told) = mpsc::channel();
            let caller = Arc::clone(&pool);
            thread::spawn(move || tell.send(caller.do_with_deadline(|| (), LONG)));
            let queued = 1 + usize::from(slow_is_first);
            wait_until("the call to queue", || pool.stats().queued == queued);
            if !slow_is_first {
                must_serve(&pool, dropping(slow.task()));
            }
            let submitter = blocked(&pool, None);
            let shutdown = shut_down(&pool, mode, Duration::ZERO, &slow);
            let returned = refused(arrives("the caller's answer", &told));
            assert!(returned.is_closed());
            let refused = arrives("the submitter's answer", &submitter);
            assert!(refused.unwrap_err().is_closed());
            assert!(!shutdown.is_finished());
            slow.open();
            assert_eq!(shutdown.join().unwrap().discarded, 2);
        }
    });
}

/// Laws 14 and 20: a cancel first answers the blocked submitters of its group and gives the room it
/// makes to those behind them. Then it drops captures.
#[test]
fn law14_a_cancel_wakes_blocked_submitters_before_captures_are_dropped() {
    timed(|| {
        for members in [1, 2] {
            let (pool, _busy) = held(1);
            let slow = Gate::new();
            let group = pool.when_full(WhenFull::Block).group();
            must_serve_in(&group, dropping(slow.task()));
            let of_group: Vec<_> = (0..members).map(|_| blocked(&pool, Some(&group))).collect();
            let stranger = blocked(&pool, None);
            let cancel = cancel(&group, &slow);
            // Some of them may find the room that the cancel makes; their tasks are discarded.
            let mut discarded = 1;
            for outcome in of_group {
                match arrives("the submitter's answer", &outcome) {
                    Ok(()) => discarded += 1,
                    Err(refused) => assert_eq!(refused.reason().as_str(), "cancelled"),
                }
            }
            assert!(arrives("room", &stranger).is_ok());
            assert!(!cancel.is_finished());
            slow.open();
            cancel.join().unwrap();
            assert_eq!((group.discarded(), group.pending()), (discarded, 0));
        }
    });
}

/// Laws 2 and 10: once a shutdown discards, no queued task runs, even while captures are being
/// dropped. By then all tasks are counted, so another shutdown does not wait for the drops.
#[test]
fn law10_nothing_queued_runs_while_a_shutdown_drops_captures() {
    timed(|| {
        for mode in DISCARDING {
            let (pool, busy) = held(4);
            let (slow, ledger) = (Gate::new(), Ledger::new(3));
            must_serve(&pool, dropping(slow.task()));
            (0..3).for_each(|id| must_serve(&pool, ledger.task(id)));
            let shutdown = shut_down(&pool, mode, Duration::MAX, &slow);
            busy.open();
            await_workers(&pool, 0);
            let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
            assert!(report.is_clean());
            assert_eq!(report.discarded, 4);
            slow.open();
            assert!(shutdown.join().unwrap().is_clean());
            assert!((0..3).all(|id| (ledger.runs(id), ledger.drops(id)) == (0, 1)));
            check_at_rest(&pool, &pool.stats());
        }
    });
}

/// Laws 2 and 10: once a group is cancelled, none of its queued tasks runs, even while captures of
/// one of them are being dropped. All of them have ended for the group too, so its wait does not
/// wait for the drops.
#[test]
fn law02_nothing_queued_of_a_cancelled_group_runs_while_captures_are_dropped() {
    timed(|| {
        let (pool, busy) = held(8);
        let (group, slow, ledger) = (pool.group(), Gate::new(), Ledger::new(3));
        must_serve_in(&group, dropping(slow.task()));
        (0..3).for_each(|id| must_serve_in(&group, ledger.task(id)));
        let cancel = cancel(&group, &slow);
        assert_eq!((pool.stats().queued, pool.stats().discarded), (0, 4));
        assert_eq!((group.pending(), group.discarded()), (0, 4));
        group.wait();
        group.cancel();
        busy.open();
        settle(&pool);
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().unwrap();
        assert!((0..3).all(|id| (ledger.runs(id), ledger.drops(id)) == (0, 1)));
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 15: a scope's task runs while a shutdown drops captures.
#[test]
fn law15_a_scopes_task_runs_while_a_shutdown_drops_captures() {
    timed(|| {
        let (pool, busy) = held(2);
        let (slow, ledger) = (Gate::new(), Ledger::new(1));
        must_serve(&pool, dropping(slow.task()));
        let (scoping, task) = (Arc::clone(&pool), ledger.task(0));
        let scope = thread::spawn(move || scoping.scope(|s| s.serve(task).is_ok()));
        wait_until("the task to be queued", || pool.stats().queued == 2);
        let shutdown = shut_down(&pool, Shutdown::Discard, Duration::MAX, &slow);
        busy.open();
        assert!(scope.join().unwrap());
        ledger.assert_all_ran();
        assert!(!shutdown.is_finished());
        slow.open();
        assert_eq!(shutdown.join().unwrap().discarded, 1);
    });
}

/// Law 10: while a cancel still drops captures, a drop of the pool does not wait for the group's
/// running task.
#[test]
fn law10_a_drop_does_not_wait_while_a_cancel_drops_captures() {
    timed(|| {
        let (pool, busy, slow) = (pool(1, 1), Gate::new(), Gate::new());
        let group = pool.group();
        must_serve_in(&group, busy.task());
        busy.wait_entered(1);
        must_serve_in(&group, dropping(slow.task()));
        let cancel = cancel(&group, &slow);
        assert_eq!(pool.stats().abandoned, 1);
        arrives("the end of the drop", &drop_aside(pool));
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().unwrap();
    });
}

/// Law 10: a drop that drains waits for the tasks queued behind one that is too late to start, even
/// while the late task's captures are dropped, and its group, of which an earlier task has run, is
/// cancelled. The late task does not count as abandoned, since it does not run.
#[test]
fn law10_a_drop_waits_for_tasks_that_are_queued_behind_a_late_one() {
    timed(|| {
        for cancels in [false, true] {
            let (pool, busy) = (pool(1, 16), Gate::new());
            let (slow, ledger) = (Gate::new(), Ledger::new(8));
            // Long enough for the group's first task to start in time.
            let d = ms(if cancels { 1000 } else { 20 });
            let group = pool.with_deadline(d).group();
            let first = if cancels { &group } else { &pool.group() };
            must_serve_in(first, busy.task());
            busy.wait_entered(1);
            must_serve_in(&group, dropping(slow.task()));
            (0..8).for_each(|id| must_serve(&pool, ledger.task(id)));
            thread::sleep(d); // past the deadline
            busy.open();
            slow.wait_entered(1);
            if cancels {
                group.cancel();
            }
            assert_eq!(pool.stats().abandoned, 0);
            let ended = drop_aside(pool);
            assert!(
                ended.recv_timeout(ms(50)).is_err(),
                "eight tasks are wanted"
            );
            slow.open();
            arrives("the end of the drop", &ended);
            ledger.assert_all_ran();
        }
    });
}
