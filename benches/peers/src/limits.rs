//! What the machine allows: the same work without a pool.

use crate::tally::{tick, Tally};
use crossbeam_utils::CachePadded;
use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Spins, and yields now and then: on a busy machine the other thread may be
/// waiting for this core.
#[derive(Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    pub(crate) fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(4096) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// What its rows are called.
pub(crate) const ROUND_TRIP: &str = "spinning round trip";

/// Two threads bounce one cache line, `n` round trips.
pub(crate) fn spinning_round_trips(n: u64) -> Duration {
    let ball = CachePadded::new(AtomicU64::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            for i in 0..n {
                let mut patience = Patience::default();
                while ball.load(Ordering::Acquire) != 2 * i + 1 {
                    patience.wait();
                }
                ball.store(2 * i + 2, Ordering::Release);
            }
        });
        let trip = |i: u64| {
            ball.store(2 * i + 1, Ordering::Release);
            let mut patience = Patience::default();
            while ball.load(Ordering::Acquire) != 2 * i + 2 {
                patience.wait();
            }
        };
        trip(0); // the other thread has started
        let start = Instant::now();
        for i in 1..n {
            trip(i);
        }
        start.elapsed()
    })
}

/// Two threads wake each other by `unpark`, `n` round trips.
pub(crate) fn parked_round_trips(n: u64) -> Duration {
    let ball = CachePadded::new(AtomicU64::new(0));
    let main = thread::current();
    thread::scope(|s| {
        let ball = &ball;
        let other = s.spawn(move || {
            for i in 0..n {
                while ball.load(Ordering::Acquire) != 2 * i + 1 {
                    thread::park();
                }
                ball.store(2 * i + 2, Ordering::Release);
                main.unpark();
            }
        });
        let trip = |i: u64| {
            ball.store(2 * i + 1, Ordering::Release);
            other.thread().unpark();
            while ball.load(Ordering::Acquire) != 2 * i + 2 {
                thread::park();
            }
        };
        trip(0);
        let start = Instant::now();
        for i in 1..n {
            trip(i);
        }
        start.elapsed()
    })
}

/// Threads started and joined, one after the other.
pub(crate) fn threads(n: u64, work: fn()) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        thread::spawn(work).join().expect("no panic");
    }
    start.elapsed()
}

/// A task as a pool cannot do without it: a function and 48 bytes.
pub(crate) type Job = (fn(&[u64; 6]), [u64; 6]);

#[repr(align(64))]
struct Cell<T> {
    stamp: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The bounded ring of D. Vyukov, no more: cells with a stamp, two positions.
pub(crate) struct RawRing<T> {
    cells: Box<[Cell<T>]>,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

// SAFETY: a value is touched only by the thread that reserved its position.
unsafe impl<T: Send> Sync for RawRing<T> {}

impl<T: Copy> RawRing<T> {
    pub(crate) fn new(size: usize) -> Self {
        assert!(size.is_power_of_two());
        let cell = |i: usize| Cell {
            stamp: AtomicU64::new(i as u64),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            cells: (0..size).map(cell).collect(),
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    pub(crate) fn push(&self, value: T) -> bool {
        loop {
            let tail = self.tail.load(Ordering::Relaxed);
            let cell = &self.cells[tail as usize & (self.cells.len() - 1)];
            let stamp = cell.stamp.load(Ordering::Acquire);
            if stamp == tail {
                let moved = self.tail.compare_exchange_weak(
                    tail,
                    tail + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if moved.is_ok() {
                    // SAFETY: this thread reserved the position.
                    unsafe { (*cell.value.get()).write(value) };
                    cell.stamp.store(tail + 1, Ordering::Release);
                    return true;
                }
            } else if stamp < tail {
                return false;
            }
            spin_loop();
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let cell = &self.cells[head as usize & (self.cells.len() - 1)];
            let stamp = cell.stamp.load(Ordering::Acquire);
            if stamp == head + 1 {
                let moved = self.head.compare_exchange_weak(
                    head,
                    head + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                if moved.is_ok() {
                    // SAFETY: this thread reserved the position, whose value is written.
                    let value = unsafe { (*cell.value.get()).assume_init_read() };
                    let next = head + self.cells.len() as u64;
                    cell.stamp.store(next, Ordering::Release);
                    return Some(value);
                }
            } else if stamp <= head {
                return None;
            }
            spin_loop();
        }
    }
}

/// A queue of jobs, for the limits.
pub(crate) trait Jobs: Sync {
    fn with_room_for(n: usize) -> Self;
    fn put(&self, job: Job) -> bool;
    fn take(&self) -> Option<Job>;
}

impl Jobs for RawRing<Job> {
    fn with_room_for(n: usize) -> Self {
        Self::new(n)
    }

    fn put(&self, job: Job) -> bool {
        self.push(job)
    }

    fn take(&self) -> Option<Job> {
        self.pop()
    }
}

impl Jobs for crossbeam_queue::ArrayQueue<Job> {
    fn with_room_for(n: usize) -> Self {
        Self::new(n)
    }

    fn put(&self, job: Job) -> bool {
        self.push(job).is_ok()
    }

    fn take(&self) -> Option<Job> {
        self.pop()
    }
}

/// `n` jobs from some producers to some consumers that do nothing but spin.
pub(crate) fn through_a_queue<Q: Jobs>(producers: u64, consumers: u64, n: u64) -> Duration {
    let queue = Q::with_room_for(1024);
    let over = AtomicBool::new(false);
    let ready = Barrier::new((producers + consumers) as usize);
    let tally = Tally::start();
    let job: Job = (
        |words| {
            black_box(words[0] ^ words[1] ^ words[2]);
            tick();
        },
        [1, 2, 3, 4, 5, 6],
    );
    let n = n.div_ceil(producers) * producers;
    let produce = || {
        let mut patience = Patience::default();
        for _ in 0..n / producers {
            while !queue.put(black_box(job)) {
                patience.wait();
            }
        }
    };
    let took = thread::scope(|s| {
        for _ in 0..consumers {
            s.spawn(|| {
                ready.wait();
                let mut patience = Patience::default();
                while !over.load(Ordering::Relaxed) {
                    match queue.take() {
                        Some((run, data)) => run(&data),
                        None => patience.wait(),
                    }
                }
            });
        }
        for _ in 1..producers {
            s.spawn(|| {
                ready.wait();
                produce();
            });
        }
        ready.wait();
        let start = Instant::now();
        produce();
        tally.wait(n);
        let took = start.elapsed();
        over.store(true, Ordering::Relaxed);
        took
    });
    tally.check(n);
    took
}
