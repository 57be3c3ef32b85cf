//! Tasks with a handle, as the `pool` target uses them.

use super::{fate, Came, Entry, Play, Through};
use fate::{add, defuse, take_back, Fate, Fault, Hold, Nest, Token, Value, Why, Work, LABEL};
use lazypool::{Handle, Shutdown, TaskError};
use std::sync::Arc;
use std::time::Duration;

/// A run limit that each task that has it runs past.
const SHORT: Duration = Duration::from_micros(50);

type Outcome = Result<Value, TaskError>;

/// Asserts that the handle's outcome is in accord with the fate of the closure, and that the
/// closure is gone.
pub(super) fn check(outcome: Outcome, entry: &Entry, cancelled: bool, discarded: bool) {
    entry.fate.check_ended();
    let ran = matches!(outcome, Ok(_) | Err(TaskError::Panicked(_)));
    assert_eq!(entry.fate.has_run(), ran, "{outcome:?}: {entry:?}");
    match outcome {
        Ok(value) => {
            assert!(!entry.work.panics(), "{entry:?}");
            value.arrived();
        }
        Err(TaskError::Panicked(panic)) => {
            assert!(entry.work.panics(), "{entry:?}");
            defuse(panic);
        }
        Err(TaskError::Cancelled) => assert!(cancelled, "{entry:?}"),
        Err(TaskError::Discarded) => assert!(discarded, "{entry:?}"),
        Err(other) => panic!("{other}: {entry:?}"),
    }
}

impl Play<'_> {
    pub(super) fn awaited(&mut self, mut work: Work, through: Through, limited: bool) {
        let load = self.load();
        if self.blocks && self.closed.is_none() && load.most >= self.capacity() && !self.flows() {
            return;
        }
        // If no caller takes the value, the pool counts the panic of the value's drop or does not,
        // which depends on the moment at which the handle is dropped. So such a value must not
        // panic.
        if work.fault == Fault::ResultExplodes {
            work.fault = Fault::Nothing;
        }
        let limited = limited && !matches!(through, Through::Group(_));
        // A task that waits for its cancellation would see a short limit as one.
        work.overruns = limited && work.hold == Hold::Nothing;
        let limit = match (limited, work.overruns) {
            (false, _) => Duration::MAX,
            (true, true) => SHORT,
            (true, false) => super::LONG,
        };
        let mut entry = self.entry(work);
        entry.label = matches!(through, Through::Submitter);
        let group = match through {
            Through::Group(second) => Some(usize::from(second)),
            _ => None,
        };
        entry.group = group;
        self.settled.set(false);
        let token = Token::new(&self.sums, &entry.fate, work);
        add(&self.sums.offered);
        let label = entry.label.then_some(LABEL);
        let task = move || token.run(label, limited);
        match self.offer_awaited(task, through, limit, &entry.fate) {
            Ok(handle) => {
                assert!(group.is_none_or(|n| !self.cancelled[n]));
                self.check_accepted(&load);
                entry.came = Came::In;
                entry.handle = Some(handle);
                self.entries.push(entry);
            }
            Err(why) => {
                let cancelled = group.is_some_and(|n| self.cancelled[n]);
                self.check_refusal(why, &load, cancelled);
                add(&self.sums.back);
                add(&self.sums.refused);
            }
        }
    }

    fn offer_awaited(
        &self,
        task: impl FnOnce() -> Value + Send + 'static,
        through: Through,
        limit: Duration,
        fate: &Arc<Fate>,
    ) -> Result<Handle<Value>, Why> {
        match through {
            Through::Pool => self.pool.run_limit(limit).awaitable().serve(task),
            Through::Submitter => {
                let tasks = self.pool.labeled(LABEL).run_limit(limit);
                tasks.awaitable().serve(task)
            }
            Through::Group(n) => self.groups[usize::from(n)].awaitable().serve(task),
        }
        .map_err(|refused| take_back(refused, fate))
    }

    /// Joins, cancels, drops or detaches one of the handles.
    pub(super) fn use_handle(&mut self, n: u8) {
        let kept = |(n, e): (usize, &Entry)| e.handle.is_some().then_some(n);
        let kept: Vec<_> = self.entries.iter().enumerate().filter_map(kept).collect();
        let Some(&index) = kept.get(usize::from(n & 3) % kept.len().max(1)) else {
            return;
        };
        let Some(handle) = self.entries[index].handle.take() else {
            return;
        };
        match n >> 2 {
            0 => self.join(index, handle),
            1 => {
                self.cancel_handle(index, || handle.cancel());
                self.entries[index].handle = Some(handle);
            }
            2 => self.cancel_handle(index, || defuse(handle)),
            _ => {
                let detach = std::panic::AssertUnwindSafe(|| handle.detach());
                std::panic::catch_unwind(detach).unwrap_or_else(defuse);
            }
        }
    }

    fn join(&mut self, index: usize, handle: Handle<Value>) {
        let entry = &self.entries[index];
        let outcome = if !entry.is_held() && self.flows() {
            handle.join()
        } else {
            let holds = entry.is_held() && entry.fate.is_holding();
            match handle.join_timeout(SHORT) {
                Ok(outcome) => {
                    assert!(!holds, "{}", self.state());
                    outcome
                }
                Err(handle) => {
                    self.entries[index].handle = Some(handle);
                    return;
                }
            }
        };
        let discards = self.closed.is_some_and(|mode| mode != Shutdown::Drain);
        let entry = &self.entries[index];
        check(outcome, entry, self.is_cancelled(entry), discards);
        // A task that it submitted may still be under way.
        let is_last = entry.work.nest != Nest::Serve;
        self.entries[index].ended |= is_last;
    }

    fn cancel_handle(&mut self, index: usize, cancel: impl FnOnce()) {
        let entry = &self.entries[index];
        // Otherwise a worker that the cancel frees may start the task before the cancel finds it.
        let frees = entry.work.hold == Hold::Watch && entry.fate.is_holding();
        let settled = self.holding() == self.max && !frees;
        cancel();
        let entry = &mut self.entries[index];
        let gone = entry.fate.has_run() || entry.fate.is_dropped();
        assert!(!settled || gone, "{entry:?} is still queued");
        entry.cancelled = true;
        entry.freed |= entry.work.hold == Hold::Watch;
        self.settled.set(false);
    }
}
