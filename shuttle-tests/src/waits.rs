//! Futures in line, and limited groups.

use crate::ledger::Fate;
use crate::{step, Bench, Dice, Ticket};
use lazypool::model::{judge_by, peek};
use lazypool::{Awaitable, Group, Handle, Refusal, ServeAsync};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that a thread waits for.
#[derive(Debug, Default)]
pub struct Flag {
    woken: shuttle::sync::Mutex<bool>,
    told: shuttle::sync::Condvar,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        step();
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }
}

impl Flag {
    /// Waits until the flag is woken.
    pub fn wait(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*woken {
            woken = (self.told.wait(woken)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Polls a future until it is ready, with a new waker for each poll: the last one must be woken.
pub fn block_on<F: Future + Unpin>(future: &mut F) -> F::Output {
    loop {
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&flag));
        match Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => flag.wait(),
        }
    }
}

/// The closure of a future. It returns nothing, so its ticket is dropped with the closure.
type Work = Box<dyn FnOnce() + Send>;

/// A submission that waits as a future, and was polled once. Law 22.
#[derive(Debug)]
pub struct InLine {
    bench: Arc<Bench>,
    /// `None` once the future has its answer.
    future: Option<ServeAsync<Work, ()>>,
    number: usize,
    call: u64,
    on_worker: bool,
}

/// The answer of the first poll.
#[derive(Debug)]
pub enum Polled {
    /// The submission waits in line.
    Waits(InLine),
    /// The task was accepted.
    Accepted(Handle<()>),
    /// The task was refused, and its closure came back.
    Refused(Refusal),
}

impl Bench {
    /// Polls a `serve_async` for the first time.
    pub fn poll_async(
        self: &Arc<Self>,
        on: Awaitable<'_>,
        work: impl FnOnce() + Send + 'static,
    ) -> Polled {
        let ticket: Ticket = self.ticket();
        let number = ticket.number();
        let work: Work = Box::new(move || ticket.run(work));
        let waits = InLine {
            bench: Arc::clone(self),
            future: Some(on.serve_async(work)),
            number,
            on_worker: self.is_on_worker(),
            call: self.enter(),
        };
        waits.poll(&Waker::from(Arc::new(Flag::default())))
    }
}

impl InLine {
    fn poll(mut self, waker: &Waker) -> Polled {
        let future = self.future.as_mut().expect("no answer yet");
        match Pin::new(future).poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Polled::Waits(self),
            Poll::Ready(Ok(handle)) => {
                self.answered(Fate::Accepted);
                Polled::Accepted(handle)
            }
            Poll::Ready(Err(refused)) => {
                let most = self.answered(Fate::Back);
                self.bench
                    .judge(refused.reason(), most, self.on_worker, true);
                let (closure, why) = refused.into_parts();
                drop(closure);
                Polled::Refused(why)
            }
        }
    }

    fn answered(&mut self, fate: Fate) -> u64 {
        self.future = None;
        self.bench.fate(self.number, fate);
        self.bench.leave(self.call)
    }

    /// Polls the future until it has its answer.
    pub fn wait(mut self) -> Result<Handle<()>, Refusal> {
        loop {
            let flag = Arc::new(Flag::default());
            match self.poll(&Waker::from(Arc::clone(&flag))) {
                Polled::Accepted(handle) => return Ok(handle),
                Polled::Refused(why) => return Err(why),
                Polled::Waits(waits) => self = waits,
            }
            flag.wait();
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.future.is_some() {
            // The order matters: until its future is dropped, the submission may hold a worker.
            let future = self.future.take();
            self.bench.cancelling(|| drop(future));
            self.bench.fate(self.number, Fate::Left);
            self.bench.leave(self.call);
        }
    }
}

/// A group with a limit. For each call under way it records the greatest number of pending tasks.
#[derive(Debug)]
pub struct Limited {
    group: Group,
    limit: usize,
    calls: Mutex<Vec<(u64, usize)>>,
    next: AtomicU64,
    served: AtomicU64,
}

impl Limited {
    /// Returns a new group. From now on its pending tasks are counted before each step.
    pub fn new(bench: &Bench, limit: usize) -> Arc<Self> {
        let it = Arc::new(Self {
            group: bench.pool.limited_group(limit),
            limit,
            calls: Mutex::default(),
            next: AtomicU64::new(0),
            served: AtomicU64::new(0),
        });
        let seen = Arc::downgrade(&it);
        judge_by(Box::new(move || {
            let Some(it) = seen.upgrade() else { return };
            let pending = peek(|| it.group.pending());
            let (limit, calls) = (it.limit, &it.calls);
            if let Some(pending) = pending {
                assert!(pending <= limit, "{pending} of {limit} are pending");
                for (_, most) in calls.lock().expect("no panic").iter_mut() {
                    *most = pending.max(*most);
                }
            }
        }));
        it
    }

    /// Returns the group that has the limit.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Makes a call that submits to the group and returns `true` if the group was full. Asserts
    /// that it was full only if at one moment of the call as many tasks were pending as the limit
    /// allows.
    pub fn during<R>(&self, call: impl FnOnce() -> (bool, R)) -> R {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let calls = || self.calls.lock().expect("no panic");
        calls().push((number, 0));
        let (is_full, result) = call();
        let mut calls = calls();
        let at = calls.iter().position(|(n, _)| *n == number);
        let (_, most) = calls.swap_remove(at.expect("under way"));
        assert!(
            !is_full || most >= self.limit,
            "full, with {most} of {}",
            self.limit
        );
        result
    }

    /// Counts a task of the group that was accepted.
    pub fn count(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the group's tasks. Asserts that all accepted ones have ended, and at most `left`
    /// more, which belong to futures that were dropped.
    pub fn settle(&self, left: u64) {
        self.group.wait();
        assert_eq!(self.group.pending(), 0);
        let ended = self.group.completed() + self.group.panicked() + self.group.discarded();
        let served = self.served.load(Ordering::Relaxed);
        assert!(
            (served..=served + left).contains(&(ended as u64)),
            "{served} and {left}: {:?}",
            self.group
        );
    }
}

/// Joins, awaits, cancels, detaches or drops a handle, as the dice choose.
pub fn end_handle(bench: &Bench, mut handle: Handle<()>, dice: &mut Dice) {
    match dice.below(5) {
        0 => bench.cancelling(|| drop(handle)),
        1 => handle.detach(),
        2 => drop(handle.join()),
        3 => {
            bench.cancelling(|| handle.cancel());
            drop(handle.join());
        }
        _ => drop(block_on(&mut handle)),
    }
}
