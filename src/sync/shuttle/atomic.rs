//! Atomics whose every access is a scheduling point.

use super::memory::{Alive, Published};
use super::world::{step, trace};
use super::Ordering;
use std::cell::Cell;
use std::fmt::Debug;
use std::ops::{BitAnd, BitOr};

#[derive(Debug)]
pub(crate) struct Atomic<T: Copy> {
    value: Cell<T>,
    published: Published,
    alive: Alive,
}

// SAFETY: the threads of an execution share one OS thread, and switch only at scheduling points. No
// access to the cells in here has a scheduling point in its middle.
unsafe impl<T: Copy> Send for Atomic<T> {}
// SAFETY: as above.
unsafe impl<T: Copy> Sync for Atomic<T> {}

pub(crate) type AtomicBool = Atomic<bool>;
pub(crate) type AtomicU32 = Atomic<u32>;
pub(crate) type AtomicU64 = Atomic<u64>;
pub(crate) type AtomicPtr<T> = Atomic<*mut T>;

impl<T: Copy + PartialEq + Debug + Default> Default for Atomic<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Copy + PartialEq + Debug> Atomic<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: Cell::new(value),
            published: Published::new(),
            alive: Alive::new(),
        }
    }

    /// Reads the value. If `change` returns a new value, stores it. Returns the value that was
    /// read. `order` applies if a value is stored, and `or_else` applies if not.
    #[track_caller]
    fn access(&self, order: Ordering, or_else: Ordering, change: impl FnOnce(T) -> Option<T>) -> T {
        step();
        self.alive.check();
        let was = self.value.get();
        let Some(is) = change(was) else {
            self.published.acquire(or_else);
            trace(&was, &"read");
            return was;
        };
        self.published.acquire(order);
        self.published.release(order);
        trace(&was, &is);
        self.value.replace(is)
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> T {
        self.access(order, order, |_| None)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: T, order: Ordering) {
        step();
        self.alive.check();
        self.published.forget();
        self.published.release(order);
        trace(&self.value.replace(value), &value);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: T, order: Ordering) -> T {
        self.access(order, order, |_| Some(value))
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        from: T,
        to: T,
        order: Ordering,
        or_else: Ordering,
    ) -> Result<T, T> {
        let was = self.access(order, or_else, |was| (was == from).then_some(to));
        if was == from {
            Ok(was)
        } else {
            Err(was)
        }
    }

    /// Updates the value as `std` does: by a load, and then compare-and-swaps until one succeeds.
    #[track_caller]
    pub(crate) fn fetch_update(
        &self,
        order: Ordering,
        load_order: Ordering,
        mut change: impl FnMut(T) -> Option<T>,
    ) -> Result<T, T> {
        let mut before = self.load(load_order);
        while let Some(after) = change(before) {
            match self.compare_exchange(before, after, order, load_order) {
                Ok(_) => return Ok(before),
                Err(seen) => before = seen,
            }
        }
        Err(before)
    }
}

/// Implements the methods of `std` that change a number.
macro_rules! changes {
    ($value:ident: $($name:ident = $change:path;)+) => {
        impl Atomic<$value> {
            $(#[track_caller]
            pub(crate) fn $name(&self, by: $value, order: Ordering) -> $value {
                self.access(order, order, |was| Some($change(was, by)))
            })+
        }
    };
}
changes! { u32: fetch_add = u32::wrapping_add; fetch_or = BitOr::bitor; }
changes! { u64:
    fetch_add = u64::wrapping_add; fetch_sub = u64::wrapping_sub;
    fetch_or = BitOr::bitor; fetch_and = BitAnd::bitand;
}
