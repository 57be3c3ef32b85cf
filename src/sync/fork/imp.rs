//! Where there is no `fork`, or none that says so; and in models.

use super::{AtomicU64, Marking};
use std::marker::PhantomData;

pub(crate) fn watch() {}

pub(crate) fn mark_in_child(_: &AtomicU64) -> Marking<'_> {
    Marking(PhantomData)
}

#[inline(always)]
pub(crate) fn generation() -> u64 {
    0
}
