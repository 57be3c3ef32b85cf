//! The cells of a queue: their stamps, their states, and their memory.

use crate::sync::{note_in_hand, store_release, AtomicU64, InHand, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// The state of a cell at the position that its stamp names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum CellState {
    /// No task has been pushed at this position yet. Once `head` has passed a cell, the cell is
    /// empty for the next lap, although its stamp still belongs to the lap before.
    Empty = 0,
    /// The cell has a task.
    Full = 1,
    /// One thread owns the cell. It will write the next state, or move `head`.
    Held = 2,
    /// The task was taken out of the middle of the queue. The cell keeps its place until it is the
    /// oldest.
    Dead = 3,
}

use CellState::{Dead, Empty, Full, Held};

impl CellState {
    /// Returns the states to which a step may lead from this state. (When `head` moves past a cell,
    /// the cell becomes `Empty` for the position one lap later.) The protocol page says which
    /// thread takes each step. A test compares that page with this list.
    pub(super) const fn next(self) -> &'static [Self] {
        match self {
            Empty => &[Full],
            Full => &[Held],
            Held => &[Empty, Dead, Full],
            Dead => &[Empty],
        }
    }
}

/// The difference between consecutive positions of a lap. The bits below it hold a cell's state.
pub(super) const STEP: u64 = 8;
const STATE: u64 = STEP - 1;

/// Asserts that a step of a cell is legal.
#[inline(always)]
#[cfg_attr(any(debug_assertions, lazypool_loom, lazypool_shuttle), track_caller)]
pub(super) fn assert_step(from: CellState, to: CellState) {
    debug_assert!(
        from.next().contains(&to),
        "{from:?} -> {to:?} is no step of a queue's cell"
    );
}

/// A cell: one cache line with a task of 56 bytes. On machines whose cache lines have 128 bytes,
/// two neighbors share a line. Cells of 128 bytes would avoid that, but every queue would then need
/// twice the memory, on all machines.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Cell<T> {
    pub(super) stamp: AtomicU64,
    pub(super) task: UnsafeCell<MaybeUninit<T>>,
}

/// The cell of one position, and that position's lap.
#[derive(Debug)]
pub(super) struct CellAt<'a, T> {
    pub(super) cell: &'a Cell<T>,
    /// The position without the bits that select the cell.
    pub(super) lap: u64,
}

impl<T> CellAt<'_, T> {
    /// Returns the stamp of this position in the given state.
    #[inline]
    pub(super) fn stamp(&self, state: CellState) -> u64 {
        self.lap | state as u64
    }

    /// Reads the cell's stamp.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        // ORDERING: M1: acquires the task from the push that wrote the stamp.
        self.cell.stamp.load(Ordering::Acquire)
    }

    /// Returns `true` if the stamp `seen` says that the cell was filled at this position. `head` may
    /// have passed the cell since.
    #[inline]
    pub(super) fn is_filled(&self, seen: u64) -> bool {
        seen.wrapping_sub(self.stamp(Empty)).wrapping_sub(1) < STATE
    }

    /// Makes the cell `Full`. Its state is `from` until then.
    ///
    /// # Safety
    /// The caller owns the cell until this call, and a task is in it.
    #[inline]
    pub(super) unsafe fn publish(&self, from: CellState) {
        // ORDERING: M1: releases the task to the thread that takes it.
        store_release(&self.cell.stamp, self.stamp(Full));
        assert_step(from, Full);
    }

    /// Makes this thread the owner of the cell if it has a task (`Full`). Returns `None` otherwise.
    #[inline]
    pub(super) fn hold(&self) -> Option<HeldCell<'_, T>> {
        // ORDERING: M1: acquires the task, for which `Acquire` would be enough. Models need
        // `SeqCst`: loom treats a later `SeqCst` load of the stamp as such only if all values that
        // the load may read were stored by `SeqCst` steps. On x86-64 both cost the same.
        let (full, held) = (self.stamp(Full), self.stamp(Held));
        (self.cell.stamp)
            .compare_exchange(full, held, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        assert_step(Full, Held);
        note_in_hand(InHand::Cell, 1);
        Some(HeldCell(self))
    }

    /// Writes the task into the cell and publishes it.
    ///
    /// # Safety
    /// `task` is not empty. The caller has reserved the position by moving `tail`, after `head` had
    /// passed the position one lap before.
    #[inline]
    pub(super) unsafe fn fill(&self, task: &mut Option<T>) {
        // SAFETY: by this function's contract, there is a task, and the caller owns the cell.
        unsafe {
            let task = task.take().unwrap_unchecked();
            self.cell.task.with_mut(|t| {
                (*t).write(task);
            });
            self.publish(Empty);
        }
    }
}

/// A cell that this thread holds. Each way to leave the cell uses this up. While a thread has it, the thread takes no lock,
/// calls no user code and pays nothing: debug builds and models assert that.
///
/// It is made only by a step from `Full` to `Held`. So a task is in the cell, and no other thread touches it.
#[derive(Debug)]
#[must_use = "a cell that is held for good stops the queue"]
pub(super) struct HeldCell<'a, T>(&'a CellAt<'a, T>);

// In a release build, a held cell has no `Drop`, as a `Permit`.
#[cfg(debug_assertions)]
impl<T> Drop for HeldCell<'_, T> {
    fn drop(&mut self) {
        note_in_hand(InHand::Cell, -1);
        assert!(std::thread::panicking(), "a held cell is lost");
    }
}

