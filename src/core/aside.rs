//! How a worker without a task pays what it owes. If that may take long, because user code is to be called or a
//! lock is held, it first steps aside. The protocol page, "How a worker pays", has the turns, its states
//! meanwhile, and an example.

use super::host::Host;
use super::worker::Worker;
use super::Core;
use crate::parts::backoff::Backoff;
use crate::parts::completion::mailbox_id;
use crate::parts::gate::Permit;
use crate::parts::slot::{Claim, Found, Order, State};
use crate::sync::{Arc, Patience};
use crate::work::job::Task;
use crate::work::owed::{Kinds, Owed};
use crate::work::user_code;

/// What a worker does that has stepped aside.
enum Aside {
    /// It is `Calling`, and calls wakers.
    Calls,
    /// It is `Searching`, and pays the rest.
    Searches,
    /// It is `Busy` with a task that must not be queued, and starts that task.
    MustStart,
}

impl<H: Host> Core<H> {
    /// Moves the tasks that wait in mailboxes, because their workers are in user code, to the queue. Those that must
    /// not be queued stay, and those that were offered again: a node has one mailbox in its life, because its caller reads
    /// slot and generation one after the other.
    pub(crate) fn empty_mailboxes(self: &Arc<Self>, owed: &mut Owed) {
        for it in &self.slots {
            if it.record.pays() == Kinds::NONE && !it.record.is_new() {
                continue;
            }
            let Some((task, permit)) = it.revoke(it.load().generation()) else {
                continue;
            };
            if task.look().must_not_queue || task.is_offered_again() {
                // SAFETY: this thread revoked the task, so it holds the slot (`Held`), and puts the task back.
                unsafe {
                    it.put_back(task, permit);
                    it.offer_put_back();
                }
                continue;
            }
            let leave = || {
                it.record.count_moved();
                // SAFETY: this thread revoked the task, so it holds the slot (`Held`). The claim is `AWAKE`: as in
                // `withdraw`.
                unsafe { it.send_searching(Claim::AWAKE) };
            };
            H::push_again(self, task, permit, leave, owed);
        }
    }
}

