//! The dumps that the protocol page of the core reads: each is what a pool prints.

use super::first_aid::sleeping;
use super::held_locks::occupy;
use super::*;
use crate::work::owed::Kinds;

const PAGE: &str = include_str!("../../core/stopped.md");

/// Asserts that the page has the findings and the slots that the pool shows.
fn is_on_the_page(core: &Arc<Core>) {
    let (findings, reading) = (core.findings().0, core.reading());
    // A thread may wake up for no reason.
    let slots = format!("slots: {:?}", reading.slots).replace(" sleeps", "");
    for shown in [format!("findings: {findings:?}"), slots] {
        assert!(PAGE.contains(&shown), "{shown}");
    }
}

#[test]
fn a_thread_was_stopped_with_a_worker_in_its_hand() {
    let core = &sleeping(2);
    let (_, claim) = core.claim_idle().expect("it is idle");
    let (open, gate) = mpsc::channel::<()>();
    assert!(serves(core, move || gate.recv().unwrap_or_default()));
    until(|| core.slots[1].load().state() == State::Busy);
    assert!(serves(core, || ()));
    is_on_the_page(core);
    notify(core, claim);
    drop(open);
    end(core);
}

#[test]
fn a_thread_was_stopped_with_the_hosts_lock() {
    let pool = Builder::new().max_workers(2).queue_capacity(0);
    let pool = pool.build().expect("a pool");
    let core = pool.core();
    let group = pool.limited_group(1);
    let (slot, open) = occupy(&group);
    let mut in_line = pin!(group.awaitable().serve_async(|| ()));
    assert!(poll_once(in_line.as_mut()).is_pending());
    let locked = core.registry();
    drop(open);
    until(|| {
        let it = &core.slots[slot];
        let passes = it.load().is_calling() && it.record.pays() != Kinds::NONE;
        passes && core.gate.taken() == 1
    });
    is_on_the_page(core);
    drop(locked);
    until(|| poll_once(in_line.as_mut()).is_ready());
    end(core);
}

#[test]
fn a_thread_was_stopped_before_its_look() {
    let core = &sleeping(2);
    push_only(core, || ());
    is_on_the_page(core);
    core.nudge();
    end(core);
}
