//! An allocator that counts, while it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator. Counting costs a shared read-modify-write, so it is
/// off wherever time is measured; then all that is left is a load of a word
/// that nobody writes.
pub(crate) struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

fn note(calls: u64, bytes: i64) {
    if ON.load(Relaxed) {
        CALLS.fetch_add(calls, Relaxed);
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(1, new_size as i64 - layout.size() as i64);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// Allocations of all threads since the start of counting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocated {
    pub(crate) calls: u64,
    /// Bytes allocated and not freed.
    pub(crate) live: i64,
}

/// Starts counting from zero.
pub(crate) fn start() {
    CALLS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    ON.store(true, Relaxed);
}

pub(crate) fn so_far() -> Allocated {
    Allocated {
        calls: CALLS.load(Relaxed),
        live: BYTES.load(Relaxed),
    }
}

pub(crate) fn stop() -> Allocated {
    ON.store(false, Relaxed);
    so_far()
}
