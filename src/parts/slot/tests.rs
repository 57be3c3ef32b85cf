use super::State::{
    Busy, Calling, Free, Held, Idle, Notified, Offered, Paying, Retiring, Searching,
};
use super::*;
use crate::parts::in_flight::InFlight;
use std::time::{Duration, Instant};

/// Takes a step of the slot's owner.
macro_rules! own {
    ($step:expr) => {
        // SAFETY: each test is the owner of its slots at each step. An assertion notices an illegal
        // step.
        unsafe { $step }
    };
}

type Channel = Slot<&'static str, ()>;

/// Returns a slot to which `generation` tasks seem to have been handed over.
fn starting_at(generation: u64) -> Channel {
    let mut slot = Slot::new(());
    slot.hot.status = AtomicU64::new(generation.wrapping_mul(GENERATION) | Free as u64);
    slot
}

fn started(generation: u64) -> Channel {
    let slot = starting_at(generation);
    own!(slot.begin_start()).leave();
    slot
}

fn idle(ready: &Ring) -> Channel {
    let slot = started(0);
    held(&slot).send_uncounted();
    own!(slot.step(Paying, Searching));
    publish_idle(&slot, ready);
    slot
}

/// Makes the worker idle after a task or a search.
fn publish_idle(slot: &Channel, ready: &Ring) {
    own!(slot.publish_idle(slot.load().state(), ready, 0));
}

type TheClaim<'a> = Claim<'a, &'static str, ()>;

/// Returns the claim that was left with the slot.
fn held(slot: &Channel) -> TheClaim<'_> {
    own!(Claim::of_held(slot))
}

fn hand_over<'a>(
    claim: impl Into<TaskClaim<'a, &'static str, ()>>,
    task: &'static str,
    revocable: bool,
) -> u64 {
    claim
        .into()
        .hand_over(task, Permit::of_taken_task(), revocable)
}

/// Takes the task back, and leaves the claim with the slot.
fn revoke(slot: &Channel, generation: u64) -> Option<&'static str> {
    let (task, permit, claim) = slot.revoke(generation)?;
    permit.leave_with_task();
    claim.leave();
    Some(task)
}

fn run(slot: &Channel) -> (&'static str, u64) {
    match own!(slot.poll_order()) {
        Some(Order::Run {
            task,
            permit,
            generation,
        }) => {
            permit.leave_with_task();
            (task, generation)
        }
        order => panic!("{order:?}"),
    }
}

#[test]
fn every_state_has_a_way_in_and_a_way_out() {
    for (from, to) in legal_steps() {
        assert_ne!(from, to);
        assert!(legal_steps().any(|step| step.0 == to), "out of {to:?}");
        assert!(legal_steps().any(|step| step.1 == from), "into {from:?}");
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is no step")]
fn a_step_that_is_not_legal_is_noticed() {
    own!(Slot::<(), ()>::new(()).step(Free, Idle));
}

#[test]
fn an_idle_slot_is_listed_once_and_claimed_once() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    assert_eq!(ready.pop(), Some(0));
    let claim = slot.claim_listed().expect("idle");
    assert!(!claim.is_parked());
    assert!(slot.claim_last_used(0, true).is_none());
    assert_eq!(hand_over(claim, "a", false), 1);
    assert_eq!(run(&slot), ("a", 1));
    publish_idle(&slot, &ready);
    assert!(slot.load().is_idle());
    assert_eq!((ready.pop(), ready.pop()), (Some(0), None));
}

#[test]
fn a_hint_names_the_last_generation_and_claims_an_idle_worker_only() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    for last in 0..2 {
        let claim = slot.claim_last_used(last, true).expect("idle");
        assert!(slot.claim_last_used(last + 1, true).is_none());
        let generation = hand_over(claim, "a", true);
        assert_eq!(generation, last + 1);
        assert_eq!(revoke(&slot, generation), Some("a"));
        held(&slot).send_uncounted();
        own!(slot.step(Paying, Searching));
        publish_idle(&slot, &ready);
        assert!(slot.claim_self());
        assert!(slot.claim_last_used(generation, true).is_none());
        publish_idle(&slot, &ready);
        slot.retire(false).expect("idle").unpark();
        assert!(slot.claim_last_used(generation, true).is_none());
        own!(slot.step(State::Retiring, State::Free));
        own!(slot.begin_start()).leave();
        held(&slot).send_uncounted();
        own!(slot.step(Paying, Searching));
        publish_idle(&slot, &ready);
    }
}

