//! Decides how much of a test Miri or an emulator runs; no other place decides that. Miri interprets a
//! program, which is a thousand times slower. It finds faults by different seeds, not by repetition. An
//! emulator of a processor is twenty times slower.

#![allow(dead_code)] // each binary that includes this file uses part of it

/// Set by `.ci/platforms` if an emulator runs the tests.
const EMULATED: bool = option_env!("LAZYPOOL_EMULATED").is_some();
/// Set by `.ci/sanitize`.
const SANITIZED: bool = option_env!("LAZYPOOL_SANITIZED").is_some();

/// Returns `n`, a number of rounds or a size. Under Miri, returns one for each 300, at most 25; under an
/// emulator, one for each 30.
pub(crate) const fn cut(n: u64) -> u64 {
    if cfg!(miri) {
        let rounds = n.div_ceil(300);
        if rounds < 25 {
            rounds
        } else {
            25
        }
    } else if EMULATED {
        n.div_ceil(30)
    } else {
        n
    }
}

/// Returns a time limit for something that must end. Miri's clock does not measure time: it
/// advances by five microseconds for each basic block that has run, so the limit is longer there. So it is
/// under an emulator and under a sanitizer.
pub(crate) const fn limit(secs: u64) -> std::time::Duration {
    std::time::Duration::from_secs(if cfg!(miri) {
        100 * secs
    } else if EMULATED || SANITIZED {
        10 * secs
    } else {
        secs
    })
}
