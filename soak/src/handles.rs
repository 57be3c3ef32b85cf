//! Awaited tasks, in each way in which a handle can be used, and tasks that run past their limit.
//! What a handle says is compared with what its closure saw, and counted.

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

/// Captured by a closure: what became of it.
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

/// A task whose handle is there.
pub(crate) struct Awaited {
    pub(crate) handle: Handle<Value>,
    pub(crate) told: Told,
}

/// What its handle is held against.
pub(crate) struct Told {
    pub(crate) act: Act,
    pub(crate) seen: Arc<AtomicU32>,
    /// Of a group, which counts what is discarded of it.
    pub(crate) is_member: bool,
}

impl Told {
    /// What the handle has must be what the closure saw.
    fn judge(&self, outcome: Outcome, books: &Books) {
        let (seen, act) = (self.seen.load(Ordering::SeqCst), self.act);
        let is_right = match outcome {
            Ok(_) | Err(TaskError::Panicked(_)) => seen == RAN | DROPPED,
            Err(TaskError::Expired) => seen == DROPPED,
            // Its closure may still be being dropped.
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

    /// As a future that is polled by chance, too, by wakers that change.
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

    /// For some times a little; the handle, if the task has not ended by then.
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

    /// Without a wait for its task, with or without a waker that was left there.
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
        // Its value or payload, if it is there, is dropped by this thread, and may explode.
        if rng.one_in(3) {
            add(&books.handles.detached);
            as_caller(|| catch_unwind(AssertUnwindSafe(|| self.handle.detach())))
                .unwrap_or_else(defuse);
        } else {
            add(&books.handles.dropped);
            as_caller(|| defuse(self.handle));
        }
        // A worker may be waking with it.
        while Arc::strong_count(&unpark) > 1 {
            thread::yield_now();
        }
        add(&PROGRESS);
    }
}

/// Polls a future until it is ready, by wakers that change.
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

/// Options, and what they make of the task. A short limit is passed by each task that starts: else
/// nobody but the pool could tell which did. `expires`: a task whose time is up may be dropped, or
/// refused where it waits for space.
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

/// One awaited task, or one without a handle past its limit.
pub(crate) fn one(pool: &Pool, books: &Arc<Books>, rng: &mut Rng, from: From, depth: u32) {
    let plan = &books.plan;
    if from == From::OtherPool && plan.policy == WhenFull::Block {
        return;
    }
    let act = Act::random(rng, plan, depth);
    // Whoever waits for a task of its own pool may keep the worker that it needs. And where nobody
    // may be refused, none is left running.
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
    // Whether the pool counts the panic of a value that nobody takes depends on when it is left.
    let act = if waits { act } else { act.without_bomb() };
    let ticket = Ticket::new(books, act.0, act.bomb());
    let (witness, seen) = Witness::new();
    let task = move || {
        witness.run();
        body(ticket, act)
    };
    // A task of the other pool may wait for this one.
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

/// Until it has ended, cancelled or not.
fn wait(task: Awaited, books: &Books, rng: &mut Rng) {
    // The place of a queued task that is cancelled stays taken for a while: somebody may be refused.
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
