//! Weakens the library one access at a time, and one step at a time, and sees
//! which models fail. See `README.md` beside it.
//!
//! ```text
//! cargo run --release -p mutants             # all of it
//! cargo run --release -p mutants ring slot   # sites and edits whose name has one of these
//! cargo run --release -p mutants -- --sites  # accesses only; --edits: edits only
//! cargo run --release -p mutants -- --check  # whether each edit can be made, and each survivor is there; runs nothing
//! cargo run --release -p mutants -- --upto=2  # by models that take two seconds at most, for a first look
//! cargo run --release -p mutants -- --over=2 'src/parts/ring.rs pop: the line / Relaxed'   # by the others
//! cargo run --release -p mutants -- --shuttle=2  # edits, by random schedules: two seconds a scenario and scheduler
//! cargo run --release -p mutants -- --shuttle=2 --sites more four  # survivors with one of these reasons, in the same way
//! cargo run --release -p mutants -- --by=ring::,queue:: ring  # by models whose name has one of these
//! taskset -c 0 cargo run --release -p mutants   # one model at a time
//! ```
//!
//! An access is weakened at run time, by the shim in `src/sync/`, so that one
//! build serves all of those; accesses are taken in the order of the filters. An
//! edit of `edits.txt` is made to a copy of the tree: all in one build, where they change
//! functions only, and chosen at run time; else alone. A survivor must be in `survivors.txt`, with its reason.

mod edits;
mod models;
mod planted;
mod sites;
mod survivors;

use std::process::ExitCode;
use std::time::Duration;

/// What became of a mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// By a model, with the first line of its panic.
    Killed(String, String),
    /// No model failed; this many ran.
    Survived(usize),
    /// No model failed, and these did not end in time: more states, or for ever.
    TimedOut(Vec<String>),
    /// The models that make the access, this many, are none of those to be run.
    NotTried(usize),
}

/// Which models to run, by how long they take and by name.
#[derive(Debug)]
pub(crate) struct Which {
    pub(crate) over: Duration,
    pub(crate) upto: Duration,
    /// Parts of their names; none: all models.
    by: Vec<String>,
}

impl Default for Which {
    fn default() -> Self {
        Self {
            over: Duration::ZERO,
            upto: Duration::from_secs(600),
            by: Vec::new(),
        }
    }
}

impl Which {
    /// Whether a model of this name is to run.
    pub(crate) fn asks(&self, name: &str) -> bool {
        self.by.is_empty() || self.by.iter().any(|part| name.contains(part.as_str()))
    }

    /// `--upto=` or `--over=`, in seconds; `--by=`, parts of names.
    fn takes(&mut self, arg: &str) -> bool {
        if let Some(parts) = arg.strip_prefix("--by=") {
            self.by.extend(parts.split(',').map(str::to_owned));
            return true;
        }
        let given = |flag| Some(Duration::from_secs(arg.strip_prefix(flag)?.parse().ok()?));
        match (given("--upto="), given("--over=")) {
            (Some(upto), _) => self.upto = upto,
            (_, Some(over)) => self.over = over,
            _ => return false,
        }
        true
    }
}

fn main() -> ExitCode {
    let mut filters: Vec<String> = std::env::args().skip(1).collect();
    let mut which = Which::default();
    let mut shuttle = None;
    filters.retain(|arg| match arg.strip_prefix("--shuttle=").map(str::parse) {
        Some(Ok(seconds)) => {
            shuttle = Some(seconds);
            false
        }
        _ => true,
    });
    filters.retain(|arg| !which.takes(arg));
    let mut given = |flag: &str| {
        let before = filters.len();
        filters.retain(|f| f != flag);
        filters.len() < before
    };
    let (sites_only, edits_only) = (given("--sites"), given("--edits"));
    let check_only = given("--check");
    if let Some(flag) = filters.iter().find(|f| f.starts_with('-')) {
        eprintln!("{flag}: none of --sites, --edits, --check, --shuttle=, --upto=, --over=, --by=");
        return ExitCode::from(2);
    }
    let root = models::root();
    if check_only {
        return match edits::check(&root) + sites::check(&root) {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        };
    }
    if let Some(seconds) = shuttle {
        let not_run = if sites_only {
            sites::run_scenarios(&root, &filters, seconds)
        } else {
            edits::run_scenarios(&root, &filters, seconds)
        };
        return match not_run {
            0 => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        };
    }
    let mut failures = 0;
    if !edits_only {
        failures += sites::run(&root, &filters, &which);
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
