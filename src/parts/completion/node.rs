//! What a waiting caller and its worker share: a node on the caller's stack, or on the heap.

use crate::parts::backoff::{Backoff, BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{thread, Alive, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use std::cell::Cell;
use std::task::Waker;

std::thread_local! {
    /// See [`BoundedSpin::new`]. It needs no destructor, so it can always be asked.
    static OFFERS: Cell<bool> = const { Cell::new(false) };
    /// See [`WaitNode::park_next_time`].
    static PARKS: Cell<bool> = const { Cell::new(false) };
}

const WAITING: u32 = 0;
/// A wake-up is stored. The caller may take it back, the worker may take it.
const PARKED: u32 = 1;
/// The worker takes the wake-up. The outcome is there.
const TAKING: u32 = 2;
const DONE: u32 = 3;
/// On the heap only: the handle is gone.
const GONE: u32 = 4;

/// Beside `worker_slot`, on the heap only: the handle has cancelled its task.
const CANCELLED: u32 = 1 << 31;

/// How a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waited {
    /// The outcome is there.
    Done,
    /// The same, right after the core had been offered: the worker is likely to share it.
    DoneOnceOffered,
    /// The deadline came first.
    Expired,
}

/// How a caller is woken.
#[derive(Debug)]
pub(crate) enum WakeUp {
    Thread(thread::Thread),
    Task(Waker),
}

/// The untyped part of what a caller waits with.
///
/// | `done` | to | by |
/// |---|---|---|
/// | `WAITING` | `PARKED` | caller: a wake-up is stored |
/// | `PARKED` | `WAITING` | handle: takes it back, to change it or because it waits no more |
/// | `WAITING` | `DONE` | worker: the outcome is there |
/// | `PARKED` | `TAKING`, then `DONE` | worker: the same, once it has the wake-up |
/// | `WAITING`, `TAKING` | `GONE` | handle, on the heap only: the worker frees the node |
#[derive(Debug)]
pub(crate) struct WaitNode {
    done: AtomicU32,
    /// Slot + 1 of the worker that took the task from the queue; on the heap, of any worker.
    worker_slot: AtomicU32,
    /// The caller's in `WAITING`, the worker's in `TAKING`.
    wake_up: UnsafeCell<Option<WakeUp>>,
    pub(crate) label: Option<&'static str>,
    /// Zero until the caller has told it.
    deadline: AtomicU64,
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
            worker_slot: AtomicU32::new(0),
            wake_up: UnsafeCell::new(None),
            label,
            deadline: AtomicU64::new(0),
            alive: Alive::new(),
        }
    }

    /// Caller: tells its task when the deadline is, as nanoseconds, not zero. A task that asks
    /// waits for it.
    pub(crate) fn set_deadline(&self, nanos: u64) {
        // Relaxed: whoever reads it needs nothing else.
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    /// Worker: what the caller tells; it may be reading the clock.
    pub(super) fn await_deadline(&self) -> u64 {
        self.alive.touch();
        let mut backoff = Backoff::default();
        loop {
            // Relaxed: as `set_deadline`.
            match self.deadline.load(Ordering::Relaxed) {
                0 => backoff.wait(),
                deadline => return deadline,
            }
        }
    }

    /// Worker: tells the caller of a queued task whose decision to look at.
    ///
    /// # Safety
    /// `this` is the node of a caller that waits for it, and this is the one call for
    /// it: the caller cannot leave before.
    pub(crate) unsafe fn publish_slot(this: *const Self, slot: usize) {
        // SAFETY: alive until the store below, by this function's contract.
        let told = unsafe {
            (*this).alive.touch();
            &(*this).worker_slot
        };
        // ORDERING: C3: the decision has been started.
        told.store(slot as u32 + 1, Ordering::Release);
    }

    /// Caller: the slot of the worker that has taken its task from the queue, if it has.
    pub(crate) fn worker_slot(&self) -> Option<usize> {
        // ORDERING: C3: the decision has been started.
        let told = self.worker_slot.load(Ordering::Acquire);
        ((told & !CANCELLED) as usize).checked_sub(1)
    }

    /// Worker, on the heap: has started the decision. Whether the handle has cancelled the task on
    /// its way; otherwise a cancel that comes later finds the slot.
    pub(crate) fn tell_slot(&self, slot: usize) -> bool {
        // ORDERING: C3: the decision has been started; acquires what the handle did before.
        let told = (self.worker_slot).fetch_add(slot as u32 + 1, Ordering::AcqRel);
        told & CANCELLED != 0
    }

    /// Handle: cancels its task. Where that runs, if a worker has started it: the decision is
    /// that worker's to look for otherwise.
    pub(crate) fn cancel(&self) -> Option<usize> {
        // ORDERING: C3: the decision has been started; releases what the handle did.
        let told = self.worker_slot.fetch_or(CANCELLED, Ordering::AcqRel);
        ((told & !CANCELLED) as usize).checked_sub(1)
    }

    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: C4: the outcome is written.
        self.done.load(Ordering::Acquire) == DONE
    }

    /// The next wait of this thread parks at once. A kernel wakes a thread on an idle CPU, if there is
    /// one; it leaves one that yields where it is, beside the worker.
    pub(crate) fn park_next_time() {
        PARKS.set(true);
    }

    /// Waits until the outcome is there, or the deadline.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> Waited {
        let mut spin = BoundedSpin::new(parallel, OFFERS.get());
        if PARKS.take() {
            spin = BoundedSpin::default();
        }
        let mut step = Step::Spun;
        while !self.is_done() {
            step = spin.step();
            if step == Step::Spent {
                OFFERS.set(false);
                return self.park(deadline);
            }
            if step == Step::Yielded && deadline.has_passed() && !self.is_done() {
                return Waited::Expired;
            }
        }
        let has_offered = step == Step::Yielded;
        OFFERS.set(has_offered);
        if has_offered {
            Waited::DoneOnceOffered
        } else {
            Waited::Done
        }
    }

    #[cold]
    fn park(&self, deadline: &Deadline) -> Waited {
        // Relaxed: only this thread sets PARKED, and DONE is looked for below.
        if self.done.load(Ordering::Relaxed) == WAITING {
            // SAFETY: this is the caller, in `WAITING`.
            unsafe { self.replace(Some(WakeUp::Thread(thread::current()))) };
            // A failure means DONE, which the loop reads again.
            let _ = self.set_parked();
        }
        loop {
            if self.is_done() {
                return Waited::Done;
            }
            if deadline.has_passed() {
                return Waited::Expired;
            }
            deadline.park();
        }
    }

    /// # Safety
    /// The cell is the calling thread's: the caller's in `WAITING`, the worker's in `TAKING`.
    unsafe fn replace(&self, wake_up: Option<WakeUp>) -> Option<WakeUp> {
        // SAFETY: by this function's contract.
        (self.wake_up).with_mut(|cell| unsafe { std::mem::replace(&mut *cell, wake_up) })
    }

    /// `false`: the outcome is there.
    fn set_parked(&self) -> bool {
        // ORDERING: C4: publishes the wake-up; on failure, the outcome.
        (self.done)
            .compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Acquire)
            .is_ok()
    }

    /// Tells the caller, or the handle, that its outcome is there; then `this` is no more to be touched.
    /// The waker to be called; and whether the handle is gone, so that the node is the calling thread's
    /// to free.
    ///
    /// # Safety
    /// `this` is the node of a caller that still waits, or of a handle; its outcome is written, and
    /// this is the one call for it.
    pub(crate) unsafe fn release(this: *const Self) -> (Option<Waker>, bool) {
        // SAFETY: a caller leaves, and a handle frees the node, only after DONE: either lost the
        // decision, or the task was taken out and not started. So the node is alive until the step
        // below that sets it, or that finds GONE.
        let node = unsafe { &*this };
        node.alive.touch();
        let done: *const AtomicU32 = &node.done;
        // ORDERING: C4, C5: a failure acquires what the handle did before it went.
        // SAFETY: as above, for each step.
        let step = |from, to, order| unsafe {
            (*done).compare_exchange(from, to, order, Ordering::Acquire)
        };
        loop {
            // ORDERING: C4: publishes the outcome and all that the worker did before.
            match step(WAITING, DONE, Ordering::Release) {
                Ok(_) => return (None, false),
                Err(GONE) => return (None, true),
                Err(_) => {}
            }
            // ORDERING: C4: acquires the wake-up, publishes the outcome.
            if step(PARKED, TAKING, Ordering::AcqRel).is_ok() {
                // SAFETY: in TAKING.
                let wake_up = unsafe { node.replace(None) };
                // ORDERING: C4, C5: as above.
                // SAFETY: the node is alive until this step.
                let before = unsafe { (*done).swap(DONE, Ordering::AcqRel) };
                let waker = match wake_up {
                    Some(WakeUp::Task(waker)) => Some(waker),
                    Some(WakeUp::Thread(caller)) => {
                        caller.unpark();
                        None
                    }
                    None => None,
                };
                return (waker, before == GONE);
            }
        }
    }

    // ---- the handle's side of a node on the heap; one thread at a time, but for `has_outcome` ----

    /// Whether the outcome may be taken; the worker may still hold the wake-up.
    pub(crate) fn has_outcome(&self) -> bool {
        // ORDERING: C4: the outcome is written.
        matches!(self.done.load(Ordering::Acquire), TAKING | DONE)
    }

    /// Worker: whether the handle is gone. If not, it may go at any time.
    pub(crate) fn is_gone(&self) -> bool {
        // Relaxed: the end finds out.
        self.done.load(Ordering::Relaxed) == GONE
    }

    /// Takes the wake-up back.
    pub(super) fn retract(&self) -> Option<WakeUp> {
        // ORDERING: C4: on failure, the outcome.
        (self.done)
            .compare_exchange(PARKED, WAITING, Ordering::Acquire, Ordering::Acquire)
            .ok()?;
        // SAFETY: this is the handle, and set `WAITING`.
        unsafe { self.replace(None) }
    }

    /// Stores the waker in place of what was stored; `true`: the outcome is there instead.
    pub(super) fn register(&self, waker: &Waker) -> bool {
        let before = self.retract();
        if self.has_outcome() {
            return true;
        }
        let (now, _dropped_last) = match before {
            Some(WakeUp::Task(same)) if same.will_wake(waker) => (same, None),
            // Whatever code of the user's panics from here on, nothing is stored.
            before => (waker.clone(), before),
        };
        // SAFETY: this is the handle, in `WAITING`.
        unsafe { self.replace(Some(WakeUp::Task(now))) };
        if self.set_parked() {
            return false;
        }
        // SAFETY: as above; the worker found nobody parked.
        let _unused = unsafe { self.replace(None) };
        true
    }

    /// The handle goes. Returns the stored wake-up, and whether the calling thread is to free the node.
    ///
    /// # Safety
    /// `this` is the node of a handle, and this is its last use.
    pub(super) unsafe fn leave(this: *const Self) -> (Option<WakeUp>, bool) {
        // SAFETY: the worker frees the node only once it finds `GONE`, set below. No reference to the node
        // is left by then: the worker may free it before this function returns.
        let (wake_up, done) = unsafe { ((*this).retract(), &raw const (*this).done) };
        // ORDERING: C4, C5: what the handle did comes before the worker frees the node; on failure,
        // the outcome.
        // SAFETY: as above: no step follows one that sets `GONE`.
        let step = |from| unsafe {
            (*done)
                .compare_exchange(from, GONE, Ordering::Release, Ordering::Acquire)
                .is_ok()
        };
        let is_last = !step(WAITING) && !step(TAKING);
        #[cfg(miri)]
        thread::yield_now();
        (wake_up, is_last)
    }
}
