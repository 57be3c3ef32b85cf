//! Used on systems that have `fork` and report it through `pthread_atfork`.

use crate::sync::PlainU64;
use crossbeam_utils::CachePadded;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The generation. Every submission reads it, so no other static of the program may share its cache
/// line.
static GENERATION: CachePadded<PlainU64> = CachePadded::new(PlainU64::new(0));

type Handler = Option<extern "C" fn()>;

extern "C" {
    // These functions are from POSIX. They are declared here because the crate needs nothing else
    // from `libc`.
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    fn _exit(status: c_int) -> !;
    // The type of the result differs. It is a number or a pointer, and no larger than this.
    fn pthread_self() -> usize;
}

/// Runs in the child. The child of a process with several threads may only do what a signal handler
/// may do. An addition to an atomic, the only step here, is allowed.
extern "C" fn in_child() {
    // Relaxed: the child has one thread.
    GENERATION.fetch_add(super::STEP, Ordering::Relaxed);
}

/// Registers the handler before `main`. A child runs its handlers in the order of their
/// registration. So handlers of the program find that the generation has grown, unless a
/// constructor of the program has registered a handler before this one.
// SAFETY: the system calls the functions in this section, with C's calling convention, as it loads
// the program.
#[used]
#[cfg_attr(target_vendor = "apple", link_section = "__DATA,__mod_init_func")]
#[cfg_attr(not(target_vendor = "apple"), link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        watch();
    }
    before_main
};

/// Makes the generation grow in each child from now on.
pub(crate) fn watch() {
    // This is a flag and not a `Once`. If the process forks while another thread is in a `Once`,
    // the `Once` stays half done in the child forever. If two threads come here at the same time,
    // they register two handlers. Then the generation grows by two steps in each child, which does
    // no harm.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // ORDERING: M1: acquires that the handler is registered.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler lives as long as the program, and does only what a signal handler may.
    // The declaration above is that of POSIX.
    let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
    // The call fails if memory is short. Then the next pool tries again. If the system has not
    // called `before_main`, the first pool registers the handler.
    // ORDERING: M1: releases the registration.
    WATCHED.store(failed == 0, Ordering::Release);
}

/// Ends this process, which is a forked child. User code on a worker called `fork` and has returned
/// in the child. No other code of the parent may run here.
#[cold]
pub(crate) fn end_child() -> ! {
    // SAFETY: the call ends the process, and runs no code of the parent. The declaration above is
    // that of POSIX.
    unsafe { _exit(0) }
}

/// Returns the number by which a debugger names this thread.
pub(crate) fn this_thread() -> usize {
    // SAFETY: the call reads a register, and cannot fail.
    unsafe { pthread_self() }
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn generation_address() -> usize {
    std::ptr::from_ref(&GENERATION).addr()
}

/// Returns the generation, which is in the upper half of the word.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // Relaxed: the generation changes only in a new child, before the child has a second thread.
    GENERATION.load(Ordering::Relaxed)
}
