//! Reads a pool's figures and workers while tasks come and go, and asserts what must hold. Law 9.

use crate::calls::LABELS;
use crate::ledger::{Book, Fate, Known};
use crate::Bench;

/// Returns the closures that run now, with their numbers.
fn running(book: &Book) -> Vec<(usize, Known)> {
    let runs = |known: &Known| known.runs == 1 && known.ended.is_none();
    let tickets = book.tickets.iter().copied().enumerate();
    tickets.filter(|(_, known)| runs(known)).collect()
}

impl Bench {
    /// Reads `stats`, as any thread may, and asserts what holds at every moment.
    pub fn look_at_stats(&self) {
        let accepted = |known: &Known| matches!(known.fate, Fate::Accepted | Fate::Runs);
        let (before, unended): (u64, Vec<usize>) = {
            let book = self.books.book();
            let taken = book.tickets.iter().enumerate();
            let taken: Vec<_> = taken.filter(|(_, known)| accepted(known)).collect();
            let unended = taken.iter().filter(|(_, known)| known.drops == 0);
            (taken.len() as u64, unended.map(|(n, _)| *n).collect())
        };
        let stats = self.pool.stats();
        let unended = {
            let book = self.books.book();
            let is_left = |n: &&usize| book.tickets[**n].drops == 0;
            let running = |n: &usize| book.tickets[*n].ended.is_none();
            unended
                .iter()
                .filter(is_left)
                .filter(|n| running(n))
                .count()
        };
        let ended = stats.completed + stats.panicked + stats.expired + stats.discarded;
        let (max, room) = (self.pool.max_workers(), self.pool.queue_capacity());
        // A busy worker may have taken its next task and not counted it yet.
        let running = stats.running as u64;
        assert!(
            before <= stats.accepted + running,
            "{before} were accepted: {stats:?}"
        );
        assert!(ended <= stats.accepted, "ended before it began: {stats:?}");
        // Some tasks are counted as discarded before they are dropped. A task that was taken out
        // between two reads may be in none of the sums, but has been counted by now.
        let later = self.pool.stats();
        let gone = (later.discarded + later.expired) as usize;
        let left = stats.queued + stats.running;
        // `queued` is never more than the queue's capacity: if it is that, tasks that workers have
        // just popped and not counted yet may be in no sum.
        let in_motion = if stats.queued == room {
            stats.workers
        } else {
            0
        };
        let gone = gone + in_motion;
        assert!(unended <= left + gone, "of {unended}: {stats:?}");
        assert!(stats.queued <= room && stats.running <= max, "{stats:?}");
        assert!(
            stats.idle <= stats.workers && stats.workers <= max,
            "{stats:?}"
        );
        assert_eq!(
            stats.workers as u64,
            stats.spawned - stats.retired,
            "{stats:?}"
        );
        assert!(
            stats.workers <= stats.peak_workers && stats.peak_workers <= max,
            "{stats:?}"
        );
        assert!(stats.abandoned <= stats.running, "{stats:?}");
        let why = stats.refusals;
        let refused = why.saturated + why.closed + why.cancelled + why.spawn_failed + why.expired;
        let refused = refused + why.on_worker + why.group_full;
        assert_eq!(stats.refused, refused, "{stats:?}");
    }

    /// Reads `workers`, and asserts that it is exact for tasks that run from before the call to
    /// after it.
    pub fn look_at_workers(&self) {
        let before = running(&self.books.book());
        let workers = self.pool.workers();
        let after = running(&self.books.book());
        let slots: Vec<_> = workers.iter().map(|worker| worker.slot).collect();
        assert!(slots.windows(2).all(|two| two[0] < two[1]), "{slots:?}");
        assert!(
            slots.iter().all(|slot| *slot < self.pool.max_workers()),
            "{slots:?}"
        );
        for worker in &workers {
            let known = worker.label.is_none_or(|label| LABELS.contains(&label));
            assert!(known, "{worker:?}");
            assert!(
                worker.busy || worker.label.is_none() && !worker.abandoned,
                "{worker:?}"
            );
        }
        for (number, known) in before {
            if after.iter().all(|(other, _)| *other != number) {
                continue;
            }
            let worker = workers.iter().find(|worker| worker.slot == known.slot);
            let worker = worker.unwrap_or_else(|| panic!("{known:?} among {workers:?}"));
            assert!(
                worker.busy && worker.label == known.label,
                "{known:?}: {worker:?}"
            );
            assert!(
                worker.abandoned || !known.abandoned,
                "{known:?}: {worker:?}"
            );
        }
    }
}
