//! What the benches share.

use criterion::Criterion;
use std::time::Duration;

/// Short enough that all of them take about a minute.
pub(crate) fn short() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30)
}
