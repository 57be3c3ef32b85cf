//! The primitives of `std`, which the crate uses outside models.

pub(crate) use super::PlainU64 as AtomicU64;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::panic::catch_unwind;
pub(crate) use std::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, Ordering};
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use std::{thread, thread_local};

/// Stores a value with `Release`. Under loom 0.7 this is a swap, because loom reports a store that
/// races a compare-and-swap as a data race.
#[inline(always)]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// The cell of `std`, with loom's interface.
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

/// Returns the current time.
#[inline(always)]
pub(crate) fn now() -> super::Instant {
    super::Instant::now()
}
