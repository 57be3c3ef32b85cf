//! What the features `metrics` and `tracing` see; with both off, nothing here
//! compiles to an instruction.
//!
//! Recorders and subscribers are user code, and the pool's laws hold whatever it
//! does. Around a task it runs within [`Ctx::call`](crate::work::context::Ctx), that is
//! after the task has been started for good and before its outcome is decided:
//! a slow one takes its time from the task, whose caller still leaves at its
//! deadline. A task that does not run lets go of its submitter's span on the thread of
//! a caller that waits for it; if none does, on the thread that discards it, once its group
//! or handle has been told, or on a worker that finds it late, before.
//! What runs on a caller's own thread, its own subscriber's, takes that caller's time.
//! Nowhere does it run with a lock held. Its panics are contained, and those on the pool's behalf
//! counted as `hook_panics`.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables)
)]

use crate::error::TaskPanic;
use crate::stats::WorkerSnapshot;
use crate::work::env::Env;
use std::io;

#[cfg(feature = "tracing")]
mod span;
mod task;

pub(crate) use task::{Seen, Watch};

// ---- events ----------------------------------------------------------------------

/// An event of a pool, contained and counted as a hook; nothing without `tracing`.
macro_rules! event {
    ($level:ident, $env:expr, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        $env.hook(|| {
            tracing::event!(
                target: "lazypool",
                tracing::Level::$level,
                pool = $env.name,
                $($field)*
            );
        });
    };
}

/// On the worker, as its first step.
pub(crate) fn worker_spawned(env: &Env, slot: usize) {
    event!(DEBUG, env, slot, "worker spawned");
}

/// On the worker, after its slot is free.
pub(crate) fn worker_retired(env: &Env, slot: usize) {
    event!(DEBUG, env, slot, "worker retired");
}

/// On the thread that asked for one.
pub(crate) fn spawn_failed(env: &Env, error: &io::Error) {
    event!(
        WARN,
        env,
        error = error as &dyn std::error::Error,
        "worker thread could not be started"
    );
}

/// On the worker, within the task's span.
pub(crate) fn task_panicked(env: &Env, panic: &TaskPanic<'_>) {
    event!(
        WARN,
        env,
        label = panic.label,
        slot = panic.slot,
        panic.message = panic.message(),
        "task panicked"
    );
}

/// On the caller, in its own span.
pub(crate) fn caller_timed_out(env: &Env, slot: usize, label: Option<&'static str>) {
    event!(WARN, env, label, slot, "caller timed out");
}

/// On who notices first: who cancels a group, or the worker. Nobody waits for its task any
/// more, `why` says for what reason; a caller that leaves says so itself.
pub(crate) fn worker_abandoned(env: &Env, slot: usize, label: Option<&'static str>, why: &str) {
    event!(WARN, env, label, slot, why, "worker abandoned");
}

/// On the thread whose wait for the end of the pool has run out.
pub(crate) fn straggler(env: &Env, worker: &WorkerSnapshot) {
    event!(
        WARN,
        env,
        label = worker.label,
        slot = worker.slot,
        abandoned = worker.abandoned,
        "worker has not ended by the shutdown's timeout"
    );
}
