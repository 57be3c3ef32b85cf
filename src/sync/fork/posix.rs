//! Where there is `fork`, and a system that says so.

use crate::sync::PlainU64;
use crossbeam_utils::CachePadded;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// Every submission reads it, so no other static of the program may share its cache line.
static GENERATION: CachePadded<PlainU64> = CachePadded::new(PlainU64::new(0));

type Handler = Option<extern "C" fn()>;

extern "C" {
    // POSIX. Declared here, as the library needs nothing else of the `libc` crate.
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    fn _exit(status: c_int) -> !;
}

/// Runs in the child. It does no more than a step on an atomic: a signal handler may do that,
/// and so may the child of a process with many threads.
extern "C" fn in_child() {
    // Relaxed: the child has one thread.
    GENERATION.fetch_add(super::STEP, Ordering::Relaxed);
}

/// A child's handlers run in the order in which they were registered. This one is registered before
/// `main`, so that those of the program find that the number has grown; but for one that a constructor
/// of the program's has registered before this.
// SAFETY: a section of functions that the system calls with C's convention as it loads the program.
#[used]
#[cfg_attr(target_vendor = "apple", link_section = "__DATA,__mod_init_func")]
#[cfg_attr(not(target_vendor = "apple"), link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        watch();
    }
    before_main
};

/// From now on the number grows in each child.
pub(crate) fn watch() {
    // No `Once`: a fork while another thread is in it would leave it so in the child for
    // ever. Two threads that come at once register two handlers, and the number grows
    // twice as fast, which does no harm.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // ORDERING: M1: the handler is registered before this returns.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler is a function for the life of the program that does what a
    // signal handler may. Declared as POSIX has it.
    let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
    // Out of memory, or the system has not called `before_main`: the next pool tries again.
    // ORDERING: M1: after the registration.
    WATCHED.store(failed == 0, Ordering::Release);
}

/// A task made this child, and has returned in it: nothing of its parent runs on here.
#[cold]
pub(crate) fn end_child() -> ! {
    // SAFETY: ends the process, and runs nothing of its parent's. Declared as POSIX has it.
    unsafe { _exit(0) }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn generation_address() -> usize {
    std::ptr::from_ref(&GENERATION).addr()
}

/// The number, in the upper half of a word.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // Relaxed: it changes only where there is one thread.
    GENERATION.load(Ordering::Relaxed)
}
