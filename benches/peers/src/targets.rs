//! What we set out to reach, and whether this run did.

use crate::compare::Run;
use crate::contenders::{GUARDED, OURS, TOKIO, UNQUEUED};
use crate::harness::{aligned, figure, Kind, Row, Spread, Table};
use crate::limits::ROUND_TRIP;

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
    /// At least so many, where more is better.
    AtLeast(f64),
    /// At most so many times another row of the same table; a limit's smallest round.
    TimesRow(f64, &'static str),
    /// At most so many times the same row of another table.
    TimesTable(f64, &'static str),
    /// At most so many times the peer that is best at it.
    TimesPeer(f64),
    /// Less than every peer, in every round.
    BelowPeers,
}

use Bound::{AtLeast, AtMost, BelowPeers, TimesPeer, TimesRow, TimesTable};
use Figure::{Cpu, Median, P99};

/// Workload, row, figure, bound.
type Target = (&'static str, &'static str, Figure, Bound);

const TARGETS: &[Target] = &[
    ("timed/1c", UNQUEUED, Median, TimesRow(2.0, ROUND_TRIP)),
    ("timed/1c", UNQUEUED, Median, TimesPeer(0.1)),
    ("timed/1c", OURS, Median, TimesRow(1.25, UNQUEUED)),
    ("timed/2c", UNQUEUED, Median, TimesTable(1.5, "timed/1c")),
    ("timed/2c", OURS, Median, TimesTable(1.5, "timed/1c")),
    ("timed/8c", UNQUEUED, Median, TimesTable(1.0, "timed/2c")),
    ("timed/8c", OURS, Median, TimesTable(1.0, "timed/2c")),
    ("timed/2c", UNQUEUED, Cpu, TimesPeer(1.05)),
    ("timed/8c", UNQUEUED, Cpu, TimesPeer(1.05)),
    ("oversubscribed/8c/8w", OURS, Cpu, TimesPeer(1.05)),
    ("await/1", OURS, Median, TimesRow(1.0, TOKIO)),
    ("await/64", OURS, Median, TimesRow(1.0, TOKIO)),
    ("await/multi/1", OURS, Median, TimesRow(1.0, TOKIO)),
    ("await/multi/64", OURS, Median, TimesRow(1.0, TOKIO)),
    ("queue/tiny/1p/24B", OURS, Median, TimesPeer(0.5)),
    ("queue/tiny/2p/24B", OURS, Median, TimesPeer(0.5)),
    ("queue/tiny/1p/24B", OURS, Median, TimesRow(1.3, "raw ring")),
    ("queue/tiny/2p/24B", OURS, Median, TimesRow(1.3, "raw ring")),
    ("queue/tiny/1p/0B", OURS, Median, TimesPeer(1.0)),
    ("queue/tiny/2p/0B", OURS, Median, TimesPeer(1.0)),
    ("direct/1p/1w", OURS, Median, AtMost(250.0)),
    ("direct/1p/2w", OURS, Median, AtMost(250.0)),
    ("direct/2p/2w", OURS, Median, BelowPeers),
    ("burst/64", OURS, Median, TimesPeer(1.0)),
    ("group/1024", OURS, Median, AtMost(100.0)),
    ("break-even", OURS, Median, AtMost(100.0)),
    ("refusal", OURS, Median, AtMost(20.0)),
    ("refusal", UNQUEUED, Median, AtMost(20.0)),
    ("overload/8", GUARDED, Median, AtLeast(95.0)),
    ("overload/1024", GUARDED, Median, AtLeast(95.0)),
    ("overload/8/after", GUARDED, Median, AtMost(100.0)),
    ("overload/1024/after", GUARDED, Median, AtMost(100.0)),
    ("latency/60%", OURS, P99, TimesPeer(1.0)),
    ("latency/timed/30%", OURS, P99, TimesPeer(1.0)),
    ("latency/timed/60%", OURS, P99, TimesPeer(1.0)),
    ("latency/timed/90%", OURS, P99, TimesPeer(1.0)),
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

    fn rounds(self, row: &Row) -> &[f64] {
        match self {
            Median => &row.rounds.value,
            Cpu => &row.rounds.cpu,
            P99 => &row.rounds.p99,
        }
    }

    /// What others are held against. A limit counts at its smallest: in a phase in which
    /// two spinning threads share a core, its median lets everything pass.
    fn allows(self, row: &Row) -> f64 {
        match row.kind {
            Kind::Limit => self.spread(row).min,
            _ => self.of(row),
        }
    }

    /// The same in one round; a limit's smallest in all of them.
    fn allows_in(self, row: &Row, round: usize) -> Option<f64> {
        match row.kind {
            Kind::Limit => Some(self.allows(row)),
            _ => self.rounds(row).get(round).copied(),
        }
    }
}

/// What came of a target.
#[derive(Debug)]
struct Verdict {
    workload: &'static str,
    what: String,
    unit: &'static str,
    measured: Spread,
    allowed: f64,
    how: String,
    /// Rounds in which it was met, of those that can be compared.
    rounds: (usize, usize),
    met: bool,
}

impl Verdict {
    /// Whether more rounds could turn it: few, and they are not of one mind.
    fn is_open(&self, strict: bool) -> bool {
        let (met, of) = self.rounds;
        let missed = of - met;
        if strict {
            missed == 0 && of < CLEAR
        } else {
            of > 0 && met.abs_diff(missed) < CLEAR
        }
    }
}

/// By so many rounds one side must lead: by chance one in thirty such leads is wrong.
const CLEAR: usize = 5;

fn named<'a>(tables: &'a [Table], workload: &str) -> Option<&'a Table> {
    tables.iter().find(|t| t.workload == workload)
}

