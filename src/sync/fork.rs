//! Whether this process is a child, made by `fork`, of the one that built a pool.
//!
//! A child has the memory of its parent and one thread, the one that called `fork`. A number
//! that grows in each child tells them apart: a pool notes it where it is built, and compares.
//! A worker, which does not compare after each task, finds a bit set in a word that it reads.

use super::AtomicU64;
use std::marker::PhantomData;

/// What the number grows by: it leaves the lower half of a word to others.
pub(crate) const STEP: u64 = 1 << 32;

#[cfg(all(
    any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly",
        target_os = "illumos",
        target_os = "solaris",
        target_vendor = "apple",
    ),
    not(any(lazypool_loom, lazypool_shuttle, miri))
))]
mod imp {
    use super::{AtomicU64 as Word, Marking};
    use std::cell::Cell;
    use std::ffi::c_int;
    use std::marker::PhantomData;
    use std::ptr;

    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Of a word's lower half.
    const FORKED: u64 = 1 << 31;

    static GENERATION: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static WORD: Cell<*const Word> = const { Cell::new(ptr::null()) };
    }

    type Handler = Option<unsafe extern "C" fn()>;

    extern "C" {
        // POSIX. Declared here, as the library needs nothing else of the `libc` crate.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    /// Two steps on atomics are all that happens there: safe in a signal handler, and so
    /// after a fork of a process with many threads. Relaxed: it is the only thread.
    unsafe extern "C" fn in_child() {
        GENERATION.fetch_add(super::STEP, Ordering::Relaxed);
        // SAFETY: null, or borrowed by this thread's `Marking`.
        if let Some(word) = unsafe { WORD.get().as_ref() } {
            word.fetch_or(FORKED, Ordering::Relaxed);
        }
    }

    pub(crate) fn mark_in_child(word: &Word) -> Marking<'_> {
        WORD.set(word);
        Marking(PhantomData)
    }

    impl Drop for Marking<'_> {
        fn drop(&mut self) {
            WORD.set(ptr::null());
        }
    }

    /// From now on the number grows in each child.
    pub(crate) fn watch() {
        // No `Once`: a fork while another thread is in it would leave it so in the child for
        // ever. Two threads that come at once register two handlers, and the number grows
        // twice as fast, which does no harm.
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if WATCHED.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the handler is a function for the life of the program that does what a
        // signal handler may. Declared as POSIX has it.
        let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
        // Out of memory: the next pool tries again.
        WATCHED.store(failed == 0, Ordering::Release);
    }

    /// The number, in the upper half of a word.
    #[inline(always)]
    pub(crate) fn generation() -> u64 {
        // Relaxed: it changes only where there is one thread.
        GENERATION.load(Ordering::Relaxed)
    }
}

/// No `fork` there, or none that says so; and none in models.
#[cfg(not(all(
    any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly",
        target_os = "illumos",
        target_os = "solaris",
        target_vendor = "apple",
    ),
    not(any(lazypool_loom, lazypool_shuttle, miri))
)))]
mod imp {
    pub(crate) fn watch() {}

    pub(crate) fn mark_in_child(_: &crate::sync::AtomicU64) -> super::Marking<'_> {
        super::Marking(std::marker::PhantomData)
    }

    #[inline(always)]
    pub(crate) fn generation() -> u64 {
        0
    }
}

pub(crate) use imp::{generation, mark_in_child, watch};

/// As long as it lives, a child that this thread makes finds a high bit of the lower half set in the word.
#[derive(Debug)]
#[must_use]
pub(crate) struct Marking<'a>(PhantomData<&'a AtomicU64>);

/// Ends this thread, which in a child runs code of its parent's pool, as if its main function
/// had panicked without a message.
#[cold]
pub(crate) fn end_thread() -> ! {
    std::panic::resume_unwind(Box::new(()))
}
