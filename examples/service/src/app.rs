//! The routes of the service, and how they use the pool.

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
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{error::Elapsed, timeout};

/// The phase of the service's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The service takes new work.
    Serving,
    /// SIGTERM has come. Every answer closes its connection, and new work is refused.
    Draining,
    /// The time is up. Each client that still waits gets a 503 now.
    GivingUp,
}

/// The state that the handlers share.
#[derive(Clone)]
pub struct App {
    /// The pool. The handlers only submit to it, with `serve`.
    pub pool: Arc<Pool>,
    /// The longest time that a request may take.
    pub deadline: Duration,
    /// The exporter, which renders the page of metrics.
    pub exporter: PrometheusHandle,
    /// The current phase of the service.
    pub phase: watch::Receiver<Phase>,
    /// How long a task of `/factorial` takes.
    pub factorial: Takes,
    /// How long a task of `/sleep` takes.
    pub sleep: Takes,
}

impl App {
    /// Submits a task of a route. Never blocks, because the pool refuses when it is full. Dropping
    /// the handle cancels the task. That happens at a timeout, and when axum drops a request whose
    /// client has hung up.
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

/// The routes and their descriptions, for the help text.
pub const ROUTES: &[(&str, &str)] = &[
    ("/factorial?n=50&count=1024", "a sum, by a group of tasks"),
    ("/sleep?ms=100", "a call that blocks"),
    ("/stats", "the pool's figures, as JSON"),
    ("/metrics", "the same for Prometheus"),
    ("/health", "whether a balancer should send requests here"),
];

/// Returns the service's routes.
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

/// Wraps every request: makes sure that it is answered.
async fn answer(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut phase = app.phase.clone();
    let mut response = tokio::select! {
        // `biased` polls the handler first, so a value that came before the time was up is
        // delivered.
        biased;
        response = next.run(request) => response,
        _ = phase.wait_for(|p| *p == Phase::GivingUp) => Error::closed().into_response(),
    };
    if *app.phase.borrow() != Phase::Serving {
        // Tell the client not to send its next request here. If the service closed the idle
        // connection instead, it could lose a request that is on its way.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// An error in HTTP: a status and a reason.
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
        // This may also be a thread that the OS could not create. The metrics tell the two apart.
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

/// The number of factorials that one task computes. With so many, a task takes longer than its way
/// to a worker.
const PER_TASK: u64 = 64;

/// Answers with `count` times the factorial of `n`, which tasks compute `count` times and sum up.
/// All tasks are submitted, then awaited. If one of them has no value, the handles of the others
/// are dropped, which cancels those tasks.
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
    /// If `true`, the task does not look whether it is cancelled. This shows how a shutdown deals
    /// with such a task.
    #[serde(default)]
    deaf: bool,
    /// The time in milliseconds that the task needs to have left when it starts, in place of the
    /// learned one. With 0 the task is started however late, to show what that costs.
    takes: Option<u64>,
}

/// Answers after a nap on a worker, a stand-in for any call that blocks: a driver, a file, a
/// library.
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

/// Sleeps, and returns how long. Returns `None` if the task's deadline has passed, which the task
/// may see before the handler sees its timeout.
fn nap(duration: Duration, deaf: bool) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < duration && (deaf || !task::is_cancelled()) {
        let left = duration.saturating_sub(start.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(5)));
    }
    (task::remaining() != Some(Duration::ZERO)).then(|| start.elapsed())
}

/// Tells a load balancer whether to send requests here.
async fn health(State(app): State<App>) -> Result<&'static str, Error> {
    match *app.phase.borrow() {
        Phase::Serving => Ok("ok\n"),
        _ => Err(Error::closed()),
    }
}

async fn stats(State(app): State<App>) -> Json<Stats> {
    Json(app.pool.stats())
}

/// Answers with the pool's metrics in the text format of Prometheus. Adds no metric of its own.
async fn metrics(State(app): State<App>) -> impl IntoResponse {
    app.pool.publish_metrics();
    let page = app.exporter.render();
    // Folds the values that have been recorded since the last time. A service that may not be
    // scraped for long does this on a timer.
    app.exporter.run_upkeep();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page)
}
