//! Panics of user code, contained.

use crate::parts::completion::Remains;
use crate::sync::catch_unwind;
use std::any::Any;
use std::panic::AssertUnwindSafe;

/// A caught panic's payload.
pub(crate) type Payload = Box<dyn Any + Send + 'static>;

/// Whether code of the user's has panicked; the payload is dropped.
#[inline]
pub(crate) fn has_panicked(result: Result<(), Payload>) -> bool {
    result.map_err(drop_payload).is_err()
}

/// Calls code of the user's, containing its panic. Returns whether there was one.
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    has_panicked(catch_unwind(AssertUnwindSafe(f)))
}

/// Drops a value, containing a panic of its `Drop` and of its payload's. Returns whether
/// there was one.
pub(crate) fn drop_contained<T>(value: T) -> bool {
    contain(|| drop(value))
}

/// Wakes who waits, and drops what nobody waits for, containing panics.
pub(crate) fn wake_and_drop(Remains { waker, node }: Remains) {
    if let Some(waker) = waker {
        contain(|| waker.wake());
    }
    drop_contained(node);
}

/// Drops a panic's payload, whose own `Drop` may panic with another payload, and so on:
/// after a few of those the last one is leaked.
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

    /// Of no size, so that the one that is leaked leaks nothing.
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
