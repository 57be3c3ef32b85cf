//! Tasks that wait for a worker: a bounded FIFO of 64-byte cells.
//!
//! A ring of cells, each with a stamp (the lap of the position it serves, and a
//! state) and room for one task, after D. Vyukov's bounded MPMC queue. A
//! position is reserved by moving `tail` or `head`; the stamp then says how far
//! the cell is. Added to that: an exact bound below the ring's size, a closed
//! bit, and tasks that can be taken out of the middle.
//!
//! | from | to | by |
//! |---|---|---|
//! | `EMPTY(n)` | `FULL(n)`, `FULL_W(n)` | push, after it moved `tail` |
//! | `FULL(n)` | `EMPTY(n + 1)` | pop, after it moved `head` |
//! | `FULL_W(n)` | `TAKEN(n)` | pop, by CAS; it then moves `head` (or is helped) |
//! | `FULL_W(n)` | `LOCKED(n)` | withdrawal, by CAS |
//! | `LOCKED(n)` | `HOLE(n)`, `FULL_W(n)` | the same: taken out, or not the one looked for |
//! | `HOLE(n)` | `FILLING(n)` | push into a full queue, by CAS: it inherits the position |
//! | `FILLING(n)` | `FULL(n)`, `FULL_W(n)`, `HOLE(n)` | the same; the last one if the queue was closed |
//! | `HOLE(n)` | `TAKEN(n)` | pop, by CAS: it skips the hole |
//! | `TAKEN(n)` | `EMPTY(n + 1)` | the same pop, after `head` has moved |
//!
//! `FULL_W` holds a task that may be withdrawn (its caller waits with a
//! deadline, or its group may be cancelled); plain tasks are popped without a
//! read-modify-write on the stamp. Every arrow into `FULL*` releases the task,
//! every arrow into `TAKEN` or `LOCKED`, and the read before `head` moves, acquires
//! it; arrows into `EMPTY` and `HOLE` release the emptied cell to the next push.
//!
//! `pop` answers "empty" only if `head` met `tail`; a push caught between
//! `tail` and its stamp is waited for. `push` answers "full" only if
//! `capacity` positions lie between two readings of an unmoved end and no hole
//! is left. A push into a hole looks once more whether the queue has been closed:
//! the pool may have ended, and nobody comes by. `holes` grows before a cell
//! becomes a hole and shrinks after it stopped being one, so it never lags behind
//! room that somebody was promised.

use crate::park::Nearly;
use crate::sync::{store_release, AtomicU64, Ordering, UnsafeCell};
use crate::task::Task;
use cells::Cells;
use crossbeam_utils::CachePadded;
use std::mem::MaybeUninit;

const EMPTY: u64 = 0;
const FULL: u64 = 1;
const FULL_W: u64 = 2;
const HOLE: u64 = 3;
const FILLING: u64 = 4;
const LOCKED: u64 = 5;
const TAKEN: u64 = 6;
const STATE_BITS: u32 = 3;
const STATE: u64 = 7;
/// In `tail`: nothing is pushed any more.
const CLOSED: u64 = 1 << 63;

#[repr(C, align(64))]
#[derive(Debug)]
struct Cell {
    stamp: AtomicU64,
    task: UnsafeCell<MaybeUninit<Task>>,
}

#[derive(Debug)]
pub(crate) struct Queue {
    cells: Cells,
    capacity: u64,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// A `head` that a push has seen, on a line that only pushes touch: `head` was
    /// there or further, so a push that has room by it needs not ask the line that
    /// the pops move.
    head_seen: CachePadded<AtomicU64>,
    /// Rarely written: `holes`, and the pushes that went into one.
    holes: CachePadded<AtomicU64>,
    hole_pushes: AtomicU64,
    /// Where to begin to look for a hole: where the last one was made, or behind
    /// the one filled last, so that many are filled in one sweep.
    next_hole: AtomicU64,
}

// SAFETY: a cell's task is touched only by the thread that owns the cell by the
// table above; tasks are Send.
unsafe impl Sync for Queue {}

/// A push is given a task, and takes it if it succeeds.
const ONE: &str = "a task to push";

/// Why a push did not take the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotPushed {
    Full,
    Closed,
}

