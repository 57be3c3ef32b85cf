//! What the features `metrics` and `tracing` see; with both off, nothing here
//! compiles to an instruction.
//!
//! Recorders and subscribers are user code, and the pool's laws hold whatever it
//! does. Around a task it runs within [`Ctx::call`](crate::task::Ctx), that is
//! after the task has been started for good and before its outcome is decided:
//! a slow one takes its time from the task, whose caller still leaves at its
//! deadline. Elsewhere it runs with no lock held, no worker in limbo and nothing
//! half done. Its panics are contained, and those on the pool's behalf counted
//! as `hook_panics`.

use crate::error::TaskPanic;
use crate::shared::Shared;
use crate::stats::WorkerSnapshot;
use std::io;

#[cfg(any(feature = "metrics", feature = "tracing"))]
pub(crate) use task::{Observed, Seen, Watch};

#[cfg(feature = "metrics")]
pub(crate) use record::{publish, Series};

/// What surrounds each task.
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod task {
    #[cfg(feature = "tracing")]
    use crate::sync::catch_unwind;
    #[cfg(feature = "tracing")]
    use crate::task::{drop_contained, drop_payload};
    use crate::task::{Ctx, End, Job, Release};
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
        const KEEP: bool = J::KEEP;
        const AWAITED: bool = J::AWAITED;
        const WITHDRAWABLE: bool = J::WITHDRAWABLE;

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
        fn forget(self) {
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
                pool = ctx.shared.settings.thread_name,
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
                ctx.shared
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
                ctx.shared.hook(|| drop(self.span));
            }
            #[cfg(not(feature = "tracing"))]
            let _ = ctx;
        }
    }
}

/// Recorders of the `metrics` crate.
#[cfg(feature = "metrics")]
mod record {
    use crate::shared::Shared;
    use crate::task::{drop_contained, Ctx};
    use metrics::{
        counter, describe_counter, describe_gauge, describe_histogram, gauge, Histogram, Key,
        Label, Level, Metadata, Recorder, SharedString, Unit,
    };
    use std::sync::OnceLock;
    use std::time::Instant;

    const DELAY: &str = "lazypool_task_start_delay_seconds";
    const DURATION: &str = "lazypool_task_duration_seconds";

