//! The ring of slot indices (`src/parts/ring.rs`): an index pushed is popped once, and
//! neither end is mistaken.
#![cfg(lazypool_loom)]

use lazypool::model::Ring;
use loom::cell::UnsafeCell;
use loom::thread;
use loom_tests::{beside, check};
use std::sync::Arc;

/// What belongs to whoever holds an index.
struct Owned(UnsafeCell<usize>);

// SAFETY: loom reports it where accesses are not ordered.
unsafe impl Sync for Owned {}

/// A ring whose next push is the last of its first lap.
fn about_to_wrap() -> Arc<Ring> {
    let ring = Ring::new(2, 0);
    ring.push(7).unwrap();
    assert_eq!(ring.pop(), Some(7));
    Arc::new(ring)
}

/// Two producers who are two consumers, over the edge of a lap: whoever pops
/// after a push of its own finds something. Excludes: a pop that says "empty"
/// because another push is half done, an index lost or popped twice. All
/// interleavings.
#[test]
fn no_false_empty() {
    check(None, || {
        let ring = about_to_wrap();
        let other = beside(&ring, |ring| {
            ring.push(1).expect("two cells");
            ring.pop().expect("two pushed, or one and its pop to come")
        });
        ring.push(2).expect("two cells");
        let mine = ring.pop().expect("as above");
        assert_eq!(mine + other.join().unwrap(), 3);
        assert_eq!(ring.pop(), None);
        assert!(ring.is_empty());
    });
}

/// Two threads that take an index each and put it back, one of them twice, over
/// the edge of a lap: there is always room for it. Excludes: a push that says "full" because a pop
/// is half done (an idle worker would vanish). All interleavings.
#[test]
fn no_false_full() {
    check(None, || {
        let ring = Arc::new(Ring::new(2, 2));
        let circulate = |ring: &Ring| {
            let index = ring.pop().expect("never both in our hands");
            ring.push(index).expect("room for every index");
            index
        };
        let other = beside(&ring, move |ring| circulate(ring) + circulate(ring));
        circulate(&ring);
        other.join().unwrap();
        let mut left = [ring.pop(), ring.pop()];
        left.sort_unstable();
        assert_eq!(left, [Some(0), Some(1)]);
        assert_eq!(ring.pop(), None);
    });
}

/// One index and three threads, a cell that serves a new lap each time: two
/// that take it if it is there, a third that looks. Excludes: two owners of one
/// index, an ABA of the cell across laps. Preemptions: 3.
#[test]
fn one_owner_at_a_time() {
    check(Some(3), || {
        let ring = Arc::new(Ring::new(1, 1));
        let owner = Arc::new(Owned(UnsafeCell::new(0)));
        let take = |ring: &Ring, owner: &Owned, put_back: bool| {
            let Some(index) = ring.pop() else {
                return false;
            };
            // SAFETY: loom reports it if this is not exclusive.
            owner.0.with_mut(|o| unsafe { *o += 1 });
            if put_back {
                ring.push(index).expect("room for it");
            }
            true
        };
        let others = [true, false].map(|put_back| {
            let (ring, owner) = (Arc::clone(&ring), Arc::clone(&owner));
            thread::spawn(move || take(&ring, &owner, put_back))
        });
        take(&ring, &owner, true);
        let [_, kept] = others.map(|t| t.join().unwrap());
        assert_eq!(ring.pop(), if kept { None } else { Some(0) });
    });
}

/// Each pushes to one ring and then looks at the other's.
fn announce_and_look(finds_nothing: fn(&Ring) -> bool) {
    check(None, move || {
        let rings = Arc::new([Ring::new(1, 0), Ring::new(1, 0)]);
        let other = beside(&rings, move |rings| {
            rings[1].push(0).unwrap();
            finds_nothing(&rings[0])
        });
        rings[0].push(0).unwrap();
        let unseen = finds_nothing(&rings[1]);
        assert!(!(other.join().unwrap() && unseen));
    });
}

/// One of two that announce and look sees the other. This is what `SeqCst` buys (the
/// pairs of the protocol page), and shows that the shim gives it to models as C++20 gives
/// it to programs. All interleavings.
#[test]
fn who_announces_and_looks_is_seen() {
    announce_and_look(Ring::is_empty);
}

/// The same with a pop for the look: "empty" is as exact as `is_empty`. All
/// interleavings.
#[test]
fn who_announces_and_pops_is_seen() {
    announce_and_look(|ring| ring.pop().is_none());
}

/// The same with the number of pushes for the look. All interleavings.
#[test]
fn who_announces_and_counts_is_seen() {
    announce_and_look(|ring| ring.pushes() == 0);
}

/// A push that is slow to say so, while another thread pushes, helps and pops.
/// Excludes: a `tail` that falls back to a cell popped since, where every later
/// push would look for ever. All interleavings.
#[test]
fn ends_only_grow() {
    check(None, || {
        let ring = Arc::new(Ring::new(2, 0));
        let slow = beside(&ring, |ring| ring.push(1).expect("two cells"));
        ring.push(2).expect("two cells");
        let popped = [ring.pop(), ring.pop()];
        slow.join().unwrap();
        let left = usize::from(!popped.contains(&Some(1)));
        assert_eq!(ring.pop(), (left == 1).then_some(1));
        ring.push(3).expect("empty");
        assert_eq!(ring.pop(), Some(3));
        assert!(ring.is_empty());
    });
}

/// One index that stays or makes place for another, while a submitter looks at the two
/// ends. Excludes: "drained" where one was there at every moment. All interleavings.
#[test]
fn drained_is_empty() {
    check(None, || {
        let ring = Arc::new(Ring::new(2, 1));
        let looker = beside(&ring, |ring| {
            let pushes = ring.pushes();
            ring.is_drained(pushes) && ring.pushes() == pushes
        });
        ring.push(1).expect("two cells");
        assert_eq!(ring.pop(), Some(0));
        assert!(!looker.join().unwrap());
        assert_eq!((ring.pop(), ring.is_drained(2)), (Some(1), true));
    });
}
