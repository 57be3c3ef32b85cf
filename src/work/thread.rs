//! The threads of a pool: started, and joined.
//!
//! A thread that ends puts itself on its pool's list. Its last thread-local destructor joins those on the
//! list whose own last one has run, and says so of itself: both under the list's lock, so that of two
//! threads one joins the other. So no destructor of a task's waits for another thread, and no more than
//! one thread is left on the list whose destructors are over. Only what C keeps for a thread
//! (`pthread_key_create`) may go later: a join waits for that.

use crate::sync::{fork, lock, thread, Arc, Mutex};
use crate::work::panics::contain;
use std::io;
use std::mem;

/// Threads past their last step, to be joined.
pub(crate) type EndedThreads = Arc<Mutex<Vec<Thread>>>;

/// A thread of the pool.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: thread::JoinHandle<()>,
    /// Shared until its [`Last`] has been dropped.
    alive: Arc<()>,
}

/// A thread's first thread-local value, which systems drop last.
struct Last {
    alive: Arc<()>,
    ended: EndedThreads,
    /// The [`fork::generation`] that it is of.
    generation: u64,
}

#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
std::thread_local! {
    static LAST: std::cell::Cell<Option<Last>> = const { std::cell::Cell::new(None) };
}

impl Drop for Last {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // A child made by a task has ended: the others are its parent's.
            return;
        }
        let mut ended = lock(&self.ended);
        let is_gone = |thread: &Thread| Arc::strong_count(&thread.alive) == 1;
        let (gone, others) = mem::take(&mut *ended).into_iter().partition(is_gone);
        *ended = others;
        self.alive = Arc::default();
        drop(ended);
        join(gone);
    }
}

impl Thread {
    pub(crate) fn handle(&self) -> &thread::Thread {
        self.handle.thread()
    }

    pub(crate) fn unpark(&self) {
        self.handle().unpark();
    }
}

/// Starts a thread. The OS may take its time: not under a lock.
pub(crate) fn start(
    name: String,
    stack_size: Option<usize>,
    ended: EndedThreads,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    let mut builder = thread::Builder::new().name(name);
    if let Some(bytes) = stack_size {
        builder = builder.stack_size(bytes);
    }
    let alive = Arc::default();
    let own = Arc::clone(&alive);
    let main = move || {
        let last = Last {
            alive: own,
            ended,
            generation: fork::generation(),
        };
        #[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
        LAST.set(Some(last));
        main();
        #[cfg(any(lazypool_loom, lazypool_shuttle))]
        drop(last);
    };
    // The standard library may panic instead, as for a stack size that the OS refuses.
    let mut started = Err(io::Error::other("the start of a thread panicked"));
    contain(|| started = builder.spawn(main));
    Ok(Thread {
        handle: started?,
        alive,
    })
}

/// Joins threads past their last step.
pub(crate) fn join(ended: Vec<Thread>) {
    for thread in ended {
        // The panics of a thread of the pool are contained; there is nothing to report.
        let _ = thread.handle.join();
    }
}
