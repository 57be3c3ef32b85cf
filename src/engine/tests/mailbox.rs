//! Tests of a task in the mailbox of a worker that has user code to call.

use super::*;
use crate::engine::handle::Outcome;
use crate::error::TaskError;
use crate::parts::completion::{pair, TaskSide};
use crate::work::context::Ctx;
use crate::work::job::{End, NeverRan, Release, TaskEnd};
use crate::work::panics::has_panicked;

/// A task for which a worker of the pool waits, and which that worker may take back.
struct Nested<F>(F);

// SAFETY: `F` is `Send` and `'static`.
unsafe impl<F: FnOnce() + Send + 'static> Job for Nested<F> {
    const OFFERED: bool = true;

    fn must_not_queue(&self) -> bool {
        true
    }

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        end(TaskEnd::ran(has_panicked(ctx.call(self.0))));
    }

    fn discard(self, _: NeverRan) -> Release {
        Release {
            captured: Some(Box::new(self.0)),
            ..Release::default()
        }
    }
}

/// A value that waits when it is dropped.
struct Waits(mpsc::Sender<()>, mpsc::Receiver<()>);

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.0.send(());
        let _ = self.1.recv();
    }
}

/// A waker that waits, then drops a value.
struct WaitsThenDrops<T>(Mutex<(mpsc::Receiver<()>, Option<T>)>);

impl<T: Send + 'static> Wake for WaitsThenDrops<T> {
    fn wake(self: Arc<Self>) {
        let mut it = lock(&self.0);
        let _ = it.0.recv();
        let value = it.1.take();
        drop(it);
        drop(value);
    }
}

/// A pool of two workers. One is busy; the other one calls a waker, and drops a value after that. Both wait.
struct Scene {
    /// The slot of the worker that calls the waker.
    slot: usize,
    end_wake: mpsc::Sender<()>,
    dropping: mpsc::Receiver<()>,
    end_drop: mpsc::Sender<()>,
    _busy: mpsc::Sender<()>,
    /// Dropped last: that waits for the tasks.
    pool: Pool,
}

const LIMIT: Duration = Duration::from_secs(10);

impl Scene {
    fn new() -> Self {
        let pool = Builder::new().max_workers(2).build().expect("a pool");
        let core = pool.core();
        // A future waits in the line of a full group. The waker drops it, and the worker drops its
        // capture after that.
        let (busy, occupied) = mpsc::channel::<()>();
        let full = pool.limited_group(1);
        full.serve(move || occupied.recv().unwrap_or_default())
            .expect("space");
        let ((drops, dropping), (end_drop, drop_ends)) = (mpsc::channel(), mpsc::channel());
        let value = Waits(drops, drop_ends);
        let mut in_line = Box::pin(full.awaitable().serve_async(move || drop(value)));
        let noop = &mut Context::from_waker(Waker::noop());
        assert!(in_line.as_mut().poll(noop).is_pending());

        let (open, gate) = mpsc::channel::<()>();
        let mut handle = pin!(pool.awaitable().serve(move || gate.recv()).expect("space"));
        let (end_wake, wake_ends) = mpsc::channel();
        let waits = WaitsThenDrops(Mutex::new((wake_ends, Some(in_line))));
        let waker = Waker::from(Arc::new(waits));
        let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        open.send(()).expect("it waits");
        let calls = || (0..2_usize).find(|it| core.slots[*it].load().state() == State::Calling);
        until(|| calls().is_some());
        Self {
            slot: calls().expect("it waits"),
            pool,
            end_wake,
            dropping,
            end_drop,
            _busy: busy,
        }
    }

    /// Hands a task to the worker that calls the waker.
    fn hand_over(&self, job: impl Job) -> Location {
        let core = self.pool.core();
        let claim = core.slots[self.slot].claim_last_used(0, true, || true);
        hand_over(core, self.slot, claim.expect("calls"), job)
    }

    /// Lets the waker return, and waits until the worker drops the value.
    fn end_wake(&self) {
        self.end_wake.send(()).expect("it waits");
        (self.dropping.recv_timeout(LIMIT)).expect("the drop begins");
    }
}

