//! How a thread pays what it owes: see [`Owed`]. The protocol page, "How a worker pays", has a worker's states meanwhile,
//! and examples.
//!
//! A worker keeps its `Owed` in its [context](crate::work::context::Ctx), where its task can add to it. `Ctx::owes` is one load: it is `true` if
//! something is owed, and also after `Ctx::may_owe`, by which a task says before its end that this may lead to debts. `Ctx::has_debts`
//! looks, and corrects the first. `Ctx::with_owed` takes all out, to pay it, and notes the rest again.

use super::host::Host;
use super::worker::Worker;
use super::Core;
use crate::parts::backoff::Backoff;
use crate::parts::completion::{mailbox_id, NO_TASK};
use crate::parts::gate::{Freed, Permit};
use crate::parts::in_flight::Seen;
use crate::parts::slot::{Order, State};
use crate::sync::{assert_holds_nothing, Arc, IsHeld, Patience};
use crate::work::job::Task;
use crate::work::owed::{Debts, Due, Few, Owed};
use crate::work::user_code;

impl<H: Host> Core<H> {
    /// Pays all that a thread owes. First what it owes to other threads, in a loop, because each step
    /// may lead to the next; then what it owes to user code. Called at the end of each public call,
    /// and in a worker's loop. The thread holds no lock and no slot but its own. If it owes
    /// more than dead cells, it does not count as awake: that is asserted.
    #[inline]
    pub(crate) fn pay(self: &Arc<Self>, owed: &mut Owed) {
        if !owed.is_empty() {
            self.pay_slowly(owed);
        }
    }

    #[cold]
    fn pay_slowly(self: &Arc<Self>, owed: &mut Owed) {
        self.pay_others(owed);
        let calls = owed.take_calls();
        if !calls.is_empty() {
            user_code::call(&self.env, calls);
        }
    }

    /// Pays the debts of a submission, if it has any.
    #[inline(always)]
    pub(crate) fn pay_debts(self: &Arc<Self>, debts: Debts) {
        if let Some(mut owed) = debts {
            self.pay(&mut owed);
        }
    }

    /// Pays what a thread owes to other threads. User code is left in `owed`. A thread that holds the lock
    /// for one debt may have been stopped, so that debt comes after those that need other locks, as far as the first pass whose lock is held.
    fn pay_others(self: &Arc<Self>, owed: &mut Owed) {
        let mut last = Few::default();
        while let Err(due) = self.pay_others_by(Patience::Tries, owed) {
            // The next ones are passes, too, which need the same lock, and perhaps `Over`, which comes after them.
            let is_pass = matches!(due, Due::Pass(_));
            last.push(due);
            if is_pass {
                break;
            }
        }
        while let Some(due) = last.pop() {
            owed.note(due);
            let paid = self.pay_others_by(Patience::Waits, owed);
            debug_assert!(paid.is_ok(), "it has waited for the locks");
        }
    }

    /// Pays what a thread owes to other threads. A worker that may get an order, or is to end, only tries: if another thread
    /// holds a lock that is needed, perhaps because it has been stopped, returns the debt that needs it.
    /// The rest is left in `owed`.
    #[cold]
    pub(super) fn pay_others_by(
        self: &Arc<Self>,
        patience: Patience,
        owed: &mut Owed,
    ) -> Result<(), Due> {
        // A process that did not build the pool has no workers, and owes nothing to them.
        let pays = self.env.is_own_process();
        while let Some(due) = self.next_due(owed) {
            assert_holds_nothing();
            match due {
                Due::Leave(leaving) => leaving.finish(patience).map_err(Due::Leave)?,
                _ if !pays => {}
                Due::Pass(of) => {
                    H::pass(self, of, patience, owed).map_err(|IsHeld| Due::Pass(of))?;
                }
                Due::Look => {
                    let looked = self.look_by(Seen::is_any_counted, patience, owed);
                    looked.map_err(|IsHeld| Due::Look)?;
                }
                Due::Over => H::all_is_over(self, patience).map_err(|IsHeld| Due::Over)?,
            }
        }
        Ok(())
    }

    /// Returns the next debt that may need a lock. Passes dead cells first.
    fn next_due(&self, owed: &mut Owed) -> Option<Due> {
        self.pass_dead(owed);
        owed.next()
    }

    /// Passes the dead cells that are to be passed. This needs no lock.
    pub(super) fn pass_dead(&self, owed: &mut Owed) {
        while owed.take_dead() && self.env.is_own_process() {
            self.pass_some_dead(owed);
        }
    }

    /// Passes the dead cells at the queue's head, as many as one step passes.
    pub(super) fn pass_some_dead(&self, owed: &mut Owed) {
        let mut freed = Freed::default();
        self.queue.pass_dead(&mut freed);
        owed.give_freed(&self.gate, &mut freed);
    }
}

