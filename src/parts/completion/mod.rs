//! Two decisions between a caller that waits and the worker that runs its task.
//!
//! The [`WaitNode`] of a caller is on its stack, and that of a handle on the heap. Two races are decided,
//! each by one atomic step:
//!
//! **Start.** The caller may take its task back until a worker takes it, and again while that worker offers it again. For a task in a slot's
//! mailbox, the worker's step `Offered -> Busy` races the caller's step `Offered -> Held`. For a
//! queued task, both sides race to take the cell from `Full` to `Held`. The winner owns the
//! closure.
//!
//! **End.** Either the worker delivers the outcome of a started task, or the caller leaves the task
//! first. The side that first moves the [`Decision`] out of `RUNNING` wins. The decision is in the
//! worker's slot, because the slot outlives the caller:
//!
//! | from | to | by | then |
//! |---|---|---|---|
//! | any | `RUNNING(t)` | worker, at the start | it has copied what it needs of the node; the caller may leave from now on |
//! | `RUNNING(t)` | zero | worker, at the end | it gives the permit back, publishes its next state, counts the task, writes the outcome, raises `done` |
//! | `RUNNING(t)` | `PINNED(t)`, then `ABANDONED(t)` | caller, at its deadline; cancel of a handle | it leaves its deadline, or zero, in the slot while the word is `PINNED`; the worker does not touch a caller's node again, and drops the outcome unless the handle still exists |
//! | `ABANDONED(t)` | zero | worker, at the end | it has dropped the outcome, or passes it to a handle that still exists |
//! | `RUNNING(t)` | `PINNED(t)` and back | worker, in `task::deadline` | it reads the deadline in the node; a caller that wants to leave waits for that |
//!
//! The id `t` is unique to the task: it is the slot's generation, or the queue position with a
//! flag. So a caller can tell whether the word still belongs to its own task, or the slot now runs
//! another task. A caller that loses the first race waits until it finds its id in the word, or
//! finds `done`, or can take back the task that its worker has offered again. A worker needs only a few instructions until one of these, and a thread that has taken the task out to
//! discard it may need more (D4). A caller that loses the
//! second race waits for `done`.
//!
//! **The clock.** If the limit of a call is a duration, the caller reads the clock only after it
//! has handed the task over, when a worker can already run it. So reading the clock does not delay
//! the task. For this reason the deadline is in the node and not in the task. (A submitter's own
//! deadline or `min_remaining` needs the clock earlier.)
//!
//! | pair | one side | the other side |
//! |---|---|---|
//! | C1 | the worker starts the decision or ends `PINNED`, after it has read the node | the caller reads the decision before it leaves |
//! | C2 | the caller leaves, after it has stored its deadline | the worker completes, or reads the deadline |
//! | C3 | the worker publishes its slot number, after it has started the decision | the caller of a queued task reads the slot number; a handle marks its task as cancelled, or itself as leaving, in the same word |
//! | C6 | a worker that offers a task again stores its slot, then the task's generation there | the task's caller reads the generation, then the slot |
//! | C4 | the worker raises `done`, after it has written the outcome; the caller parks, after it has written its wake-up | the caller reads `done`; the worker reads that the caller parks |
//! | C5 | a handle sets `done` to `GONE` | the task's end finds that, and frees the node |

mod decision;
mod node;
mod shared;

pub(crate) use decision::{is_queued, mailbox_id, queue_id, Decision, NO_TASK};
pub(crate) use node::{WaitNode, WakeUp};
pub(crate) use shared::{pair, Answered, HandleSide, Remains, Shared, TaskSide};

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests;
