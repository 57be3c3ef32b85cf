use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::thread;

use super::*;
use crate::stats::RefusalCounts;

fn spawn_error() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "no more threads")
}

fn refusals() -> [Refusal; 7] {
    [
        Refusal::Saturated,
        Refusal::Closed,
        Refusal::Cancelled,
        Refusal::SpawnFailed(spawn_error()),
        Refusal::OnWorker,
        Refusal::Forked,
        Refusal::GroupFull,
    ]
}

/// Sets its cell when it is dropped.
struct Flag(Rc<Cell<bool>>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn refused_gives_its_closure_back_unrun() {
    let runs = Cell::new(0);
    let refused = Refused::new(|| runs.set(runs.get() + 1), Refusal::Saturated);
    assert!(matches!(refused.reason(), Refusal::Saturated));
    let closure = refused.into_inner();
    assert_eq!(runs.get(), 0);
    closure();
    assert_eq!(runs.get(), 1);
}

#[test]
fn run_anyway_runs_the_closure_once_and_returns_its_value() {
    let runs = Cell::new(0);
    let task = || {
        runs.set(runs.get() + 1);
        "value"
    };
    assert_eq!(Refused::new(task, Refusal::Closed).run_anyway(), "value");
    assert_eq!(runs.get(), 1);

    fn refuse<F>(closure: F) -> Result<&'static str, Refused<F>> {
        Err(Refused::new(closure, Refusal::Saturated))
    }
    assert_eq!(refuse(task).unwrap_or_else(Refused::run_anyway), "value");
    assert_eq!(runs.get(), 2);
}

#[test]
fn the_caller_runs_what_lacked_room_or_a_thread_and_nothing_else() {
    let ran = refusals().map(|reason| {
        let runs = Cell::new(0);
        let refused = Refused::new(|| runs.set(runs.get() + 1), reason);
        let outcome = refused.caller_runs();
        let ran = runs.get() == 1;
        assert_eq!(ran, outcome.is_ok());
        if let Err(refused) = outcome {
            // The closure came back unchanged, and can still run.
            refused.run_anyway();
            assert_eq!(runs.get(), 1);
        }
        ran
    });
    // In order: Saturated, Closed, Cancelled, SpawnFailed, OnWorker, Forked, GroupFull.
    assert_eq!(ran, [true, false, false, true, true, false, false]);
}

#[test]
fn the_parts_are_the_closure_and_the_reason() {
    let reason = Refusal::SpawnFailed(spawn_error());
    let (closure, reason) = Refused::new(|| 7, reason).into_parts();
    assert_eq!(closure(), 7);
    assert!(matches!(reason, Refusal::SpawnFailed(error) if error.kind() == spawn_error().kind()));
}

#[test]
fn unrun_gives_its_closure_back_or_runs_it() {
    let runs = Cell::new(0);
    let task = || {
        runs.set(runs.get() + 1);
        "value"
    };
    let closure = Unrun::new(task).into_inner();
    assert_eq!(runs.get(), 0);
    assert_eq!(closure(), "value");
    assert_eq!(Unrun::new(task).run(), "value");
    assert_eq!(runs.get(), 2);
    let unrun = Unrun::new(|| std::panic::resume_unwind(Box::new(7)));
    let payload = catch_unwind(AssertUnwindSafe(|| unrun.run::<()>())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7));
}

#[test]
fn a_panic_in_run_reaches_the_caller() {
    let refused = Refused::new(|| std::panic::resume_unwind(Box::new(7)), Refusal::Closed);
    let payload = catch_unwind(AssertUnwindSafe(|| refused.run_anyway::<()>())).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7));
}

