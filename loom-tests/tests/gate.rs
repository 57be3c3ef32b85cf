//! The gate alone (`src/parts/gate.rs`): permits are taken and given back once, and the last worker
//! leaves only if none is taken. Law 1.
#![cfg(lazypool_loom)]

use lazypool::model::Gate;
use loom::cell::UnsafeCell;
use loom_tests::{beside, check};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Data that only the thread with the gate's only permit may touch.
struct Owned(UnsafeCell<usize>);

// SAFETY: loom reports accesses that are not ordered.
unsafe impl Sync for Owned {}

impl Owned {
    fn touch(&self) {
        // SAFETY: this thread has the permit. loom reports an access that is not ordered after the last
        // owner's.
        self.0.with_mut(|data| unsafe { *data += 1 });
    }
}

/// A thread writes and gives the only permit back, while two others each try to take it. One of them
/// may find it in what the other one has read. Excludes: a thread that has the permit and does not see
/// what its last owner did. All interleavings.
#[test]
fn a_permit_brings_what_its_last_owner_did() {
    check(None, || {
        let shared = Arc::new((Gate::new(1), Owned(UnsafeCell::new(0))));
        let (first, _) = shared.0.take().expect("free");
        let tries = |shared: &Arc<(Gate, Owned)>| {
            let (gate, data) = &**shared;
            if let Some((permit, _)) = gate.take() {
                data.touch();
                gate.give(permit);
            }
        };
        let others = [beside(&shared, tries), beside(&shared, tries)];
        shared.1.touch();
        shared.0.give(first);
        for other in others {
            other.join().unwrap();
        }
        shared.0.assert_at_rest();
    });
}

/// Two submissions take the only permit. Excludes: both have it, or neither. All interleavings.
#[test]
fn two_take_one_permit() {
    check(None, || {
        let gate = Arc::new(Gate::new(1));
        let other = beside(&gate, |gate| gate.take());
        let mine = gate.take();
        let both = [mine, other.join().unwrap()];
        assert_eq!(both.iter().flatten().count(), 1);
        assert_eq!((gate.taken(), gate.free()), (1, 0));
        for (permit, _) in both.into_iter().flatten() {
            assert!(!gate.give(permit));
        }
        gate.assert_at_rest();
    });
}

/// In a gate of two, a thread gives a permit back and takes it again, beside another that takes one.
/// Excludes: a submission that is turned away although a permit was free all the time. All
/// interleavings.
#[test]
fn law01_none_is_turned_away_in_vain() {
    check(None, || {
        let gate = Arc::new(Gate::new(2));
        let (first, _) = gate.take().unwrap();
        let other = beside(&gate, |gate| {
            gate.give(first);
            let (again, _) = gate.take().expect("one is free");
            gate.give(again);
        });
        let (mine, _) = gate.take().expect("one is free");
        gate.give(mine);
        other.join().unwrap();
        gate.assert_at_rest();
    });
}

/// In a gate of two whose submissions last saw it full, a submission takes a permit beside another that
/// takes one and gives it back. Excludes: a submission that reads the count of taken permits, then a count
/// of given permits that is larger, and takes the gate for full. All interleavings.
#[test]
fn law01_a_count_of_given_permits_may_be_ahead() {
    check(None, || {
        let gate = Arc::new(Gate::new(2));
        for permit in [gate.take().unwrap().0, gate.take().unwrap().0] {
            gate.give(permit);
        }
        let take_and_give = |gate: &Arc<Gate>| {
            let (permit, _) = gate.take().expect("one is free");
            gate.give(permit);
        };
        let other = beside(&gate, take_and_give);
        take_and_give(&gate);
        other.join().unwrap();
        gate.assert_at_rest();
    });
}

/// Both permits are in use, the bound is lowered to one, and then one task ends, beside a submission. No permit is free at any moment.
/// Excludes: a submission that reads the old bound, and how many permits are in use after that. All interleavings.
#[test]
fn law01_a_lowered_bound_lets_none_in() {
    check(None, || {
        let gate = Arc::new(Gate::new(2));
        let [first, second] = [(); 2].map(|()| gate.take().expect("free").0);
        let submission = beside(&gate, |gate| gate.take().is_some());
        gate.set_bound(1);
        gate.give(first);
        assert!(!submission.join().unwrap(), "one is in use, of one");
        gate.give(second);
        gate.assert_at_rest();
    });
}

