//! Statistics for the recorder of the `metrics` crate (feature `metrics`).

use crate::pool::Pool;
use crate::stats::Stats;
use crate::work::series::{DELAY, DURATION};
use metrics::{
    counter, describe_counter, describe_gauge, describe_histogram, gauge, SharedString, Unit,
};
use std::time::Duration;

impl Pool {
    /// Publishes the pool's [statistics](Pool::stats) to the global recorder of the
    /// [`metrics`](https://docs.rs/metrics) crate. Call it before each scrape, or on a timer.
    ///
    /// Every metric has the label `pool`, whose value is the pool's [thread
    /// name](crate::Builder::thread_name). Give each pool a name of its own. Otherwise the pools
    /// write to the same metrics. This call sets the counters to the pool's own counts
    /// ([`absolute`](https://docs.rs/metrics/0.24/metrics/struct.Counter.html#method.absolute)).
    ///
    /// | set by this call | kind | what it counts |
    /// |---|---|---|
    /// | `lazypool_workers`, `lazypool_workers_idle`, `lazypool_workers_busy` | gauge | workers that exist; workers without a task; workers with a task |
    /// | `lazypool_workers_abandoned` | gauge | busy workers whose task's result is no longer wanted ([`Stats::abandoned`](crate::Stats::abandoned)) |
    /// | `lazypool_workers_limit` | gauge | the current limit on workers ([`Pool::set_limit`]) |
    /// | `lazypool_tasks_queued` | gauge | tasks that wait for a worker |
    /// | `lazypool_submitters_waiting` | gauge | submissions that wait in line, for space in the pool or for a place in a full [limited group](Pool::limited_group): threads ([`WhenFull::Block`](crate::WhenFull::Block)) and futures ([`serve_async`](crate::Awaitable::serve_async)) |
    /// | `lazypool_longest_running_seconds`, `lazypool_oldest_queued_seconds` | gauge | [ages](crate::Builder::track_ages), if they are tracked; 0 if there is no such task |
    /// | `lazypool_tasks_accepted_total` | counter | accepted tasks |
    /// | `lazypool_tasks_refused_total` | counter | refused submissions, by `reason`: `saturated`, `closed`, `cancelled`, `spawn_failed`, `on_worker`, `forked`, `expired` (while waiting for space), `group_full` |
    /// | `lazypool_tasks_completed_total`, `..._panicked_total`, `..._expired_total`, `..._discarded_total` | counter | how accepted tasks ended. Discarded tasks were cancelled before they started; in async code mostly because clients hung up, and their handles were dropped |
    /// | `lazypool_tasks_timed_out_total` | counter | tasks that were still running at their deadline. Those of `do_with_deadline` count when the caller leaves, the others when they end: a hung task with a handle is in `lazypool_workers_abandoned`, and not in here |
    /// | `lazypool_workers_spawned_total`, `lazypool_workers_retired_total` | counter | workers started, and ended |
    /// | `lazypool_spawn_failures_total` | counter | threads that the OS could not create |
    /// | `lazypool_hook_panics_total` | counter | panics of hooks, recorders and subscribers |
    ///
    /// Two histograms are filled without this call. After each task has run, its worker records the
    /// task, before the caller gets the result. If the task has a [label](Pool::labeled), it is
    /// recorded with that value as the metric label `label`.
    ///
    /// | recorded for each task | what it measures |
    /// |---|---|
    /// | `lazypool_task_start_delay_seconds` | from its submission to its start: waiting for a place in its group and for space, queue, hand-off, thread start |
    /// | `lazypool_task_duration_seconds` | from its start to its end, including [`around`](crate::Builder::around) |
    ///
    /// The recorder's code runs on the worker as a part of the task. A slow recorder makes tasks
    /// take longer, but a caller still returns at its deadline. A panic in the recorder is
    /// contained, and counted in [`Stats::hook_panics`](crate::Stats::hook_panics).
    ///
    /// A pool caches the histograms of the first 64 pairs of a recorder and a label. For any other
    /// pair, it asks the recorder again at each task. Tasks that run before a recorder is installed
    /// use up places in this cache, too. So install the recorder before the pool runs tasks. The
    /// pool identifies a recorder by its address, so do not use two zero-sized recorders at a time.
    ///
    /// With this feature, each task takes [8 bytes
    /// more](crate::docs::guarantees#closures-without-an-allocation).
    /// [`docs::measurements`](crate::docs::measurements) says what the feature costs.
    ///
    /// ```
    /// use std::time::Duration;
    /// // An exporter, such as that of `metrics-exporter-prometheus`; this one discards all.
    /// metrics::set_global_recorder(metrics::NoopRecorder)?;
    ///
    /// let pool = lazypool::Pool::builder().max_workers(2).thread_name("mail").build()?;
    /// let sent = pool.labeled("send").do_with_deadline(|| 1, Duration::from_secs(5));
    /// assert!(matches!(sent, Ok(1)));
    /// pool.publish_metrics(); // before a scrape
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the recorder panics in this call. `hook_panics` does not count that panic.
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish_metrics(&self) {
        let core = self.core();
        let tracks_ages = core.env.tracks_ages();
        publish(&core.env.name, &core.stats(), core.limit(), tracks_ages);
    }
}

