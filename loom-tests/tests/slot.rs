//! One slot alone (`src/parts/slot`): one order at a time reaches its worker, which wakes up for
//! it, and an idle worker can be found. The model's own thread is the worker.
#![cfg(lazypool_loom)]

use lazypool::model::{Held, Slot, Told};
use loom_tests::{beside, check};
use std::sync::Arc;

/// Explores a model of a slot whose worker is the model's own thread, and idle.
fn check_idle(preemptions: Option<usize>, model: impl Fn(&Arc<Slot>) + Send + Sync + 'static) {
    check(preemptions, move || {
        let slot = Arc::new(Slot::of_this_thread());
        slot.publish_idle();
        model(&slot);
    });
}

fn assert_idle(slot: &Slot) {
    assert!(slot.is_idle() && slot.can_be_found());
}

/// Makes the worker idle, and asserts that it can be found.
fn goes_idle(slot: &Slot) {
    slot.publish_idle();
    assert_idle(slot);
}

/// Claims the worker as a last worker. That fails while the worker announces that it parks; then claims
/// it by its entry in the ready ring.
fn claim(slot: &Slot) -> Held<'_> {
    let claimed = slot.claim_last_used().or_else(|| slot.claim_ready());
    claimed.expect("idle, and listed")
}

/// Hands a task to the worker if it was claimed. Returns `true` if it was.
fn give(slot: &Slot, claimed: Option<Held<'_>>, task: usize) -> bool {
    claimed
        .map(|held| slot.hand_over(held, task, false))
        .is_some()
}

/// Hands a task to the worker, which is this thread, and takes the task from its mailbox.
fn runs(slot: &Slot, held: Held<'_>) {
    slot.hand_over(held, 1, false);
    assert_eq!(slot.wait(), Told::Run(1));
}

/// The worker is handed a task, or told to look at the queue, while it parks. Excludes: a lost
/// wake-up; a task read before it was written. All interleavings.
#[test]
fn order_against_park() {
    for is_task in [true, false] {
        check_idle(None, move |slot| {
            let submitter = beside(slot, move |slot| {
                if is_task {
                    let held = slot.claim_ready().expect("idle, and listed");
                    assert_eq!(slot.hand_over(held, 7, false), 1);
                } else {
                    slot.notify(claim(slot));
                }
            });
            let order = if is_task { Told::Run(7) } else { Told::Search };
            assert_eq!(slot.wait(), order);
            submitter.join().unwrap();
            goes_idle(slot);
        });
    }
}

/// Two claims, one as a last worker, which leaves the entry in the ready ring, and one by that entry,
/// while the worker goes idle again. Excludes: two owners of one worker; an idle worker that is
/// neither listed nor on the bench. Preemptions: 4.
#[test]
fn claims_against_going_idle() {
    check_idle(Some(4), |slot| {
        let as_last_worker = beside(slot, |slot| give(slot, slot.claim_last_used(), 1));
        let by_entry = beside(slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_ready());
            give(slot, claimed, 2)
        });
        assert!(matches!(slot.wait(), Told::Run(_)), "one of them has it");
        slot.publish_idle();
        let handed = [as_last_worker, by_entry].map(|t| t.join().unwrap());
        if handed == [true, true] {
            assert!(matches!(slot.wait(), Told::Run(_)));
            slot.publish_idle();
        }
        assert_idle(slot);
    });
}

/// A caller takes its task back while the worker starts it, and tells the worker to look at
/// the queue. Excludes: a task that ran and came back, or neither; a worker that sleeps past
/// the order. All interleavings.
#[test]
fn revoke_against_start() {
    check_idle(None, |slot| {
        let caller = beside(slot, move |slot| {
            let generation = slot.hand_over(claim(slot), 1, true);
            let task = slot.revoke(generation);
            if task.is_some() {
                assert_eq!(task, Some(1));
                slot.search_first();
            }
            task.is_some()
        });
        let told = slot.wait();
        let revoked = caller.join().unwrap();
        assert_eq!(told, if revoked { Told::Search } else { Told::Run(1) });
        if revoked {
            goes_idle(slot);
        }
    });
}

