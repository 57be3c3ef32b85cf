//! The metrics that `dashboard.json` and `alerts.yml` ask for, and some panels of a healthy, a slow,
//! an overloaded and a hung pool.

use lazypool::{task, DeadlineError, Pool};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::collections::BTreeSet;
use std::sync::{mpsc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const DASHBOARD: &str = include_str!("../dashboard.json");
const ALERTS: &str = include_str!("../alerts.yml");
const LIMIT: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(1);
/// A metric of which the exporter makes buckets. Of the others it makes summaries.
const BUCKETS: &str = "lazypool_task_duration_seconds";

/// Returns the exporter of this process.
fn exporter() -> &'static PrometheusHandle {
    static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let buckets = Matcher::Full(BUCKETS.to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(buckets, &[0.1, 1.0]);
        let builder = builder.expect("two buckets");
        builder.install_recorder().expect("the only one")
    })
}

fn pool(name: &str, workers: usize, queue: usize) -> Pool {
    exporter();
    let builder = Pool::builder().max_workers(workers).queue_capacity(queue);
    let builder = builder.thread_name(name).track_ages(true);
    builder.build().expect("a pool")
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        thread::sleep(SHORT);
    }
}

/// Returns the value of a metric on the page: the sum over all its labels but the pool's.
fn value(pool: &Pool, name: &str, metric: &str) -> f64 {
    pool.publish_metrics();
    let page = exporter().render();
    let lines = page.lines().filter_map(|line| line.split_once('{'));
    let lines = lines.filter(|(what, rest)| {
        *what == format!("lazypool_{metric}") && rest.contains(&format!("pool=\"{name}\""))
    });
    let values = lines.map(|(_, rest)| rest.rsplit(' ').next().and_then(|x| x.parse().ok()));
    values.map(|x: Option<f64>| x.expect("a number")).sum()
}

/// Returns what the panel "Failed" shows of the time since the pool was built.
fn failed(pool: &Pool, name: &str) -> f64 {
    let total = |metric| value(pool, name, &format!("tasks_{metric}_total"));
    let failed = total("refused") + total("expired") + total("timed_out");
    (failed / (total("accepted") + total("refused"))).min(1.0)
}

fn lost(pool: &Pool, name: &str) -> f64 {
    value(pool, name, "workers_abandoned")
}

/// Returns the names of metrics: each word that begins with this.
fn names(begin: &str, text: &'static str) -> BTreeSet<&'static str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(move |c| !is_word(c));
    words.filter(|w| w.starts_with(begin)).collect()
}

/// The dashboard asks for each metric on the page, and for no other. The alerts ask for some.
#[test]
fn the_dashboard_asks_for_what_a_pool_tells() {
    let pool = pool("all", 1, 0);
    pool.labeled("mail").serve(|| ()).expect("it is idle");
    // The worker records the task a moment after it has run. Other tests fill the same page.
    until("the task's record", || {
        exporter().render().contains("label=\"mail\"")
    });
    pool.publish_metrics();
    let page = exporter().render();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let told = lines.filter_map(|line| Some(line.split_once('{')?.0));
    let mut told: BTreeSet<_> = told.collect();
    // The panels of either histogram ask for quantiles and for buckets.
    told.extend(["lazypool_task_start_delay_seconds_bucket", BUCKETS]);
    assert_eq!(names("lazypool_", DASHBOARD), told);
    assert!(names("lazypool_", ALERTS).is_subset(&told));
    for label in ["pool", "label", "reason"] {
        assert!(page.contains(&format!("{label}=\"")), "{page}");
    }
}

/// So do the row and the alerts of a process that runs durable jobs. The trials of `examples/jobs`
/// read these names from the page of such a process.
#[test]
fn the_dashboard_asks_for_what_jobs_tell() {
    let process = include_str!("../../jobs/src/process.rs");
    let gauges = process.split("metrics::gauge!(\"").skip(1);
    let told: BTreeSet<_> = gauges.filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(names("jobs_", DASHBOARD), told);
    assert_eq!(names("jobs_", ALERTS), told);
    assert!(names("lazypool_", ALERTS).contains("lazypool_workers_abandoned"));
}

