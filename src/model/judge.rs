//! The counters' invariants, as the table in `parts/in_flight.rs` has them: looked at between
//! any two steps of an execution, and more strictly while nothing goes on. And law 5: who starts a
//! thread.

use crate::engine::core::Core;
use crate::parts::queue::Queue;
use crate::parts::slot::{State, Word};
use crate::pool::Pool;
use crate::sync::control::peek;
use crate::sync::{me, Ordering};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// From now on, until the execution ends, the judge looks at this pool before each step.
pub fn attend(pool: &Pool) {
    let core = Arc::downgrade(pool.core());
    let starts = Starts::default();
    crate::sync::judge_by(Box::new(move || {
        if let Some(core) = core.upgrade() {
            // It may be in the middle of its drop, or of a step that waits.
            let _ = peek(|| {
                assert_counted(&core);
                note_taken(&core);
                starts.look(&core);
            });
        }
    }));
}

std::thread_local! {
    /// Looks of all judges so far.
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    /// By thread and pool: when its call began, and the most that was taken without a task since.
    static CALLS: RefCell<HashMap<(usize, u64), (u64, u64)>> = RefCell::default();
}

/// A call of a pool, until it is dropped.
#[derive(Debug)]
pub struct Call {
    of: (usize, u64),
    outer: Option<(u64, u64)>,
}

impl Call {
    /// The current thread's, from now on.
    #[must_use]
    pub fn begin(pool: &Pool) -> Self {
        let of = (me(), pool.core().env.id);
        let outer = CALLS.with_borrow_mut(|calls| calls.insert(of, (MOMENT.get(), 0)));
        Self { of, outer }
    }

    /// Returns the most that was taken at one moment of the call other than by tasks: by workers in a hook.
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

/// Threads that are started. Law 5: at some moment during the call no worker was idle. One that
/// another submission is just taking is not.
#[derive(Debug, Default)]
struct Starts {
    /// When nobody was idle, last.
    nobody: Cell<u64>,
    starting: Cell<usize>,
}

impl Starts {
    fn look(&self, core: &Core) {
        let now = MOMENT.get() + 1;
        MOMENT.set(now);
        if !is_anybody_idle(core) {
            self.nobody.set(now);
        }
        let starting = crate::sync::lock(&core.registry).starting;
        // Who starts one takes the next step, too.
        if starting > self.starting.replace(starting) {
            let call = CALLS.with_borrow(|calls| calls.get(&(me(), core.env.id)).copied());
            let call = call.map(|(began, _)| began);
            let nobody = self.nobody.get();
            let slots: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
            assert!(
                call.is_none_or(|call| nobody >= call),
                "a thread is started, and somebody was idle since the call began: {slots:?}"
            );
        }
    }
}

/// Whether a worker is idle and can be found, and is not one too many.
fn is_anybody_idle(core: &Core) -> bool {
    if core.is_closed() || core.env.is_over() {
        return false;
    }
    // One entry may have been popped before its push has moved the tail.
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

/// Who cannot be found in a ring is counted before, and until after. But not a worker that is
/// starting, nor one whose end a stop hook may delay.
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

/// See [`Call::taken_otherwise`].
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

/// A start hook is looked at without the task that goes with it, as that may be taken back.
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
        // On its way back to the ring, a few steps after the hook; or in the hands of a thread that is
        // about to start a worker there: being started counts as busy, and no submission waits for it.
        State::Free => !is_free(slot) && !withheld.contains(&slot),
        _ => word.is_starting(),
    };
    let words = core.slots.iter().map(|slot| slot.see()).enumerate();
    words.filter(|one| is_in_hook(*one)).count() as u64
}

/// Returns a look, between two steps, whether a thread serves the pool's line.
pub fn watch_line(pool: &Pool) -> impl Fn() -> bool {
    let core = Arc::downgrade(pool.core());
    move || {
        let core = core.upgrade();
        core.is_some_and(|core| peek(|| core.line.is_served()).unwrap_or(true))
    }
}

/// Places in the queue of tasks that were taken out, behind an older one that is still there, or may
/// be. Between two steps.
#[must_use]
pub fn dead_places(pool: &Pool) -> u64 {
    let core = pool.core();
    peek(|| core.queue.as_ref().map_or(0, Queue::dead_places)).unwrap_or(u64::MAX)
}

/// Whether every worker sleeps, in an open pool of which none has ended and none is to sweep;
/// if so, asserts that the counts say so, too. Not beside a call.
#[must_use]
pub fn is_quiet(pool: &Pool) -> bool {
    let quiet = peek(|| {
        let core = pool.core();
        let rests = |state| state == State::Free || state == State::Idle;
        let words: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
        let registry = crate::sync::lock(&core.registry);
        let is_settled = registry.retired == 0 && core.sweep_at.load(Ordering::SeqCst) == 0;
        let quiet = (is_settled && !core.is_closed())
            && (words.iter()).all(|w| rests(w.state()) && w.is_idle() == w.is_parked());
        if quiet {
            assert_eq!(core.in_flight.figures(), [0, 0, 0], "{words:?}");
            let (head, listed) = core.ready.held();
            let mut entries: Vec<_> = (0..listed)
                .filter_map(|n| core.ready.entry(head.wrapping_add(n)))
                .collect();
            entries.extend(&registry.bench);
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
