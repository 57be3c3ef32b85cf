//! The table of the README, but for its last row: `examples/service` measures that.

use crate::contenders::{GUARDED, OURS};
use crate::harness::{figure, Row, Spread, Table};
use crate::limits::ROUND_TRIP;

const PEERS: &[&str] = &[
    "crossbeam-channel",
    "rusty_pool",
    "rayon",
    "tokio spawn_blocking",
];

/// What a row shows.
#[derive(Clone, Copy)]
enum Figure {
    Value,
    /// In microseconds.
    Micros,
}
use Figure::{Micros, Value};

/// What it is called there, the workload, our row in it, what of it.
const LINES: &[(&str, &str, &str, Figure)] = &[
    (
        "a wait with a deadline each millisecond, p50, us",
        "apart/1ms",
        OURS,
        Micros,
    ),
    (
        "one awaited task after the other, tokio with 2 threads, us a task",
        "await/multi/1",
        OURS,
        Micros,
    ),
    (
        "`serve` through a queue, 24 bytes captured, ns a task",
        "queue/tiny/1p/24B",
        OURS,
        Value,
    ),
    (
        "64 tasks submitted to an idle pool, us for all of them",
        "burst/64",
        OURS,
        Micros,
    ),
    (
        "goodput under overload, % (more is better), lazypool with `min_remaining`",
        "overload/1024",
        GUARDED,
        Value,
    ),
];

/// In Markdown: medians, with the smallest and the largest round.
pub(crate) fn print(tables: &[Table], cores: usize) {
    let shown = |t: &&Table| LINES.iter().any(|line| line.1 == t.workload);
    let rows = tables.iter().filter(shown).flat_map(|t| &t.rows);
    let rounds: Vec<_> = rows.map(|r| r.rounds.value.len() as f64).collect();
    if rounds.is_empty() {
        return println!("\nnone of its workloads ran");
    }
    let rounds = Spread::of(&rounds);
    println!(
        "\nMedians of {} to {} rounds (smallest to largest) on {cores} cores.",
        rounds.min, rounds.max,
    );
    println!("\n| | lazypool | {} |", PEERS.join(" | "));
    println!("|---|---|{}", "---|".repeat(PEERS.len()));
    for &(what, workload, ours, figure) in LINES {
        let Some(table) = tables.iter().find(|t| t.workload == workload) else {
            continue;
        };
        let cells: Vec<_> = std::iter::once(ours)
            .chain(PEERS.iter().copied())
            .map(|name| {
                let row = table.row(name);
                row.map_or_else(|| "-".to_owned(), |row| cell(row, figure))
            })
            .collect();
        println!("| {what} | {} |", cells.join(" | "));
    }
}

/// What the machine is like, if that was measured.
pub(crate) fn print_round_trip(tables: &[Table]) {
    let rows = tables.iter().filter_map(|t| t.row(ROUND_TRIP));
    let medians: Vec<_> = rows.map(|r| r.value.median).collect();
    let of = Spread::of(&medians);
    if !medians.is_empty() {
        println!(
            "\nA cache line went to another spinning thread and back in {} to {} ns, the longer where both shared a core.",
            rounded(of.min),
            rounded(of.max)
        );
    }
}

fn cell(row: &Row, figure: Figure) -> String {
    let (of, unit) = match figure {
        Value => (row.value, 1.0),
        Micros => (row.value, 1_000.0),
    };
    let [median, min, max] = [of.median, of.min, of.max].map(|x| rounded(x / unit));
    if min == max {
        median
    } else {
        format!("{median} ({min}-{max})")
    }
}

/// As many digits as mean something in a cell.
fn rounded(x: f64) -> String {
    if x < 10.0 {
        format!("{x:.1}").trim_end_matches(".0").to_owned()
    } else {
        figure(x.round()).trim_end_matches(".0").to_owned()
    }
}
