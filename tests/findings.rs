//! The problems that new users of an early version had; each test shows that one is solved.
//!
//! | | finding | tested here and in |
//! |---|---|---|
//! | 1 | a task whose async caller left ran on; a task that a shutdown discarded looked like a panic | the recipe: `examples/service/tests/offload.rs` |
//! | 2 | dropping the pool waited for a call that never returns | `abandoned.rs`; a whole process: `examples.rs` |
//! | 3 | the caller ran tasks of a cancelled group and of a closed pool | `api.rs` |
//! | 4 | groups and scopes had no label, async time-outs were invisible | `submitter.rs` |
//! | 5 | one policy per pool: a batch and a request could not share it | `submitter.rs`, `blocking.rs` |
//! | 6 | `?` did not compile for closures whose captures are not `Sync` | `api.rs` |
//! | 7 | no count of abandoned workers, refusals by reason, waiting submitters | `metrics.rs`; a service without figures of its own: `examples/service/tests/service.rs` |
//! | 8 | with a queue longer than the deadline allows, nearly every task started too late | `submitter.rs`; a service under load: `examples/service/tests/service.rs` |

mod common;

use std::cell::Cell;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, DeadlineError, Pool, Refusal, Refused, Shutdown, WhenFull};

fn pool(max: usize, queue: usize) -> Pool {
    let builder = Pool::builder().max_workers(max).queue_capacity(queue);
    builder.build().expect("pool")
}

/// Runs until it is cancelled.
fn patient() {
    while !task::is_cancelled() {
        thread::sleep(ms(1));
    }
}

/// Three clients have left; none of their tasks runs or is queued any more.
#[test]
fn finding1_who_leaves_cancels() {
    timed(|| {
        let pool = pool(1, 4);
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let group = pool.labeled("offload").with_deadline(LONG).group();
                let guard = group.drop_guard();
                must_ok(group.serve(patient));
                guard
            })
            .collect();
        wait_until("a task to run", || pool.stats().running == 1);
        assert_eq!(pool.stats().queued, 2);
        // The guards are dropped as those of cancelled futures would be. Those of the queued tasks
        // go first: otherwise the end of the running task would start the next.
        clients.into_iter().rev().for_each(drop);
        let stats = settle(&pool);
        assert_eq!((stats.completed, stats.discarded), (1, 2), "{stats:?}");
    });
}

/// A task that is discarded drops its reply unsent, and so does one that panics. `is_closed` tells
/// the two apart.
#[test]
fn finding1_a_shutdown_is_no_panic() {
    timed(|| {
        let pool = pool(1, 4);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let (reply, answer) = mpsc::channel::<()>();
        must_ok(pool.group().serve(move || drop(reply)));
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!(report.discarded, 1);
        let answer = answer.recv_timeout(LIMIT);
        assert_eq!(answer, Err(RecvTimeoutError::Disconnected));
        assert!(pool.is_closed());
        assert_eq!(pool.stats().panicked, 0);
        gate.open();
    });
}

/// After `TimedOut`, the pool can be dropped while the call still hangs.
#[test]
fn finding2_a_call_that_hangs_does_not_keep_the_pool() {
    timed(|| {
        let gate = Gate::new();
        let pool = pool(1, 0);
        let outcome = loop {
            match pool.do_with_deadline(gate.task(), ms(100)) {
                Err(DeadlineError::Expired(_)) => await_started(&pool), // did not start: try again
                outcome => break outcome,
            }
        };
        assert!(matches!(outcome, Err(DeadlineError::TimedOut)));
        drop(pool);
        gate.wait_entered(1);
        assert!(!gate.key().is_open(), "the call hangs still");
        gate.open();
    });
}

/// After a cancel or a shutdown, `caller_runs` does not run a refused task.
#[test]
fn finding3_the_caller_runs_nothing_that_was_stopped() {
    timed(|| {
        let pool = pool(1, 0);
        let ran = Arc::new(AtomicUsize::new(0));
        let task = || {
            let ran = Arc::clone(&ran);
            move || {
                ran.fetch_add(1, Ordering::SeqCst);
            }
        };
        let group = pool.group();
        group.cancel();
        let refused = group.serve(task()).or_else(Refused::caller_runs);
        assert!(matches!(
            refused.expect_err("stopped").reason(),
            Refusal::Cancelled
        ));
        pool.shutdown(Shutdown::Drain, LONG);
        let refused = pool.serve(task()).or_else(Refused::caller_runs);
        assert!(refused.expect_err("stopped").is_closed());
        assert_eq!(ran.load(Ordering::SeqCst), 0);
    });
}

