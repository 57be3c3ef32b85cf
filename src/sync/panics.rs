//! Contains the panics of user code.

use super::catch_unwind;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// The payload of a caught panic.
pub(crate) type Payload = Box<dyn Any + Send + 'static>;

/// Returns `true` if user code has panicked. Drops the payload.
#[inline]
pub(crate) fn has_panicked(result: Result<(), Payload>) -> bool {
    result.map_err(drop_payload).is_err()
}

/// Calls user code and contains its panic. Returns `true` if there was one.
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    has_panicked(catch_unwind(AssertUnwindSafe(f)))
}

/// Drops a value, and contains a panic of its `Drop`. Returns `true` if there was one.
pub(crate) fn drop_contained<T>(value: T) -> bool {
    contain(|| drop(value))
}

/// Drops a panic's payload. The drop may panic with another payload, whose drop may panic, too.
/// After a few of these, the last payload is leaked.
pub(crate) fn drop_payload(mut payload: Payload) {
    for _ in 0..8 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use std::cell::Cell;

    std::thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }

    /// A type of size zero, so that a leaked payload leaks no memory.
    struct Bomb;

    impl Bomb {
        fn new(depth: u32) -> Self {
            LEFT.set(depth);
            Self
        }
    }

    impl Drop for Bomb {
        fn drop(&mut self) {
            if let Some(left) = LEFT.get().checked_sub(1) {
                LEFT.set(left);
                std::panic::resume_unwind(Box::new(Self));
            }
        }
    }

    #[test]
    fn panics_of_drops_are_contained_however_deep() {
        assert!(!drop_contained(Bomb::new(0)));
        assert!(drop_contained(Bomb::new(3)));
        assert_eq!(LEFT.get(), 0);
        drop_payload(Box::new(Bomb::new(100)));
        assert_eq!(LEFT.get(), 100 - 8, "it gives up");
    }
}
