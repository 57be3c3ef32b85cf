//! Rounds, medians and tables.

use crate::contenders::{visit_all, Contender, Visitor};
use crate::machine::processor_time;
use crate::tally;
use hdrhistogram::Histogram;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

/// What was asked for on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    /// How long one sample takes, roughly.
    pub(crate) budget: Duration,
    pub(crate) quick: bool,
    /// Only workloads whose name contains one of these; all if empty.
    pub(crate) filters: Vec<String>,
    pub(crate) plot: Option<std::path::PathBuf>,
    pub(crate) markdown: bool,
    pub(crate) save: Option<std::path::PathBuf>,
    pub(crate) against: Option<std::path::PathBuf>,
    /// Further rounds where a target is neither clearly met nor clearly missed.
    pub(crate) decide: bool,
    pub(crate) instructions: bool,
    pub(crate) check: Option<std::path::PathBuf>,
}

impl Options {
    pub(crate) fn wants(&self, workload: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|f| workload.contains(f.as_str()))
    }

    /// `n`, or less of it in a quick run.
    pub(crate) fn scaled(&self, n: usize) -> usize {
        if self.quick {
            n.div_ceil(10)
        } else {
            n
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Peer,
    /// What the machine allows, whoever does the work.
    Limit,
}

/// How many operations fill a sample; found in the first round.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    n: u64,
    /// Processor time per operation of the last run, in nanoseconds: of all
    /// threads, spinning included. Other processes disturb it least.
    pub(crate) cpu: Option<f64>,
}

impl Pace {
    /// Runs `f` for about `budget` and returns nanoseconds per operation.
    /// `f(n)` does `n` operations and says how long they took.
    pub(crate) fn run(&mut self, budget: Duration, mut f: impl FnMut(u64) -> Duration) -> f64 {
        if self.n == 0 {
            let mut n = 32;
            let took = loop {
                let took = f(n);
                if took * 8 > budget || n >= 1 << 26 {
                    break took;
                }
                n *= 4;
            };
            let wanted = n as f64 * budget.as_secs_f64() / took.as_secs_f64().max(1e-9);
            self.n = (wanted as u64).max(32);
        } else {
            f(self.n.div_ceil(8));
        }
        let before = processor_time();
        let took = f(self.n).as_nanos() as f64;
        let cpu = (processor_time() - before).as_nanos() as f64;
        self.cpu = Some(cpu / self.n as f64);
        took / self.n as f64
    }
}

/// Takes one sample.
type Sampler<S> = Box<dyn FnMut(&mut Pace) -> S>;

/// One who takes part in a workload.
pub(crate) struct Entrant<S> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) sample: Sampler<S>,
}

impl<S> Entrant<S> {
    pub(crate) fn limit(name: &'static str, sample: impl FnMut(&mut Pace) -> S + 'static) -> Self {
        Self {
            name,
            kind: Kind::Limit,
            sample: Box::new(sample),
        }
    }

    pub(crate) fn ours(name: &'static str, sample: impl FnMut(&mut Pace) -> S + 'static) -> Self {
        Self {
            name,
            kind: Kind::Ours,
            sample: Box::new(sample),
        }
    }
}

impl<S> std::fmt::Debug for Entrant<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entrant").field("name", &self.name).finish()
    }
}

/// A workload as far as it is the same for every contender.
pub(crate) trait Trial: Clone + 'static {
    type Sample;

    /// Whether the contender can do it at all.
    fn admits<C: Contender>(&self) -> bool {
        true
    }

    fn sample<C: Contender>(&self, pace: &mut Pace) -> Self::Sample;
}

/// An entrant for every contender that the trial admits.
pub(crate) fn entrants<T: Trial>(trial: &T) -> Vec<Entrant<T::Sample>> {
    struct Collect<'a, T: Trial>(&'a T, Vec<Entrant<T::Sample>>);
    impl<T: Trial> Visitor for Collect<'_, T> {
        fn visit<C: Contender>(&mut self) {
            if self.0.admits::<C>() {
                let trial = self.0.clone();
                self.1.push(Entrant {
                    name: C::NAME,
                    kind: if C::OURS { Kind::Ours } else { Kind::Peer },
                    sample: Box::new(move |pace| trial.sample::<C>(pace)),
                });
            }
        }
    }
    let mut collect = Collect(trial, Vec::new());
    visit_all(&mut collect);
    collect.1
}

