//! Benches of the operations that other pools do not have, and of a pool from its start to its end.

#![allow(missing_docs)] // what `criterion_group!` makes

use criterion::{criterion_group, criterion_main, BatchSize, Criterion};
use lazypool::{Pool, WhenFull};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

fn pool(workers: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(workers)
        .queue_capacity(queue)
        .when_full(WhenFull::Block)
        .build()
        .expect("settings are in bounds")
}

/// Returns the time that `n` calls of `submit` take, until all tasks have run.
fn served(pool: &Pool, n: u64, submit: impl Fn()) -> Duration {
    let before = pool.stats().completed;
    let start = Instant::now();
    for _ in 0..n {
        submit();
    }
    while pool.stats().completed < before + n {
        thread::yield_now();
    }
    start.elapsed()
}

fn serve(c: &mut Criterion) {
    let mut g = c.benchmark_group("serve");
    let queued = pool(2, 1024);
    // Six words fit into a task. Seven do not, so that closure is boxed.
    macro_rules! words {
        ($($words:literal)*) => {$(
            g.bench_function(concat!("queue of 1024/", $words, " words captured"), |b| {
                let words = [7_u64; $words];
                let task = move || {
                    black_box(words);
                };
                let submit = || queued.serve(task).expect("waits for space");
                b.iter_custom(|n| served(&queued, n, submit))
            });
        )*};
    }
    words!(6 7);
    g.finish();
}

fn do_with_deadline(c: &mut Criterion) {
    let mut g = c.benchmark_group("do_with_deadline");
    let two = pool(2, 1024);
    let view = two.labeled("bench");
    g.bench_function("labeled", |b| {
        b.iter(|| assert!(view.do_with_deadline(|| black_box(7), LIMIT).is_ok()))
    });
    g.bench_function("a deadline of zero", |b| {
        let pool = pool(1, 0);
        b.iter(|| assert!(pool.do_with_deadline(|| 7, Duration::ZERO).is_err()))
    });
    g.finish();
}

fn together(c: &mut Criterion) {
    let mut g = c.benchmark_group("together");
    let pool = pool(2, 1024);
    g.bench_function("scope of 100", |b| {
        b.iter(|| {
            let ran = AtomicU64::new(0);
            pool.scope(|s| {
                for _ in 0..100 {
                    let task = || {
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    assert!(s.serve(task).is_ok());
                }
            });
            assert_eq!(ran.into_inner(), 100);
        })
    });
    g.finish();
}

fn life(c: &mut Criterion) {
    let mut g = c.benchmark_group("life");
    for slots in [2, 4_096, 65_536] {
        g.bench_function(format!("build a pool of {slots}"), |b| {
            b.iter_with_large_drop(|| Pool::new(slots).expect("in bounds"))
        });
    }
    g.bench_function("the first task of a pool, and its end", |b| {
        b.iter_batched(
            || pool(1, 0),
            |pool| {
                let value = pool.do_with_deadline(|| 7, Duration::MAX);
                assert!(value.is_ok());
            },
            BatchSize::PerIteration,
        )
    });
    let busy = pool(8, 64);
    g.bench_function("stats", |b| b.iter(|| busy.stats()));
    g.finish();
}

criterion_group! {
    name = operations;
    // These times are short enough that all benches take less than a minute.
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(30);
    targets = serve, do_with_deadline, together, life
}
criterion_main!(operations);
