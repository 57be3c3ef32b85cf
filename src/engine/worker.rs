//! A worker's life. The protocol page has its steps from state to state.
//!
//! The guarantees on admission and accounting rest on the order of the steps at a task's end: the
//! worker finds its next state (the next queued task, or `Idle`), *then* counts the task, *then*
//! releases the task's waiter, *then* serves the line, *then* calls the waker of a handle. So a
//! thread that learns from the counters or the result that a task has ended finds the worker free.
//!
//! Before the release, the worker waits for another thread in two cases only: if a caller or handle
//! is between the two steps of leaving, or if another task of the same scope is storing its panic.
//! It does not wait for a push in progress, because it looks at the queue again after the release.
//! After the release, it ends the task in the task's group, and may have to wait for the group's
//! lock.
//!
//! A worker whose last task came from the queue, or had no waiting caller, **watches** the queue as
//! well as its own status word, and counts as awake, because its next task is likely to come
//! through the queue. A worker that was handed a task with a waiting caller watches only its own
//! word. Such a worker looks at the queue once, after it has published that it is idle.
//!
//! In a pool that is closed or over its limit, a worker does not go idle after a task. It searches,
//! and checks whether it has to end. So does a worker that is about to sleep.

use super::core::{Core, Registry};
use crate::parts::backoff::{AdaptiveSpin, Backoff};
use crate::parts::completion::{mailbox_id, queue_id};
use crate::parts::in_flight::{AWAKE, NOTIFIED};
use crate::parts::members::Ended;
use crate::parts::queue::Popped;
use crate::parts::slot::{Order, Slot, State};
use crate::sync::{fork, lock, now, Arc, MutexGuard};
use crate::work::context::Ctx;
use crate::work::job::Task;
use crate::work::record::Record;
use std::cell::Cell;

/// Runs a worker on a slot, from the start of its thread to its end.
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
    let worker = Worker {
        core,
        it,
        ctx: &ctx,
        spin: AdaptiveSpin::new(core.parallel),
        watches: Cell::new(false),
    };
    ctx.during(|| worker.live());
}

struct Worker<'a> {
    core: &'a Arc<Core>,
    it: &'a Slot<Task, Record>,
    ctx: &'a Ctx<'a>,
    spin: AdaptiveSpin,
    /// Set while this worker counts as awake, and watches the queue.
    watches: Cell<bool>,
}

/// The next step of a worker without a task: an order of another thread or of its own. `Search`
/// means that the worker is `Searching` and counts as awake, and `Retire` that it is `Retiring`.
type Next = Order<Task>;

