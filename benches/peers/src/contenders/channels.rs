//! A channel of boxed closures and some threads: what one writes without a pool.

use super::{Called, Contender, Shape};
use std::fmt;
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Boxed = Box<dyn FnOnce() + Send + 'static>;

/// crossbeam-channel and threads.
pub(crate) struct Crossbeam {
    jobs: Option<crossbeam_channel::Sender<Boxed>>,
    threads: Vec<JoinHandle<()>>,
}

/// parkring's channel and threads.
pub(crate) struct Parkring {
    jobs: Option<parkring::channel::Sender<Boxed>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Crossbeam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crossbeam").finish_non_exhaustive()
    }
}

impl fmt::Debug for Parkring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parkring").finish_non_exhaustive()
    }
}

macro_rules! start_and_stop {
    ($name:ident, $bounded:path, $zero:literal) => {
        impl $name {
            fn start(shape: Shape) -> Self {
                let (jobs, work) = $bounded(shape.queue.max($zero));
                let run = || {
                    let work = work.clone();
                    thread::spawn(move || {
                        while let Ok(job) = work.recv() {
                            let job: Boxed = job;
                            job();
                        }
                    })
                };
                Self {
                    threads: (0..shape.workers).map(|_| run()).collect(),
                    jobs: Some(jobs),
                }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                self.jobs = None;
                for thread in self.threads.drain(..) {
                    thread.join().expect("tasks do not panic");
                }
            }
        }
    };
}

start_and_stop!(Crossbeam, crossbeam_channel::bounded, 0);
start_and_stop!(Parkring, parkring::channel::bounded, 1);

impl Contender for Crossbeam {
    const NAME: &'static str = "crossbeam-channel";
    const BOUNDED: bool = true;
    const UNQUEUED: bool = true;
    const DEADLINE: bool = true;

    fn build(shape: Shape) -> Self {
        Self::start(shape)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("open until dropped");
        jobs.send(Box::new(f)).expect("threads live");
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        let jobs = self.jobs.as_ref().expect("open until dropped");
        jobs.try_send(Box::new(f)).is_ok()
    }
}

impl Contender for Parkring {
    const NAME: &'static str = "parkring channel";
    const BOUNDED: bool = true;
    const DEADLINE: bool = true;

    fn build(shape: Shape) -> Self {
        Self::start(shape)
    }

    fn execute(&self, f: impl FnOnce() + Send + 'static) {
        let jobs = self.jobs.as_ref().expect("open until dropped");
        assert!(jobs.send(Box::new(f)).is_ok(), "threads live");
    }

    fn try_execute(&self, f: impl FnOnce() + Send + 'static) -> bool {
        let jobs = self.jobs.as_ref().expect("open until dropped");
        jobs.try_send(Box::new(f)).is_ok()
    }

    /// With a reply channel of its own kind.
    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        let (tx, rx) = parkring::channel::bounded(1);
        self.execute(move || drop(tx.send(f())));
        rx.recv_timeout(limit).ok()
    }

    fn try_call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Called<R> {
        let (tx, rx) = parkring::channel::bounded(1);
        if self.try_execute(move || drop(tx.send(f()))) {
            Called::of(rx.recv_timeout(limit).ok())
        } else {
            Called::Refused
        }
    }
}
