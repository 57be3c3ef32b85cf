//! The routes.

use crate::offload::{offload, offload_all, Failure};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{header, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lazypool::{task, Pool};
use num_bigint::BigUint;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where the service is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It works.
    Serving,
    /// SIGTERM has come: every answer closes its connection, new work is refused.
    Draining,
    /// The time is up: whoever still waits is told so now.
    GivingUp,
}

/// What the handlers share.
#[derive(Debug, Clone)]
pub struct App {
    /// The pool. The handlers only ever `serve` to it.
    pub pool: Arc<Pool>,
    /// The longest a request may take.
    pub deadline: Duration,
    /// Where the service is in its life.
    pub phase: watch::Receiver<Phase>,
    /// How many requests got which status.
    pub ledger: Arc<Ledger>,
}

/// The service's routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/factorial", get(factorial))
        .route("/sleep", get(sleep))
        .route("/stats", get(stats))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .fallback(|| async { Error(StatusCode::NOT_FOUND, String::from("no such page")) })
        .layer(middleware::from_fn_with_state(app.clone(), answer))
        .with_state(app)
}

/// Around every request: it is answered whatever happens, and the answer is counted.
async fn answer(State(app): State<App>, request: Request, next: Next) -> Response {
    let unanswered = app.ledger.begin();
    let mut phase = app.phase.clone();
    let mut response = tokio::select! {
        // In this order: what a task has sent before the time was up is still delivered.
        biased;
        response = next.run(request) => response,
        _ = phase.wait_for(|p| *p == Phase::GivingUp) => Error::from(Failure::Closed).into_response(),
    };
    if *app.phase.borrow() != Phase::Serving {
        // The client shall not send its next request here. To close an idle connection
        // instead could cross a request that is on its way, and lose it.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    unanswered.answered(response.status());
    response
}

/// An error as HTTP tells it: a status and a reason.
struct Error(StatusCode, String);

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let (status, reason) = match failure {
            Failure::Saturated => (StatusCode::SERVICE_UNAVAILABLE, "saturated, retry later"),
            Failure::Closed => (StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
            Failure::Late => (StatusCode::GATEWAY_TIMEOUT, "the deadline passed"),
            Failure::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "the task panicked"),
        };
        Self(status, reason.to_owned())
    }
}

