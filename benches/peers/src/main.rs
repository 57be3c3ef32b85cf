//! Measures lazypool beside other pools, over several layouts of memory.
//!
//! Each round of each workload has its own process, in which the contenders take turns. A process
//! has one layout: a pad in front of the pools, on the heap and on the stack.

mod contenders;
mod instructions;
mod machine;
mod round;
mod table;
mod tally;
mod workloads;

use contenders::Ours;
use machine::usage;
use std::process::ExitCode;
use table::Run;

const USAGE: &str = "\
Measures lazypool beside other pools, over several layouts of memory.

usage: peers [FILTER]... [--rounds N] [--all] [--save FILE] [--against FILE]
       peers --instructions [--all] [--save FILE] [--against FILE]

  FILTER          only workloads whose name contains it, such as queue/1p
  --rounds N      rounds of each workload (default: two of each layout)
  --all           also print the rows of every peer
  --save FILE     also write all figures into FILE
  --against FILE  also print the rows that differ from those saved in FILE
  --instructions  count instructions per operation instead (needs valgrind): those of lazypool,
                  with --all also the peers'; with --against, fail if an operation has grown";

/// Takes an option and its value out of the arguments.
fn option(args: &mut Vec<String>, name: &str) -> Result<Option<String>, String> {
    let Some(at) = args.iter().position(|arg| arg == name) else {
        return Ok(None);
    };
    if at + 1 == args.len() {
        return Err(format!("{name} needs a value"));
    }
    Ok(args.drain(at..at + 2).nth(1))
}

/// Runs a round of each workload, then the next round of each. So a slow phase of the machine
/// spoils one round of all workloads, and not all rounds of one.
fn measure(filters: &[String], rounds: usize) -> Result<Run, String> {
    let all = workloads::all::<Ours>().into_iter();
    let mut names: Vec<_> = all.map(|w| w.name).collect();
    names.retain(|name| filters.is_empty() || filters.iter().any(|f| name.contains(f)));
    if names.is_empty() {
        return Err(String::from("no workload has such a name"));
    }
    let mut run = Run::default();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for name in &names {
            round::run(name, round, &mut run)?;
        }
    }
    Ok(run)
}

fn run(mut args: Vec<String>) -> Result<(), String> {
    let rounds = option(&mut args, "--rounds")?.map_or(Ok(2 * round::LAYOUTS), |n| n.parse());
    let rounds = rounds.map_err(|why| format!("--rounds: {why}"))?;
    let save = option(&mut args, "--save")?;
    let against = option(&mut args, "--against")?;
    let [all, instructions] = ["--all", "--instructions"].map(|flag| {
        let before = args.len();
        args.retain(|arg| arg != flag);
        args.len() < before
    });
    if args.iter().any(|arg| arg.starts_with('-')) {
        return Err(USAGE.to_owned());
    }
    // Read this before the run. Otherwise a wrong name would cost minutes.
    let other = against.as_deref().map(Run::read).transpose()?;
    let before = usage();
    let run = match instructions {
        true => instructions::count(all)?,
        false => measure(&args, rounds)?,
    };
    run.print(all);
    if let Some(file) = save {
        run.save(&file)?;
    }
    match (instructions, other) {
        (true, other) => return other.map_or(Ok(()), |other| instructions::check(&run, &other)),
        (false, other) => other.iter().for_each(|other| run.print_against(other)),
    }
    if let (Some(before), Some(after)) = (before, usage()) {
        let [others, all] = [0, 1].map(|i| after[i] - before[i]);
        let percent = 100.0 * others / all;
        println!("\nOther processes used {percent:.0} % of the machine. Trust no times above 5 %.");
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1).peekable();
    let done = match args.peek().map(String::as_str) {
        Some(round::CHILD) => round::child(args.skip(1)),
        Some(instructions::CHILD) => instructions::child(args.skip(1)),
        _ => run(args.collect()),
    };
    if let Err(why) = &done {
        eprintln!("{why}");
    }
    ExitCode::from(u8::from(done.is_err()))
}
