//! What a pool tells recorders of the `metrics` crate.

use crate::stats::Stats;
use crate::sync::Instant;
use crate::work::panics::drop_contained;
use metrics::{
    counter, describe_counter, describe_gauge, describe_histogram, gauge, Histogram, Key, Label,
    Level, Metadata, Recorder, SharedString, Unit,
};
use std::sync::OnceLock;

const DELAY: &str = "lazypool_task_start_delay_seconds";
const DURATION: &str = "lazypool_task_duration_seconds";

/// Nanoseconds since the first call: half the size of an [`Instant`].
#[inline]
pub(crate) fn now() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    // Of two first calls one may be earlier than what both count from.
    now.saturating_duration_since(*FIRST.get_or_init(|| now))
        .as_nanos() as u64
}

struct Histograms {
    delay: Histogram,
    duration: Histogram,
}

impl Histograms {
    #[cold]
    fn register(recorder: &dyn Recorder, pool: &str, label: Option<&'static str>) -> Self {
        let metadata = Metadata::new("lazypool", Level::INFO, Some(module_path!()));
        let mut labels = vec![Label::new("pool", pool.to_owned())];
        labels.extend(label.map(|l| Label::from_static_parts("label", l)));
        let histogram =
            |name| recorder.register_histogram(&Key::from_parts(name, labels.clone()), &metadata);
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
    /// Records a task that has ended, by instants of [`now`]. Calls a recorder.
    pub(crate) fn record(
        &self,
        pool: &str,
        label: Option<&'static str>,
        [submitted, started, ended]: [u64; 3],
    ) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        self.with(pool, label, |histograms| {
            histograms.delay.record(seconds(submitted, started));
            histograms.duration.record(seconds(started, ended));
        });
    }

    fn with(&self, pool: &str, label: Option<&'static str>, f: impl FnOnce(&Histograms)) {
        metrics::with_recorder(|recorder| {
            let address = std::ptr::from_ref(recorder).cast::<()>().addr();
            let mut place = &self.first;
            for _ in 0..KEPT {
                // Not in `get_or_init`, where a recorder must not come back to it.
                let node = place.get().or_else(|| {
                    let node = Node {
                        recorder: address,
                        label,
                        histograms: Histograms::register(recorder, pool, label),
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
            f(&Histograms::register(recorder, pool, label));
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
pub(crate) fn publish(name: &str, stats: &Stats, limit: usize) {
    describe();
    let pool = SharedString::from(name.to_owned());
    let gauges = [
        ("lazypool_workers", stats.workers as u64),
        ("lazypool_workers_idle", stats.idle as u64),
        ("lazypool_workers_busy", stats.running as u64),
        ("lazypool_workers_abandoned", stats.abandoned as u64),
        ("lazypool_workers_limit", limit as u64),
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
        (
            "lazypool_workers_abandoned",
            "Workers with a task that nobody waits for any more",
        ),
        ("lazypool_workers_limit", "Workers that there may be now"),
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
            "Tasks that ran past their deadline: callers that left, and tasks of their own",
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
