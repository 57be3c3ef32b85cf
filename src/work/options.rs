//! Options of a task: what surrounds a job that has a label or a deadline of its own. A job
//! without them is not surrounded, and pays nothing.

use crate::parts::deadline::Deadline;
use crate::parts::members::Members;
use crate::work::context::Ctx;
use crate::work::env::Env;
use crate::work::job::{End, Ending, Job, NeverRan, Release};
use std::time::Duration;

/// A job with a label.
pub(crate) struct Labelled<J> {
    pub(crate) label: &'static str,
    pub(crate) job: J,
}

impl<J: Job> Job for Labelled<J> {
    const MUST_RUN: bool = J::MUST_RUN;
    const AWAITED: bool = J::AWAITED;
    const OFFERED: bool = J::OFFERED;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        ctx.set_label(Some(self.label));
        self.job.run(ctx, &mut |how| {
            // Before the worker is free for another task.
            ctx.set_label(None);
            end(how);
        });
    }

    fn discard(self, why: NeverRan) -> Release {
        self.job.discard(why)
    }

    fn members(&self) -> Option<&Members> {
        self.job.members()
    }
}

/// Until when a task may start: so much must be left of its deadline. As
/// [`Env::nanos`]; zero: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartBy(u64);

impl StartBy {
    fn of(due: u64, min_remaining: Duration) -> Self {
        let least = u64::try_from(min_remaining.as_nanos()).unwrap_or(u64::MAX);
        // With nothing left the deadline has passed.
        Self(due.saturating_sub(least.max(1)))
    }

    /// For a task with this deadline, if it has one.
    pub(crate) fn before(deadline: &Deadline, min_remaining: Duration, env: &Env) -> Option<Self> {
        Some(Self::of(env.nanos(deadline.instant()?), min_remaining))
    }

    /// Read where the task is started.
    pub(crate) fn has_passed(self, env: &Env) -> bool {
        env.nanos_now() > self.0
    }
}

/// A deadline of a task's own, and until when it may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    due: u64,
    start_by: StartBy,
}

impl Window {
    /// `None`: the deadline is beyond the clock.
    pub(crate) fn until(deadline: &Deadline, min_remaining: Duration, env: &Env) -> Option<Self> {
        let due = env.nanos(deadline.instant()?);
        Some(Self {
            due,
            start_by: StartBy::of(due, min_remaining),
        })
    }
}

/// A job with a deadline for which nobody waits.
pub(crate) struct Timed<J> {
    pub(crate) window: Window,
    pub(crate) job: J,
}

impl<J: Job> Job for Timed<J> {
    const MUST_RUN: bool = J::MUST_RUN;
    const AWAITED: bool = J::AWAITED;
    const OFFERED: bool = J::OFFERED;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        let Self { window, job } = self;
        if window.start_by.has_passed(ctx.env) {
            // What is dropped may take its time.
            ctx.pay_debts();
            ctx.forget_submission();
            job.members().inspect(|group| group.begin_discard());
            let release = job.discard(NeverRan::Expired);
            end(Ending::Expired);
            return ctx.owe(release.finish());
        }
        ctx.set_due(window.due);
        job.run(ctx, &mut |how| {
            let late = ctx.is_past_due();
            ctx.set_due(0);
            end(if late { how.late() } else { how });
        });
    }

    fn discard(self, why: NeverRan) -> Release {
        self.job.discard(why)
    }

    fn members(&self) -> Option<&Members> {
        self.job.members()
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::work::env::Hooks;

    #[test]
    fn a_window_ends_before_the_deadline_by_what_must_be_left() {
        let of = |due, nanos| StartBy::of(due, Duration::from_nanos(nanos)).0;
        assert_eq!(of(100, 0), 99, "at the deadline it is too late");
        assert_eq!(of(100, 1), 99);
        assert_eq!(of(100, 30), 70);
        assert_eq!(of(100, 100), 0, "never");
        assert_eq!(of(100, 101), 0);
        assert_eq!(StartBy::of(u64::MAX, Duration::MAX).0, 0);
    }

    #[test]
    fn what_never_ends_has_no_window() {
        let env = Env::new(String::new(), Hooks::default());
        let never = Deadline::from_now(Duration::MAX);
        assert_eq!(Window::until(&never, Duration::ZERO, &env), None);
        let long = Deadline::from_now(Duration::from_secs(60));
        let window = Window::until(&long, Duration::ZERO, &env).expect("a window");
        assert!(!window.start_by.has_passed(&env));
        let window = Window::until(&long, Duration::from_secs(61), &env).expect("a window");
        assert!(window.start_by.has_passed(&env));
    }
}
