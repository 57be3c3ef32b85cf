//! The ledger: what became of each closure, and which calls are under way.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) entered: u64,
    /// Of these, as the pool's `stats` said last.
    pub(crate) refused: u64,
    pub(crate) ended: u64,
    /// By call under way: the most others that were unended meanwhile.
    pub(crate) open: Vec<(u64, u64)>,
    pub(crate) calls: u64,
    pub(crate) running: usize,
    pub(crate) tickets: Vec<Known>,
    pub(crate) undropped: usize,
    /// Somebody waits until none is undropped.
    pub(crate) awaited: bool,
    /// Calls of `do_with_deadline` that got the closure back from a shutdown, or never
    /// had it accepted.
    pub(crate) closed: u64,
    pub(crate) timed_out: u64,
    /// Calls with a deadline that are not back yet.
    pub(crate) may_expire: u64,
    /// Cancels by handle that are under way.
    pub(crate) may_discard: u64,
    /// Calls that got the closure back as expired, refused ones included.
    pub(crate) expired: u64,
    /// Tasks may have a deadline of their own.
    pub(crate) timed: bool,
    pub(crate) limit: Option<Limit>,
    /// A shutdown may cancel what runs.
    pub(crate) may_cancel: bool,
    /// By slot: the closure that ran there last.
    pub(crate) last: Vec<usize>,
    /// Calls that got a value or a panic.
    pub(crate) answered: u64,
    /// Panics that the pool told of.
    pub(crate) reported: u64,
}

/// A limit that `set_limit` has set. Law 4: a worker that was busy runs one more task at most; then as
/// many run at once as the limit says.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) limit: usize,
    /// By slot: it has started a task since.
    pub(crate) started: Vec<bool>,
    /// Of those that run: not the first of their worker since.
    pub(crate) running_again: usize,
}

impl Limit {
    /// A task starts; whether it counts.
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
    /// The thread that ran it.
    pub(crate) worker: Option<usize>,
    /// The thread that waits for it, or did.
    pub(crate) caller: Option<usize>,
    /// When it ran to its end or panicked, in steps.
    pub(crate) ended: Option<u64>,
    /// It has run to its end.
    pub(crate) completed: bool,
    /// A drop of it panics, wherever that is the pool's affair.
    pub(crate) fused: bool,
    pub(crate) slot: usize,
    pub(crate) label: Option<&'static str>,
    /// Nobody waits for it any more.
    pub(crate) abandoned: bool,
    /// Its value, which holds it, is its caller's.
    pub(crate) delivered: bool,
    /// Its panic has been told to the pool's hook.
    pub(crate) reported: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    #[default]
    Unknown,
    /// Accepted by `serve`: it runs, unless it is discarded.
    Accepted,
    /// Accepted, and known to run.
    Runs,
    /// Not run, and never will be.
    Back,
    /// Of a future that was dropped in line: never accepted, or cancelled since.
    Left,
}

/// What a closure carries: who it is.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) books: Arc<Books>,
    pub(crate) number: usize,
}

#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) workers: usize,
    pub(crate) book: Mutex<Book>,
    /// Whether all closures are gone; the threads of an execution wait for it.
    pub(crate) gone: shuttle::sync::Condvar,
    pub(crate) lock: shuttle::sync::Mutex<()>,
}

shuttle::thread_local! {
    /// The books of the pool that this thread is a worker of, by address; zero: none, as far as
    /// is known.
    static HOME: Cell<usize> = Cell::new(0);
}

/// The current thread.
pub(crate) fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

impl Books {
    /// Whether this thread is a worker of another pool.
    pub(crate) fn is_foreign_worker(&self) -> bool {
        let home = HOME.try_with(Cell::get).unwrap_or(0);
        home != 0 && home != std::ptr::from_ref(self) as usize
    }

    /// Whether this thread has run a task of the pool, or its thread-locals are gone.
    pub(crate) fn may_be_worker(&self) -> bool {
        let home = HOME.try_with(Cell::get);
        home.map_or(true, |home| home == std::ptr::from_ref(self) as usize)
    }

    /// What each pool's `on_panic` does.
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

/// What became of a pool's closures; for when the pool is gone.
#[derive(Debug)]
pub struct Ledger(pub(crate) Arc<Books>);

impl Ledger {
    /// Waits until no closure is left; then each of them ran once, came back, or was dropped
    /// unrun: the last only if the end of the pool `discards`.
    pub fn settle(&self, discards: bool) {
        self.0.wait_until_idle();
        for (number, ticket) in self.0.book().tickets.iter().enumerate() {
            assert_eq!(ticket.drops, 1, "closure {number}: {ticket:?}");
            match ticket.fate {
                Fate::Accepted => assert!(ticket.runs == 1 || discards, "{number} did not run"),
                Fate::Runs => assert_eq!(ticket.runs, 1, "closure {number}"),
                Fate::Back => assert_eq!(ticket.runs, 0, "closure {number}"),
                Fate::Left => {}
                Fate::Unknown => panic!("closure {number} went nowhere"),
            }
        }
    }
}

impl Ticket {
    /// Which of its ledger's closures this is.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its drop panics, unless it comes back, its value is delivered, or it panics itself. Law 7.
    pub fn fuse(&self) {
        self.books.book().tickets[self.number].fused = true;
    }

    /// Does the closure's work, which counts as one run.
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
        // Only then: a thread that is stopped here holds up those that come here after it.
        if tells {
            drop(self.books.lock.lock());
            self.books.gone.notify_all();
        }
        // Law 8; of a value that its caller did not wait for, too.
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
