//! Checks of a pool between any two steps of a shuttle execution. They assert the invariants of the
//! counts, as the table in `parts/in_flight.rs` states them. They also assert law 5, which says
//! when a call may start a thread. [`is_quiet`] asserts more while every worker sleeps.

use crate::engine::core::Core;
use crate::parts::queue::Queue;
use crate::parts::slot::{State, Word};
use crate::pool::Pool;
use crate::sync::control::peek;
use crate::sync::{me, Ordering};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Checks this pool before each step from now on, until the execution ends.
pub fn attend(pool: &Pool) {
    let core = Arc::downgrade(pool.core());
    let starts = Starts::default();
    crate::sync::judge_by(Box::new(move || {
        if let Some(core) = core.upgrade() {
            // `peek` returns `None` if the check would have to wait for a step of another thread.
            // That can happen while the pool is being dropped. It is not an error.
            let _ = peek(|| {
                assert_counted(&core);
                note_taken(&core);
                starts.look(&core);
            });
        }
    }));
}

std::thread_local! {
    /// The number of checks so far, of all pools. The checks use it as their clock.
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    /// The current call of each thread on each pool, by thread number and pool id. The values are
    /// the moment when the call began, and the result of [`Call::taken_otherwise`].
    static CALLS: RefCell<HashMap<(usize, u64), (u64, u64)>> = RefCell::default();
}

/// A call on a pool. It lasts until this value is dropped.
#[derive(Debug)]
pub struct Call {
    of: (usize, u64),
    outer: Option<(u64, u64)>,
}

impl Call {
    /// Begins a call of the current thread.
    #[must_use]
    pub fn begin(pool: &Pool) -> Self {
        let of = (me(), pool.core().env.id);
        let outer = CALLS.with_borrow_mut(|calls| calls.insert(of, (MOMENT.get(), 0)));
        Self { of, outer }
    }

    /// Returns the greatest number of slots that had a worker in a hook at one moment of the call.
    /// Such a slot is taken, but not by a task.
    #[must_use]
    pub fn taken_otherwise(&self) -> u64 {
        CALLS.with_borrow(|calls| calls[&self.of].1)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(|calls| match self.outer {
            Some(outer) => calls.insert(self.of, outer),
            None => calls.remove(&self.of),
        });
    }
}

/// Checks law 5: a call starts a thread only if no worker was idle at some moment during the call.
/// A worker that another submission is currently taking is not idle.
#[derive(Debug, Default)]
struct Starts {
    /// The last moment at which no worker was idle.
    none_idle: Cell<u64>,
    /// The number of threads that were being started at the last check.
    starting: Cell<usize>,
}

impl Starts {
    fn look(&self, core: &Core) {
        let now = MOMENT.get() + 1;
        MOMENT.set(now);
        if !is_any_idle(core) {
            self.none_idle.set(now);
        }
        let starting = crate::sync::lock(&core.registry).starting;
        // If `starting` has grown since the last check, this thread has grown it. If another thread
        // had grown it, that thread would have come to a check of its own first.
        if starting > self.starting.replace(starting) {
            let call = CALLS.with_borrow(|calls| calls.get(&(me(), core.env.id)).copied());
            let call = call.map(|(began, _)| began);
            let none_idle = self.none_idle.get();
            let slots: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
            assert!(
                call.is_none_or(|call| none_idle >= call),
                "a thread is started, but since the call began there was always an idle worker: {slots:?}"
            );
        }
    }
}

/// Returns `true` if a worker is idle and a submission can find it. Returns `false` if the pool is
/// closed, or if there are surplus workers, because the idle workers may be the surplus ones.
fn is_any_idle(core: &Core) -> bool {
    if core.env.is_closed() || core.env.is_over() {
        return false;
    }
    // The ring's length may be too small by one, because an entry can be popped before its push has
    // moved the tail. So this looks at as many places as there are slots.
    let (head, _) = core.ready.held();
    let listed = core.slots.len() as u64;
    let is_listed =
        |slot| (0..listed).any(|n| core.ready.entry(head.wrapping_add(n)) == Some(slot));
    (core.slots.iter().enumerate()).any(|(index, slot)| {
        let word = slot.see();
        word.is_idle() && (word.is_benched() || is_listed(index))
    })
}

fn count(core: &Core, is_one: impl Fn(Word) -> bool) -> u64 {
    core.slots.iter().filter(|slot| is_one(slot.see())).count() as u64
}

