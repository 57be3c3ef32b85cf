//! A thread of the pool: its start, and whether it has come to its end.

use crate::sync::{catch_unwind, thread};
use crate::work::panics::drop_payload;
use std::io;
use std::panic::AssertUnwindSafe;

/// Starts a thread. The system may take its time: not under a lock.
pub(super) fn start(
    name: String,
    stack_size: Option<usize>,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<Handle> {
    let mut builder = thread::Builder::new().name(name);
    if let Some(bytes) = stack_size {
        builder = builder.stack_size(bytes);
    }
    let end = End::default();
    let its_end = end.clone();
    let start = || {
        builder.spawn(move || {
            its_end.watch();
            main();
        })
    };
    // The standard library may panic instead, as for a stack size that the system refuses.
    let started = catch_unwind(AssertUnwindSafe(start)).unwrap_or_else(|payload| {
        drop_payload(payload);
        Err(io::Error::other("the start of a thread panicked"))
    });
    started.map(|thread| Handle { thread, end })
}

#[derive(Debug)]
pub(crate) struct Handle {
    thread: thread::JoinHandle<()>,
    end: End,
}

impl Handle {
    pub(crate) fn thread(&self) -> &thread::Thread {
        self.thread.thread()
    }

    /// Whether it has run its thread-local destructors, too: to join it takes no time.
    pub(super) fn is_over(&self) -> bool {
        self.end.has_come(&self.thread)
    }

    pub(super) fn join(self) {
        // The panics of a thread of the pool are contained; there is nothing to report.
        let _ = self.thread.join();
    }
}

#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
use real::End;

#[cfg(not(any(lazypool_loom, lazypool_shuttle)))]
mod real {
    use crate::sync::{thread, thread_local, Arc, AtomicBool, Ordering};
    use std::cell::RefCell;

    /// A thread's end, which a thread-local value tells as it is dropped. The first one made: the
    /// standard library drops the others before it. `JoinHandle::is_finished` tells only that the
    /// destructors, which may take their time, are about to run.
    #[derive(Clone, Debug)]
    pub(super) struct End(Arc<AtomicBool>);

    impl Default for End {
        fn default() -> Self {
            Self(Arc::new(AtomicBool::new(false)))
        }
    }

    thread_local! {
        static OWN: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }

    struct AtEnd(End);

    impl Drop for AtEnd {
        fn drop(&mut self) {
            // Relaxed: a hint; who joins the thread waits for all it has done.
            self.0 .0.store(true, Ordering::Relaxed);
        }
    }

    impl End {
        /// On the thread itself, before any code of the user's.
        pub(super) fn watch(self) {
            OWN.set(Some(AtEnd(self)));
        }

        pub(super) fn has_come(&self, _: &thread::JoinHandle<()>) -> bool {
            // Relaxed: as above.
            self.0.load(Ordering::Relaxed)
        }
    }
}

/// No destructors that take their time in models.
#[cfg(any(lazypool_loom, lazypool_shuttle))]
#[derive(Clone, Debug, Default)]
struct End;

#[cfg(any(lazypool_loom, lazypool_shuttle))]
impl End {
    fn watch(self) {}

    fn has_come(&self, thread: &thread::JoinHandle<()>) -> bool {
        thread.is_finished()
    }
}