impl<H: Host> Worker<'_, H> {
    /// Pays what the worker owes after a task, whose waiter is released. Returns the worker's state: no longer
    /// `Calling`, but `Held` if another thread has claimed the worker in that state.
    #[inline(always)]
    pub(super) fn pay_after(&self, state: State) -> State {
        match state {
            State::Calling => self.pay_calling(),
            State::Busy if self.ctx.owes() => self.pay_busy(),
            state => state,
        }
    }

    /// Pays what the worker, which is `Busy` and is about to pop its next task, owes to other threads. If user code is to
    /// be called, or workers may have to end, the worker becomes `Paying`.
    #[cold]
    fn pay_busy(&self) -> State {
        if self.ctx.has_debts() {
            self.ctx.with_owed(|owed| {
                let kinds = owed.kinds().to_others();
                let pay = || self.core.pay_others(owed);
                self.it.record.while_paying(kinds, pay);
            });
        }
        // Workers may have to end since the task's end: what was owed may have taken long.
        match self.ctx.owes() || self.core.env.may_have_to_end() {
            false => State::Busy,
            true => {
                self.leave_busy(State::Paying);
                State::Paying
            }
        }
    }

    /// Pays what the worker, which is `Calling`, owes. Meanwhile a thread may claim it, to hand it a task. Then the worker is
    /// about to get this order, and pays the rest before it runs the task.
    #[cold]
    fn pay_calling(&self) -> State {
        let (it, slot) = (self.it, self.ctx.slot);
        if self.ctx.has_debts() && !self.pay_if_free() {
            self.call_wakers();
        }
        if self.ctx.owes() {
            // SAFETY: this thread is the slot's worker, which has become `Calling`, and its task has ended.
            return match unsafe { it.pay_after_calling() } {
                true => State::Paying,
                false => State::Held,
            };
        }
        self.start_watching();
        // SAFETY: as above.
        match unsafe { it.idle_after_calling(&self.core.ready, slot) } {
            true => State::Idle,
            false => State::Held,
        }
    }

    /// Calls the wakers. Other threads come first: if one holds a lock that is needed, the wakers come with the rest.
    fn call_wakers(&self) {
        self.ctx.with_owed(|owed| {
            if !owed.is_owed_to_others() {
                let calls = owed.take_calls();
                let wake = || owed.add_calls(user_code::wake(&self.core.env, calls));
                self.ctx.call_back(wake);
            }
        });
    }

    /// Pays what the worker owes before it runs the task in `place`, which it has taken from the queue or its mailbox.
    /// Meanwhile a caller that is blocked for the task may take it back from the mailbox. Returns the task's permit and
    /// id, or [`NO_TASK`] if it must not run; or `None` if the caller has taken it back, and the worker is `Paying`.
    #[cold]
    pub(super) fn pay_before(
        &self,
        place: &mut Option<Task>,
        permit: Permit,
        id: u64,
    ) -> Option<(Permit, u64)> {
        if !self.ctx.has_debts() {
            return Some((permit, id));
        }
        let (core, it) = (self.core, self.it);
        if !place.as_ref().is_some_and(|task| task.table.has_caller) {
            self.ctx.pay();
            return Some((permit, id));
        }
        let Some(task) = place.take_if(|task| task.may_run(&core.env)) else {
            // It must not run any more, so its end gives it back to its caller at once, and drops nothing. What is
            // owed comes after that. (It will not be allowed to run later either: time passes, and what is cancelled
            // stays so.) What is owed may lead to the wakers of others, for which no thread takes this worker for its own (A8). So
            // the task ends under no id.
            return Some((permit, NO_TASK));
        };
        let tell = |task: &Task, generation| task.offer_on(self.ctx.slot, generation);
        // SAFETY: this thread is the slot's worker, `Busy`, and has just taken this task.
        unsafe { it.offer_again(task, permit, tell) };
        it.record.count_offered_again();
        self.ctx.pay();
        let mut backoff = Backoff::default();
        loop {
            // SAFETY: this thread is the slot's worker, and has no task in hand.
            match unsafe { it.poll_order() } {
                Some(Order::Run {
                    task,
                    permit,
                    generation,
                }) => {
                    *place = Some(task);
                    return Some((permit, mailbox_id(generation)));
                }
                Some(Order::Search(None)) => return None,
                Some(_) => unreachable!("no thread has told this worker anything"),
                // The caller takes the task back, and has not left the slot yet.
                None => backoff.wait(),
            }
        }
    }

    /// Pays what the worker owes to other threads, up to the first debt that needs a lock that another one holds.
    /// That thread may have been stopped, and this worker may get an order, or is about to end. Returns `true` if nothing is owed any more.
    pub(crate) fn pay_if_free(&self) -> bool {
        self.ctx.with_owed(|owed| {
            let kinds = owed.kinds().to_others();
            let pay = || self.core.pay_others_by(Patience::Tries, owed);
            // What it has begun may wait for a lock all the same: see the protocol page, "What a step owes".
            if let Err(due) = self.it.record.while_paying(kinds, pay) {
                owed.note(due);
            }
        });
        !self.ctx.owes()
    }
}
