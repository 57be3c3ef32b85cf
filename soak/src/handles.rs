//! Awaited tasks, with every use of a handle, and tasks that run past their limit. The outcome that
//! a handle gives is compared with the events that its closure saw, and counted.

use crate::books::{add, as_caller, Books, Ticket, Value, PROGRESS};
use crate::load::{body, check, check_refusal, defuse, take_back, Act, From, LABEL, LONG};
use crate::rng::Rng;
use lazypool::{Handle, Pool, Refused, Submitter, TaskError, WhenFull};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

const RAN: u32 = 1;
const DROPPED: u32 = 2;

/// Captured by a closure, to record whether it ran and was dropped.
pub(crate) struct Witness(Arc<AtomicU32>);

impl Witness {
    pub(crate) fn new() -> (Self, Arc<AtomicU32>) {
        let seen = Arc::new(AtomicU32::new(0));
        (Self(Arc::clone(&seen)), seen)
    }

    pub(crate) fn run(&self) {
        self.0.fetch_or(RAN, Ordering::SeqCst);
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.0.fetch_or(DROPPED, Ordering::SeqCst);
    }
}

type Outcome = Result<Value, TaskError>;

/// An accepted task, with its handle.
pub(crate) struct Awaited {
    pub(crate) handle: Handle<Value>,
    pub(crate) told: Told,
}

/// The expectations against which a handle's outcome is checked.
pub(crate) struct Told {
    pub(crate) act: Act,
    pub(crate) seen: Arc<AtomicU32>,
    /// `true` if the task belongs to a group, which itself counts its discarded tasks.
    pub(crate) is_member: bool,
}

impl Told {
    /// Asserts that the handle's outcome is in accord with the events that the closure saw.
    fn judge(&self, outcome: Outcome, books: &Books) {
        let (seen, act) = (self.seen.load(Ordering::SeqCst), self.act);
        let is_right = match outcome {
            Ok(_) | Err(TaskError::Panicked(_)) => seen == RAN | DROPPED,
            Err(TaskError::Expired) => seen == DROPPED,
            // The closure of a discarded task may not be dropped yet.
            Err(_) => seen & RAN == 0,
        };
        check!(is_right, "its closure saw {seen}: {outcome:?}");
        match outcome {
            Ok(value) => {
                check!(!act.panics(), "a panic was lost: {act:?}");
                check!(value.arrived() == act.0, "another task's result");
                add(&books.handles.values);
            }
            Err(TaskError::Panicked(panic)) => {
                check!(act.panics(), "an unmeant panic: {panic:?}");
                defuse(panic);
                add(&books.handles.panics);
            }
            Err(TaskError::Expired) => add(&books.handles.expired),
            Err(_) if self.is_member => {}
            Err(_) => add(&books.handles.discarded),
        }
        add(&PROGRESS);
    }
}

impl Awaited {
    pub(crate) fn join(self, books: &Books) {
        self.told.judge(self.handle.join(), books);
    }

