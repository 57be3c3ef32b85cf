//! Statistics for the recorder of the `metrics` crate (feature `metrics`).

use crate::pool::Pool;

impl Pool {
    /// Publishes the pool's [statistics](Pool::stats) to the global recorder of the
    /// [`metrics`](https://docs.rs/metrics) crate. Call it before each scrape, or on a timer.
    ///
    /// Every metric has the label `pool`, whose value is the pool's
    /// [thread name](crate::Builder::thread_name). Give each pool a name of its own, or their
    /// values mix. This call sets the counters to the pool's own counts
    /// ([`absolute`](https://docs.rs/metrics/0.24/metrics/struct.Counter.html#method.absolute)).
    ///
    /// | set by this call | kind | what it counts |
    /// |---|---|---|
    /// | `lazypool_workers`, `lazypool_workers_idle`, `lazypool_workers_busy` | gauge | workers that exist; those without a task; those with one |
    /// | `lazypool_workers_abandoned` | gauge | of the busy ones: those with a task that nobody waits for any more ([`Stats::abandoned`](crate::Stats::abandoned)) |
    /// | `lazypool_workers_limit` | gauge | how many there may be now ([`Pool::set_limit`]) |
    /// | `lazypool_tasks_queued` | gauge | tasks that wait for a worker |
    /// | `lazypool_submitters_waiting` | gauge | submitters that wait for space ([`WhenFull::Block`](crate::WhenFull::Block)) |
    /// | `lazypool_longest_running_seconds`, `lazypool_oldest_queued_seconds` | gauge | [ages](crate::Builder::track_ages), if they are tracked; 0 if there is no such task |
    /// | `lazypool_tasks_accepted_total` | counter | tasks taken |
    /// | `lazypool_tasks_refused_total` | counter | submissions not taken, by `reason`: `saturated`, `closed`, `cancelled`, `spawn_failed`, `on_worker`, `forked`, `expired` (while waiting for space), `group_full` |
    /// | `lazypool_tasks_completed_total`, `..._panicked_total`, `..._expired_total`, `..._discarded_total` | counter | how accepted tasks ended |
    /// | `lazypool_tasks_timed_out_total` | counter | callers that left a running task; tasks that ended past a deadline of their own |
    /// | `lazypool_workers_spawned_total`, `lazypool_workers_retired_total` | counter | workers started, and ended |
    /// | `lazypool_spawn_failures_total` | counter | threads that the OS could not create |
    /// | `lazypool_hook_panics_total` | counter | panics of hooks, recorders and subscribers |
    ///
    /// Two histograms need no call. The worker records every task that has run, before its caller
    /// gets the result. A task that has a [label](Pool::labeled) is recorded with
    /// it, as `label`.
    ///
    /// | recorded for each task | what it measures |
    /// |---|---|
    /// | `lazypool_task_start_delay_seconds` | from its submission to its start: waiting for space, queue, hand-off, thread start |
    /// | `lazypool_task_duration_seconds` | from its start to its end, [`around`](crate::Builder::around) included |
    ///
    /// The recorder's code runs on the worker as a part of the task. A slow recorder makes tasks
    /// longer, but breaks no deadline. A panic in it is contained, and counted in
    /// [`Stats::hook_panics`](crate::Stats::hook_panics). A pool keeps the first 64 pairs of a recorder
    /// and a label, with their histograms. For further ones it asks the recorder at each task. Having no
    /// recorder counts as one, so install yours before the pool runs tasks. Recorders are told apart by
    /// their address: do not use two of size zero at a time.
    ///
    /// With this feature each task takes
    /// [8 bytes more](crate::docs::guarantees#closures-without-an-allocation).
    /// [`docs::measurements`](crate::docs::measurements) says what it costs.
    ///
    /// ```
    /// # use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
    /// # struct Printing;
    /// # struct Printer(String);
    /// # impl metrics::CounterFn for Printer {
    /// #     fn increment(&self, _: u64) {}
    /// #     fn absolute(&self, value: u64) { println!("{} = {value}", self.0) }
    /// # }
    /// # impl metrics::GaugeFn for Printer {
    /// #     fn increment(&self, _: f64) {}
    /// #     fn decrement(&self, _: f64) {}
    /// #     fn set(&self, value: f64) { println!("{} = {value}", self.0) }
    /// # }
    /// # impl HistogramFn for Printer {
    /// #     fn record(&self, value: f64) { println!("{}: {value}", self.0) }
    /// # }
    /// # impl Recorder for Printing {
    /// #     fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    /// #     fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    /// #     fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    /// #     fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
    /// #         Counter::from_arc(std::sync::Arc::new(Printer(key.to_string())))
    /// #     }
    /// #     fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
    /// #         Gauge::from_arc(std::sync::Arc::new(Printer(key.to_string())))
    /// #     }
    /// #     fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
    /// #         Histogram::from_arc(std::sync::Arc::new(Printer(key.to_string())))
    /// #     }
    /// # }
    /// use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // An exporter, such as that of `metrics-exporter-prometheus`; this one prints.
    /// metrics::set_global_recorder(Printing).map_err(|e| e.to_string())?;
    ///
    /// let pool = lazypool::Pool::builder().max_workers(2).thread_name("mail").build()?;
    /// let sent = pool.labeled("send").do_with_deadline(|| 1, Duration::from_secs(5));
    /// assert!(matches!(sent, Ok(1)));
    /// pool.publish_metrics(); // before a scrape
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    /// If the recorder panics in this call. That is not counted.
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish_metrics(&self) {
        let core = self.core();
        let tracks_ages = core.env.tracks_ages();
        crate::work::series::publish(&core.env.name, &core.stats(), core.limit(), tracks_ages);
    }
}
