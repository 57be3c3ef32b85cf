//! Reads a pool's figures and workers while tasks come and go, and asserts what must hold. Law 9.

use crate::calls::LABELS;
use crate::ledger::{Book, Fate, Known};
use crate::Rig;

/// Returns the numbers of the closures for which `is_one` holds.
fn all(book: &Book, is_one: impl Fn(&Known) -> bool) -> Vec<usize> {
    let tickets = book.tickets.iter().enumerate();
    tickets
        .filter(|(_, known)| is_one(known))
        .map(|(n, _)| n)
        .collect()
}

impl Rig {
    /// Reads `stats` and `workers`, as any thread may.
    pub fn look(&self) {
        self.look_at_stats();
        self.look_at_workers();
    }

    fn look_at_stats(&self) {
        let accepted = |known: &Known| matches!(known.fate, Fate::Accepted | Fate::Runs);
        let is_left = |known: &Known| known.drops == 0 && !known.ended;
        let (before, unended) = {
            let book = self.books.book();
            let unended = all(&book, |known| accepted(known) && is_left(known));
            (all(&book, accepted).len() as u64, unended)
        };
        let stats = self.pool.stats();
        let unended = {
            let book = self.books.book();
            unended
                .iter()
                .filter(|n| is_left(&book.tickets[**n]))
                .count()
        };
        let s = &stats;
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        let (max, space) = (self.pool.max_workers(), self.pool.queue_capacity());
        // A busy worker may have taken its next task and not counted it yet.
        assert!(before <= s.accepted + s.running as u64, "{before}: {s:?}");
        assert!(ended <= s.accepted, "ended before it began: {s:?}");
        // Some tasks are counted as discarded before they are dropped. A task that was taken out
        // between two reads may be in none of the sums, but has been counted by now.
        let later = self.pool.stats();
        let gone = (later.discarded + later.expired) as usize;
        // `queued` never exceeds the queue's capacity. If it equals the capacity, tasks that
        // workers have just popped and not counted yet may be in no sum.
        let in_motion = if s.queued == space { s.workers } else { 0 };
        let most = s.queued + s.running + gone + in_motion;
        assert!(unended <= most, "of {unended}: {s:?}");
        assert!(s.queued <= space && s.running <= max, "{s:?}");
        assert!(s.idle <= s.workers && s.workers <= s.peak_workers, "{s:?}");
        assert!(s.peak_workers <= max && s.abandoned <= s.running, "{s:?}");
        assert_eq!(s.workers as u64, s.spawned - s.retired, "{s:?}");
        let why = s.refusals;
        let refused = why.saturated + why.closed + why.cancelled + why.spawn_failed + why.expired;
        assert_eq!(s.refused, refused + why.on_worker + why.group_full, "{s:?}");
    }

    /// Asserts that `workers` is exact for tasks that run from before the call to after it.
    fn look_at_workers(&self) {
        let runs = |known: &Known| known.runs == 1 && !known.ended;
        let before: Vec<_> = {
            let book = self.books.book();
            let running = all(&book, runs);
            running.iter().map(|n| (*n, book.tickets[*n])).collect()
        };
        let workers = self.pool.workers();
        let after = all(&self.books.book(), runs);
        assert!(
            workers.windows(2).all(|two| two[0].slot < two[1].slot),
            "{workers:?}"
        );
        for worker in &workers {
            let is_known = worker.label.is_none_or(|label| LABELS.contains(&label));
            assert!(
                is_known && worker.slot < self.pool.max_workers(),
                "{worker:?}"
            );
            let is_idle = worker.label.is_none() && !worker.abandoned;
            assert!(worker.busy || is_idle, "{worker:?}");
        }
        for (_, known) in before.iter().filter(|(number, _)| after.contains(number)) {
            let worker = workers.iter().find(|worker| worker.slot == known.slot);
            let worker = worker.unwrap_or_else(|| panic!("{known:?} among {workers:?}"));
            let is_right = worker.busy && worker.label == known.label;
            let is_abandoned = worker.abandoned || !known.abandoned;
            assert!(is_right && is_abandoned, "{known:?}: {worker:?}");
        }
    }
}
