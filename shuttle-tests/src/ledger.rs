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
    awaited: bool,
    /// Calls of `do_with_deadline` that ended with `Closed`, `Cancelled` or `SpawnFailed`: they were
    /// refused, or their tasks were discarded.
    pub(crate) calls_back: u64,
    /// Other submissions that were refused for one of these reasons.
    pub(crate) back: u64,
    pub(crate) timed_out: u64,
    /// Calls with a deadline that have not returned yet.
    pub(crate) may_expire: u64,
    /// Cancels by a handle that are under way.
    pub(crate) may_discard: u64,
    /// Calls that got the closure back as expired. Refused ones are included.
    pub(crate) expired: u64,
    /// Submissions of tasks that have a deadline of their own.
    pub(crate) timed: u64,
    /// `true` if accepted tasks may be discarded.
    pub(crate) discards: bool,
    /// `true` if a shutdown may cancel running tasks.
    pub(crate) may_cancel: bool,
    /// For each slot: the closure that ran there last.
    last: Vec<usize>,
    /// Calls that got a value or a panic.
    pub(crate) answered: u64,
    /// Panics that the pool reported to its hook.
    pub(crate) reported: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) runs: u32,
    pub(crate) drops: u32,
    pub(crate) fate: Fate,
    /// The thread that ran the closure.
    worker: Option<usize>,
    /// `true` once the closure has returned or panicked.
    pub(crate) ended: bool,
    /// `true` once the closure has returned.
    completed: bool,
    /// `true` if a drop of the closure panics where the pool or a worker drops it.
    pub(crate) fused: bool,
    pub(crate) slot: usize,
    pub(crate) label: Option<&'static str>,
    /// `true` once its caller has left.
    pub(crate) abandoned: bool,
    /// `true` if another thread than the worker may drop the value, which holds the ticket.
    pub(crate) delivered: bool,
    /// `true` once the pool's hook was told of the closure's panic.
    pub(crate) reported: bool,
}

impl Known {
    /// Returns `true` if the closure has panicked, or its drop may have.
    pub(crate) fn may_have_panicked(&self) -> bool {
        self.fused || self.ended && !self.completed
    }
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

impl Book {
    /// Asserts that each closure was dropped once, and ran once or not, as its fate says. Returns
    /// how many accepted closures did not run, and how many that were left in line did not.
    pub(crate) fn balance(&self) -> (u64, u64) {
        let (mut unrun, mut left) = (0, 0);
        for (number, ticket) in self.tickets.iter().enumerate() {
            assert_eq!(ticket.drops, 1, "closure {number}: {ticket:?}");
            match ticket.fate {
                Fate::Accepted => unrun += u64::from(ticket.runs == 0),
                Fate::Left => left += u64::from(ticket.runs == 0),
                Fate::Runs => assert_eq!(ticket.runs, 1, "closure {number}"),
                Fate::Back => assert_eq!(ticket.runs, 0, "closure {number}"),
                Fate::Unknown => panic!("the call of closure {number} never returned"),
            }
        }
        (unrun, left)
    }
}

#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) workers: usize,
    book: Mutex<Book>,
    /// Notified once all closures are dropped. The threads of an execution wait for it.
    gone: shuttle::sync::Condvar,
    lock: shuttle::sync::Mutex<()>,
}

shuttle::thread_local! {
    /// The address of the books of the pool whose worker this thread is; zero if it is not known to
    /// be a worker.
    static HOME: Cell<usize> = Cell::new(0);
}

fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

impl Books {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            workers,
            book: Mutex::default(),
            gone: shuttle::sync::Condvar::new(),
            lock: shuttle::sync::Mutex::new(()),
        })
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

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

    /// Returns a ticket for one more closure.
    pub(crate) fn ticket(self: &Arc<Self>) -> Ticket {
        let mut book = self.book();
        book.undropped += 1;
        book.tickets.push(Known::default());
        Ticket {
            books: Arc::clone(self),
            number: book.tickets.len() - 1,
        }
    }

    /// Records a panic. The body of each pool's `on_panic`.
    pub(crate) fn report(&self, slot: usize) {
        let mut book = self.book();
        book.reported += 1;
        if let Some(number) = book.last.get(slot).copied() {
            book.tickets[number].reported = true;
        }
    }

    pub(crate) fn fate(&self, number: usize, fate: Fate) {
        let mut book = self.book();
        let known = &mut book.tickets[number];
        assert_eq!(known.fate, Fate::Unknown);
        known.fate = fate;
        let is_back = fate == Fate::Back;
        assert!(
            !is_back || known.runs == 0,
            "closure {number} came back, and ran"
        );
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
    /// Waits until no closure is left, and balances the ledger.
    pub fn settle(&self) {
        self.0.wait_until_idle();
        let book = self.0.book();
        let (unrun, _) = book.balance();
        // Tasks with deadlines may expire.
        assert!(unrun <= book.timed || book.discards, "{unrun} did not run");
    }
}

/// Carried by each closure, to identify it in the ledger.
#[derive(Debug)]
pub struct Ticket {
    books: Arc<Books>,
    pub(crate) number: usize,
}

impl Ticket {
    /// Runs `work` as the closure's body, which counts as one run.
    pub(crate) fn run(&self, work: impl FnOnce()) {
        HOME.with(|home| home.set(Arc::as_ptr(&self.books) as usize));
        let slot = lazypool::task::slot().expect("on a worker");
        struct Running<'a>(&'a Ticket);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                let mut book = self.0.books.book();
                book.tickets[self.0.number].ended = true;
                book.running -= 1;
            }
        }
        let (running, runs) = {
            let mut book = self.books.book();
            book.running += 1;
            let slots = book.last.len().max(slot + 1);
            book.last.resize(slots, 0);
            book.last[slot] = self.number;
            let running = book.running;
            let known = &mut book.tickets[self.number];
            (known.worker, known.slot) = (Some(me()), slot);
            known.runs += 1;
            (running, known.runs)
        };
        let _running = Running(self);
        assert_eq!(runs, 1, "closure {} runs again", self.number);
        assert!(running <= self.books.workers, "more closures than workers");
        work();
        self.books.book().tickets[self.number].completed = true;
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
        if known.drops != 1 {
            eprintln!("closure {} is dropped again", self.number);
            crate::run::print_plan();
            std::process::abort();
        }
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
        // Law 7. A ticket with a fuse panics, unless the closure comes back, its value is
        // delivered, or the closure itself has panicked.
        let ours = known.fate == Fate::Back || known.delivered;
        if known.fused && !ours && (known.completed || known.runs == 0) {
            crate::planned_panic();
        }
    }
}
