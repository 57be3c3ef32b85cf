//! The only place that knows whether the crate runs on `std`, under the loom model
//! checker (`--cfg lazypool_loom`: all interleavings of a few threads), or under
//! shuttle (`--cfg lazypool_shuttle`: random interleavings of many).

mod clock;
pub(crate) mod fork;

#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
#[path = "std.rs"]
mod imp;

#[cfg(lazypool_loom)]
#[path = "loom.rs"]
mod imp;

#[cfg(all(lazypool_shuttle, not(lazypool_loom)))]
#[path = "shuttle/mod.rs"]
mod imp;

pub(crate) use clock::{given, told, Instant};
pub(crate) use imp::*;

/// `std`'s, also in models.
#[cfg(target_has_atomic = "64")]
pub(crate) type PlainU64 = std::sync::atomic::AtomicU64;
/// Everything rests on this type. The compiler says nothing more of a type that contains an
/// error, so this error is the only one.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) type PlainU64 = Option<
    [(); compile_error!(
        "lazypool needs atomic operations of 64 bits, which this target does not have"
    )],
>;

/// Runs what lets others touch the stack of this thread: an unwind, which can only be a bug of ours,
/// must not take it away from them, and ends the process. In models it is the model's failure.
pub(crate) fn exposed<R>(f: impl FnOnce() -> R) -> R {
    struct Exposed;
    impl Drop for Exposed {
        fn drop(&mut self) {
            #[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
            std::process::abort();
        }
    }
    let guard = Exposed;
    let result = f();
    std::mem::forget(guard);
    result
}

/// Part of memory that threads share and one of them frees: tells models who touches it, when it goes,
/// and that it goes.
#[derive(Debug)]
pub(crate) struct Alive {
    #[cfg(any(lazypool_loom, lazypool_shuttle))]
    told: (UnsafeCell<()>, Track),
}

impl Alive {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(any(lazypool_loom, lazypool_shuttle))]
            told: (UnsafeCell::new(()), Track::new(())),
        }
    }

    /// The calling thread reads or writes the memory.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        #[cfg(any(lazypool_loom, lazypool_shuttle))]
        self.told.0.with(|_| ());
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Drop for Alive {
    fn drop(&mut self) {
        self.told.0.with_mut(|_| ());
    }
}

/// Waits on a condition variable, at most as long as is left (`None`: no end), and
/// whatever the poisoning; see [`lock`].
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    left: Option<std::time::Duration>,
) -> MutexGuard<'a, T> {
    match left {
        None => condition
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner),
        Some(left) => match condition.wait_timeout(guard, left) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        },
    }
}

/// Locks a mutex. A panic while one of our locks is held is a bug of ours that
/// has already been reported by that panic; the data behind it is counters and
/// lists that are valid after every step, so poisoning adds nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks a mutex that no thread holds. Models, in which no thread is stopped for good, wait for it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    #[cfg(any(lazypool_loom, lazypool_shuttle))]
    return Some(lock(mutex));
    #[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}
