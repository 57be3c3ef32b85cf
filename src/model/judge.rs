//! Checks of a pool between any two steps of a shuttle execution. They assert the invariants of the
//! permits and of the bench. They also assert law 5, which says when a call may start a thread.
//! [`is_quiet`] asserts more while every worker sleeps.

use crate::engine::shared::Core;
use crate::group::Group;
use crate::parts::gate::Freed;
use crate::parts::line::joins_of;
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
                assert_bounded(&core);
                note_line(&core);
                starts.look(&core);
            });
        }
    }));
}

std::thread_local! {
    /// The number of checks so far, of all pools. The checks use it as their clock.
    static MOMENT: Cell<u64> = const { Cell::new(0) };
    /// The current call of each thread on each pool, by thread number and pool id.
    static CALLS: RefCell<HashMap<(usize, u64), Seen>> = RefCell::default();
}

/// What the checks have seen during a call.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// The moment when the call began.
    began: u64,
    /// How often its thread had joined a line before.
    joins: u64,
    /// Set if others waited in line at one moment.
    others_waited: bool,
}

/// A call on a pool. It lasts until this value is dropped.
#[derive(Debug)]
pub struct Call {
    of: (usize, u64),
    outer: Option<Seen>,
}

impl Call {
    /// Begins a call of the current thread.
    #[must_use]
    pub fn begin(pool: &Pool) -> Self {
        let of = (me(), pool.core().env.id);
        let seen = Seen {
            began: MOMENT.get(),
            joins: joins_of(me()),
            others_waited: false,
        };
        let outer = CALLS.with_borrow_mut(|calls| calls.insert(of, seen));
        Self { of, outer }
    }

    /// Returns `true` if others waited in line at one moment of the call.
    #[must_use]
    pub fn others_waited(&self) -> bool {
        CALLS.with_borrow(|calls| calls[&self.of].others_waited)
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
        // The judge looks on behalf of no worker, also of one on which others rely. In a model this waits.
        let starting = core
            .host
            .registry
            .try_lock()
            .expect("it has waited")
            .starting;
        // If `starting` has grown since the last check, this thread has grown it. If another thread
        // had grown it, that thread would have come to a check of its own first.
        if starting > self.starting.replace(starting) {
            let call = CALLS.with_borrow(|calls| calls.get(&(me(), core.env.id)).copied());
            let none_idle = self.none_idle.get();
            let slots: Vec<_> = core.slots.iter().map(|slot| slot.load()).collect();
            assert!(
                call.is_none_or(|call| none_idle >= call.began),
                "a thread is started, but since the call began there was always an idle worker: {slots:?}"
            );
        }
    }
}

/// Returns `true` if a worker is idle and a submission can find it. Returns `false` if the pool is
/// closed, or if there are surplus workers, because the idle workers may be the surplus ones. A worker
/// in its start hook and a worker that calls user code are not idle.
fn is_any_idle(core: &Core) -> bool {
    if core.env.is_closed() || core.env.is_over() {
        return false;
    }
    // The ring's length may be too small by one, because an entry can be popped before its push has
    // moved the tail. So this looks at as many places as there are slots.
    let (head, _) = core.ready.head_and_len();
    let listed = core.slots.len() as u64;
    let is_listed =
        |slot| (0..listed).any(|n| core.ready.entry(head.wrapping_add(n)) == Some(slot));
    (core.slots.iter().enumerate()).any(|(index, slot)| {
        let word = slot.load();
        word.is_idle() && (word.is_benched() || is_listed(index))
    })
}

fn count(core: &Core, is_one: impl Fn(Word) -> bool) -> u64 {
    core.slots.iter().filter(|slot| is_one(slot.load())).count() as u64
}

/// Asserts what submissions rely on. There are never more permits taken than the pool has. Each task
/// in the queue or offered to a worker has a permit, so the queue has a cell for each of them. The count
/// of benched workers includes each worker on the bench.
fn assert_bounded(core: &Core) {
    let taken = core.gate.taken();
    let permits = core.max_workers() + core.queue_capacity;
    let offered = count(core, |word| word.state() == State::Offered);
    let (queued, benched) = (core.queue.len(), core.host.benched.load(Ordering::SeqCst));
    let is_sound = taken <= permits as u64
        && queued + offered <= taken
        && count(core, Word::is_benched) <= benched;
    assert!(
        is_sound,
        "{taken} of {permits} permits, {queued} queued, {benched} benched: {:?}",
        core.slots
            .iter()
            .map(|slot| slot.load())
            .collect::<Vec<_>>()
    );
}

/// Notes for each call on this pool whether others wait in line.
fn note_line(core: &Core) {
    let is_line_there = core.gate.flags().is_waited_for();
    let waiting = core.host.line.waiting();
    CALLS.with_borrow_mut(|calls| {
        for ((thread, pool), seen) in calls.iter_mut() {
            if *pool == core.env.id {
                // From when it has joined, the call may be the one that waits.
                let has_joined = joins_of(*thread) > seen.joins;
                seen.others_waited |= if has_joined {
                    waiting > 1
                } else {
                    is_line_there
                };
            }
        }
    });
}

/// Returns how many permits are those of dead cells: of cells that are dead or may become dead, and of
/// cells that `head` has passed, until a thread gives their permits back. The latter are counted for all
/// pools. Returns `u64::MAX` if this thread cannot look at the queue now.
#[must_use]
pub fn permits_of_dead_cells(pool: &Pool) -> u64 {
    let dead = peek(|| pool.core().queue.dead_cells());
    dead.map_or(u64::MAX, |dead| dead + Freed::in_motion())
}

/// Returns how many permits of a limited group are taken.
#[must_use]
pub fn permits_of_group(group: &Group) -> usize {
    let gate = group.members().gate().expect("the group has a limit");
    gate.taken() as usize
}

/// Returns `true` if the pool is quiet: it is open, every worker sleeps, no worker has ended so far
/// and no sweep is planned. If so, asserts that the counts, the permits, the ready ring, the bench
/// and the registry say the same. The caller makes sure that no call on the pool runs meanwhile.
#[must_use]
pub fn is_quiet(pool: &Pool) -> bool {
    let quiet = peek(|| {
        let core = pool.core();
        let rests = |state| state == State::Free || state == State::Idle;
        let words: Vec<_> = core.slots.iter().map(|slot| slot.load()).collect();
        let registry = core.host.registry.lock();
        let spawned = core.host.headcount.spawned.load(Ordering::SeqCst);
        let is_settled =
            spawned == registry.live as u64 && core.host.sweep_at.load(Ordering::SeqCst) == 0;
        let quiet = (is_settled && !core.env.is_closed())
            && (words.iter()).all(|w| rests(w.state()) && w.is_idle() == w.is_parked());
        if quiet {
            assert_eq!(core.in_flight.figures(), [0, 0], "{words:?}");
            core.gate.assert_at_rest();
            let (head, listed) = core.ready.head_and_len();
            let mut entries: Vec<_> = (0..listed)
                .filter_map(|n| core.ready.entry(head.wrapping_add(n)))
                .collect();
            entries.extend(registry.bench.iter().map(|(slot, _)| slot));
            let mut idle = words.iter().enumerate().filter(|(_, word)| word.is_idle());
            assert!(
                idle.all(|(slot, _)| entries.contains(&slot)),
                "{words:?} {entries:?}"
            );
            let benched = core.host.benched.load(Ordering::SeqCst);
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
