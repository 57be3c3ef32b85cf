//! loom's primitives, with what they lack.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
// loom's cannot be a receiver, and the counts of ours decide nothing.
pub(crate) use std::sync::Arc;

use loom::sync::atomic;

/// loom's atomics, but a first value counts as a `SeqCst` store: loom lets a `SeqCst` load skip the
/// newest `SeqCst` store for an older value only if that was stored otherwise, as by `new`. Words that
/// see nothing but `SeqCst` accesses (both sides of every pair in the protocol page that announces and
/// then looks) are then as sequentially consistent as C++20 says.
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

/// A pointer. Its stores are swaps, as in [`store_release`].
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
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        self.0.load(order)
    }

    #[track_caller]
    pub(crate) fn store(&self, value: *mut T, order: Ordering) {
        self.0.swap(value, order);
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
        self.0.swap(value, order)
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// For a thread that has looked in vain a few times for a step of another.
/// Two such threads could take turns for ever beside the third that is to
/// take the step, and loom would try it: let it go on from here in one
/// interleaving, which lets the others run. Schedules in which this thread
/// looks less often come to the same states.
pub(crate) fn assume_fairness() {
    loom::skip_branch();
}

/// A model's threads share one thread of the system.
macro_rules! per_thread {
    ($($(#[$doc:meta])* static $name:ident: $t:ty = const { $init:expr };)*) => {
        loom::thread_local! { $($(#[$doc])* static $name: $t = $init;)* }
    };
}
pub(crate) use per_thread as thread_local;

/// A panic in a model is its failure, wherever it is.
pub(crate) fn catch_unwind<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    Ok(f())
}

/// loom's threads, but for parking: there an `unpark` wakes its thread from
/// whatever it waits for, a mutex included, and loses the token.
pub(crate) mod thread {
    use super::{Arc, Condvar, Mutex};
    pub(crate) use loom::thread::yield_now;
    use std::cell::{Cell, RefCell};

    std::thread_local! {
        /// How many of the next threads the system does not give. Shared by
        /// the threads of a model.
        pub(crate) static REFUSED: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Debug)]
    struct Parker {
        token: Mutex<bool>,
        given: Condvar,
    }

    loom::thread_local! {
        static CURRENT: RefCell<Option<Thread>> = RefCell::new(None);
    }

    #[derive(Debug, Clone)]
    pub(crate) struct Thread(Arc<Parker>);

    impl Thread {
        fn new() -> Self {
            Self(Arc::new(Parker {
                token: Mutex::new(false),
                given: Condvar::new(),
            }))
        }

        pub(crate) fn unpark(&self) {
            let mut token = super::super::lock(&self.0.token);
            *token = true;
            self.0.given.notify_one();
        }
    }

    pub(crate) fn current() -> Thread {
        CURRENT.with(|c| c.borrow_mut().get_or_insert_with(Thread::new).clone())
    }

    pub(crate) fn park() {
        let own = current();
        let mut token = super::super::lock(&own.0.token);
        while !*token {
            token = own.0.given.wait(token).expect("never poisoned");
        }
        *token = false;
    }

    #[derive(Debug)]
    pub(crate) struct JoinHandle<T> {
        inner: loom::thread::JoinHandle<T>,
        thread: Thread,
    }

    impl<T> JoinHandle<T> {
        pub(crate) fn thread(&self) -> &Thread {
            &self.thread
        }

        pub(crate) fn join(self) -> std::thread::Result<T> {
            self.inner.join()
        }
    }

    /// Names and stack sizes mean nothing here.
    #[derive(Debug)]
    pub(crate) struct Builder;

    impl Builder {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn name(self, _: String) -> Self {
            self
        }

        pub(crate) fn stack_size(self, _: usize) -> Self {
            self
        }

        pub(crate) fn spawn<T: 'static>(
            self,
            f: impl FnOnce() -> T + Send + 'static,
        ) -> std::io::Result<JoinHandle<T>> {
            if let Some(left) = REFUSED.get().checked_sub(1) {
                REFUSED.set(left);
                return Err(std::io::ErrorKind::OutOfMemory.into());
            }
            let thread = Thread::new();
            let own = thread.clone();
            let inner = loom::thread::spawn(move || {
                CURRENT.with(|c| *c.borrow_mut() = Some(own));
                f()
            });
            Ok(JoinHandle { inner, thread })
        }
    }
}

/// Any: no model depends on the clock.
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Tells loom of memory that is never freed.
pub(crate) type Track = loom::alloc::Track<()>;