/// Records the pool's metrics, and describes them to the recorder. Describes them at each call,
/// because the recorder may have been installed after the previous call.
fn publish(pool: &str, stats: &Stats, limit: usize, tracks_ages: bool) {
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
    describe_counter!(name, Unit::Count, "Refused submissions");
    for (reason, value) in stats.refusals.by_reason() {
        counter!(target: "lazypool", name, "pool" => pool.clone(), "reason" => reason)
            .absolute(value);
    }
    let delay = "From a task's submission to its start";
    describe_histogram!(DELAY, Unit::Seconds, delay);
    let duration = "From a task's start to its end";
    describe_histogram!(DURATION, Unit::Seconds, duration);
}

/// Returns each gauge's name, description and value.
#[rustfmt::skip]
fn gauges(stats: &Stats, limit: usize) -> [(&'static str, &'static str, usize); 7] {
    [
        ("lazypool_workers", "Workers that exist", stats.workers),
        ("lazypool_workers_idle", "Workers in service without a task", stats.idle),
        ("lazypool_workers_busy", "Workers with a task, abandoned ones included", stats.running),
        ("lazypool_workers_abandoned", "Workers whose task nobody waits for: if this stays above 0, a task hangs", stats.abandoned),
        ("lazypool_workers_limit", "Current limit on workers", limit),
        ("lazypool_tasks_queued", "Tasks that wait for a worker", stats.queued),
        ("lazypool_submitters_waiting", "Submissions that wait for space in the pool, or for a place in a full group", stats.waiting),
    ]
}

#[rustfmt::skip]
fn ages(stats: &Stats) -> [(&'static str, &'static str, Option<Duration>); 2] {
    [
        ("lazypool_longest_running_seconds", "Age of the task that has been running for longest", stats.longest_running),
        ("lazypool_oldest_queued_seconds", "Age of the oldest queued task", stats.oldest_queued),
    ]
}

/// Returns each counter's name, description and value.
#[rustfmt::skip]
fn counters(stats: &Stats) -> [(&'static str, &'static str, u64); 10] {
    [
        ("lazypool_tasks_accepted_total", "Accepted tasks", stats.accepted),
        ("lazypool_tasks_completed_total", "Tasks that returned", stats.completed),
        ("lazypool_tasks_panicked_total", "Tasks that panicked", stats.panicked),
        ("lazypool_tasks_expired_total", "Tasks not started, because their deadline was too near or had passed", stats.expired),
        ("lazypool_tasks_timed_out_total",
            "Tasks still running at their deadline: of do_with_deadline when the caller leaves, others when they end", stats.timed_out),
        ("lazypool_tasks_discarded_total",
            "Tasks cancelled before their start and their deadline: handle dropped or cancelled, group cancelled, shutdown",
            stats.discarded),
        ("lazypool_workers_spawned_total", "Workers started", stats.spawned),
        ("lazypool_workers_retired_total", "Workers ended", stats.retired),
        ("lazypool_spawn_failures_total", "Threads that the OS could not start", stats.spawn_failures),
        ("lazypool_hook_panics_total", "Panics of hooks, recorders and subscribers", stats.hook_panics),
    ]
}
