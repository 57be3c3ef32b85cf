//! One run beside another.

use crate::harness::{aligned, Kind, Row, Spread, Table};
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::{fs, io};

const HEAD: &str = "workload\trow\tunit\tmedian\tmin\tmax";

/// Writes every row, one a line.
pub(crate) fn save(file: &Path, tables: &[Table]) -> io::Result<()> {
    let mut out = String::from(HEAD);
    for (table, row) in rows(tables) {
        let Spread { median, min, max } = row.value;
        let (workload, name, unit) = (&table.workload, row.name, table.unit);
        let _ = write!(out, "\n{workload}\t{name}\t{unit}\t{median}\t{min}\t{max}");
    }
    out.push('\n');
    fs::write(file, out)
}

fn rows(tables: &[Table]) -> impl Iterator<Item = (&Table, &Row)> {
    tables
        .iter()
        .flat_map(|t| t.rows.iter().map(move |r| (t, r)))
}

/// Why a file is not one that [`save`] wrote.
#[derive(Debug)]
pub(crate) enum Unusable {
    Io(io::Error),
    /// Its first line is another.
    Head,
    /// The line with this number is not six fields, three numbers last.
    Line(usize),
    Empty,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(why) => why.fmt(f),
            Self::Head => f.write_str("not a file that --save wrote: its first line is another"),
            Self::Line(n) => write!(
                f,
                "line {n}: not a workload, a row, a unit and three numbers with tabs between"
            ),
            Self::Empty => f.write_str("no rows in it"),
        }
    }
}

impl std::error::Error for Unusable {}

/// The rows of a run, by workload, name and unit.
#[derive(Debug)]
pub(crate) struct Run(HashMap<[String; 3], Spread>);

impl Run {
    pub(crate) fn read(file: &Path) -> Result<Self, Unusable> {
        let text = fs::read_to_string(file).map_err(Unusable::Io)?;
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(Unusable::Head);
        }
        let row = |(i, line)| parse(line).ok_or(Unusable::Line(i + 2));
        let rows: HashMap<_, _> = lines.enumerate().map(row).collect::<Result<_, _>>()?;
        if rows.is_empty() {
            return Err(Unusable::Empty);
        }
        Ok(Self(rows))
    }

    /// What it has for a row.
    pub(crate) fn value(&self, table: &Table, row: &Row) -> Option<Spread> {
        let key = [table.workload.as_str(), row.name, table.unit].map(str::to_owned);
        self.0.get(&key).copied()
    }

    /// Says which rows of ours and which limits another run did not confirm, and how many
    /// rows of each kind it did. Rows that only one of the runs has do not count.
    pub(crate) fn print_against(&self, tables: &[Table]) {
        let mut lines = vec![["", "this run", "the other", ""]
            .map(str::to_owned)
            .to_vec()];
        let kinds = [
            (Kind::Ours, "ours"),
            (Kind::Peer, "peers"),
            (Kind::Limit, "limits"),
        ];
        let mut counts = [(0, 0); 3];
        for (table, row) in rows(tables) {
            let Some(other) = self.value(table, row) else {
                continue;
            };
            let agrees = row.value.overlaps(&other);
            for ((kind, _), (agreed, all)) in kinds.iter().zip(&mut counts) {
                if *kind == row.kind {
                    *agreed += usize::from(agrees);
                    *all += 1;
                }
            }
            if !agrees && row.kind != Kind::Peer {
                lines.push(vec![
                    format!("{}: {}", table.workload, row.name),
                    row.value.to_string(),
                    other.to_string(),
                    table.unit.to_owned(),
                ]);
            }
        }
        println!("\nAgainst the other run: median (min-max) where these ranges do not overlap");
        if lines.len() > 1 {
            print!("{}", aligned(&lines));
        }
        for ((_, what), (agreed, all)) in kinds.iter().zip(counts) {
            println!("  {what}: {agreed} of {all} rows agree within their spread");
        }
    }
}

fn parse(line: &str) -> Option<([String; 3], Spread)> {
    let fields: Vec<_> = line.split('\t').collect();
    let &[workload, name, unit, median, min, max] = fields.as_slice() else {
        return None;
    };
    let spread = Spread {
        median: median.parse().ok()?,
        min: min.parse().ok()?,
        max: max.parse().ok()?,
    };
    Some(([workload, name, unit].map(str::to_owned), spread))
}
