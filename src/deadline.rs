//! When a wait ends: an instant, or under loom a flag that a model thread
//! raises, so that expiry races everything else in every order.

use crate::sync::thread;

#[cfg(not(lazypool_loom))]
mod imp {
    use super::thread;
    use std::time::{Duration, Instant};

    /// The end of a wait; `None`: it has none.
    #[derive(Debug, Clone)]
    pub(crate) struct Deadline(Option<Instant>);

    impl Deadline {
        pub(crate) const NEVER: Self = Self(None);

        /// `limit` from now; never where that is past what an `Instant` holds.
        pub(crate) fn after(limit: Duration) -> Self {
            if limit == Duration::MAX {
                return Self::NEVER;
            }
            Self(Instant::now().checked_add(limit))
        }

        pub(crate) fn instant(&self) -> Option<Instant> {
            self.0
        }

        pub(crate) fn has_passed(&self) -> bool {
            self.0.is_some_and(|at| Instant::now() >= at)
        }

        /// Parks until unparked (perhaps spuriously) or until the end.
        pub(crate) fn park(&self) {
            match self.0 {
                None => thread::park(),
                Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            }
        }

        /// What is left; `None`: no end.
        pub(crate) fn left(&self) -> Option<Duration> {
            self.0
                .map(|at| at.saturating_duration_since(Instant::now()))
        }
    }
}

#[cfg(lazypool_loom)]
mod imp {
    use super::thread;
    use crate::sync::{Arc, AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// The end of a wait: a flag; whoever raises it unparks the waiter.
    #[derive(Debug, Clone)]
    pub(crate) struct Deadline(pub(crate) Option<Arc<AtomicBool>>);

    impl Deadline {
        pub(crate) const NEVER: Self = Self(None);

        pub(crate) fn after(limit: Duration) -> Self {
            assert_eq!(limit, Duration::MAX, "models raise a flag instead");
            Self::NEVER
        }

        pub(crate) fn instant(&self) -> Option<Instant> {
            None
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
