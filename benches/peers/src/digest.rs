//! The table of the README.

use crate::contenders::{OURS, UNQUEUED};
use crate::harness::{figure, Row, Table};

const PEERS: &[&str] = &[
    "crossbeam-channel",
    "parkring channel",
    "rusty_pool",
    "rayon",
    "tokio spawn_blocking",
];

/// What it is called there, the workload, our row in it.
const LINES: &[(&str, &str, &str)] = &[
    (
        "`do_with_deadline`, no queue, 1 caller",
        "timed/1c",
        UNQUEUED,
    ),
    ("the same through a queue", "timed/1c", OURS),
    ("the same, 8 callers, 2 workers", "timed/8c", OURS),
    (
        "`serve` through a queue, 1 producer, 24 bytes captured",
        "queue/tiny/1p/24B",
        OURS,
    ),
    ("the same, 2 producers", "queue/tiny/2p/24B", OURS),
    (
        "the same, 1 producer, nothing captured",
        "queue/tiny/1p/0B",
        OURS,
    ),
    (
        "no queue, 1 worker, only tasks that ran",
        "direct/1p/1w",
        OURS,
    ),
    (
        "a group of 1024 factorials of 50, a task",
        "group/1024",
        OURS,
    ),
    ("a refusal, no queue", "refusal", UNQUEUED),
    ("a refusal, queue of 1024", "refusal", OURS),
    ("64 tasks onto an idle pool, all of them", "burst/64", OURS),
    (
        "a pool is built and its first task runs",
        "first/built",
        OURS,
    ),
    ("allocations a task", "allocations/serve", OURS),
];

/// In Markdown: medians, with the smallest and the largest round.
pub(crate) fn print(tables: &[Table]) {
    println!("\n| ns | lazypool | {} |", PEERS.join(" | "));
    println!("|---|---|{}", "---|".repeat(PEERS.len()));
    for &(what, workload, ours) in LINES {
        let Some(table) = tables.iter().find(|t| t.workload == workload) else {
            continue;
        };
        let cells: Vec<_> = std::iter::once(ours)
            .chain(PEERS.iter().copied())
            .map(|name| table.row(name).map_or_else(|| "-".to_owned(), cell))
            .collect();
        println!("| {what} | {} |", cells.join(" | "));
    }
}

fn cell(row: &Row) -> String {
    let [median, min, max] = [row.value.median, row.value.min, row.value.max].map(rounded);
    if min == max {
        median
    } else {
        format!("{median} ({min}-{max})")
    }
}

/// As many digits as mean something in a cell.
fn rounded(x: f64) -> String {
    if x < 10.0 {
        format!("{x:.0}")
    } else {
        figure(x.round()).trim_end_matches(".0").to_owned()
    }
}
