//! The workload `neighbor`: tasks write a counter of the program. The counter has no padding, and
//! lies beside other statics or allocations of the program.
//!
//! If the counter shares a cache line with a word that each submission reads, a task costs several
//! times as much. Most linkers keep the order of their input: the program's statics, then those of
//! its dependencies. So this program has one static, which ends where those of the library begin.
//! It tries each word of that static. `peers` builds and starts the program, with the layout.

use crossbeam_utils::CachePadded;
use lazypool::{Pool, WhenFull};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The number of the layout. Each has two words more than the one before, which moves the library's
/// statics by a quarter of a line.
const LAYOUT: usize = match option_env!("PEERS_LAYOUT") {
    Some(layout) => layout.as_bytes()[0] as usize - b'0' as usize,
    None => 0,
};
static WORDS: [AtomicU64; 16 + 2 * LAYOUT] = [const { AtomicU64::new(0) }; 16 + 2 * LAYOUT];

/// Returns allocations of the smallest size, which fill the free parts of the pool's cache lines.
fn heap() -> [&'static AtomicU64; 8] {
    std::array::from_fn(|_| &*Box::leak(Box::default()))
}

/// Returns nanoseconds per task through a queue.
fn sample(pool: &Pool, counter: &'static AtomicU64) -> f64 {
    let (start, before) = (Instant::now(), counter.load(Relaxed));
    let mut submitted = 0;
    while start.elapsed() < Duration::from_millis(3) {
        for _ in 0..256 {
            let task = || {
                counter.fetch_add(1, Relaxed);
            };
            assert!(pool.serve(task).is_ok(), "the pool waits for room");
        }
        submitted += 256;
    }
    // Read the counter again only after all submissions, because each read moves its cache line.
    while counter.load(Relaxed) - before < submitted {
        spin_loop();
    }
    start.elapsed().as_nanos() as f64 / submitted as f64
}

fn main() {
    // A static would lie between `WORDS` and the library's statics, so allocate this one.
    let padded = &**Box::leak(Box::<CachePadded<AtomicU64>>::default());
    let pool = Pool::builder()
        .max_workers(2)
        .queue_capacity(1024)
        .when_full(WhenFull::Block);
    let pool = pool.build().expect("settings are in bounds");
    let words = WORDS.iter().chain(heap());
    for (at, word) in words.enumerate() {
        for (row, counter) in [("counter", padded), ("counter, beside others", word)].repeat(3) {
            let ns = sample(&pool, counter);
            println!("neighbor, ns/task\tours\t{row}\t{LAYOUT}{at:02}\t{ns}");
        }
    }
}
