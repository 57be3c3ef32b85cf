//! Whether this process is a child, made by `fork`, of the one that built a pool.
//!
//! A child has the memory of its parent and one thread, the one that called `fork`. A number
//! that grows in each child tells them apart: a pool notes it where it is built, and compares.
//! A worker, which does not compare after each task, finds a bit set in a word that it reads.

use super::AtomicU64;
use std::marker::PhantomData;

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
