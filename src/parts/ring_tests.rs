use super::*;
use crate::parts::cut::cut;
use std::sync::atomic::AtomicUsize;
use std::thread;

/// Regression: the push once waited for the thread that had not yet moved `tail`.
#[test]
fn a_push_helps_over_a_cell_popped_before_tail_moved() {
    let ring = Ring::new(2, 0);
    // A thread has filled the cell and not yet moved `tail`. Meanwhile, a pop has emptied the cell
    // and moved `head`.
    ring.cell(0).store(empty(1), Ordering::SeqCst);
    ring.head.store(1, Ordering::SeqCst);
    for lap in 0..3 {
        ring.try_push(5).unwrap();
        ring.try_push(6).unwrap();
        assert_eq!(ring.try_push(7), Err(7), "{lap}");
        assert_eq!(
            [ring.pop(), ring.pop(), ring.pop()],
            [Some(5), Some(6), None]
        );
    }
}

#[test]
fn a_push_helps_over_a_cell_filled_before_tail_moved() {
    let ring = Ring::new(2, 0);
    ring.cell(0).store(full(0, 5), Ordering::SeqCst);
    assert_eq!(ring.try_push(6), Ok(()), "the ring was not full");
    assert_eq!(ring.try_push(7), Err(7));
    assert_eq!([ring.pop(), ring.pop()], [Some(5), Some(6)]);
}

#[test]
fn entries_are_seen_without_being_taken() {
    let ring = Ring::new(4, 0);
    assert_eq!((ring.head_and_len().1, ring.entry(0)), (0, None));
    for lap in 0..3 {
        ring.try_push(7).unwrap();
        ring.try_push(5).unwrap();
        let (head, held) = ring.head_and_len();
        assert_eq!(held, 2, "{lap}");
        let seen = [0, 1, 2].map(|ahead| ring.entry(head + ahead));
        assert_eq!(seen, [Some(7), Some(5), None]);
        assert_eq!(ring.pop(), Some(7));
        assert_eq!(
            (ring.head_and_len(), ring.entry(head)),
            ((head + 1, 1), None)
        );
        assert_eq!(ring.pop(), Some(5));
    }
    assert!(ring.is_empty());
}

#[test]
fn rounds_up_and_starts_filled() {
    for capacity in [1, 2, 3, 5, 64, 65, cut(65_536) as usize] {
        let ring = Ring::new(capacity, capacity);
        assert_eq!(ring.cells.len(), capacity.next_power_of_two());
        for i in 0..capacity {
            assert_eq!(ring.pop(), Some(i));
        }
        assert_eq!(ring.pop(), None);
        assert!(ring.is_empty());
    }
}

/// Checks that indices which many threads take and put back are neither lost nor duplicated, and
/// that a push into a ring with space never fails.
#[test]
fn circulates_without_loss() {
    const THREADS: usize = 4;
    let ring = Ring::new(3, 3);
    let held: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                for _ in 0..cut(20_000) {
                    if let Some(i) = ring.pop() {
                        assert_eq!(held[i].fetch_add(1, Ordering::SeqCst), 0);
                        held[i].fetch_sub(1, Ordering::SeqCst);
                        ring.try_push(i).expect("space for every index");
                    }
                }
            });
        }
    });
    let mut left: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2]);
}

/// It refuses exactly when it is full. Regression: it once refused every push after 2^47 laps.
#[test]
fn holds_its_capacity_also_at_the_wrap_of_laps_and_positions() {
    for capacity in [1_usize, 2, 4, 8] {
        let shift = capacity.trailing_zeros();
        for lap in [0, LAP - 1, (u64::MAX >> shift) - 1] {
            let ring = Ring::starting_at(lap, capacity, 0);
            for round in 0..cut(100) {
                for i in 0..capacity {
                    assert_eq!(ring.try_push(i), Ok(()), "round {round}");
                }
                assert_eq!(ring.try_push(7), Err(7), "round {round}");
                let (head, held) = ring.head_and_len();
                assert_eq!((held, ring.entry(head)), (capacity as u64, Some(0)));
                for i in 0..capacity {
                    assert!(!ring.is_empty());
                    assert_eq!(ring.pop(), Some(i), "round {round}");
                }
                assert_eq!(ring.pop(), None);
                assert!(ring.is_empty());
            }
        }
    }
}

#[test]
fn laps_are_told_apart_also_around_the_wrap() {
    for lap in [1, 2, LAP / 2, LAP - 1, LAP, LAP + 1] {
        for cell in [empty(lap), full(lap, u16::MAX)] {
            assert!(is_of(cell, lap));
            assert!(!is_of(cell, lap.wrapping_add(1)) && !is_of(cell, lap.wrapping_sub(1)));
            for before in [1, 2, 6, LAP / 2] {
                assert!(!is_of(cell, lap.wrapping_sub(before)));
            }
        }
    }
}