impl Queue {
    /// A queue of at most `capacity` tasks (at least one).
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0);
        Self {
            cells: Cells::new(capacity.next_power_of_two()),
            capacity: capacity as u64,
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            head_seen: CachePadded::new(AtomicU64::new(0)),
            holes: CachePadded::new(AtomicU64::new(0)),
            hole_pushes: AtomicU64::new(0),
            next_hole: AtomicU64::new(0),
        }
    }

    #[inline]
    fn cell(&self, position: u64) -> &Cell {
        self.cells.at(position)
    }

    /// The lap is the position without what says which cell.
    #[inline]
    fn stamp(&self, position: u64, state: u64) -> u64 {
        (position & !self.cells.mask()) << STATE_BITS | state
    }

    /// Writes the task into a cell that is the caller's and publishes it.
    ///
    /// # Safety
    /// The caller reserved the position (`tail`), or made its cell `FILLING`.
    #[inline]
    unsafe fn fill(&self, position: u64, task: &mut Option<Task>) {
        let task = task.take().expect(ONE);
        let cell = self.cell(position);
        let state = if task.is_withdrawable() { FULL_W } else { FULL };
        // SAFETY: the cell is the caller's.
        cell.task.with_mut(|t| unsafe {
            (*t).write(task);
        });
        // Release: publishes the task to the popper's or withdrawer's Acquire.
        store_release(&cell.stamp, self.stamp(position, state));
    }

    /// # Safety
    /// The caller owns a cell with a task in it: it moved `head` past `FULL`, or
    /// made it `TAKEN` or `LOCKED`, having seen the stamp with Acquire.
    #[inline]
    unsafe fn read(&self, position: u64) -> Task {
        // SAFETY: by this function's contract.
        self.cell(position)
            .task
            .with_mut(|t| unsafe { (*t).assume_init_read() })
    }

    /// Adds the task, if it has room, and returns its position.
    pub(crate) fn push(&self, task: &mut Option<Task>) -> Result<u64, NotPushed> {
        let mut nearly = Nearly::default();
        loop {
            let tail = self.tail.load(Ordering::SeqCst);
            if tail & CLOSED != 0 {
                return Err(NotPushed::Closed);
            }
            if self.is_full_by(tail, self.head_seen.load(Ordering::Relaxed)) {
                let head = self.see_head();
                if !self.is_full_by(tail, head) {
                    continue;
                }
                if self.tail.load(Ordering::SeqCst) != tail
                    || self.head.load(Ordering::SeqCst) != head
                {
                    continue;
                }
                return self.push_into_hole(task, head, tail);
            }
            if self.push_at(tail, task) {
                return Ok(tail);
            }
            if self.tail.load(Ordering::SeqCst) == tail {
                // The pop of the lap before has yet to empty the cell.
                nearly.wait();
            } else {
                crate::sync::spin_loop();
            }
        }
    }

    /// Where the next push goes, if there is room behind the last task; `None` once
    /// closed.
    #[inline]
    pub(crate) fn room(&self) -> Option<u64> {
        let tail = self.tail.load(Ordering::SeqCst);
        // A closed `tail`, or one that `head` has passed since, is far from it.
        let has_room_by = |head| tail.wrapping_sub(head) < self.capacity;
        let has_room =
            has_room_by(self.head_seen.load(Ordering::Relaxed)) || has_room_by(self.see_head());
        has_room.then_some(tail)
    }

    /// Adds the task at `tail`, from [`Queue::room`], if nothing came in between.
    #[inline]
    pub(crate) fn push_at(&self, tail: u64, task: &mut Option<Task>) -> bool {
        assert!(task.is_some(), "{ONE}");
        if self.cell(tail).stamp.load(Ordering::Acquire) != self.stamp(tail, EMPTY) {
            return false;
        }
        // SeqCst: announces the task to workers about to sleep (see `shared.rs`).
        // Success says that there is room: `tail` has not moved since it was compared
        // with `head`, which only grows.
        let reserved = self
            .tail
            .compare_exchange(tail, tail + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if reserved {
            // SAFETY: `tail` moved from this position: it is ours.
            unsafe { self.fill(tail, task) };
        }
        reserved
    }

    /// Whether there is room for several pushes, holes aside: as many as make it worth
    /// the while of one that found none to come back.
    pub(crate) fn has_ample_room(&self) -> bool {
        self.has_room_for((self.capacity / 4).clamp(1, 16))
    }

    /// Whether there is room for so many pushes, holes aside.
    pub(crate) fn has_room_for(&self, pushes: u64) -> bool {
        let tail = self.tail.load(Ordering::SeqCst);
        !self.is_full_by(tail.wrapping_add(pushes - 1), self.see_head())
    }

    #[inline]
    fn see_head(&self) -> u64 {
        let head = self.head.load(Ordering::SeqCst);
        // Relaxed: any `head` there ever was will do.
        if self.head_seen.load(Ordering::Relaxed) != head {
            self.head_seen.store(head, Ordering::Relaxed);
        }
        head
    }

    #[inline]
    fn is_full_by(&self, tail: u64, head: u64) -> bool {
        tail.wrapping_sub(head) as i64 >= self.capacity as i64
    }

    #[cold]
    fn push_into_hole(
        &self,
        task: &mut Option<Task>,
        head: u64,
        tail: u64,
    ) -> Result<u64, NotPushed> {
        if self.holes.load(Ordering::SeqCst) == 0 {
            return Err(NotPushed::Full);
        }
        // Relaxed: a hint.
        let hint = self.next_hole.load(Ordering::Relaxed);
        let start = if (head..tail).contains(&hint) {
            hint
        } else {
            head
        };
        for position in (start..tail).chain(head..start) {
            let stamp = &self.cell(position).stamp;
            if stamp
                .compare_exchange(
                    self.stamp(position, HOLE),
                    self.stamp(position, FILLING),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                )
                .is_err()
            {
                continue;
            }
            // Before the look: a shutdown that is missed here counts the task as queued.
            self.holes.fetch_sub(1, Ordering::SeqCst);
            if self.tail.load(Ordering::SeqCst) & CLOSED != 0 {
                self.make_hole(position);
                return Err(NotPushed::Closed);
            }
            self.hole_pushes.fetch_add(1, Ordering::SeqCst);
            self.next_hole.store(position + 1, Ordering::Relaxed);
            // SAFETY: the cell is FILLING by us.
            unsafe { self.fill(position, task) };
            return Ok(position);
        }
        Err(NotPushed::Full)
    }

    /// Moves the oldest task into the place, once and not through others, and returns
    /// its position; `None` if the queue was empty.
    #[inline]
    pub(crate) fn pop(&self, place: &mut Option<Task>) -> Option<u64> {
        // Most tasks are there and may not be withdrawn.
        let head = self.head.load(Ordering::SeqCst);
        // Acquire: pairs with `fill`.
        let stamp = self.cell(head).stamp.load(Ordering::Acquire);
        if stamp == self.stamp(head, FULL) && self.take_full(head, place) {
            return Some(head);
        }
        self.pop_slowly(place)
    }

    /// Takes the task at `head`, whose stamp was `FULL`, unless another pop does.
    #[inline]
    fn take_full(&self, head: u64, place: &mut Option<Task>) -> bool {
        let ours = self.advance_head(head);
        if ours {
            // SAFETY: `head` moved past FULL by us.
            *place = Some(unsafe { self.read(head) });
            self.release(head);
        }
        ours
    }

    #[inline(never)]
    fn pop_slowly(&self, place: &mut Option<Task>) -> Option<u64> {
        let mut nearly = Nearly::default();
        loop {
            let head = self.head.load(Ordering::SeqCst);
            let cell = self.cell(head);
            // Acquire: pairs with `fill`.
            let stamp = cell.stamp.load(Ordering::Acquire);
            if stamp & !STATE != self.stamp(head, 0) {
                crate::sync::spin_loop();
                // `head` has moved, or the pop of the lap before has yet to empty
                // the cell.
                nearly.wait();
                continue;
            }
            match stamp & STATE {
                FULL => {
                    if self.take_full(head, place) {
                        return Some(head);
                    }
                    crate::sync::spin_loop();
                }
                FULL_W | HOLE => {
                    if cell
                        .stamp
                        .compare_exchange(
                            stamp,
                            self.stamp(head, TAKEN),
                            Ordering::SeqCst,
                            Ordering::Relaxed,
                        )
                        .is_err()
                    {
                        continue;
                    }
                    self.advance_head(head);
                    if stamp & STATE == HOLE {
                        self.release(head);
                        self.holes.fetch_sub(1, Ordering::SeqCst);
                        continue;
                    }
                    // SAFETY: FULL_W -> TAKEN by us.
                    *place = Some(unsafe { self.read(head) });
                    self.release(head);
                    return Some(head);
                }
                TAKEN => {
                    self.advance_head(head);
                }
                EMPTY => {
                    let tail = self.tail.load(Ordering::SeqCst) & !CLOSED;
                    if self.head.load(Ordering::SeqCst) != head {
                        continue;
                    }
                    if tail == head {
                        return None;
                    }
                    nearly.wait(); // pushed, but for the stamp
                }
                _ => nearly.wait(), // FILLING or LOCKED
            }
        }
    }

    #[cfg_attr(lazypool_loom, track_caller)]
    fn advance_head(&self, head: u64) -> bool {
        // SeqCst on failure, too: whoever moved it, what this thread reads next
        // comes after.
        self.head
            .compare_exchange(head, head + 1, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Gives the emptied cell to the next lap.
    fn release(&self, position: u64) {
        // Release: the task was read; pairs with the push's Acquire.
        store_release(
            &self.cell(position).stamp,
            self.stamp(position + self.cells.mask() + 1, EMPTY),
        );
    }

    /// Takes a withdrawable task out again; `None` if a pop was faster.
    pub(crate) fn withdraw(&self, position: u64) -> Option<Task> {
        self.take_out(position, FULL_W)
    }

    /// Takes any task out again, while nothing can pop.
    ///
    /// # Safety
    /// No `pop` runs until this returns: the pool has no worker, and the caller
    /// holds the registry's lock, which both starting one and discarding need.
    pub(crate) unsafe fn reclaim(&self, position: u64) -> Option<Task> {
        self.take_out(position, FULL)
            .or_else(|| self.take_out(position, FULL_W))
    }

    fn take_out(&self, position: u64, state: u64) -> Option<Task> {
        let stamp = &self.cell(position).stamp;
        let mut nearly = Nearly::default();
        loop {
            // Acquire: pairs with `fill`.
            match stamp.compare_exchange(
                self.stamp(position, state),
                self.stamp(position, LOCKED),
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                // A group being cancelled looks at the task.
                Err(now) if now == self.stamp(position, LOCKED) => nearly.wait(),
                Err(_) => return None,
            }
        }
        // SAFETY: the cell is LOCKED by us.
        let task = unsafe { self.read(position) };
        self.make_hole(position);
        Some(task)
    }

    fn make_hole(&self, position: u64) {
        self.holes.fetch_add(1, Ordering::SeqCst);
        self.next_hole.store(position, Ordering::Relaxed);
        store_release(&self.cell(position).stamp, self.stamp(position, HOLE));
    }

    /// Takes out the next queued task of the group at `from` or behind it, and
    /// moves `from` past it; `None` once none is left.
    pub(crate) fn take_of_group(&self, group: *const (), from: &mut u64) -> Option<Task> {
        let head = self.head.load(Ordering::SeqCst).max(*from);
        let tail = self.tail.load(Ordering::SeqCst) & !CLOSED;
        for position in head..tail {
            *from = position + 1;
            let stamp = &self.cell(position).stamp;
            let mut nearly = Nearly::default();
            loop {
                let now = stamp.load(Ordering::Acquire);
                let pending = [EMPTY, FILLING, LOCKED].map(|s| self.stamp(position, s));
                if pending.contains(&now) {
                    nearly.wait();
                    continue;
                }
                if now != self.stamp(position, FULL_W) {
                    break;
                }
                if stamp
                    .compare_exchange(
                        now,
                        self.stamp(position, LOCKED),
                        Ordering::SeqCst,
                        Ordering::Relaxed,
                    )
                    .is_err()
                {
                    continue;
                }
                // SAFETY: the cell is LOCKED by us and holds a task; a look only.
                let of_group = self
                    .cell(position)
                    .task
                    .with(|t| unsafe { (*t).assume_init_ref().group() == group });
                if !of_group {
                    store_release(stamp, now);
                    break;
                }
                // SAFETY: as above.
                let task = unsafe { self.read(position) };
                self.make_hole(position);
                return Some(task);
            }
        }
        None
    }

    /// Refuses all further pushes.
    pub(crate) fn close(&self) {
        self.tail.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Whether the oldest task is there to be popped: a look at the line that its
    /// push writes last, and not at `tail`, which the next push wants to itself.
    #[inline]
    pub(crate) fn is_next_there(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        // Relaxed: a hint; `pop` looks again.
        self.cell(head).stamp.load(Ordering::Relaxed) != self.stamp(head, EMPTY)
    }

    /// Whether there is nothing to pop; holes may make it say no in vain.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::SeqCst);
        self.tail.load(Ordering::SeqCst) & !CLOSED == head
    }

    /// Whether there is no room. Two equal readings of [`Queue::pops`] around it
    /// mean that it was so at one moment.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let tail = self.tail.load(Ordering::SeqCst) & !CLOSED;
        let head = self.head.load(Ordering::SeqCst);
        self.is_full_by(tail, head) && self.holes.load(Ordering::SeqCst) == 0
    }

    /// Grows with every pop.
    #[inline]
    pub(crate) fn pops(&self) -> u64 {
        self.head.load(Ordering::SeqCst)
    }

    /// Tasks waiting; approximate while they come and go.
    pub(crate) fn len(&self) -> usize {
        let holes = self.holes.load(Ordering::SeqCst);
        let head = self.head.load(Ordering::SeqCst);
        let tail = self.tail.load(Ordering::SeqCst) & !CLOSED;
        (tail.saturating_sub(head).saturating_sub(holes)).min(self.capacity) as usize
    }

    /// For models, once nobody uses it: the count of holes is that of the holes
    /// between the ends, and nothing else lies there.
    #[cfg(lazypool_loom)]
    pub(crate) fn assert_at_rest(&self) {
        let head = self.head.load(Ordering::SeqCst);
        let tail = self.tail.load(Ordering::SeqCst) & !CLOSED;
        for position in head..tail {
            let stamp = self.cell(position).stamp.load(Ordering::SeqCst);
            assert_eq!(stamp, self.stamp(position, HOLE), "left in the queue");
        }
        let holes = self.holes.load(Ordering::SeqCst);
        assert_eq!(holes, tail - head, "holes counted, and there");
    }

    /// Tasks ever accepted.
    pub(crate) fn pushed(&self) -> u64 {
        let into_holes = self.hole_pushes.load(Ordering::SeqCst);
        (self.tail.load(Ordering::SeqCst) & !CLOSED) + into_holes
    }
}

/// A queue's cells, all `EMPTY` of lap 0 at first.
#[cfg(not(lazypool_loom))]
mod cells {
    use super::Cell;
    use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
    use std::ptr::NonNull;

    /// Zero pages of the system's, which it gives on first touch: a long queue costs
    /// nothing before it is used. So they are aligned by hand, within a block of no
    /// great alignment: others `alloc_zeroed` writes.
    #[derive(Debug)]
    pub(super) struct Cells {
        block: NonNull<u8>,
        first: NonNull<Cell>,
        mask: u64,
    }

    // SAFETY: it owns its cells as a box would, and `Queue` says who touches them.
    unsafe impl Send for Cells {}
    // SAFETY: as above.
    unsafe impl Sync for Cells {}

    impl Cells {
        const LINE: usize = align_of::<Cell>();

        /// `len`: a power of two.
        pub(super) fn new(len: usize) -> Self {
            assert!(len.is_power_of_two());
            let layout = Self::layout(len);
            // SAFETY: the layout is not empty.
            let block = NonNull::new(unsafe { alloc_zeroed(layout) });
            let block = block.unwrap_or_else(|| handle_alloc_error(layout));
            let up = block.addr().get().wrapping_neg() & (Self::LINE - 1);
            // SAFETY: less than a line further, and the block is a line longer than the
            // cells.
            let first = unsafe { block.add(up) }.cast();
            Self {
                block,
                first,
                mask: len as u64 - 1,
            }
        }

        /// What of a position says which cell.
        #[inline]
        pub(super) fn mask(&self) -> u64 {
            self.mask
        }

        /// The cell of a position.
        #[inline]
        pub(super) fn at(&self, position: u64) -> &Cell {
            // SAFETY: one of the cells: the mask leaves less than their number. The block
            // has room for them, and zeroes are a valid `Cell`: an atomic word and an
            // uninitialised task.
            unsafe { self.first.add((position & self.mask) as usize).as_ref() }
        }

        fn layout(len: usize) -> Layout {
            let bytes = len * size_of::<Cell>() + Self::LINE;
            Layout::from_size_align(bytes, align_of::<u64>()).expect("a checked capacity")
        }
    }

    impl Drop for Cells {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout; cells need no drop.
            unsafe { dealloc(self.block.as_ptr(), Self::layout(self.mask as usize + 1)) };
        }
    }
}

