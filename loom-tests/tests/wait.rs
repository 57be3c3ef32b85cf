//! `do_with_deadline` (`src/engine/call.rs`, `src/parts/completion`): the two decisions between a
//! caller and its task, with a deadline that passes at any moment.
#![cfg(lazypool_loom)]

use lazypool::model::{deadline, do_labeled_until, do_until};
use lazypool::{DeadlineError, Pool};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{mpsc, Mutex};
use loom::thread;
use loom_tests::{beside, check, end, pool, quietly, warm_pool, Ran};
use std::sync::Arc;
use std::time::Duration;

/// Makes calls with a deadline that another thread lets pass. Asserts that the closure ran or came
/// back, and that the closure and its result are dropped once, at the latest by the end of the
/// pool.
fn call_and_check(pool: &Pool) -> bool {
    let (deadline, alarm) = deadline();
    let clock = thread::spawn(move || alarm.go_off());
    let (ran, results) = (Ran::new(), Ran::new());
    let (f, result) = (ran.task(), results.task());
    let outcome = do_until(
        pool,
        move || {
            f();
            result
        },
        &deadline,
    );
    let free = match outcome {
        Ok(result) => {
            assert_eq!((ran.times(), ran.alive(), results.alive()), (1, 0, 1));
            drop(result);
            true
        }
        Err(DeadlineError::Expired(f)) => {
            assert_eq!((ran.times(), ran.alive(), results.alive()), (0, 1, 1));
            drop(f);
            assert_eq!(ran.alive(), 0);
            true
        }
        Err(DeadlineError::TimedOut) => false,
        Err(other) => panic!("{other}"),
    };
    if free {
        // The caller has its value or its closure, so the worker is free: law 1.
        assert!(pool.serve(|| ()).is_ok());
    }
    clock.join().unwrap();
    end(pool);
    assert_eq!((ran.alive(), results.alive()), (0, 0), "dropped once");
    assert_eq!(ran.times() == 0, pool.stats().expired == 1);
    assert_eq!(!free, pool.stats().timed_out == 1);
    free
}

/// The task is handed to an idle worker. Excludes: a closure that ran and came back; a result that
/// both or neither own; a worker that touches the node of a caller that left; a pool of one that
/// refuses after `Expired`. Preemptions: 3.
#[test]
fn in_the_mailbox() {
    check(Some(3), || {
        call_and_check(&warm_pool(0));
    });
}

/// The task is given to a worker that is just being started. Preemptions: 3.
#[test]
fn in_the_hands_of_a_new_worker() {
    check(Some(3), || {
        call_and_check(&pool(1, 0));
    });
}

/// The task is queued behind another one: the caller must learn which worker popped it.
/// Preemptions: 2.
#[test]
fn in_the_queue() {
    check(Some(2), || {
        let pool = warm_pool(1);
        let before = Ran::new();
        assert!(pool.serve(before.task()).is_ok());
        call_and_check(&pool);
        assert_eq!((before.times(), before.alive()), (1, 0));
    });
}

/// The task is pushed for a sleeping worker, which is notified. Preemptions: 2.
#[test]
fn in_the_queue_of_a_notified_worker() {
    check(Some(2), || {
        call_and_check(&warm_pool(2));
    });
}

/// A task ends only after its caller has left, on a worker that has run one task before: the caller
/// must find its own decision, and leave in time.
fn left_in_time(pool: &Pool) {
    let (deadline, alarm) = deadline();
    let clock = thread::spawn(move || alarm.go_off());
    let (open, gate) = mpsc::channel();
    match do_until(pool, move || gate.recv().unwrap(), &deadline) {
        Err(DeadlineError::TimedOut) => open.send(()).unwrap(),
        Err(DeadlineError::Expired(f)) => drop(f),
        _ => unreachable!("the gate is closed"),
    }
    clock.join().unwrap();
    end(pool);
}

/// The task is handed to an idle worker. Excludes: a caller that takes the decision on the task
/// before for its own (ids tell them apart); a caller that waits for the end of a task that it
/// could leave. Preemptions: 3.
#[test]
fn left_in_time_from_the_mailbox() {
    check(Some(3), || left_in_time(&warm_pool(0)));
}

/// The task is pushed. Excludes: a caller that is not told which worker to leave. Preemptions: 2.
#[test]
fn left_in_time_from_the_queue() {
    check(Some(2), || {
        let pool = warm_pool(1);
        assert!(pool.serve(|| ()).is_ok());
        left_in_time(&pool);
    });
}

/// The worker of a labeled task reads the label in its caller's node before the caller may leave.
/// Excludes: a read that goes on after the node is gone. Preemptions: 2.
#[test]
fn the_label_of_a_caller_that_leaves() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (open, gate) = mpsc::channel();
        match do_labeled_until(&pool, move || gate.recv().unwrap(), &deadline) {
            Err(DeadlineError::TimedOut) => open.send(()).unwrap(),
            Err(DeadlineError::Expired(f)) => drop(f),
            _ => unreachable!("the gate is closed"),
        }
        clock.join().unwrap();
        end(&pool);
    });
}

/// Runs a task that asks for its deadline, which may pass meanwhile.
fn asks(pool: &Pool) {
    let (deadline, alarm) = deadline();
    let clock = thread::spawn(move || alarm.go_off());
    let ask = || assert!(lazypool::task::deadline().is_some());
    match do_until(pool, ask, &deadline) {
        Ok(()) | Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {}
        Err(other) => panic!("{other}"),
    }
    clock.join().unwrap();
    end(pool);
}

/// The task is handed to an idle worker. Excludes: a worker that reads the node of a caller that
/// has left; a deadline read before it was written. Preemptions: 2.
#[test]
fn asked_from_the_mailbox() {
    check(Some(2), || asks(&warm_pool(0)));
}

