//! When a wait ends: an instant, or under loom a flag that a model thread
//! raises, so that expiry races everything else in every order.

use crate::sync::{now, thread, Instant};
use std::time::Duration;

/// A deadline as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// From the first look on.
    After(Duration),
    At(Instant),
}

impl Until {
    pub(crate) const NEVER: Self = Self::After(Duration::MAX);

    /// How long it is from now.
    #[inline]
    pub(crate) fn left(self) -> Duration {
        match self {
            Self::After(limit) => limit,
            Self::At(at) => at.saturating_duration_since(now()),
        }
    }
}

#[cfg(not(lazypool_loom))]
mod imp {
    use super::{now, thread, Instant, Until};
    use std::cell::Cell;
    use std::time::Duration;

    /// The end of a wait. The clock is read when it is first looked at: that takes
    /// as long as half a hand-over, during which a worker can be at work already.
    #[derive(Debug)]
    pub(crate) struct Deadline(Cell<Option<Until>>);

    /// A longer limit is no limit: 292 years, which no platform's clock ends within.
    const LONGEST: Duration = Duration::from_nanos(u64::MAX / 2);

    impl Deadline {
        pub(crate) const fn never() -> Self {
            Self(Cell::new(None))
        }

        /// Whether there is a deadline at all is decided here, once: who asks before the
        /// clock is read and who asks after it get the same answer.
        #[inline]
        pub(crate) fn new(until: Until) -> Self {
            Self(Cell::new((until.left() <= LONGEST).then_some(until)))
        }

        /// With the clock read now.
        pub(crate) fn from_now(limit: Duration) -> Self {
            let deadline = Self::new(Until::After(limit));
            deadline.instant();
            deadline
        }

        pub(crate) fn is_never(&self) -> bool {
            self.0.get().is_none()
        }

        /// When it is; `None` if it is never.
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

        /// Parks until unparked (perhaps spuriously) or until the end.
        pub(crate) fn park(&self) {
            match self.left() {
                None => thread::park(),
                Some(left) => thread::park_timeout(left),
            }
        }

        /// What is left; `None`: no end.
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

    /// The end of a wait: a flag; whoever raises it unparks the waiter.
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

        /// No time at all has passed at once.
        pub(crate) fn from_now(limit: Duration) -> Self {
            if limit.is_zero() {
                return Self(Some(Arc::new(AtomicBool::new(true))));
            }
            Self::new(Until::After(limit))
        }

        pub(crate) fn is_never(&self) -> bool {
            self.0.is_none()
        }

        /// Any: nothing depends on which.
        pub(crate) fn instant(&self) -> Option<Instant> {
            self.0.as_ref().map(|_| now())
        }

        pub(crate) fn has_passed(&self) -> bool {
            self.0.as_ref().is_some_and(|f| f.load(Ordering::SeqCst))
        }

        pub(crate) fn park(&self) {
            if !self.has_passed() {
                thread::park();
            }
        }

        pub(crate) fn left(&self) -> Option<Duration> {
            self.0.as_ref().map(|_| Duration::ZERO)
        }
    }
}

pub(crate) use imp::Deadline;

impl Deadline {
    /// The one that comes first.
    pub(crate) fn earlier<'a>(&'a self, other: &'a Self) -> &'a Self {
        match (self.instant(), other.instant()) {
            (Some(own), Some(at)) if own < at => self,
            (Some(_), None) => self,
            _ => other,
        }
    }
}
