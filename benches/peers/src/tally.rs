//! Counts the tasks that ran, so that no figure can come from tasks that did not.
//!
//! Each thread has its own counter, padded to 128 bytes. A counter that two workers share, or that
//! lies beside a word that the pool reads, costs more than most of the measured operations.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The counters: one for each thread that has counted, in the order of their first tasks.
static STRIPES: [CachePadded<AtomicU64>; 1024] =
    [const { CachePadded::new(AtomicU64::new(0)) }; 1024];
static USED: CachePadded<AtomicUsize> = CachePadded::new(AtomicUsize::new(0));

thread_local! {
    static MINE: &'static AtomicU64 = &STRIPES[USED.fetch_add(1, Ordering::AcqRel)];
}

/// Counts one more task that ran.
#[inline]
pub(crate) fn tick() {
    // Only this thread writes the counter, so this need not be a read-modify-write.
    MINE.with(|mine| mine.store(mine.load(Ordering::Relaxed) + 1, Ordering::Release));
}

fn total() -> u64 {
    let used = &STRIPES[..USED.load(Ordering::Acquire)];
    used.iter().map(|s| s.load(Ordering::Acquire)).sum()
}

/// Counts the tasks that run from its start on.
pub(crate) struct Tally(u64);

impl Tally {
    pub(crate) fn start() -> Self {
        Self(total())
    }

    pub(crate) fn ran(&self) -> u64 {
        total() - self.0
    }

    /// Waits until `n` tasks have run, and asserts that no more have. Does not sleep at first,
    /// because a sleep ends late. Yields instead, because the kernel may have woken a worker on
    /// this core although another core is idle.
    pub(crate) fn wait(&self, n: u64) {
        let start = Instant::now();
        while self.ran() < n {
            let waited = start.elapsed();
            assert!(waited.as_secs() < 60, "only {} of {n} ran", self.ran());
            if waited < Duration::from_millis(1) {
                (0..64).for_each(|_| std::hint::spin_loop());
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(20));
            }
        }
        assert_eq!(self.ran(), n, "tasks that ran, tasks submitted");
    }
}
