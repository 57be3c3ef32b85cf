//! What a worker does with a task whose end is decided between it and who waits: a caller of
//! `do_with_deadline`, or a handle.

use crate::parts::completion::WaitNode;
use crate::work::context::Ctx;
use crate::work::panics::Payload;

/// Runs the task; whether it panicked, and its result, if that is still wanted. Otherwise the result has
/// been dropped, while the task still counts as running. `timed`: the node of a caller with a deadline.
/// `is_wanted` is asked with whether somebody waits.
///
/// # Safety
/// This worker has started its decision for who waits, with this node.
pub(super) unsafe fn run_decided<R>(
    ctx: &Ctx<'_>,
    timed: Option<*const WaitNode>,
    f: impl FnOnce() -> R,
    is_wanted: impl FnOnce(bool) -> bool,
) -> (bool, Option<Result<R, Payload>>) {
    let (decision, task_id) = (&ctx.record.decision, ctx.task_id.get());
    // SAFETY: by this function's contract.
    unsafe { ctx.set_caller(timed) };
    let result = ctx.call(f);
    // Subscribers are told of a run limit that has passed as long as the caller can leave.
    ctx.tell_if_late();
    let waits = decision.complete(task_id);
    let (panicked, wanted) = if is_wanted(waits) {
        (result.is_err(), Some(result))
    } else {
        (ctx.drop_result(result), None)
    };
    if !waits {
        // Who left may have been just leaving, and does not exist in a forked child.
        ctx.end_if_forked();
        decision.forget(task_id);
    }
    // SAFETY: there is none.
    unsafe { ctx.set_caller(None) };
    (panicked, wanted)
}
