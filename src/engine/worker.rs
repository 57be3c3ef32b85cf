//! A worker's life. Its steps from state to state are on the protocol page.
//!
//! A task's end goes in this order, which the guarantees on admission and accounting rest on: the
//! worker finds its next state (the next queued task, or `Idle`), *then* counts the task,
//! *then* releases its waiter and calls that waiter's waker, *then* gives space to the line. So a thread
//! that sees the end of a task, by its counters or its result, finds its worker free. Up to the
//! release the worker waits for another thread in three cases only: a caller or handle is between the two
//! steps of leaving; another task of its scope stores its panic; another thread holds its group's lock. It
//! does not wait for a push that is half done: it looks at the queue again afterwards.
//!
//! A worker whose last task came from the queue, or was awaited by nobody, **watches** the queue
//! as well as its own word, and counts as awake. One that was handed an awaited task watches its
//! own word only, and looks at the queue once, after it has published that it is idle.
//!
//! In a pool that is closed, or over its limit, a worker does not go idle after a task, but looks
//! whether it has to end. So does one that is about to sleep.

use super::core::{Core, Registry};
use crate::parts::backoff::{AdaptiveSpin, Backoff};
use crate::parts::completion::{mailbox_id, queue_id};
use crate::parts::in_flight::{AWAKE, NOTIFIED};
use crate::parts::members::Ended;
use crate::parts::queue::{Popped, Queue};
use crate::parts::slot::{Order, Slot, State};
use crate::sync::{fork, lock, now, Arc, MutexGuard};
use crate::work::context::Ctx;
use crate::work::job::Task;
use crate::work::record::Record;
use std::cell::Cell;

