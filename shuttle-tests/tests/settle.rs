//! Discards in which captures wait for other tasks of the same discard. Laws 8, 10, 21.
#![cfg(lazypool_shuttle)]

use lazypool::model::spawn;
use lazypool::{Group, Handle, Pool, Shutdown, TaskError};
use shuttle_tests::{block_on, explore, gate, join_all, step, ticks, Dice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Shared {
    pool: Pool,
    group: Group,
    handles: Mutex<Vec<Option<Handle<()>>>>,
    runs: AtomicUsize,
    drops: AtomicUsize,
}

impl Shared {
    fn take(&self, number: usize) -> Option<Handle<()>> {
        self.handles.lock().expect("no panic")[number].take()
    }
}

/// Captured by a task. If the task is discarded, the drop of the capture waits for another task, or
/// discards more.
struct Capture {
    shared: Arc<Shared>,
    dice: Dice,
    other: usize,
    has_run: bool,
}

impl Capture {
    fn run(mut self) {
        self.has_run = true;
        self.shared.runs.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let (shared, dice) = (&self.shared, &mut self.dice);
        shared.drops.fetch_add(1, Ordering::SeqCst);
        if self.has_run {
            return;
        }
        let other = || shared.take(self.other);
        let outcome = match dice.below(8) {
            0 => other().map(Handle::join),
            1 => other().map(|mut handle| block_on(&mut handle, dice)),
            2 => return drop(other()),
            3 => return shared.group.cancel(),
            4 => return drop(shared.group.wait_timeout(ticks(3))),
            // Within a discard of the same pool a shutdown does not wait.
            5 => return drop(shared.pool.shutdown(Shutdown::Discard, Duration::MAX)),
            _ => return,
        };
        let is_right = |outcome: &Result<(), TaskError>| {
            matches!(
                outcome,
                Ok(()) | Err(TaskError::Cancelled | TaskError::Discarded)
            )
        };
        assert!(outcome.iter().all(is_right), "{outcome:?}");
    }
}

/// Queued tasks are discarded in one or two discards, by a shutdown, a group, or handles; each
/// capture joins, awaits, drops or discards other tasks. All of it ends, and each closure runs or
/// is dropped once.
#[test]
fn captures_that_wait() {
    explore("captures_that_wait", |dice| {
        let count = dice.between(2, 6) as usize;
        let pool = Pool::builder().max_workers(1).queue_capacity(count);
        let pool = pool.build().expect("good settings");
        let (go, hold) = gate();
        pool.serve(hold).expect("a new pool");
        let shared = Arc::new(Shared {
            group: pool.group(),
            pool,
            handles: Mutex::default(),
            runs: AtomicUsize::new(0),
            drops: AtomicUsize::new(0),
        });
        for _ in 0..count {
            let capture = Capture {
                shared: Arc::clone(&shared),
                dice: dice.fork(),
                other: dice.below(count as u64) as usize,
                has_run: false,
            };
            let on = dice.one_in(2).then(|| shared.group.awaitable());
            let on = on.unwrap_or_else(|| shared.pool.awaitable());
            let handle = on.serve(move || capture.run()).expect("space for all");
            shared.handles.lock().expect("no panic").push(Some(handle));
        }
        let discard = |mut dice: Dice| {
            let shared = Arc::clone(&shared);
            spawn(move || {
                dice.pause(30);
                match dice.below(3) {
                    0 => drop(shared.pool.shutdown(Shutdown::Discard, Duration::MAX)),
                    1 => shared.group.cancel(),
                    _ => {
                        let first = shared.take(0);
                        step();
                        drop(first);
                    }
                }
            })
        };
        let discards = (0..dice.between(1, 2))
            .map(|_| discard(dice.fork()))
            .collect();
        dice.pause(90);
        go.store(true, Ordering::SeqCst);
        join_all(discards);
        let rest = std::mem::take(&mut *shared.handles.lock().expect("no panic"));
        rest.into_iter().flatten().for_each(Handle::detach);
        let report = shared.pool.shutdown(Shutdown::Drain, Duration::MAX);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(shared.drops.load(Ordering::SeqCst), count);
        assert_eq!(shared.group.pending(), 0);
        let stats = shared.pool.stats();
        let ran = shared.runs.load(Ordering::SeqCst) as u64 + 1;
        assert_eq!(stats.completed, ran, "{stats:?}");
        assert_eq!(stats.completed + stats.discarded, count as u64 + 1);
        lazypool::model::assert_at_rest(&shared.pool);
    });
}
