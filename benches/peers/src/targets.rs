//! What we set out to reach, and whether this run did.

use crate::harness::{aligned, figure, Table};

/// How a target is stated.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// At most so many of the table's units.
    AtMost(f64),
    /// At most so many times another row of the same table.
    TimesRow(f64, &'static str),
    /// At most so many times the best peer.
    TimesPeer(f64),
}

use Bound::{AtMost, TimesPeer, TimesRow};

const OURS: &str = "lazypool";
const UNQUEUED: &str = "lazypool, no queue";
const ROUND_TRIP: &str = "spinning round trip";

/// Workload, row, bound.
const TARGETS: &[(&str, &str, Bound)] = &[
    ("timed/1c", OURS, TimesRow(2.0, ROUND_TRIP)),
    ("timed/1c", OURS, TimesPeer(0.1)),
    ("timed/1c", UNQUEUED, TimesRow(2.0, ROUND_TRIP)),
    ("timed/1c", UNQUEUED, TimesPeer(0.1)),
    ("timed/2c", OURS, TimesPeer(0.1)),
    ("timed/2c", UNQUEUED, TimesPeer(0.1)),
    ("queue/tiny/1p/24B", OURS, TimesPeer(0.25)),
    ("queue/tiny/2p/24B", OURS, TimesPeer(0.25)),
    ("queue/tiny/1p/24B", OURS, TimesRow(1.3, "raw ring")),
    ("queue/tiny/2p/24B", OURS, TimesRow(1.3, "raw ring")),
    ("queue/tiny/1p/0B", OURS, TimesPeer(1.0)),
    ("queue/tiny/2p/0B", OURS, TimesPeer(1.0)),
    ("direct/1p/1w", OURS, TimesRow(2.0, ROUND_TRIP)),
    ("direct/1p/2w", OURS, TimesRow(2.0, ROUND_TRIP)),
    ("direct/1p/1w", OURS, AtMost(250.0)),
    ("direct/1p/2w", OURS, AtMost(250.0)),
    ("group/1024", OURS, AtMost(100.0)),
    ("refusal", OURS, AtMost(20.0)),
    ("refusal", UNQUEUED, AtMost(20.0)),
    ("caps/timed", "cap 4,096", TimesRow(1.1, "cap 2")),
    ("caps/served", "cap 4,096", TimesRow(1.1, "cap 2")),
    ("caps/refused", "cap 4,096", TimesRow(1.1, "cap 2")),
    ("build", "cap 65,536", AtMost(10e6)),
    ("memory/empty/heap", OURS, AtMost(33_554_432.0)),
    ("memory/empty/resident", OURS, AtMost(33_554_432.0)),
    ("allocations/serve", OURS, AtMost(0.0)),
    ("allocations/timed", OURS, AtMost(0.0)),
    ("idle", OURS, TimesRow(1.5, "no pool")),
];

/// The targets of the workloads that ran.
pub(crate) fn print(tables: &[Table]) {
    let mut lines = Vec::new();
    for &(workload, name, bound) in TARGETS {
        let Some(table) = tables.iter().find(|t| t.workload == workload) else {
            continue;
        };
        let Some(row) = table.row(name) else { continue };
        let (allowed, how) = match bound {
            AtMost(n) => (Some(n), String::new()),
            TimesRow(x, other) => (
                table.row(other).map(|r| x * r.median),
                format!("= {x} x {other}"),
            ),
            TimesPeer(x) => (
                table.best_peer().map(|r| x * r.median),
                format!(
                    "= {x} x {}",
                    table.best_peer().map_or("best peer", |r| r.name)
                ),
            ),
        };
        let Some(allowed) = allowed else { continue };
        let verdict = if row.median <= allowed {
            "met"
        } else {
            "MISSED"
        };
        lines.push(vec![
            format!("{workload}: {name}"),
            figure(row.median),
            table.unit.to_owned(),
            figure(allowed),
            how,
            verdict.to_owned(),
        ]);
    }
    if !lines.is_empty() {
        let heads = ["", "median", "", "target", "", ""];
        lines.insert(0, heads.map(str::to_owned).to_vec());
        println!("\nTargets");
        print!("{}", aligned(&lines));
    }
}