impl Worker<'_> {
    /// Obeys orders until the worker ends.
    fn live(&self) {
        if self.core.env.hooks.start.is_some() {
            self.start();
        }
        let mut next = self.wait();
        loop {
            next = match next {
                Next::Search => self.search(),
                Next::Run { task, generation } => {
                    let watch = self.core.queue.is_some() && !task.table.awaited;
                    self.work(&mut Some(task), mailbox_id(generation), watch)
                }
                Next::Retire => {
                    if self.end() {
                        return;
                    }
                    Next::Search
                }
            };
        }
    }

    // ---- hooks --------------------------------------------------------------------

    /// Runs a hook, if there is one. The hook may fork: see [`Ctx::call_back`].
    fn run_hook(&self, hook: Option<&(dyn Fn(usize) + Send + Sync)>) {
        if let Some(hook) = hook {
            (self.ctx).call_back(|| self.core.env.hook(|| hook(self.ctx.slot)));
        }
    }

    /// Runs the start hook. Afterwards, the worker obeys orders. If its order is to look at the
    /// queue, the worker counts as notified from the end of the hook on.
    fn start(&self) {
        self.run_hook(self.core.env.hooks.start.as_deref());
        let mut backoff = Backoff::default();
        let count = || self.core.in_flight.add(NOTIFIED);
        // SAFETY: this thread is the slot's worker, and is being started.
        while !unsafe { self.it.has_started(count) } {
            backoff.wait();
        }
    }

    // ---- tasks --------------------------------------------------------------------

    /// Runs a task, then queued tasks as long as there are any. Then waits for the worker's next
    /// step, and returns it.
    ///
    /// At the end of each task, `find_next` chooses the worker's next state. `watch` says whether
    /// the worker is to watch the queue if nothing is queued. It is `true` after a task that came
    /// from the queue or had no waiting caller, because the next task is then likely to come
    /// through the queue.
    ///
    /// The worker also has work to do for other threads, at once or later. These conditions,
    /// checked in this order, decide which work and when:
    ///
    /// 1. `stop_watching` clears `watches`. If the flag was set, other threads may have relied on
    ///    this worker, so it defers `help_others` to the start of the task (A2).
    /// 2. If `find_next` has taken a queued task, there is space in the queue. If submissions wait
    ///    in line, the worker defers `help_others` to the start of that task.
    /// 3. If the worker is idle, it serves the line and calls the deferred waker at once.
    /// 4. If the worker is `Searching` instead, it does both once it is idle, has started a queued
    ///    task, or ends.
    fn work(&self, first: &mut Option<Task>, task_id: u64, mut watch: bool) -> Next {
        let (mut now, mut after) = (first, &mut None);
        // The id of the task to run or, if there is none, this worker's new state.
        let mut next = Ok(task_id);
        self.stop_watching();
        while let Ok(task_id) = next {
            self.ctx.task_id.set(task_id);
            Task::run_in(now, self.ctx, &mut |ended| {
                next = self.find_next(after, watch);
                if ended == Ended::Discarded {
                    self.core.counts.expire();
                }
                self.it.record.count_end(ended);
            });
            if next.is_ok() {
                self.spin.ran_several();
                // The line is not served here, because that may start a thread, which takes long.
                // Until the next task has started, its caller cannot leave, even at its deadline.
                self.defer_serving_line();
            } else if next == Err(State::Idle) {
                self.serve_line_while_idle();
            }
            watch = true;
            std::mem::swap(&mut now, &mut after);
        }
        if self.ctx.was_awaited.take() {
            self.spin.was_awaited();
        }
        if next == Err(State::Idle) {
            return self.wait();
        }
        Next::Search
    }

    /// Serves the line and does the deferred work. This worker has become idle, and the waiter of its
    /// last task is released. Another thread may have claimed the worker since.
    fn serve_line_while_idle(&self) {
        if self.core.line.waiting() != 0 || self.ctx.has_deferred_wake() {
            // Serving the line and calling the waker may take long. Submissions must not rely on
            // this worker meanwhile, so it leaves the count `awake`.
            self.stop_watching();
        }
        self.ctx.runs_idle.set(true);
        self.ctx.call_back(|| self.core.serve_line());
        self.ctx.run_deferred();
        self.ctx.runs_idle.set(false);
    }

    /// If submissions wait in line, defers serving them to the start of the queued task that this
    /// worker has taken (W1).
    fn defer_serving_line(&self) {
        if self.core.line.waiting() != 0 {
            self.ctx.defer_helping_others();
        }
    }

    /// Takes the next queued task and returns its id. If there is none, makes the worker `Idle`. In
    /// a pool that is closed or over its limit, takes no task and makes the worker `Searching`.
    /// Without a task, returns the worker's new state as the error.
    #[inline(always)]
    fn find_next(&self, place: &mut Option<Task>, watch: bool) -> Result<u64, State> {
        if !self.core.env.is_fast_path_open(0) && self.may_have_to_end() {
            self.start_watching();
            // SAFETY: this thread is the slot's worker, `Busy`.
            unsafe { self.it.step(State::Busy, State::Searching) };
            return Err(State::Searching);
        }
        let queue = self.core.queue.as_ref();
        if let Some(position) = queue.and_then(|queue| queue.try_pop_ready(place)) {
            self.it.record.count_taken();
            return Ok(queue_id(position));
        }
        if watch {
            self.start_watching();
        }
        // SAFETY: this thread is the slot's worker, `Busy`.
        unsafe { self.it.publish_idle(&self.core.ready, self.ctx.slot) };
        Err(State::Idle)
    }

    /// Returns `true` if this worker may have to end. Ends the process if it is a forked child.
    #[cold]
    fn may_have_to_end(&self) -> bool {
        if self.core.env.is_forked() {
            fork::end_child();
        }
        self.core.env.is_closed_or_over_limit()
    }

    // ---- the queue ----------------------------------------------------------------

    fn start_watching(&self) {
        if !self.watches.replace(true) {
            self.core.in_flight.add(AWAKE);
        }
    }

    /// Leaves the count `awake`. Other threads may have relied on this worker, so this defers
    /// `help_others`, which notifies another worker (A2).
    fn stop_watching(&self) {
        if self.watches.replace(false) {
            self.core.in_flight.sub(AWAKE);
            self.ctx.defer_helping_others();
        }
    }

    /// Moves this worker from the count `notified` to the count `awake`, because the worker now
    /// begins to look at the queue, as it was told to.
    fn acknowledge_notification(&self) {
        if self.watches.replace(true) {
            // This worker already counts as awake.
            self.core.in_flight.sub(NOTIFIED);
        } else {
            self.core.in_flight.shift(NOTIFIED, AWAKE);
        }
    }

    /// Claims this worker's own slot (`Idle` to `Searching`), and counts the worker as awake.
    /// Returns `false` if another thread has claimed the slot first. That thread is about to give
    /// the worker an order.
    fn claim_own_slot(&self) -> bool {
        // The worker is counted as awake before it becomes `Searching` (V3).
        let counted = self.watches.get();
        self.start_watching();
        let taken = self.it.claim_self();
        if !taken && !counted {
            self.watches.set(false);
            self.core.in_flight.sub(AWAKE);
            // Submissions may have relied on this worker while it was counted (A2). To find another
            // worker, this thread may start one and serve the line, whose wakers are user code.
            self.ctx.runs_idle.set(true);
            self.ctx.call_back(|| self.core.notify_another());
            self.ctx.runs_idle.set(false);
        }
        taken
    }

    /// Looks at the queue. The worker then runs the tasks that are there, ends, or goes idle. When
    /// this is called, the worker is `Searching` and awake.
    fn search(&self) -> Next {
        let mut place = None;
        let mut backoff = Backoff::default();
        loop {
            if self.core.env.is_closed_or_over_limit() && self.ends_by_itself() {
                return Next::Retire;
            }
            let popped = match &self.core.queue {
                Some(queue) if self.core.env.is_discarding() => {
                    queue.pop_wanted(&mut place, |task| task.table.must_run)
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
                    unsafe { self.it.publish_idle(&self.core.ready, self.ctx.slot) };
                    self.serve_line_while_idle();
                    return self.wait();
                }
                Popped::InProgress => backoff.wait(),
            }
        }
    }

    // ---- waiting ------------------------------------------------------------------

    /// Waits for an order or, if this worker watches the queue, for a queued task. Spins first,
    /// then sleeps.
    fn wait(&self) -> Next {
        // The worker has published that it is idle. Unless it watches the queue, it looks at the
        // queue once now (A2, P1).
        let may_look = !self.watches.get() && self.it.see().is_idle();
        if may_look && !self.core.nothing_queued() && self.claim_own_slot() {
            return Next::Search;
        }
        let mut backoff = Backoff::default();
        loop {
            let stop = || self.core.env.is_closed_or_over_limit();
            if let Some(next) = self.spin.look_for(|lead| self.look(lead), stop) {
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
                if self.core.sleep_idle() {
                    // A thread that served the line may have met this sweep and given up. So this
                    // worker serves the line now (W2).
                    self.serve_line_while_idle();
                }
                self.ctx.stretch.end();
                self.spin.slept(now().saturating_duration_since(start));
            } else {
                // Another thread has claimed the worker. It is about to write the order, or has
                // written it.
                backoff.wait();
            }
        }
    }

    /// Returns the next step if there is an order, or if this worker watches the queue and a task
    /// is there. Otherwise returns `None`. If `lead` is set, a few tasks are not enough.
    #[inline(always)]
    fn look(&self, lead: bool) -> Option<Next> {
        // SAFETY: this thread is the slot's worker. It has no task, because it is new or has
        // published that it is idle.
        if let Some(order) = unsafe { self.it.poll_order() } {
            if matches!(order, Next::Search) {
                self.acknowledge_notification();
            }
            return Some(order);
        }
        let queue = self.core.queue.as_ref().filter(|_| self.watches.get());
        let is_there = queue.is_some_and(|queue| queue.is_filled_after(lead));
        (is_there && self.claim_own_slot()).then_some(Next::Search)
    }

    // ---- the end ------------------------------------------------------------------

    /// Returns `true` if this worker may have to end. A thread that closes the pool or lowers the
    /// limit sets a flag, then looks for idle workers. This worker first becomes idle, then reads
    /// the flag. So that thread finds this worker idle, or this worker sees the flag (P3).
    fn has_reason_to_end(&self) -> bool {
        let registry = lock(&self.core.registry);
        self.core.env.is_closed() || self.core.is_self_surplus(&registry)
    }

    /// Begins this worker's end if it is surplus, or if the pool is closed and nothing is queued.
    /// The worker is `Searching`. Returns `true` if it has to end.
    fn ends_by_itself(&self) -> bool {
        let core = self.core;
        let mut registry = lock(&core.registry);
        let is_over = core.env.is_closed() && core.nothing_queued();
        let ends = is_over || core.is_self_surplus(&registry);
        if ends {
            registry.retiring += 1;
            core.begin_return();
            // SAFETY: this thread is the slot's worker, `Searching`.
            unsafe { self.it.step(State::Searching, State::Retiring) };
        }
        ends
    }

    /// Ends this worker, unless it is needed after all. The worker was told to end, or has found
    /// that it must. Returns `true` if it has ended. Otherwise the worker is `Searching` and awake.
    fn end(&self) -> bool {
        self.stop_watching();
        let hooks = &self.core.env.hooks;
        let mut has_stopped = false;
        loop {
            let registry = lock(&self.core.registry);
            match (self.is_needed(&registry), has_stopped) {
                (true, false) => {
                    self.stay(registry);
                    return false;
                }
                (true, true) => {
                    drop(registry);
                    // The stop hook has run already, so the start hook runs again before any thread
                    // relies on the worker.
                    self.run_hook(hooks.start.as_deref());
                    has_stopped = false;
                }
                (false, false) if hooks.stop.is_some() => {
                    drop(registry);
                    // Submissions may have relied on this worker while it watched the queue. They
                    // must not wait for the hook, which may take long.
                    self.ctx.run_deferred();
                    self.run_hook(hooks.stop.as_deref());
                    has_stopped = true;
                }
                (false, _) => {
                    if self.leave(registry) {
                        return true;
                    }
                }
            }
        }
    }

    /// Returns `true` if this worker must not end. This is so if it is not surplus, and a task is
    /// queued or the open pool would be left with fewer than `min_workers` workers.
    fn is_needed(&self, registry: &Registry) -> bool {
        let core = self.core;
        let is_missed = registry.live - registry.retiring < core.settings.min_workers;
        !core.is_surplus(registry, registry.retiring - 1)
            && (is_missed && !core.env.is_closed() || !core.nothing_queued())
    }

    /// Makes the worker `Searching` and awake again, instead of ending it.
    fn stay(&self, mut registry: MutexGuard<'_, Registry>) {
        registry.retiring -= 1;
        self.start_watching();
        // SAFETY: this thread is the slot's worker, `Retiring`.
        unsafe { self.it.step(State::Retiring, State::Searching) };
        self.core.end_return();
    }

    /// Takes the worker's last steps on the slot. Returns `false` if this is the last worker and a
    /// task has been queued, because no other worker would run that task.
    fn leave(&self, mut registry: MutexGuard<'_, Registry>) -> bool {
        let core = self.core;
        if let (Some(queue), 1) = (&core.queue, registry.live) {
            if !queue.sleep() {
                return false;
            }
        }
        registry.live -= 1;
        registry.retiring -= 1;
        let own = registry.workers[self.ctx.slot].take().map(|own| own.thread);
        lock(&core.ended).extend(own);
        // SAFETY: this thread is the slot's worker, `Retiring`, and touches nothing of the slot
        // after this step. Its thread is already on the list of threads to be joined.
        unsafe { self.it.step(State::Retiring, State::Free) };
        core.put_back(&mut registry, self.ctx.slot);
        core.end_sweeps(&registry);
        core.changed.notify_all();
        drop(registry);
        core.end_return();
        // A submission in line may take the free slot. A submission that pushed a task before the
        // slot was free could not start a thread on that slot, so another worker must look for the
        // task (A2).
        self.ctx.defer_helping_others();
        self.ctx.run_deferred();
        true
    }
}
