//! Which steps of a slot and of a queue's cell have been taken in this process, for who
//! replays them against the tables. Only in model checkers, and under `--cfg lazypool_steps`.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// The steps of one table: a bit for each pair of states.
#[derive(Debug)]
pub(crate) struct Met {
    table: &'static str,
    pairs: AtomicU64,
}

pub(crate) static SLOT: Met = Met::new("slot");
pub(crate) static CELL: Met = Met::new("cell");

impl Met {
    const fn new(table: &'static str) -> Self {
        let pairs = AtomicU64::new(0);
        Self { table, pairs }
    }

    /// A step has been taken. The first time it goes into the file that the variable
    /// `LAZYPOOL_STEPS` names, in one write, as other processes may be at it.
    pub(crate) fn record(&self, from: u8, to: u8, names: impl Fn() -> String) {
        let pair = 1 << (from * 8 + to);
        // Relaxed: a set of bits.
        if self.pairs.load(Ordering::Relaxed) & pair != 0
            || self.pairs.fetch_or(pair, Ordering::Relaxed) & pair != 0
        {
            return;
        }
        let Some(path) = std::env::var_os("LAZYPOOL_STEPS") else {
            return;
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{} {}\n", self.table, names());
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("a file to record steps in");
    }
}
