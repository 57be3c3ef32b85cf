//! Runs the programs of `examples/` that people copy, each as a process: what it prints and how it
//! ends.
//!
//! `cargo test` builds the examples. `cargo test --test examples` alone does not: then the tests
//! run the programs of an earlier build, or fail and ask for a build.
#![cfg(all(unix, not(miri)))]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::*;

fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(Path::parent).unwrap();
    let program = built.join("examples").join(name);
    assert!(
        program.exists(),
        "build it first: cargo build --example {name}"
    );
    Command::new(program)
}

/// Runs the command until it ends. If it does not end in time, it is killed and the test fails.
fn run(command: &mut Command) -> Output {
    let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    output(&mut pipes.spawn().unwrap())
}

fn output(child: &mut Child) -> Output {
    // The programs print far less than a pipe holds, so they never wait for this process to read.
    let mut status = None;
    let start = std::time::Instant::now();
    while status.is_none() && start.elapsed() < LIMIT {
        status = child.try_wait().unwrap();
        std::thread::sleep(ms(1));
    }
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut output = Output {
        status: status.expect("the program does not end"),
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    let read = |from: Option<&mut dyn Read>, to: &mut Vec<u8>| {
        from.map(|from| from.read_to_end(to).unwrap());
    };
    read(child.stdout.as_mut().map(|s| s as _), &mut output.stdout);
    read(child.stderr.as_mut().map(|s| s as _), &mut output.stderr);
    output
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
        std::fs::create_dir_all(dir.join("below")).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn hash_tree_hashes_every_file() {
    let dir = Dir::new();
    // The check value of this checksum, as published with its definition.
    std::fs::write(dir.0.join("below/check"), "123456789").unwrap();
    std::fs::write(dir.0.join("empty"), "").unwrap();
    for n in 0..500 {
        std::fs::write(dir.0.join(format!("below/z{n:03}")), "123456789").unwrap();
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
        let file = std::fs::File::create(dir.0.join(format!("{n}"))).unwrap();
        file.set_len(1 << 40).unwrap(); // sparse, so it takes no space
    }
    let mut child = (program("hash_tree").arg(&dir.0))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C stops"), "{said}");
    let id = i32::try_from(child.id()).unwrap();
    // SAFETY: `kill` takes no pointers. The child has not been waited for, so its number still
    // belongs to it.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    let output = output(&mut child);
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
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
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
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}
