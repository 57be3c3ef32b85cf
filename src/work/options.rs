//! The options of a task: its label, its times, its group. A task stores only the options that it
//! has, and pays nothing for the others.

use crate::parts::deadline::LONGEST;
use crate::parts::members::{Members, Pending};
use crate::work::env::{Env, NEVER};
use std::num::NonZero;
use std::time::Duration;

/// The options of a task, read from where they are stored.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options<'a> {
    pub(crate) label: Option<&'static str>,
    pub(crate) times: Option<TaskTimes>,
    pub(crate) group: Option<&'a Members>,
}

impl Options<'_> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.label.is_none() && self.times.is_none() && self.group.is_none()
    }
}

/// The form in which a task stores its options: none, one of them, or a pair of such forms.
pub(crate) trait StoredOptions: Send + Sized + 'static {
    /// Adds the stored options to `options`.
    fn add_options<'a>(&'a self, _options: &mut Options<'a>) {}

    /// Takes the task's place in its group, if it is stored here.
    #[inline]
    fn take_pending(&mut self) -> Option<Pending> {
        None
    }

    /// Makes the place in its group of a call, whose options stay with the caller.
    ///
    /// # Safety
    /// The task is inside its group, and the caller makes no other place of it that is used up.
    #[inline]
    unsafe fn pending_of_call(&self) -> Option<Pending> {
        None
    }
}

impl StoredOptions for () {}

impl StoredOptions for &'static str {
    fn add_options(&self, options: &mut Options<'_>) {
        options.label = Some(self);
    }
}

impl StoredOptions for Option<&'static str> {
    fn add_options(&self, options: &mut Options<'_>) {
        options.label = *self;
    }
}

impl StoredOptions for Option<TaskTimes> {
    fn add_options(&self, options: &mut Options<'_>) {
        options.times = *self;
    }
}

impl StoredOptions for Option<Pending> {
    fn add_options<'a>(&'a self, options: &mut Options<'a>) {
        options.group = self.as_ref().map(Pending::members);
    }

    #[inline]
    fn take_pending(&mut self) -> Option<Pending> {
        self.take()
    }
}

impl<A: StoredOptions, B: StoredOptions> StoredOptions for (A, B) {
    fn add_options<'a>(&'a self, options: &mut Options<'a>) {
        self.0.add_options(options);
        self.1.add_options(options);
    }

    #[inline]
    fn take_pending(&mut self) -> Option<Pending> {
        self.0.take_pending().or_else(|| self.1.take_pending())
    }
}

/// The times within which a task must start and end, in nanoseconds. [`NEVER`] stands for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskTimes {
    /// The last moment at which the task may start, as returned by [`Env::nanos`].
    start_by: u64,
    /// The task's own deadline, as returned by [`Env::nanos`], which never returns zero. So an
    /// `Option<TaskTimes>` takes no more space than a `TaskTimes`.
    due: NonZero<u64>,
    /// The time that the task may take from its start.
    run_limit: u64,
}

impl TaskTimes {
    /// Returns the times of a task. The task must start while at least `min_remaining` is left
    /// until the deadline `before`. It must end by the deadline `due` and within `run_limit`.
    /// Returns `None` if there is neither a deadline `before` nor a `run_limit`.
    #[inline]
    pub(crate) fn new(
        before: u64,
        min_remaining: Duration,
        due: u64,
        run_limit: Duration,
    ) -> Option<Self> {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(NEVER);
        let has_limit = run_limit <= LONGEST;
        (before != NEVER || has_limit).then(|| Self {
            start_by: match before {
                NEVER => NEVER,
                // At the deadline itself it is too late, even if `min_remaining` is zero.
                before => before.saturating_sub(nanos(min_remaining).max(1)),
            },
            due: NonZero::new(due).expect("an instant after the epoch"),
            run_limit: if has_limit { nanos(run_limit) } else { NEVER },
        })
    }

    /// Returns the task's own deadline in the form that [`Env::nanos`] returns.
    pub(crate) fn due(self) -> u64 {
        self.due.get()
    }

    /// Returns the deadline of a task that starts now, or `None` if it is too late to start the
    /// task.
    pub(crate) fn start(self, env: &Env) -> Option<u64> {
        let now = env.nanos_now();
        (now <= self.start_by).then(|| self.due().min(now.saturating_add(self.run_limit)))
    }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
mod tests {
    use super::*;
    use crate::work::env::Hooks;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_window_ends_before_the_deadline_by_what_must_be_left() {
        let of = |due, least| {
            let times = TaskTimes::new(due, Duration::from_nanos(least), due, Duration::MAX);
            times.expect("a deadline").start_by
        };
        assert_eq!(of(100, 0), 99, "at the deadline it is too late");
        assert_eq!(of(100, 1), 99);
        assert_eq!(of(100, 30), 70);
        assert_eq!(of(100, 100), 0, "never");
        assert_eq!(of(100, 101), 0);
        let longest = TaskTimes::new(NEVER - 1, Duration::MAX, NEVER, Duration::MAX);
        assert_eq!(longest.expect("a deadline").start_by, 0);
    }

    #[test]
    fn a_window_closes_when_too_little_is_left() {
        let env = Env::new(String::new(), Hooks::default(), false);
        let due = env.nanos_now() + 60 * SECOND;
        let start = |least| {
            let times = TaskTimes::new(due, Duration::from_secs(least), due, Duration::MAX);
            times.expect("a deadline").start(&env)
        };
        assert_eq!((start(0), start(61)), (Some(due), None));
    }

    #[test]
    fn the_earlier_of_deadline_and_run_limit_counts() {
        let env = Env::new(String::new(), Hooks::default(), false);
        let new = |due, limit| TaskTimes::new(due, Duration::ZERO, due, limit);
        let start = |due, limit| new(due, limit).expect("a limit").start(&env);
        let (second, now) = (Duration::from_secs(1), env.nanos_now());
        for due in [start(NEVER, second), start(now + 60 * SECOND, second)] {
            let due = due.expect("in time");
            assert!((now + SECOND..=env.nanos_now() + SECOND).contains(&due));
        }
        let soon = now + 60 * SECOND;
        assert_eq!(start(soon, Duration::from_secs(90)), Some(soon));
        assert_eq!(start(soon, Duration::MAX), Some(soon));
        assert_eq!(new(NEVER, Duration::MAX), None);
        assert_eq!(new(NEVER, Duration::from_secs(u64::MAX / 2)), None);
        let longest = start(NEVER, Duration::from_nanos(u64::MAX / 2)).expect("in time");
        assert!(env.instant(longest) > env.instant(now));
    }
}
