//! The members of a group alone (`src/parts/members.rs`): a thread that waits for their end is
//! woken at the end and no sooner; a limit holds; a cancel and a new member see each other.
#![cfg(lazypool_loom)]

use lazypool::model::{Member, Members};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use loom_tests::{beside, check};
use std::sync::Arc;

/// A value that a task writes.
struct Made(UnsafeCell<usize>);

// SAFETY: loom reports accesses that are not ordered.
unsafe impl Sync for Made {}

impl Made {
    fn assert_seen(&self) {
        // SAFETY: the task has ended; loom reports it if its write is not ordered before this read.
        assert_eq!(self.0.with(|made| unsafe { *made }), 7);
    }

    /// Spawns a thread that writes the value in a task, which then ends.
    fn by(
        member: Member,
        end: impl FnOnce(Member) + 'static,
    ) -> (Arc<Self>, thread::JoinHandle<()>) {
        let made = Arc::new(Self(UnsafeCell::new(0)));
        let task = beside(&made, move |made| {
            // SAFETY: no other thread reads the value before the task has ended.
            made.0.with_mut(|made| unsafe { *made = 7 });
            end(member);
        });
        (made, task)
    }
}

/// Spawns a thread that ends a task.
fn ends(members: &Members) -> thread::JoinHandle<()> {
    let member = members.enter().unwrap();
    thread::spawn(move || member.complete())
}

/// A thread waits for a group's only task, which ends beside another thread that does `other`.
fn waits_beside(other: fn(&Members)) {
    check(Some(3), move || {
        let members = Arc::new(Members::new());
        let task = ends(&members);
        let other = beside(&members, move |members| other(members));
        members.wait();
        other.join().unwrap();
        task.join().unwrap();
    });
}

/// Returns a group, its only task, and a thread that waits for the group.
fn waited_for() -> (Arc<Members>, Member, thread::JoinHandle<()>) {
    let members = Arc::new(Members::new());
    let task = members.enter().unwrap();
    let waiter = beside(&members, |members| members.wait());
    (members, task, waiter)
}

/// The last task ends while the holder of the handle waits for it. Excludes: a waiter that sleeps
/// on; a waiter that goes on before it sees the task's writes. All interleavings.
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

/// The last task ends while a thread reads the pending count. Excludes: a thread that reads zero
/// and does not see the task's writes. The task ends by a panic, for the reason given at
/// `one_is_always_pending`. All interleavings.
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

/// Two threads wait for one task. Excludes: a waiter that sleeps on beside the other. Preemptions:
/// 3.
#[test]
fn two_wait_against_last_end() {
    waits_beside(Members::wait);
}

/// A task ends, the next one enters, and then a thread waits. Excludes: a wait that returns because
/// nothing was pending at a moment before the call. Preemptions: 3.
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

/// Two threads wait, and one of them leaves at its deadline. Excludes: a second thread that sleeps
/// on, because the task's end finds no waiter. Preemptions: 3.
#[test]
fn one_leaves_and_one_waits() {
    waits_beside(|members| {
        let _ = members.wait_no_longer();
    });
}

/// A thread waits while a task ends and a submission is refused: the last of the two wakes it.
/// Excludes: two ends that each leave the wake-up to the other. Preemptions: 3.
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

/// A task ends once the next one has entered, while a thread reads the pending count. Excludes: a
/// read that finds the first gone and the second not there yet. The task ends by a panic: a
/// completion first loads the word that it changes, and that load hides the reads from loom. All
/// interleavings.
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

