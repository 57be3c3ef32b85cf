//! The routes.

use crate::offload::{offload, offload_all, Failure, Terms};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{header, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lazypool::{task, Pool, Stats};
use metrics_exporter_prometheus::PrometheusHandle;
use num_bigint::BigUint;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt;
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
#[derive(Clone)]
pub struct App {
    /// The pool. The handlers only ever `serve` to it.
    pub pool: Arc<Pool>,
    /// The longest a request may take.
    pub deadline: Duration,
    /// What renders the page of metrics.
    pub exporter: PrometheusHandle,
    /// Where the service is in its life.
    pub phase: watch::Receiver<Phase>,
    /// How many requests got which status.
    pub ledger: Arc<Ledger>,
}

impl App {
    fn terms(&self, label: &'static str, takes: Duration) -> Terms {
        Terms {
            label,
            deadline: self.deadline,
            // What can never be in time is tried all the same: its 504 comes at the deadline.
            takes: if takes < self.deadline {
                takes
            } else {
                Duration::ZERO
            },
        }
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// What the service answers, for its help.
pub const ROUTES: &[(&str, &str)] = &[
    ("/factorial?n=50&count=1024", "a sum, by a group of tasks"),
    ("/sleep?ms=100", "a call that blocks"),
    ("/stats", "the pool's figures, as JSON"),
    ("/metrics", "the same for Prometheus"),
    ("/health", "whether a balancer should send requests here"),
];

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
    let terms = app.terms("factorial", Duration::ZERO);
    let sums: Vec<BigUint> = offload_all(&app.pool, terms, tasks).await?;
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
    /// Whether it is started even if too little time is left: to show what that costs.
    #[serde(default)]
    eager: bool,
}

/// Stands for any call that blocks: a driver, a file, a library.
async fn sleep(
    State(app): State<App>,
    query: Result<Query<Sleep>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(Sleep { ms, deaf, eager }) = query?;
    within("ms", ms, 0..=60_000)?;
    let nap_time = Duration::from_millis(ms);
    // A nap may last a little longer than it should, and the answer has a way to go.
    let takes = nap_time + nap_time / 8 + Duration::from_millis(5);
    let terms = app.terms("sleep", if eager { Duration::ZERO } else { takes });
    let slept = offload(&app.pool, terms, move || nap(nap_time, deaf)).await?;
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

async fn stats(State(app): State<App>) -> Json<Stats> {
    Json(app.pool.stats())
}

/// In Prometheus' text format: what the pool tells, and no word of its own.
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    app.pool.publish_metrics();
    let page = app.exporter.render();
    // Folds what has been recorded since; a service that nobody scrapes does so on a timer.
    app.exporter.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page)
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
