//! Counts of rare events.

use crate::core::submission::SubmitError;
use crate::error::Refusal;
use crate::parts::backoff::IN_MODELS;
use crate::stats::RefusalCounts;
use crate::sync::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

#[derive(Debug, Default)]
pub(crate) struct RareCounts {
    /// The number of refusals, by shard and [`reason`]. Each thread counts in one shard.
    refused: [CachePadded<[AtomicU64; REASONS]>; SHARDS],
    /// Accepted tasks that expired before they started.
    pub(crate) expired: AtomicU64,
    /// Accepted tasks that were dropped without being run, for another reason.
    pub(crate) discarded: AtomicU64,
    /// Of the `discarded` tasks, those that a shutdown took out.
    pub(crate) shut_out: AtomicU64,
    pub(crate) spawn_failures: AtomicU64,
    /// How many tasks had been pushed, plus one, as the OS last refused a thread.
    pub(crate) refused_at: AtomicU64,
}

const SHARDS: usize = if IN_MODELS { 2 } else { 16 };
const REASONS: usize = 8;

/// Returns the index of a refusal's count. [`RareCounts::refusals`] uses the same indices.
fn reason(why: &SubmitError) -> usize {
    match why {
        SubmitError::Refused(Refusal::Saturated) => 0,
        SubmitError::Refused(Refusal::Closed) => 1,
        SubmitError::Refused(Refusal::Cancelled) => 2,
        SubmitError::Refused(Refusal::SpawnFailed(_)) => 3,
        SubmitError::Refused(Refusal::OnWorker) => 4,
        SubmitError::Refused(Refusal::Forked) => 5,
        SubmitError::Expired => 6,
        SubmitError::Refused(Refusal::GroupFull) => 7,
    }
}

impl RareCounts {
    /// Counts a refusal, and returns it.
    #[inline]
    pub(crate) fn refuse(&self, why: SubmitError) -> SubmitError {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        std::thread_local! {
            /// The number that selects this thread's shard.
            // Relaxed: it only gives unique numbers.
            static SHARD: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let shard = SHARD.with(|number| number % SHARDS);
        // Relaxed: a count.
        self.refused[shard][reason(&why)].fetch_add(1, Ordering::Relaxed);
        why
    }

    pub(crate) fn refusals(&self) -> RefusalCounts {
        // Relaxed: counts.
        let sum = |reason: usize| {
            (self.refused.iter())
                .map(|shard| shard[reason].load(Ordering::Relaxed))
                .sum()
        };
        RefusalCounts {
            saturated: sum(0),
            closed: sum(1),
            cancelled: sum(2),
            spawn_failed: sum(3),
            on_worker: sum(4),
            forked: sum(5),
            expired: sum(6),
            group_full: sum(7),
        }
    }

    /// Counts an accepted task that has expired.
    pub(crate) fn expire(&self) {
        // ORDERING: L1: comes after the step that accepted the task. `stats` reads this count
        // before it reads the counts of accepted tasks.
        self.expired.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts an accepted task that was dropped unrun.
    pub(crate) fn discard(&self) {
        // ORDERING: L1: as in `expire`.
        self.discarded.fetch_add(1, Ordering::SeqCst);
    }
}
