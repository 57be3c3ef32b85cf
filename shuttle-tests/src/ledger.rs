//! The ledger: it records the fate of each closure, and the calls that are under way.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entered: u64,
    /// The number of refused calls, as the pool's `stats` last said.
    pub(crate) refused: u64,
    pub(crate) ended: u64,
    /// For each call under way: the greatest number of other calls and tasks that had not ended
    /// meanwhile.
    pub(crate) open: Vec<(u64, u64)>,
    pub(crate) calls: u64,
    pub(crate) running: usize,
    pub(crate) tickets: Vec<Known>,
    pub(crate) undropped: usize,
    /// Set while a thread waits until every closure is dropped.
    pub(crate) awaited: bool,
    /// Calls of `do_with_deadline` that ended with `Closed`: the pool was closed, or a shutdown
    /// discarded the task.
    pub(crate) closed: u64,
    pub(crate) timed_out: u64,
    /// Calls with a deadline that have not returned yet.
    pub(crate) may_expire: u64,
    /// Cancels by a handle that are under way.
    pub(crate) may_discard: u64,
    /// Calls that got the closure back as expired. Refused ones are included.
    pub(crate) expired: u64,
    /// `true` if tasks may have a deadline of their own.
    pub(crate) timed: bool,
    pub(crate) limit: Option<Limit>,
    /// `true` if a shutdown may cancel running tasks.
    pub(crate) may_cancel: bool,
    /// For each slot: the closure that ran there last.
    pub(crate) last: Vec<usize>,
    /// Calls that got a value or a panic.
    pub(crate) answered: u64,
    /// Panics that the pool reported to its hook.
    pub(crate) reported: u64,
}

/// A limit that `set_limit` has set. Law 4: a worker that was busy at that moment runs at most one
/// more task; from then on at most `limit` tasks run at once.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) limit: usize,
    /// For each slot: `true` once its worker has started a task since the limit was set.
    pub(crate) started: Vec<bool>,
    /// The number of running tasks that are not the first of their worker since the limit was set.
    pub(crate) running_again: usize,
}

impl Limit {
    /// Counts the start of a task. Returns `true` if it is not the first one of its worker.
    fn start(&mut self, slot: usize) -> bool {
        let is_again = std::mem::replace(&mut self.started[slot], true);
        self.running_again += usize::from(is_again);
        let (again, limit) = (self.running_again, self.limit);
        assert!(again <= limit, "{again} with a limit of {limit}");
        is_again
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) runs: u32,
    pub(crate) drops: u32,
    pub(crate) fate: Fate,
    /// The thread that ran the closure.
    pub(crate) worker: Option<usize>,
    /// The thread that waits for the closure, or did.
    pub(crate) caller: Option<usize>,
    /// The step at which the closure returned or panicked.
    pub(crate) ended: Option<u64>,
    /// `true` once the closure has returned.
    pub(crate) completed: bool,
    /// `true` if a drop of the closure panics where the pool or a worker drops it.
    pub(crate) fused: bool,
    pub(crate) slot: usize,
    pub(crate) label: Option<&'static str>,
    /// `true` once its caller has left.
    pub(crate) abandoned: bool,
    /// `true` once the caller has the value, which holds the closure's ticket.
    pub(crate) delivered: bool,
    /// `true` once the pool's hook was told of the closure's panic.
    pub(crate) reported: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    #[default]
    Unknown,
    /// `serve` accepted the closure: it runs, unless it is discarded.
    Accepted,
    /// The closure was accepted, and is known to run.
    Runs,
    /// The closure came back: it did not run, and never will.
    Back,
    /// The closure of a future that was dropped in line: never accepted, or cancelled since.
    Left,
}

/// Carried by each closure, to identify it in the ledger.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) books: Arc<Books>,
    pub(crate) number: usize,
}

#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) workers: usize,
    pub(crate) book: Mutex<Book>,
    /// Notified once all closures are dropped. The threads of an execution wait for it.
    pub(crate) gone: shuttle::sync::Condvar,
    pub(crate) lock: shuttle::sync::Mutex<()>,
}

shuttle::thread_local! {
    /// The address of the books of the pool whose worker this thread is; zero if it is not known to
    /// be a worker.
    static HOME: Cell<usize> = Cell::new(0);
}

/// Returns the number of the current thread.
pub(crate) fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