/// A thread claims a worker that calls wakers, and perhaps takes its task back, or hands none over, as the wakers return. Another
/// one has popped the worker's entry. Excludes: two owners of one worker; an order that the worker does not see; an idle worker
/// that is neither listed nor on the bench. Preemptions: 4.
#[test]
fn a_claim_against_the_end_of_wakers() {
    for (owes, hands_over) in [(false, true), (true, true), (false, false), (true, false)] {
        check_idle(Some(4), move |slot| {
            runs(slot, claim(slot));
            slot.begin_calls();
            let caller = beside(slot, move |slot| {
                if !hands_over {
                    return slot.leave_calling().then_some(true);
                }
                let generation = slot.hand_over_to_calling(2)?;
                let back = slot.revoke(generation).is_some();
                if back {
                    slot.search_first();
                }
                Some(back)
            });
            let popper = beside(slot, |slot| give(slot, slot.claim_ready(), 3));
            let claimed = !slot.end_calls(owes);
            let told = claimed.then(|| slot.wait());
            if claimed || owes {
                slot.publish_idle();
            }
            let back = caller.join().unwrap();
            assert_eq!(
                told,
                back.map(|back| if back { Told::Search } else { Told::Run(2) })
            );
            if popper.join().unwrap() {
                assert_eq!(slot.wait(), Told::Run(3));
                slot.publish_idle();
            }
            assert_idle(slot);
        });
    }
}

/// A new worker ends its start hook while a caller takes its task back. Excludes: a worker that uses
/// a slot that the caller still holds; a worker that does not learn that it should look at the queue; a
/// task that ran and came back, or neither. All interleavings.
#[test]
fn revoke_against_end_of_start_hook() {
    check(None, || {
        let slot = Arc::new(Slot::new_worker());
        let generation = slot.hand_first(1, true);
        let caller = beside(&slot, move |slot| {
            let task = slot.revoke(generation)?;
            slot.search_first();
            Some(task)
        });
        let told = slot.wait();
        match caller.join().unwrap() {
            Some(task) => assert_eq!((task, told), (1, Told::Search)),
            None => assert_eq!(told, Told::Run(1)),
        }
        goes_idle(&slot);
    });
}

/// A worker offers a task again that it has in hand, while the task's caller takes it back: from where it was, or from
/// where it is then. Excludes: a task that both have, or neither. All interleavings.
#[test]
fn offered_again_against_revoke() {
    check_idle(None, |slot| {
        let generation = slot.hand_over(claim(slot), 7, false);
        let caller = beside(slot, move |slot| {
            let back = slot
                .revoke(generation + 1)
                .or_else(|| slot.revoke(generation + 1));
            back.inspect(|_| slot.search_first())
        });
        slot.offer_again();
        match (caller.join().unwrap(), slot.wait()) {
            (Some(task), told) => assert_eq!((task, told), (7, Told::Search)),
            (None, told) => assert_eq!(told, Told::Run(7)),
        }
        goes_idle(slot);
    });
}

/// The cleaner benches the worker while a submission looks for it as usual: by the entry in the
/// ready ring, then on the bench. Excludes: a worker that has left the ring and is not yet on the
/// bench when the submission looks there. All interleavings.
#[test]
fn bench_against_claim() {
    check_idle(None, |slot| {
        let cleaner = beside(slot, |slot| slot.bench());
        let by_entry = slot.claim_ready();
        // In the engine a submission takes the registry's lock here, which the cleaner holds.
        let benched = cleaner.join().unwrap();
        let claimed = by_entry.or_else(|| slot.claim_benched());
        runs(slot, claimed.expect("idle all the time"));
        assert_ne!(benched, Some(false), "idle until then");
        goes_idle(slot);
    });
}

/// The cleaner benches the worker while a submission claims it as a last worker. Excludes: two owners; a
/// worker that is idle later and has no entry. All interleavings.
#[test]
fn bench_against_claim_as_last_worker() {
    check_idle(None, |slot| {
        let cleaner = beside(slot, |slot| slot.bench());
        let held = slot.claim_last_used();
        let benched = cleaner.join().unwrap();
        // A claim as a last worker fails while the word changes, and fails for a worker on the bench.
        let held = held
            .or_else(|| slot.claim_benched())
            .or_else(|| slot.claim_last_used());
        let held = held.expect("idle");
        assert!(benched.is_some());
        runs(slot, held);
        goes_idle(slot);
    });
}

/// A worker that was claimed as a last worker goes idle again, while the cleaner pops its old entry and
/// benches it. Excludes: an idle worker that neither has an entry nor is on the bench; a worker
/// that is on the bench without the cleaner's knowledge. All interleavings.
#[test]
fn bench_against_going_idle() {
    check_idle(None, |slot| {
        runs(slot, slot.claim_last_used().expect("idle"));
        let cleaner = beside(slot, |slot| slot.bench());
        slot.publish_idle();
        let benched = cleaner.join().unwrap().expect("an entry");
        assert_idle(slot);
        assert_eq!(slot.claim_benched().is_some(), benched);
    });
}

