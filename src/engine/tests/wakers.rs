//! Tests of a task that a thread hands to its last worker, which calls a waker.

use super::*;
use crate::core::TaskClaim;
use crate::engine::handle::Outcome;
use crate::error::TaskError;
use crate::parts::completion::{pair, queue_id, TaskSide};
use crate::work::env::NEVER;
use crate::work::options::TaskTimes;
use std::sync::OnceLock;

const LIMIT: Duration = Duration::from_secs(10);

/// A waker that waits.
struct Blocks {
    begun: OnceLock<()>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Blocks {
    /// Returns the waker, and the value whose drop lets it return.
    fn new() -> (Arc<Self>, mpsc::Sender<()>) {
        let (open, gate) = mpsc::channel();
        let (begun, gate) = (OnceLock::new(), Mutex::new(gate));
        (Arc::new(Self { begun, gate }), open)
    }

    /// Waits until a thread calls this waker.
    fn until_called(&self) {
        until(|| self.begun.get().is_some());
    }
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        let _ = self.begun.set(());
        let _ = lock(&self.gate).recv();
    }
}

/// The settings of most of these pools.
fn two_workers() -> Builder {
    Builder::new().max_workers(2).queue_capacity(4)
}

/// Returns a pool whose worker calls a waker, which waits until the other value is dropped. The worker is this thread's last
/// one.
fn calls_a_waker(builder: Builder) -> (Pool, mpsc::Sender<()>) {
    let pool = builder.build().expect("a pool");
    let end_wake = begin_a_waker(&pool);
    (pool, end_wake)
}

/// Polls a handle, whose task has not ended, with this waker.
fn poll_by(handle: Pin<&mut impl Future>, waker: &Arc<Blocks>) {
    let waker = Waker::from(Arc::clone(waker));
    assert!(handle.poll(&mut Context::from_waker(&waker)).is_pending());
}

/// Has a worker of the pool call a waker, as [`calls_a_waker`] does.
fn begin_a_waker(pool: &Pool) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let served = pool.awaitable().serve(move || gate.recv());
    let mut handle = pin!(served.expect("space"));
    let (waker, end_wake) = Blocks::new();
    poll_by(handle.as_mut(), &waker);
    open.send(()).expect("it waits");
    // Not only `Calling`: the handle is dropped here, and its waker must have been taken before.
    waker.until_called();
    end_wake
}

/// Law 21: a thread hands one task to its last worker, which calls a waker. No other task waits for that waker.
#[test]
fn a_thread_hands_one_task_to_a_worker_that_calls_a_waker() {
    let (pool, end_wake) = calls_a_waker(two_workers());
    let (tell, told) = mpsc::channel();
    for n in 0..3 {
        let tell = tell.clone();
        assert!(serves(pool.core(), move || tell.send(n).expect("a test")));
    }
    let ran = [(); 2].map(|()| told.recv_timeout(LIMIT));
    assert_eq!(ran, [Ok(1), Ok(2)]);
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(end_wake);
    assert_eq!(told.recv_timeout(LIMIT), Ok(0));
    end(pool.core());
}

/// Law 5: a thread whose last worker calls the waker of another thread's task does not wait for that waker.
#[test]
fn a_thread_waits_for_no_waker_of_another_threads_task() {
    for queue in [0, 4] {
        let pool = two_workers().queue_capacity(queue).build().expect("a pool");
        let core = pool.core();
        let handle = pool.awaitable().serve(|| ()).expect("space");
        handle.join().expect("a value");
        until(|| core.slots[0].load().is_parked());
        let beside = || thread::scope(|s| s.spawn(|| begin_a_waker(&pool)).join());
        let end_wake = beside().expect("its waker");
        let value = do_with(core, None, &SubmitterOptions::NONE, || 7, LIMIT);
        assert_eq!(value.ok(), Some(7));
        assert_eq!(core.stats().spawned, 2);
        let left = core.slots[0].load();
        assert!(left.is_calling(), "for the next task of that thread");
        drop(end_wake);
        end(core);
    }
}

