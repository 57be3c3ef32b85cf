//! Shows how to move a job to lazypool from the threadpool crate, from `rayon::spawn`, and from
//! tokio's `spawn_blocking`. The old code stands in comments. The lazypool code runs.
//!
//! ```text
//! cargo run --example migrate
//! ```
//!
//! The job looks up some words, each with a call that blocks, and adds up the results. The table
//! shows the differences in each case:
//!
//! | from | there | here |
//! |---|---|---|
//! | threadpool | the queue has no limit; `execute` cannot fail; a panic is only counted | `queue_capacity`; a full pool refuses, or `WhenFull::Block` waits; `on_panic` sees it |
//! | `rayon::spawn` | a global pool for CPU work, as many threads as cores: calls that block starve it; a panic aborts the process | a pool in a `static`; as many workers as the calls need; a panic is caught |
//! | `spawn_blocking` | 512 threads, then a queue without limit; `timeout` gives up waiting, and the call stays in the queue | both limits are yours; a deadline takes a waiting task out of the queue, and a running one can see it |
//!
//! The example checks each figure that it prints.

use std::sync::{mpsc, LazyLock};
use std::time::Duration;

use lazypool::{Pool, Refused, Shutdown, WhenFull};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const WORDS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// Stands for a call that blocks: a query, a file, a name server.
fn look_up(word: &str) -> usize {
    std::thread::sleep(Duration::from_millis(5));
    word.len()
}

// ---- threadpool ----------------------------------------------------------------------
//
// fn total() -> usize {
//     let pool = threadpool::Builder::new().num_threads(4).thread_name("words".into()).build();
//     let (send, lengths) = mpsc::channel();
//     for word in WORDS {
//         let send = send.clone();
//         pool.execute(move || send.send(look_up(word)).unwrap());
//     }
//     drop(send);
//     pool.join();
//     lengths.iter().sum()
// }

fn from_threadpool() -> Outcome<usize> {
    let pool = Pool::builder()
        .max_workers(4) //              num_threads: but none is started before it is needed
        .thread_name("words")
        .queue_capacity(64) //          at most 64 tasks wait
        .when_full(WhenFull::Block) //  then `serve` waits; by default it refuses
        .build()?;
    let (send, lengths) = mpsc::channel();
    let group = pool.group();
    for word in WORDS {
        let send = send.clone();
        group.serve(move || send.send(look_up(word)).unwrap_or_default())?; // execute
    }
    drop(send);
    group.wait(); //                    join: but only of this group's tasks
    Ok(lengths.iter().sum())
}

// ---- rayon::spawn --------------------------------------------------------------------
//
// fn total() -> usize {
//     let (send, lengths) = mpsc::channel();
//     for word in WORDS {
//         let send = send.clone();
//         rayon::spawn(move || send.send(look_up(word)).unwrap());
//     }
//     drop(send);
//     lengths.iter().sum()
// }
//
// fn total_of_borrowed(words: &[String]) -> usize {
//     let sum = AtomicUsize::new(0);
//     rayon::scope(|s| {
//         for word in words {
//             s.spawn(|_| { sum.fetch_add(look_up(word), Ordering::Relaxed); });
//         }
//     });
//     sum.into_inner()
// }
//
// (To split one computation over all cores, stay with rayon: `par_iter`, `join`.)

/// The pool of the whole program. A `static` is never dropped, so `main` shuts the pool down.
static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let builder = Pool::builder().max_workers(16).queue_capacity(1024);
    builder.build().expect("limits within bounds")
});

fn from_rayon_spawn() -> Outcome<usize> {
    let (send, lengths) = mpsc::channel();
    for word in WORDS {
        let send = send.clone();
        let task = move || send.send(look_up(word)).unwrap_or_default();
        // If the pool is full, the task runs on this thread. If it is shut down, this is an error.
        POOL.serve(task).or_else(Refused::caller_runs)?;
    }
    drop(send);
    Ok(lengths.iter().sum())
}

fn from_rayon_scope(words: &[String]) -> usize {
    let mut lengths = vec![0; words.len()];
    POOL.scope(|s| {
        for (word, length) in words.iter().zip(&mut lengths) {
            s.serve_or_run(|| *length = look_up(word));
        }
    });
    lengths.iter().sum()
}

// ---- tokio::task::spawn_blocking -----------------------------------------------------
//
// async fn total() -> Result<usize, Box<dyn Error>> {
//     let mut total = 0;
//     for word in WORDS {
//         let length = tokio::task::spawn_blocking(move || look_up(word));
//         total += tokio::time::timeout(DEADLINE, length).await??;
//     }
//     Ok(total)
// }

const DEADLINE: Duration = Duration::from_secs(30);

fn from_spawn_blocking(pool: &Pool) -> Outcome<usize> {
    let look_ups = pool.with_deadline(DEADLINE); // a task that waits longer never starts
    let mut total = 0;
    for word in WORDS {
        let length = look_ups.awaitable().serve(move || look_up(word))?; // never blocks: the pool refuses
        total += length.join()?; //     in async code: timeout(DEADLINE, length).await??
    }
    Ok(total)
}
// examples/service/examples/minimal does this in async code, and handles a timeout, a panic and
// a shutdown.

fn main() -> Outcome<()> {
    let expected = WORDS.iter().map(|w| w.len()).sum();
    let same = |name: &str, total: usize| {
        println!("{name}: {total}");
        match total == expected {
            true => Ok(()),
            false => Err(format!("{name} is not {expected}")),
        }
    };
    same("threadpool", from_threadpool()?)?;
    same("rayon::spawn", from_rayon_spawn()?)?;
    same("rayon::scope", from_rayon_scope(&WORDS.map(String::from)))?;
    let pool = Pool::builder().max_workers(4).queue_capacity(64).build()?;
    same("spawn_blocking", from_spawn_blocking(&pool)?)?;

    let report = POOL.shutdown(Shutdown::Drain, DEADLINE);
    println!("the static pool has ended: {}", report.is_clean());
    if !report.is_clean() {
        return Err("it should have".into());
    }
    Ok(())
}