impl Books {
    /// Returns `true` if this thread is a worker of another pool.
    pub(crate) fn is_foreign_worker(&self) -> bool {
        let home = HOME.try_with(Cell::get).unwrap_or(0);
        home != 0 && home != std::ptr::from_ref(self) as usize
    }

    /// Returns `true` if this thread has run a task of the pool, or its thread-locals are
    /// destroyed.
    pub(crate) fn may_be_worker(&self) -> bool {
        let home = HOME.try_with(Cell::get);
        home.map_or(true, |home| home == std::ptr::from_ref(self) as usize)
    }

    /// Records a panic. The body of each pool's `on_panic`.
    pub(crate) fn report(&self, slot: usize) {
        let mut book = self.book();
        book.reported += 1;
        if let Some(number) = book.last.get(slot).copied() {
            book.tickets[number].reported = true;
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_until_idle(&self) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.book().awaited = true;
        while self.book().undropped > 0 {
            guard = (self.gone.wait(guard)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The ledger of a pool, for use after the pool has ended.
#[derive(Debug)]
pub struct Ledger(pub(crate) Arc<Books>);

impl Ledger {
    /// Waits until no closure is left. Asserts that each of them ran once, came back, or was
    /// dropped without a run; the last only if the end of the pool `discards`.
    pub fn settle(&self, discards: bool) {
        self.0.wait_until_idle();
        for (number, ticket) in self.0.book().tickets.iter().enumerate() {
            assert_eq!(ticket.drops, 1, "closure {number}: {ticket:?}");
            match ticket.fate {
                Fate::Accepted => assert!(ticket.runs == 1 || discards, "{number} did not run"),
                Fate::Runs => assert_eq!(ticket.runs, 1, "closure {number}"),
                Fate::Back => assert_eq!(ticket.runs, 0, "closure {number}"),
                Fate::Left => {}
                Fate::Unknown => panic!("the call of closure {number} never returned"),
            }
        }
    }
}

impl Ticket {
    /// Returns the closure's number in its ledger.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Makes the drop of the ticket panic, unless the closure comes back, its value is delivered,
    /// or the closure itself panics. Law 7.
    pub fn fuse(&self) {
        self.books.book().tickets[self.number].fused = true;
    }

    /// Runs `work` as the closure's body, which counts as one run.
    pub fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        HOME.with(|home| home.set(Arc::as_ptr(&self.books) as usize));
        let slot = lazypool::task::slot().expect("on a worker");
        struct Running<'a>(&'a Books, usize, bool);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                let mut book = self.0.book();
                book.tickets[self.1].ended = Some(crate::steps());
                book.running -= 1;
                if let Some(limit) = &mut book.limit {
                    limit.running_again -= usize::from(self.2);
                }
            }
        }
        let (running, runs, is_again) = {
            let mut book = self.books.book();
            book.running += 1;
            let is_again = (book.limit.as_mut()).is_some_and(|limit| limit.start(slot));
            if book.last.len() <= slot {
                book.last.resize(slot + 1, 0);
            }
            book.last[slot] = self.number;
            let known = &mut book.tickets[self.number];
            known.worker = Some(me());
            known.slot = slot;
            known.runs += 1;
            let runs = known.runs;
            (book.running, runs, is_again)
        };
        let _running = Running(&self.books, self.number, is_again);
        assert_eq!(runs, 1, "closure {} runs again", self.number);
        assert!(running <= self.books.workers, "more closures than workers");
        let value = work();
        self.books.book().tickets[self.number].completed = true;
        value
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (known, tells) = {
            let mut book = self.books.book();
            book.undropped -= 1;
            let known = &mut book.tickets[self.number];
            known.drops += 1;
            (*known, book.undropped == 0 && book.awaited)
        };
        let drops = known.drops;
        if drops != 1 {
            eprintln!("closure {} is dropped again", self.number);
            std::process::abort();
        }
        // Told after the drop is counted: a thread that is stopped here holds up those that come
        // here after it.
        if tells {
            drop(self.books.lock.lock());
            self.books.gone.notify_all();
        }
        // Law 8. It holds as well for a value whose caller did not wait for it.
        assert!(
            known.delivered || known.worker.is_none_or(|worker| worker == me()),
            "closure {} has run, and another thread than its worker drops it",
            self.number
        );
        let ours = known.fate == Fate::Back || known.delivered;
        if known.fused && !ours && (known.completed || known.runs == 0) {
            crate::planned_panic();
        }
    }
}
