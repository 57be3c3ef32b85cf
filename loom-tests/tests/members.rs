//! The members of a group alone (`src/parts/members.rs`): a thread that waits for their end is woken, no
//! sooner; a limit holds; a cancel and a member see each other.
#![cfg(lazypool_loom)]

use lazypool::model::{Member, Members};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::{beside, check};
use std::sync::Arc;

/// What a task has made.
struct Made(UnsafeCell<usize>);

// SAFETY: loom reports it where accesses are not ordered.
unsafe impl Sync for Made {}

impl Made {
    fn assert_seen(&self) {
        // SAFETY: as loom sees.
        assert_eq!(self.0.with(|made| unsafe { *made }), 7);
    }

    /// A thread that makes it in a task, which then ends.
    fn by(
        member: Member,
        end: impl FnOnce(Member) + 'static,
    ) -> (Arc<Self>, thread::JoinHandle<()>) {
        let made = Arc::new(Self(UnsafeCell::new(0)));
        let task = beside(&made, move |made| {
            // SAFETY: as above.
            made.0.with_mut(|made| unsafe { *made = 7 });
            end(member);
        });
        (made, task)
    }
}

/// A thread that ends a task.
fn ends(members: &Members) -> thread::JoinHandle<()> {
    let member = members.enter().unwrap();
    thread::spawn(move || member.complete())
}

/// The last task ends, while the handle's holder waits for it. Excludes: a waiter that sleeps on; one
/// that goes on before what the task did. All interleavings.
#[test]
fn wait_against_last_end() {
    check(None, || {
        let members = Members::new();
        let (made, task) = Made::by(members.enter().unwrap(), Member::complete);
        members.wait();
        made.assert_seen();
        drop(members);
        task.join().unwrap();
    });
}

/// The last task ends, while somebody looks. Excludes: a look that finds nothing pending, and not what
/// the task did. By a panic, as in `one_is_always_pending`. All interleavings.
#[test]
fn look_against_last_end() {
    check(None, || {
        let members = Members::new();
        let (made, task) = Made::by(members.enter().unwrap(), Member::panic);
        let look = thread::spawn(move || {
            if members.pending() == 0 {
                made.assert_seen();
            }
        });
        look.join().unwrap();
        task.join().unwrap();
    });
}

/// Two waiters. Excludes: one that sleeps on beside the other. Preemptions: 3.
#[test]
fn two_wait_against_last_end() {
    check(Some(3), || {
        let members = Arc::new(Members::new());
        let task = ends(&members);
        let other = beside(&members, |members| members.wait());
        members.wait();
        other.join().unwrap();
        task.join().unwrap();
    });
}

/// A task ends, the next one enters, and then a thread waits. Excludes: a wait that returns for the moment
/// before the call at which nothing was pending. Preemptions: 3.
#[test]
fn no_moment_before_the_call() {
    check(Some(3), || {
        let members = Members::new();
        let first = ends(&members);
        let next = members.enter().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let task = beside(&over, move |over| {
            over.store(true, Ordering::SeqCst);
            next.complete();
        });
        members.wait();
        assert!(over.load(Ordering::SeqCst), "the next has ended");
        first.join().unwrap();
        task.join().unwrap();
    });
}

/// Two waiters, one of which leaves at its deadline. Excludes: the other sleeps on, because nobody
/// seems to wait any more. Preemptions: 3.
#[test]
fn one_leaves_and_one_waits() {
    check(Some(3), || {
        let members = Arc::new(Members::new());
        let task = ends(&members);
        let leaves = beside(&members, |members| {
            let _ = members.wait_no_longer();
        });
        members.wait();
        leaves.join().unwrap();
        task.join().unwrap();
    });
}

/// A submission is refused that was what a waiter waited for. Excludes: a waiter that sleeps on. All
/// interleavings.
#[test]
fn wait_against_refused() {
    check(None, || {
        let members = Arc::new(Members::new());
        let member = members.enter().unwrap();
        let submitter = thread::spawn(move || member.refuse());
        members.wait();
        submitter.join().unwrap();
        assert_eq!(members.completed(), 0);
    });
}

/// The same beside a task that ends: whichever is last wakes. Excludes: two that each leave it to the
/// other. Preemptions: 3.
#[test]
fn wait_against_end_and_refused() {
    check(Some(3), || {
        let members = Arc::new(Members::new());
        let task = ends(&members);
        let member = members.enter().unwrap();
        let submitter = thread::spawn(move || member.refuse());
        members.wait();
        task.join().unwrap();
        submitter.join().unwrap();
        assert_eq!((members.pending(), members.completed()), (0, 1));
    });
}

/// A task panics, while somebody looks. Excludes: a look at which it has completed. All interleavings.
#[test]
fn panic_against_looks() {
    check(None, || {
        let members = Members::new();
        let member = members.enter().unwrap();
        let task = thread::spawn(move || member.panic());
        assert_eq!(members.completed(), 0);
        members.wait();
        assert_eq!((members.completed(), members.panicked()), (0, 1));
        task.join().unwrap();
    });
}

/// A task ends once the next one has entered, while somebody looks. Excludes: a look that finds the
/// first gone and the second not there yet. By a panic: a completion first reads the word that it
/// changes, and that hides the looks from loom. All interleavings.
#[test]
fn one_is_always_pending() {
    check(None, || {
        let members = Arc::new(Members::new());
        let first = members.enter().unwrap();
        let task = beside(&members, |members| {
            let second = members.enter().unwrap();
            first.panic();
            second
        });
        let looks = beside(&members, |members| assert_ne!(members.pending(), 0));
        looks.join().unwrap();
        task.join().unwrap().complete();
        assert_eq!((members.pending(), members.completed()), (0, 1));
    });
}

