//! A slot and the ready ring, without a pool.

use crate::parts::gate::Permit;
use crate::parts::in_flight::Notice;
use crate::parts::slot::{Claim, Order, Sleeper, State, TaskClaim};
use crate::parts::{ring, slot};
use crate::sync::thread;
use std::mem::ManuallyDrop;

/// A slot with a worker, and the ready ring that the worker enters. Tasks are numbers.
#[derive(Debug)]
pub struct Slot {
    slot: slot::Slot<usize, ()>,
    ready: ring::Ring,
    /// `true` once [`Slot::bench`] has popped the worker's entry.
    was_swept: std::sync::atomic::AtomicBool,
}

/// An order to the worker of a [`Slot`].
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// The worker is to run this task.
    Run(usize),
    /// The worker is to look at the queue.
    Search,
    /// The worker is to end.
    Retire,
}

/// An idle worker that the caller holds. A model may end with it.
#[derive(Debug)]
pub struct Held<'a>(ManuallyDrop<Claim<'a, usize, ()>>);

impl<'a> Held<'a> {
    fn of(claim: Claim<'a, usize, ()>) -> Self {
        Self(ManuallyDrop::new(claim))
    }
}

impl Slot {
    /// Returns a slot whose worker is the calling thread. The worker is looking at the queue.
    pub fn of_this_thread() -> Self {
        let slot = Self::new_worker();
        slot.search_first();
        slot
    }

    /// Returns a slot whose worker is the calling thread. The worker is new, and its spawner holds
    /// the slot.
    pub fn new_worker() -> Self {
        let slot = slot::Slot::new(());
        // SAFETY: the slot is new, so no other thread uses it.
        unsafe {
            let claim = slot.begin_start();
            claim.set_thread(thread::current());
            claim.leave();
        }
        Self {
            slot,
            ready: ring::Ring::new(1, 0),
            was_swept: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Makes the worker idle and listed in the ready ring. The worker calls it after a task or
    /// after a look at the queue.
    pub fn publish_idle(&self) {
        self.search();
        // SAFETY: a thread of a model calls only methods that its role (worker, spawner, claimer)
        // allows. If one did not, the slot's check of legal steps would panic.
        unsafe { (self.slot).publish_idle(self.slot.load().state(), &self.ready, 0) };
    }

    /// Begins to look at the queue, if the worker has been sent there.
    fn search(&self) {
        if self.slot.load().state() == State::Paying {
            // SAFETY: as in `publish_idle`.
            unsafe { self.slot.step(State::Paying, State::Searching) };
        }
    }

    /// Gives a new worker its first task, as the spawner does. Returns the task's generation.
    pub fn hand_first(&self, task: usize, revocable: bool) -> u64 {
        TaskClaim::from(self.held()).hand_over(task, Permit::of_model(), revocable)
    }

    /// Sends a new worker to the queue. The spawner calls it, or the caller that has taken the
    /// first task back.
    pub fn search_first(&self) {
        self.held().send_uncounted();
    }

    /// Returns the claim of the spawner, or of the caller that has taken its task back.
    fn held(&self) -> Claim<'_, usize, ()> {
        // SAFETY: as in `publish_idle`. That thread has left its claim with the slot.
        unsafe { Claim::of_held(&self.slot) }
    }

    /// Claims the worker as a last worker. Leaves the worker's entry in the ready ring.
    pub fn claim_last_used(&self) -> Option<Held<'_>> {
        self.slot.claim_last_used(0, true).map(Held::of)
    }

