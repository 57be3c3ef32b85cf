//! What a pool tells recorders of the `metrics` crate.

use crate::stats::Stats;
use crate::work::panics::drop_contained;
use metrics::{
    counter, describe_counter, describe_gauge, describe_histogram, gauge, Histogram, Key, Label,
    Level, Metadata, Recorder, SharedString, Unit,
};
use std::sync::OnceLock;
use std::time::Duration;

const DELAY: &str = "lazypool_task_start_delay_seconds";
const DURATION: &str = "lazypool_task_duration_seconds";

/// The histograms of a label.
struct Histograms {
    /// Whose they are, by address, so that one installed later is not missed.
    recorder: usize,
    label: Option<&'static str>,
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
            recorder: address(recorder),
            label,
            delay: histogram(DELAY),
            duration: histogram(DURATION),
        }
    }

    /// Of a task, by instants in nanoseconds.
    fn record(&self, [submitted, started, ended]: [u64; 3]) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        self.delay.record(seconds(submitted, started));
        self.duration.record(seconds(started, ended));
    }
}

fn address(recorder: &dyn Recorder) -> usize {
    std::ptr::from_ref(recorder).cast::<()>().addr()
}

/// A pool's histograms by label: looking a key up in a recorder takes longer
/// than many a task. Filled from the front, and read without a lock.
pub(crate) struct Series([OnceLock<Histograms>; KEPT]);

/// Labels beyond are looked up each time: a program may make up labels as it goes.
const KEPT: usize = 64;

impl Default for Series {
    fn default() -> Self {
        Self([const { OnceLock::new() }; KEPT])
    }
}

impl Series {
    /// Records a task that has ended, by instants in nanoseconds. Calls a recorder.
    pub(crate) fn record(&self, pool: &str, label: Option<&'static str>, times: [u64; 3]) {
        metrics::with_recorder(|recorder| {
            let register = || Histograms::register(recorder, pool, label);
            for place in &self.0 {
                // Not in `get_or_init`, where a recorder must not come back to it.
                if place.get().is_none() {
                    // Another worker's may have been first, and be another label's.
                    let _ = place.set(register());
                }
                let kept = place.get().expect("set");
                if kept.recorder == address(recorder) && kept.label == label {
                    return kept.record(times);
                }
            }
            register().record(times);
        });
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        for kept in &mut self.0 {
            drop_contained(kept.take());
        }
    }
}

/// Tells the recorder the pool's metrics, and what they are: each time, as it may have been installed
/// just now.
pub(crate) fn publish(pool: &str, stats: &Stats, limit: usize, tracks_ages: bool) {
    let pool = SharedString::from(pool.to_owned());
    for (name, text, value) in gauges(stats, limit) {
        describe_gauge!(name, Unit::Count, text);
        gauge!(target: "lazypool", name, "pool" => pool.clone()).set(value as f64);
    }
    for (name, text, age) in ages(stats).into_iter().filter(|_| tracks_ages) {
        describe_gauge!(name, Unit::Seconds, text);
        let age = age.unwrap_or_default().as_secs_f64();
        gauge!(target: "lazypool", name, "pool" => pool.clone()).set(age);
    }
    for (name, text, value) in counters(stats) {
        describe_counter!(name, Unit::Count, text);
        counter!(target: "lazypool", name, "pool" => pool.clone()).absolute(value);
    }
    let name = "lazypool_tasks_refused_total";
    describe_counter!(name, Unit::Count, "Submissions not taken");
    for (reason, value) in stats.refusals.by_reason() {
        counter!(target: "lazypool", name, "pool" => pool.clone(), "reason" => reason)
            .absolute(value);
    }
    let delay = "From a task's submission to its start";
    describe_histogram!(DELAY, Unit::Seconds, delay);
    let duration = "From a task's start to its end";
    describe_histogram!(DURATION, Unit::Seconds, duration);
}

/// Returns the gauges' names, what they are, and their values.
#[rustfmt::skip]
fn gauges(stats: &Stats, limit: usize) -> [(&'static str, &'static str, usize); 7] {
    [
        ("lazypool_workers", "Workers that exist", stats.workers),
        ("lazypool_workers_idle", "Workers in service without a task", stats.idle),
        ("lazypool_workers_busy", "Workers with a task, those whose caller left included", stats.running),
        ("lazypool_workers_abandoned", "Workers with a task that nobody waits for any more", stats.abandoned),
        ("lazypool_workers_limit", "Workers that there may be now", limit),
        ("lazypool_tasks_queued", "Tasks that wait for a worker", stats.queued),
        ("lazypool_submitters_waiting", "Submitters that wait for space", stats.waiting),
    ]
}

#[rustfmt::skip]
fn ages(stats: &Stats) -> [(&'static str, &'static str, Option<Duration>); 2] {
    [
        ("lazypool_longest_running_seconds", "Age of the task that runs for longest", stats.longest_running),
        ("lazypool_oldest_queued_seconds", "Age of the oldest queued task", stats.oldest_queued),
    ]
}

/// Returns the counters' names, what they are, and their values.
#[rustfmt::skip]
fn counters(stats: &Stats) -> [(&'static str, &'static str, u64); 10] {
    [
        ("lazypool_tasks_accepted_total", "Tasks taken", stats.accepted),
        ("lazypool_tasks_completed_total", "Tasks that returned", stats.completed),
        ("lazypool_tasks_panicked_total", "Tasks that panicked", stats.panicked),
        ("lazypool_tasks_expired_total", "Tasks whose deadline passed before they started", stats.expired),
        ("lazypool_tasks_timed_out_total",
            "Tasks that ran past their deadline: callers that left, and tasks of their own", stats.timed_out),
        ("lazypool_tasks_discarded_total", "Tasks that a shutdown or a cancelled group took back", stats.discarded),
        ("lazypool_workers_spawned_total", "Workers started", stats.spawned),
        ("lazypool_workers_retired_total", "Workers ended", stats.retired),
        ("lazypool_spawn_failures_total", "Threads that the OS could not start", stats.spawn_failures),
        ("lazypool_hook_panics_total", "Panics of hooks, recorders and subscribers", stats.hook_panics),
    ]
}