#[test]
fn without_closure_drops_the_closure_and_keeps_the_rest() {
    let dropped = Rc::new(Cell::new(false));
    let refused = Refused::new(Flag(dropped.clone()), Refusal::Cancelled).without_closure();
    assert!(dropped.get());
    assert!(matches!(refused.reason(), Refusal::Cancelled));

    let dropped = Rc::new(Cell::new(false));
    let error = DeadlineError::Expired(Unrun::new(Flag(dropped.clone()))).without_closure();
    assert!(dropped.get());
    assert!(matches!(error, DeadlineError::Expired(Unrun { .. })));

    let error = DeadlineError::Refused(Refused::new(1, Refusal::Closed)).without_closure();
    assert!(matches!(error, DeadlineError::Refused(refused) if refused.is_closed()));
    let error = DeadlineError::<i32>::TimedOut.without_closure();
    assert!(matches!(error, DeadlineError::TimedOut));
    let panic = Panic::new(Box::new("boom"));
    let error = DeadlineError::<i32>::Panicked(panic).without_closure();
    assert!(matches!(error, DeadlineError::Panicked(panic) if panic.message().unwrap() == "boom"));
}

/// Laws 1 and 13: each method that asks about the reason returns `true` for exactly its reasons.
#[test]
fn the_questions_tell_the_reasons_apart() {
    type Question = fn(&Refused<()>) -> bool;
    let of = |question: Question| {
        let yes = refusals().into_iter().filter_map(|reason| {
            let name = reason.as_str();
            question(&Refused::new((), reason)).then_some(name)
        });
        yes.collect::<Vec<_>>()
    };
    assert_eq!(of(Refused::is_saturated), ["saturated"]);
    let retryable = ["saturated", "spawn_failed", "group_full"];
    assert_eq!(of(Refused::is_retryable), retryable);
    assert_eq!(of(Refused::is_closed), ["closed"]);
}

#[test]
fn each_reason_is_one_word() {
    let words = refusals().map(|reason| reason.as_str());
    let expected = [
        "saturated",
        "closed",
        "cancelled",
        "spawn_failed",
        "on_worker",
        "forked",
        "group_full",
    ];
    assert_eq!(words, expected);
    let counts = RefusalCounts::default();
    let mut fields = counts.by_reason().map(|(name, _)| name).to_vec();
    fields.retain(|name| *name != "expired");
    assert_eq!(fields, expected);
}

#[test]
fn a_limit_error_says_what_was_given_and_what_is_allowed() {
    let error = LimitError::new(9, 8);
    assert_eq!(error.to_string(), "the limit is 9; allowed: 1..=8");
    assert_eq!((error.given(), error.max()), (9, 8));
    assert_eq!(error.clone(), error);
    assert!(error.source().is_none());
}

#[test]
fn only_a_closure_that_never_ran_comes_out_of_a_deadline_error() {
    let refused = Refused::new(1, Refusal::Saturated);
    assert_eq!(DeadlineError::Refused(refused).into_inner(), Some(1));
    assert_eq!(DeadlineError::Expired(Unrun::new(2)).into_inner(), Some(2));
    assert_eq!(DeadlineError::<i32>::TimedOut.into_inner(), None);
    let panic = Panic::new(Box::new("boom"));
    assert_eq!(DeadlineError::<i32>::Panicked(panic).into_inner(), None);
}

#[test]
fn every_refusal_says_in_one_line_what_happened() {
    assert_eq!(
        refusals().map(|reason| reason.to_string()),
        [
            "the pool is saturated: all workers are busy, no queue space is left",
            "the pool is shut down",
            "the group is cancelled",
            "no worker thread could be started: no more threads",
            "a worker of the pool must not wait for another one",
            "the pool belongs to the parent of this forked process",
            "the group has as many tasks pending as its limit allows",
        ]
    );
}

#[test]
fn an_error_with_a_refusal_inside_says_what_the_refusal_says() {
    for (reason, again) in refusals().into_iter().zip(refusals()) {
        let text = reason.to_string();
        assert_eq!(Refused::new(Rc::new(1), reason).to_string(), text);
        let refused = Refused::new(Rc::new(1), again);
        assert_eq!(DeadlineError::Refused(refused).to_string(), text);
    }
}

