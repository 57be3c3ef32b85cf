//! The outcome of a submission: each function returns its part, and panics at any other outcome.

use lazypool::{DeadlineError, Refused};

use super::gates::expired;

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

/// Checks that a call's deadline passed before its task started.
#[track_caller]
pub fn is_expired<F, R>(outcome: Result<R, DeadlineError<F>>) {
    drop(expired(outcome));
}

/// Checks that a call left its running task.
#[track_caller]
pub fn is_timed_out<F, R>(outcome: Result<R, DeadlineError<F>>) {
    match outcome {
        Err(DeadlineError::TimedOut) => {}
        Err(other) => panic!("expected TimedOut, got {other:?}"),
        Ok(_) => panic!("expected TimedOut, got a value"),
    }
}
