//! What surrounds each task.

use crate::work::env::Env;
#[cfg(feature = "tracing")]
use crate::work::panics::{contain, drop_contained};
use crate::work::record::Record;
#[cfg(feature = "tracing")]
use tracing::{dispatcher, span, span::EnteredSpan, Span};

/// A submission. Small: it takes its room from the closure's. Its drop is contained.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When it was, by [`Env::nanos`].
    #[cfg(feature = "metrics")]
    at: u64,
    /// The submitter's span; boxed, since it is 40 bytes.
    #[cfg(feature = "tracing")]
    parent: Option<Box<Span>>,
}

impl Seen {
    #[inline]
    pub(crate) fn now(env: &Env) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: env.nanos_now(),
            #[cfg(feature = "tracing")]
            parent: current(),
        }
    }
}

#[cfg(feature = "tracing")]
impl Drop for Seen {
    #[inline]
    fn drop(&mut self) {
        if self.parent.is_some() {
            drop_contained(self.parent.take());
        }
    }
}

/// The submitter's span, if tasks have spans at all. A submission must not
/// unwind, half done as it is; without a span it goes on.
#[cfg(feature = "tracing")]
#[inline]
fn current() -> Option<Box<Span>> {
    // One load where there is no subscriber.
    if LEVEL > tracing::level_filters::LevelFilter::current() {
        return None;
    }
    let mut parent = None;
    contain(|| {
        let span = Span::current();
        parent = (!span.is_none()).then(|| Box::new(span));
    });
    parent
}

/// The level of a task's span.
#[cfg(feature = "tracing")]
const LEVEL: tracing::Level = tracing::Level::INFO;

/// The span of a task that starts, below its submitter's, if tasks have spans at all.
#[cfg(feature = "tracing")]
fn enter(
    mut seen: Seen,
    env: &Env,
    label: Option<&'static str>,
    slot: usize,
) -> Option<EnteredSpan> {
    if LEVEL > tracing::level_filters::LevelFilter::current() {
        return None;
    }
    let mut entered = None;
    env.hook(|| entered = Some(open(seen.parent.take(), env, label, slot).entered()));
    entered
}

#[cfg(feature = "tracing")]
fn open(parent: Option<Box<Span>>, env: &Env, label: Option<&'static str>, slot: usize) -> Span {
    let below = |parent: Option<span::Id>| {
        tracing::span!(
            target: "lazypool",
            parent: parent,
            LEVEL,
            "lazypool.task",
            pool = env.name,
            label,
            slot,
        )
    };
    // By the submitter's subscriber, which need not be this thread's: an id
    // means nothing to another.
    let span = parent.as_ref().and_then(|parent| {
        parent.with_subscriber(|(id, dispatch)| {
            dispatcher::with_default(dispatch, || below(Some(id.clone())))
        })
    });
    span.unwrap_or_else(|| below(None))
}

/// Looks on while a task runs.
pub(crate) struct Watch {
    #[cfg(feature = "metrics")]
    submitted: u64,
    #[cfg(feature = "metrics")]
    started: u64,
    #[cfg(feature = "tracing")]
    span: Option<EnteredSpan>,
}

impl Watch {
    #[inline(always)]
    pub(crate) fn begin(seen: Seen, env: &Env, record: &Record, slot: usize) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            submitted: seen.at,
            #[cfg(feature = "tracing")]
            span: enter(seen, env, record.label.get(), slot),
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
