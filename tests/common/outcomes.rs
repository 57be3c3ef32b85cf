//! The outcome of a submission: each function returns its part, and panics at any other outcome.

use lazypool::{DeadlineError, Panic, Refused, Unrun};

/// Returns the refusal. Panics if its reason is not `Saturated`.
#[track_caller]
pub fn saturated<F>(outcome: Result<(), Refused<F>>) -> Refused<F> {
    refused_as("saturated", outcome)
}

/// Returns the refusal. Panics if its reason is not `OnWorker`.
#[track_caller]
pub fn nested<F>(outcome: Result<(), Refused<F>>) -> Refused<F> {
    refused_as("on_worker", outcome)
}

#[track_caller]
fn refused_as<F>(reason: &str, outcome: Result<(), Refused<F>>) -> Refused<F> {
    let refused = outcome.expect_err("refused");
    assert_eq!(refused.reason().as_str(), reason);
    refused
}

/// Returns the word for the reason of a refusal.
#[track_caller]
pub fn reason<T, F>(outcome: Result<T, Refused<F>>) -> &'static str {
    match outcome {
        Err(refused) => refused.reason().as_str(),
        Ok(_) => panic!("expected a refusal, got Ok"),
    }
}

/// Returns the refusal of a call.
#[track_caller]
pub fn refused<F, R>(outcome: Result<R, DeadlineError<F>>) -> Refused<F> {
    match outcome {
        Err(DeadlineError::Refused(refused)) => refused,
        other => unexpected("a refusal", other),
    }
}

/// Returns the closure of a call that expired.
#[track_caller]
pub fn expired<F, R>(outcome: Result<R, DeadlineError<F>>) -> Unrun<F> {
    match outcome {
        Err(DeadlineError::Expired(unrun)) => unrun,
        other => unexpected("an expiry", other),
    }
}

/// Returns the panic of a call.
#[track_caller]
pub fn panicked<F, R>(outcome: Result<R, DeadlineError<F>>) -> Panic {
    match outcome {
        Err(DeadlineError::Panicked(panic)) => panic,
        other => unexpected("a panic", other),
    }
}

/// Checks that a call's deadline passed before its task started.
#[track_caller]
pub fn is_expired<F, R>(outcome: Result<R, DeadlineError<F>>) {
    drop(expired(outcome));
}

/// Checks that a call left its running task.
#[track_caller]
pub fn is_timed_out<F, R>(outcome: Result<R, DeadlineError<F>>) {
    if !matches!(outcome, Err(DeadlineError::TimedOut)) {
        unexpected("a time-out", outcome);
    }
}

/// Panics at a call's outcome, whose value need not be printable.
#[track_caller]
pub fn unexpected<F, R>(expected: &str, outcome: Result<R, DeadlineError<F>>) -> ! {
    let got = outcome.map(|_| "a value");
    panic!("expected {expected}, got {got:?}");
}
