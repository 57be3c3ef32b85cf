//! Tests of laws in interleavings that can only be forced through the engine's internal state.

use crate::builder::Builder;
use crate::core::host::NotStarted;
use crate::core::place::Accepted;
use crate::core::submission::{Location, Submission};
use crate::core::Claim;
use crate::engine::group::submit_member;
use crate::engine::lifecycle::shutdown::{shutdown, WaitsFor};
use crate::engine::shared::Core;
use crate::engine::submit::call::do_with;
use crate::engine::submit::erase::submit;
use crate::engine::submit::request::{SubmitOptions, SubmitterOptions};
use crate::error::{DeadlineError, Refusal, TaskError};
use crate::group::Group;
use crate::parts::cut::cut;
use crate::parts::gate::{Freed, Permit};
use crate::parts::slot::State;
use crate::pool::Pool;
use crate::stats::{Shutdown, WhenFull};
use crate::sync::{lock, now, Arc, Mutex, Ordering, ThreadNumber};
use crate::task;
use crate::work::job::{Job, Task};
use crate::work::observe::Moment;
use crate::work::owed::Owed;
use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::{mpsc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

mod dumps;
mod figures;
mod first_aid;
mod held_locks;
mod joiners;
#[cfg(all(target_os = "linux", debug_assertions, not(miri)))]
mod stacks;
mod starts;
mod wakers;

/// Polls a future, with a waker that does nothing.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn serves(core: &Arc<Core>, f: impl FnOnce() + Send + 'static) -> bool {
    submit(core, (), f, |task, debts| core.submit_plain(task, debts)).is_ok()
}

/// Serves on another thread, for a test that has a lock. A thread that wakes a worker up has none.
fn serves_apart(core: &Arc<Core>, f: impl FnOnce() + Send + 'static) -> bool {
    thread::scope(|s| s.spawn(|| serves(core, f)).join()).expect("it does not panic")
}

fn call<F, R>(core: &Arc<Core>, f: F) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    do_with(core, None, &SubmitterOptions::NONE, f, Duration::MAX)
}

fn until(mut is_reached: impl FnMut() -> bool) {
    while !is_reached() {
        thread::yield_now();
    }
}

fn end(core: &Arc<Core>) {
    let report = shutdown(core, Shutdown::Drain, Duration::MAX, WaitsFor::All);
    assert!(report.is_clean());
}

/// Takes a permit for a task of this job. Waits for the permit: a worker is idle before it gives that of its
/// last task back.
fn accepted(core: &Core, job: impl Job) -> (Option<Task>, Permit) {
    let mut taken = None;
    until(|| {
        taken = core.gate.take().ok();
        taken.is_some()
    });
    let (permit, _) = taken.expect("a permit");
    (Some(Task::new(Moment::default(), (), job)), permit)
}

/// Pushes as many tasks, for which no thread looks. Returns their positions.
fn push_many(core: &Core, tasks: usize) -> Vec<u64> {
    let push = |_| {
        let (mut task, permit) = accepted(core, || ());
        core.queue.push(&mut task, permit)
    };
    (0..tasks).map(push).collect()
}

/// Takes the tasks at these positions out, the last first: so many that dead cells are left to be passed.
fn take_out_many(core: &Arc<Core>, positions: Vec<u64>) {
    let mut owed = Owed::default();
    let mut freed = Freed::default();
    for position in positions.into_iter().rev() {
        let task = core.queue.take_if(position, &mut freed, |_| true);
        let release = task.expect("nobody looks").discard(|| TaskError::Cancelled);
        release.settle(&mut owed);
    }
    assert!(freed.more, "more than one step passes");
    let _ = core.gate.give_all(&mut freed);
    freed.more = false;
    core.pay(&mut owed);
}

/// Returns a start hook that waits on this slot until the other value is dropped.
fn waits_on(slot: usize) -> (impl Fn(usize) + Send + Sync + 'static, mpsc::Sender<()>) {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let hook = move |its| {
        if its == slot {
            let _ = lock(&gate).recv();
        }
    };
    (hook, open)
}

/// Pushes a task, and looks for no worker.
fn push_only(core: &Core, f: impl FnOnce() + Send + 'static) {
    let (mut task, permit) = accepted(core, f);
    core.queue.push(&mut task, permit);
}

/// Hands a task to a worker that this thread has claimed.
fn hand_over(core: &Core, slot: usize, claim: Claim<'_>, job: impl Job) -> Location {
    let (mut task, permit) = accepted(core, job);
    core.hand_over(slot, claim, &mut task, permit)
}

/// Tells a worker that this thread has claimed to look at the queue.
fn notify(core: &Core, claim: Claim<'_>) {
    claim.notify(core.in_flight.notify());
}

