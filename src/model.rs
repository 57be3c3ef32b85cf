//! For the models in `loom-tests`: the crate's own parts, behind thin wrappers.

use crate::cleaner;
use crate::deadline;
use crate::error::DeadlineError;
use crate::pool::Pool;
use crate::sync::{thread, Arc, AtomicBool, Ordering};

/// A deadline that passes when its [`Alarm`] goes off.
#[derive(Debug)]
pub struct Deadline(deadline::Deadline);

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
    crate::wait::do_until(pool.shared(), None, f, &deadline.0)
}

/// What the cleaner does each time it wakes: benches idle workers, and retires
/// those whose `idle_timeout` is over.
pub fn look_around(pool: &Pool) {
    cleaner::look_around(pool.shared(), &mut Vec::new());
}
