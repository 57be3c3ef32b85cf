//! Units of work with their type erased.
//!
//! A [`Task`] is 56 bytes on 64-bit platforms: the address of a table of functions, and 48 bytes.
//! The 48 bytes hold the job itself if it fits and its alignment is at most 8. Otherwise they hold
//! a pointer to the job in a box. A slot or a queue cell has an 8-byte word before the task, and so
//! fills one cache line.

use crate::error::TaskError;
use crate::parts::completion::{Answered, WaitNode};
use crate::parts::gate::Permit;
use crate::parts::members::{Ended, Gone, Members, Pending};
use crate::parts::slot::State;
use crate::sync::panics::has_panicked;
use crate::work::context::Ctx;
use crate::work::env::Env;
use crate::work::membership::Membership;
use crate::work::observe::Moment;
use crate::work::options::{Options, StoredOptions, TaskTimes};
use crate::work::owed::Owed;
use std::any::Any;
use std::marker::PhantomData;
use std::mem::{align_of, size_of, MaybeUninit};
use std::ptr::NonNull;

/// The size in bytes up to which a job is stored without a box.
pub(crate) const INLINE: usize = 48;

/// How a task that a worker has taken ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    Completed,
    Panicked,
    /// Its turn came too late.
    Expired,
    /// Its group was cancelled before it started.
    Cancelled,
}

impl TaskEnd {
    #[inline]
    pub(crate) fn ran(panicked: bool) -> Self {
        if panicked {
            Self::Panicked
        } else {
            Self::Completed
        }
    }

    /// Returns `true` if the task was started.
    #[inline]
    pub(crate) fn has_run(self) -> bool {
        matches!(self, Self::Completed | Self::Panicked)
    }

    /// Returns how the task's group counts it.
    #[inline]
    pub(crate) fn of_group(self) -> Ended {
        match self {
            Self::Completed => Ended::Completed,
            Self::Panicked => Ended::Panicked,
            Self::Expired | Self::Cancelled => Ended::Discarded,
        }
    }
}

/// The worker's part of a task's end, with the task's permit. It is used up once, before the task's waiter is released.
#[must_use = "the task's permit is not given back, and the task is not counted"]
pub(crate) struct End<'a> {
    permit: Permit,
    end: &'a mut dyn FnMut(TaskEnd, Permit) -> HasEnded,
}

/// The worker has taken its part of a task's end, and is in this state since. Only the worker makes one, so a
/// [`Job::run`] that returns one has called [`End::end`].
#[must_use]
pub(crate) struct HasEnded(pub(crate) State);

impl<'a> End<'a> {
    pub(crate) fn new(permit: Permit, end: &'a mut dyn FnMut(TaskEnd, Permit) -> HasEnded) -> Self {
        Self { permit, end }
    }

    /// Gives the task's permit back, makes the worker free, and counts the task.
    #[inline(always)]
    pub(crate) fn end(self, ended: TaskEnd) -> HasEnded {
        (self.end)(ended, self.permit)
    }
}

/// Makes the error that says why an accepted task never runs: any but `Panicked`.
pub(crate) type NeverRan = fn() -> TaskError;

/// The captures of a discarded closure, which are still to be dropped.
pub(crate) type Captured = Box<dyn Any + Send>;

/// The remains of a discarded task: the group and the waiter to tell of its end, and the captures
/// to drop.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Release {
    /// The task's place among the pending tasks of its group.
    pub(crate) group: Option<Pending>,
    /// The task's waiter: a caller of `do_with_deadline`, or a handle.
    pub(crate) caller: Option<Answered>,
    pub(crate) captured: Option<Captured>,
}

impl Release {
    /// Settles the task: counts it as ended in its group, releases the waiter, and then takes the task
    /// out of the group. Adds to `owed` what is left: a permit of the group to pass, a waker to call, a
    /// node and captures to drop.
    pub(crate) fn settle(self, owed: &mut Owed) {
        let mut membership = Membership::new(self.group, self.caller.is_some());
        owed.pass_in(membership.has_ended(Ended::Discarded));
        if let Some(caller) = self.caller {
            let remains = caller.release();
            if !remains.is_empty() {
                owed.calls().finish(remains);
            }
        }
        owed.note_gone(membership.leave());
        if let Some(captured) = self.captured {
            owed.calls().drop_captured(captured);
        }
    }
}