/// The row, or rows, that a bound refers to, and how often it may be as much.
fn others<'a>(
    tables: &'a [Table],
    table: &'a Table,
    name: &str,
    of: Figure,
    bound: Bound,
) -> Option<(f64, Vec<&'a Row>)> {
    Some(match bound {
        AtMost(_) | AtLeast(_) => (1.0, Vec::new()),
        TimesRow(x, other) => (x, vec![table.row(other)?]),
        TimesTable(x, other) => (x, vec![named(tables, other)?.row(name)?]),
        TimesPeer(x) => (x, vec![table.best_peer(|r| of.of(r))?]),
        BelowPeers => (1.0, table.peers().collect()),
    })
}

/// `None` if this run has not all of what the target needs.
fn verdict(tables: &[Table], &(workload, name, of, bound): &Target) -> Option<Verdict> {
    let table = named(tables, workload)?;
    let row = table.row(name)?;
    let (times, others) = others(tables, table, name, of, bound)?;
    let least = |figures: &mut dyn Iterator<Item = f64>| {
        let least = figures.fold(f64::INFINITY, f64::min);
        least.is_finite().then_some(times * least)
    };
    let (fixed, more) = match bound {
        AtMost(n) => (Some(n), false),
        AtLeast(n) => (Some(n), true),
        _ => (None, false),
    };
    let holds = |figure: f64, allowed: f64| match bound {
        BelowPeers => figure < allowed,
        _ if more => figure >= allowed,
        _ => figure <= allowed,
    };
    if of.rounds(row).is_empty() {
        return None;
    }
    let allowed = fixed.or_else(|| least(&mut others.iter().map(|r| of.allows(r))))?;
    let compared = of.rounds(row).iter().enumerate().filter_map(|(i, figure)| {
        let allowed =
            fixed.or_else(|| least(&mut others.iter().filter_map(|r| of.allows_in(r, i))))?;
        Some(holds(*figure, allowed))
    });
    let compared: Vec<_> = compared.collect();
    let rounds = (compared.iter().filter(|met| **met).count(), compared.len());
    let (what, unit) = match of {
        Median => ("", table.unit),
        Cpu => (", cpu", "ns"),
        P99 => (", p99", "ns"),
    };
    let how = match bound {
        AtMost(_) | AtLeast(_) => String::new(),
        TimesRow(x, other) | TimesTable(x, other) => format!("{x} x {other}"),
        TimesPeer(x) => format!("{x} x {}", others.first().map_or("", |r| r.name)),
        BelowPeers => String::from("every peer, every round"),
    };
    let measured = of.spread(row);
    Some(Verdict {
        workload,
        what: format!("{name}{what}"),
        unit,
        measured,
        allowed,
        how,
        rounds,
        met: match bound {
            BelowPeers => rounds.0 == rounds.1,
            _ => holds(measured.median, allowed),
        },
    })
}