    /// Awaits the handle as a future. Sometimes polls it without a wake-up; the wakers change.
    fn block_on(mut self, books: &Books, rng: &mut Rng) {
        let mut wakers = [unparker(), unparker()];
        let outcome = loop {
            wakers.swap(0, 1);
            match self.poll(&Waker::from(Arc::clone(&wakers[0]))) {
                Poll::Ready(outcome) => break outcome,
                Poll::Pending if rng.one_in(4) => thread::yield_now(),
                Poll::Pending => thread::park(),
            }
        };
        self.told.judge(outcome, books);
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Outcome> {
        Pin::new(&mut self.handle).poll(&mut Context::from_waker(waker))
    }

    /// Joins for a short time, once or several times. Returns the handle if the task has not ended
    /// by then.
    fn join_for(self, books: &Books, rng: &mut Rng) -> Option<Self> {
        let Self { mut handle, told } = self;
        for _ in 0..1 + rng.below(3) {
            match handle.join_timeout(rng.micros(300)) {
                Ok(outcome) => {
                    told.judge(outcome, books);
                    return None;
                }
                Err(back) => handle = back,
            }
        }
        Some(Self { handle, told })
    }

    /// Drops or detaches the handle without a wait, and may leave a waker with the task.
    fn leave(mut self, books: &Books, rng: &mut Rng) {
        let unpark = unparker();
        if rng.one_in(2) {
            if let Poll::Ready(outcome) = self.poll(&Waker::from(Arc::clone(&unpark))) {
                return self.told.judge(outcome, books);
            }
        }
        if rng.one_in(4) {
            thread::sleep(rng.micros(300));
        }
        // If the value or payload is there, this thread drops it, and that drop may panic.
        if rng.one_in(3) {
            add(&books.handles.detached);
            as_caller(|| catch_unwind(AssertUnwindSafe(|| self.handle.detach())))
                .unwrap_or_else(defuse);
        } else {
            add(&books.handles.dropped);
            as_caller(|| defuse(self.handle));
        }
        // A worker may still be calling the waker.
        while Arc::strong_count(&unpark) > 1 {
            thread::yield_now();
        }
        add(&PROGRESS);
    }
}

/// Polls a future until it is ready, with a new waker for each poll.
pub(crate) fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    loop {
        let waker = Waker::from(unparker());
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn unparker() -> Arc<Unpark> {
    Arc::new(Unpark(thread::current()))
}

/// Draws options, and adapts the task to them. A task with a short limit that starts always runs
/// past that limit: otherwise only the pool would know which tasks did. `expires` is `true` if the
/// task may expire, in the queue or while it waits for space.
fn options<'a>(pool: &'a Pool, rng: &mut Rng, act: Act, expires: bool) -> (Submitter<'a>, Act) {
    let label = rng.one_in(3);
    let tasks = if label {
        pool.labeled(LABEL)
    } else {
        pool.run_limit(Duration::MAX)
    };
    let act = act.labeled(label);
    let short = rng.micros(2_000) + Duration::from_nanos(1);
    match rng.below(8) {
        0 => (tasks.run_limit(LONG), act),
        1 => (tasks.with_deadline(LONG), act),
        2 => (tasks.run_limit(short), act.overrunning()),
        3 if expires => (tasks.with_deadline(short), act.overrunning()),
        4 if expires => {
            let tasks = tasks.with_deadline(short).run_limit(short / 2);
            (tasks, act.overrunning())
        }
        _ => (tasks, act.without_end(true)),
    }
}

/// Submits one awaited task, or one task without a handle, and with any options.
pub(crate) fn one(pool: &Pool, books: &Arc<Books>, rng: &mut Rng, from: From, depth: u32) {
    let plan = &books.plan;
    if from == From::OtherPool && plan.policy == WhenFull::Block {
        return;
    }
    let act = Act::random(rng, plan, depth);
    // A task that waits for another task of its own pool may keep the worker that the other needs.
    // And if no call may be refused, no task may be left running.
    let waits = from == From::Outside && (plan.careful || rng.one_in(2));
    let was_closed = pool.is_closed();
    let expires = waits && plan.policy != WhenFull::Block;
    let (tasks, act) = options(pool, rng, act, expires);
    if !waits && rng.one_in(5) {
        let ticket = Ticket::new(books, act.0, act.bomb());
        let served = tasks.serve(move || drop(body(ticket, act)));
        add(&PROGRESS);
        check!(
            !(was_closed && served.is_ok()),
            "accepted after shutdown: {pool:?}"
        );
        return served.unwrap_or_else(|refused| refuse(refused, pool, books, rng, from));
    }
    // If no caller takes the value, the pool counts the panic of the value's drop or does not,
    // which depends on the moment at which the handle is dropped. So such a value must not panic.
    let act = if waits { act } else { act.without_bomb() };
    let ticket = Ticket::new(books, act.0, act.bomb());
    let (witness, seen) = Witness::new();
    let task = move || {
        witness.run();
        body(ticket, act)
    };
    // A task of the other pool must not await space here, because a task of this pool may wait for
    // it.
    let awaits = from != From::OtherPool && rng.one_in(3);
    let served = if !awaits {
        Some(tasks.awaitable().serve(task))
    } else if waits {
        Some(block_on(tasks.awaitable().serve_async(task)))
    } else {
        let future = tasks.awaitable().serve_async(task);
        poll_or_leave(future, &seen, books, rng, from)
    };
    let Some(served) = served else { return };
    add(&PROGRESS);
    check!(
        !(was_closed && served.is_ok()),
        "accepted after shutdown: {pool:?}"
    );
    let told = Told {
        act,
        seen,
        is_member: false,
    };
    let task = match served {
        Ok(handle) => Awaited { handle, told },
        Err(refused) => return refuse(refused, pool, books, rng, from),
    };
    if waits {
        wait(task, books, rng);
    } else {
        leave(task, books, rng);
    }
}

/// Polls a future once. If it is in line, drops it after a while.
fn poll_or_leave<F: Future + Unpin>(
    mut future: F,
    seen: &AtomicU32,
    books: &Books,
    rng: &mut Rng,
    from: From,
) -> Option<F::Output> {
    let waker = Waker::from(unparker());
    if let Poll::Ready(served) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
        return Some(served);
    }
    check!(from == From::Outside, "it waits on a worker");
    thread::sleep(rng.micros(300));
    as_caller(|| defuse(future));
    if seen.load(Ordering::SeqCst) & RAN == 0 {
        add(&books.left);
    }
    add(&PROGRESS);
    None
}

/// Waits until the task has ended, and may cancel it first.
fn wait(task: Awaited, books: &Books, rng: &mut Rng) {
    // A queued task that is cancelled keeps its place for a while, so another call may be refused:
    // a careful load does not cancel.
    let ways = if books.plan.careful { 3 } else { 4 };
    match rng.below(ways) {
        0 => task.join(books),
        1 => task.block_on(books, rng),
        2 => {
            if let Some(task) = task.join_for(books, rng) {
                task.join(books);
            }
        }
        _ => {
            if rng.one_in(2) {
                thread::sleep(rng.micros(100));
            }
            task.handle.cancel();
            task.join(books);
        }
    }
}

fn leave(task: Awaited, books: &Books, rng: &mut Rng) {
    if rng.one_in(3) {
        if let Some(task) = task.join_for(books, rng) {
            task.leave(books, rng);
        }
        return;
    }
    if rng.one_in(4) {
        task.handle.cancel();
    }
    task.leave(books, rng);
}

fn refuse<F: FnOnce() -> R, R>(
    refused: Refused<F>,
    pool: &Pool,
    books: &Books,
    rng: &mut Rng,
    from: From,
) {
    check_refusal(pool, refused.reason(), &books.plan, from);
    take_back(refused, books, rng);
}
