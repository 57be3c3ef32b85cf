//! Detects whether this process is a child that `fork` made of the process that built a pool.
//!
//! A child has the memory of its parent, and only the thread that called `fork`. A number, the
//! *generation*, grows in each child. A pool stores the generation when it is built, and compares
//! it later.

/// The step by which the generation grows in a child. The lower half of the word has other uses.
pub(crate) const STEP: u64 = 1 << 32;

// Only this list names the systems that have `fork` and report it. They use `fork/posix.rs`. Other
// systems, and models, use `fork/imp.rs`.
#[cfg_attr(
    all(
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
    ),
    path = "fork/posix.rs"
)]
mod imp;

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) use imp::generation_address;
pub(crate) use imp::{end_child, generation, this_thread, watch};
