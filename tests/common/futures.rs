//! Futures without a runtime: a thread that blocks on one, wakers that count, wakers that panic.

use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread::{self, Thread};

use lazypool::{Handle, Refused, TaskError};

use super::{quiet_panic, LONG};

/// A waker that unparks the thread that blocks on a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until it is ready. Between polls the thread is parked.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// Awaits the space for a task, and then its value.
#[track_caller]
pub fn value_of<F, R>(served: impl Future<Output = Result<Handle<R>, Refused<F>>>) -> R {
    let handle = block_on(served).map_err(Refused::without_closure);
    block_on(handle.expect("space")).expect("a value")
}

/// Returns the outcome of a handle. By `turn`, joins the handle, polls it as a future, or joins it
/// with a limit.
pub fn outcome_of<R>(handle: Handle<R>, turn: u64) -> Result<R, TaskError> {
    match turn % 3 {
        0 => handle.join(),
        1 => block_on(handle),
        _ => (handle.join_timeout(LONG).map_err(drop)).expect("the task ends soon"),
    }
}

/// Polls a future once.
pub fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls a future for the first time, which must leave it pending, and returns it.
#[track_caller]
pub fn pending<F: Future + Unpin>(mut future: F, waker: &Waker) -> F {
    assert!(poll(&mut future, waker).is_pending(), "ready at once");
    future
}

/// Polls a future that must be ready, and returns its output.
#[track_caller]
pub fn ready<F: Future + Unpin>(future: &mut F, waker: &Waker) -> F::Output {
    match poll(future, waker) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future is not ready"),
    }
}

/// A waker that counts how often it is woken.
#[derive(Debug, Default)]
pub struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    pub fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns a waker that counts, and its count.
pub fn counted() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count::default());
    (Arc::clone(&count), Waker::from(count))
}

/// A waker that calls its closure.
struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Returns a waker that calls `f`.
pub fn calling(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}

/// Wakers that panic in their clone, wake or drop. The bits of their data pointer say in which.
pub struct Bad;

impl Bad {
    pub const CLONE: usize = 1;
    pub const WAKE: usize = 2;
    pub const DROP: usize = 4;

    pub fn waker(at: usize) -> Waker {
        // SAFETY: the functions of the table use only the address, and never read memory.
        unsafe { Waker::from_raw(Self::raw(std::ptr::without_provenance(at))) }
    }

    const fn raw(at: *const ()) -> RawWaker {
        RawWaker::new(at, &Self::TABLE)
    }

    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |at| {
            Self::panic_if(at, Self::CLONE, "clone");
            Self::raw(at)
        },
        |at| Self::panic_if(at, Self::WAKE, "wake"),
        |_| unreachable!("wakers are woken by value"),
        |at| {
            if !thread::panicking() {
                Self::panic_if(at, Self::DROP, "drop");
            }
        },
    );

    fn panic_if(at: *const (), what: usize, name: &'static str) {
        if at.addr() & what != 0 {
            quiet_panic(name);
        }
    }
}