/// A unit of work before its type is erased.
///
/// # Safety
///
/// The job may be sent to another thread. Everything that it borrows lives until the job has run or
/// has been discarded. So either the job is `Send + 'static`, or the code that makes the job waits
/// for its end. A job whose task leaves its group or scope by `take_pending` has used all that it borrows once `run` or `discard` returns.
///
/// `run` and `discard` never unwind. A job with `HAS_CALLER` has a node, which is on its caller's stack.
pub(crate) unsafe trait Job: Sized {
    /// Runs the job, calls `end`, and releases the waiter. Never unwinds. Returns what `end` has returned.
    fn run(self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded;
    /// Takes the job apart without running it. Never unwinds. Calls no user code, with one
    /// exception: a scope's task drops its closure.
    fn discard(self, why: NeverRan) -> Release;
    /// Returns the options that the job has beside those that the task stores with it.
    fn own_options(&self) -> Option<&impl StoredOptions> {
        None::<&()>
    }
    /// Makes the task's place in its scope, or that of a call in its group.
    ///
    /// # Safety
    /// Called once, by the thread that runs or discards the task, which uses the place up.
    #[inline]
    unsafe fn take_pending(&self) -> Option<Pending> {
        let own = self.own_options()?;
        // SAFETY: by this function's contract.
        unsafe { own.pending_of_call() }
    }
    /// Returns the node that the task shares with its waiter, if it has one.
    fn node(&self) -> Option<&WaitNode> {
        None
    }
    /// `true` for a scope's task, which no shutdown discards.
    const MUST_RUN: bool = false;
    /// `true` if a blocked caller waits for the task, and may take it back before a worker starts
    /// it.
    const HAS_CALLER: bool = false;
    /// `true` if the task may be taken back from the mailbox of a worker that has not started it.
    const OFFERED: bool = Self::HAS_CALLER;
}

/// The contents of a task: a job, its options, and the time of its submission.
struct Contents<S, J> {
    submitted: Moment,
    stored: S,
    job: J,
}

impl<S: StoredOptions, J: Job> Contents<S, J> {
    #[inline]
    fn options(&self) -> Options<'_> {
        let mut options = Options::default();
        self.stored.add_options(&mut options);
        if let Some(own) = self.job.own_options() {
            own.add_options(&mut options);
        }
        options
    }

    /// Runs the job. If it must not start any more, disposes of it instead.
    #[inline]
    fn run(mut self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        ctx.submitted.set(self.submitted);
        let options = self.options();
        if options.is_empty() && !J::MUST_RUN {
            return self.job.run(ctx, end);
        }
        // SAFETY: a group lives as long as a task is inside it (E8). This task leaves its group
        // after `finish`.
        if let Err(why) = unsafe { ctx.begin(&options) } {
            return self.dispose(why, ctx, end);
        }
        let mut membership = Membership::new(self.take_pending(), J::OFFERED);
        let mut with_options = |ended: TaskEnd, permit| {
            ctx.finish(ended);
            if membership.exists() {
                ctx.may_owe();
            }
            let has_ended = (end.end)(ended, permit);
            pass_in(ctx, membership.has_ended(ended.of_group()));
            has_ended
        };
        let has_ended = self.job.run(ctx, End::new(end.permit, &mut with_options));
        note_gone(ctx, membership.leave());
        has_ended
    }

    /// Takes the task's place in its group or scope, if it has one.
    #[inline]
    fn take_pending(&mut self) -> Option<Pending> {
        // SAFETY: only `run` and `discard` call this, once, and one of them has the task.
        let of_job = || unsafe { self.job.take_pending() };
        self.stored.take_pending().or_else(of_job)
    }

    /// Disposes of a task whose turn has come too late (`TaskEnd::Expired`), or whose group has been
    /// cancelled.
    #[cold]
    fn dispose(self, why: TaskEnd, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let is_late = why == TaskEnd::Expired;
        let error: NeverRan = match is_late {
            true => || TaskError::Expired,
            false => || TaskError::Cancelled,
        };
        let mut release = self.discard(error);
        if is_late {
            // Law 21: the waiter of an expired task is told once its closure has been dropped.
            ctx.drop_captured(release.captured.take());
        }
        ctx.may_owe();
        let has_ended = end.end(why);
        ctx.owe(|owed| release.settle(owed));
        has_ended
    }

    fn look(&self) -> Look {
        Look {
            times: self.options().times,
            node: self.job.node().map(NonNull::from),
            group: self.options().group.map(NonNull::from),
        }
    }

    fn discard(mut self, why: NeverRan) -> Release {
        let group = self.take_pending();
        let of_job = self.job.discard(why);
        debug_assert!(of_job.group.is_none(), "its place was taken before");
        Release { group, ..of_job }
    }

    // ---- how the contents are stored in a task ---------------------------------------