impl From<QueryRejection> for Error {
    fn from(rejection: QueryRejection) -> Self {
        bad_request(rejection.body_text())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Self(status, reason) = self;
        let mut response = (status, Json(json!({ "error": reason }))).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

fn bad_request(reason: String) -> Error {
    Error(StatusCode::BAD_REQUEST, reason)
}

fn within(name: &str, given: u64, allowed: std::ops::RangeInclusive<u64>) -> Result<(), Error> {
    if allowed.contains(&given) {
        return Ok(());
    }
    let (least, most) = (allowed.start(), allowed.end());
    Err(bad_request(format!(
        "{name} is {given}; allowed: {least} to {most}"
    )))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Factorial {
    n: u64,
    #[serde(default = "one")]
    count: u64,
}

fn one() -> u64 {
    1
}

/// A task should take longer than its way to a worker: so many sums are one task.
const PER_TASK: u64 = 64;

/// `count` times the factorial of `n`, computed `count` times and summed, by a group.
async fn factorial(
    State(app): State<App>,
    query: Result<Query<Factorial>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(Factorial { n, count }) = query?;
    within("n", n, 0..=1000)?;
    within("count", count, 1..=4096)?;
    let tasks = (0..count.div_ceil(PER_TASK)).map(|i| {
        let share = PER_TASK.min(count - i * PER_TASK);
        move || (0..share).map(|_| (1..=n).product::<BigUint>()).sum()
    });
    let sums: Vec<BigUint> = offload_all(&app.pool, app.deadline, tasks).await?;
    let sum: BigUint = sums.into_iter().sum();
    Ok(Json(
        json!({ "n": n, "count": count, "sum": sum.to_string() }),
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
    /// Whether the task does not look whether it is cancelled: bad manners, to show
    /// what a shutdown does about them.
    #[serde(default)]
    deaf: bool,
}

/// Stands for any call that blocks: a driver, a file, a library.
async fn sleep(
    State(app): State<App>,
    query: Result<Query<Sleep>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(Sleep { ms, deaf }) = query?;
    within("ms", ms, 0..=60_000)?;
    let slept = offload(&app.pool, app.deadline, move || {
        nap(Duration::from_millis(ms), deaf)
    })
    .await?;
    Ok(Json(json!({ "slept_ms": slept.as_millis() as u64 })))
}

fn nap(duration: Duration, deaf: bool) -> Duration {
    let start = Instant::now();
    while start.elapsed() < duration && (deaf || !task::is_cancelled()) {
        let left = duration.saturating_sub(start.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
    start.elapsed()
}

/// Whether a balancer should send requests here.
async fn health(State(app): State<App>) -> Result<&'static str, Error> {
    match *app.phase.borrow() {
        Phase::Serving => Ok("ok\n"),
        _ => Err(Failure::Closed.into()),
    }
}

async fn stats(State(app): State<App>) -> Json<Value> {
    let s = app.pool.stats();
    Json(json!({
        "accepted": s.accepted,
        "refused": s.refused,
        "completed": s.completed,
        "panicked": s.panicked,
        "expired": s.expired,
        "discarded": s.discarded,
        "timed_out": s.timed_out,
        "queued": s.queued,
        "running": s.running,
        "workers": s.workers,
        "idle": s.idle,
        "peak_workers": s.peak_workers,
        "spawned": s.spawned,
        "retired": s.retired,
        "spawn_failures": s.spawn_failures,
        "hook_panics": s.hook_panics,
        "max_workers": app.pool.max_workers(),
        "queue_capacity": app.pool.queue_capacity(),
    }))
}

/// In Prometheus' text format.
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    let s = app.pool.stats();
    let mut page = Page::default();
    page.family("lazypool_accepted_total", "counter", "Tasks the pool took.");
    page.sample("", s.accepted);
    page.family(
        "lazypool_refused_total",
        "counter",
        "Tasks it did not take.",
    );
    page.sample("", s.refused);
    page.family(
        "lazypool_ended_total",
        "counter",
        "How accepted tasks ended.",
    );
    page.sample("how=\"completed\"", s.completed);
    page.sample("how=\"panicked\"", s.panicked);
    page.sample("how=\"expired\"", s.expired);
    page.sample("how=\"discarded\"", s.discarded);
    page.family("lazypool_tasks", "gauge", "Accepted tasks, not ended.");
    page.sample("state=\"queued\"", s.queued as u64);
    page.sample("state=\"running\"", s.running as u64);
    page.family("lazypool_workers", "gauge", "Workers alive.");
    page.sample("", s.workers as u64);
    page.family(
        "lazypool_workers_idle",
        "gauge",
        "Workers with nothing to do.",
    );
    page.sample("", s.idle as u64);
    page.family(
        "lazypool_workers_started_total",
        "counter",
        "Workers started.",
    );
    page.sample("", s.spawned);
    page.family(
        "lazypool_spawn_failures_total",
        "counter",
        "Threads the system did not give.",
    );
    page.sample("", s.spawn_failures);
    page.family(
        "service_answers_total",
        "counter",
        "Requests answered, by status.",
    );
    for (status, answers) in app.ledger.answers() {
        page.sample(&format!("status=\"{status}\""), answers);
    }
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        page.text,
    )
}

/// A page of metrics.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, label: &str, figure: u64) {
        let name = self.name;
        let _ = match label {
            "" => writeln!(self.text, "{name} {figure}"),
            _ => writeln!(self.text, "{name}{{{label}}} {figure}"),
        };
    }
}

/// Counts requests and answers, so that the log can say that none was lost.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: u64,
    left: u64,
    answers: BTreeMap<u16, u64>,
}

impl Ledger {
    fn begin(self: &Arc<Self>) -> Unanswered {
        self.with(|c| c.open += 1);
        Unanswered {
            ledger: Arc::clone(self),
            answer: None,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Counts) -> T) -> T {
        f(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Requests that are being worked on.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.with(|c| c.open)
    }

    /// Requests whose client hung up before the answer.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.with(|c| c.left)
    }

    /// Requests answered, by status.
    #[must_use]
    pub fn answers(&self) -> BTreeMap<u16, u64> {
        self.with(|c| c.answers.clone())
    }
}

/// A request that is being worked on. Dropped without an answer, its client has left.
struct Unanswered {
    ledger: Arc<Ledger>,
    answer: Option<StatusCode>,
}

impl Unanswered {
    fn answered(mut self, status: StatusCode) {
        self.answer = Some(status);
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.ledger.with(|counts| {
            counts.open -= 1;
            match self.answer {
                Some(status) => *counts.answers.entry(status.as_u16()).or_default() += 1,
                None => counts.left += 1,
            }
        });
    }
}
