//! The queue positions of a group's tasks. A cancel takes them, to take these tasks out of the queue.
//!
//! The list is sorted, so that the positions which the queue's `head` has passed, whose tasks are gone, are at
//! its front. A binary search finds where they end, and they leave in one step. A submission that notes
//! a position finds its place at the back, unless a later submission has been faster.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Positions(VecDeque<u64>);

impl Positions {
    /// Creates an empty list that has memory for `capacity` positions.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(VecDeque::with_capacity(capacity))
    }

    /// Adds a position. `head` returns that of the queue. It is called only if the list is full: then the
    /// positions before it leave.
    #[inline]
    pub(super) fn add(&mut self, position: u64, head: impl FnOnce() -> u64) {
        if self.0.len() == self.0.capacity() {
            self.forget_before(head());
            // A quarter of the list is free after this, so that this is rare.
            self.0.reserve((self.0.capacity() / 4).max(2));
        }
        if self.0.back().is_none_or(|&last| is_before(last, position)) {
            return self.0.push_back(position);
        }
        let place = self.0.partition_point(|&p| is_before(p, position));
        self.0.insert(place, position);
    }

    /// Takes all positions from `head` on. The list keeps its memory: to give that of a long list back to the system
    /// takes milliseconds.
    pub(super) fn take_from(&mut self, head: u64) -> Vec<u64> {
        self.forget_before(head);
        self.0.drain(..).collect()
    }

    fn forget_before(&mut self, head: u64) {
        let passed = self.0.partition_point(|&p| is_before(p, head));
        self.0.drain(..passed);
    }
}

/// Returns `true` if `a` comes before `b`. Positions may have wrapped, so the sign of the wrapping
/// difference compares them.
#[inline]
fn is_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn positions_are_sorted_also_where_they_wrap() {
        let at = |n: u64| n.wrapping_sub(3);
        let mut positions = Positions::with_capacity(2);
        for n in [1, 0, 4, 2, 5, 3] {
            positions.add(at(n), || at(0));
        }
        assert_eq!(positions.take_from(at(2)), [2, 3, 4, 5].map(at));
        assert!(positions.take_from(at(0)).is_empty());
    }

    #[test]
    fn a_full_list_forgets_what_has_gone() {
        // Close to the wrap.
        let at = |n: u64| (u64::MAX - 20).wrapping_add(8 * n);
        let mut positions = Positions::with_capacity(0);
        // All but the last three have gone.
        (0..1_000).for_each(|n| positions.add(at(n), || at(n.saturating_sub(2))));
        assert!(positions.0.len() < 100, "{} are kept", positions.0.len());
        assert_eq!(positions.take_from(at(997)), [997, 998, 999].map(at));
    }

    /// Law 12: while workers are between two tasks, some more tasks may be queued than the queue's capacity
    /// says. Their positions must fit in a list that holds a full queue.
    #[test]
    fn a_list_with_a_quarter_free_does_not_grow() {
        for (capacity, queued) in [(8, 6), (128, 96)] {
            let mut positions = Positions::with_capacity(capacity);
            (0..100 * capacity as u64).for_each(|n| positions.add(n, || n.saturating_sub(queued)));
            assert_eq!(positions.0.capacity(), capacity);
        }
    }

    /// Law 20: of a burst that has gone, nothing is left to look at.
    #[test]
    fn positions_that_the_head_has_passed_leave_in_one_step() {
        let mut positions = Positions::with_capacity(2);
        (0..1_000).for_each(|n| positions.add(n, || 0));
        assert_eq!(positions.take_from(1_000).len(), 0);
        (0..1_000).for_each(|n| positions.add(n, || n.saturating_sub(2)));
        assert_eq!(positions.take_from(998), [998, 999]);
    }
}