    const FITS: bool = size_of::<Self>() <= INLINE && align_of::<Self>() <= align_of::<Bytes>();
    const TABLE: Table = Table {
        must_run: J::MUST_RUN,
        has_caller: J::HAS_CALLER,
        offered: J::OFFERED,
        // SAFETY: by the contract of `Table::look`.
        look: |bytes| unsafe { Self::load(bytes) }.look(),
        // SAFETY: by the contract of `Table::take_pending`.
        take_pending: |bytes| unsafe { Self::load_mut(bytes) }.stored.take_pending(),
        // SAFETY: by the contract of `Table::run`.
        run: |bytes, ctx, end| unsafe { Self::take(bytes) }.run(ctx, end),
        // SAFETY: by the contract of `Table::discard`.
        discard: |bytes, why| unsafe { Self::take(bytes) }.discard(why),
    };

    fn store(self) -> Bytes {
        let mut bytes = Bytes::uninit();
        if Self::FITS {
            // SAFETY: the contents fit in size and alignment (`FITS`).
            unsafe { bytes.as_mut_ptr().cast::<Self>().write(self) }
        } else {
            // SAFETY: a box of a sized type is a thin pointer, which fits.
            unsafe { bytes.as_mut_ptr().cast::<Box<Self>>().write(Box::new(self)) }
        }
        bytes
    }

    /// # Safety
    /// The bytes were made by `store` of the same type, and still hold the contents.
    unsafe fn load(bytes: &Bytes) -> &Self {
        if Self::FITS {
            // SAFETY: `store` wrote the contents there.
            unsafe { &*bytes.as_ptr().cast::<Self>() }
        } else {
            // SAFETY: `store` wrote the box there.
            unsafe { &*bytes.as_ptr().cast::<Box<Self>>() }
        }
    }

    /// # Safety
    /// As for `load`.
    unsafe fn load_mut(bytes: &mut Bytes) -> &mut Self {
        if Self::FITS {
            // SAFETY: `store` wrote the contents there.
            unsafe { &mut *bytes.as_mut_ptr().cast::<Self>() }
        } else {
            // SAFETY: `store` wrote the box there.
            unsafe { &mut *bytes.as_mut_ptr().cast::<Box<Self>>() }
        }
    }

    /// # Safety
    /// As for `load`. The contents are moved out, so the bytes must not be used again.
    unsafe fn take(bytes: &Bytes) -> Self {
        if Self::FITS {
            // SAFETY: `store` wrote the contents there, and they are moved out only here.
            unsafe { bytes.as_ptr().cast::<Self>().read() }
        } else {
            // SAFETY: `store` wrote the box there, and it is moved out only here.
            *unsafe { bytes.as_ptr().cast::<Box<Self>>().read() }
        }
    }
}

/// Notes that a permit of a group was given back, if submissions wait for it.
#[inline]
fn pass_in(ctx: &Ctx<'_>, group: Option<u64>) {
    if group.is_some() {
        ctx.owe(|owed| owed.pass_in(group));
    }
}

/// Notes what the end of a group's task leads to, if anything.
#[inline]
fn note_gone(ctx: &Ctx<'_>, gone: Gone) {
    if gone.line.is_some() || gone.leaving.is_some() {
        ctx.owe(|owed| owed.note_gone(gone));
    }
}

type Bytes = MaybeUninit<[u64; INLINE / 8]>;

/// What is to be seen of a task that has not started.
pub(crate) struct Look {
    /// The times within which it must start and end, if it has any.
    pub(crate) times: Option<TaskTimes>,
    /// The node lives until the task is consumed.
    node: Option<NonNull<WaitNode>>,
    /// The group lives until the task is consumed.
    group: Option<NonNull<Members>>,
}

/// The constants and the functions of one type of job. Each [`Task`] with a job of that type refers
/// to them.
pub(crate) struct Table {
    pub(crate) must_run: bool,
    pub(crate) has_caller: bool,
    pub(crate) offered: bool,
    /// # Safety
    /// The bytes hold a live job of the table's type.
    look: unsafe fn(&Bytes) -> Look,
    /// # Safety
    /// As for `look`.
    take_pending: unsafe fn(&mut Bytes) -> Option<Pending>,
    /// # Safety
    /// As for `look`. The call consumes the job, so the bytes must not be used again.
    run: unsafe fn(&mut Bytes, &Ctx<'_>, End<'_>) -> HasEnded,
    /// # Safety
    /// As for `run`.
    discard: unsafe fn(&mut Bytes, NeverRan) -> Release,
}

