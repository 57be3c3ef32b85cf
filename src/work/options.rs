//! Options of a task: what surrounds a job that has a label, or a deadline or run limit of its own.
//! A job without them is not surrounded, and pays nothing.

use crate::parts::deadline::Deadline;
use crate::parts::members::Members;
use crate::work::context::Ctx;
use crate::work::env::Env;
use crate::work::job::{End, Ending, Job, NeverRan, Release};
use crate::work::observe::Seen;
use std::time::Duration;

/// A job with a label.
pub(crate) struct Labeled<J> {
    pub(crate) label: &'static str,
    pub(crate) job: J,
}

impl<J: Job> Job for Labeled<J> {
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

    fn discard(self, why: NeverRan, seen: Seen) -> Release {
        self.job.discard(why, seen)
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
    /// At any time.
    pub(crate) const ANY: Self = Self(u64::MAX);

    /// For a task with this deadline.
    pub(crate) fn of(due: u64, min_remaining: Duration) -> Self {
        let least = u64::try_from(min_remaining.as_nanos()).unwrap_or(u64::MAX);
        // With nothing left the deadline has passed.
        Self(due.saturating_sub(least.max(1)))
    }

    /// Read where the task is started.
    pub(crate) fn has_passed(self, env: &Env) -> bool {
        env.nanos_now() > self.0
    }
}

/// When a task has had its time.
pub(crate) trait Limit: Copy {
    /// As [`Env::nanos`]; zero: never. It starts now.
    fn due(self, env: &Env) -> u64;
}

/// Its caller's deadline aside, it may take any time.
impl Limit for () {
    fn due(self, _: &Env) -> u64 {
        0
    }
}

/// At its own deadline, as [`Env::nanos`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due(pub(crate) u64);

impl Due {
    pub(crate) const NEVER: Self = Self(u64::MAX);
}

impl Limit for Due {
    fn due(self, _: &Env) -> u64 {
        self.0
    }
}

/// So many nanoseconds after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunLimit(u64);

impl RunLimit {
    /// `None`: the end is beyond the clock, as a deadline may be.
    pub(crate) fn of(limit: Duration) -> Option<Self> {
        let nanos = limit.as_nanos() as u64;
        (!Deadline::after(limit).is_never()).then_some(Self(nanos))
    }
}

impl Limit for RunLimit {
    fn due(self, env: &Env) -> u64 {
        env.nanos_now().saturating_add(self.0)
    }
}

/// At the earlier of the two.
impl Limit for (Due, RunLimit) {
    fn due(self, env: &Env) -> u64 {
        self.0.due(env).min(self.1.due(env))
    }
}

/// A job with a limit of its own, or one that may come too late to be started.
pub(crate) struct Timed<L, J> {
    start_by: StartBy,
    limit: L,
    pub(crate) job: J,
}

impl<L, J> Timed<L, J> {
    pub(crate) fn new(start_by: StartBy, limit: L, job: J) -> Self {
        Self {
            start_by,
            limit,
            job,
        }
    }
}

impl<L: Limit, J: Job> Job for Timed<L, J> {
    const MUST_RUN: bool = J::MUST_RUN;
    const AWAITED: bool = J::AWAITED;
    const OFFERED: bool = J::OFFERED;

    fn run(self, ctx: &Ctx<'_>, end: End<'_>) {
        if self.start_by.has_passed(ctx.env) {
            if !J::AWAITED {
                // What is dropped may take its time, and so may the waker of the task before, which
                // has to return before the worker takes its next task.
                ctx.settle_debts();
            }
            let mut release = self.job.discard(NeverRan::Expired, ctx.seen.take());
            // Not once the worker is as good as idle: a subscriber may take its time.
            release.seen = Seen::default();
            end(Ending::Expired);
            return ctx.owe(release.finish());
        }
        ctx.set_due(self.limit.due(ctx.env));
        self.job.run(ctx, &mut |how| {
            if !J::OFFERED {
                // Subscribers are told; where the outcome is decided they have been told before that.
                ctx.is_past_due();
            }
            end(if ctx.end_due() { how.late() } else { how })
        });
    }

    fn discard(self, why: NeverRan, seen: Seen) -> Release {
        self.job.discard(why, seen)
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
    fn a_window_closes_when_too_little_is_left() {
        let env = Env::new(String::new(), Hooks::default());
        let due = env.nanos_now() + 60_000_000_000;
        let passed = |least| StartBy::of(due, Duration::from_secs(least)).has_passed(&env);
        assert!(!passed(0) && passed(61));
        assert!(!StartBy::ANY.has_passed(&env));
    }

    #[test]
    fn the_earlier_of_deadline_and_run_limit_counts() {
        let env = Env::new(String::new(), Hooks::default());
        let second = RunLimit::of(Duration::from_secs(1)).expect("a limit");
        let now = env.nanos_now();
        for due in [second.due(&env), (Due::NEVER, second).due(&env)] {
            assert!((now + 1_000_000_000..=env.nanos_now() + 1_000_000_000).contains(&due));
        }
        assert_eq!((Due(now), second).due(&env), now);
        assert_eq!((Due(now).due(&env), ().due(&env)), (now, 0));
        assert_eq!(RunLimit::of(Duration::MAX), None);
        assert_eq!(RunLimit::of(Duration::from_secs(u64::MAX / 2)), None);
        let longest = RunLimit::of(Duration::from_nanos(u64::MAX / 2)).expect("a limit");
        assert!(env.instant(longest.due(&env)) > env.instant(now));
    }
}
