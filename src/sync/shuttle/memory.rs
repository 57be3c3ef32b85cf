//! Checks the order of accesses, and finds uses of memory after it has been freed.
//!
//! Values are sequentially consistent: a load returns the newest store, even if the load is
//! `Relaxed`. Orderings decide what a store publishes. Each thread has a vector clock. A release
//! joins the thread's clock into the clock of the word or lock, and an acquire joins that clock
//! into the thread's. A read-modify-write continues a release sequence, as in C++20. Two
//! conflicting accesses to an [`UnsafeCell`](super::UnsafeCell) panic unless one happens before the
//! other. Three things are left out: stale values of weak loads (loom has them), fences (the crate
//! has none), and the counts of an `Arc`.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// A vector clock: for each thread, the number of its steps that happen before the event to which
/// this clock belongs.
type Stamp = Vec<u32>;

std::thread_local! {
    /// The vector clocks of the threads, by thread number.
    static STAMPS: RefCell<Vec<Stamp>> = const { RefCell::new(Vec::new()) };
    /// The value that [`unfreed`] returns.
    static UNFREED: Cell<usize> = const { Cell::new(0) };
}

/// Forgets the last execution. Called when a new execution begins.
pub(super) fn forget() {
    STAMPS.take();
    UNFREED.set(0);
}

/// Returns the number of the current thread.
pub(crate) fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

fn join(into: &mut Stamp, from: &Stamp) {
    into.resize(into.len().max(from.len()), 0);
    for (mine, theirs) in into.iter_mut().zip(from) {
        *mine = (*mine).max(*theirs);
    }
}

/// Calls `f` with a thread's vector clock. The thread's own entry in it is never zero.
fn with_stamp<R>(thread: usize, f: impl FnOnce(&mut Stamp) -> R) -> R {
    STAMPS.with_borrow_mut(|stamps| {
        stamps.resize(stamps.len().max(thread + 1), Stamp::new());
        let stamp = &mut stamps[thread];
        if stamp.len() <= thread {
            stamp.resize(thread + 1, 0);
            stamp[thread] = 1;
        }
        f(stamp)
    })
}

/// The vector clock that has been released at a word or a lock.
#[derive(Debug)]
pub(crate) struct Published(RefCell<Stamp>);

// SAFETY: the threads of an execution share one OS thread, and switch only at scheduling points. No
// access to the cell has a scheduling point in its middle.
unsafe impl Sync for Published {}

impl Published {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Stamp::new()))
    }

    /// Forgets the earlier releases, as a store does.
    pub(super) fn forget(&self) {
        self.0.borrow_mut().clear();
    }

    /// Joins the current thread's vector clock into this one, if `order` releases.
    pub(crate) fn release(&self, order: Ordering) {
        use Ordering::{AcqRel, Release, SeqCst};
        if matches!(order, Release | AcqRel | SeqCst) {
            let me = me();
            with_stamp(me, |stamp| {
                join(&mut self.0.borrow_mut(), stamp);
                // The thread's later steps get a higher number, so they are not published.
                stamp[me] += 1;
            });
        }
    }

    /// Joins this vector clock into the current thread's, if `order` acquires. Does nothing in a
    /// `peek`.
    pub(crate) fn acquire(&self, order: Ordering) {
        use Ordering::{AcqRel, Acquire, SeqCst};
        if matches!(order, Acquire | AcqRel | SeqCst) && !super::world::peeks() {
            with_stamp(me(), |stamp| join(stamp, &self.0.borrow()));
        }
    }
}

/// Notes that the current thread has joined `thread`. So all steps of `thread` happen before the
/// next steps of the current thread.
pub(super) fn has_joined(thread: usize) {
    let known = with_stamp(thread, |stamp| stamp.clone());
    with_stamp(me(), |stamp| join(stamp, &known));
}

/// The accesses to a cell: for each thread, its last write, and its last read since any thread last
/// wrote.
#[derive(Debug)]
pub(super) struct Accesses {
    writes: Stamp,
    reads: Stamp,
}

impl Accesses {
    pub(super) const fn new() -> Self {
        Self {
            writes: Stamp::new(),
            reads: Stamp::new(),
        }
    }

    #[track_caller]
    pub(super) fn check(&mut self, is_write: bool) {
        let me = me();
        with_stamp(me, |stamp| {
            let known = |thread: usize| stamp.get(thread).copied().unwrap_or(0);
            let racing = |of: &Stamp| (0..of.len()).find(|thread| of[*thread] > known(*thread));
            if let Some(other) = racing(&self.writes) {
                panic!("data race: thread {me} accesses what thread {other} writes");
            }
            if let (true, Some(other)) = (is_write, racing(&self.reads)) {
                panic!("data race: thread {me} writes what thread {other} reads");
            }
            let own = if is_write {
                self.reads.clear();
                &mut self.writes
            } else {
                &mut self.reads
            };
            own.resize(own.len().max(me + 1), 0);
            own[me] = stamp[me];
        });
    }
}

/// A marker that is erased when its memory is dropped. An access after that panics, unless the
/// memory has been overwritten with the marker since.
#[derive(Debug)]
pub(super) struct Alive(Cell<u32>);

impl Alive {
    const YES: u32 = 0x5A4C_19E7;

    pub(super) const fn new() -> Self {
        Self(Cell::new(Self::YES))
    }

    #[track_caller]
    pub(super) fn check(&self) {
        assert!(self.0.get() == Self::YES, "used after it is gone");
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // `black_box` keeps the compiler from removing this write as a dead store.
        std::hint::black_box(&self.0).set(0);
    }
}

/// Returns how many allocations with a [`Track`] the execution has not freed. The number must be
/// zero once all threads of the execution have ended.
#[must_use]
pub fn unfreed() -> usize {
    UNFREED.get()
}

/// A marker in memory that must be freed before its execution ends.
#[derive(Debug)]
pub(crate) struct Track(());

impl Track {
    pub(crate) fn new((): ()) -> Self {
        UNFREED.set(UNFREED.get() + 1);
        Self(())
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        UNFREED.set(UNFREED.get() - 1);
    }
}
