//! The histograms that a pool keeps for recorders of the `metrics` crate.

use crate::sync::panics::drop_contained;
use metrics::{Histogram, Key, Label, Level, Metadata, Recorder};
use std::sync::OnceLock;

pub(crate) const DELAY: &str = "lazypool_task_start_delay_seconds";
pub(crate) const DURATION: &str = "lazypool_task_duration_seconds";

/// The histograms of one label in one recorder.
struct Histograms {
    /// The address of the recorder that the histograms belong to. A recorder that is installed
    /// later has a different address.
    recorder: usize,
    label: Option<&'static str>,
    delay: Histogram,
    duration: Histogram,
}

impl Histograms {
    #[cold]
    fn register(recorder: &dyn Recorder, pool: &str, label: Option<&'static str>) -> Self {
        let metadata = Metadata::new("lazypool", Level::INFO, Some(module_path!()));
        let mut labels = vec![Label::new("pool", pool.to_owned())];
        labels.extend(label.map(|l| Label::from_static_parts("label", l)));
        let histogram =
            |name| recorder.register_histogram(&Key::from_parts(name, labels.clone()), &metadata);
        Self {
            recorder: address(recorder),
            label,
            delay: histogram(DELAY),
            duration: histogram(DURATION),
        }
    }

    /// Records the delay and the duration of a task. The instants are in nanoseconds.
    fn record(&self, [submitted, started, ended]: [u64; 3]) {
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
        self.delay.record(seconds(submitted, started));
        self.duration.record(seconds(started, ended));
    }
}

fn address(recorder: &dyn Recorder) -> usize {
    std::ptr::from_ref(recorder).cast::<()>().addr()
}

/// A pool's histograms by recorder and label. They are kept because a lookup in a recorder takes
/// longer than many tasks do. Places are filled from the front, and read without a lock.
pub(crate) struct Series([OnceLock<Histograms>; KEPT]);

/// The highest number of pairs of a recorder and a label that are kept. There is a limit because a
/// program may make up labels as it runs. Any other pair is looked up at each task.
const KEPT: usize = 64;

impl Series {
    pub(crate) fn new() -> Self {
        Self([const { OnceLock::new() }; KEPT])
    }

    /// Records a task that has ended. The instants are in nanoseconds. Calls a recorder, which is
    /// user code.
    pub(crate) fn record(&self, pool: &str, label: Option<&'static str>, times: [u64; 3]) {
        metrics::with_recorder(|recorder| {
            let register = || Histograms::register(recorder, pool, label);
            for place in &self.0 {
                // `get_or_init` is not used, because the recorder is user code. If it waited for
                // another task, that task's worker could come to the same place, and wait for this
                // initialization. Both workers would then wait for ever.
                if place.get().is_none() {
                    // Another worker may have filled the place first, for another label.
                    let _ = place.set(register());
                }
                let kept = place.get().expect("set");
                if kept.recorder == address(recorder) && kept.label == label {
                    return kept.record(times);
                }
            }
            register().record(times);
        });
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        for kept in &mut self.0 {
            drop_contained(kept.take());
        }
    }
}
