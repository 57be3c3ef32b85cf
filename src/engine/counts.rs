//! Counts of what is rare.

use crate::error::Refusal;
use crate::stats::RefusalCounts;
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::cell::Cell;

#[derive(Debug)]
pub(crate) struct Counts {
    refused: Sharded,
    pub(crate) expired: AtomicU64,
    pub(crate) discarded: AtomicU64,
    /// Of those, by shutdowns.
    pub(crate) shut_out: AtomicU64,
    /// Queued tasks that were taken out by others than workers: expired or discarded.
    pub(crate) removed: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) spawn_failures: AtomicU64,
}

/// Refusals, counted on a line per thread as far as there are lines.
#[derive(Debug)]
struct Sharded([CachePadded<[AtomicU64; REASONS]>; SHARDS]);

const SHARDS: usize = if cfg!(any(lazypool_loom, lazypool_shuttle)) {
    2
} else {
    16
};
const REASONS: usize = 7;

/// Why a submission was not taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    Saturated,
    Closed,
    Cancelled,
    SpawnFailed,
    OnWorker,
    Forked,
    Expired,
}

impl Reason {
    pub(crate) fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Saturated => Self::Saturated,
            Refusal::Closed => Self::Closed,
            Refusal::Cancelled => Self::Cancelled,
            Refusal::SpawnFailed(_) => Self::SpawnFailed,
            Refusal::OnWorker => Self::OnWorker,
            Refusal::Forked => Self::Forked,
        }
    }
}

impl Sharded {
    fn new() -> Self {
        Self(std::array::from_fn(|_| {
            CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)))
        }))
    }

    #[inline]
    fn count(&self, reason: Reason) {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        std::thread_local! {
            /// Zero: not chosen yet.
            static SHARD: Cell<usize> = const { Cell::new(0) };
        }
        // Relaxed, both: a number, and a count.
        let shard = SHARD.with(|shard| {
            if shard.get() == 0 {
                shard.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) | SHARDS);
            }
            shard.get()
        });
        self.0[shard % SHARDS][reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, reason: Reason) -> u64 {
        // Relaxed: counts.
        (self.0.iter())
            .map(|shard| shard[reason as usize].load(Ordering::Relaxed))
            .sum()
    }
}

impl Counts {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            refused: Sharded::new(),
            expired: zero(),
            discarded: zero(),
            shut_out: zero(),
            removed: zero(),
            timed_out: zero(),
            spawn_failures: zero(),
        }
    }

    #[inline]
    pub(crate) fn refuse(&self, reason: Reason) {
        self.refused.count(reason);
    }

    pub(crate) fn refusals(&self) -> RefusalCounts {
        RefusalCounts {
            saturated: self.refused.of(Reason::Saturated),
            closed: self.refused.of(Reason::Closed),
            cancelled: self.refused.of(Reason::Cancelled),
            spawn_failed: self.refused.of(Reason::SpawnFailed),
            on_worker: self.refused.of(Reason::OnWorker),
            forked: self.refused.of(Reason::Forked),
            expired: self.refused.of(Reason::Expired),
        }
    }

    /// A task that was accepted has expired.
    pub(crate) fn expire(&self) {
        // ORDERING: L1: after it was accepted.
        self.expired.fetch_add(1, Ordering::SeqCst);
    }

    /// A task was taken out of the queue, and no worker has it.
    pub(crate) fn remove_queued(&self) {
        // ORDERING: L1: after it was accepted.
        self.removed.fetch_add(1, Ordering::SeqCst);
    }

    /// A task that was accepted was dropped unrun.
    pub(crate) fn discard(&self) {
        // ORDERING: L1: as above.
        self.discarded.fetch_add(1, Ordering::SeqCst);
    }
}
