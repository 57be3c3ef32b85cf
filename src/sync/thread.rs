//! Threads of models and scenarios. `park` waits for a token, as in `std`. The functions of loom
//! and shuttle are not used for this. loom's `unpark` also wakes its thread from a wait for a
//! mutex, and the token is then lost. shuttle's `park` may return at any step, which would hide a
//! lost wake-up.

// Some of these items are `pub` because shuttle's scenarios use them. loom's models use none of
// them, so loom's build does not export them.
#![cfg_attr(lazypool_loom, allow(unreachable_pub))]

use super::{imp, Arc};
use std::cell::RefCell;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::PoisonError;

#[cfg(lazypool_shuttle)]
pub(crate) use imp::park_timeout;
pub(crate) use imp::yield_now;

#[derive(Debug)]
struct Parker {
    token: imp::PlainMutex<bool>,
    given: imp::PlainCondvar,
    /// Makes the steps before `unpark` happen before the steps after `park`, as `std` does, and
    /// orders nothing else.
    published: imp::Published,
}

imp::thread_local! {
    static CURRENT: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// A handle to a thread, like `std::thread::Thread`.
#[derive(Debug, Clone)]
pub(crate) struct Thread(Arc<Parker>);

impl Thread {
    fn new() -> Self {
        Self(Arc::new(Parker {
            token: imp::PlainMutex::new(false),
            given: imp::PlainCondvar::new(),
            published: imp::Published::new(),
        }))
    }

    pub(crate) fn unpark(&self) {
        let mut token = self.token();
        self.0.published.release(Release);
        *token = true;
        self.0.given.notify_one();
    }

    fn token(&self) -> imp::PlainMutexGuard<'_, bool> {
        (self.0.token.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the token. Returns `true` if it was there.
    fn take(&self, token: &mut bool) -> bool {
        let is_there = std::mem::take(token);
        if is_there {
            self.0.published.acquire(Acquire);
        }
        is_there
    }

    #[cfg(lazypool_shuttle)]
    pub(super) fn take_token(&self) -> bool {
        self.take(&mut self.token())
    }
}

pub(crate) fn current() -> Thread {
    CURRENT.with(|current| current.borrow_mut().get_or_insert_with(Thread::new).clone())
}

pub(crate) fn park() {
    if imp::parks_in_vain() {
        return;
    }
    let own = current();
    let mut token = own.token();
    while !own.take(&mut token) {
        token = (own.0.given.wait(token)).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A handle that waits for the end of a thread.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: imp::Joins<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Waits until the thread has ended. Returns its value.
    ///
    /// # Errors
    /// Never returns an error, because a panic that leaves a thread ends the execution.
    pub fn join(self) -> std::thread::Result<T> {
        imp::join(self.inner)
    }
}

/// Starts a thread. Unlike `Builder::spawn`, this never fails.
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let thread = Thread::new();
    let own = thread.clone();
    let inner = imp::spawn(move || {
        CURRENT.with(|current| *current.borrow_mut() = Some(own));
        f()
    });
    JoinHandle { inner, thread }
}

/// Starts threads. It ignores names and stack sizes.
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

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        if imp::refuses_thread() {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        Ok(spawn(f))
    }
}
