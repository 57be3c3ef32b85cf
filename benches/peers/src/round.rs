//! A round of a workload, in its own process.

use crate::contenders;
use crate::table::{Run, LIMIT};
use crate::workloads::{spinning_round_trip, NEIGHBOR, TIMED};
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The first argument of such a process. The workload and the round follow.
pub(crate) const CHILD: &str = "--round";

/// The number of layouts. Their pads have 0, 80, 160 and 240 bytes, so each layout moves the memory
/// behind its pads by a line and a quarter more, with lines of 64 bytes.
pub(crate) const LAYOUTS: usize = 4;
const PAD: usize = 80;

/// Builds the program of the workload `neighbor` beside this one.
fn build_neighbor(this: &Path, layout: usize) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let built = Command::new(cargo)
        .args(["build", "-q", "--release", "--bin", NEIGHBOR])
        .args(["--manifest-path", manifest, "--target-dir"])
        .args(this.ancestors().nth(2))
        .env("PEERS_LAYOUT", layout.to_string())
        .status();
    match built {
        Ok(status) if status.success() => Ok(()),
        _ => Err(format!("the program of `{NEIGHBOR}` does not build")),
    }
}

/// Runs a round and adds its figures.
pub(crate) fn run(workload: &str, round: usize, to: &mut Run) -> Result<(), String> {
    let mut program = std::env::current_exe().map_err(|why| why.to_string())?;
    if workload == NEIGHBOR {
        build_neighbor(&program, round % LAYOUTS)?;
        program.set_file_name(NEIGHBOR);
    }
    let mut command = Command::new(program);
    command.args([CHILD, workload, &round.to_string()]);
    let out = command.stderr(Stdio::inherit()).output();
    let out = out.map_err(|why| format!("{workload}: {why}"))?;
    if !out.status.success() {
        return Err(format!("{workload}: {}", out.status));
    }
    let out = String::from_utf8_lossy(&out.stdout);
    out.lines().try_for_each(|line| to.add(line))
}

/// Calls `f` with `pads` pads in front of it on the stack.
fn behind(pads: usize, f: &mut dyn FnMut()) {
    let pad = black_box([0_u8; PAD]);
    match pads {
        0 => f(),
        _ => behind(pads - 1, f),
    }
    black_box(pad);
}

/// Lets each contender take one turn, and then measures the limit of the machine. Each round begins
/// with another contender, and after a round of each layout the order is reversed. The order
/// matters, because the kernel has already placed the process's threads for earlier contenders.
pub(crate) fn child(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(name), Some(round)) = (args.next(), args.next()) else {
        return Err(String::from("peers starts itself with this option"));
    };
    let round = round.parse::<usize>().unwrap_or(0);
    let mut entrants = Vec::new();
    for contender in contenders::all() {
        let mut workloads = (contender.workloads)().into_iter();
        let workload = workloads.find(|w| w.name == name && w.admits);
        entrants.extend(workload.map(|w| (contender, w)));
    }
    let layout = round % LAYOUTS;
    let _heap = black_box(Vec::<u8>::with_capacity(layout * PAD));
    let print = |figure: &str, kind: &str, row: &str, x: f64| {
        println!("{name}, {figure}\t{kind}\t{row}\t{layout}\t{x}");
    };
    for turn in 0..entrants.len() {
        let turn = [turn, entrants.len() - turn][round / LAYOUTS % 2];
        let place = (3 * round * entrants.len() / 8 + turn) % entrants.len();
        let (contender, workload) = &entrants[place];
        behind(layout, &mut || {
            let figures = (workload.sample)().into_iter();
            for (x, figure) in figures.zip(workload.figures) {
                print(figure, contender.kind, contender.name, x);
            }
        });
        // A dropped pool may leave threads that it has not joined. Give them time to end.
        thread::sleep(Duration::from_millis(1));
    }
    if name.starts_with(TIMED) {
        print("ns/call", "limit", LIMIT, spinning_round_trip());
    }
    Ok(())
}
