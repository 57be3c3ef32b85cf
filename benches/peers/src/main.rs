//! Measures lazypool beside other pools, and beside what the machine allows.
//!
//! ```text
//! cargo run --release -p peers -- [FILTER]... [--rounds N] [--decide] [--quick] [--plot DIR]
//!     [--markdown] [--save FILE] [--against FILE]
//! cargo run --release -p peers -- --instructions [--save FILE | --check FILE]
//! ```
//!
//! Workloads take turns, round by round, and so do the contenders and limits of
//! each; a table gives the median of the rounds with the smallest and the largest.
//! Both sides of every workload are counted: a task that did not run ends the program.

mod alloc;
mod compare;
mod contenders;
mod digest;
mod harness;
mod limits;
mod machine;
mod observers;
mod plot;
mod tally;
mod targets;
mod work;
mod workloads;

use compare::Run;
use harness::{Options, Table};
use machine::Usage;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

const USAGE: &str = "\
Measures lazypool beside other pools, and beside what the machine allows.

usage: peers [FILTER]... [--rounds N] [--decide] [--quick] [--plot DIR] [--markdown]
             [--save FILE] [--against FILE]
       peers --instructions [--save FILE | --check FILE]

  FILTER          only workloads whose name contains it, such as queue/tiny/1p
  --rounds N      rounds of every workload (default 5)
  --decide        up to three times as many where a target is neither clearly met nor missed
  --quick         one short round: shows that everything works, measures little
  --plot DIR      also write pictures (SVG) into DIR
  --markdown      also print the README's table, and that of the targets in benches/RESULTS.md,
                  as far as their workloads ran
  --save FILE     also write every row into FILE, tab-separated
  --against FILE  also say in which rows the run saved in FILE differs
  --instructions  instead of all that: instructions per operation (needs valgrind)
      --save FILE     write ours into FILE
      --check FILE    count ours only, and fail if one is above what FILE allows
";

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        rounds: 5,
        budget: Duration::from_millis(40),
        quick: false,
        filters: Vec::new(),
        plot: None,
        markdown: false,
        save: None,
        against: None,
        decide: false,
        instructions: false,
        check: None,
    };
    let mut rounds = None;
    while let Some(arg) = args.next() {
        let mut value = |what| args.next().ok_or(format!("{arg} needs {what}"));
        match arg.as_str() {
            "--rounds" => {
                let n = value("a number")?;
                rounds = Some(n.parse().map_err(|e| format!("--rounds {n}: {e}"))?);
            }
            "--plot" => options.plot = Some(value("a directory")?.into()),
            "--save" => options.save = Some(value("a file")?.into()),
            "--against" => options.against = Some(value("a file")?.into()),
            "--check" => options.check = Some(value("a file")?.into()),
            "--decide" => options.decide = true,
            "--instructions" => options.instructions = true,
            "--markdown" => options.markdown = true,
            "--quick" => {
                options.quick = true;
                options.rounds = 1;
                options.budget = Duration::from_millis(5);
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            filter => options.filters.push(filter.to_owned()),
        }
    }
    if options.check.is_some() && !options.instructions {
        return Err(String::from("--check goes with --instructions"));
    }
    options.rounds = rounds.unwrap_or(options.rounds).max(1);
    Ok(options)
}

fn failure(path: &Path, why: &dyn std::error::Error) -> ExitCode {
    eprintln!("{}: {why}", path.display());
    ExitCode::FAILURE
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|a| a == "--help" || a == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if args.next_if(|a| workloads::is_child(a)).is_some() {
        return workloads::child(&mut args).unwrap_or(ExitCode::FAILURE);
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    if options.instructions {
        let (save, check) = (options.save.as_deref(), options.check.as_deref());
        return match workloads::instructions(save, check) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    // Read before the run: a wrong name should not cost three minutes.
    let other = match options.against.as_deref().map(|f| (f, Run::read(f))) {
        None => None,
        Some((_, Ok(run))) => Some(run),
        Some((file, Err(why))) => return failure(file, &why),
    };
    let start = Instant::now();
    let before = Usage::now();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!(
        "{} round(s), {cores} cores; the median, the smallest and the largest of the rounds; \
         cpu: processor time of all threads; [limits]: what the machine allows without a pool; \
         x limit: beside the limit's smallest round",
        options.rounds
    );
    let mut wanted = Vec::new();
    for group in workloads::ALL {
        group(&options, &mut |workload| wanted.push(workload));
    }
    if wanted.is_empty() {
        eprintln!("no workload is named so");
        return ExitCode::FAILURE;
    }
    let tables = harness::run(wanted, |tables| match options.decide {
        true => targets::undecided(tables),
        false => Vec::new(),
    });
    tables.iter().for_each(Table::print);
    targets::print(&tables);
    if options.markdown {
        println!("\nFor README.md:");
        digest::print(&tables, cores);
        println!("\nFor benches/RESULTS.md:");
        digest::print_round_trip(&tables);
        targets::print_markdown(&tables, other.as_ref());
    }
    if let Some(other) = other {
        other.print_against(&tables);
    }
    println!("\n{:.0} s in all", start.elapsed().as_secs_f64());
    if let (Some(before), Some(after)) = (before, Usage::now()) {
        let others = 100.0 * after.of_others_since(&before);
        if others > 5.0 {
            println!("other processes used {others:.0} % of the machine: do not trust the figures");
        }
    }
    if let Some(file) = &options.save {
        if let Err(why) = compare::save(file, &tables) {
            return failure(file, &why);
        }
    }
    if let Some(dir) = &options.plot {
        match plot::write(dir, &tables) {
            Ok(files) => println!("{files} pictures in {}", dir.display()),
            Err(why) => return failure(dir, &why),
        }
    }
    ExitCode::SUCCESS
}