/// Laws 5 and 21: a thread has seen that a worker calls the wakers of its task, and claims it once that has gone on to those of a
/// queued task.
#[test]
fn a_claimed_worker_that_calls_for_another_task_gets_none() {
    let (pool, end_first) = calls_a_waker(Builder::new().max_workers(1).queue_capacity(4));
    let core = pool.core();
    let its = || core.slots[0].record.calls_for();
    let first = its();
    let end_second = thread::scope(|s| {
        let beside = s.spawn(|| {
            let mut handle = pin!(pool.awaitable().serve(|| ()).expect("space"));
            let (waker, end_wake) = Blocks::new();
            poll_by(handle.as_mut(), &waker);
            drop(end_first);
            waker.until_called();
            end_wake
        });
        beside.join().expect("its waker")
    });
    assert!(core.slots[0].load().is_calling());
    let claimed = core.claim_if_it_calls_for(0, first);
    assert!(claimed.map(TaskClaim::send_uncounted).is_none());
    assert_eq!(core.slots[0].load().state(), State::Paying);
    drop(end_second);
    until(|| core.slots[0].load().is_idle());
    assert_eq!(core.stats().running, 0);
    end(core);
}

/// Law 21: a worker takes a task that must not run, and owes others for cells that it has passed. It calls their wakers after that
/// task, whose caller does not take it for its own.
#[test]
fn the_wakers_of_others_are_not_those_of_a_task_that_comes_too_late() {
    let (hook, open) = waits_on(0);
    let builder = Builder::new().max_workers(1).queue_capacity(1);
    let pool = builder.on_worker_start(hook).build().expect("a pool");
    let core = pool.core();
    core.start_worker().expect("a thread");
    let its = &core.slots[0];
    until(|| its.load().state() == State::Paying);
    let hour = Duration::from_secs(3600);
    thread::scope(|s| {
        let too_late = s.spawn(|| pool.min_remaining(2 * hour).do_with_deadline(|| (), hour));
        until(|| core.stats().queued == 1);
        let position = core.reading().head;
        pool.awaitable().serve(|| ()).expect("space").cancel();
        let (waker, end_wake) = Blocks::new();
        let mut others = [(); 2].map(|()| Box::pin(pool.awaitable().serve_async(|| ())));
        for other in &mut others {
            poll_by(other.as_mut(), &waker);
        }
        drop(open);
        waker.until_called();
        assert!(too_late.join().expect("an outcome").is_err());
        assert!(its.load().is_calling());
        assert_ne!(its.record.calls_for(), queue_id(position));
        drop(end_wake);
        for other in &mut others {
            until(|| poll_once(other.as_mut()).is_ready());
        }
    });
    end(core);
}

/// Law 5: as above. The other thread's task is the second one of its worker, as this thread's last task was of another worker.
#[test]
fn a_thread_waits_for_no_waker_of_a_task_with_the_same_number() {
    let builder = Builder::new().max_workers(3).queue_capacity(0);
    let pool = builder.build().expect("a pool");
    let core = pool.core();
    let parked = |slot: usize| until(|| core.slots[slot].load().is_parked());
    assert!(serves(core, || ()));
    parked(0);
    let handle = pool.awaitable().serve(|| ()).expect("space");
    handle.join().expect("a value");
    core.start_worker().expect("a thread");
    parked(1);
    let _at = hand_over(core, 1, core.slots[1].claim_idle().expect("idle"), || ());
    let (open, gate) = mpsc::channel::<()>();
    let beside = || {
        let claim = core.slots[0].claim_idle().expect("idle");
        let _at = hand_over(core, 0, claim, move || _ = gate.recv());
        parked(1);
        begin_a_waker(&pool)
    };
    let end_wake = thread::scope(|s| s.spawn(beside).join()).expect("its waker");
    let generations = [0, 1].map(|slot| core.slots[slot].load().generation());
    assert_eq!(generations, [3, 2]);
    let value = do_with(core, None, &SubmitterOptions::NONE, || 7, LIMIT);
    assert_eq!(value.ok(), Some(7));
    assert_eq!(core.stats().spawned, 3);
    drop((open, end_wake));
    end(core);
}

