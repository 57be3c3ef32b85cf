//! The figures of all rounds: one table in Markdown, and saved runs.

use std::fmt::{self, Display, Formatter};
use std::process::Command;

/// A median, with the smallest and the largest.
#[derive(Clone, Copy, Debug)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Returns the spread of some samples, of which there must be at least one.
    fn of(samples: impl Iterator<Item = f64>) -> Self {
        let mut samples: Vec<_> = samples.collect();
        samples.sort_by(f64::total_cmp);
        let last = samples.len() - 1;
        Self {
            median: f64::midpoint(samples[last / 2], samples[last.div_ceil(2)]),
            min: samples[0],
            max: samples[last],
        }
    }
}

/// Writes `median (min-max)`.
impl Display for Spread {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [median, min, max] = [self.median, self.min, self.max].map(figure);
        write!(f, "{median} ({min}-{max})")
    }
}

/// Returns a number as text, with three significant digits if it is less than 1000.
fn figure(x: f64) -> String {
    let digits = if x < 9.995 { 2 } else { usize::from(x < 99.95) };
    format!("{x:.digits$}")
}

/// One figure of a workload, of one contender.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) table: String,
    /// `ours`, `peer`, or `limit`.
    kind: String,
    pub(crate) name: String,
    /// The layout and the figure of each round.
    samples: Vec<(usize, f64)>,
}

impl Row {
    fn rounds(&self) -> Spread {
        Spread::of(self.samples.iter().map(|(_, x)| *x))
    }

    pub(crate) fn median(&self) -> f64 {
        self.rounds().median
    }

    /// Returns the spread of the layouts' medians.
    fn layouts(&self) -> Spread {
        let of = |layout| self.samples.iter().filter(move |(l, _)| *l == layout);
        let median = |layout| Spread::of(of(layout).map(|(_, x)| *x)).median;
        Spread::of(self.samples.iter().map(|(layout, _)| median(*layout)))
    }
}

/// The name of the row that no call can be faster than.
pub(crate) const LIMIT: &str = "spinning round trip";

const HEADS: &str = "||rounds|over layouts|beside base|beside best peer|beside limit";

/// All figures of a run, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) rows: Vec<Row>,
    /// The lines that have been added.
    text: String,
}

impl Run {
    /// Adds a figure: `table TAB kind TAB row TAB layout TAB figure`. A line that begins with `#`
    /// is a comment.
    pub(crate) fn add(&mut self, line: &str) -> Result<(), String> {
        self.text += &format!("{line}\n");
        if line.starts_with('#') {
            return Ok(());
        }
        let fields: Vec<_> = line.split('\t').collect();
        let sample = |layout: &str, x: &str| Some((layout.parse().ok()?, x.parse().ok()?));
        let sample = fields.get(4).and_then(|x| sample(fields[3], x));
        let (&[table, kind, name, _, _], Some(sample)) = (fields.as_slice(), sample) else {
            return Err(format!("not a figure: {line}"));
        };
        let at = self.position(table, name).unwrap_or_else(|| {
            let [table, kind, name] = [table, kind, name].map(str::to_owned);
            self.rows.push(Row {
                table,
                kind,
                name,
                samples: Vec::new(),
            });
            self.rows.len() - 1
        });
        self.rows[at].samples.push(sample);
        Ok(())
    }

    fn position(&self, table: &str, name: &str) -> Option<usize> {
        let mut rows = self.rows.iter();
        rows.position(|row| row.table == table && row.name == name)
    }

    fn row(&self, table: &str, name: &str) -> Option<&Row> {
        self.position(table, name).map(|at| &self.rows[at])
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut run = Self::default();
        text.lines().try_for_each(|line| run.add(line))?;
        Ok(run)
    }

