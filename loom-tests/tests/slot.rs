//! One slot alone (`src/parts/slot`): one order at a time reaches its worker, which wakes
//! for it, and an idle worker can be found. The model's own thread is the worker.
#![cfg(lazypool_loom)]

use lazypool::model::{Held, Slot, Told};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::{beside, check};
use std::sync::Arc;

/// A slot of this thread, idle.
fn idle() -> Arc<Slot> {
    let slot = Slot::of_this_thread();
    slot.publish_idle();
    Arc::new(slot)
}

/// A claim by affinity fails where the worker is just saying that it parks; then by its entry.
fn claim(slot: &Slot) -> Held {
    let claimed = slot.claim_last_used().or_else(|| slot.claim_ready());
    claimed.expect("idle, and listed")
}

/// A task for the worker, if there is an entry and it is idle; whether it got it.
fn give_by_entry(slot: &Slot) -> bool {
    let claimed = slot.claim_ready();
    claimed.map(|held| slot.hand_over(held, 1, false)).is_some()
}

/// A task is handed over while the worker parks. Excludes: a lost wake-up; a task read
/// before it was written. All interleavings.
#[test]
fn hand_over_against_park() {
    check(None, || {
        let slot = idle();
        let submitter = beside(&slot, |slot| {
            let held = slot.claim_ready().expect("idle, and listed");
            assert_eq!(slot.hand_over(held, 7, false), 1);
        });
        assert_eq!(slot.wait(), Told::Run(7));
        submitter.join().unwrap();
    });
}