/// Law 4: the limit is lowered while a worker calls a waker. It gets no task that is submitted after that, and ends.
#[test]
fn a_surplus_worker_that_calls_a_waker_gets_no_task() {
    let pool = two_workers().build().expect("a pool");
    let core = pool.core();
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(core, move || _ = gate.recv()));
    let end_wake = begin_a_waker(&pool);
    core.set_limit(1);
    let (tell, told) = mpsc::channel();
    assert!(serves(core, move || tell.send(()).expect("a test")));
    drop(end_wake);
    until(|| core.stats().workers == 1);
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(open);
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
    end(core);
}

/// Law 5: a task does not wait for a waker beside an idle worker.
#[test]
fn a_thread_hands_no_task_to_a_worker_that_calls_a_waker_beside_an_idle_one() {
    let (pool, end_wake) = calls_a_waker(two_workers());
    let core = pool.core();
    core.start_worker().expect("a thread");
    until(|| core.slots[1].load().is_parked());
    let (tell, told) = mpsc::channel();
    assert!(serves(core, move || tell.send(()).expect("a test")));
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
    drop(end_wake);
    end(core);
}

/// Law 20: a worker that searches passes dead cells, and so owes a pass and a waker. It leaves the count before it pays.
#[test]
fn a_worker_that_searches_leaves_the_count_before_it_pays() {
    const CELLS: usize = 90;
    let builder = Builder::new().max_workers(1).queue_capacity(CELLS - 1);
    let builder = builder.idle_timeout(Duration::MAX);
    let pool = builder.build().expect("a pool");
    let core = pool.core();
    assert!(serves(core, || ()));
    until(|| core.slots[0].load().is_parked());
    let positions = push_many(core, CELLS);
    let (waker, end_wake) = Blocks::new();
    let mut in_line = pin!(pool.awaitable().serve_async(|| ()));
    poll_by(in_line.as_mut(), &waker);
    take_out_many(core, positions);
    let (slot, claim) = core.claim_idle().expect("it is idle");
    notify(core, claim);
    waker.until_called();
    let reading = core.reading();
    assert_eq!((reading.awake, reading.notified), (0, 0));
    assert_eq!(core.slots[slot].load().state(), State::Paying);
    drop(end_wake);
    end(core);
}

/// Law 14: a worker that calls a waker gets no task for which a worker of the pool waits. That may be the
/// same worker: it has opened a scope, in which another thread serves.
#[test]
fn a_worker_that_calls_a_waker_gets_no_nested_task() {
    let (pool, end_wake) = calls_a_waker(Builder::new().max_workers(1));
    let core = pool.core();
    let nested = Submission {
        awaited: true,
        on_worker: true,
        ..Submission::PLAIN
    };
    let options = SubmitOptions {
        submission: nested,
        ..SubmitterOptions::NONE.plain()
    };
    // This thread has given that worker its last task.
    let refused = submit(
        core,
        (),
        || (),
        |task, debts| core.submit(task, &options, debts),
    );
    let (_, why) = refused.expect_err("no worker is idle");
    assert!(matches!(why, Refusal::OnWorker), "{why:?}");
    let (tell, told) = mpsc::channel();
    assert!(serves(core, move || tell.send(()).expect("a test")));
    end_wake.send(()).expect("it waits");
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
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
    let (permit, _) = core.gate.take().expect("a permit");
    let times = TaskTimes::new(NEVER, Duration::ZERO, NEVER, Duration::ZERO);
    let mut task = Some(Task::new(Moment::default(), times, task));
    let _location = core.hand_over(slot, claim, &mut task, permit);
    until(|| handle.node().has_outcome());
    assert!(matches!(handle.take(), Some(Err(TaskError::Cancelled))));
    until(|| core.stats().idle == 1);
    let stats = core.stats();
    assert_eq!((stats.discarded, stats.completed), (1, 0), "{stats}");
    assert_eq!(stats.timed_out, 0, "it has not run");
    end(core);
}
