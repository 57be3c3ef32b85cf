//! The workloads, as each contender runs them.

mod calls;
mod late;
mod overload;
mod tasks;

use crate::contenders::{Contender, AGAIN, GUARDED, LIMITED, OURS, UNQUEUED};
use crate::machine::processor_time;
use std::time::Duration;

pub(crate) use calls::spinning_round_trip;
pub(crate) use tasks::{holding, saturate};

/// The capacity of queues, unless a workload asks for another.
pub(crate) const QUEUE: usize = 1024;
/// The number of workers: one per core of the machine on which the published figures are measured.
const WORKERS: usize = 2;
/// The approximate time of a contender's turn.
pub(crate) const BUDGET: Duration = Duration::from_millis(40);

/// The workload that has its own program, `bin/neighbor.rs`. No contender takes part.
pub(crate) const NEIGHBOR: &str = "neighbor";
/// The prefix of the names of workloads whose limit is a round trip between two cores.
pub(crate) const TIMED: &str = "timed/";

/// One workload, for one contender.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// The names of the figures. More is better if a name begins with "good".
    pub(crate) figures: &'static [&'static str],
    /// `true` if the contender takes part.
    pub(crate) admits: bool,
    /// Measures once, and returns a value for each figure.
    pub(crate) sample: Box<dyn Fn() -> Vec<f64>>,
}

fn workload(
    name: impl Into<String>,
    figures: &'static [&'static str],
    admits: bool,
    sample: impl Fn() -> Vec<f64> + 'static,
) -> Workload {
    Workload {
        name: name.into(),
        figures,
        admits,
        sample: Box::new(sample),
    }
}

const TASK: &[&str] = &["ns/task"];
const CALL: &[&str] = &["ns/call", "cpu, ns/call"];
const APART: &[&str] = &["p50, us", "p99, us", "cpu, us/call"];
const BURST: &[&str] = &["p50, us", "p95, us"];
const LATE: &[&str] = &["p50, us", "p99.9, us"];
const WORST: &[&str] = &["p50, us", "worst, us"];
const REFUSAL: &[&str] = &["ns/refusal"];

/// Returns all workloads, in the order in which they run.
pub(crate) fn all<C: Contender>() -> Vec<Workload> {
    let mut all = Vec::new();
    let queued = C::PEER || [OURS, AGAIN].contains(&C::NAME);
    let each = queued || C::NAME == UNQUEUED;
    for (bytes, producers) in [(24, 1), (24, 2), (0, 1), (0, 2)] {
        let name = format!("queue/{producers}p/{bytes}B");
        let sample = move || tasks::queue::<C>((WORKERS, QUEUE), producers, bytes);
        all.push(workload(name, TASK, queued, sample));
    }
    all.push(workload(NEIGHBOR, TASK, false, Vec::new));
    let blocked = C::NAME == UNQUEUED || (C::PEER && C::BOUNDED);
    let sample = || tasks::queue::<C>((1, 0), 4, 24);
    all.push(workload("blocked", TASK, blocked, sample));
    for callers in [1, 2] {
        let name = format!("{TIMED}{callers}c");
        let admits = each || C::NAME.ends_with(", join");
        let sample = move || calls::timed::<C>(callers);
        all.push(workload(name, CALL, admits, sample));
    }
    for micros in [60, 200, 1_000] {
        let name = format!("apart/{micros}us");
        let sample = move || calls::apart::<C>(micros);
        all.push(workload(name, APART, each, sample));
    }
    for (workers, micros) in [(WORKERS, 0), (8, 0), (WORKERS, 200), (8, 200)] {
        for queue in [8, 64, QUEUE] {
            let name = format!("burst/{workers}w/{queue}q/{micros}us");
            let sample = move || tasks::burst::<C>(workers, queue, micros);
            all.push(workload(name, BURST, queued, sample));
        }
    }
    let admits = queued || C::NAME == LIMITED;
    all.push(workload("group/1024", TASK, admits, tasks::group::<C>));
    let refuses = each && C::BOUNDED;
    all.push(workload("refusal", REFUSAL, refuses, tasks::refusal::<C>));
    let admits = queued && C::BOUNDED;
    all.push(workload("late/refuse", LATE, admits, late::refuse::<C>));
    // The submissions of this pool wait for room, whatever it is built with.
    let admits = queued && C::NAME != "parkring pool";
    let cancelled = late::cancelled::<C>;
    all.push(workload("late/cancelled", WORST, admits, cancelled));
    all.push(workload("late/watched", LATE, each, late::watched::<C>));
    let admits = queued || C::NAME == GUARDED;
    let name = format!("overload/{QUEUE}");
    all.push(workload(
        name,
        &["good, %"],
        admits,
        overload::overload::<C>,
    ));
    all
}

/// Runs `f` for about [`BUDGET`]. Returns two figures in nanoseconds per operation: the time, and
/// the processor time of all threads, including their spinning. `f(n)` does `n` operations and
/// returns how long they took.
pub(crate) fn paced(f: impl Fn(u64) -> Duration) -> [f64; 2] {
    let mut n = 32;
    let took = loop {
        let took = f(n);
        if took * 8 > BUDGET || n >= 1 << 26 {
            break took;
        }
        n *= 4;
    };
    let wanted = n as f64 * BUDGET.as_secs_f64() / took.as_secs_f64().max(1e-9);
    let n = (wanted as u64).max(32);
    let before = processor_time();
    let took = f(n).as_nanos() as f64;
    let cpu = (processor_time() - before).as_nanos() as f64;
    [took / n as f64, cpu / n as f64]
}

/// Returns two quantiles of some nanoseconds, in microseconds.
fn quantiles(mut nanos: Vec<u64>, quantiles: [f64; 2]) -> [f64; 2] {
    nanos.sort_unstable();
    let last = (nanos.len() - 1) as f64;
    quantiles.map(|q| nanos[(last * q).round() as usize] as f64 / 1e3)
}
