//! What `{pool:?}` shows of the core: the words that decide, read one after the other.

use super::findings::{self, Finding};
use crate::engine::figures::tally_of;
use crate::engine::shared::{Core, Registry};
use crate::parts::backoff::IN_MODELS;
use crate::parts::gate::Flags;
use crate::parts::queue::CellState;
use crate::parts::slot::{State, Word};
use crate::sync::{thread, Ordering, ThreadNumber};
use crate::work::owed::Kinds;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How many readings a finding must be in.
const READINGS: usize = 8;

/// The time before the last reading.
const PAUSE: Duration = Duration::from_millis(2);

/// For how long, and in how many readings, a nudge watches counts that look wrong.
const WATCH: Duration = Duration::from_millis(500);
const WATCHES: usize = if IN_MODELS { READINGS } else { 50 };

/// The state of the core, for a person who looks at a pool that hangs. CONTRIBUTING.md says how to read
/// it.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "read by `Debug`")]
pub(crate) struct Reading {
    pub(crate) permits: u64,
    pub(crate) permits_in_use: u64,
    pub(crate) gate: Flags,
    /// The tasks that workers run or have in their mailbox.
    pub(crate) tasks: u64,
    /// Of the queue, with those of dead cells.
    pub(crate) cells_in_use: u64,
    pub(crate) oldest_cell: CellState,
    /// The position of the oldest cell.
    pub(crate) head: u64,
    pub(crate) awake: u64,
    pub(crate) notified: u64,
    /// `false` once a nudge has found these two counts wrong: no thread relies on them.
    pub(crate) trusts_counts: bool,
    /// The entries of the ready ring, and how many slots are idle and listed. Such a slot has an entry; other slots
    /// may have one left.
    pub(crate) ready_entries: u64,
    pub(crate) idle_listed: u64,
    /// The entries of the free ring.
    pub(crate) free_entries: u64,
    /// Of the other slots that are not free, and of those that count as awake.
    pub(crate) slots: BTreeMap<usize, Inner>,
    /// How many tasks had been pushed, plus one, as the OS last refused a thread. Zero if it has refused none.
    pub(crate) refused_at: u64,
    /// How many positions of the queue `head` has passed.
    pub(crate) popped: u64,
    /// How many submissions in line could have a permit. `None`: another thread has the lock of the lines.
    pub(crate) passable: Option<u64>,
    /// `None`: another thread has its lock.
    pub(crate) registry: Option<Registered>,
    /// The thread that has the lock of the lines, or had it last.
    pub(crate) lines_locker: ThreadNumber,
    /// The same of the registry.
    pub(crate) registry_locker: ThreadNumber,
}

/// What is to be seen of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Inner {
    pub(crate) word: Word,
    /// The tasks that the worker has taken from the queue.
    pub(crate) taken: u64,
    /// `true` if the worker has a unit of the count `awake`.
    pub(crate) awake: bool,
    /// `true` if the worker has not obeyed its first order, in a pool with a start hook.
    pub(crate) is_new: bool,
    /// `true` if the worker sleeps.
    pub(crate) sleeps: bool,
    /// `true` if the worker is idle, and has not counted its last task's end.
    pub(crate) is_ending_task: bool,
    /// `true` if the worker's decision is `PINNED`, by the worker or by the one who leaves its task.
    pub(crate) is_pinned: bool,
    pub(crate) pays: Kinds,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.word)?;
        if self.awake {
            f.write_str(" awake")?;
        }
        if self.is_new {
            f.write_str(" new")?;
        }
        if self.sleeps {
            f.write_str(" sleeps")?;
        }
        if self.is_ending_task {
            f.write_str(" is ending its task")?;
        }
        if self.is_pinned {
            f.write_str(" pinned")?;
        }
        if self.pays != Kinds::NONE {
            write!(f, " pays {:?}", self.pays)?;
        }
        Ok(())
    }
}

/// The figures of the registry.
#[derive(Debug, Clone)]
#[allow(dead_code, reason = "read by `Debug`")]
pub(crate) struct Registered {
    pub(crate) live: usize,
    pub(crate) starting: usize,
    pub(crate) retiring: usize,
    pub(crate) stopping: Vec<usize>,
    pub(crate) limit: usize,
    pub(crate) withheld: Vec<usize>,
    /// The slots on the bench, and those of stale entries.
    pub(crate) bench: Vec<usize>,
}