#[test]
fn a_worker_on_the_bench_is_idle_and_out_of_the_ready_ring() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    assert!(slot.claim_benched().is_none() && slot.retire(true).is_none());
    assert_eq!(ready.pop(), Some(0));
    assert!(slot.bench() && slot.load().is_benched());
    assert!(slot.claim_last_used(0, true).is_none(), "not by hint");
    assert!(slot.claim_self(), "as any other");
    publish_idle(&slot, &ready);
    // `claim_last_used` leaves the worker's entry in the ready ring. The thread that pops the entry
    // finds the worker claimed, and does not put it on the bench.
    let claim = slot.claim_last_used(0, true).expect("idle");
    assert_eq!(ready.pop(), Some(0));
    assert!(!slot.bench() && !slot.load().is_benched());
    claim.send_uncounted();
    assert!(matches!(own!(slot.poll_order()), Some(Order::Search(None))));
    assert_eq!(slot.load().generation(), 0, "that is no task");
    own!(slot.step(Paying, Searching));
    publish_idle(&slot, &ready);
    assert_eq!(ready.pop(), Some(0));
    assert!(slot.bench());
    let claim = slot.claim_benched().expect("idle");
    assert_eq!(hand_over(claim, "a", false), 1);
    assert_eq!(run(&slot), ("a", 1));
    // The worker is idle again, so it is listed and no longer on the bench.
    publish_idle(&slot, &ready);
    assert!(!slot.load().is_benched() && slot.claim_benched().is_none());
    assert_eq!((ready.pop(), ready.pop()), (Some(0), None));
}

#[test]
fn an_offered_task_is_run_or_taken_back() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    let claim = slot.claim_last_used(0, true).unwrap();
    let generation = hand_over(claim, "a", true);
    assert!(revoke(&slot, generation + 1).is_none(), "another task");
    assert_eq!(revoke(&slot, generation), Some("a"));
    assert!(own!(slot.poll_order()).is_none());
    // The caller sends the worker to the queue.
    held(&slot).send_uncounted();
    assert!(matches!(own!(slot.poll_order()), Some(Order::Search(None))));
    own!(slot.step(Paying, Searching));
    publish_idle(&slot, &ready);

    let claim = slot.claim_last_used(0, true).unwrap();
    let generation = hand_over(claim, "b", true);
    assert_eq!(run(&slot), ("b", generation));
    assert!(revoke(&slot, generation).is_none(), "started");
}

#[test]
fn a_retired_slot_starts_again_and_a_worker_may_stay() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    assert!(slot.retire(true).is_none(), "not on the bench");
    slot.retire(false).expect("idle").unpark();
    assert!(matches!(own!(slot.poll_order()), Some(Order::Retire)));
    own!(slot.step(Retiring, Paying));
    own!(slot.step(Paying, Searching));
    publish_idle(&slot, &ready);
    assert_eq!(ready.pop(), Some(0));
    assert!(slot.bench());
    slot.retire(true).expect("on the bench").unpark();
    own!(slot.step(State::Retiring, State::Free));
    assert_eq!(slot.load().state(), State::Free);
    own!(slot.begin_start()).leave();
    assert!(slot.is_held());
    own!(held(&slot).start_failed());
    own!(slot.begin_start()).leave();
    held(&slot).send_uncounted();
    assert!(matches!(own!(slot.poll_order()), Some(Order::Search(None))));
    // The worker checks whether it must end.
    own!(slot.step(Paying, Retiring));
    own!(slot.step(State::Retiring, State::Free));
    assert_eq!(slot.load().state(), State::Free);
}

/// A worker that calls wakers after its task gets no order but a task, as a last worker.
#[test]
fn a_worker_that_calls_wakers_is_left_alone() {
    let ready = Ring::new(1, 0);
    let slot = idle(&ready);
    let is_left_alone = || {
        assert!(slot
            .claim_last_used(slot.load().generation(), true)
            .is_none());
        assert!(slot.claim_idle().is_none() && slot.claim_benched().is_none());
        assert!(slot.retire(false).is_none() && !slot.claim_self() && !slot.may_park());
    };
    for (owes, claimed) in [(false, false), (true, false), (false, true), (true, true)] {
        assert!(slot.claim_calling().is_none(), "idle");
        let claim = slot.claim_last_used(0, true).expect("idle");
        hand_over(claim, "a", false);
        assert_eq!(run(&slot).0, "a");
        own!(slot.step(Busy, Calling));
        is_left_alone();
        assert_eq!(ready.pop(), Some(0));
        assert!(slot.claim_listed().is_none());
        is_left_alone();
        if claimed {
            hand_over(slot.claim_calling().expect("it calls"), "b", false);
            assert!(slot.claim_calling().is_none());
        }
        let is_its_own = match owes {
            true => own!(slot.pay_after_calling()),
            false => own!(slot.idle_after_calling(&ready, 0)),
        };
        assert_eq!(is_its_own, !claimed);
        if claimed {
            assert_eq!(run(&slot).0, "b");
        } else if owes {
            own!(slot.step(Paying, Searching));
        }
        if claimed || owes {
            publish_idle(&slot, &ready);
        }
        assert!(slot.load().is_idle());
    }
    slot.claim_listed().expect("idle").leave();
}

