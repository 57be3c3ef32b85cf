//! Calls a library whose calls may hang forever. The pool bounds the threads that this costs, goes
//! on with other workers, and lets the program end.
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
//! * the **end**: dropping the pool waits for tasks that are still wanted, and not for hung calls.
//!
//! The example checks each result that it prints. It ends by itself, although calls still hang.

use std::error::Error;
use std::time::Duration;

use lazypool::{DeadlineError, Pool, Shutdown};

/// A stand-in for a library that we cannot change. Its calls hang like those to a name server that
/// never answers, to a file system that is gone, or to a driver that waits for a lost packet.
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
/// Far more time than a healthy call takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn look_up(pool: &Pool, name: &'static str, wait: Duration) -> Result<usize, DeadlineError> {
    pool.labeled(name)
        .do_with_deadline(move || library::look_up(name), wait)
        .map_err(DeadlineError::without_closure)
}

fn main() -> Result<(), Box<dyn Error>> {
    // The limit of 2 below allows two calls at a time. Two more workers may replace lost ones.
    let pool = Pool::builder()
        .max_workers(4)
        .shutdown_on_drop(Shutdown::Drain, Duration::MAX) // the default: waits for wanted tasks
        .build()?;
    pool.set_limit(2)?;

    println!("healthy: {}", look_up(&pool, "localhost", PATIENCE)?);

    for lost in 1..=2 {
        let outcome = loop {
            match look_up(&pool, "hang", DEADLINE) {
                Err(DeadlineError::Expired(_)) => {} // a busy machine did not start it: try again
                outcome => break outcome,
            }
        };
        println!("hung call {lost}: {outcome:?}");
        if !matches!(outcome, Err(DeadlineError::TimedOut)) {
            return Err("the caller should have left its call".into());
        }
    }
    // A caller may leave just before its worker publishes the label of its task.
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

    // The pool starts no third thread, and refuses the caller at once.
    match look_up(&pool, "localhost", PATIENCE) {
        Err(DeadlineError::Refused(refused)) if refused.is_saturated() => {
            println!("bounded: {refused}");
        }
        other => return Err(format!("it should have been refused: {other:?}").into()),
    }

    // Other workers replace the lost ones, but not without limit: `max_workers` bounds the number
    // of threads that the library can cost.
    let replaced = (2 + pool.stats().abandoned).min(pool.max_workers());
    pool.set_limit(replaced)?;
    println!("survived: {}", look_up(&pool, "localhost", PATIENCE)?);

    // The two calls still hang. No caller waits for them, so the drop does not wait for them
    // either. It waits for the next task, which is wanted.
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
