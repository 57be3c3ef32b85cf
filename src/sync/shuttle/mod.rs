//! shuttle's threads, and on top of them the parts of `std` that the crate uses. [`world`] has the
//! clock and the scheduling points, [`memory`] the checks of accesses.

pub(crate) use memory::Published;
use memory::{Accesses, Alive};
use std::cell::{RefCell, UnsafeCell as UnsafeStdCell};
pub(crate) use std::panic::catch_unwind;
pub(crate) use std::sync::{atomic::Ordering, Arc};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

mod atomic;
mod local;
mod memory;
mod world;

pub(crate) use atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
pub(crate) use local::{thread_local, PerThread};
pub(crate) use memory::{me, Track};
pub(crate) use shuttle::sync::MutexGuard as PlainMutexGuard;
pub(crate) use shuttle::sync::{Condvar as PlainCondvar, Mutex as PlainMutex};
pub(crate) use shuttle::thread::JoinHandle as Joins;
pub(crate) use world::{judge_by, now, park_timeout, parks_in_vain, refuses_thread};
pub(crate) use world::{rest as spin_loop, rest as yield_now};

/// The functions with which scenarios control an execution and look into it. `lazypool::model`
/// exports them.
pub(crate) mod control {
    pub use super::memory::unfreed;
    pub use super::world::{begin, judge_by, peek, set_options, sleep, ticks, Options};
    pub use crate::sync::thread::{spawn, JoinHandle};
}

/// Does nothing: each access is sequentially consistent here.
pub(crate) fn fence(_: Ordering) {}

#[track_caller]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

pub(crate) fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Joins<T> {
    // The new thread may run before this thread goes on. So this thread publishes its vector clock
    // (see `memory`) before the start.
    let known = Published::new();
    known.release(Ordering::Release);
    shuttle::thread::spawn(move || {
        known.acquire(Ordering::Acquire);
        f()
    })
}

pub(crate) fn join<T>(thread: Joins<T>) -> std::thread::Result<T> {
    let number = usize::from(thread.thread().id());
    let value = thread.join();
    memory::has_joined(number);
    value
}

/// A cell that panics if two accesses conflict and none happens before the other. It also panics if
/// it is accessed after its memory has been freed or zeroed.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T> {
    value: UnsafeStdCell<T>,
    accesses: RefCell<Accesses>,
    alive: Alive,
}

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            value: UnsafeStdCell::new(value),
            accesses: RefCell::new(Accesses::new()),
            alive: Alive::new(),
        }
    }

    #[track_caller]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.check(false);
        f(self.value.get())
    }

    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.check(true);
        f(self.value.get())
    }

    #[track_caller]
    fn check(&self, is_write: bool) {
        if !world::peeks() {
            self.alive.check();
            self.accesses.borrow_mut().check(is_write);
        }
    }
}

/// A mutex that is never poisoned. In [`world::peek`] it gives access without being locked.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    held: PlainMutex<()>,
    published: Published,
    value: UnsafeStdCell<T>,
    alive: Alive,
}

// SAFETY: the threads of an execution share one OS thread. `value` is accessed under the lock, or
// in a `peek`, during which no other thread runs.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

type Held<'a> = PlainMutexGuard<'a, ()>;

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// The lock. `None` in a `peek`, which takes no lock.
    held: Option<Held<'a>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            held: PlainMutex::new(()),
            published: Published::new(),
            value: UnsafeStdCell::new(value),
            alive: Alive::new(),
        }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.alive.check();
        let held = (!world::peeks()).then(|| self.held.lock());
        Ok(self.locked(held))
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.alive.check();
        match self.held.try_lock() {
            Ok(held) => Ok(self.locked(Some(Ok(held)))),
            Err(TryLockError::Poisoned(held)) => Ok(self.locked(Some(Err(held)))),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    fn locked<'a>(&'a self, held: Option<LockResult<Held<'a>>>) -> MutexGuard<'a, T> {
        self.published.acquire(Ordering::Acquire);
        let held = held.map(|held| held.unwrap_or_else(std::sync::PoisonError::into_inner));
        MutexGuard { mutex: self, held }
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
    /// caller drops the lock or waits with it.
    fn release(&mut self) -> Option<Held<'a>> {
        let held = self.held.take();
        if held.is_some() {
            self.mutex.published.release(Ordering::Release);
        }
        held
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.release());
    }
}

/// A condition variable. A wait with a timeout does not block. It reads `calls`, the number of
/// notifications, until that number changes or the timeout elapses.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    waiters: PlainCondvar,
    calls: std::sync::atomic::AtomicU64,
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
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
        Ok(mutex.locked(Some(self.waiters.wait(held))))
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, bool)> {
        let mutex = guard.mutex;
        let calls = || self.calls.load(Ordering::Relaxed);
        let (before, end) = (calls(), world::ends_after(limit));
        drop(guard);
        let mut over = false;
        while calls() == before && !over {
            over = world::look(end);
        }
        let Ok(guard) = mutex.lock() else {
            unreachable!("never poisoned")
        };
        Ok((guard, over))
    }
}
