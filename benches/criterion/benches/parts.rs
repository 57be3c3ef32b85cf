//! Benches of the crate's parts, each beside the obvious thing to use instead.
//!
//! The parts are private. Rather than make them public for this, the bench is
//! a crate of the same modules: what it measures is the code that ships.

#![allow(dead_code, unused_imports)] // what only the library uses
#![allow(unexpected_cfgs)] // its features
#![allow(unreachable_pub, missing_docs)] // it is public there, not here

mod common;

macro_rules! same_modules {
    ($($vis:vis mod $name:ident = $path:literal;)*) => {
        $(#[path = $path] $vis mod $name;)*
    };
}

same_modules! {
    mod duration = "../../../src/duration.rs";
    mod error = "../../../src/error/mod.rs";
    mod parts = "../../../src/parts/mod.rs";
    mod stats = "../../../src/stats/mod.rs";
    mod sync = "../../../src/sync/mod.rs";
    mod work = "../../../src/work/mod.rs";
}

use criterion::{criterion_group, criterion_main, BatchSize, Criterion};
use crossbeam_queue::{ArrayQueue, SegQueue};
use parts::backoff::{AdaptiveSpin, Step};
use parts::queue::{Popped, Queue};
use parts::ring::Ring;
use parts::slot::Order;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use work::job::{NeverRan, Task};

/// A task that does nothing and carries `N` words.
fn empty_task<const N: usize>() -> Task {
    let words = [7_u64; N];
    let job = move || {
        black_box(words);
    };
    Task::new(work::observe::Seen::default(), (), job)
}

/// Waits for another thread, which may be waiting for this core.
fn until(mut done: impl FnMut() -> bool) {
    let mut looks = 0_u32;
    while !done() {
        looks += 1;
        if looks % 4096 == 0 {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Runs `step` here `n` times while another thread runs `other` all the time.
fn beside(n: u64, other: impl Fn() + Sync, mut step: impl FnMut()) -> Duration {
    let over = AtomicBool::new(false);
    let started = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            started.store(true, Ordering::Release);
            while !over.load(Ordering::Relaxed) {
                other();
            }
        });
        until(|| started.load(Ordering::Acquire));
        let start = Instant::now();
        for _ in 0..n {
            step();
        }
        let took = start.elapsed();
        over.store(true, Ordering::Relaxed);
        took
    })
}

/// Slot indices: pop one and push it back.
fn rings(c: &mut Criterion) {
    let mut g = c.benchmark_group("ring: pop and push an index");
    let ring = Ring::new(64, 64);
    let array = ArrayQueue::new(64);
    let seg = SegQueue::new();
    for i in 0..64_usize {
        array.push(i).expect("room");
        seg.push(i);
    }
    let ring_step = || {
        if let Some(i) = ring.pop() {
            ring.push(i).expect("its own place");
        }
    };
    let array_step = || {
        if let Some(i) = array.pop() {
            array.push(i).expect("its own place");
        }
    };
    let seg_step = || {
        if let Some(i) = seg.pop() {
            seg.push(i);
        }
    };
    g.bench_function("ours/alone", |b| b.iter(ring_step));
    g.bench_function("ArrayQueue/alone", |b| b.iter(array_step));
    g.bench_function("SegQueue/alone", |b| b.iter(seg_step));
    g.bench_function("ours/2 threads", |b| {
        b.iter_custom(|n| beside(n, ring_step, ring_step))
    });
    g.bench_function("ArrayQueue/2 threads", |b| {
        b.iter_custom(|n| beside(n, array_step, array_step))
    });
    g.bench_function("SegQueue/2 threads", |b| {
        b.iter_custom(|n| beside(n, seg_step, seg_step))
    });
    g.finish();
}

/// Tasks through the queue, beside 56 bytes through an `ArrayQueue`.
fn queues(c: &mut Criterion) {
    type Plain = [u64; 7];
    let mut g = c.benchmark_group("queue: a task in and out");
    let queue = Queue::new(1024);
    queue.wake();
    let array = ArrayQueue::<Plain>::new(1024);
    let discard = |place: Option<Task>| match place {
        Some(task) => {
            let _ = task.discard(NeverRan::Discarded);
            true
        }
        None => false,
    };
    let put = || {
        let mut task = Some(empty_task::<3>());
        let _ = queue.push(&mut task);
        !discard(task)
    };
    let take = || {
        let mut place = None;
        let _: Popped = queue.try_pop(&mut place);
        discard(place)
    };
    g.bench_function("ours/alone", |b| {
        b.iter(|| {
            assert!(put());
            assert!(take());
        })
    });
    g.bench_function("ArrayQueue/alone", |b| {
        b.iter(|| {
            array.push(black_box([7; 7])).expect("room");
            array.pop()
        })
    });
    g.bench_function("ours/producer and consumer", |b| {
        b.iter_custom(|n| {
            let consume = || {
                take();
            };
            beside(n, consume, || until(put))
        })
    });
    g.bench_function("ArrayQueue/producer and consumer", |b| {
        b.iter_custom(|n| {
            let consume = || {
                black_box(array.pop());
            };
            beside(n, consume, || {
                until(|| array.push(black_box([7; 7])).is_ok())
            })
        })
    });
    until(|| !take());
    g.finish();
}

