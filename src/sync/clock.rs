//! What an instant is.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod imp {
    pub(crate) use std::time::Instant;

    /// As the crate's callers know it.
    #[inline(always)]
    pub(crate) fn told(at: Instant) -> Instant {
        at
    }

    /// As the crate knows it.
    pub(crate) fn given(at: Instant) -> Instant {
        at
    }
}

/// There, asking `std` for the time is a panic. A clock that stands still will do: there are
/// no threads either, so every submission comes back, and nothing ever waits.
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

    pub(crate) fn told(_: Instant) -> std::time::Instant {
        unreachable!("only a task has a deadline to tell, and none runs on a worker")
    }

    pub(crate) fn given(_: std::time::Instant) -> Instant {
        unreachable!("nobody can have one")
    }
}

pub(crate) use imp::{given, told, Instant};
