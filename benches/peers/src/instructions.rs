//! Instructions per operation, as callgrind counts them. A busy machine does not change them.
//!
//! One process does some operations, and another one does twice as many. The difference of their
//! counts leaves out the start and the end of a process. Two operations are not counted. In a timed
//! wait the two sides look for each other a varying number of times. A task for a worker that
//! sleeps is mostly work of the kernel.

use crate::contenders::{self, Contender, AGES, OURS};
use crate::table::Run;
use crate::tally::{tick, Tally};
use crate::workloads::{holding, saturate, QUEUE};
use lazypool::WhenFull;
use std::hint::black_box;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// The first argument of a process that is counted. The contender, the operation and the number
/// follow.
pub(crate) const CHILD: &str = "--operations";

const OPERATIONS: u64 = 2_000;

const PUSH: &str = "push";
const RUN: &str = "push, pop and run";
const REFUSAL: &str = "refusal";
const UNQUEUED_REFUSAL: &str = "refusal, no queue";

/// The operations of each contender that can queue all tasks while its worker is busy.
const COUNTED: [(&str, &[&str]); 6] = [
    (OURS, &[PUSH, RUN, REFUSAL, UNQUEUED_REFUSAL]),
    (AGES, &[PUSH, RUN]),
    ("crossbeam-channel", &[PUSH, RUN, REFUSAL]),
    ("parkring channel", &[PUSH, RUN, REFUSAL]),
    ("crossbeam-queue", &[PUSH, RUN, REFUSAL]),
    ("rusty_pool", &[PUSH, RUN]),
];

pub(crate) fn child(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(name), Some(what), Some(n)) = (args.next(), args.next(), args.next()) else {
        return Err(String::from("peers starts itself with this option"));
    };
    let mut all = contenders::all().into_iter();
    let contender = all.find(|c| c.name == name).ok_or("no such contender")?;
    (contender.perform)(&what, n.parse().unwrap_or(0));
    Ok(())
}

/// Does `n` operations. Each kind of operation submits a closure of its own type, because a
/// compiler inlines a closure that is used in one place, but not one that is used in two.
pub(crate) fn perform<C: Contender>(what: &str, n: u64) {
    let words = [1_u64, 2, 3];
    let [first, last] = [Arc::default(), Arc::default()];
    let mut held = Mutex::lock(&first).ok();
    let pool;
    if what == PUSH || what == RUN {
        // Make room for the operations of both processes, so that their starts are alike.
        pool = C::build(1, 4 * OPERATIONS as usize, WhenFull::Block);
        let tally = Tally::start();
        pool.execute(holding(&first));
        wait_asleep(&tally, 1);
        for _ in 0..n {
            pool.execute(move || {
                black_box(words);
                tick();
            });
        }
        if what == RUN {
            // Hold the worker with a last task. Otherwise the count would include the worker's
            // search for another task, which takes a varying number of instructions.
            std::mem::forget(Mutex::lock(&last));
            pool.execute(holding(&last));
            held = None;
            wait_asleep(&tally, 2 + n);
        }
    } else {
        let queue = if what == REFUSAL { QUEUE } else { 0 };
        pool = C::build(1, queue, WhenFull::Refuse);
        saturate(&pool, 1, &first);
        for _ in 0..n {
            let taken = pool.try_execute(move || {
                black_box(words);
                tick();
            });
            assert!(!taken, "the pool is saturated");
        }
    }
    // A drop would run the tasks that are queued.
    std::mem::forget((pool, held));
}

/// Waits without spinning, because callgrind counts a spin, too.
fn wait_asleep(tally: &Tally, n: u64) {
    while tally.ran() < n {
        thread::sleep(Duration::from_millis(20));
    }
}

fn counted(name: &str, what: &str, n: u64) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/stdout"])
        .arg(program)
        .args([CHILD, name, what, &n.to_string()])
        .output()
        .map_err(|why| format!("valgrind: {why}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let total = |line: &str| line.strip_prefix("totals:")?.trim().parse().ok();
    let total = text.lines().find_map(total);
    total.filter(|_| out.status.success()).ok_or_else(|| {
        let why = String::from_utf8_lossy(&out.stderr);
        format!("{name}, {what}: {}\n{why}", out.status)
    })
}

/// Returns the count on which two processes agree, up to a quarter of an instruction per operation.
/// A single process is not enough, because a thread may spin for longer than usual while it starts.
fn agreed(name: &str, what: &str, n: u64) -> Result<f64, String> {
    let mut counts: Vec<f64> = Vec::new();
    while counts.len() < 9 {
        let count = counted(name, what, n)?;
        let agrees = |other: &f64| (count - other).abs() < OPERATIONS as f64 / 4.0;
        if counts.iter().any(agrees) {
            return Ok(count);
        }
        counts.push(count);
    }
    Err(format!("{name}, {what}: no two of {counts:?} agree"))
}

/// Counts the operations of lazypool, and those of its peers if `peers` is set.
pub(crate) fn count(peers: bool) -> Result<Run, String> {
    let mut run = Run::default();
    let counted = COUNTED
        .iter()
        .filter(|(name, _)| peers || name.starts_with(OURS));
    for (name, operations) in counted {
        let kind = if name.starts_with(OURS) {
            "ours"
        } else {
            "peer"
        };
        for what in *operations {
            let agreed = |n| agreed(name, what, n * OPERATIONS);
            let per = ((agreed(2)? - agreed(1)?) / OPERATIONS as f64).round();
            run.add(&format!("{what}, instructions\t{kind}\t{name}\t0\t{per}"))?;
        }
    }
    Ok(run)
}

/// Fails if an operation takes more instructions than in another run. A difference of 3, or of 3 %,
/// is allowed, because another order of the code can cause it. Also fails if this run does not have
/// the operation.
pub(crate) fn check(run: &Run, other: &Run) -> Result<(), String> {
    let pairs = run.beside(other);
    let mut grown = 0;
    for [row, other] in &pairs {
        let (now, then) = (row.median(), other.median());
        if (now - then).abs() > (then * 0.03).max(3.0) {
            println!("{}, {}: {now} instead of {then}", row.name, row.table);
            grown += usize::from(now > then);
        }
    }
    match (grown, other.rows.len() - pairs.len(), other.compiler()) {
        (0, 0, _) => Ok(()),
        (_, missing, of) => Err(format!(
            "{grown} have grown, {missing} are missing; saved: {of}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_allowance_fails_and_so_does_an_operation_that_is_missing() {
        let run = |push: u64, task: u64| {
            let text = format!("push\tours\ta\t0\t{push}\ntask\tours\ta\t0\t{task}");
            Run::parse(&text).expect("two figures")
        };
        let fails = |now| check(&now, &run(100, 1_000)).is_err();
        assert!(!fails(run(103, 1_030)) && !fails(run(50, 1_000)));
        assert!(fails(run(104, 1_000)) && fails(run(100, 1_031)) && fails(Run::default()));
    }
}