/// All samples of one entrant.
#[derive(Debug)]
pub(crate) struct Lane<S> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<S>,
    /// Processor time of the paced ones.
    pub(crate) cpu: Vec<f64>,
}

impl<S> Lane<S> {
    /// The same lane with something else made of every sample.
    pub(crate) fn map<T>(&self, f: impl Fn(&S) -> T) -> Lane<T> {
        Lane {
            name: self.name,
            kind: self.kind,
            samples: self.samples.iter().map(f).collect(),
            cpu: self.cpu.clone(),
        }
    }
}

/// What takes its rounds one by one, so that others take theirs in between.
pub(crate) trait Workload {
    /// How many it takes in all.
    fn rounds(&self) -> usize;
    fn round(&mut self);
    /// What came of the rounds so far.
    fn tables(&self) -> Vec<Table>;
}

/// The workload of some entrants, and what makes tables of it.
struct Race<S, F> {
    rounds: usize,
    lanes: Vec<Lane<S>>,
    samplers: Vec<(Sampler<S>, Pace)>,
    tables: F,
}

impl<S, F: Fn(&[Lane<S>]) -> Vec<Table>> Workload for Race<S, F> {
    fn rounds(&self) -> usize {
        self.rounds
    }

    /// Lets the entrants take turns, every one once: in each round another one first, and every second
    /// round backward. Who comes first after a workload that keeps all CPUs busy finds the kernel
    /// placing threads as it did for that.
    fn round(&mut self) {
        let (round, all) = (self.lanes[0].samples.len(), self.lanes.len());
        let first = round * all / self.rounds;
        for turn in 0..all {
            let turn = if round % 2 == 0 { turn } else { all - turn };
            let place = (first + turn) % all;
            let (lane, (sample, pace)) = (&mut self.lanes[place], &mut self.samplers[place]);
            tally::measure_now(lane.name);
            lane.samples.push(sample(pace));
            lane.cpu.extend(pace.cpu.take());
            // Threads that a dropped pool does not join have time to end.
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn tables(&self) -> Vec<Table> {
        (self.tables)(&self.lanes)
    }
}

pub(crate) fn race_into<S: 'static>(
    rounds: usize,
    entrants: Vec<Entrant<S>>,
    tables: impl Fn(&[Lane<S>]) -> Vec<Table> + 'static,
) -> Box<dyn Workload> {
    let lane = |e: Entrant<S>| {
        let lane = Lane {
            name: e.name,
            kind: e.kind,
            samples: Vec::new(),
            cpu: Vec::new(),
        };
        (lane, (e.sample, Pace::default()))
    };
    let (lanes, samplers) = entrants.into_iter().map(lane).unzip();
    Box::new(Race {
        rounds,
        lanes,
        samplers,
        tables,
    })
}

/// A race that becomes one table.
pub(crate) fn race(
    rounds: usize,
    entrants: Vec<Entrant<f64>>,
    workload: &str,
    title: &str,
    unit: &'static str,
) -> Box<dyn Workload> {
    let (workload, title) = (workload.to_owned(), title.to_owned());
    race_into(rounds, entrants, move |lanes| {
        vec![Table::new(&workload, &title, unit, lanes)]
    })
}

/// Runs all workloads, a round of each, then the next of each: a slow phase of the
/// machine costs every workload a round, which shows in its spread, and not a few
/// workloads all of theirs, which would not.
///
/// Those of which `undecided` names a table then take further rounds in the same way, until
/// it names none, or up to three times as many as before.
pub(crate) fn run(
    mut workloads: Vec<Box<dyn Workload>>,
    undecided: impl Fn(&[Table]) -> Vec<String>,
) -> Vec<Table> {
    let start = Instant::now();
    let passes = workloads.iter().map(|w| w.rounds()).max().unwrap_or(0);
    for pass in 0..passes {
        for workload in &mut workloads {
            // Fewer rounds than passes are spread over them.
            let due = |pass| pass * workload.rounds() / passes;
            if due(pass + 1) > due(pass) {
                workload.round();
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("pass {} of {passes}: {seconds:.0} s", pass + 1);
    }
    let all = |workloads: &[Box<dyn Workload>]| -> Vec<Table> {
        workloads.iter().flat_map(|w| w.tables()).collect()
    };
    let mut tables = all(&workloads);
    for more in 1..=2 * passes {
        let names = undecided(&tables);
        if names.is_empty() {
            break;
        }
        for workload in &mut workloads {
            if workload
                .tables()
                .iter()
                .any(|t| names.contains(&t.workload))
            {
                workload.round();
            }
        }
        tables = all(&workloads);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{more} more of {}: {seconds:.0} s", names.join(", "));
    }
    tables
}

/// A clock around `f`.
pub(crate) fn time(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Quantiles of a round, in nanoseconds.
pub(crate) fn quantiles<const N: usize>(
    nanos: impl Iterator<Item = u64>,
    quantiles: [f64; N],
) -> [f64; N] {
    let mut all: Histogram<u64> =
        Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds are in order");
    nanos.for_each(|ns| all.saturating_record(ns.max(1)));
    quantiles.map(|q| all.value_at_quantile(q) as f64)
}

/// What came of the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(samples: &[f64]) -> Self {
        let all = samples.iter().copied();
        Self {
            median: median(samples),
            min: all.clone().fold(f64::INFINITY, f64::min),
            max: all.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// Whether both ranges have something in common; two of nothing agree, too.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max || self.is_none() && other.is_none()
    }

    /// Nothing could be measured.
    fn is_none(&self) -> bool {
        self.min > self.max
    }
}

/// As `median (min-max)`.
impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [median, min, max] = [self.median, self.min, self.max].map(figure);
        if min == max {
            f.write_str(&median)
        } else {
            write!(f, "{median} ({min}-{max})")
        }
    }
}

/// A line of a table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) value: Spread,
    /// Processor time, where it was taken.
    pub(crate) cpu: Spread,
    /// The 99th percentile of each round, where it was taken.
    pub(crate) p99: Spread,
    /// Further columns.
    pub(crate) extra: Vec<Spread>,
    pub(crate) rounds: Rounds,
}

