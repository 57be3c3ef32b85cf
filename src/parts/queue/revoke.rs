//! Tasks that are taken out of the middle of a queue, and the room that they leave.
//!
//! A task taken out leaves a tombstone. It is room at once: a push that finds the queue
//! full turns one into its own cell, and inherits the position. A pop skips it.

use super::cell::{CellAt, Stamp, STEP};
use super::sweep::{Sweep, LOOKS};
use super::{NotPushed, Queue, Queued, State, FLAGS};
use crate::parts::backoff::Backoff;
use crate::sync::Ordering;

impl<T: Queued> Queue<T> {
    #[inline]
    pub(super) fn tombstones(&self) -> u64 {
        // ORDERING: P2: read between two readings of `head`.
        self.tombstones.load(Ordering::SeqCst)
    }

    pub(super) fn tombstone_gone(&self) {
        // ORDERING: P2: after the cell has stopped being one.
        self.tombstones.fetch_sub(1, Ordering::SeqCst);
    }

    /// Leaves a held cell as a tombstone.
    ///
    /// # Safety
    /// The caller holds the cell, and has taken the task out.
    unsafe fn bury(&self, position: u64, count: impl FnOnce()) {
        // ORDERING: P2: before the cell becomes one.
        self.tombstones.fetch_add(1, Ordering::SeqCst);
        count();
        // Relaxed: a hint.
        self.next_tombstone.store(position, Ordering::Relaxed);
        // SAFETY: by this function's contract.
        unsafe { self.at(position).write(State::Held, State::Tombstone) };
    }

    /// Moves `head` past a held cell, and takes its task, if it has one; `false` if it has none, or
    /// if `head` is guarded now. Nobody else moves it past a cell that is held.
    ///
    /// # Safety
    /// The caller holds the cell at `head`, which was in that state: `Revocable`, with a task in it,
    /// or `Tombstone`.
    pub(super) unsafe fn pop_held(
        &self,
        head: u64,
        state: State,
        place: &mut Option<T>,
        worker: Option<&T::Worker>,
    ) -> bool {
        let at = self.at(head);
        let has_task = state == State::Revocable;
        if let (true, Some(worker)) = (has_task, worker) {
            // SAFETY: by this function's contract.
            unsafe { at.look(|task| T::announce(Some(task), worker)) };
        }
        if !self.advance_head(head) {
            // SAFETY: held, and as it was.
            unsafe { at.write(State::Held, state) };
            return false;
        }
        if has_task {
            // SAFETY: by this function's contract, and once: the cell is emptied next.
            *place = Some(unsafe { at.read() });
        }
        // SAFETY: held, without a task by now; `head` moved past it by this thread.
        unsafe { self.release(at, State::Held) };
        if !has_task {
            self.tombstone_gone();
        }
        has_task
    }

    /// Adds the task in place of one that was taken out; the queue was full but for that.
    #[cold]
    pub(super) fn revive(
        &self,
        task: &mut Option<T>,
        sweep: &Sweep,
        head: u64,
        tail: u64,
    ) -> Result<u64, NotPushed> {
        if self.tombstones() == 0 {
            sweep.end();
            return Err(NotPushed::Full);
        }
        // Relaxed: a hint.
        let hint = || self.next_tombstone.load(Ordering::Relaxed) & !FLAGS;
        let first = sweep.next().unwrap_or_else(hint);
        let length = tail.wrapping_sub(head);
        let ahead = first.wrapping_sub(head);
        let start = if ahead < length { ahead } else { 0 };
        let offsets = (start..length).chain(0..start).step_by(STEP as usize);
        let mut positions = offsets.map(|offset| head.wrapping_add(offset));
        let left = (length / STEP).saturating_sub(sweep.looks());
        for position in positions.by_ref().take(left.min(LOOKS) as usize) {
            let at = self.at(position);
            if at.see() != at.stamp(State::Tombstone) || !at.hold(State::Tombstone) {
                continue;
            }
            self.tombstone_gone();
            // ORDERING: L1: counted before anybody can take it.
            self.revived.fetch_add(1, Ordering::SeqCst);
            // Relaxed: a hint.
            self.next_tombstone
                .store(position.wrapping_add(STEP), Ordering::Relaxed);
            // SAFETY: the caller's push has asserted that there is a task; the cell is held.
            unsafe { at.fill(task, State::Held) };
            #[cfg(lazypool_pauses)]
            crate::sync::pauses::note_refilled();
            return Ok(position);
        }
        if left <= LOOKS {
            sweep.end();
            return Err(NotPushed::Full);
        }
        let next = positions.next().unwrap_or(head);
        // Relaxed: a hint. For who comes after this one, should its time be up.
        self.next_tombstone.store(next, Ordering::Relaxed);
        sweep.advance(next);
        Err(NotPushed::Looking)
    }