/// The task is pushed. Preemptions: 2.
#[test]
fn asked_from_the_queue() {
    check(Some(2), || asks(&warm_pool(1)));
}

/// A task ends as its caller leaves, and the next one starts on the same worker. Excludes: a caller
/// that has left and writes over the next task's word: that task's caller would wait for ever.
/// Preemptions: 3.
#[test]
fn the_next_task_against_leaving() {
    check(Some(3), || {
        let pool = Arc::new(warm_pool(0));
        let next = beside(&pool, |pool| pool.do_with_deadline(|| (), Duration::MAX));
        let (deadline, alarm) = deadline();
        let _ = do_until(&pool, move || alarm.go_off(), &deadline);
        let next = next.join().unwrap();
        assert!(matches!(next, Ok(()) | Err(DeadlineError::Refused(_))));
        end(&pool);
    });
}

/// Returns a gate for two tasks: the first part opens it, the second waits until it is open.
fn gate_for_two() -> (impl FnOnce(), impl Fn() + Clone + Send + Sync + 'static) {
    let (open, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let open = move || (0..2).for_each(|_| open.send(()).unwrap());
    (open, move || gate.lock().unwrap().recv().unwrap())
}

/// Makes two calls whose deadlines both pass once the tasks are where `are_there` waits for them to
/// be.
fn two_leave<F: Fn() + Clone + Send + 'static>(
    pool: &Arc<Pool>,
    task: F,
    are_there: impl Fn() -> bool,
) -> [Result<(), DeadlineError<F>>; 2] {
    let calls = quietly(|| {
        let calls = [task.clone(), task].map(|task| {
            let (say, told) = mpsc::channel();
            let caller = beside(pool, move |pool| {
                let (deadline, alarm) = deadline();
                say.send(alarm).unwrap();
                do_until(pool, task, &deadline)
            });
            (caller, told.recv().unwrap())
        });
        while !are_there() {
            thread::yield_now();
        }
        calls
    });
    let callers = calls.map(|(caller, alarm)| {
        alarm.go_off();
        caller
    });
    callers.map(|caller| caller.join().unwrap())
}

/// Two callers leave their running tasks. Excludes: a lost increment of the count of timed-out
/// calls. Preemptions: 2.
#[test]
fn two_time_out() {
    check(Some(2), || {
        let pool = Arc::new(pool(2, 0));
        let (open, wait) = gate_for_two();
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let task = move || {
            count.fetch_add(1, Ordering::SeqCst);
            wait();
        };
        let left = two_leave(&pool, task, || started.load(Ordering::SeqCst) == 2);
        assert!(left
            .iter()
            .all(|l| matches!(l, Err(DeadlineError::TimedOut))));
        assert_eq!(pool.stats().timed_out, 2);
        open();
        end(&pool);
    });
}

/// Two callers take their tasks back from workers in their start hooks. Excludes: a lost increment
/// of the count of expired calls. Preemptions: 2.
#[test]
fn two_expire_in_the_mailbox() {
    check(Some(2), || {
        let (open, wait) = gate_for_two();
        let pool = Pool::builder()
            .max_workers(2)
            .idle_timeout(Duration::from_nanos(1))
            .on_worker_start(move |_| wait())
            .build()
            .unwrap();
        let pool = Arc::new(pool);
        let left = two_leave(&pool, || (), || pool.stats().running == 2);
        assert!(left
            .iter()
            .all(|l| matches!(l, Err(DeadlineError::Expired(_)))));
        assert_eq!(pool.stats().expired, 2);
        open();
        end(&pool);
    });
}

/// Two callers take their tasks back from the queue. Excludes: a lost increment of the count of
/// expired calls, or of tasks removed from the queue. Preemptions: 2.
#[test]
fn two_expire_in_the_queue() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool(2));
        let (open, gate) = mpsc::channel();
        quietly(|| assert!(pool.serve(move || gate.recv().unwrap()).is_ok()));
        let left = two_leave(&pool, || (), || pool.stats().queued == 2);
        assert!(left
            .iter()
            .all(|l| matches!(l, Err(DeadlineError::Expired(_)))));
        assert_eq!((pool.stats().expired, pool.stats().queued), (2, 0));
        open.send(()).unwrap();
        end(&pool);
    });
}

/// A task asks for its deadline and ends only after its caller has left. Excludes: a caller that
/// takes the read of its deadline for the end of the task. Preemptions: 2.
#[test]
fn asked_by_a_task_that_outlives_its_caller() {
    check(Some(2), || {
        let pool = warm_pool(0);
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let (open, gate) = mpsc::channel();
        let ask = move || {
            assert!(lazypool::task::deadline().is_some());
            gate.recv().unwrap();
        };
        match do_until(&pool, ask, &deadline) {
            Err(DeadlineError::TimedOut) => open.send(()).unwrap(),
            Err(DeadlineError::Expired(f)) => drop(f),
            _ => unreachable!("the gate is closed"),
        }
        clock.join().unwrap();
        end(&pool);
    });
}

/// A caller takes its task back from a worker that sleeps or starts it, while another call comes.
/// Excludes: a call refused once the first caller has its task back and its worker is idle; a
/// worker that is told to look at the queue and never does, or stays counted for ever. Preemptions:
/// 2.
#[test]
fn taken_back_against_the_next_call() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool(1));
        let next = beside(&pool, |pool| {
            pool.do_with_deadline(|| (), Duration::MAX).is_ok()
        });
        let (deadline, alarm) = deadline();
        let clock = thread::spawn(move || alarm.go_off());
        let _ = do_until(&pool, || (), &deadline);
        assert!(next.join().unwrap(), "a worker, or the queue");
        clock.join().unwrap();
        end(&pool);
    });
}
