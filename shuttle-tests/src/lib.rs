//! Helpers that the scenarios share. This crate is empty without `--cfg lazypool_shuttle`; run
//! `cargo shuttle`.

#[cfg(not(lazypool_shuttle))]
const _: () = assert!(
    option_env!("LAZYPOOL_SHUTTLE").is_none(),
    "`cargo shuttle` without `--cfg lazypool_shuttle`: unset RUSTFLAGS, which replaced it"
);

#[cfg(lazypool_shuttle)]
mod calls;
#[cfg(lazypool_shuttle)]
mod ledger;
#[cfg(lazypool_shuttle)]
mod look;
#[cfg(lazypool_shuttle)]
mod rig;
#[cfg(lazypool_shuttle)]
mod run;
#[cfg(lazypool_shuttle)]
mod stops;
#[cfg(lazypool_shuttle)]
mod team;
#[cfg(lazypool_shuttle)]
mod waits;

#[cfg(lazypool_shuttle)]
pub use {
    calls::*, ledger::Ledger, ledger::Ticket, rig::*, run::*, stops::*, team::Team, waits::*,
};
