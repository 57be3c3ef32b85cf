//! The one place that decides how much of a test Miri runs. It interprets: a thousand times
//! slower, and what it looks for it finds by its seeds, not by repetition.

#![allow(dead_code)] // each of those who include it uses part of it

/// So many rounds of something, or so much of it; under Miri one for each three hundred, 25 at most.
pub(crate) const fn cut(n: u64) -> u64 {
    if cfg!(miri) {
        let rounds = n.div_ceil(300);
        if rounds < 25 {
            rounds
        } else {
            25
        }
    } else {
        n
    }
}

/// A limit for what must end some time. Miri's clock is no clock: it counts the blocks of code
/// that it has run, five microseconds each.
pub(crate) const fn limit(secs: u64) -> std::time::Duration {
    std::time::Duration::from_secs(if cfg!(miri) { 100 * secs } else { secs })
}
