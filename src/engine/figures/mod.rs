//! The figures that a pool reports about itself. Readers of figures take no lock that a submission or
//! a worker needs.

pub(crate) mod ages;
pub(crate) mod counts;
mod findings;
mod inside;
pub(crate) mod snapshot;