/// The same, round by round.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    pub(crate) value: Vec<f64>,
    pub(crate) cpu: Vec<f64>,
    pub(crate) p99: Vec<f64>,
}

/// What one wishes of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

/// What came of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The name by which it is filtered.
    pub(crate) workload: String,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) rows: Vec<Row>,
    pub(crate) extra_heads: Vec<&'static str>,
}

impl Table {
    pub(crate) fn new(
        workload: &str,
        title: &str,
        unit: &'static str,
        lanes: &[Lane<f64>],
    ) -> Self {
        let rows = lanes
            .iter()
            .map(|lane| Row {
                name: lane.name,
                kind: lane.kind,
                value: Spread::of(&lane.samples),
                cpu: Spread::of(&lane.cpu),
                p99: Spread::of(&[]),
                extra: Vec::new(),
                rounds: Rounds {
                    value: lane.samples.clone(),
                    cpu: lane.cpu.clone(),
                    p99: Vec::new(),
                },
            })
            .collect();
        Self {
            workload: workload.to_owned(),
            title: title.to_owned(),
            unit,
            better: Better::Less,
            rows,
            extra_heads: Vec::new(),
        }
    }

    /// Of figures of which one wishes more.
    pub(crate) fn more_is_better(self) -> Self {
        Self {
            better: Better::More,
            ..self
        }
    }

