//! The questions and requests of the core to the pool around it.

use super::submission::Location;
use super::worker::{Next, Worker};
use super::{Claim, Core};
use crate::parts::gate::Permit;
use crate::sync::{Arc, IsHeld, Patience};
use crate::work::job::{Task, TaskEnd};
use crate::work::owed::Owed;
use std::io;
use std::time::Duration;

/// The reason why no worker was started. If the spawner had popped a slot, it has given it back to the host.
#[derive(Debug)]
#[must_use]
pub(crate) enum NotStarted {
    /// There may be no further worker, and the slot is not free after that; or nothing is queued; or another thread has popped
    /// the free slot. So a thread that looks again does not find the same slot free for the same task.
    NotNeeded,
    /// The OS refused a thread.
    Failed(io::Error),
}

/// The pool around a core.
///
/// The core finds a worker for a task and runs it. It asks its host for the rest, by these functions,
/// and for a call by [`Entrance`](super::call::Entrance). Each doc says what the core relies on. A host that takes entries out of the free ring and puts them back owes a look after that (A3), but
/// for a start that the OS has refused (F2). The host's lock is the lock of its list of workers. A function waits for no
/// lock, and calls no user code, unless its doc says so.
///
/// # Safety
/// [`Host::start_with`] returns the place of the task that it was given: a caller takes its task back from there.
pub(crate) unsafe trait Host: Sized + Send + Sync + 'static {
    // ---- more workers ---------------------------------------------------------------

    /// Starts a worker on a slot that the caller has popped from the free ring. The task is its first
    /// order. Before the worker has that order, it counts as living, and the gate is not `ASLEEP` any more (A1). On failure gives
    /// the slot back, returns the permit, and leaves the task in `task`. The host never keeps all slots from the free
    /// ring, so `NotNeeded` means that there is a worker, or that another slot is or comes free. Waits for the host's lock, and for the OS.
    fn start_with(
        core: &Arc<Core<Self>>,
        slot: usize,
        task: &mut Option<Task>,
        permit: Permit,
        owed: &mut Owed,
    ) -> Result<Location, (Permit, NotStarted)>;

    /// Takes a free slot, for a task that must not be queued. If the host has the free slots in hand, to deal them
    /// out anew, waits for that, and so for the host's lock.
    fn take_slot(core: &Core<Self>) -> Option<usize>;

    /// Starts a worker that looks at the queue, on a free slot. Raises `notified` before it takes the slot. The worker keeps that
    /// notice. If the host holds the worker up, the notice is lowered once the worker is registered, and then an idle worker is
    /// told (A4). On failure gives the slot back and lowers the count; then the caller looks again, or tells an idle worker. Waits for the host's
    /// lock, and for the OS.
    fn start_searching(core: &Arc<Core<Self>>, owed: &mut Owed) -> Result<(), NotStarted>;

    /// Returns `true` if an idle worker may be found only by [`Host::claim_reserve`], because the host
    /// has taken its entry out of the ready ring. Read after a push (P1). The core may claim such a worker by its slot
    /// (first aid). The host raises what this reads before it pops an entry that it may put into its reserve, and lowers it once the worker is there no more. Once [`Host::claim_reserve`] has found none, this is `false`, unless another worker has come.
    fn has_reserve(core: &Core<Self>) -> bool;

    /// Returns an error if another thread holds the lock that a start and a claim from the reserve need. Asked by a
    /// thread that should not wait. (It waits if another one takes the lock right after that, and is stopped.)
    fn try_lock(core: &Core<Self>) -> Result<(), IsHeld>;

    /// Claims an idle worker that is not in the ready ring. Waits for the host's lock.
    fn claim_reserve(core: &Core<Self>) -> Option<(usize, Claim<'_>)>;

    // ---- tasks ------------------------------------------------------------------------

    /// Returns what [`Host::has_pushed`] is to be told of a task that is submitted now.
    fn stamp(core: &Core<Self>) -> u64;

    /// Called after a push. Left out only by the fast path: while that is open, if a worker is counted or each worker is busy. The host may take the task out again: it reads its flags after
    /// the push (P3).
    fn has_pushed(core: &Arc<Core<Self>>, position: u64, stamp: u64, owed: &mut Owed);

    /// Counts a task that will not run, and is about to leave its place or has left it. Called while the thread may hold the task's cell or slot. Waits for no
    /// lock.
    fn count_unrun(core: &Core<Self>, end: TaskEnd);

    // ---- debts ------------------------------------------------------------------------

    /// Passes a free permit on to the first submission that waits for it. `of` names the gate. Takes both under the lock of those
    /// who wait. Places the task without that lock, as [`Core::place`] does, which may wait for the host's and for the OS,
    /// and takes the first lock again for the answer. Notes what is
    /// left in `owed`: a waker, or a permit that came back. A thread that only tries does so for the first lock alone: if another one
    /// holds it, this does nothing and returns the error. Once it has the task, it may wait as any other.
    fn pass(
        core: &Arc<Core<Self>>,
        of: u64,
        patience: Patience,
        owed: &mut Owed,
    ) -> Result<(), IsHeld>;

    /// Called after the last permit of a closed pool was given back. Tells idle workers to end. Waits for the host's lock. A thread that only
    /// tries gets an error if another one holds it.
    fn all_is_over(core: &Arc<Core<Self>>, patience: Patience) -> Result<(), IsHeld>;

    // ---- a worker's life ----------------------------------------------------------------

    /// Called by a new worker before it reads its first order. May call user code, and so hold the worker up.
    fn begin(worker: &Worker<'_, Self>);

    /// Returns `true` if this worker may have to end. Called once its task has ended, if the pool is
    /// not in its usual state. Ends the process if it is a child that the task has made.
    fn may_have_to_end(worker: &Worker<'_, Self>) -> bool;

    /// Called by a worker that is `Paying`, before it looks at the queue. Waits for the host's lock. Returns `true` if the worker has
    /// to end: under that lock, it has become `Retiring`, and counts as ending.
    fn has_to_end(worker: &Worker<'_, Self>) -> bool;

    /// Returns `true` if a worker that is about to sleep should search instead, and so ask
    /// [`Host::has_to_end`]. It may get a task meanwhile, so this waits for no lock.
    fn should_search(worker: &Worker<'_, Self>) -> bool;

    /// Ends a worker that is `Retiring`, in these steps. Tries to pay what the worker owes; if more is left, the worker becomes `Paying`.
    /// Waits for the host's lock, and with that lock for the one of its list of ended threads. Under it, the worker becomes `Paying` if it is needed; or if it is the last one, and
    /// [`Gate::sleep`](crate::parts::gate::Gate::sleep) fails. Otherwise its slot becomes `Free`, and is pushed to the free ring, or kept by the host. Without the lock, pays a look
    /// (A2), and returns `None`. A worker that has become `Paying` gets its next step: to search.
    /// The look may find that the OS refuses a thread. Then this tells subscribers, which are user code, once the slot is free.
    fn end(worker: &Worker<'_, Self>) -> Option<Next>;

    /// Called by a worker that has ended, after its last step on the slot. May call user code, and waits for the host's lock.
    fn has_ended(worker: &Worker<'_, Self>);

    /// Returns for how long a worker whose word says `PARKED` may sleep at most: `Duration::MAX` is until it is unparked. Returns
    /// `None` if it must not sleep yet, because it has done the host's work instead, or is to ask again. Waits for no lock.
    fn may_sleep(core: &Core<Self>) -> Option<Duration>;
}
