//! How async code awaits a task of the pool, without blocking the runtime.

use lazypool::{Group, Pool, Refusal};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
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

/// Runs `work` on the pool and awaits its value, at most `deadline`.
///
/// Nothing here blocks the runtime's thread: [`Pool::serve`] hands the closure over
/// (that is why a service's pool must refuse when it is full, and not wait), and the
/// value comes back through a channel that tokio can await.
///
/// When this future ends early, because the deadline passed or because the caller
/// dropped it (axum does when the client hangs up), the task is cancelled: it is taken
/// out of the queue, or sees [`lazypool::task::is_cancelled`] if it runs.
///
/// # Errors
/// [`Failure`]; the task may still run after [`Failure::Late`], its value is dropped.
pub async fn offload<T, F>(pool: &Pool, deadline: Duration, work: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let task = CancelOnDrop::new(pool.group());
    let accepted = task.group.serve(move || {
        // An error means that nobody waits any more.
        let _ = reply.send(work());
    });
    accepted.map_err(|refused| Failure::from(refused.reason()))?;
    match timeout(deadline, answer).await {
        Ok(Ok(value)) => {
            task.disarm();
            Ok(value)
        }
        // The sender is gone without a value, and so is the task.
        Ok(Err(_)) => Err(ended_without_value(pool)),
        Err(_) => Err(Failure::Late),
    }
}

/// As [`offload`], for many tasks: all their values, in the order in which they ended.
///
/// It is all or nothing: if one of them is refused, the others are cancelled.
///
/// # Errors
/// As [`offload`].
pub async fn offload_all<T, F>(
    pool: &Pool,
    deadline: Duration,
    tasks: impl IntoIterator<Item = F>,
) -> Result<Vec<T>, Failure>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (reply, mut answers) = mpsc::unbounded_channel();
    let all = CancelOnDrop::new(pool.group());
    let mut expected = 0;
    for work in tasks {
        let reply = reply.clone();
        let accepted = all.group.serve(move || {
            let _ = reply.send(work());
        });
        accepted.map_err(|refused| Failure::from(refused.reason()))?;
        expected += 1;
    }
    drop(reply);
    // `Group::wait` would block. The channel ends when the last task has dropped its
    // sender, and a task drops it whether it returns, panics or is discarded.
    let collected = timeout(deadline, async {
        let mut values = Vec::with_capacity(expected);
        while let Some(value) = answers.recv().await {
            values.push(value);
        }
        values
    })
    .await;
    match collected {
        Ok(values) if values.len() == expected => {
            all.disarm();
            Ok(values)
        }
        Ok(_) => Err(ended_without_value(pool)),
        Err(_) => Err(Failure::Late),
    }
}

/// A shutdown discards queued tasks; else only a panic keeps a task from answering.
fn ended_without_value(pool: &Pool) -> Failure {
    if pool.is_closed() {
        Failure::Closed
    } else {
        Failure::Panicked
    }
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

/// A group that is cancelled when its waiter leaves before its end.
struct CancelOnDrop {
    group: Group,
    armed: bool,
}

impl CancelOnDrop {
    fn new(group: Group) -> Self {
        Self { group, armed: true }
    }

    /// Every task has answered: there is nothing left to cancel.
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.armed {
            self.group.cancel();
        }
    }
}