impl<T> HeldCell<'_, T> {
    /// Calls `f` with the task, which stays in the cell.
    pub(super) fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: a task is in the cell, and this thread owns both, by the type's invariant.
        (self.0.cell.task).with(|t| unsafe { f((*t).assume_init_ref()) })
    }

    /// Leaves the task in the cell, which becomes `Full` again.
    pub(super) fn put_back(self) {
        // SAFETY: as in `look`.
        unsafe { self.0.publish(Held) };
        self.forget();
    }

    /// Takes the task out of the middle of the queue, and leaves the cell dead.
    pub(super) fn take_out(self) -> T {
        // SAFETY: this thread leaves the cell dead next.
        let task = unsafe { self.read() };
        // ORDERING: M1, Q1: releases the cell to the thread that passes it, and to the push after
        // that. Comes before this thread reads `head`.
        let dead = self.0.stamp(Dead);
        self.0.cell.stamp.swap(dead, Ordering::SeqCst);
        assert_step(Held, Dead);
        self.forget();
        task
    }

    /// Moves the task into `place`, then calls `move_head`, which makes the cell `Empty` for the position one lap later.
    #[inline(always)]
    pub(super) fn pop(self, place: &mut Option<T>, move_head: impl FnOnce()) {
        // SAFETY: once `head` has moved, the cell is empty.
        *place = Some(unsafe { self.read() });
        move_head();
        assert_step(Held, Empty);
        self.forget();
    }

    /// Moves the task out of the cell.
    ///
    /// # Safety
    /// This thread leaves the cell next, as one without a task.
    #[inline(always)]
    unsafe fn read(&self) -> T {
        // SAFETY: as in `look`; by this function's contract, the task is moved out once.
        (self.0.cell.task).with_mut(|t| unsafe { (*t).assume_init_read() })
    }

    #[inline(always)]
    fn forget(self) {
        note_in_hand(InHand::Cell, -1);
        std::mem::forget(self);
    }
}

/// The memory of a queue's cells. At first all cells are `Empty` in lap 0.
#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
mod memory {
    use super::{Cell, UnsafeCell, STEP};
    use std::ptr::NonNull;

    /// The cells are in zeroed pages that the OS provides on first touch, so a long queue costs
    /// nothing before it is used. The allocator uses such pages only for memory of a small
    /// alignment. So the first cell is aligned by hand.
    #[derive(Debug)]
    pub(crate) struct Cells<T> {
        /// The memory: the cells, and one more cache line. It is accessed only through `first`.
        _words: UnsafeCell<Vec<u64>>,
        first: NonNull<Cell<T>>,
        len: u64,
        index_mask: u64,
    }

    impl<T> Cells<T> {
        /// Creates `len` cells, at least one.
        pub(crate) fn new(len: usize) -> Self {
            const { assert!(size_of::<Cell<T>>() % STEP as usize == 0) };
            assert!(len > 0);
            let (size, line) = (size_of::<Cell<T>>(), align_of::<Cell<T>>());
            let bytes = (len.checked_mul(size)).and_then(|cells| cells.checked_add(line));
            let bytes = bytes.expect("a block of memory");
            let mut words = vec![0_u64; bytes / size_of::<u64>()];
            let block = NonNull::from(words.as_mut_slice()).cast::<u8>();
            let up = block.addr().get().wrapping_neg() & (line - 1);
            Self {
                // SAFETY: `first` is less than a line after the start of the block, and the block
                // is one line longer than the cells.
                first: unsafe { block.add(up) }.cast(),
                _words: UnsafeCell::new(words),
                len: len as u64,
                index_mask: len.next_power_of_two() as u64 * STEP - 1,
            }
        }

        #[inline]
        pub(crate) fn len(&self) -> u64 {
            self.len
        }

        /// Returns the bits of a position below the lap.
        #[inline]
        pub(crate) fn index_mask(&self) -> u64 {
            self.index_mask
        }

        /// Returns the last position of lap 0.
        #[inline]
        pub(crate) fn last(&self) -> u64 {
            (self.len - 1) * STEP
        }

        /// Returns the cell of a position.
        #[inline]
        pub(crate) fn at(&self, position: u64) -> &Cell<T> {
            let index = position & self.index_mask;
            debug_assert!(index <= self.last() && index % STEP == 0);
            let bytes = index as usize * (size_of::<Cell<T>>() / STEP as usize);
            // SAFETY: a position of the queue is a lap and `STEP` times the index of a cell, so
            // `bytes` is that index times the size of a cell, within the block. Zeroes are a valid
            // `Cell`: an atomic word and an uninitialized task.
            unsafe { self.first.byte_add(bytes).as_ref() }
        }
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
mod memory {
    use super::{AtomicU64, Cell, MaybeUninit, UnsafeCell, STEP};

    #[derive(Debug)]
    pub(crate) struct Cells<T>(Box<[Cell<T>]>);

    impl<T> Cells<T> {
        pub(crate) fn new(len: usize) -> Self {
            let empty = |_| Cell {
                stamp: AtomicU64::new(0),
                task: UnsafeCell::new(MaybeUninit::uninit()),
            };
            Self((0..len).map(empty).collect())
        }

        pub(crate) fn len(&self) -> u64 {
            self.0.len() as u64
        }

        pub(crate) fn index_mask(&self) -> u64 {
            self.len().next_power_of_two() * STEP - 1
        }

        pub(crate) fn last(&self) -> u64 {
            (self.len() - 1) * STEP
        }

        pub(crate) fn at(&self, position: u64) -> &Cell<T> {
            &self.0[((position & self.index_mask()) / STEP) as usize]
        }
    }
}

pub(super) use memory::Cells;
