//! shuttle's threads, and on top of them the parts of `std` that the crate uses. [`world`] has the
//! clock and the checks.

use std::cell::UnsafeCell as UnsafeStdCell;
pub(crate) use std::panic::catch_unwind;
use std::sync::LockResult;
pub(crate) use std::sync::{atomic::Ordering, Arc};
use std::time::Duration;
use world::{Accesses, Alive, Published};

mod local;
pub(crate) mod thread;
pub(crate) mod world;

pub(crate) use local::PerThread;
pub(crate) use world::{judge_by, me, now, rest as spin_loop};

/// Atomics whose every access is a scheduling point.
mod atomic {
    use super::world::{acquires, peeks, releases, step, trace, Alive, Published};
    use super::Ordering;
    use std::cell::Cell;

    #[derive(Debug)]
    pub(crate) struct Atomic<T: Copy> {
        value: Cell<T>,
        published: Published,
        alive: Alive,
    }

    // SAFETY: the threads of an execution share one thread of the system, and switch only at
    // scheduling points. No access to the cells in here has a scheduling point in its middle.
    unsafe impl<T: Copy> Send for Atomic<T> {}
    // SAFETY: as above.
    unsafe impl<T: Copy> Sync for Atomic<T> {}

    pub(crate) type AtomicBool = Atomic<bool>;
    pub(crate) type AtomicU32 = Atomic<u32>;
    pub(crate) type AtomicU64 = Atomic<u64>;
    pub(crate) type AtomicPtr<T> = Atomic<*mut T>;

    impl<T: Copy + Default + PartialEq + std::fmt::Debug> Default for Atomic<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T: Copy + PartialEq + std::fmt::Debug> Atomic<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                value: Cell::new(value),
                published: Published::new(),
                alive: Alive::new(),
            }
        }

        #[track_caller]
        pub(crate) fn load(&self, order: Ordering) -> T {
            step();
            self.alive.check();
            self.acquire(order);
            let value = self.value.get();
            trace("is", &value, &value);
            value
        }

        #[track_caller]
        pub(crate) fn store(&self, value: T, order: Ordering) {
            step();
            self.alive.check();
            // A store ends the release sequence before it.
            if releases(order) {
                self.published.release(true);
            } else {
                self.published.forget();
            }
            trace("store", &self.value.get(), &value);
            self.value.set(value);
        }

        #[track_caller]
        pub(crate) fn swap(&self, value: T, order: Ordering) -> T {
            self.modify(order, |_| value)
        }

        #[track_caller]
        pub(crate) fn compare_exchange(
            &self,
            from: T,
            to: T,
            order: Ordering,
            or_else: Ordering,
        ) -> Result<T, T> {
            step();
            self.alive.check();
            let was = self.value.get();
            if was == from {
                self.replace(to, order);
                Ok(was)
            } else {
                self.acquire(or_else);
                trace("is not", &from, &was);
                Err(was)
            }
        }

        #[track_caller]
        fn modify(&self, order: Ordering, change: impl FnOnce(T) -> T) -> T {
            step();
            self.alive.check();
            let was = self.value.get();
            self.replace(change(was), order);
            was
        }

        #[track_caller]
        fn replace(&self, value: T, order: Ordering) {
            self.acquire(order);
            if releases(order) {
                self.published.release(false);
            }
            trace("change", &self.value.get(), &value);
            self.value.set(value);
        }

        fn acquire(&self, order: Ordering) {
            if acquires(order) && !peeks() {
                self.published.acquire();
            }
        }
    }

    macro_rules! arithmetic {
        ($($t:ty)*) => {$(
        #[allow(dead_code)] // not every word has every access
        impl Atomic<$t> {
            #[track_caller]
            pub(crate) fn fetch_add(&self, by: $t, order: Ordering) -> $t {
                self.modify(order, |was| was.wrapping_add(by))
            }

            #[track_caller]
            pub(crate) fn fetch_sub(&self, by: $t, order: Ordering) -> $t {
                self.modify(order, |was| was.wrapping_sub(by))
            }

            /// As `std` does it: a load, then compare-and-swaps until one succeeds.
            #[track_caller]
            pub(crate) fn fetch_update(
                &self,
                order: Ordering,
                load_order: Ordering,
                mut change: impl FnMut($t) -> Option<$t>,
            ) -> Result<$t, $t> {
                let mut before = self.load(load_order);
                while let Some(after) = change(before) {
                    match self.compare_exchange(before, after, order, load_order) {
                        Ok(_) => return Ok(before),
                        Err(seen) => before = seen,
                    }
                }
                Err(before)
            }

            #[track_caller]
            pub(crate) fn fetch_or(&self, by: $t, order: Ordering) -> $t {
                self.modify(order, |was| was | by)
            }
        })*};
    }

    arithmetic!(u32 u64);

    impl Atomic<u64> {
        #[track_caller]
        pub(crate) fn fetch_and(&self, by: u64, order: Ordering) -> u64 {
            self.modify(order, |was| was & by)
        }
    }
}

