//! A slot: a single-slot channel to one worker thread.
//!
//! The slot's *word* is authoritative; the ready ring only gives hints. (An entry of the free ring is the right to start a worker on its slot.) The word holds a [state](State),
//! two flags and a generation. It changes only by read-modify-write operations, and its state
//! only by the steps of [`State::next`]. The protocol page lists the thread that takes each step.
//!
//! **Invariant**: an `Idle` slot has an entry in the ready ring, or a thread has just popped that
//! entry, or the slot is on the *bench*, which the page of the core calls the host's reserve. So a thread that finds the ready ring and the bench empty
//! has seen every idle worker, except those that another thread is about to claim or to bench. A
//! claim as a last worker leaves the entry in the ring, and `LISTED` set. A thread that pops an entry
//! clears `LISTED` by a compare-and-swap. A worker that finds `LISTED` clear as it goes idle sets
//! it and pushes a new entry first.
//!
//! **The mailbox** belongs to the thread that holds a `Held` slot. While the slot is `Offered`, nobody touches it:
//! the worker and the waiter compete for the next step. While it is `Busy`, it belongs to the worker, which empties it. In the other states it is empty. Every step
//! into `Offered` or `Busy` releases what was written there, and the step or the reading by which the next owner takes it acquires it. If
//! a thread took a step without owning the slot, the mailbox would have two owners. So such steps are
//! `unsafe`, and their contracts name the threads that may take them. (A thread that is not the worker and calls `claim_self` or `may_park` harms no memory: that
//! worker panics, or is held up.)

mod claim;
mod life;
mod word;

use crate::parts::gate::Permit;
use crate::parts::in_flight::Notice;
use crate::parts::ring::Ring;
use crate::sync::{thread, AtomicU64, Ordering, UnsafeCell};
pub(crate) use claim::{Claim, Sleeper, TaskClaim};
use std::mem::MaybeUninit;
use word::{assert_step, GENERATION, LISTED, PARKED};
pub(crate) use word::{State, Word};

/// An order to a worker without a task.
#[derive(Debug)]
#[must_use]
pub(crate) enum Order<T> {
    /// To run the task, which was the `generation`-th to be handed to the slot.
    Run {
        task: T,
        permit: Permit,
        generation: u64,
    },
    /// To look at the queue. The worker that was told so by a notifier is `Searching`, and has the notice. One that was sent
    /// without a notice is `Paying`.
    Search(Option<Notice>),
    /// To end.
    Retire,
}

/// The part of a slot that a hand-over writes: the status word and the mailbox, on one cache line.
#[repr(C, align(64))]
#[derive(Debug)]
struct Hot<T> {
    status: AtomicU64,
    mailbox: UnsafeCell<MaybeUninit<T>>,
}

/// A channel for tasks `T` to a worker. The worker's record `R` is on cache lines of its own. No
/// two slots share a cache line, even on machines whose cache lines have 128 bytes.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Slot<T, R> {
    hot: Hot<T>,
    pub(crate) record: R,
    /// The worker's thread. Written by the spawner while it holds the slot (`Held` from `Free`),
    /// and read by threads that claim the slot.
    thread: UnsafeCell<Option<thread::Thread>>,
}

// SAFETY: the status word says which thread owns the mailbox and the thread handle, and no other
// thread touches them; see the module's doc.
unsafe impl<T: Send, R: Sync> Sync for Slot<T, R> {}

impl<T, R> Slot<T, R> {
    pub(crate) fn new(record: R) -> Self {
        Self {
            hot: Hot {
                status: AtomicU64::new(State::Free as u64),
                mailbox: UnsafeCell::new(MaybeUninit::uninit()),
            },
            record,
            thread: UnsafeCell::new(None),
        }
    }

    /// Returns the status word.
    #[inline]
    pub(crate) fn load(&self) -> Word {
        // ORDERING: P1, P3: read after this thread has pushed a task, or set or read a flag.
        Word(self.hot.status.load(Ordering::SeqCst))
    }