/// The last worker puts the gate to sleep while a submission takes a permit. Excludes: a permit taken
/// from a gate that seemed awake, and asleep now; a worker that stays although no permit is taken. Both
/// outcomes occur. All interleavings.
#[test]
fn sleep_against_take() {
    static SEEN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
    check(None, || {
        let gate = Arc::new(Gate::new(1));
        let worker = beside(&gate, |gate| gate.sleep());
        let (permit, was_asleep) = gate.take().expect("free");
        let slept = worker.join().unwrap();
        SEEN[usize::from(slept)].store(true, Ordering::Relaxed);
        assert_eq!(slept, was_asleep);
        gate.give(permit);
        gate.assert_at_rest();
    });
    assert!(SEEN.iter().all(|seen| seen.load(Ordering::Relaxed)));
}

/// The last worker puts the gate to sleep while a submission takes a permit, gives it back and takes
/// the next one. Excludes: a second permit taken from a gate that seemed awake, and asleep now. All
/// interleavings.
#[test]
fn sleep_against_give_and_take() {
    check(None, || {
        let gate = Arc::new(Gate::new(1));
        let worker = beside(&gate, |gate| gate.sleep());
        let (first, _) = gate.take().expect("free");
        gate.give(first);
        let (second, was_asleep) = gate.take().expect("free");
        assert_eq!(worker.join().unwrap(), was_asleep);
        gate.give(second);
        gate.assert_at_rest();
    });
}

/// A spawner wakes the gate while another submission takes a permit, and a shutdown closes it.
/// Excludes: one flag or permit that is lost as another changes. All interleavings.
#[test]
fn wake_against_close_and_take() {
    check(None, || {
        let gate = Arc::new(Gate::asleep(2));
        let (first, was_asleep) = gate.take().expect("free");
        assert!(was_asleep && !gate.sleep(), "a permit is taken");
        let spawner = beside(&gate, |gate| gate.wake());
        let closer = beside(&gate, |gate| gate.close());
        let second = gate.take();
        spawner.join().unwrap();
        closer.join().unwrap();
        assert!(gate.take().is_none(), "closed");
        assert_eq!(gate.taken(), 1 + u64::from(second.is_some()));
        let last = match second {
            Some((second, _)) => {
                assert!(!gate.give(first), "one is left");
                gate.give(second)
            }
            None => gate.give(first),
        };
        assert!(last && gate.sleep());
        gate.assert_at_rest();
    });
}

/// A shutdown closes the gate, then reads whether a permit is taken, while a submission takes one.
/// Excludes: a shutdown that reads none, and a submission that takes one after that. All
/// interleavings.
#[test]
fn close_against_take() {
    check(None, || {
        let gate = Arc::new(Gate::new(1));
        let closer = beside(&gate, |gate| {
            gate.close();
            gate.taken()
        });
        let taken = gate.take();
        let is_accepted = taken.is_some();
        let seen = closer.join().unwrap();
        assert_eq!(seen, u64::from(is_accepted));
        if let Some((permit, _)) = taken {
            assert!(gate.give(permit), "the last permit of a closed gate");
        }
        gate.assert_at_rest();
    });
}

/// A shutdown closes the gate beside the end of the only task, then reads whether a permit is in use.
/// Excludes: a task's end that does not find that it was the last, and a shutdown that finds one in use.
/// All interleavings.
#[test]
fn close_against_give() {
    check(None, || {
        let gate = Arc::new(Gate::new(1));
        let (permit, _) = gate.take().unwrap();
        let task = beside(&gate, |gate| gate.give(permit));
        gate.close();
        let is_over = gate.taken() == 0;
        assert!(task.join().unwrap() || is_over);
        gate.assert_at_rest();
    });
}

/// Two tasks end in a closed gate. Excludes: no thread, or both, find that theirs was the last permit,
/// so that no idle worker is told to end. All interleavings.
#[test]
fn the_last_permit_of_a_closed_gate() {
    check(None, || {
        let gate = Arc::new(Gate::new(2));
        let [first, second] = [(), ()].map(|()| gate.take().unwrap().0);
        gate.close();
        let other = beside(&gate, |gate| gate.give(first));
        let mine = gate.give(second);
        assert!(mine != other.join().unwrap());
        gate.assert_at_rest();
    });
}
