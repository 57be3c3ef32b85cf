//! What surrounds each task.

#[cfg(feature = "tracing")]
use crate::sync::catch_unwind;
use crate::work::context::Ctx;
use crate::work::job::{End, Job, Release};
#[cfg(feature = "tracing")]
use crate::work::panics::{drop_contained, drop_payload};
#[cfg(feature = "tracing")]
use tracing::{dispatcher, span, span::EnteredSpan, Span};

/// A job, and what is known of its submission. Every task holds one.
pub(crate) struct Observed<J> {
    seen: Seen,
    job: J,
}

impl<J> Observed<J> {
    /// At its submission, on the submitter's thread.
    #[inline]
    pub(crate) fn new(job: J) -> Self {
        Self {
            seen: Seen::now(),
            job,
        }
    }

    /// For a job that will not run.
    pub(crate) fn unseen(job: J) -> Self {
        Self {
            seen: Seen::default(),
            job,
        }
    }

    pub(crate) fn into_job(self) -> J {
        self.seen.forget();
        self.job
    }
}

impl<J: Job> Job for Observed<J> {
    const MUST_RUN: bool = J::MUST_RUN;
    const AWAITED: bool = J::AWAITED;
    const REVOCABLE: bool = J::REVOCABLE;

    /// Leaves it to [`Watch::begin`], which the job comes to once it has
    /// decided that it runs.
    #[inline]
    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        ctx.seen.set(self.seen);
        self.job.run(ctx, end);
    }

    fn discard(self) -> Release {
        self.seen.forget();
        self.job.discard()
    }

    fn group(&self) -> *const () {
        self.job.group()
    }
}

/// A submission. Small: it takes its room from the closure's.
#[derive(Default)]
pub(crate) struct Seen {
    /// When it was, by [`now`](super::record::now).
    #[cfg(feature = "metrics")]
    at: u64,
    /// The submitter's span; boxed, since it is 40 bytes.
    #[cfg(feature = "tracing")]
    parent: Option<Box<Span>>,
}

impl Seen {
    #[inline]
    fn now() -> Self {
        Self {
            #[cfg(feature = "metrics")]
            at: super::record::now(),
            #[cfg(feature = "tracing")]
            parent: current(),
        }
    }

    /// The task does not run.
    #[inline]
    pub(crate) fn forget(self) {
        #[cfg(feature = "tracing")]
        if self.parent.is_some() {
            drop_contained(self.parent);
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
    let current = catch_unwind(|| {
        let span = Span::current();
        (!span.is_none()).then(|| Box::new(span))
    });
    current.unwrap_or_else(|payload| {
        drop_payload(payload);
        None
    })
}

/// The level of a task's span.
#[cfg(feature = "tracing")]
const LEVEL: tracing::Level = tracing::Level::INFO;

/// The span of a task that starts, below its submitter's.
#[cfg(feature = "tracing")]
fn open(ctx: &Ctx<'_>, parent: Option<Box<Span>>) -> Span {
    let below = |parent: Option<span::Id>| {
        tracing::span!(
            target: "lazypool",
            parent: parent,
            LEVEL,
            "lazypool.task",
            pool = ctx.env.name,
            label = ctx.label(),
            slot = ctx.slot,
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
    #[inline]
    pub(crate) fn begin(ctx: &Ctx<'_>) -> Self {
        let seen = ctx.seen.take();
        #[cfg(feature = "metrics")]
        let submitted = seen.at;
        #[cfg(feature = "tracing")]
        let span = if LEVEL <= tracing::level_filters::LevelFilter::current() {
            let mut span = None;
            ctx.env
                .hook(|| span = Some(open(ctx, seen.parent).entered()));
            span
        } else {
            seen.forget();
            None
        };
        Self {
            #[cfg(feature = "metrics")]
            submitted,
            #[cfg(feature = "metrics")]
            started: super::record::now(),
            #[cfg(feature = "tracing")]
            span,
        }
    }

    /// The task's code has returned or panicked.
    #[inline]
    pub(crate) fn stop(&self, ctx: &Ctx<'_>) {
        #[cfg(feature = "metrics")]
        super::record::task(ctx, self.submitted, self.started);
        #[cfg(not(feature = "metrics"))]
        let _ = ctx;
    }

    /// All that belongs to the task's span has been said.
    #[inline]
    pub(crate) fn end(self, ctx: &Ctx<'_>) {
        #[cfg(feature = "tracing")]
        if self.span.is_some() {
            ctx.env.hook(|| drop(self.span));
        }
        #[cfg(not(feature = "tracing"))]
        let _ = ctx;
    }
}
