//! A worker's decision and a caller's node alone (`src/parts/completion`). The model's own thread
//! is a caller. If a worker touches the caller's memory after the caller has left, loom reports it.
#![cfg(lazypool_loom)]

use lazypool::model::{Call, Decision, Task};
use loom::thread::JoinHandle;
use loom_tests::{at_any_moment, beside, check};
use std::sync::Arc;

/// Runs the task from its start to its end. Returns `true` if its caller gets the result.
fn run(decision: &Decision, task: &Task, result: usize) -> bool {
    decision.start(task);
    decision.end(task, result)
}

/// Spawns a worker that runs the task of a call. Returns its decision, and the worker's thread.
fn running(call: &Call) -> (Arc<Decision>, JoinHandle<bool>) {
    let decision = Arc::new(Decision::new());
    let task = call.task();
    let worker = beside(&decision, move |decision| run(decision, &task, 7));
    (decision, worker)
}

/// Asserts that the caller got the result exactly if the worker delivered it. The caller has left
/// by now.
fn assert_agreed(decision: &Decision, got: Option<usize>, delivered: bool, result: usize) {
    assert_eq!(got, delivered.then_some(result));
    assert!(!decision.is_abandoned());
}

/// A caller leaves at its deadline while its task, which was handed over or queued, starts and ends.
/// Excludes: a result that both or neither own; a caller that leaves without the result although it
/// is being delivered; a caller whose node is touched after it left, or written to where the task
/// runs. All interleavings.
#[test]
fn end_against_leaving() {
    for call in [|| Call::by_mailbox(1), || Call::by_queue(8)] {
        check(None, move || {
            let call = call();
            let (decision, worker) = running(&call);
            let got = call.leave(&decision, 0);
            drop(call);
            assert_agreed(&decision, got, worker.join().unwrap(), 7);
        });
    }
}

/// A caller parks while its result is delivered. Excludes: a lost wake-up; a result read before it
/// was written; a thread handle read after the caller has left. All interleavings.
#[test]
fn release_against_park() {
    check(None, || {
        let call = Call::by_mailbox(1);
        let (_decision, worker) = running(&call);
        assert_eq!(call.wait(), 7);
        drop(call);
        assert!(worker.join().unwrap());
    });
}

/// A caller with a deadline, which passes at any moment, parks while its result is delivered.
/// Excludes: a caller that sleeps past its deadline or past its result; and all that
/// `end_against_leaving` and `release_against_park` exclude. Preemptions: 3.
#[test]
fn release_against_deadline() {
    check(Some(3), || {
        let call = Call::by_mailbox(1);
        let (decision, worker) = running(&call);
        let got = at_any_moment(|deadline| call.wait_until(&decision, deadline));
        drop(call);
        assert_agreed(&decision, got, worker.join().unwrap(), 7);
    });
}

/// A task asks for its deadline while its caller publishes the deadline and leaves. Excludes: a
/// deadline that the caller has not published; a read in the node of a caller that has left; a
/// caller that mistakes that read for the end of its task. All interleavings.
#[test]
fn asked_against_leaving() {
    check(None, || {
        let decision = Arc::new(Decision::new());
        let call = Call::by_mailbox(1);
        let task = call.task();
        let worker = beside(&decision, move |decision| {
            decision.start(&task);
            let deadline = decision.deadline(&task);
            (deadline, decision.end(&task, 7))
        });
        let told = 9;
        call.tell_deadline(told);
        let got = call.leave(&decision, told);
        drop(call);
        let (read, delivered) = worker.join().unwrap();
        assert_eq!(read, told);
        assert_agreed(&decision, got, delivered, 7);
    });
}

/// Two tasks of one worker: the first one's caller leaves, the second one's waits. Excludes: a
/// caller that takes the decision on the other task for its own; a caller that is still leaving
/// when the worker goes on. Preemptions: 3.
#[test]
fn the_next_task_against_leaving() {
    check(Some(3), || {
        let decision = Arc::new(Decision::new());
        let second = Call::by_mailbox(2);
        let next = second.task();
        let (tell, told) = loom::sync::mpsc::channel();
        let other = beside(&decision, move |decision| {
            let first = Call::by_mailbox(1);
            tell.send(first.task()).unwrap();
            first.leave(decision, 0)
        });
        let worker = beside(&decision, move |decision| {
            let delivered = run(decision, &told.recv().unwrap(), 1);
            assert!(run(decision, &next, 2), "its caller waits");
            delivered
        });
        assert_eq!(second.wait(), 2);
        drop(second);
        let got = other.join().unwrap();
        assert_agreed(&decision, got, worker.join().unwrap(), 1);
    });
}
