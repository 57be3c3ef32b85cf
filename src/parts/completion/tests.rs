use super::*;
use crate::parts::cut::cut;
use crate::parts::deadline::Deadline;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const WRAP: u64 = u64::MAX / 8;

#[test]
fn ids_name_one_task_each() {
    let far = [1 << 40, (1 << 40) + 1];
    let mut ids = Vec::new();
    for n in (0..=100).chain(far).chain(WRAP / 8 - 3..WRAP / 8) {
        let (mailbox, queue) = (mailbox_id(n), queue_id(8 * n));
        assert!(is_queued(queue) && !is_queued(mailbox), "{n}");
        ids.extend([mailbox, queue]);
    }
    assert!(ids.iter().all(|task_id| task_id % 8 == 0));
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn a_started_task_is_its_workers_or_its_callers() {
    let it = Decision::new();
    let other = mailbox_id(6);
    let ids = [mailbox_id(5), queue_id(40), queue_id(48)];
    for task_id in ids.into_iter().chain([mailbox_id(u64::MAX >> 6)]) {
        assert_eq!(it.leave(task_id, 9), Leave::NotYet, "not started");
        it.start(task_id);
        assert!(!it.is_abandoned() && !it.has_left(task_id));
        assert_eq!(it.complete(other), Completed::CallerLeft);
        assert_eq!(it.leave(other, 9), Leave::NotYet);
        assert_eq!(it.complete(task_id), Completed::CallerWaits);
        assert_eq!(it.leave(task_id, 9), Leave::Outcome);
        assert!(!it.is_abandoned());

        it.start(task_id);
        assert_eq!(it.leave(other, 9), Leave::NotYet);
        assert_eq!(it.leave(task_id, 9), Leave::Left);
        assert!(it.is_abandoned() && it.has_left(task_id));
        assert_eq!(it.complete(task_id), Completed::CallerLeft);
        it.forget(task_id);
        assert!(!it.is_abandoned());
    }
}

#[test]
fn a_task_reads_its_deadline_and_its_caller_may_still_leave() {
    let it = Decision::new();
    let node = WaitNode::new(None);
    node.set_deadline(70);
    for task_id in [mailbox_id(5), queue_id(40)] {
        it.start(task_id);
        // SAFETY: the node is there.
        assert_eq!(unsafe { it.deadline(task_id, &node) }, 70);
        assert_eq!(it.leave(task_id, 80), Leave::Left);
        // SAFETY: the caller has left: the node is not looked at any more.
        let left_at = unsafe { it.deadline(task_id, std::ptr::null()) };
        assert_eq!(left_at, 80);
    }
}

/// Whether there is a deadline was once decided twice, with two answers.
#[test]
fn a_limit_beyond_the_clock_is_none_from_the_start() {
    for limit in [
        Duration::MAX,
        Duration::MAX - Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        let deadline = Deadline::after(limit);
        assert!(deadline.is_never(), "{limit:?}");
        assert_eq!(deadline.instant(), None);
    }
    let far = Deadline::after(Duration::from_secs(250 * 365 * 24 * 60 * 60));
    assert!(!far.is_never() && far.instant().is_some() && !far.is_never());
}

#[test]
fn a_caller_waits_for_its_outcome_or_its_deadline() {
    let node = WaitNode::new(None);
    for parallel in [true, false] {
        let deadline = Deadline::from_now(Duration::from_millis(20));
        assert_eq!(node.wait(&deadline, parallel), Waited::Expired);
        assert!(deadline.has_passed() && !node.is_done());
    }
    // SAFETY: it waits no longer, but it is there, and this is the one call.
    unsafe { WaitNode::release(&node) };
    assert!(node.is_done());
    assert_eq!(node.wait(&Deadline::never(), false), Waited::Done);
}

/// Raising `done` is the worker's last touch: a later one is a use of what has gone.
#[test]
fn a_node_may_go_once_its_caller_is_released() {
    struct At(*const WaitNode);
    // SAFETY: for `release`, which the worker calls.
    unsafe impl Send for At {}
    for round in 0..cut(1_000) {
        let (tell, told) = mpsc::channel();
        thread::scope(|s| {
            s.spawn(move || {
                let node = WaitNode::new(None);
                tell.send(At(&node)).expect("a worker");
                // Spinning, or soon parked.
                let done = node.wait(&Deadline::never(), round % 2 == 0);
                assert_ne!(done, Waited::Expired);
            });
            let At(node) = told.recv().expect("a node");
            // SAFETY: its caller waits, and this is the one call.
            unsafe { WaitNode::release(node) };
        });
    }
}

#[test]
fn a_place_is_told_once_the_task_is_taken() {
    let node = WaitNode::new(Some("label"));
    assert_eq!((node.worker_slot(), node.label), (None, Some("label")));
    // SAFETY: it waits, and this is the one call.
    unsafe { WaitNode::publish_slot(&node, 65_535) };
    assert_eq!(node.worker_slot(), Some(65_535));
}
