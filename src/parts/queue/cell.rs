//! The cells of a queue: stamps, states, and where they lie.

use crate::sync::{store_release, AtomicU64, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// How far a cell is with the position that its stamp names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum State {
    /// Nothing has been pushed yet. So is a cell with the stamp of an earlier lap.
    Empty = 0,
    /// A task.
    Full = 1,
    /// One thread owns the cell: it writes the next state, or moves `head`.
    Held = 2,
    /// Its task was taken out. It keeps its place until it is the oldest.
    Dead = 3,
}

use State::{Dead, Empty, Full, Held};

impl State {
    /// Where a step may lead from here. A cell becomes `Empty`, for the position one lap further, as
    /// `head` moves past it. The protocol page says who takes which step, and is tested to have the
    /// same.
    pub(super) const fn next(self) -> &'static [Self] {
        match self {
            Empty => &[Full],
            Full => &[Held],
            Held => &[Empty, Dead, Full],
            Dead => &[Empty],
        }
    }
}

/// Positions count in steps of this: what is below holds a cell's state, or flags.
pub(super) const STEP: u64 = 8;
const STATE: u64 = STEP - 1;

/// A step has been taken: it is asserted to be legal, and recorded where somebody replays it.
#[inline(always)]
#[cfg_attr(any(debug_assertions, lazypool_loom, lazypool_shuttle), track_caller)]
pub(super) fn taken(from: State, to: State) {
    debug_assert!(
        from.next().contains(&to),
        "{from:?} -> {to:?} is no step of a queue's cell"
    );
    #[cfg(any(lazypool_loom, lazypool_shuttle, lazypool_steps))]
    crate::sync::steps::CELL.record(from as u8, to as u8, || format!("{from:?} {to:?}"));
}

/// One cache line for a task of 56 bytes. Where lines have 128, two neighbours share one: it
/// costs them less than a queue of twice the memory would cost everybody.
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
    /// The position without what says which cell.
    pub(super) lap: u64,
}

impl<T> CellAt<'_, T> {
    #[inline]
    pub(super) fn stamp(&self, state: State) -> u64 {
        self.lap | state as u64
    }

    #[inline]
    pub(super) fn see(&self) -> u64 {
        // ORDERING: M1: acquires the task of the push that wrote the stamp.
        self.cell.stamp.load(Ordering::Acquire)
    }

    /// Whether the cell has been filled for this position, and not emptied.
    #[inline]
    pub(super) fn is_filled(&self, seen: u64) -> bool {
        seen.wrapping_sub(self.stamp(Empty)).wrapping_sub(1) < STATE
    }

    /// Writes the next stamp of a cell.
    ///
    /// # Safety
    /// The cell is the caller's until then, and has a task where the state that it gets says
    /// so, and only there.
    #[inline]
    pub(super) unsafe fn write(&self, from: State, to: State) {
        // ORDERING: M1: releases the task to who takes it.
        store_release(&self.cell.stamp, self.stamp(to));
        taken(from, to);
    }

    /// As [`CellAt::see`], for who refuses or sleeps if no space is there.
    #[inline]
    pub(super) fn see_space(&self) -> u64 {
        // ORDERING: P5: after this thread has said that it waits.
        self.cell.stamp.load(Ordering::SeqCst)
    }

    /// Becomes the owner of a cell with a task.
    #[inline]
    #[must_use]
    pub(super) fn hold(&self) -> bool {
        // loom takes a `SeqCst` load for one only if all words that it may read were stored so.
        let success = if cfg!(lazypool_loom) {
            Ordering::SeqCst
        } else {
            Ordering::Acquire
        };
        // ORDERING: M1: acquires the task.
        let held = self.cell.stamp.compare_exchange(
            self.stamp(Full),
            self.stamp(Held),
            success,
            Ordering::Relaxed,
        );
        held.map(|_| taken(State::Full, Held)).is_ok()
    }

    /// Writes the task into the cell and publishes it.
    ///
    /// # Safety
    /// There is a task, and the caller reserved the position (`tail`), after `head` has passed the
    /// position a lap before.
    #[inline]
    pub(super) unsafe fn fill(&self, task: &mut Option<T>) {
        // SAFETY: by this function's contract: there is a task, and the cell is the caller's.
        unsafe {
            let task = task.take().unwrap_unchecked();
            self.cell.task.with_mut(|t| {
                (*t).write(task);
            });
            self.write(Empty, Full);
        }
    }

    /// Shows the task, which stays where it is.
    ///
    /// # Safety
    /// The caller holds the cell, and a task is in it.
    pub(super) unsafe fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: by this function's contract.
        self.cell
            .task
            .with(|t| unsafe { f((*t).assume_init_ref()) })
    }

    /// # Safety
    /// The caller holds the cell, and a task is in it, which is the caller's from now on.
    #[inline]
    pub(super) unsafe fn read(&self) -> T {
        // SAFETY: by this function's contract.
        self.cell
            .task
            .with_mut(|t| unsafe { (*t).assume_init_read() })
    }

    /// Takes the task out of the middle of the queue, and leaves the cell dead.
    ///
    /// # Safety
    /// As [`CellAt::read`].
    pub(super) unsafe fn take(&self) -> T {
        // SAFETY: by this function's contract.
        let task = unsafe { self.read() };
        // ORDERING: M1, P5: releases the cell to who skips it, and to the push after that; and
        // before this thread looks who waits for space.
        let dead = self.stamp(Dead);
        self.cell.stamp.swap(dead, Ordering::SeqCst);
        taken(Held, Dead);
        task
    }
}

