//! Two decisions between a caller that waits and the worker that runs its task.
//!
//! The caller's [`WaitNode`] lies on the caller's stack; nothing is allocated. Two races
//! are decided, each by one atomic step:
//!
//! **Start.** Until a worker starts the task, the caller may take it back. In a slot's
//! mailbox that is `Offered -> Busy` (worker) against `Offered -> Held` (caller), in the
//! queue `Full -> Held` by the pop against the same step by the caller. Who wins owns
//! the closure.
//!
//! **End.** A started task's result belongs to whoever moves the [`Decision`] of the
//! worker's slot, which outlives the caller:
//!
//! | from | to | by | then |
//! |---|---|---|---|
//! | anything | `Running(t)` | worker, at start | it has copied what it needs of the node; the caller may leave from now on |
//! | `Running(t)` | zero | worker | it becomes free, counts, writes the result, raises `done` |
//! | `Running(t)` | `Pinned(t)`, then `Abandoned(t)` | caller, at its deadline; cancel of a handle | in between it leaves its deadline in the slot, or zero; a caller's node is not touched again; the worker drops the result, but for a handle that is still there |
//! | `Abandoned(t)` | zero | worker | the result has been dropped, or goes to a handle that is still there |
//! | `Running(t)` | `Pinned(t)` and back | worker, in `task::deadline` | it reads the deadline in the node; the caller waits a moment before it leaves |
//!
//! The id `t` names the task uniquely: the slot's generation, or the queue's position
//! with a bit of its own. So a caller that reads the word of a slot that has moved on can
//! tell. A caller that loses the first race finds its id on the word, or `done`, within
//! a few instructions of the worker. One that loses the second finds `done`.
//!
//! **The clock** is read only once the task is on its way, so that it costs the caller
//! nothing while a worker is at work. The deadline is therefore not in the task but in the
//! node.
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | C1 | the worker starts the decision, or ends `Pinned`, having read the node | the caller reads the decision before it leaves |
//! | C2 | the caller leaves, with its deadline | the worker completes, or waits for the deadline |
//! | C3 | the worker tells its slot, having started the decision | the caller of a queued task reads the slot; a handle marks its task as cancelled there |
//! | C4 | the worker raises `done`, having written the outcome; the caller parks, having written its wake-up | the caller reads `done`; the worker reads that it parks |
//! | C5 | a handle says in `done` that it is gone | the task's end finds that, and frees the node |

mod decision;
mod node;
mod shared;

pub(crate) use decision::{is_queued, mailbox_id, queue_id, Decision};
pub(crate) use node::{WaitNode, Waited, WakeUp};
pub(crate) use shared::{pair, Answered, HandleSide, Remains, Shared, TaskSide};

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
