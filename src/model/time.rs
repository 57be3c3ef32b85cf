//! What loom has no clock for.

use crate::engine::call;
use crate::engine::request::Extras;
use crate::error::{DeadlineError, TaskError};
use crate::handle::Handle;
use crate::parts::deadline;
use crate::pool::Pool;
use crate::sync::{thread, Arc, AtomicBool, Ordering};

/// A deadline that passes when its [`Alarm`] goes off.
#[derive(Debug)]
pub struct Deadline(pub(super) deadline::Deadline);

/// Makes a [`Deadline`] pass; meant for another thread.
#[derive(Debug)]
pub struct Alarm {
    passed: Arc<AtomicBool>,
    waiter: thread::Thread,
}

/// A deadline for a wait of this thread.
pub fn deadline() -> (Deadline, Alarm) {
    let passed = Arc::new(AtomicBool::new(false));
    let alarm = Alarm {
        passed: Arc::clone(&passed),
        waiter: thread::current(),
    };
    (Deadline(deadline::Deadline(Some(passed))), alarm)
}

impl Alarm {
    /// The deadline passes.
    pub fn go_off(self) {
        self.passed.swap(true, Ordering::SeqCst);
        self.waiter.unpark();
    }
}

/// [`Pool::do_with_deadline`] until `deadline`.
///
/// # Errors
/// As [`Pool::do_with_deadline`].
pub fn do_until<F, R>(pool: &Pool, f: F, deadline: &Deadline) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    call::do_until(pool.core(), &Extras::NONE, None, f, &deadline.0)
}

/// The same as a task with a label, which its worker reads in its caller's node.
///
/// # Errors
/// As [`Pool::do_with_deadline`].
pub fn do_labeled_until<F, R>(pool: &Pool, f: F, deadline: &Deadline) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let extras = Extras {
        label: Some("label"),
        ..Extras::NONE
    };
    call::do_until(pool.core(), &extras, None, f, &deadline.0)
}

/// [`Handle::join_timeout`] until `deadline`.
///
/// # Errors
/// As [`Handle::join_timeout`].
pub fn join_until<R>(
    handle: Handle<R>,
    deadline: &Deadline,
) -> Result<Result<R, TaskError>, Handle<R>> {
    handle.join_until(&deadline.0)
}

/// The system gives none of the next `n` threads that a pool asks it for.
pub fn refuse_threads(n: u32) {
    thread::REFUSED.set(n);
}
