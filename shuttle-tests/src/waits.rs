//! Handles, futures in line, and threads that wait for each other.

use crate::ledger::Fate;
use crate::{planned_panic, step, ticks, Adds, Dice, Rig, Team, Ticket};
use lazypool::{Awaitable, Handle, Refusal, ServeAsync, TaskError};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Lets others run until `is_over` holds.
pub fn wait_until(mut is_over: impl FnMut() -> bool) {
    while !is_over() {
        shuttle::thread::yield_now();
    }
}

/// Returns a flag, and a task that runs until the flag is set.
pub fn gate() -> (Arc<AtomicBool>, impl FnOnce() + Send + 'static) {
    let flag = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&flag);
    (flag, move || wait_until(|| its.load(Ordering::SeqCst)))
}

/// A barrier: no thread goes on before all have arrived.
#[derive(Debug)]
pub struct Meeting {
    missing: shuttle::sync::Mutex<u64>,
    all: shuttle::sync::Condvar,
}

impl Meeting {
    /// Returns a barrier for `members` threads.
    pub fn of(members: u64) -> Arc<Self> {
        Arc::new(Self {
            missing: shuttle::sync::Mutex::new(members),
            all: shuttle::sync::Condvar::new(),
        })
    }

    /// Arrives at the barrier, and waits for the others.
    pub fn meet(&self) {
        self.arrive();
        self.wait();
    }

    /// Waits until all have arrived.
    pub(crate) fn wait(&self) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        while *missing > 0 {
            missing = (self.all.wait(missing)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Arrives at the barrier, and goes on.
    pub fn arrive(&self) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.all.notify_all();
    }
}

/// A waker that a thread waits for. Each wake takes a step; with `panics`, it then panics.
struct Flag {
    woken: Arc<Meeting>,
    panics: bool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        step();
        // A waker that is called twice makes the count negative, which panics.
        self.woken.arrive();
        if self.panics {
            planned_panic();
        }
    }
}

/// Polls a future until it is ready, with a new waker for each poll: the last one must be woken,
/// and none twice.
pub fn block_on<F: Future + Unpin>(future: &mut F, dice: &mut Dice) -> F::Output {
    let mut polls = 0;
    loop {
        let flag = Flag {
            woken: Meeting::of(1),
            panics: dice.one_in(4),
        };
        let woken = Arc::clone(&flag.woken);
        let waker = Waker::from(Arc::new(flag));
        match Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending if polls < 3 && dice.one_in(2) => {}
            Poll::Pending => woken.wait(),
        }
        polls += 1;
    }
}

type Work = Box<dyn FnOnce() -> Ticket + Send>;

/// A submission that waits as a future, and was polled once. Law 22.
#[derive(Debug)]
pub struct InLine {
    rig: Arc<Rig>,
    /// `None` once the future has its answer.
    future: Option<ServeAsync<Work, Ticket>>,
    number: usize,
    call: u64,
    on_worker: bool,
}

/// A handle, and the number of its task's ticket.
#[derive(Debug)]
pub struct Held(Handle<Ticket>, usize);

impl Rig {
    /// Submits a task that does `work` and returns its handle.
    pub fn handle(
        &self,
        on: Awaitable<'_>,
        adds: Adds,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<Held, Refusal> {
        let (number, task) = self.task(work);
        self.books.book().tickets[number].delivered = true;
        let handle = self.submit(number, adds, task, |f| on.serve(f))?;
        Ok(Held(handle, number))
    }

    /// Polls a `serve_async` for the first time. Returns `Ok` with the future if it waits.
    pub fn serve_async(
        self: &Arc<Self>,
        on: Awaitable<'_>,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<InLine, Result<Held, Refusal>> {
        let (number, task) = self.task(work);
        self.books.book().tickets[number].delivered = true;
        let work: Work = Box::new(task);
        let mut waits = InLine {
            rig: Arc::clone(self),
            future: Some(on.serve_async(work)),
            number,
            on_worker: self.is_on_worker(),
            call: self.enter(),
        };
        match Pin::new(&mut waits).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(waits),
            Poll::Ready(answer) => Err(answer),
        }
    }
}

impl InLine {
    /// Polls the future, so that it stores the waker. Returns `None` if it has its answer.
    pub fn register(mut self, waker: &Waker) -> Option<Self> {
        match Pin::new(&mut self).poll(&mut Context::from_waker(waker)) {
            Poll::Pending => Some(self),
            Poll::Ready(answer) => {
                let rig = Arc::clone(&self.rig);
                rig.cancelling(|| drop(answer));
                None
            }
        }
    }
}

