//! Weakens the library one access at a time, and one step at a time, and sees
//! which models fail. See "Mutation run" in `loom-tests/README.md`.
//!
//! ```text
//! cargo run --release -p mutants             # all of it
//! cargo run --release -p mutants ring slot   # sites and edits whose name has one of these
//! cargo run --release -p mutants -- --sites  # accesses only; --edits: edits only
//! cargo run --release -p mutants -- --quick  # by models that take two seconds at most, for a first look
//! ```
//!
//! An access is weakened at run time, by the shim in `src/sync.rs`, so that one
//! build serves all of those; an edit of `edits.txt` is made to a copy of the
//! tree and built. A survivor must be in `survivors.txt`, with its reason.

mod edits;
mod models;
mod sites;
mod survivors;

use std::process::ExitCode;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// By a model, with the first line of its panic.
    Killed(String, String),
    /// No model failed; this many ran.
    Survived(usize),
    /// No model failed, and these did not end in time: more states, or for ever.
    TimedOut(Vec<String>),
}

fn main() -> ExitCode {
    let mut filters: Vec<String> = std::env::args().skip(1).collect();
    let mut given = |flag: &str| {
        let before = filters.len();
        filters.retain(|f| f != flag);
        filters.len() < before
    };
    let (sites_only, edits_only) = (given("--sites"), given("--edits"));
    let quick = given("--quick");
    if let Some(flag) = filters.iter().find(|f| f.starts_with('-')) {
        eprintln!("{flag}: none of --sites, --edits, --quick");
        return ExitCode::from(2);
    }
    let root = models::root();
    let mut failures = 0;
    if !edits_only {
        failures += sites::run(&root, &filters, quick);
    }
    if !sites_only {
        failures += edits::run(&root, &filters);
    }
    if failures > 0 {
        println!("\n{failures} to be explained or repaired");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
