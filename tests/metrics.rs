//! The feature `metrics`: the recorded figures, and that no recorder can harm the pool.

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Builder, Pool, Shutdown, WhenFull};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// A recorder that keeps everything. For pools named `bomb...` it panics, for `slow...` it sleeps.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    metrics: HashMap<String, Metric>,
    described: HashMap<String, Option<Unit>>,
}

/// How often a metric was looked up, its last value, and its samples.
#[derive(Clone, Default)]
struct Metric {
    looked_up: usize,
    last: Option<f64>,
    samples: Vec<f64>,
}

/// The handle of one metric.
struct Handle {
    keeper: Keeper,
    key: String,
}

/// Returns the metric's name and labels, such as `name{pool=a,label=b}`.
fn written(key: &Key) -> String {
    let labels: Vec<_> = (key.labels())
        .map(|l| format!("{}={}", l.key(), l.value()))
        .collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Keeper {
    fn handle(&self, key: &Key) -> Arc<Handle> {
        let (keeper, key) = (self.clone(), written(key));
        if key.contains("pool=bomb-at-register") {
            quiet_panic("no such metric");
        }
        let handle = Handle { keeper, key };
        handle.update(|metric| metric.looked_up += 1);
        Arc::new(handle)
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        let mut kept = self.0.lock().unwrap();
        kept.described.insert(name.as_str().to_owned(), unit);
    }

    fn metric(&self, key: &str) -> Metric {
        let kept = self.0.lock().unwrap();
        kept.metrics.get(key).cloned().unwrap_or_default()
    }
}

impl Recorder for Keeper {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

impl Handle {
    fn update(&self, f: impl FnOnce(&mut Metric)) {
        let mut kept = self.keeper.0.lock().unwrap();
        f(kept.metrics.entry(self.key.clone()).or_default());
    }
}

impl CounterFn for Handle {
    fn increment(&self, _: u64) {
        unreachable!("the pool sets counters");
    }

    fn absolute(&self, value: u64) {
        self.update(|metric| metric.last = Some(value as f64));
    }
}

impl GaugeFn for Handle {
    fn increment(&self, _: f64) {
        unreachable!("the pool sets gauges");
    }

    fn decrement(&self, _: f64) {
        unreachable!("the pool sets gauges");
    }

    fn set(&self, value: f64) {
        self.update(|metric| metric.last = Some(value));
    }
}

impl HistogramFn for Handle {
    fn record(&self, value: f64) {
        if self.key.contains("pool=bomb-at-record") {
            quiet_panic("no space for samples");
        }
        if self.key.contains("pool=slow") {
            thread::sleep(ms(2000));
        }
        self.update(|metric| metric.samples.push(value));
    }
}

/// Returns the recorder of the whole process, and a pool that ran a task before it was installed.
fn setup() -> &'static (Keeper, Pool) {
    static SETUP: OnceLock<(Keeper, Pool)> = OnceLock::new();
    SETUP.get_or_init(|| {
        let early = pool_with(1, 0, |b| b.thread_name("early"));
        early.do_with_deadline(|| (), LONG).unwrap();
        let keeper = Keeper::default();
        assert!(metrics::set_global_recorder(keeper.clone()).is_ok());
        (keeper, early)
    })
}

fn keeper() -> &'static Keeper {
    &setup().0
}

/// Returns a pool of that name, once there is a recorder.
fn named(name: &str, max: usize, queue: usize, set: fn(Builder) -> Builder) -> Pool {
    keeper();
    pool_with(max, queue, |b| set(b).thread_name(name))
}

fn delay(rest: &str) -> String {
    format!("lazypool_task_start_delay_seconds{{{rest}}}")
}

fn duration(rest: &str) -> String {
    format!("lazypool_task_duration_seconds{{{rest}}}")
}

