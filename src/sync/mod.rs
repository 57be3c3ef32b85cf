//! Chooses what the crate runs on: `std`, the loom model checker (`--cfg lazypool_loom`: all
//! interleavings of a few threads), or shuttle (`--cfg lazypool_shuttle`: random interleavings of
//! many threads). Except for a few `cfg`s, no other module depends on the choice.

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

#[cfg(any(lazypool_loom, lazypool_shuttle))]
pub(crate) mod thread;

pub(crate) use clock::{given, told, Instant};
pub(crate) use imp::*;

/// The atomic integer of `std`, also in models.
#[cfg(target_has_atomic = "64")]
pub(crate) type PlainU64 = std::sync::atomic::AtomicU64;
/// The whole crate needs this type. If a type contains an error, the compiler reports nothing else
/// about the type, so the user sees only this error.
#[cfg(not(target_has_atomic = "64"))]
pub(crate) type PlainU64 = Option<
    [(); compile_error!(
        "lazypool needs atomic operations of 64 bits, which this target does not have"
    )],
>;

/// Runs `f`. Meanwhile other threads may access this thread's stack. An unwind would free that
/// memory while they use it. Only a bug in this crate can unwind here, so an unwind aborts the
/// process. In models, an unwind is a failure of the model.
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

/// A marker in memory that threads share and that one of them frees. In models it reports an access
/// that races with the free, and memory that is never freed.
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

    /// Notes that the calling thread reads or writes the memory.
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

/// Waits on a condition variable for at most the time that is `left`; `None` means without a limit.
/// Ignores poisoning, as [`lock`] does.
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

/// Locks a mutex. Ignores poisoning, because a panic under one of these locks is a bug in this
/// crate, and the panic has been reported already. The data are counters and lists that are valid
/// after every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Locks a mutex. Returns `None` if another thread holds it. In models this waits for the lock
/// instead. No thread of a model stops for good, so the lock becomes free.
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
