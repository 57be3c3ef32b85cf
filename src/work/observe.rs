//! The observers of a pool: recorders of the feature `metrics` and subscribers of the feature
//! `tracing`. With both features off, the functions here do nothing.
//!
//! Recorders and subscribers are user code. Their panics are contained, and counted as
//! `hook_panics`. A recorder runs within [`Ctx::call`], before the task's outcome is decided. So
//! the task ends only after the recorder has returned.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables)
)]

use crate::error::TaskPanic;
use crate::stats::WorkerSnapshot;
use crate::work::context::Ctx;
use crate::work::env::Env;
use std::io;

/// The time of a step of a task, as returned by [`Env::nanos`]. Empty without `metrics`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    #[cfg(feature = "metrics")]
    at: u64,
}

impl Moment {
    #[inline]
    pub(crate) fn now(env: &Env) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: env.nanos_now(),
        }
    }
}

/// Records a task that began at the moment `started`, and whose code has returned or panicked.
#[inline(always)]
pub(crate) fn task_ended(ctx: &Ctx<'_>, started: Moment) {
    #[cfg(feature = "metrics")]
    {
        let (env, label) = (ctx.env, ctx.label.get());
        let times = [ctx.submitted.get().at, started.at, env.nanos_now()];
        env.hook(|| env.series.record(&env.name, label, times));
    }
}

/// Emits an event of a pool. A panic of the subscriber is caught, and counted like a panic of a
/// hook. Without the feature `tracing`, this expands to nothing.
macro_rules! event {
    ($env:expr, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        $env.hook(|| {
            tracing::event!(
                target: "lazypool",
                tracing::Level::WARN,
                pool = $env.name,
                $($field)*
            );
        });
    };
}

/// Emits an event about a thread that the OS refused. Runs on the thread that tried to start it.
pub(crate) fn spawn_failed(env: &Env, error: &io::Error) {
    event!(
        env,
        error = error as &dyn std::error::Error,
        "worker thread could not be started"
    );
}

/// Emits an event about a task that panicked. Runs on the worker.
pub(crate) fn task_panicked(env: &Env, panic: &TaskPanic<'_>) {
    event!(
        env,
        label = panic.label,
        slot = panic.slot,
        panic.message = panic.message(),
        "task panicked"
    );
}

/// Emits an event about a worker that has not ended, once for each worker. Runs on the thread whose
/// shutdown has timed out.
pub(crate) fn straggler(env: &Env, worker: &WorkerSnapshot) {
    event!(
        env,
        label = worker.label,
        slot = worker.slot,
        abandoned = worker.abandoned,
        "worker has not ended by the shutdown's timeout"
    );
}