/// A queue's cells, all `Empty` of lap 0 at first.
#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
mod memory {
    use super::{Cell, UnsafeCell, STEP};
    use std::ptr::NonNull;

    /// Zero pages of the OS's, which it gives on first touch: a long queue costs nothing before it is
    /// used. The allocator takes them only for what needs no great alignment, so the first cell is
    /// aligned by hand.
    #[derive(Debug)]
    pub(crate) struct Cells<T> {
        /// A line longer than the cells, and touched only through `first`.
        _words: UnsafeCell<Vec<u64>>,
        first: NonNull<Cell<T>>,
        mask: u64,
    }

    impl<T> Cells<T> {
        /// `len`: a power of two.
        pub(crate) fn new(len: usize) -> Self {
            const { assert!(size_of::<Cell<T>>() % STEP as usize == 0) };
            assert!(len.is_power_of_two());
            let (size, line) = (size_of::<Cell<T>>(), align_of::<Cell<T>>());
            let mut words = vec![0_u64; (len * size + line) / size_of::<u64>()];
            let block = NonNull::from(words.as_mut_slice()).cast::<u8>();
            let up = block.addr().get().wrapping_neg() & (line - 1);
            Self {
                // SAFETY: less than a line further, and the block is a line longer than the cells.
                first: unsafe { block.add(up) }.cast(),
                _words: UnsafeCell::new(words),
                mask: (len as u64 - 1) * STEP,
            }
        }

        /// What of a position says which cell.
        #[inline]
        pub(crate) fn mask(&self) -> u64 {
            self.mask
        }

        /// The cell of a position.
        #[inline]
        pub(crate) fn at(&self, position: u64) -> &Cell<T> {
            let bytes = (position & self.mask) as usize * (size_of::<Cell<T>>() / STEP as usize);
            // SAFETY: the first byte of one of the cells: the mask leaves a multiple of `STEP`
            // below their number of them, and a cell's size is one. The block has room for
            // them, and zeroes are a valid `Cell`: an atomic word and an uninitialised task.
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

        pub(crate) fn mask(&self) -> u64 {
            (self.0.len() as u64 - 1) * STEP
        }

        pub(crate) fn at(&self, position: u64) -> &Cell<T> {
            &self.0[((position & self.mask()) / STEP) as usize]
        }
    }
}

pub(super) use memory::Cells;