#[cfg(lazypool_loom)]
mod cells {
    use super::{AtomicU64, Cell, MaybeUninit, UnsafeCell};

    #[derive(Debug)]
    pub(super) struct Cells(Box<[Cell]>);

    impl Cells {
        pub(super) fn new(len: usize) -> Self {
            let empty = |_| Cell {
                stamp: AtomicU64::new(0),
                task: UnsafeCell::new(MaybeUninit::uninit()),
            };
            Self((0..len).map(empty).collect())
        }

        pub(super) fn mask(&self) -> u64 {
            self.0.len() as u64 - 1
        }

        pub(super) fn at(&self, position: u64) -> &Cell {
            &self.0[(position & self.mask()) as usize]
        }
    }
}

// One line per queued task.
#[cfg(not(lazypool_loom))]
const _: () = assert!(std::mem::size_of::<Cell>() == 64);

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;
    use crate::task::tests::{marked, marked_of, Marks};
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    /// Pops a task and discards it; its position.
    fn pop(queue: &Queue) -> Option<u64> {
        let mut place = None;
        let position = queue.pop(&mut place);
        assert_eq!(place.is_some(), position.is_some());
        if let Some(task) = place {
            let _ = task.discard();
        }
        position
    }

    /// What is not taken is discarded.
    fn push(queue: &Queue, task: Task) -> Result<u64, NotPushed> {
        let mut task = Some(task);
        let pushed = queue.push(&mut task);
        assert_eq!(task.is_none(), pushed.is_ok());
        if let Some(task) = task {
            let _ = task.discard();
        }
        pushed
    }

    fn positions(queue: &Queue) -> Vec<u64> {
        std::iter::from_fn(|| pop(queue)).collect()
    }

    #[test]
    fn holds_exactly_its_capacity_first_in_first_out() {
        for capacity in [1, 2, 3, 5, 8] {
            let marks = Marks::new(1000);
            let queue = Queue::new(capacity);
            let mut next = 0;
            for _ in 0..20 {
                for _ in 0..capacity {
                    assert!(!queue.is_full());
                    push(&queue, marked(&marks, next, false)).unwrap();
                    next += 1;
                }
                assert!(queue.is_full());
                assert_eq!(queue.len(), capacity);
                let why = push(&queue, marked(&marks, 999, false)).unwrap_err();
                assert_eq!(why, NotPushed::Full);
                let popped = positions(&queue);
                let first = (next - capacity) as u64;
                assert_eq!(popped, (first..next as u64).collect::<Vec<_>>());
                assert!(queue.is_empty() && pop(&queue).is_none());
            }
            assert_eq!(queue.pushed(), next as u64);
        }
    }

    #[test]
    fn room_is_where_a_push_finds_it_and_ample_where_several_do() {
        for (capacity, ample) in [(1, 1), (3, 1), (8, 2), (64, 16), (100, 16)] {
            let marks = Marks::new(capacity);
            let queue = Queue::new(capacity);
            for id in 0..capacity {
                assert!(queue.room().is_some(), "{id} of {capacity}");
                assert_eq!(queue.has_ample_room(), capacity - id >= ample);
                push(&queue, marked(&marks, id, false)).unwrap();
                assert!(!queue.is_empty() && queue.is_next_there());
            }
            assert!(queue.room().is_none() && !queue.has_ample_room());
            for popped in 1..=capacity {
                pop(&queue).unwrap();
                assert_eq!(queue.pops(), popped as u64);
                assert!(queue.room().is_some(), "{popped} popped");
                assert_eq!(queue.has_ample_room(), popped >= ample);
            }
            assert!(queue.is_empty() && !queue.is_next_there());
        }
    }

    /// As a thread leaves it that has taken a task and not yet moved `head`.
    #[test]
    fn a_pop_helps_over_a_cell_taken_before_head_moved() {
        let marks = Marks::new(2);
        let queue = Queue::new(2);
        for id in 0..2 {
            push(&queue, marked(&marks, id, true)).unwrap();
        }
        let taken = queue.stamp(0, TAKEN);
        queue.cell(0).stamp.store(taken, Ordering::SeqCst);
        assert_eq!(pop(&queue), Some(1));
        // SAFETY: nobody else has read it.
        let _ = unsafe { queue.read(0) }.discard();
        queue.release(0);
        assert!(pop(&queue).is_none());
    }

    #[test]
    fn a_groups_tasks_are_taken_out_and_the_others_left() {
        let marks = Marks::new(6);
        let queue = Queue::new(6);
        let (ours, theirs) = (std::ptr::from_ref(&marks), std::ptr::from_ref(&queue));
        for id in 0..6 {
            let group = if id % 2 == 0 {
                ours.cast()
            } else {
                theirs.cast()
            };
            push(&queue, marked_of(&marks, id, group)).unwrap();
        }
        pop(&queue).expect("one of ours");
        queue.close();
        let mut from = 0;
        for id in [2, 4] {
            let task = queue.take_of_group(ours.cast(), &mut from);
            let _ = task.expect("one of ours").discard();
            assert_eq!((marks.dropped()[id], from), (1, id as u64 + 1));
        }
        assert!(queue.take_of_group(ours.cast(), &mut from).is_none());
        assert_eq!((from, queue.len()), (6, 3));
        assert_eq!(positions(&queue), [1, 3, 5]);
        assert_eq!(marks.dropped(), [1; 6]);
    }

    #[test]
    fn a_hole_is_room_at_once_and_keeps_its_place() {
        let marks = Marks::new(10);
        let queue = Queue::new(3);
        for id in 0..3 {
            push(&queue, marked(&marks, id, true)).unwrap();
        }
        let _ = queue.withdraw(1).expect("still there").discard();
        assert!(queue.withdraw(1).is_none(), "withdrawn once");
        assert!(!queue.is_full());
        assert_eq!((queue.len(), queue.pushed()), (2, 3));
        assert_eq!(push(&queue, marked(&marks, 3, true)).unwrap(), 1);
        assert!(queue.is_full());
        assert_eq!((queue.len(), queue.pushed()), (3, 4));
        assert_eq!(positions(&queue), [0, 1, 2]);
        assert_eq!(marks.dropped(), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
        // Holes in front are skipped.
        let at = push(&queue, marked(&marks, 4, true)).unwrap();
        push(&queue, marked(&marks, 5, false)).unwrap();
        let _ = queue.withdraw(at).unwrap().discard();
        assert_eq!(positions(&queue), [at + 1]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn only_withdrawable_tasks_are_withdrawn_and_nothing_is_pushed_once_closed() {
        let marks = Marks::new(4);
        let queue = Queue::new(2);
        let at = push(&queue, marked(&marks, 0, false)).unwrap();
        assert!(queue.withdraw(at).is_none());
        // SAFETY: nothing else runs.
        let _ = unsafe { queue.reclaim(at) }.unwrap().discard();
        push(&queue, marked(&marks, 1, false)).unwrap();
        queue.close();
        for id in [2, 3] {
            let why = push(&queue, marked(&marks, id, false)).unwrap_err();
            assert_eq!(why, NotPushed::Closed);
        }
        assert_eq!(positions(&queue).len(), 1);
        assert_eq!(marks.dropped(), [1, 1, 1, 1]);
    }

    /// Two producers, two consumers, and tasks withdrawn from the middle: each
    /// ends in one place, and the bound holds.
    #[test]
    fn loses_and_doubles_nothing() {
        const EACH: usize = 20_000;
        let marks = Marks::new(2 * EACH);
        let queue = Queue::new(5);
        let left = AtomicUsize::new(2 * EACH);
        thread::scope(|s| {
            for part in 0..2 {
                let (queue, marks, left) = (&queue, &marks, &left);
                s.spawn(move || {
                    for id in part * EACH..(part + 1) * EACH {
                        let mut task = Some(marked(marks, id, id % 3 == 0));
                        let at = loop {
                            if let Ok(at) = queue.push(&mut task) {
                                break at;
                            }
                            thread::yield_now();
                        };
                        if id % 3 == 0 {
                            if let Some(task) = queue.withdraw(at) {
                                let _ = task.discard();
                                left.fetch_sub(1, Ordering::SeqCst);
                            }
                        }
                    }
                });
                s.spawn(move || {
                    while left.load(Ordering::SeqCst) > 0 {
                        assert!(queue.len() <= 5);
                        match pop(queue) {
                            Some(_) => drop(left.fetch_sub(1, Ordering::SeqCst)),
                            None => thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert!(marks.dropped().iter().all(|&n| n == 1));
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.pushed(), 2 * EACH as u64);
    }
}
