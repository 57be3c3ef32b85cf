//! The programs of `examples/`, each as a process.
//!
//! `cargo test` builds the examples. `cargo test --test NAME` alone does not: then a test runs the
//! program of an earlier build, or fails and asks for a build.

use std::process::{Child, Command, ExitStatus, Stdio};

use super::wait_until;

pub fn program(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let built = tests.parent().and_then(|deps| deps.parent()).unwrap();
    let program = built.join("examples").join(name);
    assert!(
        program.exists(),
        "build it first: cargo build --example {name}"
    );
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that is killed when this is dropped, unless it has ended.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: i32) {
        let id = i32::try_from(self.0.id()).unwrap();
        // SAFETY: `kill` takes no pointers. The child has not been waited for, so its number still
        // belongs to it.
        assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    }

    /// Waits until the process ends.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the program to end", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