/// A wait is under way, the last task ends, and the next one enters at once: it is pending until the
/// wait has returned. Excludes: a moment at which nothing is pending that the waiter misses. All
/// interleavings.
#[test]
fn no_moment_is_missed() {
    for end in [Member::complete, Member::panic, Member::discard] {
        check(None, move || {
            let members = Arc::new(Members::new());
            let first = members.enter().unwrap();
            let waiter = beside(&members, |members| members.wait());
            while !members.is_waited_for() {
                thread::yield_now();
            }
            end(first);
            let next = members.enter().unwrap();
            waiter.join().unwrap();
            next.complete();
        });
    }
}

/// The same by two that end, one of which may find the other pending. Preemptions: 3.
#[test]
fn no_moment_is_missed_between_two_ends() {
    check(Some(3), || {
        let members = Arc::new(Members::new());
        let member = members.enter().unwrap();
        let waiter = beside(&members, |members| members.wait());
        let task = ends(&members);
        while !members.is_waited_for() {
            thread::yield_now();
        }
        member.complete();
        task.join().unwrap();
        let next = members.enter().unwrap();
        waiter.join().unwrap();
        next.complete();
    });
}

/// The last task ends beside a wait; another thread sees that nothing is pending, and submits the next
/// one. Excludes: the end looks only after that. Preemptions: 4.
#[test]
fn no_moment_is_missed_that_another_sees() {
    for end in [Member::complete, Member::panic] {
        check(Some(4), move || {
            let members = Arc::new(Members::new());
            let first = members.enter().unwrap();
            let waiter = beside(&members, |members| members.wait());
            let task = thread::spawn(move || end(first));
            let sees = members.is_waited_for() && members.pending() == 0;
            let next = sees.then(|| members.enter().unwrap());
            waiter.join().unwrap();
            task.join().unwrap();
            if let Some(next) = next {
                next.complete();
            }
        });
    }
}

/// The next task enters before the one before it ends, again and again, beside a wait. Excludes: a
/// wait that returns although one was always pending. Preemptions: 3.
#[test]
fn no_moment_is_invented() {
    check(Some(3), || {
        let members = Arc::new(Members::new());
        let first = members.enter().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let waiter = beside(&members, move |members| {
            members.wait();
            assert!(seen.load(Ordering::SeqCst));
        });
        let second = members.enter().unwrap();
        let task = thread::spawn(move || first.complete());
        let third = members.enter().unwrap();
        second.refuse();
        task.join().unwrap();
        over.store(true, Ordering::SeqCst);
        third.complete();
        waiter.join().unwrap();
    });
}

// ---- a limit -------------------------------------------------------------------------------

/// Two tasks enter a group of one. Excludes: both get in, or neither. All interleavings.
#[test]
fn two_enter_a_group_of_one() {
    check(None, || {
        let members = Members::limited(1);
        let other = beside(&members, |members| members.enter());
        let mine = members.enter();
        let other = other.join().unwrap();
        assert!(mine.is_some() != other.is_some());
        assert_eq!(members.pending(), 1);
    });
}

/// A task enters a full group while the one in it ends. Excludes: more tasks pending than the limit, as
/// a third sees it; a group that stays full. Preemptions: 3.
#[test]
fn enter_against_end_in_a_full_group() {
    check(Some(3), || {
        let members = Members::limited(1);
        let task = ends(&members);
        let look = beside(&members, |members| assert!(members.pending() <= 1));
        if let Some(second) = members.enter() {
            second.complete();
        }
        look.join().unwrap();
        task.join().unwrap();
        assert!(members.enter().is_some());
    });
}

// ---- cancelling ----------------------------------------------------------------------------

/// A task enters and then looks whether the group is cancelled; a cancel then looks what is pending.
/// Excludes: neither sees the other (P3). All interleavings.
#[test]
fn cancel_against_enter() {
    for limit in [u64::MAX, 2] {
        check(None, move || {
            let members = Members::limited(limit);
            let canceller = beside(&members, |members| {
                members.cancel();
                members.pending() > 0
            });
            let member = members.enter().unwrap();
            let is_cancelled = members.is_cancelled();
            assert!(canceller.join().unwrap() || is_cancelled);
            member.refuse();
        });
    }
}

/// A task is queued at a position that its submission notes, which then looks whether the group is cancelled;
/// a cancel takes what is noted. Excludes: a position that neither takes, or both. All interleavings.
#[test]
fn cancel_against_note() {
    check(None, || {
        let members = Members::new();
        let canceller = beside(&members, |members| {
            members.cancel();
            members.take_queued().len()
        });
        members.note(8, 0);
        let mine = members.is_cancelled().then(|| members.take_queued().len());
        assert_eq!(canceller.join().unwrap() + mine.unwrap_or(0), 1);
    });
}

/// Two positions are noted in a list that is full, and of which one has been passed. Excludes: a position
/// that is lost, or kept though it was passed. All interleavings.
#[test]
fn two_notes_in_a_full_list() {
    check(None, || {
        let members = Members::new();
        (1..=8).for_each(|position| members.note(position, 0));
        let other = beside(&members, |members| members.note(9, 2));
        members.note(10, 2);
        other.join().unwrap();
        let mut noted = members.take_queued();
        noted.sort_unstable();
        assert_eq!(noted, (2..=10).collect::<Vec<_>>());
    });
}
