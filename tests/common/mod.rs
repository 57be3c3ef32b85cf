//! Helpers that the integration tests share: conditions to wait for, gates, ledgers, threads.
//!
//! No test here relies on time alone. Lower limits are exact, upper limits are generous, and a test
//! waits for each event that must happen.

// Each test binary compiles its own copy of this module and uses part of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

mod cut;
#[cfg(unix)]
pub mod fork;
pub mod futures;
pub mod gates;
mod ledger;
#[cfg(target_os = "linux")]
pub mod os;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use cut::cut;
use cut::limit;
use lazypool::{Awaitable, Group, Handle, Pool, Refusal, Refused, Stats};
pub use ledger::{Entry, Gauge, Inside, Ledger};

/// How long a condition may take before a test fails. Far longer than any healthy run needs.
pub const LIMIT: Duration = limit(30);

/// A stack size that no system can give to a thread. On 32 bits: one that is left in no process
/// whose memory is in use.
pub const IMPOSSIBLE_STACK: usize = if cfg!(target_pointer_width = "64") {
    (1_u64 << 46) as usize
} else {
    7 << 29
};

/// A deadline that never passes during a test.
pub const LONG: Duration = limit(600);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns `LAZYPOOL_STRESS`, the factor for the number of rounds, or 1 if it is not set.
pub fn stress() -> u64 {
    match std::env::var("LAZYPOOL_STRESS") {
        Ok(n) => n
            .parse()
            .expect("LAZYPOOL_STRESS must be a positive integer"),
        Err(_) => 1,
    }
}

/// Returns `n` rounds, multiplied by `LAZYPOOL_STRESS`; fewer under Miri.
pub fn rounds(n: u64) -> u64 {
    cut(n) * stress().max(1)
}

/// Waits until `cond` holds. Panics with `what` if that takes longer than [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, cond: impl FnMut() -> bool) {
    wait_within(LIMIT, what, cond);
}

/// Waits like [`wait_until`], with the given limit.
#[track_caller]
pub fn wait_within(limit: Duration, what: &str, mut cond: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut turns = 0_u32;
    while !cond() {
        assert!(
            start.elapsed() < limit,
            "waited {limit:?} in vain for {what}"
        );
        turns += 1;
        if turns < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

/// Runs `body` on another thread and fails if it hangs, so that one lost wake-up does not hang the
/// whole suite.
#[track_caller]
pub fn timed(body: impl FnOnce() + Send + 'static) {
    let limit = limit(120) * u32::try_from(stress().max(1)).expect("stress");
    let (done, ended) = mpsc::channel();
    let handle = thread::spawn(move || {
        let outcome = panic::catch_unwind(AssertUnwindSafe(body));
        // The receiver is gone only if the limit has passed.
        let _ = done.send(());
        outcome
    });
    match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs: not done in {limit:?}"),
        _ => match handle.join() {
            Ok(Ok(())) => {}
            Ok(Err(payload)) | Err(payload) => panic::resume_unwind(payload),
        },
    }
}

/// Returns a pool whose idle workers never retire.
pub fn pool(max: usize, queue: usize) -> Pool {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(Duration::MAX)
        .build()
        .expect("pool")
}

/// Drops the pool on another thread. The receiver gets a message when the drop returns.
pub fn drop_aside(pool: Pool) -> mpsc::Receiver<()> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(pool);
        done.send(()).unwrap_or(());
    });
    ended
}

/// Calls its closure when it is dropped.
pub struct OnDrop<F: FnOnce()>(pub Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Panics without calling the panic hook: no message, no backtrace, so thousands of panics are
/// cheap.
pub fn quiet_panic(message: &'static str) -> ! {
    panic::resume_unwind(Box::new(message))
}

/// A value whose drop panics.
#[derive(Debug)]
pub struct Bomb(pub &'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        // A second panic during an unwind aborts the process: that is a rule of the language.
        if !thread::panicking() {
            quiet_panic(self.0);
        }
    }
}

