//! How a worker steps aside, because it is about to do what may take long: to call user code, or to wait for a
//! lock that a debt needs. The protocol page has its states meanwhile.

use super::host::Host;
use super::worker::Worker;
use crate::parts::backoff::Backoff;
use crate::parts::in_flight::NOTIFIED;
use crate::parts::slot::{Order, State};
use crate::sync::Patience;
use crate::work::owed::Owed;

impl<H: Host> Worker<'_, H> {
    /// Pays what the worker owes, as [`pay_without_task`](Self::pay_without_task) does.
    #[cold]
    pub(super) fn pay_slowly(&self, state: State) -> State {
        let mut owed = self.ctx.take_owed();
        if state == State::Busy {
            self.ctx.call_back(|| self.core.pay(&mut owed));
            return State::Busy;
        }
        // Other threads rely on this worker, so it does not wait for the locks that debts need. A permit that it
        // passes may bring it a task. If it has user code to call, it moves that task as it steps aside.
        if self.pay_if_free(&mut owed) && !owed.has_calls() {
            self.core.pay(&mut owed);
            return state;
        }
        let to = match owed.only_wakes() {
            true => State::Calling,
            false => State::Searching,
        };
        self.step_aside(state, to, &mut owed);
        // From here on no thread relies on this worker. Debts to other threads come first, because user code
        // may take long.
        self.core.pay_others(&mut owed);
        let before_drops = || {
            let mut owed = Owed::default();
            self.step_aside(State::Calling, State::Searching, &mut owed);
            self.core.pay(&mut owed);
        };
        self.ctx
            .call_back(|| self.core.pay_by_steps(&mut owed, &before_drops));
        self.come_back()
    }

    /// Moves this worker to the state `to`: `Calling` or `Searching`. From then on no thread relies on it. If a
    /// task was handed to it, moves that task to the queue, and becomes `Searching`. `state` is that of a
    /// worker without a task. If it is `Idle`, the worker may have got an order since.
    fn step_aside(&self, state: State, to: State, owed: &mut Owed) {
        if self.leave_count() {
            owed.look();
        }
        // `None`: another thread is about to write the order, and may be stopped before that.
        let before = self.pay_until(owed, || self.it.step_aside(to));
        match before.state() {
            State::Offered | State::Busy => self.empty_mailbox(owed),
            State::Searching => {
                let is_notified = self.obeys(before.generation()) && state == State::Idle;
                if is_notified {
                    // The thread that notified this worker, and others, find another one.
                    self.core.in_flight.sub(NOTIFIED);
                    owed.look();
                }
            }
            // The worker searches afterwards, and asks then whether it has to end.
            State::Retiring => {
                self.pay_if_free(owed);
                H::ends_later(self);
            }
            _ => {}
        }
    }

    /// Notes that this worker obeys an order, and that the slot has this generation. Returns `false` if a task
    /// was handed over since the last order. If the order is to search, that task was taken back, and the
    /// worker is not counted. Otherwise it was notified.
    pub(super) fn obeys(&self, generation: u64) -> bool {
        self.generation.replace(generation) == generation
    }

    /// Moves the task in this worker's mailbox to the queue, where another worker finds it, and makes this
    /// worker `Searching`. A task that must not be queued stays. Does nothing if the task is taken back
    /// meanwhile.
    #[cold]
    fn empty_mailbox(&self, owed: &mut Owed) {
        let (core, it) = (self.core, self.it);
        // `None`: the waiter takes its task back, and may be stopped before it leaves the slot.
        let (order, generation) = self.pay_until(owed, || {
            // SAFETY: this thread is the slot's worker, and its last task has ended.
            unsafe { it.poll_order() }
        });
        let Order::Run { task, permit } = order else {
            self.obeys(generation);
            return;
        };
        if task.look().must_not_queue {
            let revocable = task.table.offered;
            // SAFETY: this thread is the slot's worker, and has just taken this task.
            return unsafe { it.put_back(task, permit, revocable) };
        }
        self.obeys(generation);
        H::push_again(core, task, permit, owed);
        it.record.count_moved();
        // SAFETY: this thread is the slot's worker, `Busy`.
        unsafe { it.step(State::Busy, State::Searching) };
    }

    /// Ends what may have taken long. Returns `Searching` if the worker is to look at the queue now, and
    /// `Idle` if a task was, or is about to be, handed to it.
    fn come_back(&self) -> State {
        match self.it.step_aside(State::Searching) {
            Some(word) if !word.has_task() => {
                self.obeys(word.generation());
                State::Searching
            }
            _ => State::Idle,
        }
    }

    /// Waits for another thread until `is_there` returns a value, and returns it. That thread may be stopped, so
    /// this pays meanwhile what it can.
    fn pay_until<R>(&self, owed: &mut Owed, is_there: impl Fn() -> Option<R>) -> R {
        let mut backoff = Backoff::default();
        loop {
            if let Some(it) = is_there() {
                return it;
            }
            self.pay_if_free(owed);
            backoff.wait();
        }
    }

    /// Pays what is owed to other threads, up to the first debt that needs a lock that another one holds.
    /// That thread may have been stopped, and others may rely on this worker. Returns `true` if all is paid.
    pub(super) fn pay_if_free(&self, owed: &mut Owed) -> bool {
        match self.core.pay_others_by(Patience::Tries, owed) {
            Ok(()) => true,
            Err(due) => {
                owed.note(due);
                false
            }
        }
    }
}
