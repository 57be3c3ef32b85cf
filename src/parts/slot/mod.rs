//! A slot: a single-slot channel to one worker thread.
//!
//! One word is the truth about a slot; the rings only hint at it. The word holds a
//! [state](State), three flags and a generation, and changes only by
//! read-modify-write. The module's steps are those of [`State::next`]; the
//! protocol page says who takes which, and what each publishes.
//!
//! **Invariant**: an `Idle` slot is listed in the ready ring or on the bench, so a thread
//! that finds the ready ring and the bench empty has seen every idle worker. A
//! claim by affinity leaves the entry behind (`LISTED` stays). The popper of an entry
//! whose slot is not idle clears `LISTED` by a compare-and-swap, and a worker that
//! loses against that one lists itself again before it goes idle.
//!
//! **The mailbox** belongs to the one holder of a `Held` slot, and to the worker from
//! `Busy` on. Every step into `Offered` or `Busy` releases what was written, and every
//! step out of them acquires it. So a step by a thread that does not own the slot would
//! give the mailbox two owners: such steps are `unsafe`, and say who may take them.

mod life;
mod word;

use crate::parts::ring::Ring;
use crate::sync::{thread, AtomicU64, Ordering, UnsafeCell};
use std::mem::MaybeUninit;
use word::{changed, GENERATION, LISTED, PARKED};
pub(crate) use word::{State, Word};

/// A worker without an order that the caller now holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct Claim {
    /// The worker sleeps, and must be woken once it has its order.
    pub(crate) parked: bool,
}

impl Claim {
    /// Of a worker that is awake: a new one, or one whose task was taken back.
    pub(crate) const AWAKE: Self = Self { parked: false };

    const fn of(before: Word) -> Self {
        Self {
            parked: before.is_parked(),
        }
    }
}

/// What an idle worker is told.
#[derive(Debug)]
#[must_use]
pub(crate) enum Order<T> {
    Run { task: T, generation: u64 },
    Search,
    Retire,
}

/// The line that a hand-over moves: the status word and the mailbox.
#[repr(C, align(64))]
#[derive(Debug)]
struct Hot<T> {
    status: AtomicU64,
    mailbox: UnsafeCell<MaybeUninit<T>>,
}

/// A channel for tasks `T` to a worker, with that worker's own record `R` behind it, on lines of
/// its own. No other slot shares one, also where lines have 128 bytes.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Slot<T, R> {
    hot: Hot<T>,
    pub(crate) record: R,
    /// Written by the spawner while `Held` from `Free`; read by who claims the slot.
    thread: UnsafeCell<Option<thread::Thread>>,
}

// SAFETY: the mailbox and the thread handle are touched only by the thread that the
// status word makes their owner; see the module's doc.
unsafe impl<T: Send, R: Sync> Sync for Slot<T, R> {}

impl<T, R> Slot<T, R> {
    pub(crate) fn new(record: R) -> Self {
        Self::starting_at(0, record)
    }

    /// The same, as if so many tasks had been handed over: tests start near the wrap.
    pub(crate) fn starting_at(generation: u64, record: R) -> Self {
        Self {
            hot: Hot {
                status: AtomicU64::new(generation.wrapping_mul(GENERATION) | State::Free as u64),
                mailbox: UnsafeCell::new(MaybeUninit::uninit()),
            },
            record,
            thread: UnsafeCell::new(None),
        }
    }

    #[inline]
    pub(crate) fn see(&self) -> Word {
        // ORDERING: P1, P2, P3: reads who is idle after what this thread announced.
        Word(self.hot.status.load(Ordering::SeqCst))
    }

