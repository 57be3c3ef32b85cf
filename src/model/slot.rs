//! A slot of its own.

use crate::parts::slot::{Claim, HandOver, Order, Rest, State};
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
    /// A slot whose worker is the calling thread: held by its spawner, who is to
    /// publish that it is idle.
    pub fn of_this_thread() -> Self {
        let slot = slot::Slot::new(());
        // SAFETY: it is new, and this thread gives itself no order.
        unsafe {
            slot.begin_start();
            slot.set_thread(thread::current());
        }
        Self {
            slot,
            ready: ring::Ring::new(1, 0),
        }
    }

    /// The holder, or the worker after a task: idle, and listed.
    pub fn publish_idle(&self) {
        // SAFETY: a model's threads keep to who may do what; else `LEGAL` is broken, which it
        // notices. As below.
        unsafe { self.slot.publish_idle(&self.ready, 0) };
    }

    /// The holder: idle, and marked.
    pub fn publish_marked(&self) {
        // SAFETY: as above.
        unsafe { self.slot.publish_marked() };
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

    /// Claims if marked.
    pub fn claim_marked(&self) -> Option<Held> {
        self.slot.claim_marked(|_| true).map(Held)
    }

    /// The worker claims itself, to look at the queue.
    pub fn claim_self(&self) -> bool {
        self.slot.claim_self().is_some()
    }

    /// The worker has taken a task from the queue.
    pub fn start_queued(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.start_queued() };
    }

    /// Hands a task over, for good or until it is taken back; its generation.
    pub fn hand_over(&self, held: Held, task: usize, revocable: bool) -> u64 {
        let how = if revocable {
            HandOver::Revocable
        } else {
            HandOver::Final
        };
        // SAFETY: claimed.
        unsafe { self.slot.hand_over(held.0, task, how) }
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

    /// Marks the worker.
    pub fn mark(&self) -> bool {
        self.slot.mark()
    }

    /// Tells the worker to end; a marked one, or any.
    pub fn retire(&self, only_marked: bool) -> bool {
        let retired = self.slot.retire(only_marked);
        let parked = retired.is_some_and(|claim| claim.parked);
        if parked {
            let handle = self.slot.thread_of_model();
            handle.unpark();
        }
        retired.is_some()
    }

    /// The worker's last act.
    pub fn vacate(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.vacate() };
    }

    /// Its spawner: a new worker, to look at the queue.
    pub fn start_again(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe {
            self.slot.begin_start();
            self.slot.start_searching();
        }
    }

    /// The worker, told to end, stays.
    pub fn cancel_retirement(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.cancel_retirement() };
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
            match self.slot.rest() {
                Rest::OrderComing => thread::yield_now(),
                Rest::MayPark => thread::park(),
            }
        }
    }

    /// Whether it is idle.
    pub fn is_idle(&self) -> bool {
        self.slot.see().is_idle()
    }

    /// Whether it counts as occupied where a submission is refused.
    pub fn is_occupied(&self) -> bool {
        self.slot.see().is_occupied()
    }

    /// Whether it has no worker.
    pub fn is_free(&self) -> bool {
        self.slot.see().state() == State::Free
    }

    /// Whether it is idle, and nobody can find it who does not know it: between two steps.
    #[cfg(lazypool_shuttle)]
    pub fn is_lost(&self) -> bool {
        let lost = crate::sync::control::peek(|| {
            let word = self.slot.see();
            let (head, _) = self.ready.held();
            // One entry may have been popped before its pop has moved the head.
            let is_listed = (head..=head + 1).any(|at| self.ready.entry(at).is_some());
            word.is_idle() && !word.is_marked() && !is_listed
        });
        lost.expect("it only looks")
    }

    /// Whether it can be found: it has an entry in the ready ring, or is marked.
    pub fn can_be_found(&self) -> bool {
        !self.ready.is_empty() || self.slot.see().is_marked()
    }
}
