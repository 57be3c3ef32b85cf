//! The last handle of a pool, dropped by code that the pool itself calls, and the tasks that are left then.

#![allow(dead_code)] // each binary that includes this file uses part of it

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use lazypool::{Builder, Group, Pool, Shutdown};

/// The number of tasks that are queued as the pool is dropped.
pub(crate) const QUEUED: usize = 4;

/// The last handle of a pool, once [`Scene::leave`] has put it there. Give a clone to code of the pool,
/// whatever code drops it, and one to a hook: that clone shows how long the pool's memory lives.
#[derive(Clone, Default)]
pub(crate) struct Last(Arc<State>);

#[derive(Default)]
struct State {
    pool: Mutex<Option<Pool>>,
    has_returned: AtomicBool,
}

impl Last {
    /// Drops the pool, unless it is not there yet or was dropped already.
    pub(crate) fn drop_pool(&self) {
        let pool = self.0.pool.lock().unwrap().take();
        if pool.is_some() {
            drop(pool);
            self.0.has_returned.store(true, Ordering::SeqCst);
        }
    }
}

/// A pool with a busy worker, for which a drop would wait, and with queued tasks. The busy worker is let go
/// before the pool is dropped if a test fails.
pub(crate) struct Scene {
    pub(crate) busy: Gate,
    /// Its first tasks are those that are queued.
    pub(crate) ledger: Ledger,
    pub(crate) group: Group,
    last: Last,
}

impl Scene {
    /// Builds a pool whose drop waits as long as it takes, and occupies the worker in slot 0. The ledger has space for
    /// some further tasks of the test.
    ///
    /// Bind both in one pattern, so that the gate is dropped before the pool.
    pub(crate) fn new(
        builder: Builder,
        mode: Shutdown,
        last: &Last,
        further: usize,
    ) -> (Pool, Self) {
        let builder = builder.shutdown_on_drop(mode, Duration::MAX);
        let pool = builder.build().expect("pool");
        let scene = Self {
            busy: hold(&pool, 1),
            ledger: Ledger::new(QUEUED + further),
            group: pool.group(),
            last: last.clone(),
        };
        assert_eq!(pool.workers()[0].slot, 0);
        (pool, scene)
    }

    /// Queues the tasks. No worker may be free.
    pub(crate) fn queue(&self, pool: &Pool) {
        let before = pool.stats().queued;
        (0..QUEUED).for_each(|id| must_serve_in(&self.group, self.ledger.task(id)));
        assert_eq!(pool.stats().queued, before + QUEUED);
    }

    /// Leaves the pool to the code that drops it.
    pub(crate) fn leave(&self, pool: Pool) {
        *self.last.0.pool.lock().unwrap() = Some(pool);
    }

    /// Checks law 10: the drop returns although a worker is busy, and the pool is closed.
    #[track_caller]
    pub(crate) fn was_dropped(&self) {
        let returned = || self.last.0.has_returned.load(Ordering::SeqCst);
        wait_until("the drop to return", returned);
        assert!(!self.busy.is_open());
        assert_eq!(reason(self.group.serve(|| ())), "closed");
    }

    /// Lets all tasks end. Checks laws 2 and 10: each ran or was discarded, once. With `Drain` all queued ones ran;
    /// else none did, but for one if a worker may have `taken` it before the drop.
    #[track_caller]
    pub(crate) fn all_end(&self, mode: Shutdown, taken: bool) {
        self.busy.open();
        let ended = self.group.wait_timeout(LIMIT);
        assert!(ended.is_ok(), "the queued tasks end: {:?}", self.group);
        self.ledger.wait_drops();
        let ran = (0..QUEUED).filter(|id| self.ledger.runs(*id) == 1).count();
        let (completed, discarded) = (self.group.completed(), self.group.discarded());
        assert_eq!((completed, completed + discarded), (ran, QUEUED));
        match mode {
            Shutdown::Drain => assert_eq!(ran, QUEUED),
            _ => assert!(ran <= usize::from(taken), "{ran} were not discarded"),
        }
    }

    /// Waits until all threads of the pool have let go of it. By then the test has dropped all else that belongs to the pool.
    #[track_caller]
    pub(crate) fn must_be_freed(self) {
        let hooks = Arc::downgrade(&self.last.0);
        drop(self);
        wait_until("the end of the pool", || hooks.strong_count() == 0);
    }
}
