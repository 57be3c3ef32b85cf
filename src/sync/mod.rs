//! Chooses what the crate runs on: `std`, the loom model checker (`--cfg lazypool_loom`: all
//! interleavings of a few threads), or shuttle (`--cfg lazypool_shuttle`: random interleavings of
//! many threads). Except for a few `cfg`s, no other module depends on the choice.

mod clock;
pub(crate) mod fork;
mod lock;
pub(crate) mod panics;

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

pub(crate) use clock::{from_std, to_std, Instant};
pub(crate) use imp::*;
pub(crate) use lock::{
    assert_has_no, assert_holds_nothing, assert_not_relied_on, assert_unlocked, catch_unwind, lock,
    lock_by, note_in_hand, set_relied_on, wait, Guard, InHand, IsHeld, Patience, ThreadNumber,
    TracedMutex,
};

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
pub(crate) fn abort_on_unwind<R>(f: impl FnOnce() -> R) -> R {
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
