//! Law 17: a task that is cancelled after its deadline has passed counts as expired, not discarded.

mod common;

use std::time::Duration;

use common::*;
use lazypool::{Handle, Pool, Shutdown, TaskError};

/// The number of ways to cancel a queued task: dropping its handle, cancelling it, cancelling its
/// group.
const WAYS: u32 = 3;

fn cancel(way: u32, handle: Handle<()>, group: &lazypool::Group) -> Option<Handle<()>> {
    match way {
        0 => {
            drop(handle);
            return None;
        }
        1 => handle.cancel(),
        _ => group.cancel(),
    }
    Some(handle)
}

fn ends(pool: &Pool) -> (u64, u64, usize) {
    let stats = pool.stats();
    (stats.expired, stats.discarded, stats.queued)
}

#[test]
fn law17_a_task_cancelled_after_its_deadline_counts_as_expired() {
    timed(|| {
        for way in 0..WAYS {
            let gate = Gate::new();
            let pool = occupied(&gate, 4);
            let group = pool.with_deadline(ms(1)).group();
            let handle = must_await(group.awaitable(), || ());
            std::thread::sleep(ms(2));
            let handle = cancel(way, handle, &group);
            assert_eq!(ends(&pool), (1, 0, 0), "{way}");
            if let Some(handle) = handle {
                assert!(handle.is_finished());
                let error = handle.join().unwrap_err();
                let told = matches!(error, TaskError::Cancelled | TaskError::Expired);
                assert!(told, "{error:?}");
            }
            assert_eq!(group.pending(), 0);
            gate.open();
            check_at_rest(&pool, &settle(&pool));
        }
    });
}

#[test]
fn law17_a_task_cancelled_before_its_deadline_counts_as_discarded() {
    timed(|| {
        for way in 0..WAYS {
            for far in [LONG, Duration::MAX] {
                let gate = Gate::new();
                let pool = occupied(&gate, 4);
                let group = pool.with_deadline(far).group();
                let handle = must_await(group.awaitable(), || ());
                let handle = cancel(way, handle, &group);
                assert_eq!(ends(&pool), (0, 1, 0), "{way}");
                if let Some(handle) = handle {
                    assert!(matches!(handle.join(), Err(TaskError::Cancelled)));
                }
                gate.open();
                check_at_rest(&pool, &settle(&pool));
            }
        }
    });
}

/// A run limit begins when the task starts, so it sets no deadline for a queued task.
#[test]
fn law17_a_run_limit_does_not_expire_a_queued_task() {
    timed(|| {
        for way in 0..WAYS {
            let gate = Gate::new();
            let pool = occupied(&gate, 4);
            let group = pool.run_limit(ms(1)).group();
            let handle = must_await(group.awaitable(), || ());
            std::thread::sleep(ms(2));
            drop(cancel(way, handle, &group));
            assert_eq!(ends(&pool), (0, 1, 0), "{way}");
            gate.open();
        }
    });
}

/// A queued task that a shutdown discards counts as discarded, even if its deadline has passed.
#[test]
fn law10_a_late_task_that_a_shutdown_discards_counts_as_discarded() {
    timed(|| {
        let gate = Gate::new();
        let pool = occupied(&gate, 4);
        must_await(pool.with_deadline(ms(1)).awaitable(), || ()).detach();
        std::thread::sleep(ms(2));
        let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
        assert_eq!((report.discarded, ends(&pool)), (1, (0, 1, 0)));
        gate.open();
    });
}
