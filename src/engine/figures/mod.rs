#![doc = include_str!("room.md")]

pub(crate) mod ages;
pub(crate) mod counts;
mod findings;
mod inside;
pub(crate) mod snapshot;

use crate::parts::slot::Slot;
use crate::work::job::Task;
use crate::work::record::{Record, Tally};

/// Returns the counts of a slot.
pub(crate) fn tally_of(slot: &Slot<Task, Record>) -> Tally {
    slot.record.tally(|| slot.load().generation())
}
