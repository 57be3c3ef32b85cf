//! For systems that have no `fork`, or do not report it, and for models: no process is a child.

pub(crate) fn watch() {}

#[cold]
pub(crate) fn end_child() -> ! {
    unreachable!("there are no children")
}

#[inline(always)]
pub(crate) fn generation() -> u64 {
    0
}

#[cfg(all(test, not(any(lazypool_loom, lazypool_shuttle))))]
pub(crate) fn generation_address() -> usize {
    0
}
