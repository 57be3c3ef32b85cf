//! The node that a waiting caller and its worker share, on the caller's stack or on the heap.

use crate::parts::backoff::{Backoff, BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{
    assert_has_no, assert_unlocked, now, thread, Alive, AtomicU32, AtomicU64, InHand, Ordering,
    UnsafeCell,
};
use crossbeam_utils::CachePadded;
use std::cell::Cell;
use std::mem::{align_of, size_of};
use std::task::Waker;
use std::time::Duration;

std::thread_local! {
    /// `true` if the next wait is to yield early: see [`BoundedSpin::new`]. It has no destructor,
    /// so it can be read at any time.
    pub(super) static YIELD_EARLY: Cell<bool> = const { Cell::new(false) };
    /// `true` if the next wait is to park at once: see [`WaitNode::park_next_time`].
    static PARK_NEXT: Cell<bool> = const { Cell::new(false) };
    /// The number of waits that are to park instead of yielding: see [`note_yield`].
    static WITHOUT_YIELDS: Cell<u32> = const { Cell::new(0) };
}

/// A yield that takes longer has probably given the core to a thread that keeps it.
pub(super) const LONG_YIELD: Duration = Duration::from_millis(1);
/// The number of waits without yields after a yield that has taken longer.
pub(super) const WAITS: u32 = 1 << 10;

/// Notes how long a yield of this thread has taken. Beside a thread that never yields, it takes a whole time slice of the
/// OS, by which the outcome is late. So this thread's next waits park instead: a kernel soon gives a core to a thread that it wakes.
pub(super) fn note_yield(took: Duration) {
    if took > LONG_YIELD {
        WITHOUT_YIELDS.set(WAITS);
    }
}

/// Returns the spin of a wait.
pub(super) fn spin_for_outcome(parallel: bool) -> BoundedSpin {
    if PARK_NEXT.take() {
        return BoundedSpin::default();
    }
    let spin = BoundedSpin::new(parallel, YIELD_EARLY.get());
    match WITHOUT_YIELDS.get().checked_sub(1) {
        None => spin,
        Some(left) => {
            WITHOUT_YIELDS.set(left);
            spin.without_yields()
        }
    }
}

/// The caller or handle waits, and no wake-up is stored.
const WAITING: u32 = 0;
/// A wake-up is stored. The caller or handle may take it back, or the worker may take it.
const PARKED: u32 = 1;
/// The outcome is there, and the worker is taking the wake-up.
const TAKING: u32 = 2;
/// The outcome is there, and the worker does not touch the node again.
const DONE: u32 = 3;
/// The handle is gone, and the worker frees the node. Only a node on the heap gets here.
const GONE: u32 = 4;

/// A distance at which two words cannot share a cache line, whatever the address of the node.
const LINE: usize = align_of::<CachePadded<u8>>();

/// A flag in `worker_slot`: the handle has cancelled its task. Set only in a node on the heap.
const CANCELLED: u32 = 1 << 31;
/// A flag in `worker_slot`: the handle has left, or is about to. A worker finds it if the handle has cancelled the task as it
/// leaves; otherwise this is a hint. It does not read `done` instead, because that would take the cache line away from a
/// waiting thread.
const LEAVES: u32 = 1 << 30;

/// The way to wake a waiter.
#[derive(Debug)]
pub(crate) enum WakeUp {
    Thread(thread::Thread),
    Task(Waker),
}

impl WakeUp {
    /// Unparks the waiter if it is a thread. If it is a future, returns its waker. The caller must
    /// wake that, which is user code. The calling thread holds no lock: a waiter may take one as it wakes up.
    #[must_use]
    pub(crate) fn unpark(self) -> Option<Waker> {
        assert_has_no(&[InHand::Lock]);
        match self {
            Self::Task(waker) => Some(waker),
            Self::Thread(thread) => {
                thread.unpark();
                None
            }
        }
    }
}

/// The part of the shared memory that does not depend on the type of the outcome.
///
/// | `done` | to | by |
/// |---|---|---|
/// | `WAITING` | `PARKED` | caller or handle: has stored a wake-up |
/// | `PARKED` | `WAITING` | handle: takes the wake-up back, to change it or because it stops waiting |
/// | `WAITING` | `DONE` | worker: has written the outcome |
/// | `PARKED` | `TAKING`, then `DONE` | worker: has written the outcome, and takes the wake-up in between |
/// | `WAITING`, `TAKING` | `GONE` | handle, on the heap only: leaves; the worker frees the node |
#[derive(Debug)]
#[repr(C)]
pub(crate) struct WaitNode {
    done: AtomicU32,
    /// Keeps the fields that the worker uses off the cache line of `done`, which the caller polls.
    /// `CachePadded` would do that, too, but the allocator takes longer for memory of a large
    /// alignment.
    _apart: [u8; LINE - size_of::<u32>()],
    /// A worker's slot number plus one, or zero until a worker stores its number. In a node on the
    /// stack, only a worker that takes the task from the queue, or offers it again, stores it. In a node on the heap,
    /// the worker that starts the task stores it. The two highest bits are flags.
    worker_slot: AtomicU32,
    /// Owned by the caller or handle in `WAITING`, and by the worker in `TAKING`.
    wake_up: UnsafeCell<Option<WakeUp>>,
    pub(crate) label: Option<&'static str>,
    /// The caller's deadline in nanoseconds. Zero until the caller has stored it.
    deadline: AtomicU64,
    /// If a worker has put the caller's task into its own mailbox again: the generation that the task has there, times two,
    /// plus one. `worker_slot` says which mailbox. Zero for a task that stays where it was put.
    offered_again: AtomicU64,
    pub(crate) alive: Alive,
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Drop for WaitNode {
    fn drop(&mut self) {
        self.wake_up.with_mut(|_| ());
    }
}

impl WaitNode {
    pub(crate) fn new(label: Option<&'static str>) -> Self {
        Self {
            done: AtomicU32::new(WAITING),
            _apart: [0; LINE - size_of::<u32>()],
            worker_slot: AtomicU32::new(0),
            wake_up: UnsafeCell::new(None),
            label,
            deadline: AtomicU64::new(0),
            offered_again: AtomicU64::new(0),
            alive: Alive::new(),
        }
    }

    /// Stores the caller's deadline in nanoseconds. It must not be zero. A task that asks for its
    /// deadline waits for this call.
    pub(crate) fn set_deadline(&self, nanos: u64) {
        debug_assert_ne!(nanos, 0, "a deadline counts from one");
        // Relaxed: the reader needs no other data with it.
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    /// Returns the deadline. Waits until the caller, which may still be reading the clock, has
    /// stored it.
    pub(super) fn await_deadline(&self) -> u64 {
        self.alive.touch();
        let mut backoff = Backoff::default();
        loop {
            // Relaxed: as in `set_deadline`.
            match self.deadline.load(Ordering::Relaxed) {
                0 => backoff.wait(),
                deadline => return deadline,
            }
        }
    }

    /// Publishes the worker's slot number to the caller of a queued task. The caller then knows
    /// which worker's decision to read.
    ///
    /// # Safety
    /// `this` is the node of a caller that does not leave before this call. This is the only call
    /// for the node.
    pub(crate) unsafe fn publish_slot(this: *const Self, slot: usize) {
        // SAFETY: by this function's contract, the node is alive until the store below.
        let told = unsafe {
            (*this).alive.touch();
            &(*this).worker_slot
        };
        // ORDERING: C3: published after the decision has been started.
        told.store(slot as u32 + 1, Ordering::Release);
    }

    /// Returns the slot of the worker that has started the caller's queued task, or offers the task again. Returns
    /// `None` until that worker has published the slot.
    pub(crate) fn worker_slot(&self) -> Option<usize> {
        // ORDERING: C3: acquires the start of the decision, if the worker has started the task.
        let told = self.worker_slot.load(Ordering::Acquire);
        ((told % LEAVES) as usize).checked_sub(1)
    }

    /// Publishes the worker's slot number to a handle, after the worker has started the decision.
    /// Returns `true` if the handle has cancelled the task already. A later cancel finds the slot
    /// number.
    #[must_use]
    pub(crate) fn tell_slot(&self, slot: usize) -> bool {
        // ORDERING: C3: published after the decision has been started. Acquires what the handle did
        // before it cancelled the task.
        let told = (self.worker_slot).fetch_add(slot as u32 + 1, Ordering::AcqRel);
        told & CANCELLED != 0
    }

    /// Notes that a worker offers the task again, in its mailbox. Called before the caller can take the
    /// task there. Not for a node on the heap. Once in a node's life: its caller reads slot and generation one after the other.
    pub(crate) fn offer_on(&self, slot: usize, generation: u64) {
        self.alive.touch();
        debug_assert_eq!(self.offered_again(), None);
        // Relaxed: the store below publishes it.
        self.worker_slot.store(slot as u32 + 1, Ordering::Relaxed);
        // ORDERING: C6: releases the slot.
        (self.offered_again).store(generation << 1 | 1, Ordering::Release);
    }

    /// Returns the slot in whose mailbox a worker has offered the task again, and its generation there.
    pub(crate) fn offered_again(&self) -> Option<(usize, u64)> {
        // ORDERING: C6: acquires that the task has left its place, and the slot.
        let generation = self.offered_again.load(Ordering::Acquire);
        (generation != 0).then(|| Some((self.worker_slot()?, generation >> 1)))?
    }

    /// Marks the handle's task as cancelled. If a worker has started the task, returns that
    /// worker's slot. If not, returns `None`: the caller takes the task out. If it does not find the
    /// task, a worker has it in hand, and finds the mark: it discards the task instead of starting it.
    pub(crate) fn cancel(&self) -> Option<usize> {
        // ORDERING: C3: acquires that the decision has been started.
        // Releases what the handle did before.
        let told = self.worker_slot.fetch_or(CANCELLED, Ordering::AcqRel);
        ((told % LEAVES) as usize).checked_sub(1)
    }

    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: C4: acquires the outcome.
        self.done.load(Ordering::Acquire) == DONE
    }

    /// Makes the next wait of this thread park at once. A kernel wakes a parked thread on an idle
    /// CPU if there is one. A thread that only yields stays on the CPU of the worker.
    pub(crate) fn park_next_time() {
        PARK_NEXT.set(true);
    }

    /// Waits until the outcome is there, and returns the step after which it came. After `Yielded`,
    /// the worker probably runs on the same core as this thread. Returns `None` if the deadline
    /// passed first.
    #[must_use]
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> Option<Step> {
        let mut spin = spin_for_outcome(parallel);
        let mut step = Step::Spun;
        while !self.is_done() {
            let yields_at = spin.yields_next().then(now);
            step = spin.step();
            if step == Step::Spent {
                YIELD_EARLY.set(false);
                return self.park(deadline).then_some(step);
            }
            if let Some(before) = yields_at {
                let now = now();
                note_yield(now.saturating_duration_since(before));
                if deadline.has_passed_by(now) && !self.is_done() {
                    return None;
                }
            }
        }
        YIELD_EARLY.set(step == Step::Yielded);
        Some(step)
    }

    /// Parks until the outcome is there. Returns `false` if the deadline passes first.
    #[cold]
    fn park(&self, deadline: &Deadline) -> bool {
        // Relaxed: only this thread sets `PARKED`, and the loop below looks for `DONE`.
        if self.done.load(Ordering::Relaxed) == WAITING {
            // SAFETY: this thread is the caller or the handle, and the state is `WAITING`.
            unsafe { self.replace(Some(WakeUp::Thread(thread::current()))) };
            // A failure means `DONE`, which the loop reads again.
            let _ = self.set_parked();
        }
        while !self.is_done() {
            if !deadline.park() {
                return false;
            }
        }
        true
    }

    /// Replaces the stored wake-up. Returns the previous one.
    ///
    /// # Safety
    /// The calling thread owns the wake-up: it is the caller or handle in `WAITING`, or the worker
    /// in `TAKING`.
    unsafe fn replace(&self, wake_up: Option<WakeUp>) -> Option<WakeUp> {
        // SAFETY: by this function's contract.
        (self.wake_up).with_mut(|cell| unsafe { std::mem::replace(&mut *cell, wake_up) })
    }

    /// Sets `PARKED`. Returns `false` if the outcome is there instead.
    fn set_parked(&self) -> bool {
        // ORDERING: C4: releases the wake-up; on failure, acquires the outcome.
        (self.done)
            .compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Acquire)
            .is_ok()
    }

    /// Tells the caller or handle that its outcome is there. Returns the waker that the calling
    /// thread must wake, if there is one. Also returns whether the handle is gone. If it is, the
    /// calling thread must free the node. If not, the calling thread must not touch the node again.
    ///
    /// # Safety
    /// `this` is the node of a caller that still waits, or of a handle. Its outcome is written.
    /// This is the only call for the node.
    #[must_use]
    pub(crate) unsafe fn release(this: *const Self) -> (Option<Waker>, bool) {
        // SAFETY: a caller that still waits leaves its node only after `DONE`. It has lost the
        // decision, or its task was taken out and never started. A handle frees its node only if it
        // finds `DONE`. So the node is alive until the step below that sets `DONE`, or that finds
        // `GONE`.
        let node = unsafe { &*this };
        node.alive.touch();
        let done: *const AtomicU32 = &node.done;
        // ORDERING: C4, C5: on failure, acquires what the handle did before it left.
        // SAFETY: the node is alive at each step, as above.
        let step = |from, to, order| unsafe {
            (*done).compare_exchange(from, to, order, Ordering::Acquire)
        };
        loop {
            // ORDERING: C4: releases the outcome and all that the worker did before.
            match step(WAITING, DONE, Ordering::Release) {
                Ok(_) => return (None, false),
                Err(GONE) => return (None, true),
                Err(_) => {}
            }
            // ORDERING: C4: acquires the wake-up, releases the outcome.
            if step(PARKED, TAKING, Ordering::AcqRel).is_ok() {
                // SAFETY: this thread has set `TAKING`.
                let wake_up = unsafe { node.replace(None) };
                // ORDERING: C4, C5: as above.
                // SAFETY: the node is alive until this step.
                let before = unsafe { (*done).swap(DONE, Ordering::AcqRel) };
                return (wake_up.and_then(WakeUp::unpark), before == GONE);
            }
        }
    }

    // ---- the handle's side of a node on the heap: one thread at a time, except `has_outcome` ----

    /// Returns `true` if the outcome may be taken. The worker may still be taking the wake-up.
    pub(crate) fn has_outcome(&self) -> bool {
        // ORDERING: C4: acquires the outcome.
        matches!(self.done.load(Ordering::Acquire), TAKING | DONE)
    }

    /// Says that the handle is about to be released, before it cancels its task.
    pub(crate) fn begin_release(&self) {
        // ORDERING: C3: set before the handle cancels the task.
        self.worker_slot.fetch_or(LEAVES, Ordering::AcqRel);
    }

    /// Returns `true` if the handle has left or is leaving. The worker calls this. After `false`,
    /// the handle may still leave at any time.
    pub(crate) fn is_gone(&self) -> bool {
        // ORDERING: C3: a worker that finds its task abandoned by a handle which leaves, finds this, too. Otherwise a
        // hint: at the end of the task, `release` reads `done` with Acquire.
        self.worker_slot.load(Ordering::Acquire) & LEAVES != 0
    }

    /// Takes the wake-up back. Returns `None` if no wake-up is stored, or if the worker has claimed
    /// it. The caller drops the wake-up, which may be user code.
    pub(super) fn retract(&self) -> Option<WakeUp> {
        assert_unlocked();
        // Relaxed: only this thread sets `PARKED`. The load comes first, because it costs less than
        // a compare-and-swap that fails.
        if self.done.load(Ordering::Relaxed) != PARKED {
            return None;
        }
        // ORDERING: C4: on failure, acquires the outcome.
        (self.done)
            .compare_exchange(PARKED, WAITING, Ordering::Acquire, Ordering::Acquire)
            .ok()?;
        // SAFETY: this thread is the handle, and has set `WAITING`.
        unsafe { self.replace(None) }
    }

    /// Stores `waker` in place of the stored wake-up. If the outcome is there, stores nothing and
    /// returns `true`.
    pub(super) fn register(&self, waker: &Waker) -> bool {
        let before = self.retract();
        if self.has_outcome() {
            return true;
        }
        let (now, _dropped_last) = match before {
            Some(WakeUp::Task(same)) if same.will_wake(waker) => (same, None),
            // The clone is user code. Nothing is stored while it runs, so it may panic.
            before => (waker.clone(), before),
        };
        // SAFETY: this thread is the handle, and the state is `WAITING`.
        unsafe { self.replace(Some(WakeUp::Task(now))) };
        if self.set_parked() {
            return false;
        }
        // SAFETY: `PARKED` was not set, so the worker has set `DONE` without touching the wake-up.
        // The wake-up still belongs to this thread.
        let _unused = unsafe { self.replace(None) };
        true
    }

    /// Leaves the node for good. Returns the stored wake-up, if there is one. Also returns `true`
    /// if the calling thread must free the node.
    ///
    /// # Safety
    /// `this` is the node of a handle, and this is its last use.
    pub(super) unsafe fn release_handle(this: *const Self) -> (Option<WakeUp>, bool) {
        // SAFETY: the worker frees the node only once it finds `GONE`, which is set below. It may
        // free the node before this function returns. By then this function uses no reference to
        // the node.
        let node = unsafe { &*this };
        let (wake_up, done) = (node.retract(), &raw const node.done);
        let is_done = node.is_done();
        if !is_done {
            node.begin_release();
        }
        // ORDERING: C4, C5: releases what the handle did before the worker frees the node; on
        // failure, acquires the outcome.
        // SAFETY: as above: this function touches nothing after the step that sets `GONE`.
        let step = |from| unsafe {
            (*done)
                .compare_exchange(from, GONE, Ordering::Release, Ordering::Acquire)
                .is_ok()
        };
        let is_last = is_done || !step(WAITING) && !step(TAKING);
        #[cfg(miri)]
        thread::yield_now();
        (wake_up, is_last)
    }
}