    /// Nanoseconds since the first call: half the size of an [`Instant`].
    #[inline]
    pub(super) fn now() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        let now = Instant::now();
        // Of two first calls one may be earlier than what both count from.
        now.saturating_duration_since(*FIRST.get_or_init(|| now))
            .as_nanos() as u64
    }

    /// Records a task that has just ended.
    pub(super) fn task(ctx: &Ctx<'_>, submitted: u64, started: u64) {
        let ended = now();
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        ctx.shared.hook(|| {
            ctx.shared.series.with(ctx, |histograms| {
                histograms.delay.record(seconds(submitted, started));
                histograms.duration.record(seconds(started, ended));
            });
        });
    }

    struct Histograms {
        delay: Histogram,
        duration: Histogram,
    }

    impl Histograms {
        #[cold]
        fn register(recorder: &dyn Recorder, ctx: &Ctx<'_>) -> Self {
            let metadata = Metadata::new("lazypool", Level::INFO, Some(module_path!()));
            let pool = ctx.shared.settings.thread_name.clone();
            let mut labels = vec![Label::new("pool", pool)];
            labels.extend(ctx.label().map(|l| Label::from_static_parts("label", l)));
            let histogram = |name| {
                recorder.register_histogram(&Key::from_parts(name, labels.clone()), &metadata)
            };
            Self {
                delay: histogram(DELAY),
                duration: histogram(DURATION),
            }
        }
    }

    /// A pool's histograms by label: looking a key up in a recorder takes longer
    /// than many a task. A list that only grows, read without a lock.
    #[derive(Default)]
    pub(crate) struct Series {
        first: OnceLock<Box<Node>>,
    }

    struct Node {
        /// By address, so that one installed later is not missed.
        recorder: usize,
        label: Option<&'static str>,
        histograms: Histograms,
        next: OnceLock<Box<Node>>,
    }

    /// Labels beyond are looked up each time: a program that makes up labels as
    /// it goes does not grow the list for ever.
    const KEPT: usize = 64;

    impl Series {
        fn with(&self, ctx: &Ctx<'_>, f: impl FnOnce(&Histograms)) {
            metrics::with_recorder(|recorder| {
                let address = std::ptr::from_ref(recorder).cast::<()>().addr();
                let label = ctx.label();
                let mut place = &self.first;
                for _ in 0..KEPT {
                    // Not in `get_or_init`, where a recorder must not come back to it.
                    let node = place.get().or_else(|| {
                        let node = Node {
                            recorder: address,
                            label,
                            histograms: Histograms::register(recorder, ctx),
                            next: OnceLock::new(),
                        };
                        // Another worker's may have been first, and be another label's.
                        let _ = place.set(Box::new(node));
                        place.get()
                    });
                    let Some(node) = node else { break };
                    if node.recorder == address && node.label == label {
                        return f(&node.histograms);
                    }
                    place = &node.next;
                }
                f(&Histograms::register(recorder, ctx));
            });
        }
    }

    impl Drop for Series {
        fn drop(&mut self) {
            let mut next = self.first.take();
            while let Some(mut node) = next {
                next = node.next.take();
                drop_contained(node);
            }
        }
    }

    impl std::fmt::Debug for Series {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Series").finish_non_exhaustive()
        }
    }

    /// Tells the recorder the pool's figures.
    pub(crate) fn publish(shared: &Shared) {
        describe();
        let stats = shared.stats();
        let pool = SharedString::from(shared.settings.thread_name.clone());
        let gauges = [
            ("lazypool_workers", stats.workers as u64),
            ("lazypool_workers_idle", stats.idle as u64),
            ("lazypool_workers_busy", stats.running as u64),
            ("lazypool_tasks_queued", stats.queued as u64),
            ("lazypool_submitters_waiting", stats.waiting as u64),
        ];
        for (name, value) in gauges {
            gauge!(target: "lazypool", name, "pool" => pool.clone()).set(value as f64);
        }
        let counters = [
            ("lazypool_tasks_accepted_total", stats.accepted),
            ("lazypool_tasks_completed_total", stats.completed),
            ("lazypool_tasks_panicked_total", stats.panicked),
            ("lazypool_tasks_expired_total", stats.expired),
            ("lazypool_tasks_timed_out_total", stats.timed_out),
            ("lazypool_tasks_discarded_total", stats.discarded),
            ("lazypool_workers_spawned_total", stats.spawned),
            ("lazypool_workers_retired_total", stats.retired),
            ("lazypool_spawn_failures_total", stats.spawn_failures),
            ("lazypool_hook_panics_total", stats.hook_panics),
        ];
        for (name, value) in counters {
            counter!(target: "lazypool", name, "pool" => pool.clone()).absolute(value);
        }
        for (reason, value) in stats.refusals.by_reason() {
            let name = "lazypool_tasks_refused_total";
            counter!(target: "lazypool", name, "pool" => pool.clone(), "reason" => reason)
                .absolute(value);
        }
    }

    /// Each time: the recorder may have been installed just now.
    fn describe() {
        let count = Unit::Count;
        for (name, text) in [
            ("lazypool_workers", "Workers that exist"),
            ("lazypool_workers_idle", "Workers without a task"),
            (
                "lazypool_workers_busy",
                "Workers with a task, those whose caller left included",
            ),
            ("lazypool_tasks_queued", "Tasks that wait for a worker"),
            (
                "lazypool_submitters_waiting",
                "Submitters that wait for room",
            ),
        ] {
            describe_gauge!(name, count, text);
        }
        for (name, text) in [
            ("lazypool_tasks_accepted_total", "Tasks taken"),
            ("lazypool_tasks_refused_total", "Submissions not taken"),
            ("lazypool_tasks_completed_total", "Tasks that returned"),
            ("lazypool_tasks_panicked_total", "Tasks that panicked"),
            (
                "lazypool_tasks_expired_total",
                "Tasks whose deadline passed before they started",
            ),
            (
                "lazypool_tasks_timed_out_total",
                "Callers that left a running task at its deadline",
            ),
            (
                "lazypool_tasks_discarded_total",
                "Tasks that a shutdown or a cancelled group took back",
            ),
            ("lazypool_workers_spawned_total", "Workers started"),
            ("lazypool_workers_retired_total", "Workers ended"),
            (
                "lazypool_spawn_failures_total",
                "Threads that the system refused",
            ),
            (
                "lazypool_hook_panics_total",
                "Panics of hooks, recorders and subscribers",
            ),
        ] {
            describe_counter!(name, count, text);
        }
        describe_histogram!(
            DELAY,
            Unit::Seconds,
            "From a task's submission to its start"
        );
        describe_histogram!(DURATION, Unit::Seconds, "From a task's start to its end");
    }
}

