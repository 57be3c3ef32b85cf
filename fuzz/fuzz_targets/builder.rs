//! A pool's settings: as text, as values and in a pool. A value that was read from text can be
//! written and read again, and is the same; settings are refused only if one is out of bounds; a pool
//! that is built works, even with the oddest durations.
#![no_main]

#[path = "../shared/threads.rs"]
mod threads;

use lazypool::{BuildError, DeadlineError, Pool, PoolSettings, Refusal, Shutdown, WhenFull};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    text: &'a str,
    max: u32,
    min: u32,
    queue: u32,
    policy: (u8, Duration),
    idle: Duration,
    on_drop: (u8, Duration),
    name: Option<&'a str>,
    stack: u16,
    hooks: u8,
    deadlines: Vec<Duration>,
    shutdown: Option<(u8, Duration)>,
}

const MAX_WORKERS: usize = 65_536;
const MAX_QUEUE: usize = 1 << 24;

/// Returns a small number, one about the greatest that the crate allows, or any.
fn number(n: u32, most: usize) -> usize {
    let (kind, n) = (n % 4, n as usize / 4);
    match kind {
        0 | 1 => n % 9,
        2 => most + n % 2,
        _ => n,
    }
}

fn mode(n: u8) -> Shutdown {
    [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel][usize::from(n % 3)]
}

fuzz_target!(|input: Input<'_>| {
    word::<WhenFull>(input.text);
    word::<WhenFull>(&format!("block:{}", input.text));
    word::<Shutdown>(input.text);
    let quoted = serde_json::Value::from(input.text);
    for key in [
        "idle_timeout",
        "shutdown_timeout",
        "thread_name",
        "when_full",
    ] {
        let read = serde_json::from_str::<PoolSettings>(&format!("{{\"{key}\":{quoted}}}"));
        match read {
            Ok(settings) => written(&settings),
            Err(error) => assert!(error.to_string().contains(key), "{error}"),
        }
    }
    let before = threads::count();
    build(&input);
    // A drop with a short timeout leaves threads behind that have yet to end.
    threads::wait_until_ended(before);
});

/// Parses a word. Asserts that its value, written as text, parses as the same value.
fn word<T: FromStr<Err: Display> + Display + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => assert_eq!(value.to_string().parse().ok(), Some(value)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Asserts that settings that are written as text are read back as the same settings.
fn written(settings: &PoolSettings) {
    let text = serde_json::to_string(settings).expect("text");
    let read = serde_json::from_str::<PoolSettings>(&text);
    assert_eq!(read.ok().as_ref(), Some(settings), "{text}");
}

fn build(input: &Input<'_>) {
    let mut settings = PoolSettings::default();
    settings.max_workers = number(input.max, MAX_WORKERS);
    settings.min_workers = number(input.min, 2);
    settings.queue_capacity = number(input.queue, MAX_QUEUE);
    settings.when_full = match input.policy {
        (0..128, _) => WhenFull::Refuse,
        (128.., Duration::ZERO) => WhenFull::Block,
        (128.., limit) => WhenFull::BlockFor(limit),
    };
    settings.idle_timeout = input.idle;
    settings.shutdown_on_drop = mode(input.on_drop.0);
    settings.shutdown_timeout = input.on_drop.1;
    input
        .name
        .inspect(|&name| settings.thread_name = name.to_owned());
    let absurd = input.stack == 1;
    settings.stack_size = match input.stack {
        0 => None,
        1 => Some(1 << 46),
        // A stack smaller than a sanitizer's own frames cannot be tested.
        n => Some((512 << 10) + usize::from(n)),
    };
    let (max, min, queue) = (
        settings.max_workers,
        settings.min_workers,
        settings.queue_capacity,
    );
    let bad_name = settings.thread_name.is_empty() || settings.thread_name.contains('\0');
    let valid = (1..=MAX_WORKERS).contains(&max) && min <= max && queue <= MAX_QUEUE && !bad_name;
    if valid {
        written(&settings);
    }
    // Such settings are valid, but need more memory or threads than a fuzzer has.
    if valid && (max > 4096 || queue > 10_000 || min > 16) {
        return;
    }
    let mut builder = settings.to_builder();
    // The panics of hooks do not reach the fuzzer's panic hook.
    let quiet = || std::panic::resume_unwind(Box::new("hook"));
    if input.hooks & 1 != 0 {
        builder = builder
            .on_worker_start(move |_| quiet())
            .on_worker_stop(move |_| quiet());
    }
    if input.hooks & 2 != 0 {
        builder = builder.around(move |_| quiet()).on_panic(move |_| quiet());
    }
    assert!(!format!("{builder:?}").is_empty());
    let pool = match builder.build() {
        Ok(pool) => pool,
        Err(error) => {
            let is_right = match &error {
                BuildError::Spawn(_) => valid && absurd && min > 0,
                _ => !valid,
            };
            assert!(is_right && !error.to_string().is_empty(), "{error:?}");
            return;
        }
    };
    assert!(valid, "{pool:?}");
    let built = (
        pool.max_workers(),
        pool.min_workers(),
        pool.queue_capacity(),
    );
    assert_eq!(built, (max, min, queue));
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.spawned), (min, min as u64));
    for &deadline in input.deadlines.iter().take(4) {
        check_call(&pool, deadline, absurd);
    }
    if let Some((n, timeout)) = input.shutdown {
        let report = pool.shutdown(mode(n), timeout);
        assert!(pool.is_closed());
        let is_right = match report.is_clean() {
            true => pool.stats().workers == 0,
            false => timeout < Duration::from_secs(60),
        };
        assert!(is_right, "{report:?}: {pool:?}");
    }
}

fn check_call(pool: &Pool, deadline: Duration, absurd: bool) {
    let may_pass = deadline < Duration::from_secs(60);
    let is_right = match pool.do_with_deadline(|| 7, deadline) {
        Ok(value) => value == 7 && !absurd,
        Err(DeadlineError::Expired(unrun)) => unrun.run() == 7 && may_pass,
        Err(DeadlineError::TimedOut) => may_pass,
        Err(DeadlineError::Refused(refused)) => match refused.reason() {
            Refusal::SpawnFailed(_) => absurd,
            // Tasks whose calls timed out may still hold every worker.
            Refusal::Saturated => pool.stats().timed_out > 0,
            _ => false,
        },
        Err(DeadlineError::Panicked(_)) => false,
    };
    assert!(is_right, "{deadline:?}: {pool:?}");
}