fn pool(builder: Builder) -> Arc<Core> {
    builder.into_core().expect("a pool").0
}

/// Law 9: a worker without a task is free, even while another thread sends it to the queue. So once
/// all tasks have ended, no worker counts as busy.
#[test]
fn law09_a_worker_on_its_way_to_the_queue_is_free() {
    let builder = Builder::new().max_workers(1).queue_capacity(1);
    let core = pool(builder.idle_timeout(Duration::MAX));
    assert!(call(&core, || ()).is_ok());
    let (_, claim) = loop {
        if let Some(claimed) = core.claim_idle() {
            break claimed;
        }
        thread::yield_now();
    };
    let held = core.stats();
    notify(&core, claim);
    assert_eq!((held.workers, held.running, held.idle), (1, 0, 1));
    end(&core);
}

/// Law 1: an idle worker obeys orders while another thread holds the registry's lock, even if a
/// sweep is due.
#[test]
fn an_idle_worker_takes_orders_while_the_registry_is_locked() {
    // The first sweep is due after this time. The test locks the registry before that.
    const PAUSE: Duration = Duration::from_millis(500);
    let core = pool(Builder::new().max_workers(1).idle_timeout(2 * PAUSE));
    let stopped = loop {
        assert!(call(&core, || ()).is_ok());
        let stopped = core.host.registry.lock();
        if stopped.bench.is_empty() && stopped.live == 1 {
            break stopped;
        }
    };
    thread::sleep(2 * PAUSE);
    let (done, ran) = mpsc::channel();
    let tell = move || done.send(()).expect("it waits");
    assert!(serves_apart(&core, tell));
    let ran = ran.recv_timeout(Duration::from_secs(10));
    drop(stopped);
    assert_eq!(ran, Ok(()));
    end(&core);
}

/// Law 5: a spawner that gives its slot back, because the limit was lowered meanwhile, makes sure that
/// a worker looks at the queue. Here another submission has found no free slot meanwhile, and has
/// queued its task. Then the limit is raised again. The task does not wait for the running one.
#[test]
fn law05_a_start_without_a_slot_looks_for_one_again() {
    let core = pool(Builder::new().max_workers(3).queue_capacity(2));
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(&core, move || _ = gate.recv()));
    let held = [(); 2].map(|()| core.free.pop().expect("a slot"));
    let (done, ran) = mpsc::channel();
    assert!(serves(&core, move || done.send(()).expect("it waits")));
    core.set_limit(1);
    let (permit, _) = core.gate.take().expect("space");
    let (mut task, mut owed) = (None, Owed::default());
    for slot in held {
        let permit = Permit::of_model();
        let (back, why) = core
            .spawn_with(slot, &mut task, permit, &mut owed)
            .expect_err("the limit is reached");
        back.leave_with_task();
        assert!(matches!(why, NotStarted::NotNeeded));
    }
    core.set_limit(3);
    core.pay(&mut owed);
    assert_eq!(ran.recv_timeout(Duration::from_secs(10)), Ok(()));
    owed.give(&core.gate, permit);
    core.pay(&mut owed);
    drop(open);
    end(&core);
}

/// Law 10: the last worker of a closed pool stays until each accepted task has been placed. The thread
/// that gives the last permit back then ends the worker.
#[test]
fn law10_the_last_worker_waits_for_a_task_that_is_being_placed() {
    let core = pool(Builder::new().max_workers(1).queue_capacity(2));
    assert!(call(&core, || ()).is_ok());
    let (permit, _) = core.gate.take().expect("space");
    let report = shutdown(
        &core,
        Shutdown::Drain,
        Duration::from_millis(50),
        WaitsFor::All,
    );
    assert!(!report.is_clean(), "a submission has a permit");
    let mut owed = Owed::default();
    owed.give(&core.gate, permit);
    core.pay(&mut owed);
    end(&core);
}