/// The cleaner benches the worker while the worker announces that it parks. Both change the slot's
/// word. Excludes: a loss of one of the two changes. All interleavings.
#[test]
fn bench_against_park() {
    check_idle(None, |slot| {
        let cleaner = beside(slot, |slot| {
            assert_eq!(slot.bench(), Some(true), "idle all the time");
            let held = slot.claim_benched().expect("as above");
            slot.hand_over(held, 1, false);
        });
        assert_eq!(slot.wait(), Told::Run(1));
        cleaner.join().unwrap();
    });
}

/// The cleaner benches the worker and then retires it, if it is still on the bench, while a
/// submission claims it from the ring. Excludes: a worker that is retired although it was needed
/// since; a worker that is told both to end and to run. Preemptions: 4.
#[test]
fn retire_against_claim() {
    check_idle(Some(4), |slot| {
        let cleaner = beside(slot, |slot| slot.bench() == Some(true) && slot.retire(true));
        let claimed = beside(slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_last_used());
            give(slot, claimed, 1)
        });
        let (retired, claimed) = (cleaner.join().unwrap(), claimed.join().unwrap());
        assert!(!(retired && claimed), "one of the two");
        if retired {
            assert_eq!(slot.wait(), Told::Retire);
            slot.vacate();
            assert!(slot.is_free());
        } else if claimed {
            assert_eq!(slot.wait(), Told::Run(1));
        } else {
            assert_idle(slot);
        }
    });
}

/// A worker goes idle, while another thread reads its state. Excludes: an idle worker without an
/// entry in the ring, even for the time between two steps of the worker: only a thread that knows
/// the slot could claim it. All interleavings.
#[test]
fn idle_can_be_found() {
    check_idle(None, |slot| {
        slot.notify(slot.claim_ready().expect("idle, and listed"));
        assert_eq!(slot.wait(), Told::Search);
        let looker = beside(slot, |slot| assert!(!slot.is_idle() || slot.can_be_found()));
        slot.publish_idle();
        looker.join().unwrap();
        assert_idle(slot);
    });
}

/// A worker on the bench is claimed and goes idle again, while the cleaner comes back to retire it.
/// Excludes: a worker that is retired although it was needed since. All interleavings.
#[test]
fn needed_against_retire() {
    check_idle(None, |slot| {
        assert_eq!(slot.bench(), Some(true));
        let cleaner = beside(slot, |slot| slot.retire(true));
        let notifier = beside(slot, |slot| {
            let claimed = slot.claim_benched();
            claimed.map(|held| slot.notify(held)).is_some()
        });
        let told = slot.wait();
        if told == Told::Search {
            slot.publish_idle();
        }
        let (retired, needed) = (cleaner.join().unwrap(), notifier.join().unwrap());
        assert!(retired != needed, "one of the two");
        assert_eq!(told == Told::Retire, retired);
    });
}

/// A worker that has seen a queued task claims itself, while a submission claims it. Excludes: a
/// worker that looks at the queue with a task in its mailbox; an order that no worker obeys; a
/// worker with a task that does not count as busy. All interleavings.
#[test]
fn self_claim_against_claim() {
    check_idle(None, |slot| {
        let submitter = beside(slot, |slot| give(slot, slot.claim_ready(), 1));
        let own = slot.claim_self();
        if own {
            slot.start_queued();
            assert!(slot.is_busy());
            slot.publish_idle();
        }
        // By now the submission has handed over its task or has failed to claim.
        if submitter.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(1));
            slot.publish_idle();
        } else {
            assert!(own, "one of the two has it");
        }
        assert_idle(slot);
    });
}

/// A worker goes from `Busy` to `Searching`, ends by itself, and another is started on its slot, while
/// a submission drops the old listing. Excludes: a listing that comes back; a state or a flag that is
/// lost; a worker that never lists itself again. All interleavings.
#[test]
fn dropped_listing_against_own_end() {
    check_idle(None, |slot| {
        runs(slot, slot.claim_last_used().expect("idle"));
        let popper = beside(slot, |slot| assert!(slot.claim_ready().is_none(), "busy"));
        slot.search_after_task();
        slot.retire_self();
        slot.vacate();
        assert!(slot.is_free());
        slot.start_again();
        slot.search_first();
        popper.join().unwrap();
        goes_idle(slot);
    });
}

/// A thread that lowers the limit or closes the pool tells an idle worker to end, while the worker
/// claims itself to check whether it must end. Excludes: both succeed, or neither. All
/// interleavings.
#[test]
fn self_claim_against_retire() {
    check_idle(None, |slot| {
        let closer = beside(slot, |slot| slot.retire(false));
        let own = slot.claim_self();
        if own {
            slot.retire_self();
        } else {
            assert_eq!(slot.wait(), Told::Retire);
        }
        assert_ne!(closer.join().unwrap(), own, "one of the two");
        slot.vacate();
        assert!(slot.is_free());
    });
}