/// [`failed`] computes what the panel does.
#[test]
fn failed_is_the_dashboards() {
    let rate = |metric: &str| {
        let selected = format!("lazypool_tasks_{metric}_total{{pool=~\\\"$pool\\\"}}");
        format!("sum by (pool) (rate({selected}[$__rate_interval]))")
    };
    let [refused, expired, late] = ["refused", "expired", "timed_out"].map(rate);
    let all = format!("({} + {refused} > 0)", rate("accepted"));
    let panel = format!("clamp_max(({refused} + {expired} + {late}) / {all}, 1)");
    assert!(DASHBOARD.contains(&panel), "not in it: {panel}");
}

#[test]
fn healthy() {
    let pool = pool("healthy", 2, 2);
    for n in 0..10 {
        let value = pool.do_with_deadline(move || n, LIMIT).ok();
        assert_eq!(value, Some(n));
    }
    assert_eq!(
        (failed(&pool, "healthy"), lost(&pool, "healthy")),
        (0.0, 0.0)
    );
    assert_eq!(value(&pool, "healthy", "longest_running_seconds"), 0.0);
    assert_eq!(value(&pool, "healthy", "oldest_queued_seconds"), 0.0);
}

/// Each task ends, but after its deadline.
#[test]
fn slow() {
    let pool = pool("slow", 2, 0);
    for _ in 0..4 {
        let late = || while !task::is_cancelled() {};
        let limited = pool.run_limit(SHORT);
        limited
            .awaitable()
            .serve(late)
            .expect("it is idle")
            .join()
            .expect("a value");
    }
    assert_eq!((failed(&pool, "slow"), lost(&pool, "slow")), (1.0, 0.0));
}

/// Two of three submissions find the one worker busy and the queue full.
#[test]
fn overloaded() {
    let pool = pool("overloaded", 1, 1);
    let (open, gate) = mpsc::channel::<()>();
    let waits = move || gate.recv().unwrap_or_default();
    pool.serve(waits).expect("it is idle");
    until("it to run", || {
        pool.stats().running == 1 && pool.stats().queued == 0
    });
    pool.serve(|| ()).expect("the queue is empty");
    for _ in 0..4 {
        pool.serve(|| ()).expect_err("the queue is full");
    }
    assert_eq!(failed(&pool, "overloaded"), 4.0 / 6.0);
    assert_eq!(lost(&pool, "overloaded"), 0.0);
    assert!(value(&pool, "overloaded", "oldest_queued_seconds") > 0.0);
    drop(open);
}

/// Four of five calls hang. Threads called them: they are counted as soon as their callers left.
#[test]
fn hung_calls() {
    let pool = pool("hung calls", 5, 0);
    let (open, gates): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
    thread::scope(|s| {
        for gate in gates {
            let hang = move || gate.recv().unwrap_or_default();
            // Long enough for the task to start, even on a slow machine.
            let call = || pool.do_with_deadline(hang, Duration::from_secs(2));
            s.spawn(move || assert!(matches!(call(), Err(DeadlineError::TimedOut))));
        }
    });
    pool.do_with_deadline(|| (), LIMIT)
        .map_err(|_| ())
        .expect("a worker is left");
    assert_eq!(failed(&pool, "hung calls"), 0.8);
    assert_eq!(lost(&pool, "hung calls"), 4.0);
    assert!(value(&pool, "hung calls", "longest_running_seconds") >= 1.0);
    drop(open);
}

/// As [`hung_calls`], but with handles, as async code has them. The counters say nothing until the tasks end, so
/// an alert must ask for the lost workers.
#[test]
fn hung_tasks_with_handles() {
    let pool = pool("hung handles", 5, 0);
    let tasks = pool.with_deadline(LIMIT);
    let (open, gates): (Vec<_>, Vec<_>) = (0..4).map(|_| mpsc::channel::<()>()).unzip();
    for gate in gates {
        let (started, start) = mpsc::channel();
        let hang = move || {
            started.send(()).expect("the test waits");
            gate.recv().unwrap_or_default();
        };
        let task = tasks.awaitable().serve(hang).expect("a worker is left");
        start.recv_timeout(LIMIT).expect("it has started");
        drop(task.join_timeout(SHORT).expect_err("it hangs")); // as `timeout` does
    }
    let good = tasks
        .awaitable()
        .serve(|| ())
        .expect("a worker is left")
        .join();
    assert!(good.is_ok(), "{good:?}");
    assert_eq!(failed(&pool, "hung handles"), 0.0);
    assert_eq!(lost(&pool, "hung handles"), 4.0);
    drop(open);
}