/// Asserts that the counts cover each worker that has no task and is in no ring. Such a worker is
/// counted before it leaves a ring, and until it is in a ring again. Workers in a start hook are
/// not counted. In a pool with a stop hook, workers that end are not counted either.
fn assert_counted(core: &Core) {
    let [awake, notified, returning] = core.in_flight.figures();
    let searches = |word: Word| word.state() == State::Searching && !word.is_starting();
    let searching = count(core, searches);
    let shows = || {
        let words: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
        let benched = core.benched.load(Ordering::SeqCst);
        format!("{words:?}: {awake} awake, {notified} notified, {returning} returning, {benched} benched")
    };
    assert!(searching <= awake + notified, "{}", shows());
    if core.env.hooks.stop.is_none() {
        let away = searching + count(core, |word| word.state() == State::Retiring);
        assert!(away <= awake + notified + returning, "{}", shows());
    }
    assert!(
        count(core, Word::is_benched) <= core.benched.load(Ordering::SeqCst),
        "{}",
        shows()
    );
}

/// Notes the figure that [`Call::taken_otherwise`] returns, for each call on this pool.
fn note_taken(core: &Core) {
    let taken = in_hooks(core);
    CALLS.with_borrow_mut(|calls| {
        for ((_, pool), (_, most)) in calls.iter_mut() {
            if *pool == core.env.id {
                *most = taken.max(*most);
            }
        }
    });
}

/// Returns how many slots have a worker in a hook. A worker in its start hook counts even if it has
/// been given a task, because that task may be taken back.
fn in_hooks(core: &Core) -> u64 {
    if core.env.hooks.start.is_none() && core.env.hooks.stop.is_none() {
        return 0;
    }
    let stops = core.env.hooks.stop.is_some();
    let (head, free) = core.free.held();
    let is_free = |slot| (0..free).any(|n| core.free.entry(head.wrapping_add(n)) == Some(slot));
    let withheld = crate::sync::lock(&core.registry).withheld.clone();
    let is_in_hook = |(slot, word): (usize, Word)| match word.state() {
        State::Retiring => stops,
        // The slot is on its way back to the free ring, a few steps after the stop hook. Or a
        // thread has popped it and is about to start a worker on it. In both cases the slot counts
        // as taken, because no submission waits for it.
        State::Free => !is_free(slot) && !withheld.contains(&slot),
        _ => word.is_starting(),
    };
    let words = core.slots.iter().map(|slot| slot.see()).enumerate();
    words.filter(|one| is_in_hook(*one)).count() as u64
}

/// Returns how many places of the queue are dead or may become dead, behind the oldest place that
/// is not dead. Returns `u64::MAX` if this thread cannot look at the queue now.
#[must_use]
pub fn dead_places(pool: &Pool) -> u64 {
    let core = pool.core();
    peek(|| core.queue.as_ref().map_or(0, Queue::dead_places)).unwrap_or(u64::MAX)
}

/// Returns `true` if the pool is quiet: it is open, every worker sleeps, no worker has ended so far
/// and no sweep is planned. If so, asserts that the counts, the ready ring, the bench and the
/// registry say the same. The caller makes sure that no call on the pool runs meanwhile.
#[must_use]
pub fn is_quiet(pool: &Pool) -> bool {
    let quiet = peek(|| {
        let core = pool.core();
        let rests = |state| state == State::Free || state == State::Idle;
        let words: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
        let registry = crate::sync::lock(&core.registry);
        let is_settled =
            registry.spawned == registry.live as u64 && core.sweep_at.load(Ordering::SeqCst) == 0;
        let quiet = (is_settled && !core.env.is_closed())
            && (words.iter()).all(|w| rests(w.state()) && w.is_idle() == w.is_parked());
        if quiet {
            assert_eq!(core.in_flight.figures(), [0, 0, 0], "{words:?}");
            let (head, listed) = core.ready.held();
            let mut entries: Vec<_> = (0..listed)
                .filter_map(|n| core.ready.entry(head.wrapping_add(n)))
                .collect();
            entries.extend(registry.bench.iter().map(|(slot, _)| slot));
            let mut idle = words.iter().enumerate().filter(|(_, word)| word.is_idle());
            assert!(
                idle.all(|(slot, _)| entries.contains(&slot)),
                "{words:?} {entries:?}"
            );
            let benched = core.benched.load(Ordering::SeqCst);
            assert_eq!(benched, registry.bench.len() as u64, "{words:?}");
            let live = count(core, Word::is_idle);
            assert_eq!(
                (registry.live as u64, registry.starting),
                (live, 0),
                "{words:?}"
            );
        }
        quiet
    });
    quiet.unwrap_or(false)
}
