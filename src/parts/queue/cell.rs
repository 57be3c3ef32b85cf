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

/// A position without what says which cell, and a state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) u64);

impl Stamp {
    pub(super) const fn state(self) -> State {
        match self.0 & STATE {
            0 => Empty,
            1 => Full,
            2 => Held,
            3 => Dead,
            _ => unreachable!(),
        }
    }

    /// Whether a cell whose position was `Empty` has been filled since, and not emptied.
    pub(super) const fn is_behind(self, empty: Self) -> bool {
        self.0.wrapping_sub(empty.0).wrapping_sub(1) < STATE
    }

    pub(super) const fn is_of_lap(self, other: Self) -> bool {
        (self.0 ^ other.0) & !STATE == 0
    }
}

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

impl<T> Clone for CellAt<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CellAt<'_, T> {}

impl<T> CellAt<'_, T> {
    #[inline]
    pub(super) fn stamp(self, state: State) -> Stamp {
        Stamp(self.lap | state as u64)
    }

    #[inline]
    pub(super) fn see(self) -> Stamp {
        // ORDERING: M1: acquires the task of the push that wrote the stamp.
        Stamp(self.cell.stamp.load(Ordering::Acquire))
    }

    /// Writes the next stamp of a cell.
    ///
    /// # Safety
    /// The cell is the caller's until then, and has a task where the state that it gets says
    /// so, and only there.
    #[inline]
    pub(super) unsafe fn write(self, from: State, to: State) {
        // ORDERING: M1: releases the task to who takes it.
        store_release(&self.cell.stamp, self.stamp(to).0);
        taken(from, to);
    }

    /// As [`CellAt::see`], for who refuses or sleeps if no space is there.
    #[inline]
    pub(super) fn see_space(self) -> Stamp {
        // ORDERING: P7: after this thread has said that it waits.
        Stamp(self.cell.stamp.load(Ordering::SeqCst))
    }

    /// Leaves a held cell dead.
    ///
    /// # Safety
    /// The caller holds the cell, and has read its task.
    pub(super) unsafe fn leave_dead(self) {
        // ORDERING: M1, P7: releases the cell to who skips it, and to the push after that; and
        // before this thread looks who waits for space.
        let dead = self.stamp(State::Dead).0;
        self.cell.stamp.swap(dead, Ordering::SeqCst);
        taken(State::Held, State::Dead);
    }

    /// Becomes the owner of a cell with a task.
    #[inline]
    #[must_use]
    pub(super) fn hold(self) -> bool {
        // ORDERING: M1: acquires the task.
        let held = self.cell.stamp.compare_exchange(
            self.stamp(State::Full).0,
            self.stamp(State::Held).0,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        held.map(|_| taken(State::Full, State::Held)).is_ok()
    }

    /// Writes the task into the cell and publishes it.
    ///
    /// # Safety
    /// There is a task, and the caller reserved the position (`tail`), after `head` has passed the
    /// position a lap before.
    #[inline]
    pub(super) unsafe fn fill(self, task: &mut Option<T>) {
        // SAFETY: by this function's contract: there is a task, and the cell is the caller's.
        unsafe {
            let task = task.take().unwrap_unchecked();
            self.cell.task.with_mut(|t| {
                (*t).write(task);
            });
            self.write(State::Empty, State::Full);
        }
    }

    /// Shows the task, which stays where it is.
    ///
    /// # Safety
    /// The caller holds the cell, and a task is in it.
    pub(super) unsafe fn look<R>(self, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: by this function's contract.
        self.cell
            .task
            .with(|t| unsafe { f((*t).assume_init_ref()) })
    }

    /// # Safety
    /// The caller holds the cell, and a task is in it, which is the caller's from now on.
    #[inline]
    pub(super) unsafe fn read(self) -> T {
        // SAFETY: by this function's contract.
        self.cell
            .task
            .with_mut(|t| unsafe { (*t).assume_init_read() })
    }
}

/// A queue's cells, all `Empty` of lap 0 at first.
#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
mod memory {
    use super::{Cell, STEP};
    use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    /// Zero pages of the system's, which it gives on first touch: a long queue costs
    /// nothing before it is used. So they are aligned by hand, within a block of no
    /// great alignment: others `alloc_zeroed` writes.
    #[derive(Debug)]
    pub(crate) struct Cells<T> {
        block: NonNull<u8>,
        first: NonNull<Cell<T>>,
        mask: u64,
        owned: PhantomData<Cell<T>>,
    }

    // SAFETY: it owns its cells as a box would, and `Queue` says who touches them.
    unsafe impl<T: Send> Send for Cells<T> {}
    // SAFETY: as above.
    unsafe impl<T: Send> Sync for Cells<T> {}

    impl<T> Cells<T> {
        const LINE: usize = {
            assert!(size_of::<Cell<T>>() % STEP as usize == 0);
            align_of::<Cell<T>>()
        };

        /// `len`: a power of two.
        pub(crate) fn new(len: usize) -> Self {
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
                mask: (len as u64 - 1) * STEP,
                owned: PhantomData,
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

        fn layout(len: usize) -> Layout {
            let bytes = len * size_of::<Cell<T>>() + Self::LINE;
            Layout::from_size_align(bytes, align_of::<u64>()).expect("a checked capacity")
        }
    }

    impl<T> Drop for Cells<T> {
        fn drop(&mut self) {
            let len = (self.mask / STEP) as usize + 1;
            // SAFETY: allocated with this layout; cells need no drop.
            unsafe { dealloc(self.block.as_ptr(), Self::layout(len)) };
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