/// Groups and scopes have labels. A time-out is counted even if no thread waits for the task; its
/// worker counts as abandoned, and the task knows its deadline.
#[test]
fn finding4_labels_and_time_outs_are_seen() {
    timed(|| {
        let pool = pool(2, 0);
        let gate = Gate::new();
        let key = gate.key();
        let (tell, told) = mpsc::channel();
        let late = move || {
            tell.send((task::label(), task::deadline().is_some()))
                .unwrap_or_default();
            while !task::is_cancelled() {
                thread::sleep(ms(1));
            }
            key.pass();
        };
        // Starts the worker. The deadlines below are far longer than a hand-over takes.
        assert!(matches!(pool.do_with_deadline(|| 1, LONG), Ok(1)));
        let served = pool.labeled("request").with_deadline(ms(1000)).group();
        must_ok(served.serve(late));
        assert_eq!(told.recv_timeout(LIMIT), Ok((Some("request"), true)));
        wait_until("the deadline", || pool.stats().abandoned == 1);
        let workers = pool.workers();
        let of_request: Vec<_> = workers
            .iter()
            .filter(|w| w.label == Some("request"))
            .collect();
        assert!(matches!(of_request[..], [worker] if worker.abandoned));
        gate.open();
        let stats = settle(&pool);
        assert_eq!((stats.timed_out, stats.abandoned), (1, 0), "{stats:?}");

        let mut label = None;
        pool.labeled("scope")
            .scope(|s| must_ok(s.serve(|| label = task::label())));
        assert_eq!(label, Some("scope"));
    });
}

/// On one full pool, a request is refused, one producer waits for a limited time, and another waits
/// without a limit.
#[test]
fn finding5_each_submission_has_its_policy() {
    timed(|| {
        let pool = Arc::new(pool(1, 0));
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        saturated(pool.serve(|| ()));
        let start = std::time::Instant::now();
        saturated(pool.when_full(WhenFull::BlockFor(ms(20))).serve(|| ()));
        assert!(start.elapsed() >= ms(20));
        let batch = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.when_full(WhenFull::Block).serve(|| ()).is_ok())
        };
        wait_until("the batch to wait", || pool.stats().waiting == 1);
        gate.open();
        assert!(batch.join().expect("no panic"));
        assert_eq!(settle(&pool).completed, 2);
    });
}

/// An error type like that of anyhow, which accepts every error that is `Send` and `Sync`.
struct Any;

impl<E: Error + Send + Sync + 'static> From<E> for Any {
    fn from(_: E) -> Self {
        Self
    }
}

#[test]
fn finding6_question_mark_takes_every_closure() {
    fn both(pool: &Pool) -> Result<u8, Any> {
        let (one, two) = (Cell::new(1), Cell::new(2));
        pool.when_full(WhenFull::Block).serve(move || one.set(3))?;
        Ok(pool
            .when_full(WhenFull::Block)
            .do_with_deadline(move || two.get(), LONG)?)
    }
    fn boxed(pool: &Pool) -> Result<u8, Box<dyn Error + Send + Sync>> {
        let three = Cell::new(3);
        Ok(pool.do_with_deadline(move || three.get(), LONG)?)
    }
    timed(|| {
        let pool = pool(1, 4);
        assert!(matches!(both(&pool), Ok(2)));
        assert!(matches!(boxed(&pool), Ok(3)));
        pool.shutdown(Shutdown::Drain, LONG);
        assert!(both(&pool).is_err());
        assert!(boxed(&pool).is_err());
    });
}

#[test]
fn finding7_abandoned_refused_and_waiting_have_figures() {
    timed(|| {
        let pool = Arc::new(pool(1, 0));
        let gate = Gate::new();
        let group = pool.group();
        must_ok(group.serve(gate.task()));
        gate.wait_entered(1);
        saturated(pool.serve(|| ()));
        let blocked = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.when_full(WhenFull::Block).serve(|| ()).is_ok())
        };
        wait_until("a submitter to wait", || pool.stats().waiting == 1);
        group.cancel();
        assert!(group.serve(|| ()).is_err());
        // The cancel does not end the wait of this submitter, which is not in the group.
        let stats = pool.stats();
        assert_eq!(stats.waiting, 1);
        assert_eq!(stats.abandoned, 1, "{stats:?}");
        let refusals = stats.refusals;
        assert_eq!(
            (refusals.saturated, refusals.cancelled),
            (1, 1),
            "{stats:?}"
        );
        pool.shutdown(Shutdown::Drain, Duration::ZERO);
        assert!(!blocked.join().expect("no panic"));
        let stats = pool.stats();
        assert_eq!((stats.refusals.closed, stats.refused), (1, 3), "{stats:?}");
        gate.open();
    });
}

/// Queued tasks whose turn comes too late are not started.
#[test]
fn finding8_nothing_is_started_in_vain() {
    timed(|| {
        let pool = pool(1, 64);
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let ran = Arc::new(AtomicUsize::new(0));
        let requests = pool.with_deadline(LONG).min_remaining(LONG - ms(10));
        for _ in 0..50 {
            let ran = Arc::clone(&ran);
            must_ok(requests.serve(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            }));
        }
        thread::sleep(ms(10)); // by now each has less time left than it needs
        gate.open();
        let stats = settle(&pool);
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        assert_eq!((stats.expired, stats.completed), (50, 1), "{stats:?}");
    });
}

#[track_caller]
fn must_ok<F>(outcome: Result<(), Refused<F>>) {
    outcome.map_err(Refused::without_closure).expect("room");
}
