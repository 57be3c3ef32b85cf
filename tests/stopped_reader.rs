//! Laws 3 and 20: no submission waits for a thread that reads the pool's figures, wherever that
//! thread is stopped. Here a signal stops it, as the system may stop a thread of low priority.
#![cfg(target_os = "linux")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{DeadlineError, Pool, Shutdown, WhenFull};

/// How long a reader stays stopped if it is not let go.
const STOPPED: Duration = limit(5);
/// How long a call may take meanwhile: many times as long as it needs.
const MOST: Duration = ms(STOPPED.as_millis() as u64 / 10);

/// A machine that is too busy for all rounds of a case makes fewer, after this long.
const LASTS: Duration = Duration::from_secs(4);

/// The number of times that the reader has been stopped, and has been let go.
static STOPS: AtomicU64 = AtomicU64::new(0);
static GOES: AtomicU64 = AtomicU64::new(0);
/// The number of times that the reader has read.
static READS: AtomicU64 = AtomicU64::new(0);

/// Stops the thread. Calls only functions that a signal handler may call.
extern "C" fn stop(_: libc::c_int) {
    let start = Instant::now();
    let stops = STOPS.fetch_add(1, Ordering::SeqCst) + 1;
    while GOES.load(Ordering::SeqCst) < stops && start.elapsed() < STOPPED {
        thread::yield_now();
    }
}

/// Calls `read` in a loop on another thread. Stops that thread up to `rounds` times, each time wherever
/// it is, and calls `call`. Fails if a call takes longer than `MOST`.
fn beside_a_stopped_reader(pool: &Arc<Pool>, rounds: u64, read: Read, call: impl Fn(&Pool)) {
    // SAFETY: the action is all zeros but for its handler, which calls only functions that a
    // handler may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
    STOPS.store(0, Ordering::SeqCst);
    GOES.store(0, Ordering::SeqCst);
    let over = Arc::new(AtomicBool::new(false));
    let (ends, (tell, told)) = (Arc::clone(&over), std::sync::mpsc::channel());
    let reader = beside(pool, move |pool| {
        // SAFETY: this call has no conditions.
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        while !ends.load(Ordering::SeqCst) {
            read(pool);
            READS.fetch_add(1, Ordering::SeqCst);
        }
    });
    let thread = told.recv().unwrap();
    let mut worst = Duration::ZERO;
    let mut rng = Rng::new(7);
    let began = Instant::now();
    for round in 1..=rounds {
        // The reader goes on, up to an arbitrary point of a later call.
        let reads = READS.load(Ordering::SeqCst);
        while READS.load(Ordering::SeqCst) < reads + 2 {
            thread::yield_now();
        }
        (0..rng.below(2_000)).for_each(|_| std::hint::spin_loop());
        // SAFETY: the thread runs until `over` is set.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        while STOPS.load(Ordering::SeqCst) < round {
            thread::yield_now();
        }
        let start = Instant::now();
        call(pool);
        worst = start.elapsed().max(worst);
        GOES.store(round, Ordering::SeqCst);
        if worst > MOST || began.elapsed() > LASTS {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    assert!(
        worst <= MOST,
        "a call took {worst:?} beside a stopped reader"
    );
}

/// Calls with a short deadline, whose worker exists.
fn call(pool: &Pool, label: Option<&'static str>) {
    let on = match label {
        Some(label) => pool.labeled(label),
        None => pool.when_full(WhenFull::Refuse),
    };
    let outcome = on.do_with_deadline(|| (), ms(1));
    match outcome {
        Ok(()) | Err(DeadlineError::Expired(_) | DeadlineError::TimedOut) => {}
        other => unexpected("an outcome within the deadline", other),
    }
}

type Read = fn(&Pool);

const READS_OF: [(&str, Read); 3] = [
    ("workers", |pool| drop(pool.workers())),
    ("stats", |pool| _ = pool.stats()),
    ("limit", |pool| _ = pool.limit()),
];

/// Law 3: a call to an idle worker returns at its deadline, labeled or not, with ages or without.
#[test]
fn law03_a_call_does_not_wait_for_a_stopped_reader() {
    let cases = product([false, true], [None, Some("label")]);
    isolated_each(product(READS_OF, cases), |((_, read), (ages, label))| {
        let pool = pool_with(1, 1, |b| b.min_workers(1).track_ages(ages));
        beside_a_stopped_reader(&Arc::new(pool), 500, read, |pool| call(pool, label));
    });
}

/// Law 20: nor does a submission wait that starts a thread, while workers come and go.
#[test]
fn law20_a_thread_start_does_not_wait_for_a_stopped_reader() {
    isolated_each(READS_OF, |(_, read)| {
        let pool = Arc::new(pool_with(64, 0, |b| b.idle_timeout(Duration::ZERO)));
        must_serve(&pool, || ());
        beside_a_stopped_reader(&pool, 500, read, |pool| must_serve(pool, || ()));
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}
