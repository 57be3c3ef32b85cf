//! The system's allocator, watched: for the test binaries that include this file.

use std::alloc::{GlobalAlloc, Layout, System};

/// Calls `allocates` or `frees` with the size of a block before it is allocated or freed.
pub(crate) struct Watched {
    pub(crate) allocates: fn(usize),
    pub(crate) frees: fn(usize),
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.allocates)(layout.size());
        // SAFETY: the caller upholds the conditions of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        (self.frees)(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}
