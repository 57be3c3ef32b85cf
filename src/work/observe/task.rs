//! What surrounds each task.

#[cfg(feature = "tracing")]
use super::span::Parent;
use crate::work::env::Env;
use crate::work::record::Record;

/// A submission. Small: it takes its room from the closure's. Its drop is contained.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When it was, by [`Env::nanos`].
    #[cfg(feature = "metrics")]
    at: u64,
    #[cfg(feature = "tracing")]
    parent: Parent,
}

impl Seen {
    #[inline]
    pub(crate) fn now(env: &Env) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: env.nanos_now(),
            #[cfg(feature = "tracing")]
            parent: Parent::current(),
        }
    }
}

/// Looks on while a task runs.
pub(crate) struct Watch {
    #[cfg(feature = "metrics")]
    submitted: u64,
    #[cfg(feature = "metrics")]
    started: u64,
    #[cfg(feature = "tracing")]
    span: Option<tracing::span::EnteredSpan>,
}

impl Watch {
    #[inline(always)]
    pub(crate) fn begin(seen: Seen, env: &Env, record: &Record, slot: usize) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            submitted: seen.at,
            #[cfg(feature = "tracing")]
            span: seen.parent.enter(env, record.label.get(), slot),
            #[cfg(feature = "metrics")]
            started: env.nanos_now(),
        }
    }

    /// The task's code has returned or panicked.
    #[inline(always)]
    pub(crate) fn stop(&self, env: &Env, record: &Record) {
        #[cfg(feature = "metrics")]
        {
            let times = [self.submitted, self.started, env.nanos_now()];
            env.hook(|| env.series.record(&env.name, record.label.get(), times));
        }
    }

    /// All that belongs to the task's span has been said.
    #[inline(always)]
    pub(crate) fn end(self, env: &Env) {
        #[cfg(feature = "tracing")]
        if self.span.is_some() {
            env.hook(|| drop(self.span));
        }
    }
}
