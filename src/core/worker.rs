//! A worker's life. The protocol page has its steps from state to state.
//!
//! The guarantees on admission and accounting rest on the order of the steps at a task's end: the
//! worker gives the task's permit back, *then* takes its next state (`Idle`, unless a task is queued or it may owe), *then*
//! counts the task, *then* releases its waiter. So a thread that learns from the counters or the
//! result that a task has ended finds space, and finds the worker free, about to look at the queue, or `Calling`. Only after that does the worker
//! pay what it [owes](crate::work::owed). And only after that does it take the next task. So nothing
//! slow comes between a task that the worker has taken and its start, unless taking it led to debts.
//!
//! A worker whose task may lead to debts does not become `Idle` at that end, but `Calling`, unless a task is queued or workers may have to end. So an `Idle` worker owes
//! nothing. One that is claimed as it leaves the count owes a look: see [`wait`](Worker::wait).
//!
//! Between the end of the closure and the release, the core waits for another thread in one case only: if a waiter is between
//! the two steps of leaving.
//!
//! In a pool with a queue, a worker whose last task came from the queue, or had no waiting caller,
//! **watches** the queue as well as its own status word, and counts as awake, because its next task is
//! likely to come through the queue. A worker that was handed a task with a waiting caller, and has seen no queued task at its
//! end, watches only its own word. Such a worker looks at the queue once, after it has published that it is idle. In any pool, a worker that
//! becomes idle after `Calling` or a search watches the queue, too. A
//! worker that watches the queue looks at it once more after it has left the count. So does a worker
//! that has found a task: other threads may have relied on it.
//!
//! If workers may have to end, a worker does not go idle after a task. It searches, and asks the host
//! whether it has to end. So does a worker that is about to sleep.

use super::host::Host;
use super::Core;
use crate::parts::backoff::{AdaptiveSpin, Backoff};
use crate::parts::completion::{mailbox_id, queue_id};
use crate::parts::gate::{Freed, Permit};
use crate::parts::in_flight::MustLook;
use crate::parts::queue::Popped;
use crate::parts::slot::{Order, Slot, State};
use crate::sync::{assert_not_relied_on, now, thread, Arc};
use crate::work::context::Ctx;
use crate::work::env::WorkerId;
use crate::work::job::{End, HasEnded, Task, TaskEnd};
use crate::work::owed::{Kinds, Owed};
use crate::work::record::Record;
use std::cell::Cell;
use std::time::Duration;

/// Runs a worker on a slot, from the start of its thread to its end.
pub(crate) fn main<H: Host>(core: &Arc<Core<H>>, worker: WorkerId) {
    core.env.own_this_thread(worker);
    let slot = worker.slot;
    let it = &core.slots[slot];
    let mut backoff = Backoff::default();
    while it.is_held() {
        backoff.wait();
    }
    let pay = |owed: &mut Owed| {
        debug_assert!(it.load().state().runs_user_code(), "{:?}", it.load());
        core.pay(owed);
    };
    let ctx = Ctx::new(&core.env, &it.record, slot, &pay);
    let worker = Worker {
        core,
        it,
        ctx: &ctx,
        spin: AdaptiveSpin::new(core.parallel),
        will_watch: Cell::new(false),
        has_waiter: Cell::new(false),
    };
    ctx.during(|| worker.live());
}

pub(crate) struct Worker<'a, H> {
    pub(crate) core: &'a Arc<Core<H>>,
    pub(crate) it: &'a Slot<Task, Record>,
    pub(crate) ctx: &'a Ctx<'a>,
    spin: AdaptiveSpin,
    /// Set if this worker is to watch the queue once it has no task.
    will_watch: Cell<bool>,
    /// Set if a thread waits for the outcome of the current task, or may do so.
    has_waiter: Cell<bool>,
}

/// The next step of a worker without a task: an order of another thread or of its own. `Search`
/// means that the worker is `Searching`, and counted, or `Paying`; [`poll`](Worker::poll) has taken the notice. `Retire` means that it is `Retiring`.
pub(crate) type Next = Order<Task>;

