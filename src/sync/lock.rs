//! Locks of mutexes. In debug builds and models each thread counts what it has [in hand](InHand), so that
//! [`assert_unlocked`] can tell. A thread on which others rely waits for no lock: that is asserted, too.

use super::{fork, imp, thread_local, Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::UnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Result;
use std::time::Duration;

thread_local! {
    /// How many of each kind this thread has in hand.
    static IN_HAND: [Cell<i32>; 4] = const { [const { Cell::new(0) }; 4] };
    /// Set while other threads rely on this one.
    static RELIED_ON: Cell<bool> = const { Cell::new(false) };
}

/// What a thread may have in hand. Debug builds and models count it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InHand {
    Lock,
    /// A held cell of a queue.
    Cell,
    Notice,
    /// A slot, by a claim.
    Slot,
}

/// Notes, in debug builds and models, that this thread has so many more of a kind.
#[inline(always)]
pub(crate) fn note_in_hand(kind: InHand, more: i32) {
    if cfg!(debug_assertions) {
        IN_HAND.with(|counts| {
            let count = &counts[kind as usize];
            count.set(count.get() + more);
        });
    }
}

/// Asserts, in debug builds and models, that this thread has none of these kinds in hand.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn assert_has_no(kinds: &[InHand]) {
    if cfg!(debug_assertions) {
        for kind in kinds {
            let count = IN_HAND.with(|counts| counts[*kind as usize].get());
            assert_eq!(count, 0, "in hand: {kind:?}");
        }
    }
}

/// Notes, in debug builds and models, whether other threads rely on this one. If so, it runs no user code and waits
/// for no lock.
#[inline(always)]
pub(crate) fn set_relied_on(is_relied_on: bool) {
    if cfg!(debug_assertions) {
        RELIED_ON.with(|it| it.set(is_relied_on));
    }
}

/// Asserts, in debug builds and models, that no thread relies on this one: it is about to do what may take long.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn assert_not_relied_on() {
    #[cfg(debug_assertions)]
    assert!(!RELIED_ON.with(Cell::get), "others rely on this thread");
}

/// Asserts, in debug builds and models, that this thread holds no lock of this crate and no cell, and does not count as awake, because it is about to
/// run user code: that code may wait for another thread, which may need these or rely on that.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn assert_unlocked() {
    assert_has_no(&[InHand::Lock, InHand::Cell]);
    assert_not_relied_on();
}

/// Asserts, in debug builds and models, that this thread holds no lock, no cell, and no slot by a claim, and is in no count, because it is about to pay what it owes.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn assert_holds_nothing() {
    assert_unlocked();
    assert_has_no(&[InHand::Notice, InHand::Slot]);
}

/// Calls user code, and catches its panic.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn catch_unwind<R>(f: impl FnOnce() -> R + UnwindSafe) -> Result<R> {
    assert_unlocked();
    imp::catch_unwind(f)
}

/// One lock that this thread holds.
#[derive(Debug)]
struct Held;

impl Held {
    #[inline(always)]
    fn new() -> Self {
        note_in_hand(InHand::Lock, 1);
        Self
    }
}

impl Drop for Held {
    #[inline(always)]
    fn drop(&mut self) {
        note_in_hand(InHand::Lock, -1);
    }
}

/// A locked mutex.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    // Dropped first: the lock is free before it is not counted any more.
    locked: MutexGuard<'a, T>,
    held: Held,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn new(locked: MutexGuard<'a, T>) -> Self {
        let held = Held::new();
        Self { locked, held }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}

/// Waits on a condition variable for at most the time that is `left`; `None` means without a limit.
/// Ignores poisoning, as [`lock`] does.
pub(crate) fn wait<'a, T>(
    condition: &Condvar,
    guard: Guard<'a, T>,
    left: Option<Duration>,
) -> Guard<'a, T> {
    let Guard { locked, held } = guard;
    let locked = match left {
        None => condition
            .wait(locked)
            .unwrap_or_else(std::sync::PoisonError::into_inner),
        Some(left) => match condition.wait_timeout(locked, left) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        },
    };
    Guard { locked, held }
}

/// Locks a mutex. Ignores poisoning, because a panic under one of these locks is a bug in this
/// crate, and the panic has been reported already. The data are counters and lists that are valid
/// after every step.
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    assert_has_no(&[InHand::Cell]);
    assert_not_relied_on();
    wait_for(mutex)
}

