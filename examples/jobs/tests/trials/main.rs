//! Trials against a real PostgreSQL server, which each of them starts: kills, stops, outages, bad
//! input. The law of all of them: what was accepted is done once, or dead with its reason.
//!
//! They wait for conditions. A limit only ends a trial that has failed.

mod bed;
mod commands;
mod crash;
mod input;
mod keys;
mod outage;
mod stop;
mod versions;
