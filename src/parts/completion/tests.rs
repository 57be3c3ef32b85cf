use super::node::{note_yield, spin_for_outcome, LONG_YIELD, WAITS, YIELD_EARLY};
use super::*;
use crate::parts::backoff::Step;
use crate::parts::cut::cut;
use crate::parts::deadline::{Deadline, Until};
use std::sync::{mpsc, Arc};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const WRAP: u64 = u64::MAX / 8;

/// A node, for its worker.
struct At(*const WaitNode);
// SAFETY: the pointer is sent for `release` and `Decision::deadline` only, which the worker may call.
unsafe impl Send for At {}

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
    let it = Decision::default();
    let other = mailbox_id(6);
    let ids = [mailbox_id(5), queue_id(40), queue_id(48)];
    for task_id in ids.into_iter().chain([mailbox_id(u64::MAX >> 6)]) {
        assert!(!it.abandon(task_id, 9), "not started");
        it.start(task_id);
        assert!(!it.is_abandoned());
        assert!(!it.complete(other) && !it.abandon(other, 9));
        assert!(it.complete(task_id));
        assert!(!it.abandon(task_id, 9), "the outcome is being delivered");
        assert!(!it.is_abandoned());

        it.start(task_id);
        assert!(!it.abandon(other, 9));
        assert!(it.abandon(task_id, 9) && !it.abandon(task_id, 9));
        assert!(it.is_abandoned());
        assert!(!it.complete(task_id));
        it.forget(task_id);
        assert!(!it.is_abandoned());
    }
}

/// A person who looks at a pool that hangs is told of a task that waits for its caller to store the deadline.
#[test]
fn a_task_that_waits_for_its_deadline_is_shown_as_pinned() {
    let (it, node, task_id) = (&Decision::default(), WaitNode::new(None), mailbox_id(5));
    it.start(task_id);
    assert!(!it.is_pinned());
    thread::scope(|s| {
        let (tell, told) = mpsc::channel();
        tell.send(At(&node)).expect("a worker");
        let asks = s.spawn(move || {
            let At(node) = told.recv().expect("a node");
            // SAFETY: the node is alive.
            unsafe { it.deadline(task_id, node) }
        });
        while !it.is_pinned() {
            thread::yield_now();
        }
        assert!(!it.abandon(task_id, 9), "the caller cannot leave");
        node.set_deadline(70);
        assert_eq!(asks.join().unwrap(), 70);
    });
    assert!(!it.is_pinned() && it.complete(task_id));
}

#[test]
fn a_task_reads_its_deadline_and_its_caller_may_still_leave() {
    let it = Decision::default();
    let node = WaitNode::new(None);
    node.set_deadline(70);
    for task_id in [mailbox_id(5), queue_id(40)] {
        it.start(task_id);
        // SAFETY: the node is alive.
        assert_eq!(unsafe { it.deadline(task_id, &node) }, 70);
        assert!(it.abandon(task_id, 80));
        // SAFETY: the caller has left, so the node is not read.
        let left_at = unsafe { it.deadline(task_id, std::ptr::null()) };
        assert_eq!(left_at, 80);
    }
}

/// Regression: two functions once decided whether there is a deadline, with different results.
#[test]
fn a_limit_beyond_the_clock_is_none_from_the_start() {
    for limit in [
        Duration::MAX,
        Duration::MAX - Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::from_secs(1 << 40),
    ] {
        let deadline = Deadline::new(Until::After(limit));
        assert_eq!(deadline.instant(), None, "{limit:?}");
    }
    let far = Deadline::new(Until::After(Duration::from_secs(250 * 365 * 24 * 60 * 60)));
    let at = far.instant();
    assert!(at.is_some() && far.instant() == at);
}

/// A wait that was told to park stores its wake-up before it checks the deadline. So `release`
/// unparks this thread even though the wait has expired.
#[test]
fn a_wait_parks_at_once_where_it_was_told_to() {
    WaitNode::park_next_time();
    let node = WaitNode::new(None);
    let passed = Deadline::from_now(Duration::ZERO);
    assert_eq!(node.wait(&passed, true), None);
    // SAFETY: the node is alive although its caller has stopped waiting, and this is the only call
    // for it.
    let _ = unsafe { WaitNode::release(&node) };
    let start = Instant::now();
    thread::park_timeout(Duration::from_secs(20));
    assert!(start.elapsed() < Duration::from_secs(10), "not woken");
}

/// Raising `done` is the worker's last access. A later access would be a use of freed memory.
#[test]
fn a_node_may_go_once_its_caller_is_released() {
    for round in 0..cut(1_000) {
        let (tell, told) = mpsc::channel();
        thread::scope(|s| {
            s.spawn(move || {
                let node = WaitNode::new(None);
                tell.send(At(&node)).expect("a worker");
                // In every other round the thread spins first. In the others it parks soon.
                let done = node.wait(&Deadline::never(), round % 2 == 0);
                assert!(done.is_some());
            });
            let At(node) = told.recv().expect("a node");
            // SAFETY: the caller waits, and this is the only call for its node.
            let _ = unsafe { WaitNode::release(node) };
        });
    }
}

// ---- on the heap -------------------------------------------------------------------------

/// Returns a token and a function that clones it. The count of clones shows what has not been
/// dropped.
fn tokens() -> (Arc<()>, impl Fn() -> Arc<()>) {
    let token = Arc::new(());
    let more = Arc::clone(&token);
    (token, move || Arc::clone(&more))
}

fn end<F: 'static, O: 'static>(mut task: TaskSide<F, O>, outcome: O) -> Remains {
    drop(task.take());
    task.end(Some(outcome)).release()
}

