//! A slot of its own.

use crate::parts::slot::{Claim, Order, State};
use crate::parts::{ring, slot};
use crate::sync::thread;

/// A slot with a worker, and the ready ring that it enters. Its tasks are numbers.
#[derive(Debug)]
pub struct Slot {
    slot: slot::Slot<usize, ()>,
    ready: ring::Ring,
}

/// What the worker of a [`Slot`] was told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// To run the task.
    Run(usize),
    /// To look at the queue.
    Search,
    /// To end.
    Retire,
}

/// An idle worker that the caller holds.
#[derive(Debug)]
pub struct Held(Claim);

impl Slot {
    /// A slot whose worker is the calling thread, and looks at the queue.
    pub fn of_this_thread() -> Self {
        let slot = Self::starting(false);
        slot.search_first();
        slot
    }

    /// The same, in its start hook, and held by its spawner.
    pub fn in_start_hook() -> Self {
        Self::starting(true)
    }

    fn starting(has_hook: bool) -> Self {
        let slot = slot::Slot::new(());
        // SAFETY: it is new, and this thread gives itself no order.
        unsafe {
            slot.begin_start(has_hook);
            slot.set_thread(thread::current());
        }
        Self {
            slot,
            ready: ring::Ring::new(1, 0),
        }
    }

    /// The worker, after a task or a look at the queue: idle, and listed.
    pub fn publish_idle(&self) {
        // SAFETY: a model's threads keep to who may do what; else a step is not legal, which it
        // notices. As below.
        unsafe { self.slot.publish_idle(&self.ready, 0) };
    }

    /// The spawner: the new worker's first task; its generation.
    pub fn hand_first(&self, task: usize, revocable: bool) -> u64 {
        // SAFETY: as above.
        unsafe { self.slot.hand_over(Claim::AWAKE, task, revocable) }
    }

    /// The spawner, or who took its task back: the worker is to look at the queue.
    pub fn search_first(&self) {
        // SAFETY: as above.
        unsafe { self.slot.send_searching(Claim::AWAKE) };
    }

    /// The worker: its start hook is over. Whether it has no order but to look at the queue;
    /// `None`: a caller is just taking its task back.
    pub fn has_started(&self) -> Option<bool> {
        // SAFETY: as above.
        unsafe { self.slot.has_started(|| ()) }
    }

    /// Claims by affinity, past the listing.
    pub fn claim_last_used(&self) -> Option<Held> {
        self.slot.claim_last_used(0, true).map(Held)
    }

    /// Claims by the ready ring.
    pub fn claim_ready(&self) -> Option<Held> {
        self.ready.pop()?;
        self.slot.claim_listed().map(Held)
    }

    /// Claims if on the bench.
    pub fn claim_benched(&self) -> Option<Held> {
        self.slot.claim_benched().map(Held)
    }

    /// The worker claims itself, to look at the queue.
    pub fn claim_self(&self) -> bool {
        self.slot.claim_self()
    }

    /// The worker has taken a task from the queue.
    pub fn start_queued(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Searching, State::Busy) };
    }

    /// Hands a task over, for good or until it is taken back; its generation.
    pub fn hand_over(&self, held: Held, task: usize, revocable: bool) -> u64 {
        // SAFETY: claimed.
        unsafe { self.slot.hand_over(held.0, task, revocable) }
    }

    /// Sends the worker to the queue.
    pub fn send_searching(&self, held: Held) {
        // SAFETY: claimed.
        unsafe { self.slot.send_searching(held.0) };
    }

    /// Takes an offered task back; then the slot is held.
    pub fn revoke(&self, generation: u64) -> Option<usize> {
        self.slot.revoke(generation)
    }

    /// The cleaner takes the worker's entry from the ready ring; whether the worker is on the bench
    /// from now on. `None`: no entry.
    pub fn bench(&self) -> Option<bool> {
        self.ready.pop()?;
        Some(self.slot.bench())
    }

    /// Tells the worker to end; one on the bench, or any.
    pub fn retire(&self, only_benched: bool) -> bool {
        let retired = self.slot.retire(only_benched);
        let parked = retired.is_some_and(|claim| claim.parked);
        if parked {
            let handle = self.slot.thread_of_model();
            handle.unpark();
        }
        retired.is_some()
    }

    /// The worker, after a task: looks whether to end, or else at the queue.
    pub fn search_after_task(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Busy, State::Searching) };
    }

    /// The worker ends by itself.
    pub fn retire_self(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Searching, State::Retiring) };
    }

    /// The worker's last act.
    pub fn vacate(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Retiring, State::Free) };
    }

    /// Its spawner: a new worker, to look at the queue.
    pub fn start_again(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe {
            self.slot.begin_start(false);
            self.slot.send_searching(Claim::AWAKE);
        }
    }

    /// Its spawner: a new worker, in its start hook, held.
    pub fn start_in_hook(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.begin_start(true) };
    }

    /// The worker, told to end, stays.
    pub fn cancel_retirement(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Retiring, State::Searching) };
    }

    /// The worker waits for an order, asleep.
    pub fn wait(&self) -> Told {
        loop {
            // SAFETY: as in `publish_idle`.
            if let Some(order) = unsafe { self.slot.poll_order() } {
                return match order {
                    Order::Run { task, .. } => Told::Run(task),
                    Order::Search => Told::Search,
                    Order::Retire => Told::Retire,
                };
            }
            if self.slot.may_park() {
                thread::park();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Whether it is idle.
    pub fn is_idle(&self) -> bool {
        self.slot.see().is_idle()
    }

    /// Whether it has a task, or another thread holds it, or it is in its start hook.
    pub fn is_busy(&self) -> bool {
        let word = self.slot.see();
        matches!(word.state(), State::Held | State::Offered | State::Busy) || word.is_starting()
    }

    /// Whether it is in its start hook.
    pub fn is_starting(&self) -> bool {
        self.slot.see().is_starting()
    }

    /// Whether it has no worker.
    pub fn is_free(&self) -> bool {
        self.slot.see().state() == State::Free
    }

    /// Whether it can be found: it has an entry in the ready ring, or is on the bench.
    pub fn can_be_found(&self) -> bool {
        !self.ready.is_empty() || self.slot.see().is_benched()
    }
}
