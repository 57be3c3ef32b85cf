//! Threads. `park` waits for a token, as in `std`. shuttle's own `park` may return at any step,
//! which would hide a lost wake-up.

use super::world::{self, Published};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub(crate) use super::world::rest as yield_now;

#[derive(Debug)]
struct Parker {
    token: Cell<bool>,
    /// `true` while the thread is in `park` or `park_timeout`. Only the thread writes it.
    parks: Cell<bool>,
    name: Option<String>,
    published: Published,
    lock: shuttle::sync::Mutex<()>,
    given: shuttle::sync::Condvar,
}

/// A handle to a thread, as `std::thread::Thread`.
#[derive(Debug, Clone)]
pub(crate) struct Thread(Arc<Parker>);

// SAFETY: the threads of an execution share one thread of the system, and switch only at scheduling
// points. No access to a cell of the handle has a scheduling point in its middle.
unsafe impl Send for Parker {}
// SAFETY: as above.
unsafe impl Sync for Parker {}

std::thread_local! {
    /// The handles of the execution's threads, by number. They are not in shuttle's thread-locals,
    /// because the destructors of those may still ask for a handle.
    static THREADS: RefCell<Vec<Option<Thread>>> = const { RefCell::new(Vec::new()) };
    /// The numbers of the threads that are in `unpark`. There they hold a lock that `std`'s
    /// `unpark` does not have.
    static UNPARKING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Forgets all threads, as a new execution begins.
pub(super) fn forget() {
    THREADS.with(|threads| threads.borrow_mut().clear());
    UNPARKING.take();
}

fn register(number: usize, thread: Thread) {
    THREADS.with(|threads| {
        let mut threads = threads.borrow_mut();
        if threads.len() <= number {
            threads.resize(number + 1, None);
        }
        threads[number] = Some(thread);
    });
}

impl Thread {
    fn new(name: Option<String>) -> Self {
        Self(Arc::new(Parker {
            token: Cell::new(false),
            parks: Cell::new(false),
            name,
            published: Published::new(),
            lock: shuttle::sync::Mutex::new(()),
            given: shuttle::sync::Condvar::new(),
        }))
    }

    #[allow(dead_code)] // as std's
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    pub(crate) fn unpark(&self) {
        let parker = &*self.0;
        UNPARKING.with_borrow_mut(|all| all.push(world::me()));
        let guard = parker.lock.lock();
        parker.published.release(false);
        parker.token.set(true);
        parker.given.notify_one();
        drop(guard);
        UNPARKING.with_borrow_mut(|all| all.retain(|thread| *thread != world::me()));
    }

    fn take_token(&self) -> bool {
        let taken = self.0.token.replace(false);
        if taken {
            self.0.published.acquire();
        }
        taken
    }
}

pub(crate) fn current() -> Thread {
    let me = world::me();
    let known = THREADS.with(|threads| threads.borrow().get(me).cloned().flatten());
    known.unwrap_or_else(|| {
        let new = Thread::new(None);
        register(me, new.clone());
        new
    })
}

pub(crate) fn park() {
    let own = current();
    world::step();
    if world::parks_in_vain() {
        return;
    }
    if own.take_token() {
        return;
    }
    own.0.parks.set(true);
    let mut guard = own.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
    while !own.take_token() {
        guard = own
            .0
            .given
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner);
    }
    own.0.parks.set(false);
}

pub(crate) fn park_timeout(limit: Duration) {
    let own = current();
    let end = world::ends_after(limit);
    world::step();
    own.0.parks.set(true);
    while !own.take_token() && !world::look(end) {}
    own.0.parks.set(false);
}

/// Returns `true` if the thread with this number is in `unpark`.
pub fn is_unparking(thread: usize) -> bool {
    UNPARKING.with_borrow(|all| all.contains(&thread))
}

/// Returns `true` if the thread with this number is parked and no thread has unparked it.
pub fn is_parked(thread: usize) -> bool {
    THREADS.with(|threads| {
        let threads = threads.borrow();
        let known = threads.get(thread).and_then(Option::as_ref);
        known.is_some_and(|known| known.0.parks.get() && !known.0.token.get())
    })
}

/// A handle that waits for the end of a thread.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: shuttle::thread::JoinHandle<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Waits until the thread has ended. Returns its value.
    ///
    /// # Errors
    /// Never returns an error: a panic that leaves a thread ends the execution.
    pub fn join(self) -> std::thread::Result<T> {
        let ended = usize::from(self.inner.thread().id());
        let value = self.inner.join();
        world::hand_on(ended, world::me());
        value
    }
}

/// Starts threads. It ignores stack sizes.
#[derive(Debug)]
pub(crate) struct Builder(Option<String>);

impl Builder {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    pub(crate) fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    pub(crate) fn stack_size(self, _: usize) -> Self {
        self
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<JoinHandle<T>> {
        world::step();
        if world::thread_is_refused() {
            // Let other threads run, so that a thread that tries again and again starves none.
            world::rest();
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        Ok(start(self.0, f))
    }
}

fn start<T: Send + 'static>(
    name: Option<String>,
    f: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let thread = Thread::new(name.clone());
    let builder = shuttle::thread::Builder::new();
    let builder = match name {
        Some(name) => builder.name(name),
        None => builder,
    };
    // The new thread may run before this thread goes on, so this is published before the start.
    let parent = world::me();
    let own = thread.clone();
    let known = Published::new();
    known.release(true);
    let known = Known(known);
    let inner = builder
        .spawn(move || {
            let known = known;
            known.0.acquire();
            register(world::me(), own);
            f()
        })
        .expect("shuttle always has one");
    debug_assert_eq!(parent, world::me());
    JoinHandle { inner, thread }
}

struct Known(Published);

// SAFETY: as for `Thread`.
unsafe impl Send for Known {}

/// Starts a thread for a scenario. The system never refuses it.
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    start(None, f)
}

/// Waits until `time` has passed by the clock of the execution.
pub fn sleep(time: Duration) {
    let end = world::ends_after(time);
    while !world::look(end) {}
}