    /// Pops an entry of the ready ring, and claims the worker if it is idle.
    pub fn claim_ready(&self) -> Option<Held<'_>> {
        self.ready.pop()?;
        self.slot.claim_listed().map(Held::of)
    }

    /// Claims the worker if it is on the bench.
    pub fn claim_benched(&self) -> Option<Held<'_>> {
        self.slot.claim_benched().map(Held::of)
    }

    /// Claims the worker, as the worker itself does before it looks at the queue. Returns `false`
    /// if another thread has claimed it.
    pub fn claim_self(&self) -> bool {
        self.slot.claim_self()
    }

    /// Makes the worker busy, as it does once it has popped a task from the queue.
    pub fn start_queued(&self) {
        self.search();
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Searching, State::Busy) };
    }

    /// Hands a task over. If `revocable`, the caller can take it back until the worker has started
    /// it. Returns the task's generation.
    pub fn hand_over(&self, held: Held<'_>, task: usize, revocable: bool) -> u64 {
        assert!(held.0.is_of(&self.slot));
        let claim = TaskClaim::from(ManuallyDrop::into_inner(held.0));
        claim.hand_over(task, Permit::of_model(), revocable)
    }

    /// Tells the worker to look at the queue.
    pub fn notify(&self, held: Held<'_>) {
        assert!(held.0.is_of(&self.slot));
        ManuallyDrop::into_inner(held.0).notify(Notice::of_model());
    }

    /// Takes an offered task back. If that succeeds, the caller holds the slot.
    pub fn revoke(&self, generation: u64) -> Option<usize> {
        let (task, permit, claim) = self.slot.revoke(generation)?;
        permit.leave_with_task();
        claim.leave();
        Some(task)
    }

    /// Pops the worker's entry from the ready ring, as the cleaner does. Returns `None` if there is
    /// no entry. Otherwise returns whether the worker is on the bench from now on.
    pub fn bench(&self) -> Option<bool> {
        self.ready.pop()?;
        // Relaxed: a mark that publishes nothing. It is set first, so that no thread finds the
        // worker on the bench without the mark.
        self.was_swept
            .store(true, std::sync::atomic::Ordering::Relaxed);
        Some(self.slot.bench())
    }

    /// Tells the worker to end if it is idle. If `only_benched`, it must also be on the bench.
    /// Returns `true` if the worker was told.
    pub fn retire(&self, only_benched: bool) -> bool {
        self.slot
            .retire(only_benched)
            .map(Sleeper::unpark)
            .is_some()
    }

    /// Ends the worker's task. The worker then calls wakers.
    pub fn begin_calls(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Busy, State::Calling) };
    }

    /// Ends the worker's calls. If it `owes` more, it pays that. Otherwise it is idle. Returns `false` if another thread has
    /// claimed it first.
    pub fn end_calls(&self, owes: bool) -> bool {
        // SAFETY: as in `publish_idle`.
        unsafe {
            match owes {
                true => self.slot.pay_after_calling(),
                false => self.slot.idle_after_calling(&self.ready, 0),
            }
        }
    }

    /// Hands a revocable task to the worker while it calls wakers. Returns the task's generation.
    pub fn hand_over_to_calling(&self, task: usize) -> Option<u64> {
        let claim = self.slot.claim_calling()?;
        Some(claim.hand_over(task, Permit::of_model(), true))
    }

    /// Claims the worker while it calls wakers, and sends it to look at the queue. Returns `false` if it calls none.
    pub fn leave_calling(&self) -> bool {
        let claim = self.slot.claim_calling();
        claim.map(slot::TaskClaim::send_uncounted).is_some()
    }

    /// Ends the worker's task. The worker then decides whether to end. If it does not end, it looks
    /// at the queue.
    pub fn search_after_task(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Busy, State::Paying) };
    }

    /// Makes the worker retire, as it does if it decides to end.
    pub fn retire_self(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe {
            if self.slot.load().state() == State::Searching {
                self.slot.step(State::Searching, State::Paying);
            }
            self.slot.step(State::Paying, State::Retiring);
        }
    }

    /// Frees the slot, as the worker does in its last step.
    pub fn vacate(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.step(State::Retiring, State::Free) };
    }

    /// Begins the start of a new worker in the free slot, as a spawner does. The spawner then holds
    /// the slot.
    pub fn start_again(&self) {
        // SAFETY: as in `publish_idle`.
        unsafe { self.slot.begin_start() }.leave();
    }

    /// Takes the worker's task out of its mailbox. Returns `None` if its caller has taken it back. The worker is to
    /// look at the queue then.
    fn take_task(&self) -> Option<(usize, Permit)> {
        loop {
            // SAFETY: as in `publish_idle`.
            match unsafe { self.slot.poll_order() } {
                None => thread::yield_now(),
                Some(Order::Run { task, permit, .. }) => return Some((task, permit)),
                Some(order) => {
                    assert!(matches!(order, Order::Search(None)), "{order:?}");
                    return None;
                }
            }
        }
    }

    /// Takes the worker's task, which was handed over for good, and offers it again.
    pub fn offer_again(&self) {
        let (task, permit) = self.take_task().expect("nobody may take it back");
        // SAFETY: the worker has just taken this task, so it is `Busy`.
        unsafe { self.slot.offer_again(task, permit, |_, _| ()) };
    }

    /// Waits for an order, parked, as the worker does.
    pub fn wait(&self) -> Told {
        loop {
            // SAFETY: as in `publish_idle`.
            if let Some(order) = unsafe { self.slot.poll_order() } {
                return match order {
                    Order::Run { task, permit, .. } => {
                        permit.leave_with_task();
                        Told::Run(task)
                    }
                    Order::Search(notice) => {
                        notice.into_iter().for_each(std::mem::forget);
                        Told::Search
                    }
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

    /// Returns `true` if the worker is idle.
    pub fn is_idle(&self) -> bool {
        self.slot.load().is_idle()
    }

    /// Returns `true` if the worker has a task, or if another thread holds the slot.
    pub fn is_busy(&self) -> bool {
        let word = self.slot.load();
        matches!(word.state(), State::Held | State::Offered | State::Busy)
    }

    /// Returns `true` if the slot has no worker.
    pub fn is_free(&self) -> bool {
        self.slot.load().state() == State::Free
    }

    /// Returns `true` if a submission can find the worker, because the worker has an entry in the
    /// ready ring or is on the bench. If a bug loses the entry, the status word looks like that of
    /// a benched worker. So the bench counts only once [`Slot::bench`] has popped the entry.
    pub fn can_be_found(&self) -> bool {
        // Relaxed: a mark.
        let was_swept = self.was_swept.load(std::sync::atomic::Ordering::Relaxed);
        !self.ready.is_empty() || was_swept && self.slot.load().is_benched()
    }
}