    /// Takes a revocable task out again; `None` if a pop was faster. `count` is called once
    /// there is room for another task, and before the queue can be seen empty.
    #[must_use]
    pub(crate) fn withdraw(&self, position: u64, count: impl FnOnce()) -> Option<T> {
        self.withdraw_if(position, |_| true, count)
    }

    /// The same, where another task may have come to the position since: `is_it` tells.
    #[must_use]
    pub(crate) fn withdraw_if(
        &self,
        position: u64,
        is_it: impl FnOnce(&T) -> bool,
        count: impl FnOnce(),
    ) -> Option<T> {
        let at = self.at(position);
        // A group that is being cancelled only looks at the task; a pop takes it.
        if !hold_revocable(at) {
            return None;
        }
        // SAFETY: held, with a task in it, and left as it was, or buried without.
        unsafe {
            if !at.look(is_it) {
                at.write(State::Held, State::Revocable);
                return None;
            }
            let task = at.read();
            self.bury(position, count);
            Some(task)
        }
    }

    /// Where a look through the queue begins.
    pub(crate) fn first(&self) -> u64 {
        self.load_head()
    }

    /// Takes out the next revocable task at `from` or behind it that is wanted, and moves
    /// `from` past it; `None` once none is left. `count` as for [`Queue::withdraw`].
    #[must_use]
    pub(crate) fn take_wanted(
        &self,
        from: &mut u64,
        wanted: impl Fn(&T) -> bool,
        count: impl FnOnce(),
    ) -> Option<T> {
        let head = self.load_head();
        if (head.wrapping_sub(*from) as i64) > 0 {
            *from = head;
        }
        // ORDERING: P3: after the group's flag was set; a push that moves it later sees the flag.
        let tail = self.load_tail() & !FLAGS;
        while (tail.wrapping_sub(*from) as i64) > 0 {
            let position = *from;
            *from = position.wrapping_add(STEP);
            let at = self.at(position);
            if hold_revocable(at) {
                // SAFETY: held, with a task in it.
                let ours = unsafe { at.look(&wanted) };
                if ours {
                    // SAFETY: as above, and buried without.
                    unsafe {
                        let task = at.read();
                        self.bury(position, count);
                        return Some(task);
                    }
                }
                // SAFETY: held, and as it was.
                unsafe { at.write(State::Held, State::Revocable) };
            }
        }
        None
    }
}

/// Holds the cell of a position that has been pushed, if its task is revocable; waits for a
/// push or another owner that is half done.
fn hold_revocable<T: Queued>(at: CellAt<'_, T>) -> bool {
    let mut backoff = Backoff::default();
    loop {
        // ORDERING: P3: after the group's flag was set; a push that holds a tombstone later sees
        // the flag.
        let now = Stamp(at.cell.stamp.load(Ordering::SeqCst));
        if now == at.stamp(State::Revocable) {
            if at.hold(State::Revocable) {
                return true;
            }
        } else if now == at.stamp(State::Empty) || now == at.stamp(State::Held) {
            backoff.wait();
        } else {
            return false;
        }
    }
}
