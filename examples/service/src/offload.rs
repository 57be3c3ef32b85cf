//! How async code awaits a task of the pool, without blocking the runtime.

use lazypool::{task, Group, Pool, Refusal};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Why there is no value.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The pool has no room now: worth a retry.
    Saturated,
    /// The pool is shut down, before the task or while it waited.
    Closed,
    /// The deadline passed.
    Late,
    /// The task panicked.
    Panicked,
}

/// What a request asks of the pool.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Names its tasks in metrics and logs.
    pub label: &'static str,
    /// How long it may take, from now.
    pub deadline: Duration,
    /// How long a task of it takes: with less than that left none is started. Zero: not known.
    pub takes: Duration,
}

impl Terms {
    fn group(&self, pool: &Pool) -> Group {
        pool.labeled(self.label)
            .with_deadline(self.deadline)
            .min_remaining(self.takes)
            .group()
    }
}

/// Runs `work` on the pool and awaits its value.
///
/// Nothing here blocks the runtime's thread: [`Group::serve`] hands the closure over
/// (that is why a service's pool must refuse when it is full, and not wait), and the
/// value comes back through a channel that tokio can await.
///
/// When this future ends early, because the deadline passed or because the caller
/// dropped it (axum does when the client hangs up), the task is cancelled: it is taken
/// out of the queue, or sees [`lazypool::task::is_cancelled`] if it runs.
///
/// # Errors
/// [`Failure`]; the task may still run after [`Failure::Late`], its value is dropped.
pub async fn offload<T, F>(pool: &Pool, terms: Terms, work: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let mut values = offload_all(pool, terms, [work]).await?;
    Ok(values.pop().expect("a value for each task"))
}

/// As [`offload`], for many tasks: all their values, in the order in which they ended.
///
/// It is all or nothing: if one of them has no value, the others are cancelled.
///
/// # Errors
/// As [`offload`].
pub async fn offload_all<T, F>(
    pool: &Pool,
    terms: Terms,
    tasks: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (reply, mut answers) = mpsc::unbounded_channel();
    let group = terms.group(pool);
    let unwanted = group.drop_guard();
    let mut expected = 0;
    for work in tasks {
        let reply = reply.clone();
        let task = move || match catch_unwind(AssertUnwindSafe(work)) {
            // Too late: it may have stopped half-way.
            Ok(_) if task::remaining() == Some(Duration::ZERO) => {}
            // An error means that nobody waits any more.
            Ok(value) => drop(reply.send(Some(value))),
            Err(panic) => {
                drop(reply.send(None));
                resume_unwind(panic) // for the pool to count
            }
        };
        (group.serve(task)).map_err(|refused| Failure::from(refused.reason()))?;
        expected += 1;
    }
    drop(reply);
    // `Group::wait` would block. The channel ends when the last task has dropped its
    // sender, and a task drops it whether it returns, panics, expires or is discarded.
    let collected = timeout(terms.deadline, async {
        let mut values = Vec::with_capacity(expected);
        while let Some(value) = answers.recv().await {
            values.push(value.ok_or(Failure::Panicked)?);
        }
        Ok::<_, Failure>(values)
    });
    let values = collected.await.map_err(|_| Failure::Late)??;
    if values.len() < expected {
        // A shutdown discarded the rest, or their turn came too late.
        return Err(if pool.is_closed() {
            Failure::Closed
        } else {
            Failure::Late
        });
    }
    unwanted.disarm();
    Ok(values)
}

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Closed => Self::Closed,
            // No thread to be had is as good as no room; the metrics tell them apart.
            _ => Self::Saturated,
        }
    }
}
