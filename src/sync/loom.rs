//! loom's primitives, completed where they lack something that the crate uses.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::{fence, Ordering};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
// loom's `Arc` cannot be the type of `self`. Outside models, only `work/thread.rs` reads the count
// of an `Arc`, under a lock. So loom need not know these counts.
pub(crate) use std::sync::Arc;

use loom::sync::atomic;
use std::cell::Cell;

/// loom's atomics, with the first value stored by a `SeqCst` store. loom lets a `SeqCst` load
/// return a value older than the newest `SeqCst` store if that older value was written by another
/// kind of store, as loom's `new` does. With this `new`, a word that has only `SeqCst` accesses is
/// sequentially consistent, as in C++20. The pairs of the protocol page, in which each side
/// announces a step and then looks for the other side's step, use such words.
macro_rules! atomics {
    ($($name:ident($value:ty))*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                let word = atomic::$name::new(value);
                word.store(value, Ordering::SeqCst);
                Self(word)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }

        impl std::ops::Deref for $name {
            type Target = atomic::$name;

            fn deref(&self) -> &atomic::$name {
                &self.0
            }
        }
    )*};
}
atomics! { AtomicBool(bool) AtomicU32(u32) AtomicU64(u64) }

#[track_caller]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    word.swap(value, Ordering::AcqRel);
}

/// An atomic pointer. Its stores are swaps, as in [`store_release`]; `std.rs` says why.
#[derive(Debug)]
pub(crate) struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        let first = atomic::AtomicPtr::new(value);
        first.store(value, Ordering::SeqCst);
        Self(first)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        self.0.swap(value, order);
    }
}

impl<T> std::ops::Deref for AtomicPtr<T> {
    type Target = atomic::AtomicPtr<T>;

    fn deref(&self) -> &atomic::AtomicPtr<T> {
        &self.0
    }
}

/// Makes loom explore a single interleaving from here on, in which the other threads run. A thread
/// calls this after it has looked several times for a step of another thread without success. Two
/// such threads could alternate forever while the thread that is to take the step never runs. Then
/// loom's search would not end. No state is lost, because schedules in which this thread looks
/// fewer times reach the same states.
pub(crate) fn assume_fairness() {
    loom::skip_branch();
}

/// Declares a value for each thread of the model. `std`'s thread-locals would be shared, because
/// all threads of a model run on one OS thread.
macro_rules! per_thread {
    ($($(#[$doc:meta])* static $name:ident: $t:ty = const { $init:expr };)*) => {
        loom::thread_local! { $($(#[$doc])* static $name: $t = $init;)* }
    };
}
pub(crate) use per_thread as thread_local;

/// Calls `f`. Catches no panic, because a panic anywhere in a model is a failure of the model.
pub(crate) fn catch_unwind<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    Ok(f())
}

pub(crate) use loom::sync::MutexGuard as PlainMutexGuard;
pub(crate) use loom::sync::{Condvar as PlainCondvar, Mutex as PlainMutex};
pub(crate) use loom::thread::{spawn, yield_now, JoinHandle as Joins};

/// Does nothing, because loom's mutex already orders the steps of the threads that hold it.
#[derive(Debug)]
pub(crate) struct Published;

impl Published {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn release(&self, _: Ordering) {}

    pub(crate) fn acquire(&self, _: Ordering) {}
}

std::thread_local! {
    /// The number of requests for a thread that are still to be refused. All threads of a model
    /// share this number.
    pub(crate) static REFUSED: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn refuses_thread() -> bool {
    let left = REFUSED.get();
    REFUSED.set(left.saturating_sub(1));
    left > 0
}

pub(crate) fn parks_in_vain() -> bool {
    false
}

pub(crate) fn join<T>(thread: Joins<T>) -> std::thread::Result<T> {
    thread.join()
}

/// Returns the time of the system. No model depends on it.
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Makes loom report memory that is never freed.
pub(crate) type Track = loom::alloc::Track<()>;