/// A thread waits, the last task ends, and the next one enters at once and stays pending until the
/// wait has returned. Excludes: a waiter that misses the moment at which nothing was pending. All
/// interleavings.
#[test]
fn no_moment_is_missed() {
    for end in [Member::complete, Member::panic, Member::discard] {
        check(None, move || {
            let (members, first, waiter) = waited_for();
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

/// The last task ends while a thread waits; another thread reads that nothing is pending, and
/// submits the next task. Excludes: an end that looks for waiters only after that, and so misses
/// the moment. Preemptions: 4.
#[test]
fn no_moment_is_missed_that_another_sees() {
    for end in [Member::complete, Member::panic] {
        check(Some(4), move || {
            let (members, first, waiter) = waited_for();
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

/// Again and again a task enters before the previous one ends, while a thread waits. Excludes: a
/// wait that returns although a task was always pending. Preemptions: 3.
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

/// A task ends in a group that an earlier wait has watched. Meanwhile a second task enters, a thread
/// begins to wait, a third task enters, and the second ends. Excludes: an end that takes an older
/// count of entries, and so ends a wait during which a task was always inside. Preemptions: 4.
#[test]
fn no_moment_is_invented_for_a_new_waiter() {
    check(Some(4), || {
        let members = Arc::new(Members::new());
        let first = members.enter().unwrap();
        assert!(!members.wait_no_longer());
        let task = thread::spawn(move || first.complete());
        let second = members.enter().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let waiter = beside(&members, move |members| {
            members.wait();
            assert!(seen.load(Ordering::SeqCst));
        });
        let third = members.enter().unwrap();
        second.complete();
        over.store(true, Ordering::SeqCst);
        third.complete();
        task.join().unwrap();
        waiter.join().unwrap();
    });
}

// ---- a limit -------------------------------------------------------------------------------

/// Two tasks end while the only handle is dropped. Excludes: a group that is freed beside a pending
/// task, or never. All interleavings.
#[test]
fn ends_against_drop() {
    check(None, || {
        let members = Members::new();
        let is_freed = members.is_freed();
        let last = members.enter().unwrap();
        let first = ends(&members);
        drop(members);
        assert!(!is_freed());
        last.complete();
        first.join().unwrap();
        assert!(is_freed());
    });
}

/// Two tasks enter a group with a limit of one. Excludes: both enter, or neither. All
/// interleavings.
#[test]
fn two_enter_a_group_of_one() {
    check(None, || {
        let members = Members::limited(1);
        let other = beside(&members, |members| members.enter());
        let mine = members.enter();
        let other = other.join().unwrap();
        assert!(mine.is_some() != other.is_some());
        assert_eq!(members.pending(), 1);
        mine.into_iter().chain(other).for_each(Member::complete);
    });
}

/// A task enters a full group while the task in it ends. Excludes: a group that stays full.
/// Preemptions: 3.
#[test]
fn enter_against_end_in_a_full_group() {
    check(Some(3), || {
        let members = Members::limited(1);
        let task = ends(&members);
        if let Some(second) = members.enter() {
            second.complete();
        }
        task.join().unwrap();
        members.enter().expect("free").complete();
    });
}

/// In a group with a limit of two, a task enters, while another thread ends a task and then enters
/// and ends the next one. Excludes: a refusal, because the group was never full. All interleavings.
#[test]
fn no_task_is_refused_in_vain() {
    check(None, || {
        let members = Members::limited(2);
        let first = members.enter().unwrap();
        let other = beside(&members, move |members| {
            first.complete();
            members.enter().unwrap().complete();
        });
        members.enter().unwrap().complete();
        other.join().unwrap();
    });
}

// ---- cancelling ----------------------------------------------------------------------------

/// A task enters, then reads whether the group is cancelled; a cancel sets the flag, then reads
/// the pending count. Excludes: neither sees the other (P3). All interleavings.
#[test]
fn cancel_against_enter() {
    for make in [Members::new, || Members::limited(2)] {
        check(None, move || {
            let members = make();
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

/// A submission queues a task, notes its position, then reads whether the group is cancelled; a
/// cancel sets the flag, then takes the positions that are noted. Excludes: a position that neither
/// takes, or that both take. All interleavings.
#[test]
fn cancel_against_note() {
    check(None, || {
        let members = Members::new();
        let canceller = beside(&members, |members| {
            members.cancel();
            members.take_queued(0).len()
        });
        members.note(8, 0);
        let mine = members.is_cancelled().then(|| members.take_queued(0).len());
        assert_eq!(canceller.join().unwrap() + mine.unwrap_or(0), 1);
    });
}
