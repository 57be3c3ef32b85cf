//! The threads of a pool: how they are started, and how they join each other.
//!
//! Each thread joins the threads of its pool that ended before it. So at most one ended thread is
//! left to be joined, however many workers come and go. This takes three steps:
//!
//! 1. A worker that leaves its slot puts its `Thread` on the pool's list of ended threads.
//! 2. In its last thread-local destructor, a thread removes from the list all threads that have
//!    marked themselves as gone. Then it marks itself as gone. It holds the list's lock for both.
//!    So two threads never join each other.
//! 3. The thread joins the threads that it has removed.
//!
//! Destructors of the tasks' thread-local values run before step 2. So none of them waits for a
//! join, and step 3 waits for none of them. Only thread-specific data of C code
//! (`pthread_key_create`) may be destroyed later. A join waits for that.

use crate::sync::panics::contain;
use crate::sync::{fork, lock, thread, Arc, Mutex};
use std::io;
use std::mem;

/// Threads whose workers have left their slots. They are still to be joined.
pub(crate) type EndedThreads = Arc<Mutex<Vec<Thread>>>;

/// A thread of the pool.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) handle: thread::JoinHandle<()>,
    /// Shared with the thread until its [`Last`] has been dropped.
    alive: Arc<()>,
}

/// The first thread-local value that a thread initializes. Platforms drop it last.
struct Last {
    alive: Arc<()>,
    ended: EndedThreads,
    /// The [`fork::generation`] of the process that started the thread.
    generation: u64,
}

#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
std::thread_local! {
    static LAST: std::cell::Cell<Option<Last>> = const { std::cell::Cell::new(None) };
}

impl Drop for Last {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            // This is a forked child, made by a task. The other threads exist only in its parent.
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

/// Starts a thread. The OS may take long, so no lock is held during this call.
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
    // The standard library may panic instead of returning an error, as it does for a stack size
    // that the OS refuses.
    let mut started = Err(io::Error::other("the start of a thread panicked"));
    contain(|| started = builder.spawn(main));
    Ok(Thread {
        handle: started?,
        alive,
    })
}

/// Joins threads whose workers have left their slots.
pub(crate) fn join(ended: Vec<Thread>) {
    for thread in ended {
        // Panics of the pool's threads are contained, so there is none to report.
        let _ = thread.handle.join();
    }
}
