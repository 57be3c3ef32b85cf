//! The faults that a round may have, and a table of the pairs of them that met in one pool. A fault
//! counts if it happened, not if it was planned.

use crate::rng::mix;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! faults {
    ($($fault:ident $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($fault,)*
        }

        const NAMES: [&str; COUNT] = [$($name,)*];
        const COUNT: usize = [$($name,)*].len();
    };
}

faults! {
    NoThread "no thread",
    GroupCancelled "group cancelled",
    TakenBack "taken back",
    HookSlow "hook slow",
    HookPanics "hook panics",
    Drain "drain",
    Discard "discard",
    Cancel "cancel",
    Storm "shutdown storm",
    Retired "retired",
    Zero "deadline zero",
    Tiny "deadline tiny",
    BeyondClock "beyond clock",
    LocalSubmits "local submits",
    LocalEnds "local ends pool",
    LimitSet "limit set",
    BlockFor "block for",
    ServeDeadline "serve deadline",
    RunLimit "run limit",
    MinRemaining "min remaining",
    Dropped "pool dropped",
    EndsInside "task ends pool",
    MinWorkers "min workers",
    GroupFull "group full",
    AwaitsSpace "awaits space",
    FutureDropped "future dropped",
    HandleCancelled "handle cancelled",
    HandleLeft "handle left",
    Scope "scope",
    Panics "task panics",
    DropPanics "drop panics",
    Nested "task submits",
    OtherPool "other pool",
    OneCore "one core",
}

/// The faults that a round may have, one bit for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan(u64);

impl Plan {
    /// Draws a plan, in which each fault has a probability of one half, or less if `rare` is
    /// greater: a fourth, an eighth.
    pub(crate) fn drawn(seed: u64, rare: u64) -> Self {
        let words = (0..=rare).map(|n| mix(seed ^ mix(n)));
        Self(words.fold(u64::MAX, |all, word| all & word))
    }

    pub(crate) fn has(self, fault: Fault) -> bool {
        self.0 >> fault as usize & 1 == 1
    }

    pub(crate) fn has_any(self, faults: &[Fault]) -> bool {
        faults.iter().any(|&fault| self.has(fault))
    }
}

/// Counts how often each fault happened to one pool.
#[derive(Debug)]
pub(crate) struct Seen([AtomicU64; COUNT]);

impl Seen {
    pub(crate) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; COUNT])
    }

    pub(crate) fn note(&self, fault: Fault) {
        self.0[fault as usize].fetch_add(1, Relaxed);
    }
}

/// For each pair of faults, the number of pools in which both happened.
#[derive(Debug)]
pub(crate) struct Table([[u64; COUNT]; COUNT]);

impl Table {
    pub(crate) fn new() -> Self {
        Self([[0; COUNT]; COUNT])
    }

    /// Counts one more pool.
    pub(crate) fn add(&mut self, seen: &Seen) {
        let has = |fault: usize| seen.0[fault].load(Relaxed) > 0;
        for a in (0..COUNT).filter(|&a| has(a)) {
            for b in (0..=a).filter(|&b| has(b)) {
                self.0[a][b] += 1;
            }
        }
    }

    /// Returns the pairs that were never met.
    pub(crate) fn never(&self) -> Vec<(&str, &str)> {
        let pairs = (0..COUNT).flat_map(|a| (0..=a).map(move |b| (a, b)));
        let never = pairs.filter(|&(a, b)| self.0[a][b] == 0);
        never.map(|(a, b)| (NAMES[b], NAMES[a])).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("those that had both faults; last in a line, the fault itself.\n\n")?;
        for (a, line) in self.0.iter().enumerate() {
            write!(f, "{a:2} {:16}", NAMES[a])?;
            for count in &line[..=a] {
                write!(f, "{count:4}")?;
            }
            writeln!(f)?;
        }
        for (a, b) in self.never() {
            writeln!(f, "never met: {a}, {b}")?;
        }
        Ok(())
    }
}
