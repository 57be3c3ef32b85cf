//! Benches of the pool's operations, through its public API.

#![allow(missing_docs)] // what `criterion_group!` makes

mod common;

use criterion::{criterion_group, criterion_main, BatchSize, Criterion};
use lazypool::{Pool, WhenFull};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

fn pool(workers: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(workers)
        .queue_capacity(queue)
        .when_full(WhenFull::Block)
        .build()
        .expect("settings are in bounds")
}

/// Waits until the pool has ended `tasks` tasks.
fn ended(pool: &Pool, tasks: u64) {
    while pool.stats().completed < tasks {
        thread::yield_now();
    }
}

/// `n` times `submit`, until all tasks have ended; checks that they ran.
fn served(pool: &Pool, n: u64, submit: impl Fn()) -> Duration {
    let before = pool.stats().completed;
    let start = Instant::now();
    for _ in 0..n {
        submit();
    }
    ended(pool, before + n);
    start.elapsed()
}

fn serve(c: &mut Criterion) {
    let mut g = c.benchmark_group("serve");
    let queued = pool(2, 1024);
    let words = [7_u64; 6];
    let bytes_24 = [7_u64; 3];
    g.bench_function("queue of 1024/no captures", |b| {
        b.iter_custom(|n| served(&queued, n, || queued.serve(|| ()).expect("waits for room")))
    });
    g.bench_function("queue of 1024/24 bytes", |b| {
        b.iter_custom(|n| {
            let submit = || {
                let task = move || {
                    black_box(bytes_24);
                };
                queued.serve(task).expect("waits for room");
            };
            served(&queued, n, submit)
        })
    });
    g.bench_function("queue of 1024/48 bytes", |b| {
        b.iter_custom(|n| {
            let submit = || {
                let task = move || {
                    black_box(words);
                };
                queued.serve(task).expect("waits for room");
            };
            served(&queued, n, submit)
        })
    });
    let direct = pool(1, 0);
    g.bench_function("no queue, the worker taken as it becomes idle", |b| {
        b.iter_custom(|n| served(&direct, n, || direct.serve(|| ()).expect("waits for room")))
    });
    g.finish();
}

fn refusal(c: &mut Criterion) {
    let mut g = c.benchmark_group("refusal");
    for queue in [0, 1024] {
        let pool = Pool::builder()
            .max_workers(1)
            .queue_capacity(queue)
            .build()
            .expect("settings are in bounds");
        let gate = Arc::new(Barrier::new(2));
        let at_work = Arc::clone(&gate);
        let held = pool.serve(move || {
            at_work.wait();
            at_work.wait();
        });
        held.expect("an empty pool");
        gate.wait();
        while pool.serve(|| ()).is_ok() {}
        g.bench_function(format!("queue of {queue}"), |b| {
            b.iter(|| assert!(pool.serve(|| ()).is_err()))
        });
        gate.wait();
    }
    g.finish();
}

fn do_with_deadline(c: &mut Criterion) {
    let mut g = c.benchmark_group("do_with_deadline");
    for queue in [0, 1024] {
        let pool = pool(2, queue);
        g.bench_function(format!("queue of {queue}"), |b| {
            b.iter(|| {
                let value = pool.do_with_deadline(|| black_box(7), Duration::from_secs(10));
                assert!(value.is_ok());
            })
        });
        g.bench_function(format!("queue of {queue}/labeled"), |b| {
            let view = pool.labeled("bench");
            b.iter(|| {
                let value = view.do_with_deadline(|| black_box(7), Duration::from_secs(10));
                assert!(value.is_ok());
            })
        });
    }
    g.bench_function("a deadline of zero", |b| {
        let pool = pool(1, 0);
        b.iter(|| assert!(pool.do_with_deadline(|| 7, Duration::ZERO).is_err()))
    });
    g.finish();
}

fn together(c: &mut Criterion) {
    let mut g = c.benchmark_group("together");
    let pool = pool(2, 1024);
    g.bench_function("group of 100 and its wait", |b| {
        b.iter(|| {
            let group = pool.group();
            for i in 0..100_u32 {
                let task = move || {
                    black_box(i);
                };
                group.serve(task).expect("waits for room");
            }
            group.wait();
            assert_eq!(group.completed(), 100);
        })
    });
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
    config = common::short();
    targets = serve, refusal, do_with_deadline, together, life
}
criterion_main!(operations);
