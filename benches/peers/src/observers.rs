//! What the pool reports to while its instructions are counted, if a feature of this package
//! says so: `recorder`, `subscriber`, or `span`, where the submitter is in a span, too.

/// Installs it; to be held while submitting.
pub(crate) fn install() -> impl Sized {
    #[cfg(feature = "recorder")]
    metrics::set_global_recorder(recorder::Adding).expect("installed once");
    #[cfg(feature = "subscriber")]
    tracing::subscriber::set_global_default(tracing_subscriber::registry())
        .expect("installed once");
    #[cfg(feature = "span")]
    return tracing::info_span!("submitter").entered();
}

#[cfg(feature = "recorder")]
mod recorder {
    use metrics::{
        Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    /// Takes samples alone, each with an atomic addition.
    #[derive(Debug)]
    pub(super) struct Adding;

    struct Sum(AtomicU64);

    impl HistogramFn for Sum {
        fn record(&self, value: f64) {
            // Relaxed: a sum.
            self.0.fetch_add((value * 1e9) as u64, Ordering::Relaxed);
        }
    }

    impl Recorder for Adding {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Sum(AtomicU64::new(0))))
        }
    }
}
