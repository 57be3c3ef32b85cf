//! Measures what the cache lines of a call, and of a task in a queue, take without a pool. Prints the
//! pool's own times beside that.
//!
//! Each row is measured in each of `ROUNDS` rounds. A round has many stretches of operations, and
//! its figure is the 25 % quantile: in slower stretches, the two threads may have shared a core.

use crossbeam_utils::CachePadded;
use lazypool::{Pool, WhenFull};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const STRETCHES: u64 = 64;
/// The number of operations in a stretch. The queue has that many places.
const STRETCH: u64 = 1024;

/// Returns nanoseconds per operation. Calls `operation` with its number, from 1 on.
fn measure(mut operation: impl FnMut(u64)) -> f64 {
    let mut stretch = |k| {
        let start = Instant::now();
        (k * STRETCH + 1..=(k + 1) * STRETCH).for_each(&mut operation);
        start.elapsed().as_nanos() as f64 / STRETCH as f64
    };
    let mut all: Vec<f64> = (0..STRETCHES).map(&mut stretch).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 4]
}

/// Spins until the word has the value. Pauses as the pool does.
fn await_value(word: &AtomicU64, value: u64) {
    let mut looks = 0_u32;
    while word.load(Acquire) != value {
        (0..2).for_each(|_| spin_loop());
        looks += 1;
        if looks.is_multiple_of(1024) {
            // The other thread may wait for this core.
            thread::yield_now();
        }
    }
}

type Line = CachePadded<AtomicU64>;

/// Measures a request that goes from one thread to another on a line of its own, and its outcome,
/// which comes back on another line. The caller writes `data` more lines, and the worker reads
/// them. `steps`: each side also takes the locked steps of a call, as many as the pool takes.
fn two_lines(data: usize, steps: bool) -> f64 {
    let lines: Vec<Line> = (0..data).map(|_| Line::default()).collect();
    let [request, outcome, own] = [const { CachePadded::new(AtomicU64::new(0)) }; 3];
    thread::scope(|s| {
        s.spawn(|| {
            for i in 1..=STRETCHES * STRETCH {
                await_value(&request, 2 * i);
                black_box(lines.iter().map(|line| line.load(Relaxed)).sum::<u64>());
                for _ in 0..if steps { 4 } else { 0 } {
                    own.fetch_add(1, SeqCst);
                }
                outcome.swap(i, SeqCst);
            }
        });
        measure(|i| {
            if steps {
                request.swap(2 * i - 1, SeqCst);
            }
            lines.iter().for_each(|line| line.store(i, Relaxed));
            request.swap(2 * i, SeqCst);
            await_value(&outcome, i);
        })
    })
}

/// Measures a ring of cells of a line each, from one thread to another. Each side also takes the locked
/// steps of a push and a pop.
fn ring() -> f64 {
    const PLACES: usize = STRETCH as usize;
    let cells: Vec<Line> = (0..PLACES).map(|_| Line::default()).collect();
    let [head, tail] = [const { CachePadded::new(AtomicU64::new(0)) }; 2];
    thread::scope(|s| {
        s.spawn(|| {
            for i in 1..=STRETCHES * STRETCH {
                let cell = &cells[i as usize % PLACES];
                await_value(cell, i);
                let _ = cell.compare_exchange(i, i, SeqCst, SeqCst);
                head.swap(i, SeqCst);
            }
        });
        let mut seen = 0;
        measure(|i| {
            while i - seen > STRETCH {
                seen = head.load(Acquire);
                spin_loop();
            }
            let _ = tail.compare_exchange(i - 1, i, SeqCst, SeqCst);
            cells[i as usize % PLACES].store(i, Release);
        })
    })
}

fn pool(queue: usize) -> Pool {
    let pool = Pool::builder().max_workers(2).queue_capacity(queue);
    (pool.when_full(WhenFull::Block).build()).expect("settings are in bounds")
}

fn call(queue: usize) -> f64 {
    let pool = pool(queue);
    measure(|i| {
        let value = pool.do_with_deadline(move || black_box(i), Duration::MAX);
        assert_eq!(value.expect("there is no deadline"), i);
    })
}

fn join(queue: usize) -> f64 {
    let pool = pool(queue);
    measure(|i| {
        let handle = pool.awaitable().serve(move || black_box(i));
        assert_eq!(handle.expect("the pool waits").join().expect("it ran"), i);
    })
}

fn serve() -> f64 {
    let pool = pool(STRETCH as usize);
    measure(|i| {
        let captured = [i; 3];
        let task = move || {
            black_box(captured);
        };
        assert!(pool.serve(task).is_ok(), "the pool waits for room");
    })
}

fn main() {
    type Row = (&'static str, fn() -> f64);
    let rows: [Row; 9] = [
        ("two lines", || two_lines(0, false)),
        ("two lines, with a call's locked steps", || {
            two_lines(0, true)
        }),
        ("do_with_deadline, no queue", || call(0)),
        ("do_with_deadline", || call(STRETCH as usize)),
        ("four lines, with a call's locked steps", || {
            two_lines(2, true)
        }),
        ("join, no queue", || join(0)),
        ("join", || join(STRETCH as usize)),
        ("a ring of lines, with locked steps", ring),
        ("serve through a queue, 24 bytes captured", serve),
    ];
    let mut figures = rows.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (figures, (_, row)) in figures.iter_mut().zip(&rows) {
            figures.push(row());
        }
    }
    println!("{:42} {:>6}  rounds, ns", "", "median");
    for (mut figures, (name, _)) in figures.into_iter().zip(rows) {
        figures.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| figures[at]);
        println!("{name:42} {median:6.1}  ({least:.1} to {most:.1})");
    }
}
