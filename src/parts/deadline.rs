//! The end of a wait. It is an instant. Under loom it is a flag that a thread of the model raises,
//! so that the deadline can pass between any two steps of other threads.

use crate::sync::{now, thread, Instant};
use std::time::Duration;

/// A deadline as the user gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The time from the first look at the deadline until the deadline.
    After(Duration),
    At(Instant),
}

impl Until {
    pub(crate) const NEVER: Self = Self::After(Duration::MAX);

    /// Returns the time from now until the deadline.
    #[inline]
    pub(crate) fn left(self) -> Duration {
        match self {
            Self::After(limit) => limit,
            Self::At(at) => at.saturating_duration_since(now()),
        }
    }
}

/// A limit above 292 years counts as no limit. On every platform, the sum of the current time and a
/// shorter limit can be represented.
pub(crate) const LONGEST: Duration = Duration::from_nanos(u64::MAX / 2);

#[cfg(not(lazypool_loom))]
mod imp {
    use super::{now, thread, Instant, Until, LONGEST};
    use std::cell::Cell;
    use std::time::Duration;

    /// The end of a wait. If it was given as a limit (`Until::After`), the clock is read only when
    /// the deadline is first looked at. By then, a worker can already be running the task. An
    /// earlier read would delay the task, because it takes as long as half a hand-over.
    #[derive(Debug)]
    pub(crate) struct Deadline(Cell<Option<Until>>);

    impl Deadline {
        pub(crate) const fn never() -> Self {
            Self(Cell::new(None))
        }

        /// Creates a deadline. Decides here, once, whether it is so far away that it counts as no
        /// deadline.
        #[inline]
        pub(crate) fn new(until: Until) -> Self {
            Self(Cell::new((until.left() <= LONGEST).then_some(until)))
        }

        /// Returns the deadline `limit` from now. Reads the clock at once.
        pub(crate) fn from_now(limit: Duration) -> Self {
            let deadline = Self::new(Until::After(limit));
            deadline.instant();
            deadline
        }

        /// Returns the instant of the deadline, or `None` if there is none.
        #[inline]
        pub(crate) fn instant(&self) -> Option<Instant> {
            let at = match self.0.get()? {
                Until::At(at) => return Some(at),
                Until::After(limit) => now() + limit,
            };
            self.0.set(Some(Until::At(at)));
            Some(at)
        }

        pub(crate) fn has_passed(&self) -> bool {
            self.instant().is_some_and(|at| now() >= at)
        }

        /// Returns `true` if the deadline had passed at `now`.
        pub(crate) fn has_passed_by(&self, now: Instant) -> bool {
            self.instant().is_some_and(|at| now >= at)
        }

        /// Parks until the thread is unparked, perhaps spuriously, or until the deadline. Returns
        /// `false` at once if the deadline has passed.
        #[must_use]
        pub(crate) fn park(&self) -> bool {
            match self.left() {
                None => thread::park(),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
            }
            true
        }

        /// Returns the time that is left, or `None` if there is no deadline.
        pub(crate) fn left(&self) -> Option<Duration> {
            self.instant().map(|at| at.saturating_duration_since(now()))
        }
    }
}

#[cfg(lazypool_loom)]
mod imp {
    use super::{now, thread, Instant, Until};
    use crate::sync::{Arc, AtomicBool, Ordering};
    use std::time::Duration;

    /// The end of a wait, as a flag. The thread that raises the flag also unparks the waiter.
    #[derive(Debug, Clone)]
    pub(crate) struct Deadline(pub(crate) Option<Arc<AtomicBool>>);

    impl Deadline {
        pub(crate) const fn never() -> Self {
            Self(None)
        }

        pub(crate) fn new(until: Until) -> Self {
            assert_eq!(until, Until::NEVER, "models raise a flag instead");
            Self::never()
        }

        /// Returns a deadline that has passed if `limit` is zero. In a model, the only other limit
        /// allowed is `Duration::MAX`, which is no limit.
        pub(crate) fn from_now(limit: Duration) -> Self {
            if limit.is_zero() {
                return Self(Some(Arc::new(AtomicBool::new(true))));
            }
            Self::new(Until::After(limit))
        }

        /// Returns an arbitrary instant if there is a deadline. Models do not depend on its value.
        pub(crate) fn instant(&self) -> Option<Instant> {
            self.0.as_ref().map(|_| now())
        }

        pub(crate) fn has_passed(&self) -> bool {
            self.0.as_ref().is_some_and(|f| f.load(Ordering::SeqCst))
        }

        pub(crate) fn has_passed_by(&self, _: Instant) -> bool {
            self.has_passed()
        }

        #[must_use]
        pub(crate) fn park(&self) -> bool {
            let waits = !self.has_passed();
            if waits {
                thread::park();
            }
            waits
        }

        pub(crate) fn left(&self) -> Option<Duration> {
            self.0.as_ref().map(|_| Duration::ZERO)
        }
    }
}

pub(crate) use imp::Deadline;