/// Law 6: live workers follow demand. Submissions use the worker that was put on the bench last.
/// Workers that have been on the bench for `idle_timeout` are told to end, until `min_workers` are
/// left.
#[test]
fn a_worker_that_is_not_needed_for_the_timeout_is_told_to_end() {
    const TIMEOUT: Duration = Duration::from_secs(3600);
    let builder = Builder::new().max_workers(4).min_workers(1);
    let core = pool(builder.idle_timeout(TIMEOUT));
    let meet = Arc::new(Barrier::new(5));
    for _ in 0..4 {
        let meet = Arc::clone(&meet);
        let task = move || {
            let _ = meet.wait();
        };
        assert!(serves(&core, task));
    }
    meet.wait();
    until(|| core.stats().idle >= 4);
    let start = now();
    let due = start.checked_add(TIMEOUT).expect("a moment");
    let sweep = |at| core.sweep(&mut core.registry(), at);
    assert_eq!(sweep(start), Some(due));
    let bench = core.host.registry.lock().bench.clone();
    let bench: Vec<_> = bench.into_iter().map(|(slot, _)| slot).collect();
    assert_eq!((bench.len(), core.ready.is_empty()), (4, true));
    // A trickle of calls keeps one worker in use. Each call comes from a new thread, which has not
    // used any worker yet. So the call gets the worker that was put on the bench last.
    for _ in 0..3 {
        let core = &core;
        let ran = thread::scope(|s| {
            let slot_of_call = || call(core, crate::task::slot);
            s.spawn(slot_of_call)
                .join()
                .expect("no panic")
                .expect("idle")
        });
        assert_eq!(ran, bench.last().copied());
        until(|| core.stats().idle >= 4);
        sweep(start);
    }
    assert_eq!(core.stats().workers, 4, "not before its time");
    sweep(due);
    until(|| core.stats().workers <= 1);
    sweep(due);
    assert_eq!((core.stats().workers, core.stats().idle), (1, 1));
    let left = core.workers();
    assert_eq!(Some(left[0].slot), bench.last().copied());
    end(&core);
}

/// Laws 4 and 6: a slot that a spawner has popped does not count as a worker before a start has
/// begun there. So no worker has to end because of that slot.
#[test]
fn a_slot_in_a_spawners_hands_ends_no_worker() {
    let core = pool(Builder::new().max_workers(3).min_workers(2));
    let mut owed = Owed::default();
    for _ in 0..2 {
        assert!(core.spawn_searcher(&mut owed).is_ok());
    }
    core.await_idle();
    let stopped = core.free.pop().expect("the third");
    core.set_limit(2);
    let registry = core.host.registry.lock();
    assert_eq!((registry.live, registry.retiring), (2, 0));
    drop(registry);
    assert!(core.env.may_have_to_end(), "over the limit");
    let permit = core.gate.take().expect("space").0;
    let (permit, why) = core
        .spawn_with(stopped, &mut None, permit, &mut owed)
        .expect_err("the limit is reached");
    assert!(matches!(why, NotStarted::NotNeeded), "{why:?}");
    owed.give(&core.gate, permit);
    core.pay(&mut owed);
    assert!(!core.env.may_have_to_end());
    end(&core);
}

/// Law 20: a thread that has claimed a worker and is stopped holds up that worker, and no task that was queued
/// while that worker still counted as awake.
#[test]
fn a_claimed_worker_that_leaves_the_count_has_the_queue_looked_at() {
    let core = &pool(
        Builder::new()
            .max_workers(2)
            .min_workers(2)
            .queue_capacity(4),
    );
    for _ in 0..cut(500) {
        let (tell, told) = mpsc::channel();
        assert!(serves(core, move || tell
            .send(task::slot())
            .expect("a test")));
        let slot = told.recv().expect("it runs").expect("on a worker");
        // The worker watches the queue for a moment. This thread claims it, and is stopped.
        let mut claim = None;
        until(|| {
            claim = core.slots[slot].claim_last_used(0, true);
            claim.is_some()
        });
        let (tell, told) = mpsc::channel();
        assert!(serves(core, move || tell.send(()).expect("a test")));
        let ran = told.recv_timeout(Duration::from_secs(10));
        notify(core, claim.expect("claimed"));
        assert_eq!(ran, Ok(()), "the other worker is idle");
    }
    end(core);
}

/// Law 14: a task that must not be queued waits for a change of the limit that is under way, and then gets a thread.
#[test]
fn a_nested_call_waits_while_slots_are_dealt_out() {
    let core = &pool(Builder::new().max_workers(2));
    let (tell, told) = mpsc::channel();
    let (begin, may_begin) = mpsc::channel::<()>();
    let its = Arc::clone(core);
    let outer = move || {
        let _ = may_begin.recv();
        tell.send(call(&its, || ()).is_ok()).expect("a test");
    };
    assert!(serves(core, outer));
    // As `set_limit` does.
    let registry = core.host.registry.lock();
    let deals = &core.host.headcount.deals;
    deals.fetch_add(1, Ordering::SeqCst);
    let slot = core.free.pop().expect("the second");
    begin.send(()).expect("it waits");
    until(|| core.gate.taken() == 2);
    // So that it has found no slot.
    thread::sleep(Duration::from_millis(5));
    core.free.push(slot);
    deals.fetch_add(1, Ordering::SeqCst);
    drop(registry);
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
    end(core);
}