pub(crate) use atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

#[track_caller]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// A cell that panics if two accesses conflict and none happens before the other. It also panics if
/// it is accessed after its memory has been freed or zeroed.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T> {
    value: UnsafeStdCell<T>,
    accesses: UnsafeStdCell<Accesses>,
    alive: Alive,
}

// SAFETY: for `accesses`, as for `Atomic`. Only pointers to `value` are given away, as in `std`:
// the code that dereferences them upholds the rest.
unsafe impl<T: Send> Send for UnsafeCell<T> {}

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: UnsafeStdCell::new(value),
            accesses: UnsafeStdCell::new(Accesses::new()),
            alive: Alive::new(),
        }
    }

    #[track_caller]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.access(Accesses::read);
        f(self.value.get())
    }

    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.access(Accesses::write);
        f(self.value.get())
    }

    #[track_caller]
    fn access(&self, how: fn(&mut Accesses)) {
        if !world::peeks() {
            self.alive.check();
            // SAFETY: `how` has no scheduling point, so no other thread runs during it.
            how(unsafe { &mut *self.accesses.get() });
        }
    }
}

/// A mutex that is never poisoned. In [`world::peek`] it gives access without being locked.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    held: shuttle::sync::Mutex<()>,
    published: Published,
    value: UnsafeStdCell<T>,
    alive: Alive,
}

// SAFETY: as for `Atomic`. `value` is accessed under the lock, or in a `peek`, during which no
// other thread runs.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// The lock; `None` in a `peek`, which takes none.
    held: Option<shuttle::sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            held: shuttle::sync::Mutex::new(()),
            published: Published::new(),
            value: UnsafeStdCell::new(value),
            alive: Alive::new(),
        }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.alive.check();
        if world::peeks() {
            return Ok(MutexGuard {
                mutex: self,
                held: None,
            });
        }
        let held = self.held.lock();
        Ok(self.locked(held))
    }

    fn locked<'a>(
        &'a self,
        held: LockResult<shuttle::sync::MutexGuard<'a, ()>>,
    ) -> MutexGuard<'a, T> {
        self.published.acquire();
        MutexGuard {
            mutex: self,
            held: Some(held.unwrap_or_else(std::sync::PoisonError::into_inner)),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock; or it is in a `peek`, during which no other thread
        // runs and which writes nothing.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Publishes the steps that were done under the lock, and takes the lock out of the guard. The
    /// caller drops it or waits with it.
    fn release(&mut self) -> Option<shuttle::sync::MutexGuard<'a, ()>> {
        let held = self.held.take();
        if held.is_some() {
            self.mutex.published.release(false);
        }
        held
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.release());
    }
}

/// A condition variable. A wait with a timeout does not block: it looks at `calls` until that
/// number changes or the time is over.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    waiters: shuttle::sync::Condvar,
    calls: std::sync::atomic::AtomicU64,
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Wakes one waiter. Only a planted fault uses it.
    #[allow(dead_code)]
    pub(crate) fn notify_one(&self) {
        self.waiters.notify_one();
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn notify_all(&self) {
        self.waiters.notify_all();
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
    ) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        let held = guard.release().expect("locked");
        let held = self.waiters.wait(held);
        Ok(mutex.locked(held))
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let mutex = guard.mutex;
        let before = self.calls();
        let end = world::ends_after(limit);
        drop(guard);
        let mut over = false;
        while self.calls() == before && !over {
            over = world::look(end);
        }
        Ok((mutex.lock().unwrap_or_else(|p| p.into_inner()), over))
    }
}

/// Declares a value for each thread of the execution. `std`'s thread-locals would be shared,
/// because all threads of an execution run on one thread of the system.
macro_rules! per_thread {
    ($($(#[$doc:meta])* static $name:ident: $t:ty = const { $init:expr };)*) => {
        $($(#[$doc])*
        static $name: $crate::sync::PerThread<$t> = $crate::sync::PerThread::new(|| $init);)*
    };
}
pub(crate) use per_thread as thread_local;

/// The functions with which scenarios control an execution and look into it. `lazypool::model`
/// exports them.
pub(crate) mod control {
    pub use super::thread::{is_parked, is_unparking, sleep, spawn, JoinHandle};
    pub use super::world::{begin, below, judge_by, peek, set_options, ticks, unfreed, Options};
}

/// A marker in memory that must be freed before its execution ends. [`world::unfreed`] counts
/// these.
#[derive(Debug)]
pub(crate) struct Track(());

impl Track {
    pub(crate) fn new((): ()) -> Self {
        world::allocated();
        Self(())
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        world::freed();
    }
}
