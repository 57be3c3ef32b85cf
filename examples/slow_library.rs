//! A library whose calls may hang for ever: bounded, survived, and no obstacle to the program's end.
//!
//! ```text
//! cargo run --example slow_library
//! ```
//!
//! It shows:
//!
//! * `do_with_deadline`: a caller waits for its deadline, not for the library;
//! * the **bound**: a call that hangs keeps its worker. With all of them gone, callers are refused at
//!   once instead of piling up;
//! * how to **see** it (`Stats::abandoned`, `Pool::workers`), and how to go on with other workers
//!   (`Pool::set_limit`), within a bound of its own;
//! * the **end**: dropping the pool waits for work that somebody wants, and not for hung calls.
//!
//! What it prints it has checked; it ends by itself, with calls that still hang.

use std::error::Error;
use std::time::Duration;

use lazypool::{DeadlineError, Pool, Shutdown};

/// Stands for a library that we cannot change: a name server that never answers, a file system that is
/// gone, a driver that waits for a lost packet.
mod library {
    pub(crate) fn look_up(name: &str) -> usize {
        if name == "hang" {
            loop {
                std::thread::park();
            }
        }
        name.len()
    }
}

/// How long a caller is willing to wait.
const DEADLINE: Duration = Duration::from_millis(200);
/// Far more than a healthy call takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

fn look_up(pool: &Pool, name: &'static str, wait: Duration) -> Result<usize, DeadlineError<()>> {
    pool.labeled(name)
        .do_with_deadline(move || library::look_up(name), wait)
        .map_err(DeadlineError::without_closure)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Two calls at a time. Two workers more are there to take the place of those that are lost.
    let pool = Pool::builder()
        .max_workers(4)
        .shutdown_on_drop(Shutdown::Drain, Duration::MAX) // the default: waits for what is wanted
        .build()?;
    pool.set_limit(2)?;

    println!("healthy: {}", look_up(&pool, "localhost", PATIENCE)?);

    for lost in 1..=2 {
        let outcome = loop {
            match look_up(&pool, "hang", DEADLINE) {
                Err(DeadlineError::Expired(_)) => {} // not even started, on a busy machine: again
                outcome => break outcome,
            }
        };
        println!("hung call {lost}: {outcome:?}");
        if !matches!(outcome, Err(DeadlineError::TimedOut)) {
            return Err("the caller should have left its call".into());
        }
    }
    // A caller may leave just before its worker says what it runs.
    let hung = || {
        pool.workers()
            .iter()
            .filter(|w| w.label == Some("hang"))
            .count()
    };
    while hung() < 2 {
        std::thread::yield_now();
    }
    let stats = pool.stats();
    println!("lost: {} of {} workers", stats.abandoned, pool.limit());
    for worker in pool.workers().iter().filter(|w| w.abandoned) {
        println!("  a worker is in {:?}", worker.label);
    }
    if (stats.abandoned, stats.workers) != (2, 2) {
        return Err(format!("both workers should be lost:\n{stats}").into());
    }

    // No third thread is started, and nobody waits in vain.
    match look_up(&pool, "localhost", PATIENCE) {
        Err(DeadlineError::Refused(refused)) if refused.is_saturated() => {
            println!("bounded: {refused}");
        }
        other => return Err(format!("it should have been refused: {other:?}").into()),
    }

    // Others take their place, but not without end: `max_workers` bounds what the library can cost us.
    let replaced = (2 + pool.stats().abandoned).min(pool.max_workers());
    pool.set_limit(replaced)?;
    println!("survived: {}", look_up(&pool, "localhost", PATIENCE)?);

    // The two calls hang still, and nobody waits for them: the drop does not, either. One that is
    // wanted it does wait for.
    let (send, wanted) = std::sync::mpsc::channel();
    pool.serve(move || {
        std::thread::sleep(DEADLINE);
        send.send("a task that was wanted has run")
            .unwrap_or_default();
    })?;
    drop(pool);
    println!("{}", wanted.try_recv()?);
    println!("the process ends");
    Ok(())
}