/// A job with its type erased. `run_in`, `discard` and `into_parts` use it up.
#[must_use = "the job would leak, and whoever waits for the task would wait for ever"]
pub(crate) struct Task {
    pub(crate) table: &'static Table,
    bytes: Bytes,
    /// Makes the type neither `Send` nor `Sync` by default, because the compiler cannot see the
    /// job's type in `bytes`.
    job: PhantomData<*mut ()>,
}

// SAFETY: a `Job` may move to another thread, and the options stored with it are `Send`.
unsafe impl Send for Task {}

impl Task {
    /// Makes a task of a job, its options and the time of its submission. Their types are erased.
    #[inline]
    pub(crate) fn new<S: StoredOptions, J: Job>(submitted: Moment, stored: S, job: J) -> Self {
        let contents = Contents {
            submitted,
            stored,
            job,
        };
        Self {
            table: &Contents::<S, J>::TABLE,
            bytes: contents.store(),
            job: PhantomData,
        }
    }

    /// Returns the job and its options, for a submitter whose task was not accepted.
    ///
    /// # Safety
    /// The task was made from these types.
    #[inline]
    pub(crate) unsafe fn into_parts<S: StoredOptions, J: Job>(self) -> (S, J) {
        // SAFETY: by this function's contract, the task was made from these types. Its bytes are
        // not used again, because the task is forgotten.
        let contents = unsafe { Contents::<S, J>::take(&self.bytes) };
        std::mem::forget(self);
        (contents.stored, contents.job)
    }

    pub(crate) fn look(&self) -> Look {
        // SAFETY: a `Task` holds a live job until it is consumed.
        unsafe { (self.table.look)(&self.bytes) }
    }

    /// Takes the place in its group of a task that is not accepted, if the place is stored with the task.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        // SAFETY: a `Task` holds a live job until it is consumed.
        unsafe { (self.table.take_pending)(&mut self.bytes) }
    }

    /// Tells the blocked caller of the task that the task is in the mailbox of this slot now.
    pub(crate) fn offer_on(&self, slot: usize, generation: u64) {
        if let Some(node) = self.node() {
            node.offer_on(slot, generation);
        }
    }

    /// Returns `true` if the task may run if it is started now.
    pub(crate) fn may_run(&self, env: &Env) -> bool {
        let Look { times, group, .. } = self.look();
        let is_late = times.is_some_and(|times| times.start(env).is_none());
        // SAFETY: the group lives until the task is consumed, and this borrows the task.
        !is_late && !group.is_some_and(|group| unsafe { group.as_ref() }.is_cancelled())
    }

    fn node(&self) -> Option<&WaitNode> {
        // SAFETY: the node lives until the task is consumed, and this borrows the task.
        self.look().node.map(|node| unsafe { node.as_ref() })
    }

    /// Runs the task in its place, without a move, and empties the place.
    #[inline]
    pub(crate) fn run_in(place: &mut Option<Self>, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let task = place.as_mut().expect("a task to run");
        // SAFETY: the task is consumed once. No other code has access to the place until it is
        // empty, and `Job::run` never unwinds.
        let has_ended = unsafe { (task.table.run)(&mut task.bytes, ctx, end) };
        std::mem::forget(place.take());
        has_ended
    }

    /// Takes the task apart without running it.
    pub(crate) fn discard(mut self, why: NeverRan) -> Release {
        // SAFETY: this call takes the task by value and forgets it, so the job is consumed once.
        let release = unsafe { (self.table.discard)(&mut self.bytes, why) };
        std::mem::forget(self);
        release
    }
}

// In a release build, a task has no `Drop`, so that a place for one costs nothing.
#[cfg(debug_assertions)]
impl Drop for Task {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a task is lost");
    }
}

/// A closure that was served without a handle.
// SAFETY: it is `Send + 'static`.
unsafe impl<F: FnOnce() + Send + 'static> Job for F {
    #[inline(always)]
    fn run(self, ctx: &Ctx<'_>, end: End<'_>) -> HasEnded {
        let panicked = has_panicked(ctx.call(self));
        end.end(TaskEnd::ran(panicked))
    }

    fn discard(self, _: NeverRan) -> Release {
        Release {
            captured: Some(Box::new(self)),
            ..Release::default()
        }
    }
}

#[cfg(all(not(any(lazypool_loom, lazypool_shuttle)), target_pointer_width = "64"))]
const _: () =
    assert!(size_of::<Task>() == 56 && std::mem::needs_drop::<Task>() == cfg!(debug_assertions));

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
#[path = "job_tests.rs"]
mod tests;