/// The same with the order to look at the queue. All interleavings.
#[test]
fn notify_against_park() {
    check(None, || {
        let slot = idle();
        let notifier = beside(&slot, |slot| {
            slot.send_searching(claim(slot));
        });
        assert_eq!(slot.wait(), Told::Search);
        notifier.join().unwrap();
        slot.publish_idle();
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// Two claims, one by affinity and past the entry in the ready ring, one by that entry,
/// while the worker goes idle again. Excludes: two owners of one worker; an idle worker that
/// is neither listed nor marked (but see `dropped_listing_against_going_idle`).
/// Preemptions: 4.
#[test]
fn claims_against_going_idle() {
    check(Some(4), || {
        let slot = idle();
        let by_affinity = beside(&slot, |slot| match slot.claim_last_used() {
            Some(held) => slot.hand_over(held, 1, false) > 0,
            None => false,
        });
        let by_entry = beside(&slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_ready());
            match claimed {
                Some(held) => slot.hand_over(held, 2, false) > 0,
                None => false,
            }
        });
        assert!(matches!(slot.wait(), Told::Run(_)), "one of them has it");
        slot.publish_idle();
        let handed = [by_affinity, by_entry].map(|t| usize::from(t.join().unwrap()));
        if handed == [1, 1] {
            assert!(matches!(slot.wait(), Told::Run(_)));
            slot.publish_idle();
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A worker goes idle after a task that came past its entry in the ready ring, while that
/// entry is popped, and the next one. Excludes: an idle worker that is neither listed nor marked,
/// as far as loom's reduction comes there (a listing dropped before its worker is idle is
/// shown by `waiters::blocked_against_room`). All interleavings.
#[test]
fn dropped_listing_against_going_idle() {
    check(None, || {
        let slot = idle();
        let held = slot.claim_last_used().expect("idle");
        slot.hand_over(held, 1, false);
        assert_eq!(slot.wait(), Told::Run(1));
        let popper = beside(&slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_ready());
            claimed.map(|held| slot.hand_over(held, 2, false)).is_some()
        });
        slot.publish_idle();
        if popper.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(2));
            slot.publish_idle();
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A caller takes its task back while the worker starts it, and hands over another.
/// Excludes: a task that ran and came back, or neither; a worker that sleeps past the next
/// order. All interleavings.
#[test]
fn revoke_against_start() {
    check(None, || {
        let slot = idle();
        let caller = beside(&slot, move |slot| {
            let generation = slot.hand_over(claim(slot), 1, true);
            let Some(task) = slot.revoke(generation) else {
                return false;
            };
            assert_eq!(task, 1);
            slot.publish_idle();
            slot.hand_over(claim(slot), 2, false);
            true
        });
        let told = slot.wait();
        let revoked = caller.join().unwrap();
        assert_eq!(told, Told::Run(if revoked { 2 } else { 1 }));
    });
}

/// The cleaner marks the worker while a submission asks for it as it asks all: by the entry
/// in the ready ring, then by the mark. Excludes: a worker that leaves the ring and is not
/// yet marked when looked at. All interleavings.
#[test]
fn mark_against_claim() {
    check(None, || {
        let slot = idle();
        let cleaner = beside(&slot, |slot| slot.mark());
        let submitter = beside(&slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_marked());
            slot.hand_over(claimed.expect("idle all the time"), 1, false);
        });
        assert_eq!(slot.wait(), Told::Run(1));
        cleaner.join().unwrap();
        submitter.join().unwrap();
        slot.publish_idle();
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// The cleaner marks the worker and then retires it, if it is still marked, while a
/// submission claims it. Excludes: a worker retired although it was needed since; one that
/// is told to end and to run. Preemptions: 4.
#[test]
fn retire_against_claim() {
    check(Some(4), || {
        let slot = idle();
        let cleaner = beside(&slot, |slot| slot.mark() && slot.retire(true));
        let claimed = beside(&slot, |slot| {
            let claimed = slot.claim_ready().or_else(|| slot.claim_marked());
            claimed.map(|held| slot.hand_over(held, 1, false)).is_some()
        });
        let told = slot.wait();
        let (retired, claimed) = (cleaner.join().unwrap(), claimed.join().unwrap());
        assert!(retired != claimed, "one of the two");
        if retired {
            assert_eq!(told, Told::Retire);
            slot.vacate();
            assert!(slot.is_free());
        } else {
            assert_eq!(told, Told::Run(1));
        }
    });
}

/// A worker goes idle, while another thread looks whether it is. Excludes: an idle worker that
/// nobody but who knows it can find, as long as the one who makes it idle is stopped. All
/// interleavings.
#[test]
fn idle_can_be_found() {
    check(None, || {
        let slot = idle();
        let held = slot.claim_ready().expect("idle, and listed");
        slot.send_searching(held);
        assert_eq!(slot.wait(), Told::Search);
        let looker = beside(&slot, |slot| {
            assert!(!slot.is_idle() || slot.can_be_found())
        });
        slot.publish_idle();
        looker.join().unwrap();
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// The worker has been marked. It is needed again, and then idle, while the cleaner comes back
/// to retire it. Excludes: a worker retired although it has been needed since. All
/// interleavings.
#[test]
fn needed_against_retire() {
    check(None, || {
        let slot = idle();
        assert!(slot.mark());
        let cleaner = beside(&slot, |slot| slot.retire(true));
        let notifier = beside(&slot, |slot| {
            let claimed = slot.claim_marked();
            claimed.map(|held| slot.send_searching(held)).is_some()
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

/// A worker that has seen a queued task claims itself, while a submission claims it.
/// Excludes: a worker that looks at the queue with a task in its mailbox; an order for
/// nobody; a worker with a task that does not count as occupied. All interleavings.
#[test]
fn self_claim_against_claim() {
    check(None, || {
        let slot = idle();
        let submitter = beside(&slot, |slot| give_by_entry(slot));
        let own = slot.claim_self();
        if own {
            slot.start_queued();
            assert!(slot.is_occupied());
            slot.publish_idle();
        }
        // Given by then, or in vain.
        if submitter.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(1));
            slot.publish_idle();
        } else {
            assert!(own, "one of the two has it");
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A worker told to end stays, because a task is queued, while a submission drops its old
/// listing. Excludes: a listing that comes back, or a state lost, because one of two changes
/// of the word is. All interleavings.
#[test]
fn dropped_listing_against_staying() {
    check(None, || {
        let slot = idle();
        let submitter = beside(&slot, |slot| give_by_entry(slot));
        if slot.retire(false) {
            assert_eq!(slot.wait(), Told::Retire);
            slot.cancel_retirement();
            slot.publish_idle();
        }
        if submitter.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(1));
            slot.publish_idle();
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A worker that was claimed past its entry in the ready ring is sent to the queue, while another
/// submission drops that listing. Excludes: a listing that comes back, and a worker that lists
/// itself no more. All interleavings.
#[test]
fn dropped_listing_against_notifying() {
    check(None, || {
        let slot = idle();
        let held = slot.claim_last_used().expect("idle");
        let popper = beside(&slot, |slot| give_by_entry(slot));
        slot.send_searching(held);
        assert_eq!(slot.wait(), Told::Search);
        slot.publish_idle();
        if popper.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(1));
            slot.publish_idle();
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A new worker begins on a slot that still has an entry in the ready ring, while a submission
/// drops that listing. Excludes: as above. All interleavings.
#[test]
fn dropped_listing_against_starting() {
    check(None, || {
        let slot = idle();
        assert!(slot.retire(false));
        assert_eq!(slot.wait(), Told::Retire);
        slot.vacate();
        let popper = beside(&slot, |slot| give_by_entry(slot));
        slot.start_again();
        assert_eq!(slot.wait(), Told::Search);
        slot.publish_idle();
        if popper.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(1));
            slot.publish_idle();
        }
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A caller takes its task back from a worker in its start hook, which is marked then, while one
/// submission claims the worker and another drops an old listing of its slot. Excludes: a listing
/// that comes back; two owners of the mailbox. All interleavings.
#[test]
fn dropped_listing_against_marking() {
    check(None, || {
        let slot = idle();
        let held = slot.claim_last_used().expect("idle");
        let generation = slot.hand_over(held, 1, true);
        let popper = beside(&slot, |slot| assert!(!give_by_entry(slot), "marked"));
        let submitter = beside(&slot, |slot| {
            let claimed = slot.claim_marked();
            claimed.map(|held| slot.hand_over(held, 2, false)).is_some()
        });
        assert_eq!(slot.revoke(generation), Some(1));
        slot.publish_marked();
        if submitter.join().unwrap() {
            assert_eq!(slot.wait(), Told::Run(2));
        } else {
            let held = slot.claim_marked().expect("idle, and marked");
            slot.hand_over(held, 3, false);
            assert_eq!(slot.wait(), Told::Run(3));
        }
        popper.join().unwrap();
        slot.publish_idle();
        assert!(slot.is_idle() && slot.can_be_found());
    });
}

/// A caller takes its task back from a worker in its start hook: it makes the worker idle, and
/// marked, then looks whether the hook has ended. The worker ends its hook, then looks whether it
/// is idle (H1). Excludes: that neither sees the other. All interleavings.
#[test]
fn marking_against_end_of_hook() {
    check(None, || {
        let slot = idle();
        let ended = Arc::new(AtomicUsize::new(0));
        // Every write `SeqCst`, the first one, too: see the README.
        ended.store(0, Ordering::SeqCst);
        let held = slot.claim_last_used().expect("idle");
        let generation = slot.hand_over(held, 1, true);
        assert_eq!(slot.revoke(generation), Some(1));
        let caller = thread::spawn({
            let (slot, ended) = (Arc::clone(&slot), Arc::clone(&ended));
            move || {
                slot.publish_marked();
                ended.load(Ordering::SeqCst) == 1
            }
        });
        ended.swap(1, Ordering::SeqCst);
        let found = slot.claim_self();
        assert!(caller.join().unwrap() || found);
    });
}