impl<H: Host> Worker<'_, H> {
    /// Pays what the worker owes, as [`pay_without_task`](Self::pay_without_task) does.
    #[cold]
    pub(super) fn pay_slowly(&self, state: State) -> State {
        let mut owed = self.ctx.take_owed();
        let state = self.pay_in_turns(&mut owed, state);
        self.it.record.set_pays(Kinds::NONE);
        self.ctx.owe_again(owed);
        state
    }

    /// Pays what the worker owes. Each turn of the loop pays one kind of debt: to other threads, then wakers, then
    /// the rest of user code. Leaves the debts to the task that the worker must start, if there is one.
    fn pay_in_turns(&self, owed: &mut Owed, mut state: State) -> State {
        self.it.record.set_pays(owed.kinds());
        if state == State::Busy {
            self.ctx.call_back(|| self.core.pay(owed));
            return state;
        }
        self.core.pass_dead(owed);
        while !owed.is_empty() {
            // A counted worker pays no debt that may need a lock, and calls no user code.
            if owed.kinds() != Kinds::NONE {
                owed.look_for(self.leave_count());
            }
            // A permit that this worker passes may bring it a task. So it does not wait for a lock yet.
            if self.pay_if_free(owed) && !owed.has_calls() {
                self.core.pay(owed);
                return state;
            }
            let aside = self.step_aside(owed);
            self.it.record.set_pays(owed.kinds());
            match aside {
                Aside::Calls => {
                    let wakers = owed.take_calls();
                    let wake = || owed.add_calls(user_code::wake(&self.core.env, wakers));
                    self.ctx.call_back(wake);
                }
                Aside::Searches => {
                    self.core.pay_others(owed);
                    // If only wakers are left, the next turn calls them. No order comes before that.
                    if !owed.only_wakes() {
                        self.ctx.call_back(|| self.core.pay(owed));
                    }
                }
                // The worker pays before it runs the task, as for a popped one that came with debts.
                Aside::MustStart => return State::Idle,
            }
            state = self.come_back();
        }
        state
    }

    /// Steps aside, to call wakers if these are all that the worker owes. From then on no thread relies on this
    /// worker. If it has got another order meanwhile, gives that order back. If a task was handed to it, moves
    /// that task to the queue.
    fn step_aside(&self, owed: &mut Owed) -> Aside {
        // `None`: another thread is about to write the order, and may be stopped before that.
        let (to, found) = self.pay_until(owed, |owed| {
            let to = match owed.only_wakes() {
                true => State::Calling,
                false => State::Searching,
            };
            Some((to, self.it.step_aside(to)?))
        });
        match found {
            Found::Nothing if to == State::Calling => return Aside::Calls,
            Found::Nothing => {}
            Found::Task => return self.empty_mailbox(owed),
            Found::Notice(notice) => {
                // The thread that notified this worker, and others, find another one.
                self.core.in_flight.forgo(notice);
                owed.look();
            }
            // The worker searches afterwards, and asks then whether it has to end. The host may wait for its lock.
            Found::Retirement => {
                self.pay_if_free(owed);
                let ends_later = || H::ends_later(self);
                self.it.record.while_paying(Kinds::END, ends_later);
            }
        }
        Aside::Searches
    }

    /// Moves the task in this worker's mailbox to the queue, where another worker finds it, unless the task is
    /// taken back meanwhile. A task that must not be queued stays, and this worker is `Busy` with it.
    #[cold]
    fn empty_mailbox(&self, owed: &mut Owed) -> Aside {
        let (core, it) = (self.core, self.it);
        // `None`: the waiter takes its task back, and may be stopped before it leaves the slot.
        let order = self.pay_until(owed, |_| {
            // SAFETY: this thread is the slot's worker, and its last task has ended.
            unsafe { it.poll_order() }
        });
        let (task, permit) = match order {
            Order::Run { task, permit, .. } => (task, permit),
            Order::Search(None) => return Aside::Searches,
            _ => unreachable!("no thread has told this worker anything"),
        };
        if task.look().must_not_queue {
            // SAFETY: this thread is the slot's worker, and has just taken this task.
            unsafe { it.put_back(task, permit) };
            return Aside::MustStart;
        }
        let leave = || {
            it.record.count_moved();
            // SAFETY: this thread is the slot's worker, `Busy`.
            unsafe { it.step(State::Busy, State::Searching) };
        };
        H::push_again(core, task, permit, leave, owed);
        Aside::Searches
    }

    /// Pays what the worker owes before it runs the task in `place`, which it has taken from the queue or its mailbox.
    /// Meanwhile a caller that is blocked for the task may take it back from the mailbox. Returns the task's permit and
    /// id; or `None` if the caller has taken it back, and the worker is `Searching`.
    #[cold]
    pub(super) fn pay_before(
        &self,
        place: &mut Option<Task>,
        permit: Permit,
        id: u64,
    ) -> Option<(Permit, u64)> {
        let (core, it) = (self.core, self.it);
        if !place.as_ref().is_some_and(|task| task.table.awaited) {
            self.ctx.pay();
            return Some((permit, id));
        }
        let Some(task) = place.take_if(|task| task.may_run(&core.env)) else {
            // It must not run any more, so its end gives it back to its caller at once, and drops nothing. What is
            // owed comes after that. (It will not be allowed to run later either: time passes, and what is cancelled
            // stays so.)
            return Some((permit, id));
        };
        let tell = |task: &Task, generation| task.offer_on(self.ctx.slot, generation);
        // SAFETY: this thread is the slot's worker, `Busy`, and has just taken this task.
        unsafe { it.offer_again(task, permit, tell) };
        it.record.count_moved();
        self.ctx.pay();
        // `None`: the caller takes the task back, and may be stopped before it leaves the slot.
        let order = self.pay_until(&mut Owed::default(), |_| {
            // SAFETY: this thread is the slot's worker, and has no task in hand.
            unsafe { it.poll_order() }
        });
        match order {
            Order::Run {
                task,
                permit,
                generation,
            } => {
                *place = Some(task);
                Some((permit, mailbox_id(generation)))
            }
            Order::Search(None) => None,
            _ => unreachable!("no thread has told this worker anything"),
        }
    }

    /// Ends what may have taken long. Returns `Searching` if the worker is to look at the queue now, and
    /// `Idle` if a task was, or is about to be, handed to it.
    fn come_back(&self) -> State {
        match self.it.step_aside(State::Searching) {
            Some(Found::Nothing) => State::Searching,
            Some(Found::Task) | None => State::Idle,
            Some(found) => unreachable!("no thread tells this worker anything: {found:?}"),
        }
    }

    /// Waits for another thread until `is_there` returns a value, and returns it. That thread may be stopped, so
    /// this pays meanwhile what it can.
    fn pay_until<R>(&self, owed: &mut Owed, is_there: impl Fn(&Owed) -> Option<R>) -> R {
        let mut backoff = Backoff::default();
        loop {
            if let Some(it) = is_there(owed) {
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
