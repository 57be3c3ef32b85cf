//! The ring of slot indices (`src/parts/ring.rs`): each index that is pushed is popped once, and
//! neither a push nor a pop is mistaken about "full" and "empty".
#![cfg(lazypool_loom)]

use lazypool::model::Ring;
use loom::cell::UnsafeCell;
use loom::thread;
use loom_tests::{beside, check};
use std::sync::Arc;

/// Data that only the thread that holds the index may touch.
struct Owned(UnsafeCell<usize>);

// SAFETY: loom reports accesses that are not ordered.
unsafe impl Sync for Owned {}

/// Returns a ring whose next push is the last of its first lap.
fn about_to_wrap() -> Arc<Ring> {
    let ring = Ring::new(2, 0);
    ring.try_push(7).unwrap();
    assert_eq!(ring.pop(), Some(7));
    Arc::new(ring)
}

/// Two threads each push and pop, over the end of a lap. A pop that follows a push of its own
/// thread finds an index. Excludes: a pop that says "empty" because another push is half done; an
/// index lost or popped twice. All interleavings.
#[test]
fn no_false_empty() {
    check(None, || {
        let ring = about_to_wrap();
        let other = beside(&ring, |ring| {
            ring.try_push(1).expect("two cells");
            ring.pop().expect("two pushed, or one and its pop to come")
        });
        ring.try_push(2).expect("two cells");
        let mine = ring.pop().expect("as above");
        assert_eq!(mine + other.join().unwrap(), 3);
        assert_eq!(ring.pop(), None);
        assert!(ring.is_empty());
    });
}

/// Two threads each take an index and put it back, one of them twice, over the end of a lap: there
/// is always space for it. Excludes: a push that says "full" because a pop is half done (an idle
/// worker would vanish). All interleavings.
#[test]
fn no_false_full() {
    check(None, || {
        let ring = Arc::new(Ring::new(2, 2));
        let circulate = |ring: &Ring| {
            let index = ring.pop().expect("never both in our hands");
            ring.try_push(index).expect("space for every index");
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

/// One index in a ring whose cell serves a new lap each time: two threads take the index if it is
/// there, a third only looks. Excludes: two owners of the index; an ABA problem of the cell across
/// laps. Preemptions: 3.
#[test]
fn one_owner_at_a_time() {
    check(Some(3), || {
        let ring = Arc::new(Ring::new(1, 1));
        let owner = Arc::new(Owned(UnsafeCell::new(0)));
        let take = |ring: &Ring, owner: &Owned, put_back: bool| {
            let Some(index) = ring.pop() else {
                return false;
            };
            // SAFETY: the popped index makes this exclusive; loom reports it if not.
            owner.0.with_mut(|o| unsafe { *o += 1 });
            if put_back {
                ring.try_push(index).expect("space for it");
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

/// Two threads each push to one ring and then look at the other thread's ring, in each of two
/// ways; one of them sees the other. This needs `SeqCst` (the pairs of the protocol page), and
/// shows that the shim gives it to models as C++20 gives it to programs. All interleavings.
#[test]
fn who_announces_and_looks_is_seen() {
    let ways: [fn(&Ring) -> bool; 2] = [Ring::is_empty, |ring| ring.pop().is_none()];
    for finds_nothing in ways {
        check(None, move || {
            let rings = Arc::new([Ring::new(1, 0), Ring::new(1, 0)]);
            let other = beside(&rings, move |rings| {
                rings[1].try_push(0).unwrap();
                finds_nothing(&rings[0])
            });
            rings[0].try_push(0).unwrap();
            let unseen = finds_nothing(&rings[1]);
            assert!(!(other.join().unwrap() && unseen));
        });
    }
}

/// A push is slow to move `tail`, while another thread pushes, helps and pops. Excludes: a `tail`
/// that falls back to a cell popped since, where every later push would look for ever. All
/// interleavings.
#[test]
fn ends_only_grow() {
    check(None, || {
        let ring = Arc::new(Ring::new(2, 0));
        let slow = beside(&ring, |ring| ring.try_push(1).expect("two cells"));
        ring.try_push(2).expect("two cells");
        let popped = [ring.pop(), ring.pop()];
        slow.join().unwrap();
        let left = usize::from(!popped.contains(&Some(1)));
        assert_eq!(ring.pop(), (left == 1).then_some(1));
        ring.try_push(3).expect("empty");
        assert_eq!(ring.pop(), Some(3));
        assert!(ring.is_empty());
    });
}
