//! The counters' invariants, as the table in `parts/in_flight.rs` has them: looked at between
//! any two steps of an execution, and more strictly while nothing goes on. And law 5: who starts a
//! thread.

use crate::engine::core::{Cleaner, Core};
use crate::parts::slot::State;
use crate::pool::Pool;
use crate::sync::control::peek;
use crate::sync::me;
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
                starts.look(&core);
            });
        }
    }));
}

std::thread_local! {
    /// Looks of all judges so far.
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    /// By thread and pool: when its call began.
    static CALLS: RefCell<HashMap<(usize, u64), u64>> = RefCell::default();
}

/// A call of a pool, until it is dropped.
#[derive(Debug)]
pub struct Call {
    of: (usize, u64),
    outer: Option<u64>,
}

impl Call {
    /// The current thread's, from now on.
    #[must_use]
    pub fn begin(pool: &Pool) -> Self {
        let of = (me(), pool.core().env.id);
        let outer = CALLS.with_borrow_mut(|calls| calls.insert(of, MOMENT.get()));
        Self { of, outer }
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
            let nobody = self.nobody.get();
            let slots: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
            assert!(
                call.is_none_or(|call| nobody >= call),
                "a thread is started, and somebody was idle since the call began: {slots:?}"
            );
        }
    }
}

/// Whether a worker is idle and can be found: not in its start hook, nor one too many.
fn is_anybody_idle(core: &Core) -> bool {
    if core.is_closed() || core.env.has_surplus() {
        return false;
    }
    // One entry may have been popped before its push has moved the tail.
    let (head, _) = core.ready.held();
    let listed = core.slots.len() as u64;
    let is_listed =
        |slot| (0..listed).any(|n| core.ready.entry(head.wrapping_add(n)) == Some(slot));
    (core.slots.iter().enumerate()).any(|(index, slot)| {
        let word = slot.see();
        let can_be_found = word.is_marked() || is_listed(index);
        word.is_idle() && can_be_found && !slot.record.is_in_start_hook()
    })
}

fn count(core: &Core, state: State) -> u64 {
    let slots = core.slots.iter();
    slots.filter(|slot| slot.see().state() == state).count() as u64
}

fn marked(core: &Core) -> u64 {
    let slots = core.slots.iter();
    slots.filter(|slot| slot.see().is_marked()).count() as u64
}

/// Who cannot be found in a ring is counted before, and until after.
fn assert_counted(core: &Core) {
    let [awake, notified, transit, counted] = core.in_flight.figures();
    let searching = count(core, State::Searching);
    assert!(searching <= awake + notified, "{core:?}");
    let away = searching + count(core, State::Retiring);
    assert!(away <= awake + notified + transit, "{core:?}");
    assert!(marked(core) <= counted, "{core:?}");
}

/// Whether every worker sleeps, in an open pool of which none has ended and that has no cleaner;
/// if so, asserts that the counts say so, too. Not beside a call.
#[must_use]
pub fn is_quiet(pool: &Pool) -> bool {
    let quiet = peek(|| {
        let core = pool.core();
        let rests = |state| state == State::Free || state == State::Idle;
        let words: Vec<_> = core.slots.iter().map(|slot| slot.see()).collect();
        let registry = crate::sync::lock(&core.registry);
        let is_settled = registry.retired == 0 && matches!(registry.cleaner, Cleaner::Absent);
        let quiet = (is_settled && !core.is_closed())
            && (words.iter()).all(|w| rests(w.state()) && w.is_idle() == w.is_parked());
        if quiet {
            let figures = core.in_flight.figures();
            assert_eq!(figures, [0, 0, 0, marked(core)], "{words:?}");
            let live = count(core, State::Idle);
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