fn verdicts(tables: &[Table]) -> impl Iterator<Item = (Verdict, &'static Target)> + '_ {
    TARGETS
        .iter()
        .filter_map(|target| Some((verdict(tables, target)?, target)))
}

/// Workloads of targets that more rounds could decide.
pub(crate) fn undecided(tables: &[Table]) -> Vec<String> {
    let mut names = Vec::new();
    for (verdict, &(workload, _, _, bound)) in verdicts(tables) {
        if verdict.is_open(matches!(bound, BelowPeers)) {
            names.push(workload.to_owned());
            if let TimesTable(_, other) = bound {
                names.push(other.to_owned());
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

/// The targets of the workloads that ran.
pub(crate) fn print(tables: &[Table]) {
    let mut lines = Vec::new();
    for (verdict, &(_, _, _, bound)) in verdicts(tables) {
        lines.push(vec![
            format!("{}: {}", verdict.workload, verdict.what),
            figure(verdict.measured.median),
            verdict.unit.to_owned(),
            format!("{} {}", sign(bound), figure(verdict.allowed)),
            verdict.how.clone(),
            format!("{} of {}", verdict.rounds.0, verdict.rounds.1),
            if verdict.met { "met" } else { "MISSED" }.to_owned(),
        ]);
    }
    if !lines.is_empty() {
        let heads = ["", "measured", "", "target", "", "in rounds", ""];
        lines.insert(0, heads.map(str::to_owned).to_vec());
        println!("\nTargets");
        print!("{}", aligned(&lines));
    }
}

fn sign(bound: Bound) -> char {
    match bound {
        AtLeast(_) => '≥',
        BelowPeers => '<',
        _ => '≤',
    }
}

/// The same in Markdown: the table of benches/RESULTS.md, if wanted with another run beside it.
pub(crate) fn print_markdown(tables: &[Table], other: Option<&Run>) {
    let of_other = |workload: &str, row: &str| {
        let table = named(tables, workload)?;
        other?.value(table, table.row(row)?)
    };
    let (head, line) = if other.is_some() {
        (" other run |", "---|")
    } else {
        ("", "")
    };
    println!("\n| target | measured |{head} allowed | in rounds | |");
    println!("|---|---|{line}---|---|---|");
    for (verdict, &(workload, name, of, bound)) in verdicts(tables) {
        let beside = match (other.is_some(), of) {
            (false, _) => String::new(),
            (true, Median) => {
                let spread = of_other(workload, name);
                format!(
                    " {} |",
                    spread.map_or_else(|| "-".to_owned(), |s| s.to_string())
                )
            }
            // A saved run has the values only.
            (true, _) => String::from(" - |"),
        };
        let how = if verdict.how.is_empty() {
            String::new()
        } else {
            format!(" ({})", verdict.how)
        };
        println!(
            "| `{}` {}, {} | {} |{beside} {} {}{how} | {} of {} | {} |",
            verdict.workload,
            verdict.what,
            verdict.unit,
            verdict.measured,
            sign(bound),
            figure(verdict.allowed),
            verdict.rounds.0,
            verdict.rounds.1,
            if verdict.met { "met" } else { "**missed**" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Lane;

    fn table(workload: &str, lanes: &[(&'static str, Kind, &[f64])]) -> Table {
        let lane = |&(name, kind, samples): &(&'static str, Kind, &[f64])| Lane {
            name,
            kind,
            samples: samples.to_vec(),
            cpu: Vec::new(),
        };
        let lanes: Vec<_> = lanes.iter().map(lane).collect();
        Table::new(workload, "", "ns", &lanes)
    }

    fn judged(tables: &[Table], of: Figure, bound: Bound) -> Verdict {
        verdict(tables, &("here", "ours", of, bound)).expect("all of it ran")
    }

    #[test]
    fn below_every_peer_is_judged_round_by_round() {
        let with = |ours: &[f64]| {
            let peers: [(_, _, &[f64]); 2] = [
                ("a", Kind::Peer, &[9.0, 5.0, 9.0]),
                ("b", Kind::Peer, &[7.0, 8.0, 7.0]),
            ];
            let all = [("ours", Kind::Ours, ours), peers[0], peers[1]];
            judged(&[table("here", &all)], Median, BelowPeers)
        };
        let below = with(&[6.0, 4.0, 6.0]);
        assert!(below.met && below.rounds == (3, 3));
        // Its median is below both of theirs.
        let once = with(&[6.0, 5.0, 6.0]);
        assert!(!once.met && once.rounds == (2, 3));
        assert!(below.is_open(true) && !once.is_open(true));
    }

    #[test]
    fn the_best_peer_has_the_most_where_more_is_better() {
        let lanes: [(_, _, &[f64]); 3] = [
            ("ours", Kind::Ours, &[96.0]),
            ("a", Kind::Peer, &[10.0]),
            ("b", Kind::Peer, &[90.0]),
        ];
        let less = [table("here", &lanes)];
        assert_eq!(judged(&less, Median, TimesPeer(1.0)).allowed, 10.0);
        let more = less.map(Table::more_is_better);
        assert_eq!(judged(&more, Median, TimesPeer(1.0)).allowed, 90.0);
        assert!(judged(&more, Median, AtLeast(95.0)).met);
        assert!(!judged(&more, Median, AtLeast(97.0)).met);
    }

    #[test]
    fn a_limit_counts_at_its_smallest_round() {
        let lanes: [(_, _, &[f64]); 3] = [
            ("ours", Kind::Ours, &[20.0, 20.0, 20.0]),
            ("limit", Kind::Limit, &[5.0, 50.0, 60.0]),
            ("row", Kind::Ours, &[10.0, 30.0, 40.0]),
        ];
        let here = [table("here", &lanes)];
        let limit = judged(&here, Median, TimesRow(2.0, "limit"));
        assert!(!limit.met && limit.allowed == 10.0 && limit.rounds == (0, 3));
        let row = judged(&here, Median, TimesRow(1.0, "row"));
        assert!(row.met && row.allowed == 30.0 && row.rounds == (2, 3));
    }

    #[test]
    fn what_did_not_run_is_no_verdict() {
        let here = [table("here", &[("ours", Kind::Ours, &[1.0])])];
        for bound in [
            TimesPeer(1.0),
            BelowPeers,
            TimesRow(1.0, "b"),
            TimesTable(1.0, "there"),
        ] {
            assert!(verdict(&here, &("here", "ours", Median, bound)).is_none());
        }
        assert!(verdict(&here, &("there", "ours", Median, AtMost(1.0))).is_none());
        assert!(verdict(&here, &("here", "ours", P99, AtMost(1.0))).is_none());
    }

    #[test]
    fn a_lead_of_five_rounds_decides() {
        let with = |ours: &[f64]| {
            judged(
                &[table("here", &[("ours", Kind::Ours, ours)])],
                Median,
                AtMost(1.0),
            )
        };
        assert!(!with(&[1.0; 5]).is_open(false));
        assert!(with(&[1.0, 1.0, 1.0, 1.0, 1.0, 2.0]).is_open(false));
        assert!(!with(&[2.0; 5]).is_open(false));
    }
}