/// Both sides leave, in either order. Everything in the node is dropped once.
#[test]
fn the_side_that_leaves_last_frees_the_node() {
    for handle_first in [true, false] {
        for polls in [true, false] {
            let (alive, token) = tokens();
            let (task, mut handle) = pair::<_, Arc<()>>(Some("label"), token());
            assert_eq!(task.node().label, Some("label"));
            assert!(!handle.node().has_outcome());
            let waker = Waker::from(Arc::new(Unwoken(token())));
            assert!(!polls || !handle.poll(&waker));
            drop(waker);
            if handle_first {
                drop(handle);
                assert!(task.node().is_gone());
                let remains = end(task, token());
                assert!(remains.waker.is_none(), "none is kept");
                assert_eq!(Arc::strong_count(&alive), 3, "the value is in the node");
                drop(remains);
            } else {
                let remains = end(task, token());
                assert!(remains.node.is_none() && handle.node().has_outcome());
                assert_eq!(remains.waker.is_some(), polls);
                drop(remains);
                drop(handle);
            }
            assert_eq!(Arc::strong_count(&alive), 2, "{handle_first} {polls}");
        }
    }
}

/// A task's side on its way to its worker.
struct Sent(TaskSide<Arc<()>, Arc<()>>);

// SAFETY: the captured value and the outcome are `Arc<()>`, which is `Send`.
unsafe impl Send for Sent {}

impl Sent {
    fn end(self, outcome: Arc<()>) {
        drop(end(self.0, outcome));
    }
}

/// A handle leaves while the worker ends its task. No reference to the node may outlive the node.
/// This test is for Miri. Under Miri, a handle that has left the node yields, so that the worker
/// frees the node before `release_handle` returns.
#[test]
fn a_handle_may_go_while_the_worker_frees_the_node() {
    for round in 0..cut(6_000) {
        let (alive, token) = tokens();
        let (task, mut handle) = pair::<_, Arc<()>>(Some("label"), token());
        let waker = Waker::from(Arc::new(Unwoken(token())));
        assert!(round % 2 == 0 || !handle.poll(&waker));
        drop(waker);
        let outcome = token();
        let sent = Sent(task);
        let worker = thread::spawn(move || sent.end(outcome));
        drop(handle);
        worker.join().expect("no panic");
        assert_eq!(Arc::strong_count(&alive), 2, "{round}");
    }
}

/// A waker that panics when it is woken, and holds a token.
struct Unwoken(#[allow(dead_code)] Arc<()>);

impl Wake for Unwoken {
    fn wake(self: Arc<Self>) {
        panic!("woken");
    }
}

#[test]
fn a_handle_keeps_the_last_waker_and_takes_the_outcome_once() {
    let (alive, token) = tokens();
    let wakes = [0, 1].map(|_| Arc::new(Unwoken(Arc::new(()))));
    let wakers = wakes.clone().map(Waker::from);
    let (task, mut handle) = pair(None, ());
    assert!(!handle.poll(&wakers[0]) && !handle.poll(&wakers[0]));
    assert!(!handle.poll(&wakers[1]));
    assert!(!handle.wait(&Deadline::from_now(Duration::ZERO), true));
    assert!(handle.retract().is_none(), "a thread waited last");
    assert!(!handle.poll(&wakers[1]));
    let remains = end(task, token());
    // Counts clones, because `will_wake` may return `false` for equal wakers.
    let clones = wakes.each_ref().map(|wake| Arc::strong_count(wake) - 2);
    assert!(remains.waker.is_some());
    assert_eq!(clones, [0, 1]);
    assert!(handle.poll(&wakers[0]) && handle.wait(&Deadline::never(), false));
    assert!(handle.take().is_some() && handle.node().has_outcome());
    assert!(handle.take().is_none());
    assert_eq!(Arc::strong_count(&alive), 2);
}

#[test]
fn a_cancel_is_found_by_the_side_that_comes_second() {
    let it = Decision::default();
    let id = mailbox_id(3);
    let (task, handle) = pair::<_, ()>(None, ());
    let node = handle.node();
    assert_eq!((node.cancel(), node.cancel()), (None, None));
    it.start(id);
    assert!(task.node().tell_slot(65_535), "cancelled before");
    assert!(it.abandon(id, 0) && !it.abandon(id, 0) && it.is_abandoned());
    assert_eq!(it.left_at(), None);
    assert!(!it.complete(id));
    it.forget(id);
    assert!(!it.is_abandoned());
    drop(end(task, ()));

    let (task, handle) = pair::<_, ()>(None, ());
    it.start(id);
    assert!(!task.node().tell_slot(65_535));
    let node = handle.node();
    assert_eq!(node.cancel(), Some(65_535));
    assert_eq!(node.worker_slot(), Some(65_535));
    assert!(it.complete(id));
    assert!(!it.abandon(id, 0) && !it.is_abandoned(), "it has ended");
    drop(end(task, ()));
}

/// Law 3: a yield may take a time slice of a busy thread. So a thread that this has happened to parks after its looks.
#[test]
fn a_thread_whose_yield_took_long_parks_instead() {
    let ends_by_yields = || {
        let mut spin = spin_for_outcome(true);
        std::iter::repeat_with(|| spin.step())
            .take_while(|step| *step != Step::Spent)
            .any(|step| step == Step::Yielded)
    };
    note_yield(LONG_YIELD);
    assert!(ends_by_yields());
    note_yield(LONG_YIELD + Duration::from_nanos(1));
    for early in [false, true] {
        YIELD_EARLY.set(early);
        assert!(!ends_by_yields());
    }
    for _ in 2..WAITS {
        let _ = spin_for_outcome(true);
    }
    assert!(ends_by_yields(), "it tries again");
}
