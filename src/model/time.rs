//! Deadlines, sweeps and refused threads for loom models. loom has no clock, so a model makes time
//! pass by a call.

use crate::engine::submit::call;
use crate::engine::submit::request::SubmitterOptions;
use crate::error::DeadlineError;
use crate::parts::deadline;
use crate::pool::Pool;
use crate::sync::{now, thread, Arc, AtomicBool, Ordering};

/// A deadline that passes when its [`Alarm`] goes off.
#[derive(Debug)]
pub struct Deadline(pub(super) deadline::Deadline);

/// Makes a [`Deadline`] pass, from another thread.
#[derive(Debug)]
pub struct Alarm {
    passed: Arc<AtomicBool>,
    waiter: thread::Thread,
}

/// Returns a deadline for a wait of this thread, and the alarm that makes it pass.
pub fn deadline() -> (Deadline, Alarm) {
    let passed = Arc::new(AtomicBool::new(false));
    let alarm = Alarm {
        passed: Arc::clone(&passed),
        waiter: thread::current(),
    };
    (Deadline(deadline::Deadline(Some(passed))), alarm)
}

impl Alarm {
    /// Makes the deadline pass, and wakes the thread that waits.
    pub fn go_off(self) {
        self.passed.swap(true, Ordering::SeqCst);
        self.waiter.unpark();
    }
}

/// Calls [`Pool::do_with_deadline`] with a deadline of the model.
///
/// # Errors
/// Returns the errors of [`Pool::do_with_deadline`].
pub fn do_until<F, R>(pool: &Pool, f: F, deadline: &Deadline) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    call::do_until(pool.core(), None, &SubmitterOptions::NONE, f, &deadline.0)
}

/// Calls [`Pool::do_with_deadline`] with a deadline of the model, for a task with a label. The
/// worker reads the label in the caller's node.
///
/// # Errors
/// Returns the errors of [`Pool::do_with_deadline`].
pub fn do_labeled_until<F, R>(pool: &Pool, f: F, deadline: &Deadline) -> Result<R, DeadlineError<F>>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let extras = SubmitterOptions {
        label: Some("label"),
        ..SubmitterOptions::NONE
    };
    call::do_until(pool.core(), None, &extras, f, &deadline.0)
}

/// Sweeps once, as the cleaner does each time it wakes. The sweep benches idle workers, and retires
/// the workers that have been on the bench for `idle_timeout`.
pub fn sweep(pool: &Pool) {
    let core = pool.core();
    let _ = core.sweep(&mut core.registry(), now());
}

/// Stores the state of the oldest cell of a pool's queue once more, as [`Queue::store_again`] does.
pub fn store_oldest_again(pool: &Pool) {
    let queue = &pool.core().queue;
    if !queue.is_empty() {
        queue.stamp_again(queue.load_head());
    }
}

/// Makes the system refuse the next `n` threads that a pool asks for.
pub fn refuse_threads(n: u32) {
    crate::sync::REFUSED.set(n);
}