/// Holds tasks until it opens. It opens when it is dropped, so that a failing test does not hang.
///
/// Declare it after the pool: the pool's drop waits for the tasks that the gate holds.
#[derive(Debug, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    open: Mutex<bool>,
    opened: Condvar,
    entered: AtomicUsize,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn key(&self) -> Key {
        Key(Arc::clone(&self.0))
    }

    /// Returns a task that waits at the gate.
    pub fn task(&self) -> impl FnOnce() + Send + 'static {
        let key = self.key();
        move || key.pass()
    }

    pub fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }

    /// Returns a guard that opens the gate when it is dropped. Hold it inside a `thread::scope`,
    /// which would otherwise wait for the threads at the gate while a failed assertion unwinds.
    pub fn opener(&self) -> Opener<'_> {
        Opener(self)
    }

    /// Returns how many tasks have come to the gate so far.
    pub fn entered(&self) -> usize {
        self.0.entered.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn wait_entered(&self, n: usize) {
        wait_until("tasks at the gate", || self.entered() >= n);
        assert_eq!(self.entered(), n, "more tasks started than expected");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

#[derive(Debug)]
pub struct Opener<'a>(&'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[derive(Clone, Debug)]
pub struct Key(Arc<GateState>);

impl Key {
    pub fn pass(&self) {
        self.0.entered.fetch_add(1, Ordering::SeqCst);
        let mut open = self.0.open.lock().unwrap();
        while !*open {
            open = self.0.opened.wait(open).unwrap();
        }
    }

    pub fn is_open(&self) -> bool {
        *self.0.open.lock().unwrap()
    }
}

/// A small random number generator (xorshift64*) whose numbers depend only on the seed.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Uses the CPU for about `d`.
pub fn spin(d: Duration) {
    let start = Instant::now();
    while start.elapsed() < d {
        std::hint::spin_loop();
    }
}

/// Waits until no task runs or is queued, then returns the pool's statistics.
#[track_caller]
pub fn settle(pool: &Pool) -> Stats {
    wait_until("the pool to come to rest", || {
        let s = pool.stats();
        // A worker that is being started, or that ends, is in `workers` and not in `idle`.
        s.running == 0 && s.queued == 0 && s.idle == s.workers
    });
    pool.stats()
}

/// Waits until no worker is being started or ends. Until then such a worker counts as busy.
#[track_caller]
pub fn await_started(pool: &Pool) {
    wait_until("workers to be started", || {
        let s = pool.stats();
        s.idle + s.running == s.workers
    });
}

/// Checks the invariants of law 9 that hold at every moment.
#[track_caller]
pub fn check_moment(pool: &Pool, s: &Stats) {
    let r = s.refusals;
    let by_state = r.saturated + r.closed + r.cancelled + r.spawn_failed + r.expired;
    let by_place = r.on_worker + r.forked + r.group_full;
    assert_eq!(s.refused, by_state + by_place, "{s:?}");
    assert!(s.abandoned <= s.running, "{s:?}");
    let max = pool.max_workers();
    assert!(
        s.spawned >= s.retired && s.workers as u64 == s.spawned - s.retired,
        "workers = spawned - retired: {s:?}"
    );
    assert!(s.running <= max, "running <= max_workers {max}: {s:?}");
    assert!(s.idle <= s.workers, "idle <= workers: {s:?}");
    assert!(s.workers <= max, "workers <= max_workers {max}: {s:?}");
    assert!(s.peak_workers <= max, "peak <= max_workers {max}: {s:?}");
    assert!(
        s.queued <= pool.queue_capacity(),
        "queued <= queue_capacity: {s:?}"
    );
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    assert!(
        ended <= s.accepted,
        "an ending before its acceptance: {s:?}"
    );
    // A counter that went below zero shows as a number that no test reaches.
    let most = u64::MAX / 2;
    for n in [
        s.accepted,
        s.refused,
        s.completed,
        s.panicked,
        s.expired,
        s.discarded,
        s.timed_out,
        s.spawned,
        s.retired,
        s.spawn_failures,
        s.hook_panics,
    ] {
        assert!(n < most, "underflow: {s:?}");
    }
}

/// Checks law 9's balance, which holds while no call is under way.
#[track_caller]
pub fn check_at_rest(pool: &Pool, s: &Stats) {
    check_moment(pool, s);
    assert_eq!(
        s.accepted,
        s.completed + s.panicked + s.expired + s.discarded + s.queued as u64 + s.running as u64,
        "the ledger does not balance: {s:?}"
    );
}

/// Checks that the whole cap is usable: the pool accepts exactly `max_workers + queue_capacity`
/// tasks, runs `max_workers` of them at once and refuses the next.
#[track_caller]
pub fn assert_cap_usable(pool: &Pool) {
    let gate = Gate::new();
    let before = settle(pool);
    let cap = pool.max_workers() + pool.queue_capacity();
    for i in 0..cap {
        if let Err(refused) = pool.serve(gate.task()) {
            panic!("task {i} of {cap} refused: {refused}; {:?}", pool.stats());
        }
    }
    let refused = pool
        .serve(gate.task())
        .expect_err("the task beyond the cap is refused");
    assert!(refused.is_saturated(), "{refused:?}");
    drop(refused);
    wait_until("every worker to take a task", || {
        gate.entered() == pool.max_workers()
    });
    let s = pool.stats();
    assert_eq!(s.running, pool.max_workers(), "{s:?}");
    assert_eq!(s.queued, pool.queue_capacity(), "{s:?}");
    gate.open();
    let after = settle(pool);
    assert_eq!(after.completed - before.completed, cap as u64, "{after:?}");
}

/// Serves the task. Panics with the reason if the pool refuses it.
#[track_caller]
pub fn must_serve<F>(pool: &Pool, task: F)
where
    F: FnOnce() + Send + 'static,
{
    if let Err(refused) = pool.serve(task) {
        panic!("refused: {refused}; {:?}", pool.stats());
    }
}

/// Serves the task in a group. Panics with the reason if the group refuses it.
#[track_caller]
pub fn must_serve_in(group: &Group, task: impl FnOnce() + Send + 'static) {
    if let Err(refused) = group.serve(task) {
        panic!("refused: {refused}; {group:?}");
    }
}

/// Serves a task for which there must be room, and returns its handle.
#[track_caller]
pub fn must_await<F, R>(on: Awaitable<'_>, f: F) -> Handle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    on.serve(f).map_err(Refused::without_closure).expect("room")
}

/// Returns a pool of one worker, which is occupied by a task at the gate.
pub fn occupied(gate: &Gate, queue: usize) -> Pool {
    let pool = pool(1, queue);
    must_serve(&pool, gate.task());
    gate.wait_entered(1);
    pool
}

/// Returns the refusal. Panics if its reason is not `Saturated`.
#[track_caller]
pub fn saturated<F>(outcome: Result<(), Refused<F>>) -> Refused<F> {
    match outcome {
        Err(refused) if refused.is_saturated() => refused,
        Err(refused) => panic!("expected Saturated, got {refused:?}"),
        Ok(()) => panic!("expected Saturated, got Ok"),
    }
}

/// Returns the refusal. Panics if its reason is not `OnWorker`.
#[track_caller]
pub fn nested<F>(outcome: Result<(), Refused<F>>) -> Refused<F> {
    match outcome {
        Err(refused) if matches!(refused.reason(), Refusal::OnWorker) => refused,
        Err(refused) => panic!("expected OnWorker, got {refused:?}"),
        Ok(()) => panic!("expected OnWorker, got Ok"),
    }
}

/// Returns a number that no other call in this process returns.
pub fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs `body` in another process, in which only this test has threads.
///
/// `name` is the test's own name: the process runs this test binary again with only that test.
#[track_caller]
pub fn isolated(name: &str, body: impl FnOnce() + Send + 'static) {
    const VAR: &str = "LAZYPOOL_ISOLATED";
    if std::env::var(VAR).is_ok_and(|inside| inside == name) {
        return timed(body);
    }
    let output = std::process::Command::new(std::env::current_exe().expect("current_exe"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(VAR, name)
        .output()
        .expect("this test binary again");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} on its own: {}\n{stdout}\n{stderr}",
        output.status
    );
}
