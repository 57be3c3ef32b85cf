//! `do_with_deadline`: a caller, its task and their two decisions.
//!
//! The caller's block, a [`Waiter`], lies on the caller's stack; the closure
//! travels in the task. Nothing is allocated. Two races are decided, each by
//! one atomic transition:
//!
//! **Start.** Until a worker starts the task, the caller may take it back. In a
//! slot's mailbox that is `OFFERED -> RUNNING` (worker) against
//! `OFFERED -> HELD` (caller) on the status word, in the queue
//! `FULL_W -> TAKEN` (worker) against `FULL_W -> LOCKED` (caller) on the cell's
//! stamp. Who wins owns the closure.
//!
//! **End.** A started task's result belongs to whoever moves the *decision
//! word* of the worker's slot, which outlives the caller:
//!
//! | from | to | by | then |
//! |---|---|---|---|
//! | anything | `RUNNING(t)` | worker, at start | it has copied what it needs of the block; the caller may leave from now on |
//! | `RUNNING(t)` | `COMPLETING(t)` | worker | it becomes free, counts, writes the result into the block, raises `done` |
//! | `RUNNING(t)` | `LEAVING(t)` | caller, at its deadline | the worker never touches the block again, drops the result itself |
//! | `LEAVING(t)` | `ABANDONED(t)` | caller | it has left its deadline in the slot; `TimedOut` |
//! | `ABANDONED(t)` | 0 | worker | the result has been dropped |
//! | `RUNNING(t)` | `PINNED(t)` and back | worker, in `task::deadline` | it reads the deadline in the block; the caller waits a moment before it leaves |
//!
//! The ticket `t` names the task uniquely (the slot's claim number, or the
//! queue position with a bit of its own), so a caller that reads the word of a
//! slot that has moved on can tell. A caller that loses the first race finds
//! the ticket on the word, or `done`, within a few instructions of the worker;
//! one that loses the second finds `done`. The worker's last touch of the block
//! is raising `done`; where the caller is parked, its handle is cloned before.
//!
//! **The clock** is read only once the task is on its way, so that it costs the
//! caller nothing while a worker is at work. The deadline is therefore not in the
//! task but in the caller's block.