#[test]
fn deadline_errors_say_what_became_of_the_closure() {
    assert_eq!(
        DeadlineError::Expired(Unrun::new(())).to_string(),
        Unrun::new(()).to_string()
    );
    let expired =
        "no worker started the closure in time, or less than its `min_remaining` was left: it \
                   never ran";
    assert_eq!(Unrun::new(()).to_string(), expired);
    assert_eq!(
        DeadlineError::<()>::TimedOut.to_string(),
        "the deadline passed while the closure was running: it runs on, and its result will be dropped"
    );
    let panicked = |payload| {
        let panic = Panic::new(payload);
        let text = panic.to_string();
        assert_eq!(DeadlineError::<()>::Panicked(panic).to_string(), text);
        text
    };
    assert_eq!(panicked(Box::new("boom")), "the closure panicked: boom");
    assert_eq!(
        panicked(Box::new(7)),
        "the closure panicked with a payload that is not text"
    );
}

#[test]
fn build_errors_say_what_was_given_and_what_is_allowed() {
    let max = MAX_WORKERS;
    let texts = [
        BuildError::ZeroWorkers,
        BuildError::TooManyWorkers { given: 70_000, max },
        BuildError::MinExceedsMax { min: 5, max: 4 },
        BuildError::QueueTooLong {
            given: 20_000_000,
            max: MAX_QUEUE,
        },
        BuildError::BadThreadName,
        BuildError::StackTooSmall {
            given: 4096,
            min: MIN_STACK,
        },
        BuildError::Spawn(spawn_error()),
    ]
    .map(|error| error.to_string());
    assert_eq!(
        texts,
        [
            "max_workers is 0; allowed: 1 or more",
            "max_workers is 70000; allowed: 1..=65536",
            "min_workers is 5; allowed: 0..=4, as max_workers is 4",
            "queue_capacity is 20000000; allowed: 0..=16777216",
            "thread_name is empty or contains a NUL byte; allowed: any other text",
            "stack_size is 4096; allowed: 16384 or more",
            "a worker thread could not be started: no more threads",
        ]
    );
}

#[test]
fn unfinished_counts_what_is_pending() {
    assert_eq!(Unfinished::new(3).pending(), 3);
    let one = "the wait timed out: 1 task has not ended";
    assert_eq!(Unfinished::new(1).to_string(), one);
    let two = "the wait timed out: 2 tasks have not ended";
    assert_eq!(Unfinished::new(2).to_string(), two);
}

#[test]
fn source_is_the_io_error_where_there_is_one() {
    fn is_spawn_error(error: &dyn Error) -> bool {
        error
            .source()
            .and_then(|source| source.downcast_ref::<io::Error>())
            .is_some_and(|source| source.kind() == io::ErrorKind::WouldBlock)
    }

    let refused = || Refused::new((), Refusal::SpawnFailed(spawn_error()));
    assert!(is_spawn_error(refused().reason()));
    assert!(is_spawn_error(&refused()));
    assert!(is_spawn_error(&refused().without_closure()));
    assert!(is_spawn_error(&DeadlineError::Refused(refused())));
    assert!(is_spawn_error(&BuildError::Spawn(spawn_error())));
}

#[test]
fn source_is_none_elsewhere() {
    for reason in refusals() {
        if matches!(reason, Refusal::SpawnFailed(_)) {
            continue;
        }
        assert!(reason.source().is_none());
        assert!(Refused::new((), reason).source().is_none());
    }
    assert!(DeadlineError::Expired(Unrun::new(())).source().is_none());
    assert!(DeadlineError::<()>::TimedOut.source().is_none());
    let panic = Panic::new(Box::new("boom"));
    assert!(DeadlineError::<()>::Panicked(panic).source().is_none());
    assert!(BuildError::ZeroWorkers.source().is_none());
    assert!(BuildError::BadThreadName.source().is_none());
    assert!(BuildError::StackTooSmall { given: 1, min: 2 }
        .source()
        .is_none());
    assert!(Unfinished::new(1).source().is_none());
    assert!(Unrun::new(()).source().is_none());
}

