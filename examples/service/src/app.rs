//! The routes.

use crate::takes::Takes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{header, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lazypool::{task, Handle, Pool, Refused, Stats, TaskError};
use metrics_exporter_prometheus::PrometheusHandle;
use num_bigint::BigUint;
use serde::Deserialize;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{error::Elapsed, timeout};

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
    /// How long a task of `/factorial` takes.
    pub factorial: Takes,
    /// How long a task of `/sleep` takes.
    pub sleep: Takes,
}

impl App {
    /// Submits a task of a route. It never blocks, as the pool refuses when it is full. Dropping the
    /// handle cancels the task: at a timeout, or when axum drops a request whose client hung up.
    fn submit<T: Send + 'static>(
        &self,
        label: &'static str,
        takes: &Takes,
        needs: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Handle<T>, Error> {
        let takes = takes.clone();
        let tasks = self.pool.labeled(label).with_deadline(self.deadline);
        let task = move || {
            let _lap = takes.start();
            work()
        };
        Ok(tasks.min_remaining(needs).awaitable().serve(task)?)
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
        _ = phase.wait_for(|p| *p == Phase::GivingUp) => Error::closed().into_response(),
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

impl Error {
    fn closed() -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, "shutting down".into())
    }

    fn late() -> Self {
        Self(StatusCode::GATEWAY_TIMEOUT, "the deadline passed".into())
    }
}

impl<F> From<Refused<F>> for Error {
    fn from(refused: Refused<F>) -> Self {
        if refused.is_closed() {
            return Self::closed();
        }
        // Also where the OS could not create a thread; the metrics tell them apart.
        let reason = "saturated, retry later";
        Self(StatusCode::SERVICE_UNAVAILABLE, reason.into())
    }
}

impl From<TaskError> for Error {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Panicked(_) => {
                let reason = "the task panicked";
                Self(StatusCode::INTERNAL_SERVER_ERROR, reason.into())
            }
            TaskError::Discarded => Self::closed(), // by a shutdown
            _ => Self::late(),                      // its turn came too late
        }
    }
}

impl From<Elapsed> for Error {
    fn from(_: Elapsed) -> Self {
        Self::late()
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

/// `count` times the factorial of `n`, computed `count` times and summed, by many tasks: all are
/// submitted, then awaited. If one of them has no value, all others are cancelled, with their handles.
async fn factorial(
    State(app): State<App>,
    query: Result<Query<Factorial>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(Factorial { n, count }) = query?;
    within("n", n, 0..=1000)?;
    within("count", count, 1..=4096)?;
    let needs = app.factorial.needs(app.deadline);
    let tasks = (0..count.div_ceil(PER_TASK)).map(|i| {
        let share = PER_TASK.min(count - i * PER_TASK);
        let sum = move || (0..share).map(|_| (1..=n).product::<BigUint>()).sum();
        app.submit("factorial", &app.factorial, needs, sum)
    });
    let tasks: Vec<Handle<BigUint>> = tasks.collect::<Result<_, _>>()?;
    let sum = timeout(app.deadline, async {
        let mut sum = BigUint::ZERO;
        for task in tasks {
            sum += task.await?;
        }
        Ok::<_, Error>(sum)
    });
    let sum = sum.await??;
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
    /// Milliseconds that it needs to have left when it starts, in place of what is learned; with 0
    /// it is started however late: to show what that costs.
    takes: Option<u64>,
}

/// Stands for any call that blocks: a driver, a file, a library.
async fn sleep(
    State(app): State<App>,
    query: Result<Query<Sleep>, QueryRejection>,
) -> Result<Json<Value>, Error> {
    let Query(Sleep { ms, deaf, takes }) = query?;
    within("ms", ms, 0..=60_000)?;
    let learned = || app.sleep.needs(app.deadline);
    let needs = takes.map_or_else(learned, Duration::from_millis);
    let duration = Duration::from_millis(ms);
    let task = app.submit("sleep", &app.sleep, needs, move || nap(duration, deaf))?;
    let slept = timeout(app.deadline, task).await??;
    let slept = slept.ok_or_else(Error::late)?;
    Ok(Json(json!({ "slept_ms": slept.as_millis() as u64 })))
}

/// `None`: its deadline passed. That may be seen before the timeout is.
fn nap(duration: Duration, deaf: bool) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < duration && (deaf || !task::is_cancelled()) {
        let left = duration.saturating_sub(start.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
    (task::remaining() != Some(Duration::ZERO)).then(|| start.elapsed())
}

/// Whether a balancer should send requests here.
async fn health(State(app): State<App>) -> Result<&'static str, Error> {
    match *app.phase.borrow() {
        Phase::Serving => Ok("ok\n"),
        _ => Err(Error::closed()),
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
