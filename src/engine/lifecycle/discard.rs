//! Tasks that are taken out of the pool to be dropped. A shutdown takes out all queued tasks,
//! except those of scopes, which must run. A group's cancel takes out the tasks at the positions
//! that the group has noted. A handle that cancels takes out its own task, from the queue or a
//! mailbox.
//!
//! Each of these tasks is counted while its cell or slot is held, so before its permit can come free.
//! Once all are out, they are *settled*: callers get their tasks back, handles get their outcomes, and
//! groups are told of the end. The rest is owed: wakers to call, captures to drop. So no thread
//! has to wait until captures are dropped.

use crate::engine::shared::Core;
use crate::error::TaskError;
use crate::parts::gate::Freed;
use crate::sync::{Arc, Ordering};
use crate::work::job::{NeverRan, Task, TaskEnd};
use crate::work::owed::Owed;

impl Core {
    /// Counts an accepted task that will not run: as expired if its deadline has passed, otherwise
    /// as discarded. Returns how it counted.
    pub(crate) fn count_removed(&self, task: &Task) -> TaskEnd {
        let times = task.look().times;
        if times.is_some_and(|times| times.due() <= self.env.nanos_now()) {
            self.host.counts.expire();
            TaskEnd::Expired
        } else {
            self.host.counts.discard();
            TaskEnd::Cancelled
        }
    }

    /// Takes out and counts the queued tasks of a pool that discards them, except those that must run.
    /// Settles them once all are out.
    pub(crate) fn discard_all(self: &Arc<Self>, owed: &mut Owed) {
        if self.env.is_discarding() {
            self.discard_at(self.queue.positions(), owed);
        }
    }

    /// Takes out the task at a position if the pool discards queued tasks. The thread that has pushed
    /// it calls this, because the shutdown may have missed the task (P3).
    pub(crate) fn discard_if_late(self: &Arc<Self>, position: u64, owed: &mut Owed) {
        if self.env.is_discarding() {
            self.discard_at([position], owed);
        }
    }

    fn discard_at(&self, positions: impl IntoIterator<Item = u64>, owed: &mut Owed) {
        let count = |task: &Task| {
            if task.table.must_run {
                return false;
            }
            if self.count_removed(task) == TaskEnd::Cancelled {
                // ORDERING: L1: the discards of a shutdown come before its report.
                self.host.counts.shut_out.fetch_add(1, Ordering::SeqCst);
            }
            true
        };
        self.take_out(positions, count, || TaskError::Discarded, owed);
    }

    /// Takes out the tasks at these positions, if `count` counts them. Then settles them.
    pub(crate) fn take_out(
        &self,
        positions: impl IntoIterator<Item = u64>,
        count: impl Fn(&Task) -> bool,
        why: NeverRan,
        owed: &mut Owed,
    ) {
        let (mut taken, mut freed) = (Vec::new(), Freed::default());
        for position in positions {
            taken.extend(self.queue.take_if(position, &mut freed, &count));
        }
        owed.give_freed(&self.gate, &mut freed);
        self.discard(taken, why, owed);
    }

    /// Settles tasks that were taken out and counted.
    pub(crate) fn discard(
        &self,
        tasks: impl IntoIterator<Item = Task>,
        why: NeverRan,
        owed: &mut Owed,
    ) {
        for task in tasks {
            task.discard(why).settle(owed);
        }
    }
}