// ---- events ----------------------------------------------------------------------

/// An event of a pool, contained and counted as a hook; nothing without `tracing`.
macro_rules! event {
    ($level:ident, $shared:expr, $($field:tt)*) => {
        #[cfg(feature = "tracing")]
        hook($shared, || {
            tracing::event!(
                target: "lazypool",
                tracing::Level::$level,
                pool = $shared.settings.thread_name,
                $($field)*
            );
        });
    };
}

/// On a worker as one of its hooks: a subscriber that submits a task of its own
/// must not wait for the worker that it holds up.
#[cfg(feature = "tracing")]
fn hook(shared: &Shared, f: impl FnOnce()) {
    crate::task::with_current(|ctx| {
        let before = ctx.map(|ctx| ctx.in_hook.replace(true));
        shared.hook(f);
        if let (Some(ctx), Some(before)) = (ctx, before) {
            ctx.in_hook.set(before);
        }
    });
}

/// On the thread that started it, out of limbo: the worker need not wait.
#[inline(always)]
pub(crate) fn worker_spawned(shared: &Shared, slot: usize) {
    event!(DEBUG, shared, slot, "worker spawned");
    let _ = (shared, slot);
}

/// On the worker, as its last step.
#[inline(always)]
pub(crate) fn worker_retired(shared: &Shared, slot: usize) {
    event!(DEBUG, shared, slot, "worker retired");
    let _ = (shared, slot);
}

/// On the thread that asked for one, out of limbo.
#[inline(always)]
pub(crate) fn spawn_failed(shared: &Shared, error: &io::Error) {
    event!(
        WARN,
        shared,
        error = error as &dyn std::error::Error,
        "no thread to be had"
    );
    let _ = (shared, error);
}

/// On the worker, within the task's span.
#[inline(always)]
pub(crate) fn task_panicked(shared: &Shared, panic: &TaskPanic<'_>) {
    event!(
        WARN,
        shared,
        label = panic.label,
        slot = panic.slot,
        panic.message = panic.message(),
        "task panicked"
    );
    let _ = (shared, panic);
}

/// On the caller, in its own span.
#[inline(always)]
pub(crate) fn caller_timed_out(shared: &Shared, slot: usize, label: Option<&'static str>) {
    event!(WARN, shared, label, slot, "caller timed out");
    let _ = (shared, slot, label);
}

/// On the thread whose wait for the end of the pool has run out.
#[inline(always)]
pub(crate) fn straggler(shared: &Shared, worker: &WorkerSnapshot) {
    event!(
        WARN,
        shared,
        label = worker.label,
        slot = worker.slot,
        abandoned = worker.abandoned,
        "worker outlives the shutdown's time-out"
    );
    let _ = (shared, worker);
}
