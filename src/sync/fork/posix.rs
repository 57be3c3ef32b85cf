//! Where there is `fork`, and a system that says so.

use super::{AtomicU64 as Word, Marking};
use crate::sync::PlainU64;
use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of a word's lower half.
const FORKED: u64 = 1 << 31;

static GENERATION: PlainU64 = PlainU64::new(0);

thread_local! {
    static WORD: Cell<*const Word> = const { Cell::new(ptr::null()) };
}

type Handler = Option<extern "C" fn()>;

extern "C" {
    // POSIX. Declared here, as the library needs nothing else of the `libc` crate.
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// Runs in the child. It does no more than two steps on atomics: a signal handler may do that,
/// and so may the child of a process with many threads. Relaxed: the child has one thread.
extern "C" fn in_child() {
    GENERATION.fetch_add(super::STEP, Ordering::Relaxed);
    // SAFETY: `WORD` is null, or borrowed by a `Marking` of this thread: `mark_in_child` sets it,
    // and the drop of the `Marking` clears it.
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
    // ORDERING: F1: the handler is registered before this returns.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the handler is a function for the life of the program that does what a
    // signal handler may. Declared as POSIX has it.
    let failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
    // Out of memory: the next pool tries again.
    // ORDERING: F1: after the registration.
    WATCHED.store(failed == 0, Ordering::Release);
}

/// The number, in the upper half of a word.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // Relaxed: it changes only where there is one thread.
    GENERATION.load(Ordering::Relaxed)
}
