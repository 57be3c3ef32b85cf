use std::any::Any;
use std::cell::Cell;
use std::error::Error;
use std::io;
use std::panic::catch_unwind;
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
fn a_closure_comes_back_unrun_or_runs_once() {
    let runs = Cell::new(0);
    let task = || {
        runs.set(runs.get() + 1);
        "value"
    };
    for closure in [
        Refused::new(task, Refusal::Saturated).into_inner(),
        Refused::new(task, Refusal::Saturated).into_parts().0,
        Unrun::new(task).into_inner(),
    ] {
        assert_eq!((runs.take(), closure(), runs.take()), (0, "value", 1));
    }
    assert_eq!(Refused::new(task, Refusal::Closed).run_anyway(), "value");
    assert_eq!(Unrun::new(task).run(), "value");
    assert_eq!(runs.get(), 2);
    let (_, reason) = Refused::new(task, Refusal::GroupFull).into_parts();
    assert!(matches!(reason, Refusal::GroupFull));
}

#[test]
fn the_caller_runs_what_lacked_space_or_a_thread_and_nothing_else() {
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
fn a_panic_in_run_reaches_the_caller() {
    let fail = || std::panic::resume_unwind(Box::new(7));
    let refused = catch_unwind(|| Refused::new(fail, Refusal::Closed).run_anyway::<()>());
    let unrun = catch_unwind(|| Unrun::new(fail).run::<()>());
    for payload in [refused.unwrap_err(), unrun.unwrap_err()] {
        assert_eq!(payload.downcast_ref(), Some(&7));
    }
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
    let counts = RefusalCounts::default().by_reason();
    let fields = counts.map(|(name, _)| name).into_iter();
    assert!(fields.filter(|name| *name != "expired").eq(words));
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

/// Asserts what an error says, and that its source is the `spawn_error` in it, if there is one.
fn assert_says(error: &dyn Error, text: &str) {
    assert_eq!(error.to_string(), text);
    let source = error.source().map(|source| {
        let source = source.downcast_ref::<io::Error>();
        source.expect("the error of the system").kind()
    });
    let of_system = text.contains("no more threads");
    assert_eq!(source, of_system.then_some(io::ErrorKind::WouldBlock));
}

#[test]
fn a_refusal_says_in_one_line_what_happened_wherever_it_is() {
    let texts = [
        "the pool is saturated: all workers are busy, and there is no queue or no space in it",
        "the pool is shut down",
        "the group is cancelled",
        "no worker thread could be started: no more threads",
        "a worker of the pool must not wait for another one",
        "the pool belongs to the parent of this forked process",
        "the group has as many unended tasks as its limit allows",
    ];
    for (index, text) in texts.into_iter().enumerate() {
        let reason = || refusals().into_iter().nth(index).expect("seven");
        let refused = || Refused::new(Rc::new(1), reason());
        assert_says(&reason(), text);
        assert_says(&refused(), text);
        assert_says(&refused().without_closure(), text);
        assert_says(&DeadlineError::Refused(refused()), text);
    }
}

#[test]
fn every_other_error_says_what_happened_or_what_is_allowed() {
    let panicked = |payload| DeadlineError::<()>::Panicked(Panic::new(payload));
    let expired = DeadlineError::Expired(Unrun::new(()));
    let never_ran = "no worker started the closure in time, or less than its `min_remaining` was \
                     left: it never ran";
    let runs_on = "the deadline passed while the closure was running: it runs on, and its result \
                   will be dropped";
    let (min, max) = (MIN_STACK, MAX_WORKERS);
    let errors: [(&dyn Error, &str); 14] = [
        (&Unrun::new(()), never_ran),
        (&expired, never_ran),
        (&DeadlineError::<()>::TimedOut, runs_on),
        (&panicked(Box::new("boom")), "the closure panicked: boom"),
        (
            &panicked(Box::new(7)),
            "the closure panicked with a payload that is not text",
        ),
        (
            &BuildError::ZeroWorkers,
            "max_workers is 0; allowed: 1 or more",
        ),
        (
            &BuildError::TooManyWorkers { given: 70_000, max },
            "max_workers is 70000; allowed: 1..=65536",
        ),
        (
            &BuildError::MinExceedsMax { min: 5, max: 4 },
            "min_workers is 5; allowed: 0..=4, as max_workers is 4",
        ),
        (
            &BuildError::BadThreadName,
            "thread_name is empty or contains a NUL byte; allowed: any other text",
        ),
        (
            &BuildError::StackTooSmall { given: 4096, min },
            "stack_size is 4096; allowed: 16384 or more",
        ),
        (
            &BuildError::Spawn(spawn_error()),
            "a worker thread could not be started: no more threads",
        ),
        (&LimitError::new(9, 8), "the limit is 9; allowed: 1..=8"),
        (
            &Unfinished::new(1),
            "the wait timed out: 1 task has not ended",
        ),
        (
            &Unfinished::new(2),
            "the wait timed out: 2 tasks have not ended",
        ),
    ];
    for (error, text) in errors {
        assert_says(error, text);
    }
    let (given, max) = (20_000_000, MAX_QUEUE);
    assert_says(
        &BuildError::QueueTooLong { given, max },
        "queue_capacity is 20000000; allowed: 0..=16777216",
    );
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
    let caught = catch_unwind(|| panic!("line {} is empty", 3)).unwrap_err();
    assert_eq!(message(caught).as_deref(), Some("line 3 is empty"));
    let caught = catch_unwind(|| panic!("boom")).unwrap_err();
    assert_eq!(message(caught).as_deref(), Some("boom"));
}

/// A payload that is not `Sync` may be shared, because only its type is read.
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
fn the_payload_comes_out_as_it_went_in() {
    let panic = || Panic::new(Box::new(7_u32));
    let other = panic().downcast::<String>().expect_err("it is a u32");
    assert_eq!(*other.downcast::<u32>().expect("it is a u32"), 7);
    let resumed = catch_unwind(|| panic().resume()).unwrap_err();
    for payload in [panic().into_inner(), resumed] {
        assert_eq!(payload.downcast_ref::<u32>(), Some(&7));
    }
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