    /// Moves the word, if it is `from`; else says what it is.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn swap_if(&self, from: Word, to: Word) -> Result<(), Word> {
        // ORDERING: P1, P2, P3, M1: one total order with the queue's tail, the rings and
        // the counts; releases and acquires the mailbox. Costs what AcqRel does on x86-64.
        (self.hot.status)
            .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst)
            .map(|_| changed(from, to))
            .map_err(Word)
    }

    /// A step by the one owner of the word, and what else is to be added. Others may clear `LISTED`
    /// meanwhile, so it is an addition; the word before is returned.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn shift(&self, from: State, to: State, more: u64) -> Word {
        let delta = (to as u64).wrapping_sub(from as u64).wrapping_add(more);
        // ORDERING: P1, P2, P3, M1: as `swap_if`.
        let before = Word(self.hot.status.fetch_add(delta, Ordering::SeqCst));
        debug_assert_eq!(before.state(), from);
        changed(before, Word(before.0.wrapping_add(delta)));
        before
    }

    /// A step of the slot's worker.
    ///
    /// # Safety
    /// The caller is the slot's worker, in a state `from` in which that is its own: `Busy`, `Searching`
    /// or `Retiring`. After a step to `Free` it touches nothing of the slot.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    pub(crate) unsafe fn step(&self, from: State, to: State) {
        self.shift(from, to, 0);
    }

    /// Moves the word to what `to` makes of it, as long as it makes something; the word before.
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    fn update(&self, to: impl Fn(Word) -> Option<Word>) -> Option<Word> {
        let mut word = self.see();
        loop {
            match self.swap_if(word, to(word)?) {
                Ok(()) => return Some(word),
                Err(now) => word = now,
            }
        }
    }

    // ---- claiming an idle worker -------------------------------------------

    /// Claims the worker if it is idle and not on the bench, without its entry in the ready ring;
    /// asleep only if `even_parked`. `last`: the generation after which it is likely to have gone
    /// idle, without a task since (zero: unknown). Then its line is asked for once, to be
    /// written, and not first to be read.
    #[inline]
    #[must_use]
    pub(crate) fn claim_last_used(&self, last: u64, even_parked: bool) -> Option<Claim> {
        let word = if last == 0 {
            self.see()
        } else {
            let likely = Word::idle_after(last);
            match self.swap_if(likely, likely.to(State::Held)) {
                Ok(()) => return Some(Claim::of(likely)),
                Err(now) => now,
            }
        };
        let claimed =
            word.is_ready(even_parked) && self.swap_if(word, word.to(State::Held)).is_ok();
        claimed.then(|| Claim::of(word))
    }

    /// Follows an entry of the ready ring through: claims the worker, or drops the
    /// listing if it is not idle.
    #[inline]
    #[must_use]
    pub(crate) fn claim_listed(&self) -> Option<Claim> {
        let word = self.update(|word| {
            debug_assert!(word.is_listed());
            let idle = word.is_idle();
            let to = if idle { word.to(State::Held) } else { word };
            Some(to.without(LISTED))
        })?;
        word.is_idle().then(|| Claim::of(word))
    }

    /// Claims the worker if it is idle and on the bench.
    #[must_use]
    pub(crate) fn claim_benched(&self) -> Option<Claim> {
        self.leave_idle(State::Held, Word::is_benched)
    }

    /// Hands the task to the worker, and wakes it if it sleeps. Until the worker starts it, the caller of
    /// a `revocable` task may take it back. The task's generation.
    ///
    /// # Safety
    /// The caller holds the slot by this claim (`Held`).
    #[inline]
    pub(crate) unsafe fn hand_over(&self, claim: Claim, task: T, revocable: bool) -> u64 {
        // SAFETY: the slot is held: the mailbox is empty and the caller's.
        self.hot.mailbox.with_mut(|m| unsafe {
            (*m).write(task);
        });
        let to = if revocable {
            State::Offered
        } else {
            State::Busy
        };
        // SAFETY: the slot is held.
        let before = unsafe { self.order(claim, to, GENERATION) };
        Word(before.0.wrapping_add(GENERATION)).generation()
    }

    /// Sends the worker to look at the queue, and wakes it if it sleeps.
    ///
    /// # Safety
    /// The caller holds the slot by this claim (`Held`).
    pub(crate) unsafe fn send_searching(&self, claim: Claim) {
        // SAFETY: the slot is held.
        unsafe { self.order(claim, State::Searching, 0) };
    }

    /// Gives the worker its order, and wakes it if it sleeps. The word before.
    ///
    /// # Safety
    /// The caller holds the slot by this claim (`Held`).
    #[inline]
    #[cfg_attr(any(lazypool_loom, lazypool_shuttle), track_caller)]
    unsafe fn order(&self, claim: Claim, to: State, more: u64) -> Word {
        // Cloned before the worker can end and another take the slot.
        let sleeper = if claim.parked {
            // SAFETY: written only while held by the spawner, whose next step the claim has acquired.
            self.thread.with(|t| unsafe { (*t).clone() })
        } else {
            None
        };
        let before = self.shift(State::Held, to, more);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
        before
    }

    /// # Safety
    /// There is a task in the mailbox, and it is the caller's alone: the worker saw
    /// `Busy` or won `Offered -> Busy`, or its caller won `Offered -> Held`.
    #[inline]
    unsafe fn empty(&self) -> T {
        // SAFETY: by this function's contract.
        self.hot
            .mailbox
            .with_mut(|m| unsafe { (*m).assume_init_read() })
    }

    /// Takes an offered task back if the worker has not started it. The slot is then held by the
    /// caller, who sends the worker to look at the queue.
    #[must_use]
    pub(crate) fn revoke(&self, generation: u64) -> Option<T> {
        self.update(|word| {
            let is_it = word.state() == State::Offered && word.generation() == generation;
            is_it.then(|| word.to(State::Held))
        })?;
        // SAFETY: won `Offered -> Held`.
        Some(unsafe { self.empty() })
    }

    // ---- going idle -----------------------------------------------------------

    /// Makes the slot claimable; `ready` is the pool's ready ring and `index` this slot's.
    ///
    /// # Safety
    /// The caller is the slot's worker, in `Busy` or `Searching`.
    #[inline]
    pub(crate) unsafe fn publish_idle(&self, ready: &Ring, index: usize) {
        let idle_if_listed = |word: Word| word.is_listed().then(|| word.to(State::Idle));
        // In vain as long as there is no listing, or a popper has dropped it meanwhile.
        while self.update(idle_if_listed).is_none() {
            // ORDERING: P1, P2, P5: the listing before the entry, the entry before idle, and that before
            // this thread looks at the queue and at who waits.
            self.hot.status.fetch_or(LISTED, Ordering::SeqCst);
            ready
                .push(index)
                .expect("one entry per slot at most: the ring has room");
        }
    }

    /// Worker: takes itself from `Idle`; `false` if another was faster, whose order is on its way.
    #[must_use]
    pub(crate) fn claim_self(&self) -> bool {
        self.leave_idle(State::Searching, Word::is_idle).is_some()
    }

    fn leave_idle(&self, to: State, may: impl Fn(Word) -> bool) -> Option<Claim> {
        self.update(|word| may(word).then(|| word.to(to)))
            .map(Claim::of)
    }

    // ---- worker: waiting for an order -----------------------------------------

    /// Whether somebody holds the slot: a new worker's spawner, until it has been
    /// registered.
    pub(crate) fn is_held(&self) -> bool {
        self.see().state() == State::Held
    }

    /// The order in the word, if there is one. Taking an offered task starts it.
    ///
    /// # Safety
    /// The caller is the slot's worker, without a task: new, or idle since its last one.
    #[inline]
    pub(crate) unsafe fn poll_order(&self) -> Option<Order<T>> {
        let mut word = self.see();
        loop {
            match word.state() {
                State::Busy => break,
                State::Offered => match self.swap_if(word, word.to(State::Busy)) {
                    Ok(()) => break,
                    Err(now) => word = now,
                },
                State::Searching => return Some(Order::Search),
                State::Retiring => return Some(Order::Retire),
                State::Idle | State::Held => return None,
                State::Free => unreachable!("a worker's slot is not free"),
            }
        }
        Some(Order::Run {
            // SAFETY: `Busy` was seen, or `Offered -> Busy` won; and the mailbox has not been
            // emptied since: the worker has no task, by this function's contract.
            task: unsafe { self.empty() },
            generation: word.generation(),
        })
    }

    /// Worker: says that it sleeps. Whether it may: who gives it an order from now on wakes it. Else an
    /// order is there, or a few instructions away.
    #[must_use]
    pub(crate) fn may_park(&self) -> bool {
        let word = self.see();
        word.is_idle() && (word.is_parked() || self.swap_if(word, Word(word.0 | PARKED)).is_ok())
    }
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl<T, R> Slot<T, R> {
    /// For models of a slot alone, whose thread is its spawner and never changes.
    pub(crate) fn thread_of_model(&self) -> thread::Thread {
        // SAFETY: written before the model shares the slot.
        let thread = self.thread.with(|t| unsafe { (*t).clone() });
        thread.expect("a worker")
    }

    /// For models, once its thread has ended: nothing but a listing is left.
    pub(crate) fn assert_at_rest(&self, listed: bool) {
        let word = self.see();
        assert_eq!(word.state(), State::Free, "{word:?}");
        assert_eq!(word.is_listed(), listed, "{word:?}");
        assert!(!word.is_starting() && !word.is_parked(), "{word:?}");
    }
}

/// The legal steps, for who compares.
#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn legal_steps() -> impl Iterator<Item = (State, State)> {
    use State::{Busy, Free, Held, Idle, Offered, Retiring, Searching};
    let states = [Free, Held, Offered, Busy, Idle, Searching, Retiring];
    (states.into_iter()).flat_map(|from| from.next().iter().map(move |to| (from, *to)))
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
