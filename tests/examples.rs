//! Runs the programs of `examples/` that people copy, each as a process: what it prints and how it
//! ends.
#![cfg(all(unix, not(miri)))]

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::programs::{program, Process};
use common::*;

/// Runs the command until it ends.
fn run(command: &mut Command) -> Output {
    output(Process(command.stderr(Stdio::piped()).spawn().unwrap()))
}

/// Returns what a program has printed, once it has ended. The programs print far less than a pipe
/// holds, so they never wait for this process to read.
fn output(mut process: Process) -> Output {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let status = process.wait();
    let child = &mut process.0;
    (child.stdout.take().unwrap().read_to_end(&mut stdout)).unwrap();
    if let Some(mut piped) = child.stderr.take() {
        piped.read_to_end(&mut stderr).unwrap();
    }
    Output {
        status,
        stdout,
        stderr,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A new directory, removed when this is dropped.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let name = format!("lazypool-examples-{}-{}", std::process::id(), unique());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(dir.join("below")).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn hash_tree_hashes_every_file() {
    let dir = Dir::new();
    // The check value of this checksum, as published with its definition.
    fs::write(dir.0.join("below/check"), "123456789").unwrap();
    fs::write(dir.0.join("empty"), "").unwrap();
    for n in 0..500 {
        fs::write(dir.0.join(format!("below/z{n:03}")), "123456789").unwrap();
    }
    let output = run(program("hash_tree").arg(&dir.0));
    assert!(output.status.success(), "{output:?}");
    let lines = text(&output.stdout);
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 502);
    assert!(lines[0].starts_with("cbf43926            9 "), "{lines:?}");
    assert!(lines[0].ends_with("check"), "{lines:?}");
    assert!(
        lines[501].starts_with("00000000            0 "),
        "{lines:?}"
    );
    assert!(lines[1..501].iter().all(|l| l.starts_with("cbf43926")));
    assert!(lines.is_sorted_by_key(|l| &l[22..]), "{lines:?}");
    assert!(text(&output.stderr).contains("502 files, 4.40 KiB, 0 failed"));
}

#[test]
fn hash_tree_without_a_directory() {
    let output = run(program("hash_tree").arg("no such directory"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("no such directory is no directory"));
}

/// Ctrl-C arrives while the program reads a file that would take hours, and many others wait.
#[test]
fn hash_tree_stops_at_ctrl_c() {
    let dir = Dir::new();
    for n in 0..100 {
        let file = File::create(dir.0.join(format!("{n}"))).unwrap();
        file.set_len(1 << 40).unwrap(); // sparse, so it takes no space
    }
    let mut command = program("hash_tree");
    let command = command.arg(&dir.0).stderr(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut said = String::new();
    let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C stops"), "{said}");
    process.signal(libc::SIGINT);
    let output = output(process);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("stopping"), "{said}");
    assert!(said.contains("0 files, 0 B, 0 failed"), "{said}");
    assert_eq!(text(&output.stdout), "");
}

/// Finding 2 of the trial by new users: a call that never returns does not keep the process alive.
#[test]
fn slow_library_is_bounded_survived_and_ends() {
    let output = run(&mut program("slow_library"));
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let expected = [
        "healthy: 9",
        "hung call 1: Err(TimedOut)",
        "hung call 2: Err(TimedOut)",
        "lost: 2 of 2 workers",
        "  a worker is in Some(\"hang\")",
        "  a worker is in Some(\"hang\")",
        "bounded: the pool is saturated: all workers are busy, no queue space is left",
        "survived: 9",
        "a task that was wanted has run",
        "the process ends",
    ];
    assert!(said.lines().eq(expected), "{said}");
}

#[test]
fn migrate_computes_the_same_in_each_way() {
    let output = run(&mut program("migrate"));
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stdout);
    let expected = [
        "threadpool: 22",
        "rayon::spawn: 22",
        "rayon::scope: 22",
        "spawn_blocking: 22",
        "the static pool has ended: true",
    ];
    assert!(said.lines().eq(expected), "{said}");
}
