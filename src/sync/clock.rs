//! The type of an instant, and its conversions.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod imp {
    pub(crate) use std::time::Instant;

    /// Converts an instant of the crate to the type that users see.
    #[inline(always)]
    pub(crate) fn to_std(at: Instant) -> Instant {
        at
    }

    /// Converts an instant that a user gave to the type that the crate uses.
    pub(crate) fn from_std(at: Instant) -> Instant {
        at
    }
}

/// On this target, a request for the time panics in `std`. So the clock stands still. That is
/// enough, because the target has no threads either: every submission is refused, and nothing ever
/// waits.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod imp {
    use std::ops::Add;
    use std::time::Duration;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            Self(Duration::ZERO)
        }

        pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
            self.0.checked_add(time).map(Self)
        }

        pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0 + time)
        }
    }

    pub(crate) fn to_std(_: Instant) -> std::time::Instant {
        unreachable!("only a task has a deadline to tell, and none runs on a worker")
    }

    pub(crate) fn from_std(_: std::time::Instant) -> Instant {
        unreachable!("no caller can have an instant")
    }
}

pub(crate) use imp::{from_std, to_std, Instant};