/// The thread of the worker on a slot.
pub(crate) fn main(core: &Arc<Core>, slot: usize) {
    core.env.own_this_thread(slot);
    let it = &core.slots[slot];
    let mut backoff = Backoff::default();
    while it.is_held() {
        backoff.wait();
    }
    let help_others = || {
        core.serve_line();
        core.notify_another();
    };
    let ctx = Ctx::new(&core.env, &it.record, slot, &help_others);
    let _entered = ctx.enter();
    Worker {
        core,
        slot,
        it,
        ctx: &ctx,
        spin: AdaptiveSpin::new(core.parallel),
        watches: Cell::new(false),
        searches_next: Cell::new(false),
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
    /// After its last task it went to search, as the pool was closed or over its limit.
    searches_next: Cell<bool>,
}

/// What a worker does next.
enum Next {
    Ordered(Order<Task>),
    /// It has taken itself, to look at the queue or whether to end.
    Search,
    /// It has to end.
    End,
}

impl Worker<'_> {
    fn live(&self) {
        if self.core.env.has_start_hook() {
            self.start();
        }
        let mut next = self.wait();
        loop {
            next = match next {
                Next::Search => self.search(),
                Next::Ordered(Order::Run { task, generation }) => {
                    let watch = self.core.queue.is_some() && !task.is_awaited();
                    self.work(&mut Some(task), mailbox_id(generation), watch)
                }
                Next::Ordered(Order::Search) => {
                    self.acknowledge_notification();
                    self.search()
                }
                Next::Ordered(Order::Retire) | Next::End => {
                    if self.end() {
                        return;
                    }
                    Next::Search
                }
            };
        }
    }

    // ---- hooks --------------------------------------------------------------------

    fn hook(&self, hook: &(dyn Fn(usize) + Send + Sync)) {
        (self.ctx).call_back(|| self.core.env.hook(|| hook(self.slot)));
    }

    fn start_hook(&self) {
        if let Some(start) = &self.core.env.hooks.start {
            self.hook(start);
        }
    }

    /// Runs the start hook. After that the worker obeys orders. One that is to look at the queue counts as
    /// notified.
    fn start(&self) {
        self.start_hook();
        let mut backoff = Backoff::default();
        let count = || self.core.in_flight.add(NOTIFIED);
        // SAFETY: this thread is the slot's worker, and is being started.
        while unsafe { self.it.has_started(count) }.is_none() {
            backoff.wait();
        }
    }

    // ---- tasks --------------------------------------------------------------------

    /// Runs a task, and queued ones after it as long as there are any.
    ///
    /// It watches the queue after it, if its last task came from there, or is one that the next
    /// is likely to follow through the queue: nobody awaits it.
    fn work(&self, first: &mut Option<Task>, task_id: u64, mut watch: bool) -> Next {
        let (mut now, mut after) = (first, &mut None);
        let mut task_id = Some(task_id);
        self.stop_watching();
        while let Some(id) = task_id.take() {
            self.ctx.task_id.set(id);
            Task::run_in(now, self.ctx, &mut |ended| {
                task_id = self.find_next(after, watch);
                self.count(ended);
            });
            if task_id.is_some() {
                self.spin.ran_several();
                // Not served here: that may start a thread, and the next task's caller could not leave
                // meanwhile.
                self.defer_serving_line();
            } else if !self.searches_next.get() {
                self.serve_line_while_idle();
            }
            watch = true;
            std::mem::swap(&mut now, &mut after);
        }
        if !self.searches_next.take() {
            return self.wait();
        }
        Next::Search
    }

    /// Gives space to the line, now that this worker is idle and its last task's waiter is released.
    fn serve_line_while_idle(&self) {
        if self.core.line.waiting() != 0 || self.ctx.has_deferred_wake() {
            // Both may take their time, so no submission is to rely on this worker.
            self.stop_watching();
        }
        self.ctx.runs_idle.set(true);
        self.core.serve_line();
        self.ctx.run_deferred();
        self.ctx.runs_idle.set(false);
    }

    /// It has taken a queued task: the space goes to the line once that task counts as started.
    fn defer_serving_line(&self) {
        if self.core.line.waiting() != 0 {
            self.ctx.defer_helping_others();
        }
    }

    /// The next queued task's id; or makes the worker idle. In a pool that is closed or over its
    /// limit the worker searches instead.
    #[inline(always)]
    fn find_next(&self, place: &mut Option<Task>, watch: bool) -> Option<u64> {
        if !self.core.env.is_fast_path_open(0) && self.is_to_look_closer() {
            self.searches_next.set(true);
            self.start_watching();
            // SAFETY: this thread is the slot's worker, `Busy`.
            unsafe { self.it.step(State::Busy, State::Searching) };
            return None;
        }
        let next = (self.core.queue.as_ref()).and_then(|queue| {
            let position = queue.try_pop_ready(place)?;
            self.it.record.count_taken();
            Some(queue_id(position))
        });
        if next.is_none() {
            if watch {
                self.start_watching();
            }
            // SAFETY: this thread is the slot's worker, `Busy`.
            unsafe { self.it.publish_idle(&self.core.ready, self.slot) };
        }
        next
    }

    /// Returns `true` if it may have to end. In a forked child it ends at once.
    #[cold]
    fn is_to_look_closer(&self) -> bool {
        if self.core.env.is_forked() {
            fork::end_child();
        }
        self.core.env.is_closed_or_over_limit()
    }

    #[inline(always)]
    fn count(&self, ended: Ended) {
        if ended == Ended::Discarded {
            self.core.counts.expire();
        }
        self.it.record.count_end(ended);
    }

    // ---- the queue ----------------------------------------------------------------

    fn start_watching(&self) {
        if !self.watches.replace(true) {
            self.core.in_flight.add(AWAKE);
        }
    }

    /// It counts as awake no more; who relied on that is answered by
    /// [`Ctx::run_deferred`] or by a last look at the queue.
    fn stop_watching(&self) {
        if self.watches.replace(false) {
            self.core.in_flight.sub(AWAKE);
            self.ctx.defer_helping_others();
        }
    }

    /// It has been told to look at the queue, and is there.
    fn acknowledge_notification(&self) {
        if self.watches.replace(true) {
            // It counts already.
            self.core.in_flight.sub(NOTIFIED);
        } else {
            self.core.in_flight.shift(NOTIFIED, AWAKE);
        }
    }

    /// Takes itself from idle; `false` if another was faster, whose order is on its way.
    fn claim_own_slot(&self) -> bool {
        // Counted before it leaves the ring.
        let counted = self.watches.get();
        self.start_watching();
        let taken = self.it.claim_self();
        if !taken && !counted {
            self.watches.set(false);
            self.core.in_flight.sub(AWAKE);
            // The count may have been relied on meanwhile.
            self.core.notify_another();
        }
        taken
    }

    /// Looks at the queue: runs what is there, ends, or goes idle. It is `Searching` and awake.
    fn search(&self) -> Next {
        let mut place = None;
        let mut backoff = Backoff::default();
        loop {
            if self.core.env.is_closed_or_over_limit() && self.ends_by_itself() {
                return Next::End;
            }
            let popped = match &self.core.queue {
                Some(queue) if self.core.env.is_discarding() => {
                    queue.pop_wanted(&mut place, Task::must_run)
                }
                Some(queue) => queue.try_pop(&mut place),
                None => Popped::Empty,
            };
            match popped {
                Popped::Task(position) => {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe { self.it.step(State::Searching, State::Busy) };
                    self.it.record.count_taken();
                    self.defer_serving_line();
                    return self.work(&mut place, queue_id(position), true);
                }
                Popped::Empty => {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe { self.it.publish_idle(&self.core.ready, self.slot) };
                    self.serve_line_while_idle();
                    return self.wait();
                }
                Popped::InProgress => backoff.wait(),
            }
        }
    }

    // ---- waiting ------------------------------------------------------------------

    /// Waits for an order, or for a task in the queue.
    fn wait(&self) -> Next {
        // It has published that it is idle. Unless it watches the queue, it looks at it once now (P1).
        let may_look = !self.watches.get() && self.it.see().is_idle();
        if may_look && !self.core.nothing_queued() && self.claim_own_slot() {
            return Next::Search;
        }
        let mut backoff = Backoff::default();
        loop {
            let stop = || self.core.env.is_closed_or_over_limit();
            if let Some(next) = self.spin.look_for(|| self.look(), stop) {
                return next;
            }
            if self.watches.replace(false) {
                self.core.in_flight.sub(AWAKE);
                if !self.core.nothing_queued() && self.claim_own_slot() {
                    return Next::Search;
                }
            }
            if stop() && self.has_reason_to_end() && self.claim_own_slot() {
                return Next::Search;
            }
            if self.it.may_park() {
                let start = now();
                self.core.sleep_idle();
                self.ctx.stretch.end();
                self.spin.slept(now().saturating_duration_since(start));
            } else {
                // Claimed, its order a few instructions away.
                backoff.wait();
            }
        }
    }

    #[inline(always)]
    fn look(&self) -> Option<Next> {
        // SAFETY: this thread is the slot's worker. It comes here new, or after it has
        // published that it is idle.
        if let Some(order) = unsafe { self.it.poll_order() } {
            return Some(Next::Ordered(order));
        }
        let is_next_there = || self.core.queue.as_ref().is_some_and(Queue::is_next_there);
        (self.watches.get() && is_next_there() && self.claim_own_slot()).then_some(Next::Search)
    }

    // ---- the end ------------------------------------------------------------------

    /// Whether it may have to end: whoever closes the pool or lowers the limit looks for idle
    /// workers, too. One of the two sees the other (P3).
    fn has_reason_to_end(&self) -> bool {
        let registry = lock(&self.core.registry);
        self.core.is_closed() || self.core.is_self_surplus(&registry)
    }

    /// Begins its end, if the pool is closed and has nothing queued, or it is one too many. It is
    /// `Searching`.
    fn ends_by_itself(&self) -> bool {
        let core = self.core;
        let mut registry = lock(&core.registry);
        let is_over = core.is_closed() && core.nothing_queued();
        let ends = is_over || core.is_self_surplus(&registry);
        if ends {
            registry.retiring += 1;
            core.begin_return();
            // SAFETY: this thread is the slot's worker, `Searching`.
            unsafe { self.it.step(State::Searching, State::Retiring) };
        }
        ends
    }

    /// Told to end: does so, unless it is needed after all. Then it is `Searching` and awake.
    fn end(&self) -> bool {
        self.stop_watching();
        let mut has_stopped = false;
        loop {
            let registry = lock(&self.core.registry);
            if self.is_needed(&registry) {
                if !has_stopped {
                    self.stay(registry);
                    return false;
                }
                // It has stopped, so it starts again: before anybody relies on it.
                drop(registry);
                self.start_hook();
                has_stopped = false;
                continue;
            }
            match &self.core.env.hooks.stop {
                Some(stop) if !has_stopped => {
                    drop(registry);
                    // For those who relied on it while it watched: the hook may take its time.
                    self.ctx.run_deferred();
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

    /// Whether it has to look at the queue, or is one of `min_workers`, and not one too many.
    fn is_needed(&self, registry: &Registry) -> bool {
        let core = self.core;
        let is_missed = registry.live - registry.retiring < core.settings.min_workers;
        !core.is_surplus(registry, registry.retiring - 1)
            && (is_missed && !core.is_closed() || !core.nothing_queued())
    }

    /// Back to the queue instead of ending.
    fn stay(&self, mut registry: MutexGuard<'_, Registry>) {
        registry.retiring -= 1;
        self.start_watching();
        // SAFETY: this thread is the slot's worker, and was told to end.
        unsafe { self.it.step(State::Retiring, State::Searching) };
        self.core.end_return();
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
        registry.live -= 1;
        registry.retiring -= 1;
        registry.retired += 1;
        let own = registry.workers[self.slot].take().map(|own| own.thread);
        lock(&core.ended).extend(own);
        // SAFETY: this thread is the slot's worker, and was told to end. Its thread is already on
        // the list of those to join.
        unsafe { self.it.step(State::Retiring, State::Free) };
        core.put_back(&mut registry, self.slot);
        core.end_sweeps(&registry);
        core.changed.notify_all();
        drop(registry);
        core.end_return();
        // For the line, and for what was pushed before the slot was free for a thread of its own.
        self.ctx.defer_helping_others();
        self.ctx.run_deferred();
        true
    }
}