    /// Reads a file that [`Run::save`] wrote.
    pub(crate) fn read(file: &str) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|why| why.to_string());
        let run = text.and_then(|text| Self::parse(&text));
        run.map_err(|why| format!("{file}: {why}"))
    }

    /// Writes all figures to a file.
    pub(crate) fn save(&self, file: &str) -> Result<(), String> {
        let text = format!("# {}\n{}", compiler(), self.text);
        std::fs::write(file, text).map_err(|why| format!("{file}: {why}"))
    }

    /// Returns the compiler of a run that has been read.
    pub(crate) fn compiler(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Returns the peer with the best median. That is the largest one for a figure whose name
    /// begins with "good", and else the smallest.
    fn best_peer(&self, table: &str) -> Option<&Row> {
        let sign = if table.contains(", good") { -1.0 } else { 1.0 };
        let order = |a: &&Row, b: &&Row| (sign * a.median()).total_cmp(&(sign * b.median()));
        let peers = self
            .rows
            .iter()
            .filter(|r| r.table == table && r.kind == "peer");
        peers.min_by(order)
    }

    /// Returns the ratio of a row's median to that of the row that it is a variant of. "lazypool,
    /// join" is a variant of "lazypool".
    fn beside_base(&self, row: &Row) -> Option<f64> {
        let (base, _) = row.name.rsplit_once(", ")?;
        let base = self.row(&row.table, base)?.median();
        (base != 0.0).then(|| row.median() / base)
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let layouts = row.layouts();
        let ratio = |x: Option<f64>| match x {
            Some(x) if x.is_finite() => format!("{x:.2}"),
            _ => String::new(),
        };
        let best = self.best_peer(&row.table).filter(|_| row.kind == "ours");
        let best = best.map(|best| {
            let times = ratio(Some(row.median() / best.median()));
            format!("{times} ({} {})", best.name, best.rounds())
        });
        // Use the smallest round of a limit. A disturbed round says nothing about the machine.
        let limit = self.row(&row.table, LIMIT);
        vec![
            row.table.clone(),
            row.name.clone(),
            row.rounds().to_string(),
            format!("{}-{}", figure(layouts.min), figure(layouts.max)),
            ratio(self.beside_base(row)),
            best.unwrap_or_default(),
            ratio(limit.map(|limit| row.median() / limit.rounds().min)),
        ]
    }

    /// Prints our rows and the limits, or all rows. Then prints the distance between two copies of
    /// lazypool's code.
    pub(crate) fn print(&self, all: bool) {
        let mut lines: Vec<Vec<_>> = vec![HEADS.split('|').map(str::to_owned).collect()];
        let shown = self.rows.iter().filter(|row| all || row.kind != "peer");
        lines.extend(shown.map(|row| self.cells(row)));
        lines.insert(1, vec![String::new(); lines[0].len()]);
        for column in 0..lines[0].len() {
            let width = lines.iter().fold(0, |w, line| w.max(line[column].len()));
            lines[1][column] = "-".repeat(width);
            for line in &mut lines {
                line[column] = format!("{:<width$}", line[column]);
            }
        }
        for line in lines {
            println!("| {} |", line.join(" | "));
        }
        let copies = self.rows.iter().filter(|row| row.name.ends_with(", again"));
        let ratios = copies.filter_map(|row| self.beside_base(row));
        let apart: Vec<_> = ratios.map(|x| 100.0 * (x - 1.0).abs()).collect();
        if !apart.is_empty() {
            let Spread { median, max, .. } = Spread::of(apart.into_iter());
            println!("\nTwo copies of the same code differ by {median:.0} % (at most {max:.0} %).");
        }
    }

    /// Returns the rows that both runs have, in pairs: the row of this run, and that of the other
    /// one.
    pub(crate) fn beside<'a>(&'a self, other: &'a Self) -> Vec<[&'a Row; 2]> {
        let pair = |row: &'a Row| Some([row, other.row(&row.table, &row.name)?]);
        self.rows.iter().filter_map(pair).collect()
    }

    /// Prints the rows whose ranges do not overlap those of another run.
    pub(crate) fn print_against(&self, other: &Self) {
        println!("\nRows whose ranges do not overlap:\n");
        println!("| | | this run | the other |\n|---|---|---|---|");
        let pairs = self.beside(other);
        let mut apart = 0;
        for [row, other] in &pairs {
            let (this, that) = (row.rounds(), other.rounds());
            if this.min > that.max || that.min > this.max {
                apart += 1;
                println!("| {} | {} | {this} | {that} |", row.table, row.name);
            }
        }
        let (all, of) = (pairs.len(), other.compiler());
        println!("\n{apart} of {all} rows. The other run: {of}");
    }
}

/// Returns the compiler and the processor's architecture.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("--version").output();
    let version = String::from_utf8(out.map_or(Vec::new(), |out| out.stdout)).unwrap_or_default();
    format!("{}, {}", version.trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_layout_shows_beside_fast_ones() {
        let row = Row {
            samples: vec![(0, 1.0), (0, 3.0), (1, 10.0), (1, 12.0), (2, 2.0)],
            ..Row::default()
        };
        let (rounds, layouts) = (row.rounds(), row.layouts());
        assert_eq!((rounds.median, rounds.min, rounds.max), (3.0, 1.0, 12.0));
        assert_eq!((layouts.min, layouts.max), (2.0, 11.0));
    }

    #[test]
    fn the_best_peer_has_the_most_of_what_is_good() {
        for (table, best) in [("t, ns", "b"), ("t, good, %", "c")] {
            let text = format!("{table}\tpeer\tb\t0\t2\n{table}\tpeer\tc\t0\t3");
            let run = Run::parse(&text).expect("two figures");
            assert_eq!(run.best_peer(table).expect("two").name, best);
        }
    }
}