fn wait_for<T>(mutex: &Mutex<T>) -> Guard<'_, T> {
    Guard::new(
        mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
    )
}

/// A mutex that knows which thread has locked it last: if it is locked now, that thread holds it. For a person who looks at
/// a pool that hangs.
#[derive(Debug, Default)]
pub(crate) struct TracedMutex<T> {
    mutex: Mutex<T>,
    locker: AtomicUsize,
}

impl<T> TracedMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        let mutex = Mutex::new(value);
        let locker = AtomicUsize::new(0);
        Self { mutex, locker }
    }

    /// Locks it, as [`lock`] does.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.note(lock(&self.mutex))
    }

    /// Locks it, as [`lock_by`] does.
    pub(crate) fn lock_by(&self, patience: Patience) -> std::result::Result<Guard<'_, T>, IsHeld> {
        Ok(self.note(lock_by(&self.mutex, patience)?))
    }

    /// Locks it, as [`try_lock`] does.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        Some(self.note(try_lock(&self.mutex)?))
    }

    /// Waits on a condition variable, as [`wait`] does.
    pub(crate) fn wait<'a>(
        &'a self,
        condition: &Condvar,
        guard: Guard<'a, T>,
        left: Option<Duration>,
    ) -> Guard<'a, T> {
        self.note(wait(condition, guard, left))
    }

    fn note<'a>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
        // Relaxed: a figure.
        self.locker.store(ThreadNumber::own().0, Ordering::Relaxed);
        guard
    }

    /// Returns the thread that has locked it last.
    pub(crate) fn locker(&self) -> ThreadNumber {
        // Relaxed: a figure.
        ThreadNumber(self.locker.load(Ordering::Relaxed))
    }
}

/// The number by which gdb names a thread. Zero: none, or it is not known on this system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadNumber(usize);

impl ThreadNumber {
    #[inline]
    pub(crate) fn own() -> Self {
        Self(fork::this_thread())
    }
}

impl fmt::Debug for ThreadNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thread {:#x}", self.0)
    }
}

/// Another thread has held a lock for longer than a few steps take. It may have been stopped.
#[derive(Debug)]
#[must_use]
pub(crate) struct IsHeld;

/// What a thread does if another one holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It sleeps until the lock is free.
    Waits,
    /// It tries for a moment, because others rely on it.
    Tries,
}

/// How often a thread tries. In unit tests so often that another thread can step in.
const TRIES: u32 = match (
    cfg!(any(lazypool_loom, lazypool_shuttle)),
    cfg!(test) && !cfg!(miri),
) {
    (true, _) => 1,
    (_, true) => 10_000,
    _ => 64,
};

/// Locks a mutex that is held for a few steps at a time.
pub(crate) fn lock_by<T>(
    mutex: &Mutex<T>,
    patience: Patience,
) -> std::result::Result<Guard<'_, T>, IsHeld> {
    if patience == Patience::Waits {
        return Ok(lock(mutex));
    }
    for _ in 0..TRIES {
        if let Some(guard) = attempt(mutex) {
            return Ok(guard);
        }
        super::spin_loop();
    }
    Err(IsHeld)
}

/// Locks a mutex. Returns `None` if another thread holds it. In models this waits for the lock
/// instead. No thread of a model stops for good, so the lock becomes free.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<Guard<'_, T>> {
    match cfg!(any(lazypool_loom, lazypool_shuttle)) {
        true => Some(wait_for(mutex)),
        false => attempt(mutex),
    }
}

fn attempt<T>(mutex: &Mutex<T>) -> Option<Guard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(Guard::new(guard)),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(Guard::new(poisoned.into_inner())),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_locker_is_who_holds_it() {
        let (mutex, condition) = (TracedMutex::new(0), Condvar::new());
        let own = ThreadNumber::own();
        let own = || assert_eq!(mutex.locker(), own);
        let other = || {
            std::thread::scope(|scope| {
                let lock = scope.spawn(|| drop(mutex.lock()));
                lock.join().expect("a lock");
            });
        };
        let mut guard = mutex.lock();
        own();
        let guard = std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = 1;
                condition.notify_all();
            });
            while *guard == 0 {
                guard = mutex.wait(&condition, guard, None);
            }
            guard
        });
        own();
        drop(guard);
        other();
        let tried = mutex.try_lock();
        assert!(tried.is_some());
        own();
        drop(tried);
        other();
        let tried = mutex.lock_by(Patience::Tries);
        assert!(tried.is_ok());
        own();
    }
}
