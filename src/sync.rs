//! The only place that knows whether the crate runs on `std` or under the
//! loom model checker (`--cfg lazypool_loom`).

#[cfg(not(lazypool_loom))]
mod imp {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;

    /// The second half of a Dekker pair, for loom only.
    ///
    /// Everywhere this is called, both sides announce themselves with a
    /// `SeqCst` read-modify-write and then read the other's word with a
    /// `SeqCst` load, which the C++20 model orders. loom 0.7 treats `SeqCst`
    /// accesses as `AcqRel`; there this is `fence(SeqCst)`.
    #[inline(always)]
    pub(crate) fn dekker() {}

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
}

#[cfg(lazypool_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{
        fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;

    pub(crate) fn dekker() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn store_release(word: &AtomicU64, value: u64) {
        word.swap(value, Ordering::AcqRel);
    }
}

pub(crate) use imp::*;

/// Locks a mutex. A panic while one of our locks is held is a bug of ours that
/// has already been reported by that panic; the data behind it is counters and
/// lists that are valid after every step, so poisoning adds nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
