//! Law 10: threads are woken before the captures of discarded tasks are dropped. That drop is user
//! code and may take long; no thread whose answer is known waits for it.

mod common;

use std::sync::{mpsc, Arc, Mutex};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::*;
use lazypool::{Group, Pool, Refused, Shutdown, TaskError, WhenFull};

/// Discards tasks on another thread, and waits until that drops the captures at the gate.
fn aside<T: Send + 'static>(
    slow: &Gate,
    discards: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let discards = thread::spawn(discards);
    slow.wait_entered(1);
    discards
}

/// Starts a thread that waits for space for a task of the group. The receiver gets the outcome.
fn blocked(pool: &Pool, group: &Group) -> mpsc::Receiver<Result<(), Refused<()>>> {
    let (tell, told) = mpsc::channel();
    let (waiting, group) = (pool.stats().waiting, group.clone());
    thread::spawn(move || tell.send(group.serve(|| ()).map_err(Refused::without_closure)));
    wait_in_line(pool, waiting + 1);
    told
}

/// Laws 10 and 14: a shutdown answers a blocked submitter, and a caller whose task it hands back,
/// before it drops captures. This holds whether the task with these captures was queued before or
/// behind the caller's task.
#[test]
fn law10_a_discarded_call_comes_back_before_captures_are_dropped() {
    let cases = [(Shutdown::Discard, false), (Shutdown::Cancel, true)];
    timed_each(cases, |(mode, slow_is_first)| {
        let (pool, _busy) = held(2);
        let slow = Gate::new();
        if slow_is_first {
            must_serve(&pool, dropping(slow.task()));
        }
        let (tell, told) = mpsc::channel();
        let call = |pool: &Pool| pool.do_with_deadline(|| (), LONG);
        beside(&pool, move |pool| tell.send(call(pool)));
        await_queued(&pool, 1 + usize::from(slow_is_first));
        if !slow_is_first {
            must_serve(&pool, dropping(slow.task()));
        }
        let submitter = blocked(&pool, &pool.when_full(WhenFull::Block).group());
        let its = Arc::clone(&pool);
        let shutdown = aside(&slow, move || its.shutdown(mode, Duration::ZERO));
        assert!(refused(arrives("the caller's answer", &told)).is_closed());
        let refused = arrives("the submitter's answer", &submitter);
        assert!(refused.unwrap_err().is_closed());
        assert!(!shutdown.is_finished());
        slow.open();
        assert_eq!(shutdown.join().unwrap().discarded, 2);
    });
}

/// Laws 14 and 20: a cancel first answers the blocked submitters of its group and gives the space it
/// makes to those behind them. Then it drops captures.
#[test]
fn law14_a_cancel_wakes_blocked_submitters_before_captures_are_dropped() {
    timed_each([1, 2], |members| {
        let (pool, _busy) = held(1);
        let slow = Gate::new();
        let group = pool.when_full(WhenFull::Block).group();
        must_serve_in(&group, dropping(slow.task()));
        let of_group: Vec<_> = (0..members).map(|_| blocked(&pool, &group)).collect();
        let stranger = blocked(&pool, &pool.when_full(WhenFull::Block).group());
        let cancels = group.clone();
        let cancel = aside(&slow, move || cancels.cancel());
        // Some of them may find the space that the cancel makes; their tasks are discarded.
        let mut discarded = 1;
        for outcome in of_group {
            match arrives("the submitter's answer", &outcome) {
                Ok(()) => discarded += 1,
                Err(refused) => assert_eq!(refused.reason().as_str(), "cancelled"),
            }
        }
        assert!(arrives("space", &stranger).is_ok());
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().unwrap();
        assert_eq!((group.discarded(), group.pending()), (discarded, 0));
    });
}

