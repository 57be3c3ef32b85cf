//! What we set out to reach, and whether this run did.

use crate::contenders::{OURS, UNQUEUED};
use crate::harness::{aligned, figure, Kind, Row, Spread, Table};

/// Which figure of a row.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Median,
    Cpu,
    P99,
}

/// How a target is stated.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// At most so many of the table's units.
    AtMost(f64),
    /// At most so many times another row of the same table; a limit's smallest round.
    TimesRow(f64, &'static str),
    /// At most so many times the same row of another table.
    TimesTable(f64, &'static str),
    /// At most so many times the peer that is best at it.
    TimesPeer(f64),
}

use Bound::{AtMost, TimesPeer, TimesRow, TimesTable};
use Figure::{Cpu, Median, P99};

const ROUND_TRIP: &str = "spinning round trip";

/// Workload, row, figure, bound.
const TARGETS: &[(&str, &str, Figure, Bound)] = &[
    ("timed/1c", OURS, Median, TimesRow(2.0, ROUND_TRIP)),
    ("timed/1c", OURS, Median, TimesPeer(0.1)),
    ("timed/1c", UNQUEUED, Median, TimesRow(2.0, ROUND_TRIP)),
    ("timed/1c", UNQUEUED, Median, TimesPeer(0.1)),
    ("timed/2c", OURS, Median, TimesPeer(0.1)),
    ("timed/2c", UNQUEUED, Median, TimesPeer(0.1)),
    ("timed/8c", OURS, Median, TimesTable(1.0, "timed/2c")),
    ("timed/8c", UNQUEUED, Median, TimesTable(1.0, "timed/2c")),
    ("oversubscribed/8c/8w", OURS, Cpu, TimesPeer(1.05)),
    ("queue/tiny/1p/24B", OURS, Median, TimesPeer(0.25)),
    ("queue/tiny/2p/24B", OURS, Median, TimesPeer(0.25)),
    ("queue/tiny/1p/24B", OURS, Median, TimesRow(1.3, "raw ring")),
    ("queue/tiny/2p/24B", OURS, Median, TimesRow(1.3, "raw ring")),
    ("queue/tiny/1p/0B", OURS, Median, TimesPeer(1.0)),
    ("queue/tiny/2p/0B", OURS, Median, TimesPeer(1.0)),
    ("direct/1p/1w", OURS, Median, TimesRow(2.0, ROUND_TRIP)),
    ("direct/1p/2w", OURS, Median, TimesRow(2.0, ROUND_TRIP)),
    ("direct/1p/1w", OURS, Median, AtMost(250.0)),
    ("direct/1p/2w", OURS, Median, AtMost(250.0)),
    ("group/1024", OURS, Median, AtMost(100.0)),
    ("break-even", OURS, Median, AtMost(100.0)),
    ("refusal", OURS, Median, AtMost(20.0)),
    ("refusal", UNQUEUED, Median, AtMost(20.0)),
    ("latency/60%", OURS, P99, TimesPeer(1.0)),
    ("overshoot", OURS, P99, TimesRow(1.0, "park_timeout")),
    ("caps/timed", "cap 4,096", Median, TimesRow(1.1, "cap 2")),
    ("caps/served", "cap 4,096", Median, TimesRow(1.1, "cap 2")),
    ("caps/refused", "cap 4,096", Median, TimesRow(1.1, "cap 2")),
    ("build", "cap 65,536", Median, AtMost(10e6)),
    ("memory/empty/heap", OURS, Median, AtMost(33_554_432.0)),
    ("memory/empty/resident", OURS, Median, AtMost(33_554_432.0)),
    ("allocations/serve", OURS, Median, AtMost(0.0)),
    ("allocations/timed", OURS, Median, AtMost(0.0)),
    ("idle", OURS, Median, TimesPeer(1.05)),
];

impl Figure {
    fn spread(self, row: &Row) -> Spread {
        match self {
            Median => row.value,
            Cpu => row.cpu,
            P99 => row.p99,
        }
    }

    fn of(self, row: &Row) -> f64 {
        self.spread(row).median
    }

    /// What others are held against. A limit counts at its smallest: in a phase in which
    /// two spinning threads share a core, its median lets everything pass.
    fn allows(self, row: &Row) -> f64 {
        match row.kind {
            Kind::Limit => self.spread(row).min,
            _ => self.of(row),
        }
    }
}

/// The targets of the workloads that ran.
pub(crate) fn print(tables: &[Table]) {
    let named = |workload: &str| tables.iter().find(|t| t.workload == workload);
    let mut lines = Vec::new();
    for &(workload, name, of, bound) in TARGETS {
        let Some(table) = named(workload) else {
            continue;
        };
        let Some(row) = table.row(name) else { continue };
        let times = |x: f64, other: Option<&Row>| other.map(|r| x * of.allows(r));
        let (allowed, how) = match bound {
            AtMost(n) => (Some(n), String::new()),
            TimesRow(x, other) => (times(x, table.row(other)), format!("= {x} x {other}")),
            TimesTable(x, other) => (
                times(x, named(other).and_then(|t| t.row(name))),
                format!("= {x} x {other}"),
            ),
            TimesPeer(x) => {
                let peer = table.best_peer(|r| of.of(r));
                let name = peer.map_or("best peer", |r| r.name);
                (times(x, peer), format!("= {x} x {name}"))
            }
        };
        let Some(allowed) = allowed else { continue };
        let (what, unit) = match of {
            Median => ("", table.unit),
            Cpu => (", cpu", "ns"),
            P99 => (", p99", "ns"),
        };
        let figures = of.of(row);
        let verdict = if figures <= allowed { "met" } else { "MISSED" };
        lines.push(vec![
            format!("{workload}: {name}{what}"),
            figure(figures),
            unit.to_owned(),
            figure(allowed),
            how,
            verdict.to_owned(),
        ]);
    }
    if !lines.is_empty() {
        let heads = ["", "measured", "", "target", "", ""];
        lines.insert(0, heads.map(str::to_owned).to_vec());
        println!("\nTargets");
        print!("{}", aligned(&lines));
    }
}