/// Law 10: the OS has refused a thread for a task, and the only worker's task is abandoned after that. A drop of the pool starts
/// a worker for the queued task, and waits for it.
#[test]
fn law10_a_drop_starts_a_worker_for_what_abandoned_ones_leave() {
    let pool = Builder::new().max_workers(2).queue_capacity(2);
    let pool = pool.build().expect("a pool");
    let (group, (open, gate)) = (pool.group(), mpsc::channel::<()>());
    let (began, begins) = mpsc::channel();
    let task = move || {
        began.send(()).expect("a test");
        gate.recv().unwrap_or_default();
    };
    assert!(group.serve(task).is_ok());
    begins.recv().expect("a worker");
    let (tell, told) = mpsc::channel();
    // As if the OS had refused a thread.
    push_only(pool.core(), move || tell.send(()).expect("a test"));
    group.cancel();
    drop(pool);
    assert_eq!(told.try_recv(), Ok(()), "it has run");
    drop(open);
}

/// Law 10: the only worker's task is abandoned, and another thread is about to place a task that has a permit. A drop of
/// the pool waits for that task, which a free slot can run.
#[test]
fn law10_a_drop_beside_an_abandoned_task_waits_for_one_that_is_being_placed() {
    let core = pool(Builder::new().max_workers(2));
    let late = SubmitterOptions {
        run_limit: Duration::ZERO,
        ..SubmitterOptions::NONE
    };
    let ((open, gate), (began, begins)) = (mpsc::channel::<()>(), mpsc::channel());
    let abandoned = move || {
        began.send(()).expect("a test");
        gate.recv().unwrap_or_default();
    };
    assert!(submit_member(&core, None, abandoned, &late).is_ok());
    begins.recv().expect("a worker");
    let (tell, told) = mpsc::channel();
    let (mut task, permit) = accepted(&core, move || tell.send(()).expect("a test"));
    let its = Arc::clone(&core);
    let drop_pool = move || shutdown(&its, Shutdown::Drain, Duration::MAX, WaitsFor::NotAbandoned);
    let dropping = thread::spawn(drop_pool);
    until(|| core.env.is_closed());
    // The drop has looked by then, on most machines. If not, this finds nothing.
    thread::sleep(Duration::from_millis(100));
    let is_early = dropping.is_finished();
    let mut owed = Owed::default();
    let accepted = Accepted {
        permit,
        flags: core.gate.flags(),
        nested: false,
        stamp: 0,
    };
    assert!(core.place(accepted, &mut task, &mut owed).is_ok());
    core.pay(&mut owed);
    assert_eq!(told.recv(), Ok(()));
    assert_eq!(dropping.join().expect("a report").stragglers.len(), 1);
    drop(open);
    assert!(!is_early);
    end(&core);
}

/// In a pool that works, no finding lasts. What lasts is found.
#[test]
fn what_lasts_is_found() {
    let core = &pool(Builder::new().max_workers(2).queue_capacity(2));
    let settles = || until(|| core.findings().0.is_empty());
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(core, move || gate.recv().unwrap_or_default()));
    settles();
    let (permit, _) = core.gate.take().expect("a permit");
    let stopped = core.registry();
    let found = || format!("{:?}", core.findings().0);
    until(|| found() == "[wait: PermitsInHand(1), wait: RegistryLocked(1)]");
    let locker = |core: &Core| core.reading().registry_locker;
    assert_eq!(locker(core), ThreadNumber::own());
    let its = Arc::clone(core);
    let other = thread::spawn(move || (locker(&its), ThreadNumber::own()));
    let (seen, other) = other.join().expect("a reader");
    assert_eq!(seen, ThreadNumber::own());
    assert!(seen != other || cfg!(miri), "{seen:?}");
    drop(stopped);
    let mut owed = Owed::default();
    owed.give(&core.gate, permit);
    core.pay(&mut owed);
    drop(open);
    until(|| core.stats().idle == 1);
    settles();
    let claimed = core.claim_idle();
    let (slot, claim) = claimed.expect("idle");
    until(|| found() == format!("[wait: SlotHeld(slot {slot})]"));
    notify(core, claim);
    settles();
    end(core);
}

/// `{pool:?}` shows what CONTRIBUTING.md's table "When a pool hangs" asks for.
#[test]
fn the_inside_of_a_pool_with_a_task_in_hand() {
    let core = &pool(Builder::new().max_workers(2).queue_capacity(3));
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(core, move || gate.recv().unwrap_or_default()));
    until(|| core.stats().running == 1 && core.stats().queued == 0);
    let shows = |what: &str| {
        let inside = format!("{:?}", core.reading());
        assert!(inside.contains(what), "{what}: {inside}");
    };
    shows("permits: 5, permits_in_use: 1, gate: {}, tasks: 1, cells_in_use: 0, oldest_cell: Empty");
    shows("awake: 0, notified: 0, trusts_counts: true, ready_entries: 0, idle_listed: 0, free_entries: 1, slots: {0: Busy #1}");
    drop(open);
    until(|| core.reading().permits_in_use == 0 && core.reading().slots.is_empty());
    end(core);
}