/// Every gauge and counter is the pool's own figure, read when the recorder asks for it.
#[test]
fn figures_are_published() {
    timed(|| {
        let pool = Arc::new(named("figures", 2, 3, |b| b));
        let told = |figures: &[(&str, f64)]| {
            pool.publish_metrics();
            for (metric, value) in figures {
                let key = format!("lazypool_{metric}{{pool=figures}}");
                assert_eq!(keeper().metric(&key).last, Some(*value), "{metric}");
            }
        };
        let (gate, group) = (Gate::new(), pool.group());
        occupy(&pool, &gate, 1);
        abandon(&pool, || gate.task());
        let unstarted = pool.stats().expired as f64;
        // This is the oldest queued task, so its place is free again at once.
        is_expired(pool.do_with_deadline(|| (), ms(2)));
        must_serve_in(&group, || ());
        must_serve(&pool, || quiet_panic("on purpose"));
        must_serve(&pool, || ());
        saturated(pool.serve(|| ()));
        saturated(pool.serve(|| ()));
        let waits = |pool: &Pool| {
            let on = pool.when_full(WhenFull::Block).labeled("waits");
            on.serve(|| ()).expect("space in the end");
        };
        let submitter = beside(&pool, waits);
        wait_in_line(&pool, 1);
        // This deadline passes while the submission waits, so the task is never accepted.
        is_expired(
            pool.when_full(WhenFull::Block)
                .do_with_deadline(|| (), ms(2)),
        );
        told(&[
            ("workers", 2.0),
            ("workers_busy", 2.0),
            ("workers_idle", 0.0),
            ("tasks_queued", 3.0),
            ("submitters_waiting", 1.0),
            ("workers_abandoned", 1.0),
            ("workers_limit", 2.0),
            ("tasks_accepted_total", unstarted + 6.0),
            ("tasks_expired_total", unstarted + 1.0),
            ("tasks_timed_out_total", 1.0),
        ]);
        group.cancel();
        assert_eq!(reason(group.serve(|| ())), "cancelled");
        gate.open();
        submitter.join().unwrap();
        settle(&pool);
        // The wait for space is part of a task's delay.
        let delays = keeper().metric(&delay("pool=figures,label=waits")).samples;
        assert!(delays.len() == 1 && delays[0] >= 0.002, "{delays:?}");
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(reason(pool.serve(|| ())), "closed");
        told(&[
            ("workers", 0.0),
            ("tasks_queued", 0.0),
            ("submitters_waiting", 0.0),
            ("tasks_completed_total", 4.0),
            ("tasks_panicked_total", 1.0),
            ("tasks_discarded_total", 1.0),
            ("workers_spawned_total", 2.0),
            ("workers_retired_total", 2.0),
            ("spawn_failures_total", 0.0),
            ("hook_panics_total", 0.0),
        ]);
        for (reason, n) in [
            ("saturated", 2.0),
            ("closed", 1.0),
            ("cancelled", 1.0),
            ("spawn_failed", 0.0),
            ("on_worker", 0.0),
            ("forked", 0.0),
            ("expired", 1.0),
        ] {
            let labels = format!("pool=figures,reason={reason}");
            let key = format!("lazypool_tasks_refused_total{{{labels}}}");
            assert_eq!(keeper().metric(&key).last, Some(n), "{reason}");
        }
        let kept = keeper().0.lock().unwrap();
        let units = &kept.described;
        assert_eq!(units["lazypool_task_duration_seconds"], Some(Unit::Seconds));
        assert_eq!(units["lazypool_submitters_waiting"], Some(Unit::Count));
        for key in kept.metrics.keys() {
            let name = key.split('{').next().expect("a name");
            assert!(units.contains_key(name), "{name} is not described");
        }
    });
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn spawn_failures_are_a_reason() {
    // No system has this much address space.
    let pool = named("unspawned", 1, 0, |b| b.stack_size(1 << 56));
    assert!(pool.serve(|| ()).is_err());
    pool.publish_metrics();
    let failed = "lazypool_tasks_refused_total{pool=unspawned,reason=spawn_failed}";
    assert_eq!(keeper().metric(failed).last, Some(1.0));
    let failures = "lazypool_spawn_failures_total{pool=unspawned}";
    assert_eq!(keeper().metric(failures).last, Some(1.0));
}

/// Each task that ran has one sample of each kind under its label by the time its caller is
/// released. Tasks that did not run have none.
#[test]
fn tasks_are_timed_by_label() {
    timed(|| {
        let pool = named("timed", 1, 4, |b| b);
        let nap = || thread::sleep(ms(20));
        let start = Instant::now();
        pool.labeled("nap").do_with_deadline(nap, LONG).unwrap();
        let naps = keeper().metric(&duration("pool=timed,label=nap")).samples;
        assert_eq!(naps.len(), 1);
        assert!(naps[0] >= 0.020 && naps[0] <= start.elapsed().as_secs_f64());

        // This task is queued behind another for at least 20 ms.
        let (behind, gate) = (Instant::now(), Gate::new());
        occupy(&pool, &gate, 1);
        let counted = || quiet_panic("counted all the same");
        pool.labeled("behind").serve(counted).unwrap();
        nap();
        gate.open();
        settle(&pool);
        let delays = keeper().metric(&delay("pool=timed,label=behind")).samples;
        assert_eq!(delays.len(), 1);
        assert!(delays[0] >= 0.020 && delays[0] <= behind.elapsed().as_secs_f64());
        let durations = keeper()
            .metric(&duration("pool=timed,label=behind"))
            .samples;
        assert_eq!(durations.len(), 1);

        // Tasks of groups and scopes. Besides the gate's tasks, only these have no label.
        let group = pool.group();
        must_serve_in(&group, || ());
        group.wait();
        pool.scope(|s| s.serve(|| ()).unwrap());
        assert_eq!(keeper().metric(&duration("pool=timed")).samples.len(), 3);

        // These tasks are refused, expire or are discarded.
        let (never, gate) = (pool.labeled("never"), Gate::new());
        occupy(&pool, &gate, 1);
        assert!(never.do_with_deadline(|| (), ms(1)).is_err());
        (0..4).for_each(|_| never.serve(|| ()).unwrap());
        saturated(never.serve(|| ()));
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
        gate.open();
        pool.shutdown(Shutdown::Discard, Duration::MAX);
        assert_eq!(pool.stats().discarded, 4);
        let never = keeper().metric(&delay("pool=timed,label=never")).samples;
        assert!(never.is_empty());
        assert_eq!(keeper().metric(&delay("pool=timed")).samples.len(), 4);
        // The metric was looked up once, however many tasks there were.
        assert_eq!(keeper().metric(&delay("pool=timed")).looked_up, 1);
    });
}

/// There may be any number of labels. From the 65th on, a label's metric is looked up for each
/// task.
#[test]
fn labels_do_not_run_out() {
    timed(|| {
        let pool = named("labels", 2, 0, |b| b);
        for turn in 1..=2 {
            for n in 0..100 {
                let label: &'static str = Box::leak(format!("label{n}").into_boxed_str());
                pool.labeled(label).do_with_deadline(|| (), LONG).unwrap();
                let key = duration(&format!("pool=labels,label={label}"));
                assert_eq!(keeper().metric(&key).samples.len(), turn);
                let expect = if n < 64 { 1 } else { turn };
                assert_eq!(keeper().metric(&key).looked_up, expect, "{label}");
            }
        }
    });
}

/// A recorder that is installed after the pool's first task gets the tasks after that.
#[test]
fn a_recorder_may_come_late() {
    let early = &setup().1;
    let before = keeper().metric(&duration("pool=early")).samples.len();
    early.do_with_deadline(|| (), LONG).unwrap();
    assert_eq!(
        keeper().metric(&duration("pool=early")).samples.len(),
        before + 1
    );
}

/// Law 7 for recorders: their panics change no task's outcome and count as panics of hooks.
#[test]
fn law07_a_recorders_panic_is_contained() {
    timed_each(["bomb-at-register", "bomb-at-record"], |name| {
        let pool = named(name, 1, 8, |b| b);
        for n in 0..5 {
            assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
        }
        must_serve(&pool, || quiet_panic("on purpose"));
        let s = assert_stats!(settle(&pool), completed: 5, panicked: 1, hook_panics: 6);
        assert_eq!(s.spawned, 1, "the same worker all along");
    });
}

/// Law 3 for recorders: a slow recorder delays the task, but the caller leaves at its deadline.
#[test]
fn law03_a_slow_recorder_breaks_no_deadline() {
    timed(|| {
        let pool = named("slow", 1, 0, |b| b);
        let start = Instant::now();
        abandon(&pool, || || ());
        // Each of the two records takes two seconds.
        assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
        settle(&pool);
    });
}
