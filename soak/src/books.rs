//! Counts of the fates of all closures and results. They are counted, not listed, so that a run may
//! take days.

use crate::plan::Plan;
use crate::rng::mix;
use lazypool::{task, Pool};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Counts of the events that the callers and closures of one pool saw.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) plan: Plan,
    /// Closures offered to the pool.
    pub(crate) made: AtomicU64,
    /// Closures offered with a deadline of zero, which the pool does not count.
    pub(crate) zero: AtomicU64,
    pub(crate) ran: AtomicU64,
    pub(crate) ran_by_caller: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Futures that were dropped before their task ran. If one was in line, the pool does not count
    /// it.
    pub(crate) left: AtomicU64,
    /// Closures that came back, for any reason.
    pub(crate) back: AtomicU64,
    pub(crate) back_expired: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Tasks that must count as panicked.
    pub(crate) panics: AtomicU64,
    pub(crate) hook_panics: AtomicU64,
    /// Discarded tasks of groups, as the groups counted them.
    pub(crate) group_discards: AtomicU64,
    pub(crate) handles: Handles,
    pub(crate) results_made: AtomicU64,
    pub(crate) results_dropped: AtomicU64,
    /// Closures that ran twice, were dropped twice, or held another task's data.
    pub(crate) wrong: AtomicU64,
    pub(crate) inside: AtomicU64,
    pub(crate) most_inside: AtomicU64,
    /// The longest time by which a call outlasted its deadline, in microseconds.
    pub(crate) overshoot: AtomicU64,
    /// This pool, for tasks that submit to it. `peer` is another pool with its books.
    pub(crate) own: OnceLock<Weak<Pool>>,
    pub(crate) peer: OnceLock<(Weak<Pool>, Weak<Books>)>,
}

/// Counts of handles, by their outcome or by the way in which they were given up.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    pub(crate) values: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) expired: AtomicU64,
    /// Discarded or cancelled tasks, without those of groups.
    pub(crate) discarded: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) detached: AtomicU64,
}

impl Handles {
    pub(crate) fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("values", &self.values),
            ("panics", &self.panics),
            ("expired", &self.expired),
            ("discarded", &self.discarded),
            ("dropped", &self.dropped),
            ("detached", &self.detached),
        ]
        .map(|(name, n)| (name, get(n)))
    }
}

impl Books {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            made: AtomicU64::new(0),
            zero: AtomicU64::new(0),
            ran: AtomicU64::new(0),
            ran_by_caller: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            left: AtomicU64::new(0),
            back: AtomicU64::new(0),
            back_expired: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            hook_panics: AtomicU64::new(0),
            group_discards: AtomicU64::new(0),
            handles: Handles::default(),
            results_made: AtomicU64::new(0),
            results_dropped: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            most_inside: AtomicU64::new(0),
            overshoot: AtomicU64::new(0),
            own: OnceLock::new(),
            peer: OnceLock::new(),
        }
    }
}

pub(crate) fn add(n: &AtomicU64) {
    n.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn get(n: &AtomicU64) -> u64 {
    n.load(Ordering::SeqCst)
}

/// Counts finished calls and tasks, for the watchdog.
pub(crate) use soak::PROGRESS;

thread_local! {
    /// `true` while this thread runs a closure that the pool refused.
    static CALLER_RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` as a caller that runs its refused closure itself.
pub(crate) fn as_caller<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLER_RUNS.set(self.0);
        }
    }
    let _restore = Restore(CALLER_RUNS.replace(true));
    f()
}

pub(crate) fn caller_runs() -> bool {
    CALLER_RUNS.get()
}

/// Panics without the panic hook's message.
pub(crate) fn quiet_panic() -> ! {
    resume_unwind(Box::new("soak"))
}

const NEW: u32 = 0;
const RAN: u32 = 1;
const DROPPED: u32 = 2;

/// Captured by each closure, to count its fate.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) books: Arc<Books>,
    /// A hash that reveals a closure whose bytes were damaged on the way.
    check: u64,
    state: AtomicU32,
    /// `true` if the ticket's drop panics.
    bomb: bool,
}

impl Ticket {
    pub(crate) fn new(books: &Arc<Books>, act: u64, bomb: bool) -> Self {
        add(&books.made);
        Self {
            books: Arc::clone(books),
            check: mix(act),
            state: AtomicU32::new(NEW),
            bomb,
        }
    }

    /// Counts a call of the closure.
    pub(crate) fn run(&self, act: u64) {
        let books = &*self.books;
        if self.state.swap(RAN, Ordering::SeqCst) != NEW || self.check != mix(act) {
            add(&books.wrong);
        }
        if caller_runs() {
            return add(&books.ran_by_caller);
        }
        add(&books.ran);
        add(&PROGRESS);
        let inside = books.inside.fetch_add(1, Ordering::SeqCst) + 1;
        books.most_inside.fetch_max(inside, Ordering::Relaxed);
        if task::slot().is_none() {
            add(&books.wrong);
        }
    }

    /// Counts that the closure is about to return or panic.
    pub(crate) fn end(&self) {
        if !caller_runs() {
            self.books.inside.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Counts a panic of the task. To be called before the panic.
    pub(crate) fn note_panic(&self) {
        if !caller_runs() {
            add(&self.books.panics);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.state.swap(DROPPED, Ordering::SeqCst);
        add(&self.books.dropped);
        if before == DROPPED {
            add(&self.books.wrong);
        }
        if self.bomb && !std::thread::panicking() {
            if before == RAN {
                self.note_panic();
            }
            quiet_panic();
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub(crate) struct Value {
    books: Arc<Books>,
    pub(crate) act: u64,
    bomb: bool,
}

impl Value {
    pub(crate) fn new(books: &Arc<Books>, act: u64, bomb: bool) -> Self {
        add(&books.results_made);
        Self {
            books: Arc::clone(books),
            act,
            bomb,
        }
    }

    /// Defuses the result, as it has arrived: only results that no caller takes may panic in their
    /// drop.
    pub(crate) fn arrived(mut self) -> u64 {
        self.bomb = false;
        self.act
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        add(&self.books.results_dropped);
        if self.bomb && !std::thread::panicking() {
            if !caller_runs() {
                add(&self.books.panics);
            }
            quiet_panic();
        }
    }
}