impl Future for InLine {
    type Output = Result<Held, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = self.future.as_mut().expect("no answer yet");
        let Poll::Ready(answer) = Pin::new(future).poll(cx) else {
            return Poll::Pending;
        };
        self.future = None;
        let most = self.rig.leave(self.call);
        Poll::Ready(match answer {
            Ok(handle) => {
                self.rig.books.fate(self.number, Fate::Accepted);
                Ok(Held(handle, self.number))
            }
            Err(refused) => {
                let why = refused.reason();
                self.rig.judge(why, most, false, self.on_worker, true);
                self.rig.has_refused(self.number, why);
                let (closure, why) = refused.into_parts();
                drop(closure);
                Err(why)
            }
        })
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            // The order matters: until its future is dropped, the submission may hold a worker.
            self.rig.cancelling(|| drop(future));
            self.rig.books.fate(self.number, Fate::Left);
            self.rig.leave(self.call);
        }
    }
}

/// Submits as a future, to the team's group or not; then awaits space, leaves the line, or stays in
/// it unpolled. The latter are kept in `kept`.
pub fn await_space(rig: &Arc<Rig>, team: Option<&Team>, kept: &mut Vec<InLine>, dice: &mut Dice) {
    let steps = dice.below(4);
    let work = move || (0..steps).for_each(|_| step());
    let polled = match team {
        None => rig.serve_async(rig.pool.awaitable(), work),
        Some(team) => {
            let call = || rig.serve_async(team.group.awaitable(), work);
            team.during(call, |polled| polled.as_ref().err()?.as_ref().err())
        }
    };
    let answer = match polled {
        Err(answer) => answer,
        Ok(mut waits) => match (dice.below(4), team) {
            (0, None) => return kept.push(waits),
            (0 | 1, _) => {
                dice.pause(20);
                team.inspect(|team| team.leaves());
                return;
            }
            _ => block_on(&mut waits, dice),
        },
    };
    if let Ok(held) = answer {
        team.inspect(|team| team.count());
        held.end(rig, dice);
    }
}

impl Held {
    /// Waits for the value of a task that does not panic and is not discarded.
    pub fn join(self) {
        let Self(handle, number) = self;
        let value = handle.join().expect("it runs, and does not panic");
        assert_eq!(value.number, number);
    }

    /// Polls the handle, so that it stores the waker. Returns `None` if the task has ended.
    pub fn register(mut self, waker: &Waker) -> Option<Self> {
        let polled = Pin::new(&mut self.0).poll(&mut Context::from_waker(waker));
        polled.is_pending().then_some(self)
    }

    /// Drops, detaches or cancels the handle, as the dice choose, and does not wait for it.
    pub fn leave(self, rig: &Rig, dice: &mut Dice) {
        let Self(handle, _) = self;
        dice.pause(20);
        match dice.below(3) {
            0 => rig.cancelling(|| drop(handle)),
            1 => rig.cancelling(|| handle.cancel()),
            _ => handle.detach(),
        }
    }

    /// Joins, awaits, cancels, detaches or drops the handle, as the dice choose. Asserts that the
    /// outcome is what the ledger says of the task.
    pub fn end(self, rig: &Rig, dice: &mut Dice) {
        let Self(mut handle, number) = self;
        dice.pause(20);
        if dice.one_in(4) {
            rig.cancelling(|| handle.cancel());
        }
        let outcome = match dice.below(6) {
            0 => return rig.cancelling(|| drop(handle)),
            1 => return handle.detach(),
            2 => handle.join(),
            3 => match handle.join_timeout(ticks(dice.below(20))) {
                Ok(outcome) => outcome,
                Err(handle) if dice.one_in(2) => return rig.cancelling(|| drop(handle)),
                Err(mut handle) => block_on(&mut handle, dice),
            },
            _ => block_on(&mut handle, dice),
        };
        let known = rig.books.book().tickets[number];
        match outcome {
            Ok(value) => assert_eq!((value.number, known.runs), (number, 1)),
            Err(TaskError::Panicked(_)) => assert!(known.reported && known.may_have_panicked()),
            Err(TaskError::Cancelled | TaskError::Discarded) => assert_eq!(known.runs, 0),
            Err(other) => panic!("it has no deadline: {other:?}"),
        }
    }
}
