//! Worker processes with a small service manager, for the demo, the tests and the measurements.

use crate::server;
use std::{
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    environment: Vec<(String, String)>,
    children: Mutex<Vec<Child>>,
    ended: Mutex<Vec<String>>,
    stop: AtomicBool,
}

/// Worker processes. One that ends is started again, until the fleet is stopped. Dropped, it kills them.
#[derive(Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    manager: Option<JoinHandle<()>>,
}

impl Shared {
    fn spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.arg("work").stdin(Stdio::piped());
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        // It ends when its standard input is closed, also if this process was killed.
        command.envs(environment).env(END_WITH_STDIN, "1").spawn()
    }
}

/// If this variable is set, a worker ends when its standard input is closed.
pub const END_WITH_STDIN: &str = "END_WITH_STDIN";

impl Fleet {
    /// Starts `count` processes `program work` with these variables.
    pub fn start(program: &Path, count: usize, environment: &[(&str, &str)]) -> io::Result<Self> {
        let shared = Shared {
            program: program.into(),
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            children: Mutex::default(),
            ended: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        for _ in 0..count {
            shared
                .children
                .lock()
                .expect("no panic")
                .push(shared.spawn()?);
        }
        let shared = Arc::new(shared);
        let managed = shared.clone();
        let manager = thread::spawn(move || {
            loop {
                // Release and Acquire are not needed: the lock below orders the rest.
                let stop = managed.stop.load(Ordering::Relaxed);
                let mut children = managed.children.lock().expect("no panic");
                let mut running = 0;
                for child in &mut *children {
                    match child.try_wait() {
                        Ok(Some(status)) if !stop => {
                            managed
                                .ended
                                .lock()
                                .expect("no panic")
                                .push(status.to_string());
                            *child = managed.spawn().expect("a process");
                            running += 1;
                        }
                        Ok(Some(_)) | Err(_) => {}
                        Ok(None) => running += 1,
                    }
                }
                drop(children);
                if stop && running == 0 {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        Ok(Fleet {
            shared,
            manager: Some(manager),
        })
    }

    /// Returns the numbers of the processes.
    pub fn processes(&self) -> Vec<String> {
        self.shared
            .children
            .lock()
            .expect("no panic")
            .iter()
            .map(|child| child.id().to_string())
            .collect()
    }

    /// Sends a signal to the process at this place.
    pub fn send(&self, index: usize, signal: &str) -> io::Result<()> {
        server::send(signal, &self.processes()[index])
    }

    /// Returns how processes have ended that were not asked to.
    pub fn ended(&self) -> Vec<String> {
        self.shared.ended.lock().expect("no panic").clone()
    }

    /// Asks all processes to end. Returns how they did, and how long that took.
    pub fn stop(mut self) -> io::Result<(Vec<String>, Duration)> {
        let start = Instant::now();
        self.shared.stop.store(true, Ordering::Relaxed); // see the manager
        for process in self.processes() {
            let _ = server::send("TERM", &process); // it may just have ended
        }
        self.manager
            .take()
            .expect("until here")
            .join()
            .expect("no panic");
        let mut children = self.shared.children.lock().expect("no panic");
        let ended: io::Result<_> = children
            .iter_mut()
            .map(|child| Ok(child.wait()?.to_string()))
            .collect();
        Ok((ended?, start.elapsed()))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let Some(manager) = self.manager.take() else {
            return;
        };
        self.shared.stop.store(true, Ordering::Relaxed); // see the manager
        for child in &mut *self.shared.children.lock().expect("no panic") {
            let _ = child.kill();
        }
        let _ = manager.join();
    }
}
