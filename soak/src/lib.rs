//! The part of the soak that the fuzz targets use, too: the number of threads, and an OS that
//! refuses threads. Linux only.

pub mod os;
pub mod spawn;