use crate::deadline::Deadline;
use crate::error::{DeadlineError, Panic, Refusal, Refused, Unrun};
use crate::observe;
use crate::park::{Nearly, Spin, Step};
use crate::shared::{Denied, Patience, Place, Shared};
use crate::slot::Own;
use crate::sync::{thread, Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::task::{Ctx, End, Job, Payload, Release, Task};
use std::cell::Cell;
use std::time::Duration;

std::thread_local! {
    /// See [`Spin::offering`]. It needs no destructor, so it can always be asked.
    static OFFERS: Cell<bool> = const { Cell::new(false) };
}

const WAITING: u32 = 0;
const PARKED: u32 = 1;
const DONE: u32 = 2;

/// The untyped part of a caller's block.
#[derive(Debug)]
pub(crate) struct WaiterHead {
    /// `WAITING -> PARKED` (caller) and either `-> DONE` (worker).
    done: AtomicU32,
    /// Slot + 1 of the worker that took the task from the queue.
    place: AtomicU32,
    /// Written by the caller before `PARKED`, read by the worker after it.
    thread: UnsafeCell<Option<thread::Thread>>,
    label: Option<&'static str>,
    /// Nanoseconds after the pool's epoch, plus one, once the caller has read the
    /// clock; [`NO_DEADLINE`] where that is too far away for an `Instant`.
    deadline: AtomicU64,
    /// Tells loom when the block goes, and who touches it.
    #[cfg(lazypool_loom)]
    alive: UnsafeCell<()>,
}

#[cfg(lazypool_loom)]
impl Drop for WaiterHead {
    fn drop(&mut self) {
        self.alive.with_mut(|_| ());
        self.thread.with_mut(|_| ());
    }
}

/// See [`WaiterHead`].
const NO_DEADLINE: u64 = u64::MAX;

impl WaiterHead {
    /// Worker: reads or writes the block after this.
    #[inline(always)]
    fn touch(&self) {
        #[cfg(lazypool_loom)]
        self.alive.with(|_| ());
    }

    /// Caller: tells its task when the deadline is.
    fn set_deadline(&self, shared: &Shared, deadline: &Deadline) {
        let after = deadline.instant().map_or(NO_DEADLINE, |at| {
            let after = at.saturating_duration_since(shared.epoch).as_nanos() + 1;
            // Beyond 584 years, 584 years.
            u64::try_from(after).map_or(NO_DEADLINE - 1, |n| n.min(NO_DEADLINE - 1))
        });
        // Relaxed: whoever reads it needs nothing else.
        self.deadline.store(after, Ordering::Relaxed);
    }

    fn is_done(&self) -> bool {
        // Acquire: pairs with the release in `release`; the outcome is written.
        self.done.load(Ordering::Acquire) == DONE
    }

    /// Waits until the outcome is there; `false` if the deadline came first.
    fn wait(&self, deadline: &Deadline, parallel: bool) -> bool {
        let mut spin = Spin::new(parallel).offering(OFFERS.get());
        loop {
            if self.is_done() {
                OFFERS.set(spin.has_offered());
                return true;
            }
            match spin.step() {
                Step::Spun => {}
                Step::Yielded if deadline.has_passed() => return self.is_done(),
                Step::Yielded => {}
                Step::Spent => break,
            }
        }
        OFFERS.set(false);
        // Relaxed: only this thread sets PARKED, and DONE is looked for below.
        if self.done.load(Ordering::Relaxed) == WAITING {
            // SAFETY: only this thread writes it, before PARKED; the worker
            // reads it after it has seen PARKED.
            self.thread
                .with_mut(|t| unsafe { *t = Some(thread::current()) });
            // Release: publishes the handle to `release`'s Acquire. A failure
            // means DONE, which the loop reads again with Acquire.
            let _ =
                self.done
                    .compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Relaxed);
        }
        loop {
            if self.is_done() {
                return true;
            }
            if deadline.has_passed() {
                return false;
            }
            deadline.park();
        }
    }

    /// Tells the caller that its outcome is there.
    ///
    /// # Safety
    /// `this` is the block of a caller that still waits, its outcome is
    /// written, and this is the one call for it.
    pub(crate) unsafe fn release(this: *const Self) {
        // SAFETY: the caller leaves only after DONE (it lost the decision), so
        // the block is alive until the transition below that sets it.
        let done = unsafe {
            (*this).touch();
            &(*this).done
        };
        // Release: publishes the outcome and all that the worker did before to
        // `is_done`'s Acquire. Acquire on failure: the handle written before PARKED.
        if done
            .compare_exchange(WAITING, DONE, Ordering::Release, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        // SAFETY: PARKED was seen with Acquire, so the handle is written and
        // no longer changes; the block is alive, as above.
        let caller = unsafe { (*this).thread.with(|t| (*t).clone()) };
        // Release: as above.
        done.swap(DONE, Ordering::Release);
        if let Some(caller) = caller {
            caller.unpark();
        }
    }
}

enum Outcome<R> {
    Pending,
    Value(R),
    Panicked(Payload),
    /// A shutdown discarded the task before it started.
    Returned(Task),
}

/// A caller's block. Aligned so that the worker's touches share no line with
/// the caller's own variables.
#[repr(C, align(64))]
struct Waiter<R> {
    head: WaiterHead,
    /// Written by the worker (or discarder) that owns it by decision, before
    /// `done`; read by the caller after it.
    outcome: UnsafeCell<Outcome<R>>,
}

impl<R> Waiter<R> {
    /// # Safety
    /// The one writer by decision, before `done` is raised.
    unsafe fn write(this: *const Self, outcome: Outcome<R>) {
        // SAFETY: the block is alive and nobody else touches the outcome until
        // `done`. The value replaced is `Pending`, which needs no drop.
        unsafe { (*this).outcome.with_mut(|o| o.write(outcome)) };
    }
}

/// The task of a caller that waits.
struct WaitJob<F, R> {
    waiter: *const Waiter<R>,
    /// What the worker needs to know before it has a result to write: here rather
    /// than in the block, whose line it then touches once and not twice.
    labelled: bool,
    timed: bool,
    f: F,
}

impl<F: FnOnce() -> R, R> Job for WaitJob<F, R> {
    const AWAITED: bool = true;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        let Self {
            waiter,
            labelled,
            timed,
            f,
        } = self;
        let label = if labelled {
            // SAFETY: the task has been started, and the caller cannot leave
            // before `start` publishes the ticket: its block is alive.
            let head = unsafe { &(*waiter).head };
            head.touch();
            head.label
        } else {
            None
        };
        let decision = Decision::of(ctx.own(), ctx.ticket.get());
        decision.start();
        // SAFETY: only the address is taken.
        let head = unsafe { std::ptr::addr_of!((*waiter).head) };
        // SAFETY: as above for a queued task: its caller cannot leave before it
        // has been told the place.
        unsafe { decision.publish_place(head, ctx.slot) };

        let mut panicked = false;
        let result = ctx.with_label(label, || {
            ctx.with_caller(decision.running(), timed.then_some(head), || {
                let result = ctx.call(f);
                panicked = result.is_err();
                if decision.complete() {
                    return Some(result);
                }
                match result {
                    Ok(value) => panicked = ctx.drop_reported(value),
                    Err(payload) => crate::task::drop_payload(payload),
                }
                decision.forget();
                None
            })
        });
        end(panicked);
        if let Some(result) = result {
            let outcome = match result {
                Ok(value) => Outcome::Value(value),
                Err(payload) => Outcome::Panicked(payload),
            };
            // Only now, so that the caller's line, which it polls, is taken from
            // it once and not twice.
            // SAFETY: the decision is won: the caller waits for `done`.
            unsafe {
                Waiter::write(waiter, outcome);
                WaiterHead::release(head);
            }
        }
    }

    fn discard(self) -> Release {
        let waiter = self.waiter;
        // SAFETY: the discarder took the task out of the queue, so the caller
        // can neither withdraw nor leave; it waits for `done`, and is where the
        // job came from.
        unsafe {
            Waiter::write(waiter, Outcome::Returned(Task::renew(self)));
            Release::Caller(std::ptr::addr_of!((*waiter).head))
        }
    }
}