    /// Changes the word if it is `from`. Otherwise returns the word as the error.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn swap_if(&self, from: Word, to: Word) -> Result<(), Word> {
        // ORDERING: P1, P3, M1: in one total order with the queue's tail, the rings and the
        // counts; releases and acquires the mailbox. `SeqCst` costs what `AcqRel` does on x86-64.
        (self.hot.status)
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
            .map(|_| assert_step(from, to))
            .map_err(Word)
    }

    /// Takes a step for the only thread that may change the state now, and adds `more` to the word.
    /// Returns the word after the step. This is an addition and not a store, because other threads
    /// may clear `LISTED` at the same time.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn shift(&self, from: State, to: State, more: u64) -> Word {
        let delta = (to as u64).wrapping_sub(from as u64).wrapping_add(more);
        // ORDERING: P1, P3, M1: as in `swap_if`.
        let before = Word(self.hot.status.fetch_add(delta, Ordering::SeqCst));
        debug_assert_eq!(before.state(), from);
        let after = Word(before.0.wrapping_add(delta));
        assert_step(before, after);
        after
    }

    /// Takes a step of the slot's worker.
    ///
    /// # Safety
    /// The caller is the slot's worker, and `from` is a state that only the worker may leave:
    /// `Busy`, `Searching`, `Paying` or `Retiring`. After a step to `Free` the caller touches nothing of the
    /// slot.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) unsafe fn step(&self, from: State, to: State) {
        self.shift(from, to, 0);
    }

    /// Changes the word to `to(word)`, and returns the word before the change. Returns `None` if
    /// `to` returns `None`.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn update(&self, to: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let mut word = self.load();
        loop {
            match self.swap_if(word, to(word)?) {
                Ok(()) => return Some(word),
                Err(now) => word = now,
            }
        }
    }

    // ---- claiming an idle worker -------------------------------------------

    /// Claims the worker if it is idle and not on the bench, and leaves its entry in the ready
    /// ring. Claims a parked worker only if `even_parked`. `last` is the generation of the worker's
    /// last task; zero means unknown. If `last` is right, the first access is a successful
    /// compare-and-swap, so that the CPU fetches the cache line once, for writing, and not first
    /// for reading.
    #[inline]
    #[must_use]
    pub(crate) fn claim_last_used(&self, last: u64, even_parked: bool) -> Option<Claim<'_, T, R>> {
        let word = if last == 0 {
            self.load()
        } else {
            let likely = Word::idle_after(last);
            match self.swap_if(likely, likely.to(State::Held)) {
                Ok(()) => return Some(Claim::of(self, likely)),
                Err(now) => now,
            }
        };
        let claimed =
            word.is_ready(even_parked) && self.swap_if(word, word.to(State::Held)).is_ok();
        claimed.then(|| Claim::of(self, word))
    }

    /// Claims the worker of a popped entry of the ready ring if it is idle. Clears `LISTED` in any
    /// case.
    #[inline]
    #[must_use]
    pub(crate) fn claim_listed(&self) -> Option<Claim<'_, T, R>> {
        let word = self.update(|word| {
            debug_assert!(word.is_listed());
            let idle = word.is_idle();
            let to = if idle { word.to(State::Held) } else { word };
            Some(to.without(LISTED))
        })?;
        word.is_idle().then(|| Claim::of(self, word))
    }

    /// Claims the worker if it is idle, in the ready ring or on the bench. Leaves its entry there.
    #[must_use]
    pub(crate) fn claim_idle(&self) -> Option<Claim<'_, T, R>> {
        self.claim_if(Word::is_idle)
    }

    /// Claims the worker if it is idle and on the bench.
    #[must_use]
    pub(crate) fn claim_benched(&self) -> Option<Claim<'_, T, R>> {
        self.claim_if(Word::is_benched)
    }

    /// Claims the worker if it calls wakers. It sees its order once they have returned.
    #[must_use]
    pub(crate) fn claim_calling(&self) -> Option<TaskClaim<'_, T, R>> {
        self.claim_if(Word::is_calling).map(Into::into)
    }

    fn claim_if(&self, may: impl Fn(Word) -> bool) -> Option<Claim<'_, T, R>> {
        let before = self.step_if(State::Held, may)?;
        Some(Claim::of(self, before))
    }

    /// Moves the task out of the mailbox.
    ///
    /// # Safety
    /// There is a task in the mailbox, and only the caller may take it: it is the worker and saw
    /// `Busy` or won `Offered -> Busy`, or it won `Offered -> Held`.
    #[inline]
    unsafe fn empty(&self) -> T {
        // SAFETY: by this function's contract.
        (self.hot.mailbox).with_mut(|m| unsafe { (*m).assume_init_read() })
    }

    /// Takes an offered task back if the worker has not taken it. The worker does not sleep, or the thread that handed the
    /// task over is about to unpark it.
    #[must_use]
    pub(crate) fn revoke(&self, generation: u64) -> Option<(T, Permit, Claim<'_, T, R>)> {
        let before = self.update(|word| {
            let is_it = word.state() == State::Offered && word.generation() == generation;
            is_it.then(|| word.to(State::Held))
        })?;
        // SAFETY: this thread won `Offered -> Held`.
        let task = unsafe { self.empty() };
        Some((task, Permit::of_taken_task(), Claim::of(self, before)))
    }

    // ---- going idle -----------------------------------------------------------

    /// Makes the worker `Idle`, and lists it. `ready` is the pool's ready ring and `index` this slot's number.
    ///
    /// # Safety
    /// The caller is the slot's worker, in the state `from`: `Busy` or `Searching`.
    #[inline]
    pub(crate) unsafe fn publish_idle(&self, from: State, ready: &Ring, index: usize) {
        let is_idle = self.idle_from(from, ready, index);
        debug_assert!(is_idle, "only the worker leaves {from:?}");
    }

    /// Makes the worker `Idle` as [`publish_idle`](Self::publish_idle) does, from `Calling`. Returns `false` if another thread
    /// has claimed the worker first. That thread will then give the worker an order.
    ///
    /// # Safety
    /// The caller is the slot's worker. It has become `Calling`, and has no task in hand.
    #[must_use]
    pub(crate) unsafe fn idle_after_calling(&self, ready: &Ring, index: usize) -> bool {
        self.idle_from(State::Calling, ready, index)
    }

    #[inline]
    fn idle_from(&self, from: State, ready: &Ring, index: usize) -> bool {
        let idle_if_listed = |word: Word| word.is_listed_in(from).then(|| word.to(State::Idle));
        // The update fails while the slot is not listed. A thread that pops the entry may clear the
        // flag again before the update, so this is a loop.
        while self.update(idle_if_listed).is_none() {
            if self.load().state() != from {
                return false;
            }
            // ORDERING: P1: the flag is set before the entry is pushed. The entry is pushed
            // before the worker is `Idle`. The worker is `Idle` before it looks at the queue.
            self.hot.status.fetch_or(LISTED, Ordering::SeqCst);
            ready.push(index);
        }
        true
    }

    /// Moves the calling worker's own slot from `Calling` to `Paying`. Returns `false` if another thread has claimed
    /// the worker first. That thread will then give the worker an order.
    ///
    /// # Safety
    /// The caller is the slot's worker. It has become `Calling`, and has no task in hand.
    #[must_use]
    pub(crate) unsafe fn pay_after_calling(&self) -> bool {
        self.step_if(State::Paying, Word::is_calling).is_some()
    }

    /// Moves the calling worker's own slot from `Idle` to `Searching`. Returns `false` if another
    /// thread has claimed the worker first. That thread will then give the worker an order.
    #[must_use]
    pub(crate) fn claim_self(&self) -> bool {
        self.step_if(State::Searching, Word::is_idle).is_some()
    }

    /// Offers a task that the calling worker has in hand: its caller may take it back until the worker starts it.
    /// `tell` is given the task and its generation before that.
    ///
    /// # Safety
    /// The caller is the slot's worker, in `Busy`, and the mailbox is empty.
    pub(crate) unsafe fn offer_again(&self, task: T, permit: Permit, tell: impl FnOnce(&T, u64)) {
        permit.leave_with_task();
        // While the slot is `Busy`, no other thread changes the generation.
        let generation = Word(self.load().0.wrapping_add(GENERATION)).generation();
        tell(&task, generation);
        // SAFETY: by this function's contract, the mailbox is empty, and only the worker may write it.
        (self.hot.mailbox).with_mut(|m| unsafe { (*m).write(task) });
        self.shift(State::Busy, State::Offered, GENERATION);
    }

    /// Takes a step if `may` returns `true` for the word. Returns the word before it.
    fn step_if(&self, to: State, may: impl Fn(Word) -> bool) -> Option<Word> {
        self.update(|word| may(word).then(|| word.to(to)))
    }

    // ---- worker: waiting for an order -----------------------------------------

    /// Returns `true` while a thread holds the slot. The spawner of a new worker holds the slot
    /// until it has registered the worker.
    pub(crate) fn is_held(&self) -> bool {
        self.load().state() == State::Held
    }

    /// Returns the worker's order if there is one. An offered task is the worker's from then on. Also returns `None` if
    /// another thread changes the word meanwhile. The worker looks again then, as it does while there is no
    /// order.
    ///
    /// # Safety
    /// The caller is the slot's worker, and has no task in hand.
    #[inline]
    pub(crate) unsafe fn poll_order(&self) -> Option<Order<T>> {
        let word = self.load();
        let runs = match word.state() {
            State::Busy => true,
            State::Offered => self.swap_if(word, word.to(State::Busy)).is_ok(),
            State::Notified => {
                self.shift(State::Notified, State::Searching, 0);
                return Some(Order::Search(Some(Notice::of_slot())));
            }
            State::Paying => return Some(Order::Search(None)),
            State::Retiring => return Some(Order::Retire),
            State::Idle | State::Held => false,
            State::Free | State::Searching | State::Calling => {
                unreachable!("{word:?}: it waits for no order")
            }
        };
        let run = || Order::Run {
            // SAFETY: this thread saw `Busy` or won `Offered -> Busy`. The mailbox has not been
            // emptied since, because the worker has no task, by this function's contract.
            task: unsafe { self.empty() },
            permit: Permit::of_taken_task(),
            generation: word.generation(),
        };
        runs.then(run)
    }

    /// Sets `PARKED` for the worker if it is still idle. Returns `true` if the worker may park: the
    /// thread that gives it an order will then unpark it. Returns `false` if an order is there, or
    /// if another thread is about to give one.
    #[must_use]
    pub(crate) fn may_park(&self) -> bool {
        let word = self.load();
        word.is_idle() && (word.is_parked() || self.swap_if(word, Word(word.0 | PARKED)).is_ok())
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T, R> Slot<T, R> {
    /// Asserts that the slot has no thread, and is listed only if `listed`. Models call it after
    /// the slot's thread has ended.
    pub(crate) fn assert_at_rest(&self, listed: bool) {
        let word = self.load();
        assert_eq!(word.state(), State::Free, "{word:?}");
        assert_eq!(word.is_listed(), listed, "{word:?}");
        assert!(!word.is_parked(), "{word:?}");
    }
}

/// Returns the legal steps, to be compared with the protocol page.
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn legal_steps() -> impl Iterator<Item = (State, State)> {
    use State::{Busy, Calling, Free, Held, Idle, Notified, Offered, Paying, Retiring, Searching};
    let states = [
        Free, Held, Offered, Busy, Idle, Notified, Searching, Paying, Retiring, Calling,
    ];
    (states.into_iter()).flat_map(|from| from.next().iter().map(move |to| (from, *to)))
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
