//! The real thing: `std`'s primitives.

pub(crate) use super::PlainU64 as AtomicU64;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::panic::catch_unwind;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use std::{thread, thread_local};

/// A `Release` store. Under loom 0.7 a swap: there a store that races a
/// compare-and-swap of another thread is taken for a data race.
#[inline(always)]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// `std`'s cell, with loom's interface.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// What the clock says.
#[inline(always)]
pub(crate) fn now() -> super::Instant {
    super::Instant::now()
}