const RUNNING: u64 = 1;
const COMPLETING: u64 = 2;
const ABANDONED: u64 = 3;
const PINNED: u64 = 4;
const LEAVING: u64 = 5;
const STATE: u64 = 7;
const QUEUED: u64 = 8;
const TICKET_SHIFT: u32 = 4;

/// The ticket of the task claimed as the slot's `claim`-th.
#[inline]
pub(crate) fn mailbox_ticket(claim: u64) -> u64 {
    claim << TICKET_SHIFT
}

/// The ticket of the task at a queue position.
#[inline]
pub(crate) fn queue_ticket(position: u64) -> u64 {
    position << TICKET_SHIFT | QUEUED
}

/// Whether the word says that its task's caller has left.
pub(crate) fn is_abandoned(word: u64) -> bool {
    matches!(word & STATE, LEAVING | ABANDONED)
}

/// The running task's deadline, as [`WaiterHead`] has it; `head` is its caller's
/// block, alive as long as the decision word says that the caller waits.
pub(crate) fn deadline_of(own: &Own, ticket: u64, head: *const WaiterHead) -> Option<u64> {
    let deadline = Decision::of(own, ticket).deadline(head, &own.left_at);
    (deadline != NO_DEADLINE).then(|| deadline - 1)
}

/// The decision word of a slot, seen by the two parties of one ticket.
struct Decision<'a> {
    word: &'a AtomicU64,
    ticket: u64,
}

/// What a caller at its deadline finds.
enum Leave {
    Left,
    Outcome,
    NotYet,
}

impl<'a> Decision<'a> {
    fn of(own: &'a Own, ticket: u64) -> Self {
        Self {
            word: &own.decide,
            ticket,
        }
    }

    fn running(&self) -> u64 {
        self.ticket | RUNNING
    }

    /// Worker: the task runs.
    fn start(&self) {
        // Release: what was copied from the caller's block was copied before;
        // pairs with the Acquire in `leave`. A swap, not a store, for loom.
        self.word.swap(self.running(), Ordering::AcqRel);
    }

    /// Worker: tells the caller of a queued task whose decision word to look at.
    /// For a mailbox task this does nothing: its caller knows, and may have left.
    ///
    /// # Safety
    /// `head` is this ticket's block, and its caller waits for the place.
    unsafe fn publish_place(&self, head: *const WaiterHead, slot: usize) {
        if self.ticket & QUEUED != 0 {
            // Release: publishes `start` to the Acquire in `leave`.
            // SAFETY: alive until this store, by this function's contract.
            let head = unsafe { &*head };
            head.touch();
            head.place.store(slot as u32 + 1, Ordering::Release);
        }
    }