impl Registered {
    fn of(registry: &Registry) -> Self {
        Self {
            live: registry.live,
            starting: registry.starting,
            retiring: registry.retiring,
            stopping: registry.stopping.iter().map(|it| it.worker.slot).collect(),
            limit: registry.limit,
            withheld: registry.withheld.clone(),
            bench: registry.bench.iter().map(|(slot, _)| *slot).collect(),
        }
    }
}

impl Core {
    /// Returns the state of the core. Its fields are read one after the other.
    pub(crate) fn reading(&self) -> Reading {
        let [awake, notified] = self.in_flight.figures();
        let (mut tasks, mut idle_listed, mut slots) = (0, 0, BTreeMap::new());
        for (index, slot) in self.used_slots().iter().enumerate() {
            let (word, record) = (slot.load(), &slot.record);
            let tally = tally_of(slot);
            let it = Inner {
                word,
                taken: tally.taken,
                awake: record.awake.is_counted(),
                is_new: record.is_new(),
                sleeps: record.sleeps(),
                is_ending_task: word.is_idle() && tally.is_running(),
                is_pinned: record.decision.is_pinned(),
                pays: record.pays(),
            };
            let rests = word.is_idle() && !word.is_benched();
            idle_listed += u64::from(rests);
            tasks += u64::from(tally.is_running());
            let is_unusual = it.awake || it.is_ending_task || it.pays != Kinds::NONE;
            if is_unusual || word.state() != State::Free && !rests {
                slots.insert(index, it);
            }
        }
        let (head, oldest_cell) = self.queue.oldest();
        Reading {
            permits: self.gate.bound(),
            permits_in_use: self.gate.taken(),
            gate: self.gate.flags(),
            tasks,
            cells_in_use: self.queue.len(),
            oldest_cell,
            head,
            awake,
            notified,
            trusts_counts: self.env.trusts_counts(),
            ready_entries: self.ready.head_and_len().1,
            idle_listed,
            free_entries: self.free.head_and_len().1,
            slots,
            // Relaxed: a figure.
            refused_at: self.host.counts.refused_at.load(Ordering::Relaxed),
            popped: self.queue.popped(),
            passable: (self.host.line.passable(&self.gate))
                .map(|lines| lines.iter().map(|(_, entries)| entries).sum()),
            registry: self
                .host
                .registry
                .try_lock()
                .map(|registry| Registered::of(&registry)),
            lines_locker: self.host.line.locker(),
            registry_locker: self.host.registry.locker(),
        }
    }

    /// Returns what does not fit together in the core, or keeps others waiting. The words are read one after the
    /// other, so a thread between two steps looks like a fault for a moment. A finding is what is to be seen in
    /// each of several readings. Also returns the last of them.
    pub(crate) fn findings(&self) -> (Vec<Finding>, Reading) {
        let mut last = self.reading();
        let mut all = findings::of(&last);
        for reading in 1..READINGS {
            if all.is_empty() {
                break;
            }
            // The last one comes later than a thread that was preempted is likely to stay so.
            match reading + 1 == READINGS {
                true => std::thread::sleep(PAUSE),
                false => thread::yield_now(),
            }
            last = self.reading();
            let again = findings::of(&last);
            let again: HashMap<_, _> = again.iter().map(|it| (it.event(), it.count)).collect();
            all.retain_mut(|finding| match again.get(&finding.event()) {
                Some(count) => {
                    finding.count = finding.count.min(*count);
                    true
                }
                None => false,
            });
        }
        findings::put_in_order(&mut all);
        (all, last)
    }

    /// Returns `true` if the pool may rely on the counts of workers that look at the queue. If both are zero, nobody relies on
    /// them. If it does rely on them, they are wrong if, for half a second, they have units that no worker has, or nobody looks
    /// although tasks are queued. Otherwise they are wrong until both have been zero: a worker that is stopped may be in them.
    pub(crate) fn may_trust_counts(&self) -> bool {
        let trusts = self.env.trusts_counts();
        // Whether this was to be seen in all readings.
        let (mut units, mut looks) = (true, true);
        for _ in 0..WATCHES {
            let it = Reading {
                trusts_counts: true,
                ..self.reading()
            };
            if it.awake + it.notified == 0 {
                return true;
            }
            let says = findings::of(&it);
            units &= says.iter().any(Finding::is_lost_unit);
            looks &= says.iter().any(Finding::is_look_not_done);
            if trusts && !units && !looks {
                return true;
            }
            match IN_MODELS {
                true => thread::yield_now(),
                false => std::thread::sleep(WATCH / WATCHES as u32),
            }
        }
        false
    }
}
