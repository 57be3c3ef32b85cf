//! How a thread pays what it owes: see [`Owed`].

use super::host::Host;
use super::Core;
use crate::parts::gate::Freed;
use crate::parts::in_flight::Seen;
use crate::sync::{assert_not_relied_on, Arc, IsHeld, Patience};
use crate::work::owed::{Debts, Due, Few, Owed};
use crate::work::user_code;

impl<H: Host> Core<H> {
    /// Pays all that a thread owes. First what it owes to other threads, in a loop, because each step
    /// may lead to the next; then what it owes to user code. Called at the end of each public call,
    /// and in a worker's loop. The thread holds no lock and no slot but its own. If it owes
    /// calls, it is in no count.
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
    /// for one debt may have been stopped, so that debt comes after those that need other locks.
    pub(crate) fn pay_others(self: &Arc<Self>, owed: &mut Owed) {
        let mut last = Few::default();
        while let Err(due) = self.pay_others_by(Patience::Tries, owed) {
            // The passes come last, and need one lock. So the others would be in vain, too.
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

    /// Pays what a thread owes to other threads. A thread that others rely on only tries: if another one
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
            assert_not_relied_on();
            match due {
                Due::Leave(leaving) => leaving.finish(patience).map_err(Due::Leave)?,
                _ if !pays => {}
                Due::Pass(of) => {
                    H::pass(self, of, patience, owed).map_err(|IsHeld| Due::Pass(of))?;
                }
                Due::Look => {
                    let looked = self.look_by(Seen::is_any_searching, patience, owed);
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
