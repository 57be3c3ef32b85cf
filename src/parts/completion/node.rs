//! What a waiting caller and its worker share: a node on the caller's stack.

use crate::parts::backoff::{Backoff, BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::sync::{current_thread, thread, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use std::cell::Cell;

std::thread_local! {
    /// See [`BoundedSpin::offering`]. It needs no destructor, so it can always be asked.
    static OFFERS: Cell<bool> = const { Cell::new(false) };
}

const WAITING: u32 = 0;
const PARKED: u32 = 1;
const DONE: u32 = 2;

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

/// The untyped part of what a caller waits with.
#[derive(Debug)]
pub(crate) struct WaitNode {
    /// `WAITING -> PARKED` (caller) and either `-> DONE` (worker).
    done: AtomicU32,
    /// Slot + 1 of the worker that took the task from the queue.
    worker_slot: AtomicU32,
    /// Written by the caller before `PARKED`, read by the worker after it.
    thread: UnsafeCell<Option<thread::Thread>>,
    pub(crate) label: Option<&'static str>,
    /// Zero until the caller has told it.
    deadline: AtomicU64,
    /// Tells loom when the node goes, and who touches it.
    #[cfg(any(lazypool_loom, lazypool_shuttle))]
    alive: UnsafeCell<()>,
}

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl Drop for WaitNode {
    fn drop(&mut self) {
        self.alive.with_mut(|_| ());
        self.thread.with_mut(|_| ());
    }
}

/// A caller that waits, and whose outcome is written: to be released.
#[derive(Debug)]
#[must_use]
pub(crate) struct Answered(*const WaitNode);

impl Answered {
    /// # Safety
    /// As [`WaitNode::release`], which is not called for it otherwise.
    pub(crate) unsafe fn new(node: *const WaitNode) -> Self {
        Self(node)
    }

    pub(crate) fn release(self) {
        // SAFETY: as it was made; it is consumed.
        unsafe { WaitNode::release(self.0) }
    }
}

impl WaitNode {
    pub(crate) fn new(label: Option<&'static str>) -> Self {
        Self {
            done: AtomicU32::new(WAITING),
            worker_slot: AtomicU32::new(0),
            thread: UnsafeCell::new(None),
            label,
            deadline: AtomicU64::new(0),
            #[cfg(any(lazypool_loom, lazypool_shuttle))]
            alive: UnsafeCell::new(()),
        }
    }

    /// Worker: reads or writes the node after this.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        #[cfg(any(lazypool_loom, lazypool_shuttle))]
        self.alive.with(|_| ());
    }

    /// Caller: tells its task when the deadline is, as nanoseconds, not zero. A task that asks
    /// waits for it.
    pub(crate) fn set_deadline(&self, nanos: u64) {
        // Relaxed: whoever reads it needs nothing else.
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    /// Worker: what the caller tells; it may be reading the clock.
    pub(super) fn await_deadline(&self) -> u64 {
        self.touch();
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
            (*this).touch();
            &(*this).worker_slot
        };
        // ORDERING: C3: the decision has been started.
        told.store(slot as u32 + 1, Ordering::Release);
    }

    /// Caller: the slot of the worker that has taken its task from the queue, if it has.
    pub(crate) fn worker_slot(&self) -> Option<usize> {
        // ORDERING: C3: the decision has been started.
        let told = self.worker_slot.load(Ordering::Acquire);
        (told as usize).checked_sub(1)
    }

    pub(crate) fn is_done(&self) -> bool {
        // ORDERING: C4: the outcome is written.
        self.done.load(Ordering::Acquire) == DONE
    }

    /// Waits until the outcome is there, or the deadline.
    pub(crate) fn wait(&self, deadline: &Deadline, parallel: bool) -> Waited {
        let mut spin = BoundedSpin::new(parallel).offering(OFFERS.get());
        loop {
            if self.is_done() {
                OFFERS.set(spin.has_offered());
                return if spin.has_offered() {
                    Waited::DoneOnceOffered
                } else {
                    Waited::Done
                };
            }
            match spin.step() {
                Step::Spun => {}
                Step::Yielded if !deadline.has_passed() => {}
                Step::Yielded if !self.is_done() => return Waited::Expired,
                Step::Yielded => return Waited::Done,
                Step::Spent => break,
            }
        }
        OFFERS.set(false);
        self.park(deadline)
    }

    #[cold]
    fn park(&self, deadline: &Deadline) -> Waited {
        let own = current_thread();
        let can_park = own.is_some();
        // Relaxed: only this thread sets PARKED, and DONE is looked for below.
        if can_park && self.done.load(Ordering::Relaxed) == WAITING {
            // SAFETY: only this thread writes it, before PARKED; the worker reads it after
            // it has seen PARKED.
            self.thread.with_mut(|t| unsafe { *t = own });
            // ORDERING: C4: publishes the handle. A failure means DONE, which the loop reads
            // again.
            let _ =
                self.done
                    .compare_exchange(WAITING, PARKED, Ordering::Release, Ordering::Relaxed);
        }
        loop {
            if self.is_done() {
                return Waited::Done;
            }
            if deadline.has_passed() {
                return Waited::Expired;
            }
            deadline.park(can_park);
        }
    }

    /// Tells the caller that its outcome is there.
    ///
    /// # Safety
    /// `this` is the node of a caller that still waits, its outcome is written, and this is
    /// the one call for it.
    pub(crate) unsafe fn release(this: *const Self) {
        // SAFETY: the caller leaves only after DONE: it lost the decision, or its task was taken
        // out and not started. So the node is alive until the step below that sets it.
        let done = unsafe {
            (*this).touch();
            &(*this).done
        };
        // ORDERING: C4: publishes the outcome and all that the worker did before; on
        // failure, acquires the handle written before PARKED.
        if done
            .compare_exchange(WAITING, DONE, Ordering::Release, Ordering::Acquire)
            .is_ok()
        {
            return;
        }
        // SAFETY: PARKED was seen with Acquire, so the handle is written and no longer
        // changes; the node is alive, as above.
        let caller = unsafe { (*this).thread.with(|t| (*t).clone()) };
        // ORDERING: C4: as above.
        done.swap(DONE, Ordering::Release);
        if let Some(caller) = caller {
            caller.unpark();
        }
    }
}
