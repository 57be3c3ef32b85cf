//! Whether this process is a child, made by `fork`, of the one that built a pool.
//!
//! A child has the memory of its parent and one thread, the one that called `fork`. A number
//! that grows in each child tells them apart: a pool notes it where it is built, and compares.

/// What the number grows by: it leaves the lower half of a word to others.
pub(crate) const STEP: u64 = 1 << 32;

// The one list of the systems that have `fork` and say so: there `fork/posix.rs`, elsewhere
// and in models `fork/imp.rs`.
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
pub(crate) use imp::{end_child, generation, watch};