/// Laws 2, 10 and 21: none of the tasks that a shutdown or a cancel discards runs, even while
/// captures of one of them are being dropped. By then all are counted, and handles and groups have
/// been told, so neither a wait nor another shutdown waits for the drops.
#[test]
fn law10_law21_discarded_tasks_have_ended_while_captures_are_dropped() {
    let modes = [None, Some(Shutdown::Discard), Some(Shutdown::Cancel)];
    timed_each(product(modes, [0, 1, 2]), |(mode, turn)| {
        let (pool, busy) = held(4);
        let (group, slow, ledger) = (pool.group(), Gate::new(), Ledger::new(3));
        let fails = after(&slow, || quiet_panic("contained"));
        let handle = must_await(group.awaitable(), dropping(fails));
        (0..3).for_each(|id| must_serve_in(&group, ledger.task(id)));
        let (its, cancels) = (Arc::clone(&pool), group.clone());
        let discarder = aside(&slow, move || match mode {
            Some(mode) => assert!(its.shutdown(mode, Duration::MAX).is_clean()),
            None => cancels.cancel(),
        });
        assert_stats!(pool.stats(), queued: 0, discarded: 4, expired: 0);
        assert_eq!((group.pending(), group.discarded()), (0, 4));
        assert!(handle.is_finished());
        match (mode, outcome_of(handle, turn).unwrap_err()) {
            (None, TaskError::Cancelled) | (Some(_), TaskError::Discarded) => {}
            other => panic!("{other:?}"),
        }
        group.wait();
        group.cancel();
        busy.open();
        settle(&pool);
        if mode.is_some() {
            await_workers(&pool, 0);
            let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
            assert!(report.is_clean());
            assert_eq!(report.discarded, 4);
        }
        assert!(!discarder.is_finished());
        slow.open();
        discarder.join().unwrap();
        ledger.assert_none_ran();
        at_rest(&pool);
    });
}

/// Law 15: a scope's task runs while a shutdown drops captures.
#[test]
fn law15_a_scopes_task_runs_while_a_shutdown_drops_captures() {
    timed(|| {
        let (pool, busy) = held(2);
        let (slow, ledger) = (Gate::new(), Ledger::new(1));
        must_serve(&pool, dropping(slow.task()));
        let task = ledger.task(0);
        let scope = beside(&pool, |pool| pool.scope(|s| s.serve(task).is_ok()));
        await_queued(&pool, 2);
        let (its, mode) = (Arc::clone(&pool), Shutdown::Discard);
        let shutdown = aside(&slow, move || its.shutdown(mode, Duration::MAX));
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
        let cancel = aside(&slow, move || group.cancel());
        assert_eq!(pool.stats().abandoned, 1);
        arrives("the end of the drop", &drop_aside(pool));
        assert!(!cancel.is_finished());
        slow.open();
        cancel.join().unwrap();
    });
}

/// Law 10: a drop that drains waits for the tasks queued behind one that is too late to start. This
/// holds even while the late task's captures are dropped, and even if its group, of which an
/// earlier task has run, is cancelled meanwhile. The late task does not count as abandoned, since
/// it does not run.
#[test]
fn law10_a_drop_waits_for_tasks_that_are_queued_behind_a_late_one() {
    timed_each([false, true], |cancels| {
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
        let early = ended.recv_timeout(ms(50));
        assert!(early.is_err(), "eight tasks are wanted");
        slow.open();
        arrives("the end of the drop", &ended);
        ledger.assert_all_ran();
    });
}

/// Laws 10 and 14: a capture that a worker drops may wait for another thread that calls the pool. That
/// thread's task is not handed to the very worker that waits, although it used that worker last.
#[test]
fn law10_a_drop_on_a_worker_may_wait_for_a_thread_that_calls_the_pool() {
    timed_each([0, 4], |queue| {
        let pool = Arc::new(pool(3, queue));
        let (jobs, job) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let helper = thread::spawn(move || job.iter().for_each(|job| job()));
        // The helper's task has the first worker.
        let (gate, other) = (Gate::new(), Gate::new());
        let (its, task, (tell, told)) = (Arc::clone(&pool), gate.task(), mpsc::channel());
        let serve = move || tell.send(must_await(its.awaitable(), task)).unwrap();
        jobs.send(Box::new(serve)).unwrap();
        let mut handle = arrives("the handle", &told);
        gate.wait_entered(1);
        // A future waits in the line of a full group. Its capture asks the helper to call the pool.
        let group = pool.limited_group(1);
        must_serve_in(&group, other.task());
        other.wait_entered(1);
        let (its, (tell, called)) = (Arc::clone(&pool), mpsc::channel());
        let capture = dropping(move || {
            let (answer, answered) = mpsc::channel();
            let call = move || {
                answer
                    .send(its.do_with_deadline(|| 7, Duration::MAX).ok())
                    .unwrap()
            };
            jobs.send(Box::new(call)).unwrap();
            tell.send(answered.recv()).unwrap();
        });
        let in_line = pending(group.awaitable().serve_async(capture), Waker::noop());
        // The first worker drops that future in a waker, and its capture after that.
        let in_line = Mutex::new(Some(in_line));
        let waker = calling(move || drop(in_line.lock().unwrap().take()));
        assert!(poll(&mut handle, &waker).is_pending());
        gate.open();
        assert_eq!(arrives("the call's value", &called), Ok(Some(7)));
        helper.join().unwrap();
        other.open();
    });
}