    /// Worker: tries to become the owner of the outcome.
    fn complete(&self) -> bool {
        // Either way the loser acts on the word alone; the outcome itself is
        // published by `done`. Acquire: pairs with `leave`'s Release.
        self.word
            .compare_exchange(
                self.running(),
                self.ticket | COMPLETING,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// Worker: an abandoned task has ended.
    fn forget(&self) {
        self.await_left();
        self.word.swap(0, Ordering::Relaxed);
    }

    /// Worker: waits for a caller that is just leaving.
    fn await_left(&self) {
        let mut nearly = Nearly::default();
        // Acquire: pairs with the Release in `leave`.
        while self.word.load(Ordering::Acquire) == self.ticket | LEAVING {
            nearly.wait();
        }
    }

    /// Worker, during the task: the deadline that its caller has told it.
    fn deadline(&self, head: *const WaiterHead, left_at: &AtomicU64) -> u64 {
        // AcqRel: what the caller does next comes after this and before.
        if self
            .word
            .compare_exchange(
                self.running(),
                self.ticket | PINNED,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_err()
        {
            self.await_left();
            // Relaxed: the word was read with Acquire.
            return left_at.load(Ordering::Relaxed);
        }
        // SAFETY: pinned: the caller cannot leave, its block is alive.
        let head = unsafe { &*head };
        head.touch();
        let mut nearly = Nearly::default();
        let deadline = loop {
            match head.deadline.load(Ordering::Relaxed) {
                0 => nearly.wait(), // it is reading the clock
                deadline => break deadline,
            }
        };
        // Release: the block has been read; pairs with the Acquire in `leave`.
        self.word.swap(self.running(), Ordering::AcqRel);
        deadline
    }

    /// Caller: tries to leave a started task.
    fn leave(&self, deadline: u64, left_at: &AtomicU64) -> Leave {
        let seen = self.word.load(Ordering::Acquire);
        if seen == self.running() {
            // Release: what the caller did happens before the worker's drop of
            // the result; pairs with `complete`'s Acquire on failure.
            let left = self.word.compare_exchange(
                seen,
                self.ticket | LEAVING,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            return match left {
                Ok(_) => {
                    // Relaxed: published by what follows.
                    left_at.store(deadline, Ordering::Relaxed);
                    // Release: pairs with `await_left`.
                    self.word.swap(self.ticket | ABANDONED, Ordering::AcqRel);
                    Leave::Left
                }
                Err(now) if now == self.ticket | COMPLETING => Leave::Outcome,
                Err(_) => Leave::NotYet, // pinned
            };
        }
        if seen == self.ticket | COMPLETING {
            Leave::Outcome
        } else {
            Leave::NotYet
        }
    }
}

/// Runs `f` on the pool and waits for it until the deadline.
pub(crate) fn do_with_deadline<F, R>(
    shared: &Arc<Shared>,
    label: Option<&'static str>,
    f: F,
    limit: Duration,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    if limit.is_zero() {
        Err(DeadlineError::Expired(Unrun::new(f)))
    } else {
        do_until(shared, label, f, &Deadline::after(limit))
    }
}

pub(crate) fn do_until<F, R>(
    shared: &Arc<Shared>,
    label: Option<&'static str>,
    f: F,
    deadline: &Deadline,
) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let waiter = Waiter {
        head: WaiterHead {
            done: AtomicU32::new(WAITING),
            place: AtomicU32::new(0),
            thread: UnsafeCell::new(None),
            label,
            deadline: AtomicU64::new(0),
            #[cfg(lazypool_loom)]
            alive: UnsafeCell::new(()),
        },
        outcome: UnsafeCell::new(Outcome::Pending),
    };
    // SAFETY: F and R are Send and 'static. The block outlives every touch of it:
    // `wait_for` returns only with the task back in hand, with `done` seen, or
    // with the decision won.
    let task = unsafe { erase(&waiter, !deadline.is_never(), f) };
    let (task, why) = match wait_for(shared, &waiter.head, task, deadline) {
        How::TimedOut => return Err(DeadlineError::TimedOut),
        How::Back(task, why) => (task, why),
        How::Outcome => {
            // SAFETY: `done` was seen with Acquire: the outcome is written, and
            // nobody else touches the block any more.
            let outcome = waiter
                .outcome
                .with_mut(|o| unsafe { o.replace(Outcome::Pending) });
            match outcome {
                Outcome::Value(value) => return Ok(value),
                Outcome::Panicked(payload) => {
                    return Err(DeadlineError::Panicked(Panic::new(payload)))
                }
                Outcome::Returned(task) => (task, Denied::Refused(Refusal::Closed)),
                Outcome::Pending => unreachable!("`done` is raised after the outcome is written"),
            }
        }
    };
    // SAFETY: only this call's task comes back to it.
    Err(unsafe { give_back::<F, R>(task, why) })
}

// Functions of their own: in an unoptimised build each temporary copy of a large
// closure stays in its function's frame.

/// # Safety
/// As [`Task::new`].
#[inline]
unsafe fn erase<F: FnOnce() -> R, R>(waiter: &Waiter<R>, timed: bool, f: F) -> Task {
    let labelled = waiter.head.label.is_some();
    let job = WaitJob {
        waiter,
        labelled,
        timed,
        f,
    };
    // SAFETY: by this function's contract.
    unsafe { Task::new(job) }
}

/// # Safety
/// The task was made by `erase` with the same types.
#[cold]
unsafe fn give_back<F: FnOnce() -> R, R>(task: Task, why: Denied) -> DeadlineError<F> {
    // SAFETY: by this function's contract.
    let job = unsafe { task.into_job::<WaitJob<F, R>>() };
    match why {
        Denied::Expired => DeadlineError::Expired(Unrun::new(job.f)),
        Denied::Refused(why) => DeadlineError::Refused(Refused::new(job.f, why)),
    }
}

/// How a call ends, before its types are looked at.
enum How {
    Outcome,
    TimedOut,
    Back(Task, Denied),
}

fn wait_for(shared: &Arc<Shared>, head: &WaiterHead, task: Task, deadline: &Deadline) -> How {
    let mut task = Some(task);
    let place = match shared.submit(&mut task, Patience::caller(deadline)) {
        Ok(place) => place,
        Err(why) => return How::Back(task.expect("what is refused stays"), why),
    };
    if !deadline.is_never() {
        head.set_deadline(shared, deadline);
    }
    if head.wait(deadline, shared.parallel) {
        return How::Outcome;
    }
    match leave(shared, &place, head) {
        Left::Withdrawn(task) => How::Back(task, Denied::Expired),
        Left::Abandoned => {
            // Relaxed: a count.
            shared.counts.timed_out.fetch_add(1, Ordering::Relaxed);
            How::TimedOut
        }
        Left::Outcome => {
            head.wait(&Deadline::never(), shared.parallel);
            How::Outcome
        }
    }
}

enum Left {
    Withdrawn(Task),
    Abandoned,
    Outcome,
}

/// A caller at its deadline: takes the task back, or leaves it running, or
/// finds that the outcome is being delivered.
#[cold]
fn leave(shared: &Arc<Shared>, place: &Place, head: &WaiterHead) -> Left {
    let mut nearly = Nearly::default();
    let (slot, ticket) = match *place {
        Place::Mailbox { slot, claim } => match shared.withdraw_mailbox(slot, claim) {
            Some(task) => return Left::Withdrawn(task),
            None => (slot, mailbox_ticket(claim)),
        },
        Place::Queue { position } => match shared.withdraw_queued(position) {
            Some(task) => return Left::Withdrawn(task),
            None => loop {
                // Acquire: pairs with `publish_place`.
                let place = head.place.load(Ordering::Acquire);
                if place != 0 {
                    break (place as usize - 1, queue_ticket(position));
                }
                if head.is_done() {
                    return Left::Outcome;
                }
                nearly.wait();
            },
        },
    };
    let own = &shared.slots[slot].own;
    let decision = Decision::of(own, ticket);
    // Relaxed: written by this thread.
    let deadline = head.deadline.load(Ordering::Relaxed);
    loop {
        match decision.leave(deadline, &own.left_at) {
            Leave::Left => {
                observe::caller_timed_out(shared, slot, head.label);
                return Left::Abandoned;
            }
            Leave::Outcome => return Left::Outcome,
            Leave::NotYet if head.is_done() => return Left::Outcome,
            Leave::NotYet => nearly.wait(),
        }
    }
}

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;
    use crate::shared::{Hooks, Settings};
    use crate::slot::Slot;
    use crate::stats::WhenFull;

    fn waiting(deadline: u64) -> WaiterHead {
        WaiterHead {
            done: AtomicU32::new(WAITING),
            place: AtomicU32::new(0),
            thread: UnsafeCell::new(None),
            label: None,
            deadline: AtomicU64::new(deadline),
        }
    }

    #[test]
    fn tickets_name_one_task_each() {
        let mut tickets: Vec<u64> = (1..=100)
            .flat_map(|n| [mailbox_ticket(n), queue_ticket(n - 1)])
            .collect();
        assert!(tickets.iter().all(|ticket| ticket & STATE == 0));
        tickets.sort_unstable();
        tickets.dedup();
        assert_eq!(tickets.len(), 200);
    }

    #[test]
    fn a_started_task_is_its_workers_or_its_callers() {
        let slot = Slot::new();
        let own = &slot.own;
        let word = || own.decide.load(Ordering::SeqCst);
        let other = Decision::of(own, mailbox_ticket(6));
        let leave = |it: &Decision<'_>| it.leave(9, &own.left_at);
        for ticket in [mailbox_ticket(5), queue_ticket(5), queue_ticket(6)] {
            let it = Decision::of(own, ticket);
            assert!(matches!(leave(&it), Leave::NotYet), "not started");
            it.start();
            assert!(!is_abandoned(word()) && !other.complete());
            assert!(matches!(leave(&other), Leave::NotYet));
            assert!(it.complete() && !it.complete());
            assert!(matches!(leave(&it), Leave::Outcome));
            assert!(!is_abandoned(word()));

            it.start();
            assert!(matches!(leave(&other), Leave::NotYet));
            assert!(matches!(leave(&it), Leave::Left));
            assert!(is_abandoned(word()) && !it.complete());
            it.forget();
            assert_eq!(word(), 0);
        }
    }

    #[test]
    fn a_task_reads_its_deadline_and_its_caller_may_still_leave() {
        let slot = Slot::new();
        let own = &slot.own;
        for ticket in [mailbox_ticket(5), queue_ticket(5)] {
            let it = Decision::of(own, ticket);
            it.start();
            assert_eq!(deadline_of(own, ticket, &waiting(8)), Some(7));
            assert_eq!(deadline_of(own, ticket, &waiting(NO_DEADLINE)), None);
            assert_eq!(it.deadline(&waiting(8), &own.left_at), 8);
            assert!(matches!(it.leave(9, &own.left_at), Leave::Left));
            // The block is not looked at any more.
            assert_eq!(deadline_of(own, ticket, std::ptr::null()), Some(8));
        }
    }

    #[test]
    fn a_caller_tells_its_task_the_deadline() {
        let settings = Settings {
            max_workers: 1,
            min_workers: 0,
            queue_capacity: 0,
            when_full: WhenFull::Refuse,
            idle_timeout: Duration::MAX,
            thread_name: String::new(),
            stack_size: None,
        };
        let shared = &Shared::new(settings, Hooks::default());
        let own = &shared.slots[0].own;
        Decision::of(own, 0).start();
        let told = |deadline: &Deadline| {
            let head = waiting(0);
            head.set_deadline(shared, deadline);
            deadline_of(own, 0, &head)
        };
        let deadline = Deadline::from_now(Duration::from_secs(60));
        let after = deadline.instant().unwrap() - shared.epoch;
        assert_eq!(told(&deadline).map(Duration::from_nanos), Some(after));
        let years = |n: u64| Deadline::from_now(Duration::from_secs(n * 365 * 24 * 60 * 60));
        assert_eq!(told(&years(600)), told(&years(1200)));
        assert!(told(&years(600)) > told(&years(500)));
        assert_eq!(told(&Deadline::never()), None);
    }

    #[test]
    fn a_caller_waits_for_its_outcome_or_its_deadline() {
        let head = waiting(0);
        for parallel in [true, false] {
            let deadline = Deadline::from_now(Duration::from_millis(20));
            assert!(!head.wait(&deadline, parallel));
            assert!(deadline.has_passed() && !head.is_done());
        }
        // SAFETY: it waits no longer, but it is there, and this is the one call.
        unsafe { WaiterHead::release(&head) };
        assert!(head.is_done() && head.wait(&Deadline::never(), false));
    }
}
