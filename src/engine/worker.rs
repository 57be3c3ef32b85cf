//! A worker's life.
//!
//! ```text
//!            order: task                     none queued
//!  Idle ------------------> Busy: run --------------------> Idle
//!   | ^                        ^ \--- the next queued ---\
//!   | |                        |  ^----------------------/
//!   | +--- none queued ---- Searching <---- order: look at the queue
//!   +------- sees one queued --^
//!   +------- order: retire ---> Retiring ---> end, or Searching
//! ```
//!
//! A task's end goes in this order, which the laws on admission and accounting rest on: the
//! worker finds its next state (the next queued task, or `Idle`), *then* counts the task,
//! *then* releases whoever waits for it, *then* tells the first who waits for room. So who
//! sees the end of a task, by its counters or its result, finds its worker free. Up to the
//! release it waits for no other thread but that caller, if it is just leaving, and for another
//! panic of the same scope: a push that is half done is left for the look at the queue that
//! follows.
//!
//! A worker whose last task came from the queue, or was awaited by nobody, **watches** the queue
//! as well as its own word, and counts as awake. One that was handed an awaited task watches its
//! own word only, and looks at the queue once, after it has published that it is idle.

use super::core::{Core, Registry};
use crate::parts::backoff::{AdaptiveSpin, Backoff};
use crate::parts::completion::{mailbox_id, queue_id};
use crate::parts::in_flight::{AWAKE, NOTIFIED, TRANSIT};
use crate::parts::queue::{Popped, Queue};
use crate::parts::slot::{Order, Rest, Slot};
use crate::sync::{now, thread, Arc, MutexGuard, Ordering};
use crate::work::context::{Ctx, Owed};
use crate::work::env::in_hook;
use crate::work::job::{Ending, Task};
use crate::work::observe;
use crate::work::record::Record;
use std::cell::Cell;
use std::ptr;

/// The thread of the worker on a slot.
pub(crate) fn main(core: &Arc<Core>, slot: usize) {
    core.env.own_this_thread();
    let it = &core.slots[slot];
    let mut backoff = Backoff::default();
    while it.is_held() {
        backoff.wait();
    }
    let pay = |owed| match owed {
        Owed::Look => core.notify_another(),
        Owed::Room => core.notify_waiter(),
        Owed::Drop => core.tell_drop(),
    };
    let ctx = Ctx::new(&core.env, &it.record, slot, &pay);
    let _entered = ctx.enter();
    Worker {
        core,
        slot,
        it,
        ctx: &ctx,
        spin: AdaptiveSpin::new(core.parallel),
        watches: Cell::new(false),
        was_in_group: Cell::new(false),
    }
    .live();
}

struct Worker<'a> {
    core: &'a Arc<Core>,
    slot: usize,
    it: &'a Slot<Task, Record>,
    ctx: &'a Ctx<'a>,
    spin: AdaptiveSpin,
    /// It counts as awake, and watches the queue.
    watches: Cell<bool>,
    /// Its last task was of a group. Who waits for that has to be woken before the next tasks can
    /// come: it spins for longer.
    was_in_group: Cell<bool>,
}

/// What a wait ended in.
enum Woken {
    Ordered(Order<Task>),
    /// It has taken itself, to look at the queue.
    SawTask,
}

