//! The questions and requests of the core to the pool around it.

use super::submission::Location;
use super::worker::{Next, Worker};
use super::{Claim, Core};
use crate::parts::gate::Permit;
use crate::sync::{Arc, IsHeld, Patience};
use crate::work::job::{Task, TaskEnd};
use crate::work::owed::Owed;
use std::io;

/// The reason why no worker was started. If the spawner had popped a slot, it has given it back.
#[derive(Debug)]
#[must_use]
pub(crate) enum NotStarted {
    /// There may be no further worker, or it would have nothing to do.
    NotNeeded,
    /// The OS refused a thread.
    Failed(io::Error),
}

/// The pool around a core.
///
/// The core finds a worker for a task and runs it. It asks its host for the rest, by these functions
/// only. Each doc says what the core relies on.
pub(crate) trait Host: Sized + Send + Sync + 'static {
    // ---- more workers ---------------------------------------------------------------

    /// Starts a worker on a slot that the caller has popped from the free ring. The task is its first
    /// order. On failure puts the slot back, and returns the permit.
    fn start_with(
        core: &Arc<Core<Self>>,
        slot: usize,
        task: &mut Option<Task>,
        permit: Permit,
        owed: &mut Owed,
    ) -> Result<Location, (Permit, NotStarted)>;

    /// Takes a free slot, for a task that must not be queued. If the host has the free slots in hand, to deal them
    /// out anew, waits for that.
    fn take_slot(core: &Core<Self>) -> Option<usize>;

    /// Starts a worker that looks at the queue. While the start is under way, the worker counts as
    /// notified.
    fn start_searching(core: &Arc<Core<Self>>, owed: &mut Owed) -> Result<(), NotStarted>;

    /// Returns `true` if an idle worker may be found only by [`Host::claim_reserve`], because the host
    /// has taken its entry out of the ready ring. Read after a push (P1).
    fn has_reserve(core: &Core<Self>) -> bool;

    /// Returns an error if another thread holds the lock that a start and a claim from the reserve need. Asked by a
    /// thread that should not wait. (It waits if another one takes the lock right after that, and is stopped.)
    fn try_lock(core: &Core<Self>) -> Result<(), IsHeld>;

    /// Claims an idle worker that is not in the ready ring.
    fn claim_reserve(core: &Core<Self>) -> Option<(usize, Claim<'_>)>;

    // ---- tasks ------------------------------------------------------------------------

    /// Returns what [`Host::has_pushed`] is to be told of a task that is submitted now.
    fn stamp(core: &Core<Self>) -> u64;

    /// Called after each push that does not take the fast way. The host may take the task out again.
    fn has_pushed(core: &Arc<Core<Self>>, position: u64, stamp: u64, owed: &mut Owed);

    /// Counts a task that has left its place and will not run.
    fn count_unrun(core: &Core<Self>, end: TaskEnd);

    // ---- debts ------------------------------------------------------------------------

    /// Passes a free permit on to the first submission that waits for it. `of` names the gate. If the thread
    /// only tries, and another one holds the lock that is needed, does nothing and returns the error.
    fn pass(
        core: &Arc<Core<Self>>,
        of: u64,
        patience: Patience,
        owed: &mut Owed,
    ) -> Result<(), IsHeld>;

    /// Called after the last permit of a closed pool was given back. A thread that only tries gets an error if
    /// another one holds the lock that is needed.
    fn all_is_over(core: &Arc<Core<Self>>, patience: Patience) -> Result<(), IsHeld>;

    // ---- a worker's life ----------------------------------------------------------------

    /// Called by a new worker before it reads its first order.
    fn begin(worker: &Worker<'_, Self>);

    /// Returns `true` if this worker may have to end. Called once its task has ended, if the pool is
    /// not in its usual state. Ends the process if it is a child that the task has made.
    fn may_have_to_end(worker: &Worker<'_, Self>) -> bool;

    /// Called by a worker that is `Paying`, before it looks at the queue. No thread relies on it, so this
    /// may wait for a lock. Returns `true` if the worker has to end, and has become `Retiring`.
    fn has_to_end(worker: &Worker<'_, Self>) -> bool;

    /// Returns `true` if a worker that is about to sleep should search instead, and so ask
    /// [`Host::has_to_end`]. It may get a task meanwhile, so this waits for no lock.
    fn should_search(worker: &Worker<'_, Self>) -> bool;

    /// Ends a worker that is `Retiring`. Returns `None` if its slot has been given back; otherwise the
    /// worker's next step.
    fn end(worker: &Worker<'_, Self>) -> Option<Next>;

    /// Called by a worker that has ended, after its last step on the slot.
    fn has_ended(worker: &Worker<'_, Self>);

    /// Parks a worker whose word says `PARKED`. Returns when it is unparked, or at any time before.
    fn sleep(core: &Core<Self>);
}
