//! Tests of first aid: something is wrong in the pool, as a stopped thread or a fault of this crate would leave it,
//! and a task waits. A nudge has it run.

use super::*;
use crate::parts::in_flight::Awake;
use crate::parts::queue::CellState;

const LIMIT: Duration = Duration::from_secs(10);

/// Returns a pool whose only worker sleeps.
pub(super) fn sleeping(max_workers: usize) -> Arc<Core> {
    let builder = Builder::new().max_workers(max_workers).queue_capacity(100);
    let core = pool(builder.idle_timeout(Duration::MAX));
    assert!(serves(&core, || ()));
    let sleeps = || {
        let it = &core.slots[0];
        it.load().is_parked() && it.record.sleeps() && core.findings().0.is_empty()
    };
    until(sleeps);
    core
}

/// Gives the worker on slot 0 a task that waits until the value is dropped.
pub(super) fn occupy(core: &Arc<Core>) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(core, move || gate.recv().unwrap_or_default()));
    until(|| core.slots[0].load().state() == State::Busy);
    open
}

/// Pushes a task that no thread looks for, and nudges the pool. The task runs.
fn helps(core: &Arc<Core>) {
    let (tell, told) = mpsc::channel();
    push_only(core, move || tell.send(()).expect("a test"));
    core.nudge();
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}

/// Waits until this worker, which has run the first task, sleeps, and submits a task. It runs, although a count is still wrong.
fn has_helped(core: &Arc<Core>, worker: usize) {
    until(|| {
        let used = core.used_slots().get(worker);
        used.is_some_and(|it| it.load().is_parked() && it.record.sleeps())
    });
    let (tell, told) = mpsc::channel();
    assert!(serves(core, move || tell.send(()).expect("a test")));
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}

#[test]
fn a_nudge_helps_if_a_notice_is_lost() {
    let core = sleeping(2);
    let notice = core.in_flight.notify();
    helps(&core);
    has_helped(&core, 0);
    core.in_flight.forgo(notice);
    end(&core);
}

#[test]
fn a_nudge_helps_if_a_unit_of_awake_is_lost() {
    let core = sleeping(2);
    thread::scope(|s| {
        // Another thread, because the unit says that others rely on its thread.
        let lost = s.spawn(|| {
            let unit = Awake::default();
            unit.enter(&core.in_flight);
            unit
        });
        let unit = lost.join().expect("a unit");
        helps(&core);
        has_helped(&core, 0);
        unit.leave(&core.in_flight)
            .expect("it was counted")
            .ignore();
    });
    end(&core);
}

#[test]
fn a_nudge_helps_if_an_entry_of_the_ready_ring_is_lost() {
    let core = sleeping(1);
    let slot = core.ready.pop().expect("the worker is idle");
    helps(&core);
    core.ready.push(slot);
    end(&core);
}

#[test]
fn a_nudge_starts_a_thread_if_a_notice_is_lost() {
    let core = sleeping(2);
    let open = occupy(&core);
    let notice = core.in_flight.notify();
    helps(&core);
    core.in_flight.forgo(notice);
    drop(open);
    end(&core);
}

#[test]
fn a_nudge_starts_no_thread_if_an_idle_worker_sleeps_for_each_task() {
    let core = sleeping(2);
    helps(&core);
    assert_eq!(core.stats().spawned, 1);
    end(&core);
}

#[test]
fn a_nudge_starts_a_thread_beside_a_worker_that_looks_and_is_held_up() {
    let (hook, open) = waits_on(0);
    let builder = Builder::new().max_workers(2).queue_capacity(4);
    let core = pool(builder.on_worker_start(hook));
    core.start_worker().expect("a thread");
    // As if the worker were stopped while it is counted. By another thread, as above.
    let awake = &core.slots[0].record.awake;
    thread::scope(|s| s.spawn(|| awake.enter(&core.in_flight)).join()).expect("counted");
    helps(&core);
    // The worker that is counted has not looked for half a second, so no task relies on it.
    assert!(!core.env.trusts_counts());
    has_helped(&core, 1);
    core.nudge();
    assert!(!core.env.trusts_counts(), "that worker is still counted");
    let left = awake.leave(&core.in_flight);
    left.expect("it was counted").ignore();
    core.nudge();
    assert!(core.env.trusts_counts(), "the counts are right again");
    drop(open);
    end(&core);
}

#[test]
fn a_nudge_wakes_a_worker_that_has_an_order() {
    let core = sleeping(1);
    let (slot, claim) = core.claim_idle().expect("the worker is idle");
    claim.leave();
    // SAFETY: the claim was left. This one says that the worker is awake, so it is not woken.
    unsafe { Claim::of_held(&core.slots[slot]) }.send_uncounted();
    helps(&core);
    end(&core);
}

#[test]
fn a_nudge_passes_dead_cells() {
    const ALL: usize = 90;
    let core = sleeping(1);
    let open = occupy(&core);
    take_out_many(&core, push_many(&core, ALL));
    assert_eq!(core.reading().oldest_cell, CellState::Dead);
    core.nudge();
    let reading = core.reading();
    assert_eq!((reading.cells_in_use, reading.permits_in_use), (0, 1));
    drop(open);
    end(&core);
}

#[test]
fn a_nudge_passes_free_permits_to_the_line_of_a_group() {
    let pool = Builder::new().max_workers(1).build().expect("a pool");
    let group = pool.limited_group(1);
    let gate = group.members().gate().expect("it is limited");
    let (permit, _) = gate.take().expect("a permit");
    let (tell, told) = mpsc::channel();
    let run = move || tell.send(()).expect("a test");
    let mut in_line = pin!(group.awaitable().serve_async(run));
    assert!(poll_once(in_line.as_mut()).is_pending());
    assert!(gate.give(permit).is_waited_for());
    let findings = format!("{:?}", pool.core().findings().0);
    assert_eq!(findings, "[aid: FreePermitsBesideLine(1)]");
    pool.nudge();
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}

#[test]
fn a_nudge_passes_free_permits_to_the_line() {
    let pool = Builder::new().max_workers(1).build().expect("a pool");
    let (permit, _) = pool.core().gate.take().expect("a permit");
    let (tell, told) = mpsc::channel();
    let run = move || tell.send(()).expect("a test");
    let mut in_line = pin!(pool.awaitable().serve_async(run));
    assert!(poll_once(in_line.as_mut()).is_pending());
    assert!(pool.core().gate.give(permit).is_waited_for());
    pool.nudge();
    assert_eq!(told.recv_timeout(LIMIT), Ok(()));
}