impl<H: Host> Worker<'_, H> {
    /// Obeys orders until the worker ends.
    fn live(&self) {
        H::begin(self);
        let mut next = self.wait();
        loop {
            next = match next {
                Next::Search(_) => self.search(),
                Next::Run {
                    task,
                    permit,
                    generation,
                } => {
                    (self.will_watch).set(self.core.has_queue() && !task.table.has_caller);
                    self.work(&mut Some(task), permit, mailbox_id(generation))
                }
                Next::Retire => match H::end(self) {
                    Some(next) => next,
                    None => break,
                },
            };
        }
        H::has_ended(self);
    }

    // ---- tasks --------------------------------------------------------------------

    /// Runs the task in `place`, then queued tasks as long as there are any. Then waits for the
    /// worker's next step, and returns it. The worker's decision names the task by `id`.
    fn work(&self, place: &mut Option<Task>, mut permit: Permit, mut id: u64) -> Next {
        loop {
            if self.ctx.owes() {
                match self.pay_before(place, permit, id) {
                    Some(same) => (permit, id) = same,
                    None => return Next::Search(None),
                }
            }
            let state = self.run(place, permit, id);
            self.will_watch.set(self.core.has_queue());
            match self.pay_after(state) {
                State::Busy => {}
                State::Paying => return Next::Search(None),
                _ => return self.wait(),
            }
            let Popped::Task(position, its) = self.pop(place) else {
                if self.ctx.owes() {
                    self.leave_busy(State::Paying);
                    return Next::Search(None);
                }
                self.rest();
                return self.wait();
            };
            self.it.record.count_taken();
            self.spin.ran_several();
            (permit, id) = (its, queue_id(position));
        }
    }

    /// Runs one task, to its end. Returns the worker's state: see [`after_task`](Self::after_task).
    #[inline(always)]
    fn run(&self, place: &mut Option<Task>, permit: Permit, id: u64) -> State {
        self.ctx.task_id.set(id);
        let has_waiter = place.as_ref().is_some_and(|task| task.table.offered);
        self.has_waiter.set(has_waiter);
        let mut end = |ended, permit| self.end_task(ended, permit);
        let HasEnded(state) = Task::run_in(place, self.ctx, End::new(permit, &mut end));
        state
    }

    /// Ends a task: gives the task's permit back, makes the worker free, and counts the task. The task calls
    /// this before its waiter is released.
    #[inline(always)]
    fn end_task(&self, ended: TaskEnd, permit: Permit) -> HasEnded {
        // The permit comes before the state, which depends on what that leads to. It comes before the count: a thread
        // that sees in the figures that nothing runs finds space.
        let given = self.core.gate.give(permit);
        if given.needs_care() {
            self.ctx.owe(|owed| owed.note_given(1, given));
        }
        let state = self.after_task();
        match state {
            State::Busy => {}
            State::Idle => self.rest(),
            _ => self.leave_busy(state),
        }
        if !ended.has_run() {
            H::count_unrun(self.core, ended);
        }
        self.it.record.count_end(ended);
        HasEnded(state)
    }

    /// Returns the worker's next state after a task: `Paying` if it may have to end, `Busy` if a task is queued, `Calling`
    /// if it may owe something, and otherwise `Idle`.
    #[inline(always)]
    fn after_task(&self) -> State {
        if !self.core.env.is_fast_path_open() && H::may_have_to_end(self) {
            return State::Paying;
        }
        if self.core.queue.is_filled() || self.lingers() {
            return State::Busy;
        }
        match self.ctx.owes() {
            false => State::Idle,
            true => State::Calling,
        }
    }

    /// Looks at the queue a few times more, if the next task is likely to come through it. Returns `true`
    /// if a task is queued. Does nothing if the task that has just run has a waiter, which this would hold
    /// up; nor while a slot is free, because a submission would start a thread instead of waiting for this
    /// worker (T).
    #[cold]
    fn lingers(&self) -> bool {
        let may = self.will_watch.get() && !self.has_waiter.get() && self.core.free.is_drained();
        may && self.spin.linger(|| self.core.queue.is_filled())
    }

    /// Makes this worker, whose task has ended, `Calling` or `Paying`.
    #[cold]
    pub(super) fn leave_busy(&self, to: State) {
        self.it.record.set_calls_for(self.ctx.task_id.get());
        // SAFETY: this thread is the slot's worker, `Busy`.
        unsafe { self.it.step(State::Busy, to) };
    }

    /// Makes this worker, which is `Busy` and has no task any more, `Idle`.
    // Not inlined, because the end of a task that is followed by another needs none of it.
    #[inline(never)]
    fn rest(&self) {
        if self.will_watch.get() {
            self.start_watching();
        }
        // SAFETY: this thread is the slot's worker, `Busy`.
        unsafe { (self.it).publish_idle(State::Busy, &self.core.ready, self.ctx.slot) };
    }

    // ---- the queue ------------------------------------------------------------------

    /// Takes the next task out of the queue. If `head` has passed dead cells, gives their permits back and
    /// notes the debts that this leads to.
    #[inline(always)]
    fn pop(&self, place: &mut Option<Task>) -> Popped {
        let mut freed = Freed::default();
        let popped = self.core.queue.try_pop(place, &mut freed);
        if !freed.is_empty() {
            self.ctx
                .owe(|owed| owed.give_freed(&self.core.gate, &mut freed));
        }
        popped
    }

    pub(super) fn start_watching(&self) {
        self.it.record.awake.enter(&self.core.in_flight);
    }

    /// Leaves the count `awake`, if this worker is in it, because it has a task or is about to end.
    /// Other threads may have relied on this worker. So if a task is queued, another worker must look
    /// for it (A2).
    fn stop_watching(&self) {
        if (self.leave_count()).is_some_and(|must_look| must_look.look(&self.core.queue)) {
            self.ctx.owe(Owed::look);
        }
    }

    /// Leaves the count `awake`, if this worker is in it.
    #[inline]
    pub(super) fn leave_count(&self) -> Option<MustLook> {
        self.it.record.awake.leave(&self.core.in_flight)
    }

    /// Claims this worker's own slot (`Idle` to `Searching`), and counts the worker as awake.
    /// Returns `false` if another thread has claimed the slot first. That thread is about to give
    /// the worker an order.
    fn claim_own_slot(&self) -> bool {
        let taken = self.it.claim_self();
        if taken {
            self.start_watching();
        }
        taken
    }

    /// Pays what the worker owes, then looks at the queue. The worker then runs the tasks that are there, ends, or goes
    /// idle. When this is called, it is `Searching` and counted, or `Paying` and not counted.
    fn search(&self) -> Next {
        let mut task = None;
        let mut backoff = Backoff::default();
        loop {
            if self.core.env.may_have_to_end() || self.ctx.owes() {
                // What is owed may take long, and the host may wait for its lock. So no thread may rely on this worker.
                if self.it.record.awake.is_counted() {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe { self.it.step(State::Searching, State::Paying) };
                    self.stop_watching();
                }
                self.ctx.pay();
                // Read after that, too: a worker that has to end takes no task which came as it paid (law 4).
                let has_to_end = || H::has_to_end(self);
                if self.core.env.may_have_to_end()
                    && self.it.record.while_paying(Kinds::END, has_to_end)
                {
                    return Next::Retire;
                }
            }
            if !self.it.record.awake.is_counted() {
                self.start_watching();
                // SAFETY: this thread is the slot's worker, `Paying`.
                unsafe { self.it.step(State::Paying, State::Searching) };
            }
            match self.pop(&mut task) {
                Popped::Task(position, permit) => {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe { self.it.step(State::Searching, State::Busy) };
                    self.it.record.count_taken();
                    self.stop_watching();
                    self.will_watch.set(self.core.has_queue());
                    return self.work(&mut task, permit, queue_id(position));
                }
                Popped::Empty if !self.ctx.owes() => {
                    // SAFETY: this thread is the slot's worker, `Searching`.
                    unsafe {
                        (self.it).publish_idle(State::Searching, &self.core.ready, self.ctx.slot)
                    };
                    return self.wait();
                }
                Popped::Empty | Popped::Passed => backoff = Backoff::default(),
                Popped::InProgress => backoff.wait(),
            }
        }
    }

    // ---- waiting ------------------------------------------------------------------

    /// Waits for an order or, if this worker watches the queue, for a queued task. Spins first,
    /// then sleeps, or does work of the host.
    pub(crate) fn wait(&self) -> Next {
        // The worker is new, has published that it is idle, or was claimed as it called wakers. If it is
        // idle and does not watch the queue, it looks at the queue once now (A2, P1).
        debug_assert!(!(self.ctx.owes() && self.it.load().is_idle()), "A7");
        let may_look = !self.it.record.awake.is_counted() && self.it.load().is_idle();
        if may_look && !self.core.queue.is_empty() && self.claim_own_slot() {
            return Next::Search(None);
        }
        let mut backoff = Backoff::default();
        loop {
            let stop = || self.core.env.may_have_to_end();
            if let Some(next) = self.spin.look_for(|| self.poll(), stop) {
                return next;
            }
            if (self.leave_count()).is_some_and(|must_look| must_look.look(&self.core.queue)) {
                if self.claim_own_slot() {
                    return Next::Search(None);
                }
                self.ctx.owe(Owed::look);
            }
            if self.ctx.owes() {
                // An idle worker owes nothing else, but that its look may find that the OS refuses a thread. One that called wakers
                // may owe more. Another thread has claimed this worker, perhaps for a task, and may be stopped before it gives
                // the order. So another worker must look at the queue now (A2). If a lock is held that this needs, the worker tries
                // again at its next turn.
                self.pay_if_free();
            }
            if stop() && H::should_search(self) && self.claim_own_slot() {
                return Next::Search(None);
            }
            if self.it.may_park() {
                if let Some(longest) = H::may_sleep(self.core) {
                    self.sleep(longest);
                }
            } else {
                // Another thread has claimed the worker. It is about to write the order, or has
                // written it.
                backoff.wait();
            }
        }
    }

    /// Sleeps until this worker is unparked, at most for `longest`, or for a shorter time.
    fn sleep(&self, longest: Duration) {
        assert_not_relied_on();
        let start = now();
        self.it.record.set_sleeps(true);
        park(longest);
        self.it.record.set_sleeps(false);
        self.ctx.yield_timer.end();
        self.spin.slept(now().saturating_duration_since(start));
    }

    /// Returns the next step if there is an order, or if this worker watches the queue and a task
    /// is there.
    #[inline(always)]
    fn poll(&self) -> Option<Next> {
        // SAFETY: this thread is the slot's worker. It has no task, because it is new or has ended its
        // last one.
        if let Some(mut order) = unsafe { self.it.poll_order() } {
            self.it.record.has_first_order();
            let notice = match &mut order {
                Next::Search(notice) => notice.take(),
                Next::Run { .. } | Next::Retire => None,
            };
            let counts = &self.core.in_flight;
            match notice {
                Some(notice) => self.it.record.awake.enter_notified(counts, notice),
                None => self.stop_watching(),
            }
            return Some(order);
        }
        let is_there = self.it.record.awake.is_counted() && self.core.queue.is_filled();
        (is_there && self.claim_own_slot()).then_some(Next::Search(None))
    }
}

/// Parks this thread, at most for `longest`. A model of loom has no time, so it has no such end.
fn park(longest: Duration) {
    match longest {
        Duration::MAX => thread::park(),
        #[cfg(not(lazypool_loom))]
        longest => thread::park_timeout(longest),
        #[cfg(lazypool_loom)]
        _ => unreachable!("a model has no time"),
    }
}
