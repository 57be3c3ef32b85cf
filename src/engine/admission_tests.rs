//! How a submission looks for room, and waits for it.

use super::super::shutdown::{shutdown, WaitsFor};
use super::*;
use crate::builder::Builder;
use crate::stats::Shutdown;
use crate::stats::WhenFull;
use crate::work::context::Ctx;
use crate::work::job::{End, Job, NeverRan, Release, Serve};
use std::sync::mpsc;
use std::time::Duration;

/// As a group's: it may be taken out of the queue.
struct Revocable;

impl Job for Revocable {
    const REVOCABLE: bool = true;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        Serve { f: || () }.run(ctx, end);
    }

    fn discard(self, _: NeverRan) -> Release {
        Release::default()
    }
}

fn revocable() -> Option<Task> {
    // SAFETY: Send and 'static.
    Some(unsafe { Task::new(Revocable) })
}

fn push(core: &Arc<Core>) -> u64 {
    match core.submit_plain(&mut revocable()) {
        Ok(Location::Queue { position }) => position,
        other => panic!("not queued: {other:?}"),
    }
}

/// As a cancel of its group does, but that it notifies nobody.
fn withdraw(core: &Core, position: u64) {
    let queue = core.queue.as_ref().expect("a queue");
    let task = queue.withdraw(position, || core.counts.discard_queued());
    let task = task.expect("a task in the queue");
    let _seen = task.discard(NeverRan::Cancelled).release();
}

/// A full queue, which one look does not get through; a task taken out makes room behind where a
/// submitter's look has come to. It finds that with its next try, if it was notified of it, or
/// joins the list after it: it may sleep then, and nobody notifies it again.
#[test]
fn a_submitter_looks_for_room_anew_once_it_is_notified_and_once_it_joins() {
    const LENGTH: usize = 600;
    for is_notified in [true, false] {
        let builder = Builder::new()
            .max_workers(1)
            .queue_capacity(LENGTH)
            .when_full(WhenFull::Block);
        let (core, _) = builder.into_core().expect("a pool");
        let (open, gate) = mpsc::channel::<()>();
        let f = move || gate.recv().unwrap_or(());
        // SAFETY: Send and 'static.
        let mut busy = Some(unsafe { Task::new(Serve { f }) });
        assert!(core.submit_plain(&mut busy).is_ok(), "a new thread");
        while core.stats().running == 0 {
            std::thread::yield_now();
        }
        let at: Vec<_> = (0..LENGTH).map(|_| push(&core)).collect();
        let [near, far, last] = [3, LENGTH - 2, LENGTH - 1].map(|n| at[n]);
        withdraw(&core, far);
        withdraw(&core, last);
        // The next look begins behind this one: at the oldest task.
        assert_eq!(push(&core), last);

        let (entry, options, mut task) = (Entry::new(), SubmitOptions::PLAIN, revocable());
        let mut wait = Wait::new(&core, &options, &entry);
        if is_notified {
            wait.before_next_try(true);
        }
        wait.before_try();
        let not = core.attempt(&mut task, &options, &wait);
        assert!(matches!(not, Err(Not::Settled)), "{not:?}");
        assert!(wait.sweep.take_advance(), "it has not looked at all");
        assert_eq!(push(&core), far, "another looks on from there");
        withdraw(&core, near);
        core.notify_waiter();
        if !is_notified {
            wait.before_next_try(true);
        }
        wait.before_try();
        let taken = core.attempt(&mut task, &options, &wait);
        assert!(
            matches!(taken, Ok(Location::Queue { position }) if position == near),
            "notified: {is_notified}: {taken:?}"
        );
        drop(wait);
        open.send(()).expect("it waits");
        let report = shutdown(&core, Shutdown::Drain, Duration::MAX, WaitsFor::All);
        assert!(report.is_clean());
    }
}