    /// Of samples of several figures: the first is the value, the others are further columns.
    pub(crate) fn of_columns<const N: usize>(
        workload: &str,
        title: &str,
        heads: [&'static str; N],
        lanes: &[Lane<[f64; N]>],
    ) -> Self {
        let column = |i: usize| lanes.iter().map(move |lane| lane.map(|s| s[i]));
        let first: Vec<_> = column(0).collect();
        let mut table = Self::new(workload, title, heads[0], &first);
        table.extra_heads = heads[1..].to_vec();
        for i in 1..N {
            for (row, lane) in table.rows.iter_mut().zip(column(i)) {
                row.extra.push(Spread::of(&lane.samples));
            }
        }
        table
    }

    /// Of samples of several quantiles, the second of which is the 99th percentile. They
    /// are taken round by round: in one heap, a disturbed round would decide them alone.
    pub(crate) fn of_quantiles<const N: usize>(
        workload: &str,
        title: &str,
        heads: [&'static str; N],
        lanes: &[Lane<[f64; N]>],
    ) -> Self {
        let mut table = Self::of_columns(workload, title, heads, lanes);
        for (row, lane) in table.rows.iter_mut().zip(lanes) {
            row.p99 = row.extra[0];
            row.rounds.p99 = lane.samples.iter().map(|s| s[1]).collect();
        }
        table
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|r| r.kind == Kind::Peer)
    }

    /// The peer that is best at a figure.
    pub(crate) fn best_peer(&self, figure: impl Fn(&Row) -> f64) -> Option<&Row> {
        let measured = self.peers().filter(|r| figure(r) > 0.0);
        let order = |a: &&Row, b: &&Row| figure(a).total_cmp(&figure(b));
        match self.better {
            Better::Less => measured.min_by(order),
            Better::More => measured.max_by(order),
        }
    }

    /// The first limit is the one that ratios refer to.
    pub(crate) fn limit(&self) -> Option<&Row> {
        self.rows.iter().find(|r| r.kind == Kind::Limit)
    }

    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }

    pub(crate) fn print(&self) {
        let mut heads = vec!["", self.unit, "min", "max"];
        let (peer, limit) = (self.best_peer(|r| r.value.median), self.limit());
        if peer.is_some() {
            heads.push("x best peer");
        }
        if limit.is_some() {
            heads.push("x limit");
        }
        let cpu = self.rows.iter().any(|r| r.cpu.median.is_finite());
        if cpu {
            heads.push("cpu ns");
        }
        heads.extend(&self.extra_heads);
        let mut lines = vec![heads.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
        for row in &self.rows {
            let mut line = vec![
                match row.kind {
                    Kind::Limit => format!("[{}]", row.name),
                    _ => row.name.to_owned(),
                },
                figure(row.value.median),
                figure(row.value.min),
                figure(row.value.max),
            ];
            if let Some(peer) = peer {
                line.push(ratio(row.value.median / peer.value.median));
            }
            if let Some(limit) = limit {
                // At its best: a limit is what the machine allows, and a round in which it
                // allowed less says nothing about the others.
                line.push(ratio(row.value.median / limit.value.min));
            }
            if cpu {
                line.push(figure(row.cpu.median));
            }
            line.extend(row.extra.iter().map(Spread::to_string));
            lines.push(line);
        }
        println!("\n{} ({})", self.title, self.workload);
        print!("{}", aligned(&lines));
    }
}

/// First column to the left, the others to the right.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(c))
            .map(|s| s.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::from(" ");
        for (c, cell) in line.iter().enumerate() {
            let w = widths[c];
            let _ = if c == 0 {
                write!(text, " {cell:<w$}")
            } else {
                write!(text, "  {cell:>w$}")
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Three digits that mean something, thousands apart.
pub(crate) fn figure(x: f64) -> String {
    if !x.is_finite() {
        return String::from("-");
    }
    if x.abs() < 10.0 {
        return format!("{x:.2}");
    }
    if x.abs() < 100.0 {
        return format!("{x:.1}");
    }
    let digits = format!("{:.0}", x.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if x < 0.0 {
        out.insert(0, '-');
    }
    out
}

pub(crate) fn ratio(x: f64) -> String {
    if x.is_finite() {
        format!("{x:.2}")
    } else {
        String::from("-")
    }
}
