//! An HTTP service on tokio that offloads its work to a pool of threads.
//!
//! ```text
//! cargo run -p service -- examples/service/service.toml
//! curl -i 'localhost:8080/factorial?n=50&count=1024'   sums many tasks' values
//! curl -i 'localhost:8080/sleep?ms=100'                200; 504 past the deadline
//! curl -i 'localhost:8080/metrics'                     for Prometheus; /stats in JSON
//! ```
//!
//! `dashboard.json` shows these metrics in Grafana: import it, and choose a Prometheus data source.
//!
//! The service answers 503 with `Retry-After` if the pool is saturated, and 400 with a reason if
//! the input is bad. After SIGTERM (or Ctrl-C) it takes no new work. Running tasks may finish for
//! some time, and are then cancelled. The exit code says how it ended:
//!
//! | code | meaning |
//! |---|---|
//! | 0 | every running task finished |
//! | 1 | the service could not start |
//! | 2 | running tasks had to be cancelled, and stopped |
//! | 3 | tasks still ran when the time was up; the log names their workers |

use axum::serve::ListenerExt;
use lazypool::Shutdown;
use metrics_exporter_prometheus::PrometheusBuilder;
use service::app::{router, App, Phase, ROUTES};
use service::settings::Settings;
use service::takes::Takes;
use std::future::{Future, IntoFuture};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

const FINISHED: u8 = 0;
const NOT_STARTED: u8 = 1;
const CANCELLED: u8 = 2;
const STRAGGLERS: u8 = 3;

/// How long the last answers may take to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let settings = match std::env::args_os().nth(1).map(PathBuf::from) {
        Some(help) if help.as_os_str() == "--help" => {
            println!("usage: service [settings.toml]\n\nroutes:");
            for (route, what) in ROUTES {
                println!("  {route:<28} {what}");
            }
            return ExitCode::SUCCESS;
        }
        Some(file) => Settings::load(&file),
        None => Ok(Settings::default()),
    };
    match settings.and_then(|settings| run(settings).map_err(|e| e.to_string())) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("service: {error}");
            NOT_STARTED.into()
        }
    }
}

#[tokio::main]
async fn run(settings: Settings) -> Result<u8, Box<dyn std::error::Error>> {
    let pool = settings
        .pool
        .to_builder()
        // `wind_down` waits for the workers, so the drop need not.
        .shutdown_on_drop(Shutdown::Cancel, Duration::ZERO)
        .on_panic(|p| {
            let message = p.message().unwrap_or_default();
            eprintln!("service: a task panicked: {message}");
        });
    let exporter = PrometheusBuilder::new().install_recorder()?;
    let (phase, phase_seen) = watch::channel(Phase::Serving);
    let app = App {
        pool: Arc::new(pool.build()?),
        deadline: settings.deadline,
        exporter,
        phase: phase_seen,
        factorial: Takes::default(),
        sleep: Takes::default(),
    };
    let stop = asked_to_stop()?;
    let listener = TcpListener::bind(settings.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    for (route, what) in ROUTES {
        eprintln!("  {route:<28} {what}");
    }
    std::io::stdout().flush()?;
    let listener = listener.tap_io(|connection| {
        // An answer is one small write, so do not hold it back. If this call fails, answers are
        // slower.
        let _ = connection.set_nodelay(true);
    });
    let mut hang_up = phase.subscribe();
    let server = axum::serve(listener, router(app.clone())).with_graceful_shutdown(async move {
        // An error means that the sender is gone, and then the server is to stop as well.
        let _ = hang_up.wait_for(|p| *p == Phase::GivingUp).await;
    });
    let server = tokio::spawn(server.into_future());

    stop.await;
    eprintln!("service: stopping, {} tasks run", app.pool.stats().running);
    phase.send_replace(Phase::Draining);
    let (code, ()) = tokio::join!(
        wind_down(&app, &settings),
        tokio::time::sleep(settings.linger)
    );

    // Clients that still wait for a straggler get their answer now. Idle connections are closed.
    phase.send_replace(Phase::GivingUp);
    if tokio::time::timeout(LAST_WORDS, server).await.is_err() {
        eprintln!("service: some clients did not read their answers");
    }
    Ok(code)
}

/// Closes the pool. First lets running tasks finish, then cancels them. Returns the exit code.
async fn wind_down(app: &App, settings: &Settings) -> u8 {
    let shutdown = |mode, timeout| {
        let pool = Arc::clone(&app.pool);
        // A shutdown waits for threads, so it must not run on a thread of the runtime.
        tokio::task::spawn_blocking(move || pool.shutdown(mode, timeout))
    };
    // Discard queued tasks first. Their requests are answered with 503 at once, and the tasks that
    // have started have the whole time.
    let report = shutdown(Shutdown::Discard, settings.discard_timeout).await;
    let report = report.expect("a shutdown does not panic");
    eprintln!("service: {} queued tasks discarded", report.discarded);
    if report.is_clean() {
        return FINISHED;
    }
    eprintln!("service: cancelling {} tasks", report.stragglers.len());
    let report = shutdown(Shutdown::Cancel, settings.cancel_timeout).await;
    let report = report.expect("a shutdown does not panic");
    if report.is_clean() {
        return CANCELLED;
    }
    for worker in &report.stragglers {
        let (slot, tasks) = (worker.slot, worker.tasks);
        eprintln!(
            "service: straggler: worker {slot}, in its task {}",
            tasks + 1
        );
    }
    STRAGGLERS
}

/// Returns a future that ends at SIGTERM or Ctrl-C. From this call on, these signals do not end the
/// process.
#[cfg(unix)]
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{signal, SignalKind};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        // An error means that Ctrl-C cannot be seen, so this future never ends.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}