impl Worker<'_> {
    fn live(&self) {
        self.start_hook();
        // One that has no order becomes visible by looking at the queue.
        if self.take_self_if_idle() {
            self.search();
        }
        loop {
            match self.wait() {
                Woken::SawTask => self.search(),
                Woken::Ordered(Order::Run { task, generation }) => {
                    let watch = self.core.queue.is_some() && !task.is_awaited();
                    self.work(&mut Some(task), mailbox_id(generation), watch);
                }
                Woken::Ordered(Order::Search) => {
                    self.arrive();
                    self.search();
                }
                Woken::Ordered(Order::Retire) => {
                    if self.end() {
                        return;
                    }
                    self.search();
                }
            }
        }
    }

    // ---- hooks --------------------------------------------------------------------

    fn hook(&self, hook: &(dyn Fn(usize) + Send + Sync)) {
        in_hook(|| {
            self.core.env.hook(|| hook(self.slot));
            self.ctx.end_if_forked();
        });
    }

    fn start_hook(&self) {
        if let Some(start) = &self.core.env.hooks.start {
            self.hook(start);
            self.it.record.end_hook();
        }
    }

    // ---- tasks --------------------------------------------------------------------

    /// Runs a task, and queued ones after it as long as there are any. Then looks at the
    /// queue once more, as an idle worker.
    ///
    /// It watches the queue after it, if its last task came from there, or is one that the next
    /// is likely to follow through the queue: nobody awaits it.
    fn work(&self, first: &mut Option<Task>, task_id: u64, mut watch: bool) {
        let (mut now, mut next) = (first, &mut None);
        let mut task_id = Some(task_id);
        self.stop_watching();
        while let Some(its) = task_id.take() {
            self.ctx.task_id.set(its);
            Task::run_in(now, self.ctx, &mut |how| {
                task_id = self.end_task(how, next, watch);
            });
            // After the release, which must not wait for a thread in the list of those who
            // wait for room; nor must the start of the next task, which pays what the worker
            // owes. A task that was not run, because its time was up, has not paid.
            match task_id {
                Some(_) => self.ctx.owe_room(),
                None => {
                    self.ctx.pay_debts();
                    self.core.notify_waiter();
                }
            }
            watch = true;
            std::mem::swap(&mut now, &mut next);
        }
    }

    /// A task has run: finds what comes next, and counts the task. The next one's id.
    fn end_task(&self, how: Ending, place: &mut Option<Task>, watch: bool) -> Option<u64> {
        if !self.core.env.is_usual_and_zero(how as u64) {
            return self.end_task_rarely(how, place, watch);
        }
        let next = self.find_next(place, watch);
        self.it.record.count_end(false);
        next
    }

    /// The same, where the task did not just return, or the pool is not as usual.
    #[cold]
    fn end_task_rarely(&self, how: Ending, place: &mut Option<Task>, watch: bool) -> Option<u64> {
        self.ctx.end_if_forked();
        // Its task did not run, and so has not paid: others rely on a look that no later order
        // may take from it.
        let owes = how == Ending::Expired && self.ctx.owes_a_look.get();
        let next = self.find_next(place, watch || owes);
        if let Ending::CompletedLate | Ending::PanickedLate = how {
            // Relaxed: a count.
            self.core.counts.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        match how {
            Ending::Completed | Ending::CompletedLate => self.it.record.count_end(false),
            Ending::Panicked | Ending::PanickedLate => self.it.record.count_end(true),
            Ending::Expired => {
                self.core.counts.expire_handed();
                self.it.record.count_revoked();
                if next.is_none() {
                    // It watches the queue, if it owes that.
                    self.ctx.owes_a_look.set(false);
                }
            }
        }
        next
    }

    /// The next queued task's id; or makes the worker idle.
    #[inline(always)]
    fn find_next(&self, place: &mut Option<Task>, watch: bool) -> Option<u64> {
        let next = (self.core.queue.as_ref()).and_then(|queue| self.take_ready(queue, place));
        if next.is_none() {
            self.was_in_group.set(self.it.record.is_in_group());
            self.it.record.leave_group_for(ptr::null());
            if watch {
                self.start_watching();
            }
            // SAFETY: this thread is the slot's worker, `Busy`.
            unsafe { self.it.publish_idle(&self.core.ready, self.slot) };
        }
        next
    }

    /// Moves the next queued task into the place, if it is there; its id.
    #[inline]
    fn take_ready(&self, queue: &Queue<Task>, place: &mut Option<Task>) -> Option<u64> {
        let position = queue.try_pop_ready(place, &self.it.record)?;
        self.it.record.count_taken();
        Some(queue_id(position))
    }

    // ---- the queue ----------------------------------------------------------------

    fn start_watching(&self) {
        self.watches.set(true);
        self.core.in_flight.add(AWAKE);
    }

    /// It counts as awake no more; who relied on that is answered by
    /// [`Ctx::owes_a_look`] or by a last look at the queue.
    fn stop_watching(&self) {
        if self.watches.replace(false) {
            self.core.in_flight.sub(AWAKE);
            self.ctx.owes_a_look.set(true);
        }
    }

    /// It has been told to look at the queue, and is there.
    fn arrive(&self) {
        if self.watches.replace(true) {
            // It counts already.
            self.core.in_flight.sub(NOTIFIED);
        } else {
            self.core.in_flight.shift(NOTIFIED, AWAKE);
        }
    }

    /// Takes itself from idle, to look at the queue; `false` if another was faster, whose
    /// order is on its way.
    fn take_self(&self) -> bool {
        // Counted before it leaves the ring.
        let counted = self.watches.get();
        if !counted {
            self.start_watching();
        }
        match self.it.claim_self() {
            Some(claim) => {
                if claim.marked {
                    self.core.in_flight.unmark();
                }
                true
            }
            None => {
                if !counted {
                    self.watches.set(false);
                    self.core.in_flight.sub(AWAKE);
                    // The count may have been relied on meanwhile.
                    self.core.notify_another_noting(&self.ctx.starts);
                }
                false
            }
        }
    }

    /// The same for one that nobody relies on: if it has an order, it does not count as awake. A
    /// submission would rely on it, and then both ask for another thread.
    fn take_self_if_idle(&self) -> bool {
        self.it.see().is_idle() && self.take_self()
    }

    /// Looks at the queue: runs what is there, or goes idle. It is `Searching` and awake.
    fn search(&self) {
        let Some(queue) = &self.core.queue else {
            return self.go_idle();
        };
        let mut place = None;
        let mut backoff = Backoff::default();
        loop {
            let popped = match queue.try_pop(&mut place) {
                Popped::Guarded => match self.core.pop_by_leave(queue, &mut place) {
                    Some(popped) => popped,
                    None => {
                        self.go_idle();
                        return self.core.retire_if_due(self.slot);
                    }
                },
                popped => popped,
            };
            match popped {
                Popped::Task(position) => {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe { self.it.start_queued() };
                    self.it.record.count_taken();
                    self.ctx.owe_room();
                    return self.work(&mut place, queue_id(position), true);
                }
                Popped::Empty => return self.go_idle(),
                Popped::InProgress | Popped::Guarded => backoff.wait(),
            }
        }
    }

    /// From `Searching`.
    fn go_idle(&self) {
        // SAFETY: this thread is the slot's worker, `Searching`.
        unsafe { self.it.publish_idle(&self.core.ready, self.slot) };
        self.core.notify_waiter();
    }

    // ---- waiting ------------------------------------------------------------------

    /// Waits for an order, or for a task in the queue.
    fn wait(&self) -> Woken {
        // After it has published that it is idle: what was queued before that. One that
        // watches will see it.
        if !self.watches.get() && !self.core.nothing_queued() && self.take_self_if_idle() {
            return Woken::SawTask;
        }
        loop {
            if let Some(woken) = self.spin() {
                return woken;
            }
            if self.watches.replace(false) {
                self.core.in_flight.sub(AWAKE);
                if !self.core.nothing_queued() && self.take_self() {
                    return Woken::SawTask;
                }
            }
            if self.core.env.is_closed_or_over() {
                self.retire_self();
            }
            match self.it.rest() {
                // Claimed, its order a few instructions away; or a caller that took its task
                // back is about to make it idle again.
                Rest::OrderComing => thread::yield_now(),
                Rest::MayPark => self.sleep(),
            }
        }
    }

    /// Looks for a while.
    fn spin(&self) -> Option<Woken> {
        let stop = || self.core.env.is_closed_or_over();
        self.spin
            .look_for(self.was_in_group.get(), || self.look(), stop)
    }

    #[inline(always)]
    fn look(&self) -> Option<Woken> {
        // SAFETY: this thread is the slot's worker. It comes here new, or after it has
        // published that it is idle.
        if let Some(order) = unsafe { self.it.poll_order() } {
            return Some(Woken::Ordered(order));
        }
        (self.watches.get() && self.is_next_there() && self.take_self()).then_some(Woken::SawTask)
    }

    fn is_next_there(&self) -> bool {
        self.core.queue.as_ref().is_some_and(Queue::is_next_there)
    }

    fn sleep(&self) {
        self.core.tell_cleaner(self.slot);
        let start = now();
        self.core.sleep_idle(self.slot);
        self.spin.slept(now().saturating_duration_since(start));
    }

    /// The pool is closed, or has too many workers: nobody needs to tell it to end. Who closed
    /// it, or lowered the limit, looks for idle workers, too: one of the two sees the other
    /// (P5, P9).
    fn retire_self(&self) {
        if !self.core.is_closed() {
            return self.core.retire_if_due(self.slot);
        }
        self.core.in_flight.add(TRANSIT);
        match self.it.retire(false) {
            Some(claim) if claim.marked => self.core.in_flight.unmark(),
            Some(_) => {}
            None => self.core.leave_transit(),
        }
    }

    // ---- the end ------------------------------------------------------------------

    /// Told to end: does so, unless there is a queued task to look at, and also then if there
    /// are too many workers. In transit on entry; `Searching` and awake if it stays.
    fn end(&self) -> bool {
        self.stop_watching();
        self.ctx.owes_a_look.set(false);
        let mut has_stopped = false;
        loop {
            let registry = self.core.registry_to_end();
            if self.stays(&registry) {
                drop(registry);
                if has_stopped {
                    self.restart_hook();
                }
                self.stay();
                return false;
            }
            match &self.core.env.hooks.stop {
                Some(stop) if !has_stopped => {
                    drop(registry);
                    // For those who relied on it while it watched: the hook may take its time.
                    self.core.notify_another_noting(&self.ctx.starts);
                    self.hook(stop);
                    has_stopped = true;
                }
                _ => {
                    if self.leave(registry) {
                        return true;
                    }
                }
            }
        }
    }

    /// Whether it is needed after all.
    fn stays(&self, registry: &Registry) -> bool {
        let core = self.core;
        // Told to end as one too many, and the limit has been raised again.
        let is_missed = registry.live <= core.settings.min_workers && !core.is_closed();
        !core.must_end(registry) && (is_missed || !core.nothing_queued())
    }

    /// It has stopped, so it starts again.
    fn restart_hook(&self) {
        if let Some(start) = &self.core.env.hooks.start {
            self.hook(start);
        }
    }

    /// Back to the queue instead of ending.
    fn stay(&self) {
        self.watches.set(true);
        self.core.in_flight.shift(TRANSIT, AWAKE);
        // SAFETY: this thread is the slot's worker, and was told to end.
        unsafe { self.it.cancel_retirement() };
        // It counted on this one's end, and may have left another alone.
        self.core.wake_dozing_cleaner();
        self.core.settled();
    }

    /// The last steps on the slot; `false` if a task has been queued that nobody else would
    /// look at.
    fn leave(&self, mut registry: MutexGuard<'_, Registry>) -> bool {
        let core = self.core;
        if let (Some(queue), 1) = (&core.queue, registry.live) {
            if !queue.sleep() {
                return false;
            }
        }
        let ending = registry.take_ending(false);
        registry.live -= 1;
        registry.retired += 1;
        let own = registry.handles[self.slot].take();
        registry.to_join.extend(own);
        // SAFETY: as in `stay`. Its thread is already on the list of those to join.
        unsafe { self.it.vacate() };
        core.put_back(&mut registry, self.slot);
        if registry.live <= core.settings.min_workers {
            core.wake_cleaner(&registry);
        }
        core.changed.notify_all();
        drop(registry);
        core.leave_transit();
        core.notify_waiter();
        // What was pushed before the slot was free for a thread of its own.
        core.notify_another_noting(&self.ctx.starts);
        core.join(ending);
        self.ctx.starts.tell();
        observe::worker_retired(&core.env, self.slot);
        true
    }
}
