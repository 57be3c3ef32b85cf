//! Used where the crate does not detect a `fork`: on systems that do not have `fork` or do not
//! report it, in models, and under Miri. No process counts as a child.

pub(crate) fn watch() {}

#[cold]
pub(crate) fn end_child() -> ! {
    unreachable!("there are no children")
}

#[inline(always)]
pub(crate) fn generation() -> u64 {
    0
}

pub(crate) fn this_thread() -> usize {
    0
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn generation_address() -> usize {
    0
}
