//! The builder's settings: a setting that is refused is named in the error, and a pool that is
//! built works, down to the oddest durations.
#![no_main]

#[path = "../shared/threads.rs"]
mod threads;

use lazypool::{BuildError, DeadlineError, Pool, Refusal, Shutdown, WhenFull};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use threads::threads;

#[derive(Debug, Arbitrary)]
enum Number {
    Zero,
    Small(u8),
    Any(usize),
    Most,
}

impl Number {
    /// Returns the number. `limit` is the greatest one that the crate allows.
    fn get(&self, limit: usize) -> usize {
        match *self {
            Number::Zero => 0,
            Number::Small(n) => usize::from(n % 9),
            Number::Any(n) => n,
            Number::Most => limit,
        }
    }
}

#[derive(Debug, Arbitrary)]
enum Stack {
    Default,
    Small(u16),
    Absurd,
}

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    max: Option<Number>,
    min: Option<Number>,
    queue: Option<Number>,
    blocks: bool,
    idle: Option<Duration>,
    on_drop: Option<(u8, Duration)>,
    name: Option<&'a str>,
    stack: Stack,
    hooks: u8,
    deadlines: Vec<Duration>,
    shutdown: Option<(u8, Duration)>,
}

const MAX_WORKERS: usize = 65_536;
const MAX_QUEUE: usize = 1 << 24;

fn mode(n: u8) -> Shutdown {
    [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel][usize::from(n % 3)]
}

fuzz_target!(|input: Input<'_>| {
    let before = threads();
    build(&input);
    // A drop with a short timeout leaves threads behind that have yet to end. The memory that an
    // ending thread holds would pass for a leak.
    while threads() > before {
        std::thread::yield_now();
    }
});

fn build(input: &Input<'_>) {
    let max = input.max.as_ref().map(|n| n.get(MAX_WORKERS));
    let min = input.min.as_ref().map_or(0, |n| n.get(2));
    let queue = input.queue.as_ref().map_or(0, |n| n.get(MAX_QUEUE));
    let mut builder = Pool::builder().min_workers(min).queue_capacity(queue);
    if let Some(max) = max {
        builder = builder.max_workers(max);
    }
    if input.blocks {
        builder = builder.when_full(WhenFull::Block);
    }
    if let Some(idle) = input.idle {
        builder = builder.idle_timeout(idle);
    }
    if let Some((n, timeout)) = input.on_drop {
        builder = builder.shutdown_on_drop(mode(n), timeout);
    }
    if let Some(name) = input.name {
        builder = builder.thread_name(name);
    }
    let bad_name = input
        .name
        .is_some_and(|name| name.is_empty() || name.contains('\0'));
    match input.stack {
        Stack::Default => {}
        // A stack smaller than a sanitizer's own frames cannot be tested.
        Stack::Small(n) => builder = builder.stack_size((512 << 10) + usize::from(n)),
        Stack::Absurd => builder = builder.stack_size(1 << 46),
    }
    let absurd = matches!(input.stack, Stack::Absurd);
    if input.hooks & 1 != 0 {
        builder = builder.on_worker_start(|_| quiet());
    }
    if input.hooks & 2 != 0 {
        builder = builder.on_worker_stop(|_| quiet());
    }
    if input.hooks & 4 != 0 {
        builder = builder.around(|_| quiet());
    }
    if input.hooks & 8 != 0 {
        builder = builder.on_panic(|_| quiet());
    }
    assert!(!format!("{builder:?}").is_empty());

    let count = max.unwrap_or_else(|| {
        4 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    });
    let valid =
        count >= 1 && count <= MAX_WORKERS && min <= count && queue <= MAX_QUEUE && !bad_name;
    // Such settings are valid, but need more memory or threads than a fuzzer has.
    if valid && (count > 4096 || queue > 10_000 || min > 16) {
        return;
    }
    let pool = match builder.build() {
        Ok(pool) => pool,
        Err(error) => {
            let named = match &error {
                BuildError::ZeroWorkers => count == 0,
                BuildError::TooManyWorkers { given, max } => {
                    *given == count && count > *max && *max == MAX_WORKERS
                }
                BuildError::MinExceedsMax { min: m, max: c } => (*m, *c) == (min, count) && m > c,
                BuildError::QueueTooLong { given, max } => {
                    *given == queue && queue > *max && *max == MAX_QUEUE
                }
                BuildError::BadThreadName => bad_name,
                BuildError::Spawn(_) => valid && absurd && min > 0,
                _ => false,
            };
            assert!(named && !error.to_string().is_empty(), "{error:?}");
            return;
        }
    };
    assert!(valid, "{pool:?}");
    assert_eq!(pool.max_workers(), count);
    assert_eq!(pool.min_workers(), min);
    assert_eq!(pool.queue_capacity(), queue);
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.spawned), (min, min as u64));

    for &deadline in input.deadlines.iter().take(4) {
        match pool.do_with_deadline(|| 7, deadline) {
            Ok(7) => assert!(!absurd),
            Err(DeadlineError::Expired(f)) => {
                assert_eq!(f.run(), 7);
                assert!(deadline < Duration::from_secs(60), "{deadline:?}: {pool:?}");
            }
            Err(DeadlineError::TimedOut) => {
                assert!(deadline < Duration::from_secs(60), "{deadline:?}: {pool:?}");
            }
            // Tasks whose calls timed out may still hold every worker.
            Err(DeadlineError::Refused(refused)) => match refused.reason() {
                Refusal::SpawnFailed(_) => assert!(absurd),
                Refusal::Saturated => assert!(!input.blocks && pool.stats().timed_out > 0),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    if let Some((n, timeout)) = input.shutdown {
        let report = pool.shutdown(mode(n), timeout);
        assert!(pool.is_closed());
        if report.is_clean() {
            assert_eq!(pool.stats().workers, 0);
        } else {
            assert!(timeout < Duration::from_secs(60), "{report:?}: {pool:?}");
        }
    }
}

/// Raises a panic that the fuzzer's panic hook does not see.
fn quiet() {
    std::panic::resume_unwind(Box::new("hook"));
}