/// A closure made a task and disposed of, beside a box.
fn task_cells(c: &mut Criterion) {
    let mut g = c.benchmark_group("task cell: erase a closure and dispose of it");
    macro_rules! sizes {
        ($($words:literal)*) => {$(
            g.bench_function(concat!("ours/", $words, " words"), |b| {
                b.iter(|| drop(black_box(empty_task::<$words>()).discard(NeverRan::Discarded)))
            });
            g.bench_function(concat!("Box<dyn FnOnce>/", $words, " words"), |b| {
                b.iter(|| {
                    let words = [7_u64; $words];
                    let boxed: Box<dyn FnOnce() + Send> = Box::new(move || {
                        black_box(words);
                    });
                    drop(black_box(boxed));
                })
            });
        )*};
    }
    sizes!(0 3 6 25);
    g.finish();
}

type Slot = parts::slot::Slot<Task, ()>;

/// An idle slot of a pool of one.
fn idle_slot() -> (Slot, Ring) {
    let (slot, ready) = (Slot::new(()), Ring::new(1, 0));
    // SAFETY: it is new, and held then.
    unsafe {
        slot.begin_start(false);
        slot.publish_idle(&ready, 0);
    }
    (slot, ready)
}

/// Claims an idle slot and hands a task over.
fn hand_over(slot: &Slot) {
    let mut claimed = None;
    until(|| {
        claimed = slot.claim_last_used(0, true);
        claimed.is_some()
    });
    let claim = claimed.expect("just waited for it");
    // SAFETY: claimed above, handed over once.
    unsafe { slot.hand_over(claim, empty_task::<3>(), false) };
}

/// The worker's half: waits for a task, disposes of it, is idle again.
/// `false` when told to end.
fn serve_once(slot: &Slot, ready: &Ring, adaptive: &AdaptiveSpin) -> bool {
    loop {
        // SAFETY: the one thread that serves the slot, idle.
        match adaptive.look_for(|| unsafe { slot.poll_order() }, || false) {
            Some(Order::Run { task, .. }) => {
                let _ = task.discard(NeverRan::Discarded);
                // SAFETY: as above, with a task.
                unsafe { slot.publish_idle(ready, 0) };
                return true;
            }
            Some(Order::Search | Order::Retire) => return false,
            None => {}
        }
        if slot.may_park() {
            thread::park();
        }
    }
}

/// `n` hand-overs to a worker on another thread; `pause` goes before each.
fn hand_overs(n: u64, parallel: bool, pause: fn()) -> Duration {
    let (slot, ready) = (Slot::new(()), Ring::new(1, 0));
    // SAFETY: it is new.
    unsafe { slot.begin_start(false) };
    thread::scope(|s| {
        let worker = s.spawn(|| {
            until(|| !slot.is_held());
            let adaptive = AdaptiveSpin::new(parallel);
            while serve_once(&slot, &ready, &adaptive) {}
        });
        // SAFETY: started above; the worker awaits its first order.
        unsafe {
            slot.set_thread(worker.thread().clone());
            slot.publish_idle(&ready, 0);
        }
        hand_over(&slot);
        until(|| slot.see().is_idle());
        let mut took = Duration::ZERO;
        for _ in 0..n {
            pause();
            let start = Instant::now();
            hand_over(&slot);
            until(|| slot.see().is_idle());
            took += start.elapsed();
        }
        let mut told = None;
        until(|| {
            told = slot.retire(false);
            told.is_some()
        });
        worker.thread().unpark();
        took
    })
}

fn slots(c: &mut Criterion) {
    let mut g = c.benchmark_group("slot: claim, hand over, take, idle again");
    let (slot, ready) = idle_slot();
    g.bench_function("one thread", |b| {
        b.iter(|| {
            hand_over(&slot);
            assert!(serve_once(&slot, &ready, &AdaptiveSpin::new(true)));
        })
    });
    g.bench_function("two threads, the worker spins", |b| {
        b.iter_custom(|n| hand_overs(n, true, || ()))
    });
    g.sample_size(10);
    g.bench_function("two threads, the worker sleeps", |b| {
        b.iter_custom(|n| hand_overs(n, true, || thread::sleep(Duration::from_micros(200))))
    });
    g.finish();
}

/// What waking costs, and what not having to wake saves.
fn parking(c: &mut Criterion) {
    let mut g = c.benchmark_group("park");
    g.bench_function("unpark of oneself, then park", |b| {
        let me = thread::current();
        b.iter(|| {
            me.unpark();
            thread::park();
        })
    });
    let round_trips = |n: u64, parked: bool| {
        let ball = AtomicU64::new(0);
        let me = thread::current();
        let wait = |for_what: u64| {
            if parked {
                while ball.load(Ordering::Acquire) != for_what {
                    thread::park();
                }
            } else {
                until(|| ball.load(Ordering::Acquire) == for_what);
            }
        };
        thread::scope(|s| {
            let other = s.spawn(|| {
                for i in 0..n {
                    wait(2 * i + 1);
                    ball.store(2 * i + 2, Ordering::Release);
                    if parked {
                        me.unpark();
                    }
                }
            });
            let start = Instant::now();
            for i in 0..n {
                ball.store(2 * i + 1, Ordering::Release);
                if parked {
                    other.thread().unpark();
                }
                wait(2 * i + 2);
            }
            start.elapsed()
        })
    };
    g.bench_function("round trip, parked", |b| {
        b.iter_custom(|n| round_trips(n, true))
    });
    g.bench_function("round trip, spinning", |b| {
        b.iter_custom(|n| round_trips(n, false))
    });
    g.bench_function("our wait, from spinning to the advice to park", |b| {
        b.iter_batched(
            || parts::backoff::BoundedSpin::new(true, false),
            |mut spin| while spin.step() != Step::Spent {},
            BatchSize::SmallInput,
        )
    });
    g.finish();
}

criterion_group! {
    name = parts;
    config = common::short();
    targets = rings, queues, task_cells, slots, parking
}
criterion_main!(parts);
