//! The slot protocol: few slots, two threads with a script each, and the owner's
//! own script. Every order the scheduler finds must balance.
#![no_main]

#[path = "../shared/ledger.rs"]
mod ledger;

use lazypool::{DeadlineError, Pool, Shutdown, WhenFull};
use ledger::{explode, Books, Entry};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Work {
    Nothing,
    Yields,
    Spins(u8),
    Sleeps(u8),
    Panics,
    CaptureExplodes,
    ResultExplodes,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Limit {
    Zero,
    Nanosecond,
    Micros(u8),
    Long,
    Never,
}

#[derive(Debug, Arbitrary)]
enum Step {
    Serve(Work, bool),
    Do(Work, Limit, bool),
    Group(u8, Work, bool),
    Scope(u8, Work),
    Pause(u8),
    Look,
}

#[derive(Debug, Arbitrary)]
struct Input {
    workers: u8,
    queue: u8,
    blocks: bool,
    idle: u8,
    scripts: [Vec<Step>; 2],
    /// When and how the pool is shut down, while the scripts may still play.
    shutdown: Option<(u8, u8)>,
}

/// What runs. The value's drop may explode, too.
fn run(entry: Entry, work: Work) -> ledger::Value {
    entry.run();
    match work {
        Work::Yields => thread::yield_now(),
        Work::Spins(n) => (0..u32::from(n) * 8).for_each(|_| std::hint::spin_loop()),
        Work::Sleeps(n) => thread::sleep(Duration::from_micros(u64::from(n) * 2)),
        Work::Panics => {
            entry.panics();
            explode();
        }
        _ => {}
    }
    let value = ledger::Value::new(&entry, matches!(work, Work::ResultExplodes));
    // Not at the closing brace, where a panic would leak the value
    // (rust-lang/rust#47949).
    drop(entry);
    value
}

fn entry(books: &Arc<Books>, work: Work) -> Entry {
    Entry::new(books, matches!(work, Work::CaptureExplodes))
}

fn play(pool: &Pool, books: &Arc<Books>, script: &[Step]) {
    for step in script.iter().take(60) {
        match *step {
            Step::Serve(work, large) => {
                let (entry, weight) = (entry(books, work), [7_u64; 20]);
                let refused = if large {
                    pool.serve(move || {
                        std::hint::black_box(weight);
                        drop(run(entry, work));
                    })
                    .map_err(|back| ledger::defuse(back))
                } else {
                    pool.serve(move || drop(run(entry, work)))
                        .map_err(|back| ledger::defuse(back))
                };
                books.handed_back(refused.is_err());
            }
            Step::Do(work, limit, large) => {
                let d = match limit {
                    Limit::Zero => Duration::ZERO,
                    Limit::Nanosecond => Duration::from_nanos(1),
                    Limit::Micros(n) => Duration::from_micros(n.into()),
                    Limit::Long => Duration::from_secs(100),
                    Limit::Never => Duration::MAX,
                };
                books.uncounted(d.is_zero());
                let (entry, weight) = (entry(books, work), [7_u64; 20]);
                if large {
                    let f = move || {
                        std::hint::black_box(weight);
                        run(entry, work)
                    };
                    judge(pool.labeled("large").do_with_deadline(f, d), books, d);
                } else {
                    judge(pool.do_with_deadline(move || run(entry, work), d), books, d);
                }
            }
            Step::Group(n, work, cancel) => {
                let group = pool.group();
                for _ in 0..n % 6 {
                    let entry = entry(books, work);
                    let refused = group.serve(move || drop(run(entry, work)));
                    let refused = refused.map_err(|back| ledger::defuse(back));
                    books.handed_back(refused.is_err());
                }
                if cancel {
                    group.cancel();
                }
                group.wait();
                assert_eq!(group.pending(), 0);
            }
            Step::Scope(n, work) => {
                let local = [n; 4];
                let scope = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    pool.scope(|s| {
                        for _ in 0..n % 6 {
                            let (entry, local) = (entry(books, work), &local);
                            let refused = s.serve(move || {
                                assert_eq!(local, &[n; 4]);
                                drop(run(entry, work));
                            });
                            let refused = refused.map_err(|back| ledger::defuse(back));
                            books.handed_back(refused.is_err());
                        }
                    });
                }));
                drop(scope);
            }
            Step::Pause(n) => thread::sleep(Duration::from_micros(u64::from(n) * 10)),
            Step::Look => {
                let s = pool.stats();
                let ended = s.completed + s.panicked + s.expired + s.discarded;
                assert!(ended <= s.accepted, "{s:?}");
                assert!(s.running <= pool.max_workers(), "{s:?}");
                assert_eq!(s.workers as u64, s.spawned - s.retired, "{s:?}");
                assert!(pool.workers().len() <= pool.max_workers());
            }
        }
    }
}

fn judge<F>(outcome: Result<ledger::Value, DeadlineError<F>>, books: &Books, d: Duration) {
    let long = d > Duration::from_secs(1);
    match outcome {
        Ok(value) => value.arrived(),
        Err(DeadlineError::Panicked(panic)) => drop(panic),
        Err(DeadlineError::TimedOut) => {
            assert!(!long);
            books.timed_out();
        }
        Err(DeadlineError::Expired(f)) => {
            assert!(!long);
            ledger::defuse(f);
            books.handed_back(true);
        }
        Err(DeadlineError::Refused(refused)) => {
            ledger::defuse(refused);
            books.handed_back(true);
        }
    }
}

fuzz_target!(|input: Input| {
    let workers = 1 + usize::from(input.workers % 3);
    let pool = Pool::builder()
        .max_workers(workers)
        .queue_capacity(usize::from(input.queue % 4))
        .when_full(if input.blocks {
            WhenFull::Block
        } else {
            WhenFull::Refuse
        })
        .idle_timeout(match input.idle % 4 {
            0 => Duration::ZERO,
            1 => Duration::from_millis(1),
            2 => Duration::from_secs(10),
            _ => Duration::MAX,
        })
        .build()
        .expect("valid settings");
    let books = Arc::new(Books::default());
    thread::scope(|s| {
        let players = input.scripts.iter();
        let players: Vec<_> = players
            .map(|script| s.spawn(|| play(&pool, &books, script)))
            .collect();
        if let Some((when, mode)) = input.shutdown {
            thread::sleep(Duration::from_micros(u64::from(when) * 4));
            let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
            let report = pool.shutdown(modes[usize::from(mode % 3)], Duration::MAX);
            assert!(report.is_clean(), "{report:?}");
        }
        // A scope ends before its threads do; what they still hold would count as leaked.
        for player in players {
            player.join().expect("no script panics");
        }
    });
    let report = pool.shutdown(Shutdown::Drain, Duration::MAX);
    assert!(report.is_clean(), "{report:?}");
    books.check(&pool.stats(), workers);
});
