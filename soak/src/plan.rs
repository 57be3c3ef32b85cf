//! The plan of one round, drawn from its seed.

use crate::rng::Rng;
use lazypool::{Shutdown, WhenFull};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A load of all kinds at once.
    Mixed,
    /// A careful load: never more tasks in flight than the pool holds, so no call may be refused.
    Careful,
    /// A load with pauses about as long as the idle timeout, so that workers start and retire.
    Trickle,
    /// Many threads shut the pool down under load.
    Storm,
    /// The OS refuses every thread.
    NoThreads,
    /// One of the pool's own tasks drops the pool.
    Orphan,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) workers: usize,
    pub(crate) min: usize,
    pub(crate) queue: usize,
    pub(crate) policy: WhenFull,
    pub(crate) idle: Duration,
    pub(crate) hooks: bool,
    pub(crate) submitters: usize,
    pub(crate) length: Duration,
    /// One closure in this many (times ten) misbehaves; 0: none.
    pub(crate) faults: u8,
    pub(crate) nests: bool,
    pub(crate) closes_inside: bool,
    pub(crate) careful: bool,
    pub(crate) threads_fail: bool,
    pub(crate) one_core: bool,
    /// A submitter pauses once in this many calls; 0: never.
    pub(crate) pause_in: u64,
    pub(crate) pause_micros: u64,
    pub(crate) last_mode: Shutdown,
    pub(crate) stormers: usize,
}

impl Plan {
    /// Draws a plan. `child` is for a process in which the OS refuses threads at times.
    pub(crate) fn random(seed: u64, child: bool) -> Self {
        let rng = &mut Rng::new(seed);
        let kind = match rng.below(20) {
            0..8 => Kind::Mixed,
            8..10 => Kind::Careful,
            10..14 => Kind::Trickle,
            14..17 => Kind::Storm,
            17 if !child => Kind::NoThreads,
            _ => Kind::Orphan,
        };
        let careful = kind == Kind::Careful;
        let workers = match rng.below(10) {
            0..2 => 1,
            2..6 => 2 + rng.below(3) as usize,
            6..9 => 2 + rng.below(15) as usize,
            _ => 16 + rng.below(100) as usize,
        };
        let min = match rng.below(4) {
            0 => rng.below(workers as u64 + 1) as usize,
            _ => 0,
        };
        let queue = match rng.below(10) {
            0..4 => 0,
            4..8 => 1 + rng.below(8) as usize,
            8 => 1 + rng.below(64) as usize,
            _ => 1 + rng.below(2000) as usize,
        };
        let short = [0, 1, 1, 1, 2, 5].map(Duration::from_millis);
        let idle = match (kind, rng.below(6)) {
            (Kind::Trickle, _) | (_, 0..3) => rng.pick(&short),
            (_, 3..5) => Duration::from_secs(10),
            _ => Duration::MAX,
        };
        let mut submitters = 1 + rng.below(16) as usize;
        if careful {
            submitters = submitters.min(workers + queue);
        }
        let (pause_in, pause_micros) = match kind {
            Kind::Trickle => (
                1 + rng.below(8),
                2_200 * (idle.as_millis() as u64).clamp(1, 3),
            ),
            _ if rng.one_in(2) => (100 + rng.below(400), 3_000),
            _ => (0, 0),
        };
        let length = match kind {
            Kind::Storm | Kind::Orphan => 2 + rng.below(60),
            Kind::NoThreads => 30,
            _ => 30 + rng.below(300),
        };
        Self {
            seed,
            kind,
            workers,
            min: if kind == Kind::NoThreads { 0 } else { min },
            queue,
            policy: rng.pick(&[WhenFull::Refuse, WhenFull::Block]),
            idle,
            hooks: rng.one_in(3),
            submitters,
            length: Duration::from_millis(length),
            faults: rng.pick(&[0, 1, 3, 10]),
            nests: !careful && rng.one_in(2),
            closes_inside: matches!(kind, Kind::Storm | Kind::Orphan) && rng.one_in(2),
            careful,
            threads_fail: child || kind == Kind::NoThreads,
            one_core: rng.one_in(6),
            pause_in,
            pause_micros,
            last_mode: rng.pick(&[Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel]),
            stormers: 1 + rng.below(5) as usize,
        }
    }
}
