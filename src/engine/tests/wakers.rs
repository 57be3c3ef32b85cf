//! Tests of a task that a thread leaves to its last worker, which calls a waker.

use super::*;
use crate::engine::handle::Outcome;
use crate::error::TaskError;
use crate::parts::completion::{pair, TaskSide};
use crate::work::owed::Kinds;

const LIMIT: Duration = Duration::from_secs(10);

/// A waker that waits.
struct Blocks(Mutex<mpsc::Receiver<()>>);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        let _ = lock(&self.0).recv();
    }
}

/// The settings of most of these pools.
fn two_workers() -> Builder {
    Builder::new().max_workers(2).queue_capacity(4)
}

/// Returns a pool whose worker calls a waker, which waits until the other value is dropped. The worker is this thread's last
/// one.
fn calls_a_waker(builder: Builder) -> (Pool, mpsc::Sender<()>) {
    calls_a_waker_after(builder, |_| ())
}

/// As [`calls_a_waker`]. Calls `meanwhile` while the worker runs its task.
fn calls_a_waker_after(
    builder: Builder,
    meanwhile: impl FnOnce(&Core),
) -> (Pool, mpsc::Sender<()>) {
    let pool = builder.build().expect("a pool");
    let (open, gate) = mpsc::channel::<()>();
    let served = pool.awaitable().serve(move || gate.recv());
    let mut handle = pin!(served.expect("space"));
    let (end_wake, wake_ends) = mpsc::channel();
    let waker = Waker::from(Arc::new(Blocks(Mutex::new(wake_ends))));
    let polled = handle.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    meanwhile(pool.core());
    open.send(()).expect("it waits");
    // Not only `Calling`: the handle is dropped here, and its waker must have been taken before.
    until(|| pool.core().slots[0].record.pays() == Kinds::WAKERS);
    (pool, end_wake)
}

/// Laws 20 and 21: a task was left to a worker that calls a waker. Another thread claims that worker as soon as the waker has
/// returned, and is stopped. The task runs on another worker.
#[test]
fn a_task_left_to_a_worker_waits_for_no_claimer_of_that_worker() {
    for _ in 0..cut(200) {
        let (pool, end_wake) = calls_a_waker(two_workers());
        let core = pool.core();
        let (tell, told) = mpsc::channel();
        assert!(serves(core, move || tell.send(()).expect("a test")));
        assert_eq!(core.queue.len(), 1, "it is left");
        drop(end_wake);
        let (mut claim, mut ran) = (None, Err(mpsc::RecvTimeoutError::Timeout));
        while claim.is_none() && ran.is_err() {
            claim = core.slots[0].claim_last_used(0, true);
            ran = told.recv_timeout(Duration::ZERO);
        }
        if ran.is_err() {
            ran = told.recv_timeout(LIMIT);
        }
        if let Some(claim) = claim {
            notify(core, claim);
        }
        assert_eq!(ran, Ok(()), "another thread may be started");
        end(core);
    }
}

/// Law 21: a thread leaves one task to a worker that calls a waker. With the next one, it has other workers look.
#[test]
fn a_thread_leaves_one_task_to_a_worker_that_calls_a_waker() {
    let (pool, end_wake) = calls_a_waker(two_workers());
    let (tell, told) = mpsc::channel();
    for n in 0..2 {
        let tell = tell.clone();
        assert!(serves(pool.core(), move || tell.send(n).expect("a test")));
    }
    let ran = [(); 2].map(|()| told.recv_timeout(LIMIT));
    assert_eq!(ran, [Ok(0), Ok(1)]);
    drop(end_wake);
    end(pool.core());
}

/// Laws 3 and 21: a thread is blocked for a task that it has left to a worker. As it has others look, a lock that this needs is
/// held. It does so again.
#[test]
fn a_blocked_thread_has_others_look_until_no_lock_is_held() {
    let (pool, end_wake) = calls_a_waker(two_workers());
    let core = Arc::clone(pool.core());
    let stopped = thread::spawn(move || {
        let stopped = lock(&core.host.registry);
        until(|| core.queue.len() == 1);
        // So that the blocked thread has tried.
        thread::sleep(Duration::from_millis(50));
        drop(stopped);
    });
    until(|| crate::sync::try_lock(&pool.core().host.registry).is_none());
    assert_eq!(call(pool.core(), || 7).ok(), Some(7));
    stopped.join().expect("it held the lock");
    drop(end_wake);
    end(pool.core());
}

/// Law 5: as above. An idle worker on the bench takes the task, and no thread is started.
#[test]
fn a_blocked_thread_has_a_worker_on_the_bench_look() {
    let pool = two_workers().min_workers(1).build().expect("a pool");
    let core = pool.core();
    until(|| core.slots[0].load().is_parked());
    until(|| {
        core.sweep(&mut lock(&core.host.registry), now());
        core.slots[0].load().is_benched()
    });
    let (tell, told) = mpsc::channel();
    let (mut task, permit) = accepted(core, move || tell.send(()).expect("a test"));
    let position = core.queue.push(&mut task, permit);
    assert!(!core.has_waited_long(Location::Queue { position }));
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
    assert!(core.has_waited_long(Location::Queue { position }));
    assert_eq!(core.stats().spawned, 1);
    end(core);
}

/// Law 5: a worker has ended a task, and finds another one in the queue. It has another worker look before it calls a waker.
#[test]
fn a_worker_has_others_look_before_it_calls_a_waker() {
    let (tell, told) = mpsc::channel();
    let (pool, end_wake) = calls_a_waker_after(two_workers(), |core| {
        push_only(core, move || tell.send(()).expect("a test"));
    });
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
    drop(end_wake);
    end(pool.core());
}

/// Law 5: a task does not wait for a waker beside an idle worker.
#[test]
fn a_thread_leaves_no_task_to_a_worker_that_calls_a_waker_beside_an_idle_one() {
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
    let (end_wake, wake_ends) = mpsc::channel();
    let waker = Waker::from(Arc::new(Blocks(Mutex::new(wake_ends))));
    let mut in_line = pin!(pool.awaitable().serve_async(|| ()));
    let polled = in_line.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    take_out_many(core, positions);
    let (slot, claim) = core.claim_idle().expect("it is idle");
    notify(core, claim);
    until(|| core.slots[slot].record.pays() == Kinds::WAKERS);
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
    let _location = hand_over(core, slot, claim, task);
    until(|| handle.node().has_outcome());
    assert!(matches!(handle.take(), Some(Err(TaskError::Cancelled))));
    until(|| core.stats().idle == 1);
    let stats = core.stats();
    assert_eq!((stats.discarded, stats.completed), (1, 0), "{stats}");
    end(core);
}
