//! Law 20: who goes first where space comes up.

use super::super::shutdown::{shutdown, WaitsFor};
use super::*;
use crate::builder::Builder;
use crate::parts::deadline::Deadline;
use crate::stats::Shutdown;
use crate::work::observe::Seen as Submitted;
use std::sync::mpsc;
use std::time::Duration;

fn serve(core: &Arc<Core>, f: impl FnOnce() + Send + 'static) -> Result<(), SubmitError> {
    let mut task = Some(Task::new(Submitted::now(&core.env), (), f));
    core.submit_plain(&mut task).map(drop)
}

/// A submission that has waited for a millisecond has the first space; others get what is left
/// beside it, or are refused.
#[test]
fn law20_others_take_space_only_beside_what_the_aged_need() {
    for queue in [0, 1] {
        let builder = Builder::new().max_workers(1).queue_capacity(queue);
        let (core, _) = builder.into_core().expect("a pool");
        let (_open, gate) = mpsc::channel::<()>();
        let mut aged: Vec<_> = (0..=queue).map(|_| core.waiters.join()).collect();
        // A slot, and the queue as far as it is awake.
        if queue > 0 {
            assert!(serve(&core, || ()).is_ok());
            while core.stats().idle == 0 {
                std::thread::yield_now();
            }
        }
        for waiting in &mut aged {
            while !waiting.is_aged() {
                waiting.rejoin();
                // Only the first wakes up by itself once it is aged.
                waiting.sleep(&Deadline::from_now(Duration::from_millis(2)));
            }
        }
        let refused = serve(&core, || ());
        assert!(
            matches!(refused, Err(SubmitError::Refused(Refusal::Saturated))),
            "{refused:?}"
        );
        aged.pop();
        assert!(serve(&core, move || gate.recv().unwrap_or(())).is_ok());
        drop((aged, _open));
        let report = shutdown(&core, Shutdown::Drain, Duration::MAX, WaitsFor::All);
        assert!(report.is_clean());
    }
}
