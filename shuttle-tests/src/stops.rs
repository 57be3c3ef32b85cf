//! User code that does not return, and the number of steps that a thread takes.

use crate::{Meeting, Rig};
use lazypool::model::{judge_by, peek};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// The first thread that comes here stops, until the scenario lets it go. It takes no step
/// meanwhile: if another thread waits for it, that is a deadlock, or goes on for too many steps.
#[derive(Debug, Clone)]
pub struct Stop(Arc<Stops>);

#[derive(Debug)]
struct Stops {
    has_stopped: AtomicBool,
    go: Arc<Meeting>,
}

impl Stop {
    /// Returns a new place, where no thread has stopped yet.
    pub fn new() -> Self {
        Self(Arc::new(Stops {
            has_stopped: AtomicBool::new(false),
            go: Meeting::of(1),
        }))
    }

    /// Stops this thread, unless another one has stopped here before.
    pub fn here(&self) {
        if !self.0.has_stopped.swap(true, Ordering::SeqCst) {
            self.0.go.wait();
        }
    }

    /// Returns `true` once a thread has stopped here.
    pub fn has_stopped(&self) -> bool {
        self.0.has_stopped.load(Ordering::SeqCst)
    }

    /// Lets the thread go on. No thread stops here any more.
    pub fn go(&self) {
        self.0.has_stopped.store(true, Ordering::SeqCst);
        self.0.go.arrive();
    }

    /// Returns a waker that stops here.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::new(StopsAsWoken(self.clone())))
    }

    /// Returns a value whose drop stops here.
    pub fn value(&self) -> StopsAsDropped {
        StopsAsDropped(self.clone())
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

struct StopsAsWoken(Stop);

impl Wake for StopsAsWoken {
    fn wake(self: Arc<Self>) {
        self.0.here();
    }
}

/// A value whose drop stops.
#[derive(Debug)]
pub struct StopsAsDropped(Stop);

impl Drop for StopsAsDropped {
    fn drop(&mut self) {
        self.0.here();
    }
}

impl Rig {
    /// Waits until at most `left` accepted tasks have not ended and no submission waits in line.
    pub fn wait_until_left(&self, left: u64) {
        crate::wait_until(|| {
            let stats = peek(|| self.pool.stats());
            stats.is_some_and(|s| {
                let ended = s.completed + s.panicked + s.expired + s.discarded;
                s.accepted <= ended + left && s.waiting == 0
            })
        });
    }
}

thread_local! {
    /// The numbers of steps so far, by thread of the execution.
    static STEPS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn me() -> usize {
    shuttle::current::get_current_task().map_or(0, usize::from)
}

/// Counts the steps of each thread from now on.
pub fn count_steps() {
    STEPS.take();
    judge_by(Box::new(|| {
        STEPS.with_borrow_mut(|steps| {
            let me = me();
            let threads = steps.len().max(me + 1);
            steps.resize(threads, 0);
            steps[me] += 1;
        });
    }));
}

/// Returns the number of steps that this thread takes in `f`, and the result of `f`.
pub fn steps_of<R>(f: impl FnOnce() -> R) -> (u64, R) {
    let own = || STEPS.with_borrow(|steps| steps.get(me()).copied().unwrap_or(0));
    let before = own();
    let result = f();
    (own() - before, result)
}