#[test]
fn debug_needs_nothing_of_the_closure() {
    let refused = Refused::new(|| (), Refusal::Saturated);
    assert_eq!(format!("{refused:?}"), "Refused { reason: Saturated, .. }");
    let error = DeadlineError::Refused(refused);
    assert_eq!(
        format!("{error:?}"),
        "Refused(Refused { reason: Saturated, .. })"
    );
    assert_eq!(
        format!("{:?}", DeadlineError::Expired(Unrun::new(|| ()))),
        "Expired(Unrun(..))"
    );
    assert_eq!(format!("{:?}", DeadlineError::<()>::TimedOut), "TimedOut");
    let error = DeadlineError::<()>::Panicked(Panic::new(Box::new("boom")));
    assert_eq!(
        format!("{error:?}"),
        r#"Panicked(Panic { message: Some("boom"), .. })"#
    );
}

#[test]
fn message_reads_both_kinds_of_text_and_no_other() {
    let message = |payload| Panic::new(payload).message();
    assert_eq!(message(Box::new("text")).as_deref(), Some("text"));
    let owned = String::from("owned");
    assert_eq!(message(Box::new(owned)).as_deref(), Some("owned"));
    assert_eq!(message(Box::new(7)), None);
    // The text of a payload that is itself a box is not read.
    let boxed: Box<dyn Any + Send> = Box::new("inner");
    assert_eq!(message(Box::new(boxed)), None);
}

#[test]
fn a_shared_panic_can_be_read_from_other_threads() {
    let opaque = Panic::new(Box::new(Cell::new(1)));
    let text = Panic::new(Box::new("boom"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(opaque.message(), None);
                assert_eq!(text.message().as_deref(), Some("boom"));
            });
        }
    });
}

#[test]
fn message_reads_what_the_panic_macro_made() {
    let caught = catch_unwind(|| panic!("line {} is empty", 3)).unwrap_err();
    assert_eq!(
        Panic::new(caught).message().as_deref(),
        Some("line 3 is empty")
    );
    let caught = catch_unwind(|| panic!("boom")).unwrap_err();
    assert_eq!(Panic::new(caught).message().as_deref(), Some("boom"));
}

#[test]
fn downcast_gives_the_payload_or_the_panic_back() {
    let panic = Panic::new(Box::new(7_u32));
    let panic = panic.downcast::<String>().expect_err("it is a u32");
    assert_eq!(*panic.downcast::<u32>().expect("it is a u32"), 7);
}

#[test]
fn into_inner_gives_the_payload_itself() {
    let payload = Panic::new(Box::new(7_u32)).into_inner();
    assert_eq!(payload.downcast_ref::<u32>(), Some(&7));
}

#[test]
fn resume_goes_on_with_the_same_payload() {
    let panic = Panic::new(Box::new(7_u32));
    let payload = catch_unwind(AssertUnwindSafe(|| panic.resume())).unwrap_err();
    assert_eq!(payload.downcast_ref::<u32>(), Some(&7));
}

#[test]
fn task_panic_shows_where_and_what() {
    let panic = TaskPanic::new(2, Some("import"), &"boom");
    assert_eq!(panic.slot, 2);
    assert_eq!(panic.label, Some("import"));
    assert!(panic.payload.is::<&'static str>());
    assert_eq!(panic.message().as_deref(), Some("boom"));
    assert_eq!(
        format!("{panic:?}"),
        r#"TaskPanic { slot: 2, label: Some("import"), message: Some("boom"), .. }"#
    );
    assert_eq!(TaskPanic::new(0, None, &7).message(), None);
}
