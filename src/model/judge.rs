//! The counters' invariants, as the table in `parts/in_flight.rs` has them: looked at between
//! any two steps of an execution, and more strictly while nothing goes on.

use crate::engine::core::{Cleaner, Core};
use crate::parts::slot::State;
use crate::pool::Pool;
use crate::sync::control::peek;
use std::sync::Arc;

/// From now on, until the execution ends, the judge looks at this pool before each step.
pub fn attend(pool: &Pool) {
    let core = Arc::downgrade(pool.core());
    crate::sync::judge_by(Box::new(move || {
        if let Some(core) = core.upgrade() {
            // It may be in the middle of its drop, or of a step that waits.
            let _ = peek(|| assert_counted(&core));
        }
    }));
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