/// Law 14: a task for which a worker of the pool waits is not queued. It was handed to a worker that has a value to
/// drop. That worker starts it, and drops the value before the task's code. So the task's caller can leave.
#[test]
fn a_nested_task_stays_with_a_worker_that_drops_values() {
    let scene = Scene::new();
    let core = scene.pool.core();
    // No submission does this: a worker may become `Calling` only after it was claimed.
    let (tell, told) = mpsc::channel();
    let location = scene.hand_over(Nested(move || tell.send(()).expect("a test")));
    let slots = &core.reading().slots;
    assert_eq!(format!("{:?}", slots[&scene.slot].pays), r#"{"wakers"}"#);
    scene.end_wake();
    let slots = &core.reading().slots;
    assert_eq!(format!("{:?}", slots[&scene.slot].pays), r#"{"values"}"#);
    assert!(core.queue.is_empty(), "it must not be queued");
    let mut owed = Owed::default();
    assert!(core.withdraw(location, |_, _| (), &mut owed).is_none());
    assert!(told.try_recv().is_err(), "it runs after the drop");
    scene.end_drop.send(()).expect("it waits");
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}

/// A nudge moves no task for which a worker of the pool waits. Its waiter still finds it in the mailbox.
#[test]
fn a_nudge_leaves_a_nested_task_to_its_waiter() {
    let scene = Scene::new();
    let core = scene.pool.core();
    let location = scene.hand_over(Nested(|| unreachable!("it is taken back")));
    scene.pool.nudge();
    assert!(core.queue.is_empty(), "it must not be queued");
    let mut owed = Owed::default();
    let count = |core: &Core, _: &_| core.host.counts.expire();
    let task = core.withdraw(location, count, &mut owed);
    assert!(task.is_some(), "it is there, under its generation");
    core.pay(&mut owed);
    scene.end_wake();
    scene.end_drop.send(()).expect("it waits");
}

/// Laws 14 and 21: such a task was handed to a worker that owes nothing but a waker, as soon as a lock is free. The
/// worker calls the waker, then runs the task.
#[test]
fn a_nested_task_runs_on_a_worker_that_owes_a_waker() {
    struct Tells(Mutex<mpsc::Sender<&'static str>>);
    impl Wake for Tells {
        fn wake(self: Arc<Self>) {
            lock(&self.0).send("waker").expect("a test");
        }
    }
    let builder = Builder::new().max_workers(1).min_workers(1);
    let pool = builder.build().expect("a pool");
    let core = pool.core();
    for _ in 0..cut(50) {
        let group = pool.group();
        let (open, gate) = mpsc::channel::<()>();
        let served = group.awaitable().serve(move || gate.recv());
        let mut handle = pin!(served.expect("space"));
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Tells(Mutex::new(tell.clone()))));
        let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        // The end of the task owes the waker, and a leave of the group.
        assert!(group.wait_timeout(Duration::from_nanos(1)).is_err());
        let locked = group.members().hold();
        open.send(()).expect("it waits");
        let mut claim = None;
        until(|| {
            claim = core.slots[0].claim_last_used(0, true, || false);
            claim.is_some() || core.slots[0].load().state() == State::Searching
        });
        if let Some(claim) = claim {
            let job = Nested(move || tell.send("task").expect("a test"));
            let _location = hand_over(core, 0, claim, job);
        }
        drop(locked);
        assert_eq!(told.recv_timeout(LIMIT), Ok("waker"));
        assert!(claim.is_none() || told.recv_timeout(LIMIT) == Ok("task"));
        until(|| core.stats().idle == 1);
    }
    end(core);
}

/// Law 21: a handle cancels its task while a worker has it in hand. The worker does not start it.
#[test]
fn a_task_whose_handle_has_cancelled_it_does_not_start() {
    let builder = Builder::new().max_workers(1).min_workers(1);
    let pool = builder.build().expect("a pool");
    let core = pool.core();
    let never: fn() = || unreachable!("it is cancelled");
    let (task, mut handle): (TaskSide<_, Outcome<()>>, _) = pair(None, never);
    assert_eq!(handle.node().cancel(), None, "no worker has started it");
    let (slot, claim) = core.claim_idle().expect("idle");
    let _location = hand_over(core, slot, claim, task);
    until(|| handle.node().has_outcome());
    assert!(matches!(handle.take(), Some(Err(TaskError::Cancelled))));
    until(|| core.stats().idle == 1);
    let stats = core.stats();
    assert_eq!((stats.discarded, stats.completed), (1, 0), "{stats}");
    end(core);
}

/// Law 21: a handle cancels its task, and does not find it: the worker is about to move it to the queue. Then
/// the worker takes it out again.
#[test]
fn a_task_that_was_cancelled_before_it_was_moved_is_taken_out() {
    let scene = Scene::new();
    let never: fn() = || unreachable!("it is cancelled");
    let (task, mut handle): (TaskSide<_, Outcome<()>>, _) = pair(None, never);
    let _location = scene.hand_over(task);
    assert_eq!(handle.node().cancel(), None, "no worker has started it");
    scene.end_wake();
    assert!(handle.node().has_outcome());
    assert!(matches!(handle.take(), Some(Err(TaskError::Cancelled))));
    scene.end_drop.send(()).expect("it waits");
}