/// A notice is with the slot until its worker begins to search.
#[test]
fn a_notice_is_taken_once() {
    let (ready, counts) = (Ring::new(1, 0), InFlight::default());
    let slot = idle(&ready);
    let claim = slot.claim_last_used(0, true).expect("idle");
    claim.notify(counts.notify());
    assert_eq!(slot.load().state(), Notified);
    assert!(slot.claim_last_used(0, true).is_none());
    assert!(!slot.claim_self() && slot.retire(false).is_none() && !slot.may_park());
    let Some(Order::Search(Some(notice))) = own!(slot.poll_order()) else {
        panic!("no notice");
    };
    assert_eq!(slot.load().state(), Searching);
    counts.forgo(notice);
    assert_eq!(counts.figures(), [0, 0]);
}

/// A worker offers the task that it has in hand again, under the next generation. Its caller may take it back until
/// the worker takes it.
#[test]
fn a_task_that_is_offered_again_is_run_or_taken_back() {
    let ready = Ring::new(1, 0);
    for back in [false, true] {
        let slot = idle(&ready);
        let claim = slot.claim_last_used(0, true).expect("idle");
        hand_over(claim, "a", false);
        let (task, generation) = run(&slot);
        let tell = |it: &&str, again| assert_eq!((*it, again), ("a", generation + 1));
        own!(slot.offer_again(task, Permit::of_taken_task(), tell));
        assert!(revoke(&slot, generation).is_none(), "it has another one");
        if back {
            assert_eq!(revoke(&slot, generation + 1), Some("a"));
            assert!(own!(slot.poll_order()).is_none());
            held(&slot).send_uncounted();
            own!(slot.step(Paying, Searching));
        } else {
            assert_eq!(run(&slot), ("a", generation + 1));
            assert!(revoke(&slot, generation + 1).is_none(), "started");
        }
        publish_idle(&slot, &ready);
        assert_eq!(ready.pop(), Some(0));
    }
}

#[test]
fn a_new_worker_starts_with_a_task_whatever_the_generation() {
    for first in [0, u64::MAX / GENERATION - 1] {
        let ready = Ring::new(1, 0);
        let slot = starting_at(first);
        let mut generation = first;
        for _ in 0..3 {
            own!(slot.begin_start()).leave();
            generation = generation.wrapping_add(1) & (u64::MAX / GENERATION);
            let first = hand_over(held(&slot), "a", false);
            assert_eq!(first, generation);
            assert_eq!(slot.load().generation(), generation);
            assert_eq!(run(&slot), ("a", generation));
            publish_idle(&slot, &ready);
            let claim = slot.claim_last_used(generation, true).expect("idle");
            generation = generation.wrapping_add(1) & (u64::MAX / GENERATION);
            assert_eq!(hand_over(claim, "b", true), generation);
            assert_eq!(revoke(&slot, generation), Some("b"));
            held(&slot).send_uncounted();
            own!(slot.step(Paying, Searching));
            publish_idle(&slot, &ready);
            assert_eq!(ready.pop(), Some(0));
            assert!(slot.bench());
            slot.retire(true).expect("on the bench").unpark();
            own!(slot.step(State::Retiring, State::Free));
            assert!(!slot.load().is_benched());
        }
    }
}

/// This thread is the worker, too. loom's model of a slot has two threads.
#[test]
fn a_sleeping_worker_is_woken_by_its_order() {
    let ready = Ring::new(1, 0);
    let slot = started(0);
    let claim = held(&slot);
    // SAFETY: the slot's start has begun, and its worker waits for its first order.
    unsafe { claim.set_thread(std::thread::current()) };
    claim.leave();
    held(&slot).send_uncounted();
    assert!(matches!(own!(slot.poll_order()), Some(Order::Search(None))));
    own!(slot.step(Paying, Searching));
    publish_idle(&slot, &ready);
    assert!(slot.may_park());
    assert!(slot.claim_last_used(0, false).is_none(), "it sleeps");
    let claim = slot.claim_last_used(0, true).expect("idle");
    assert!(claim.is_parked());
    hand_over(claim, "a", false);
    let start = Instant::now();
    std::thread::park_timeout(Duration::from_secs(20));
    assert!(start.elapsed() < Duration::from_secs(10), "not woken");
    assert_eq!(run(&slot), ("a", 1));
    publish_idle(&slot, &ready);
    let claim = slot.claim_last_used(0, false).expect("it has woken");
    assert!(!claim.is_parked());
    claim.leave();
}

#[test]
fn a_words_flags_go_with_its_state() {
    let of = |state: State, flags: u64| Word((5 * GENERATION) | flags | state as u64);
    for state in [
        Free, Held, Offered, Busy, Searching, Idle, Retiring, Calling, Notified, Paying,
    ] {
        let is_idle = state == Idle;
        for listed in [0, LISTED] {
            let word = of(state, listed);
            assert_eq!(word.is_benched(), is_idle && listed == 0, "{word:?}");
            let is_in_service = !matches!(state, Free | Retiring);
            assert_eq!(word.is_in_service(), is_in_service, "{word:?}");
            assert!(word.is_sound(), "{word:?}");
            assert_eq!(of(state, listed | PARKED).is_sound(), is_idle);
        }
    }
}
