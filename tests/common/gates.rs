//! Set-ups that many tests share: full pools, values whose drop acts, hooks that use their own
//! pool.

use std::cell::RefCell;
use std::sync::{mpsc, Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use super::{await_started, ms, must_serve, occupied, pool, pool_with, wait_until};
use super::{unexpected, Gate, OnDrop, LIMIT};
use lazypool::{Builder, DeadlineError, Pool, Shutdown};

pub const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

/// Returns the settings of [`pool`].
pub fn builder(max: usize, queue: usize) -> Builder {
    Pool::builder()
        .max_workers(max)
        .queue_capacity(queue)
        .idle_timeout(Duration::MAX)
}

/// Submits as many tasks as the pool has space for. Each task waits at the gate.
#[track_caller]
pub fn burst(pool: &Pool, gate: &Gate) {
    for _ in 0..pool.max_workers() + pool.queue_capacity() {
        must_serve(pool, gate.task());
    }
}

/// Fills the pool with tasks at the gate, and waits until each worker runs one.
#[track_caller]
pub fn fill(pool: &Pool, gate: &Gate) {
    burst(pool, gate);
    gate.wait_entered(pool.max_workers());
}

/// Fills the pool like [`fill`], and returns the gate at which the tasks wait.
#[track_caller]
pub fn filled(pool: &Pool) -> Gate {
    let gate = Gate::new();
    fill(pool, &gate);
    gate
}

/// Returns a pool whose hooks may wait at a gate, and the gate.
///
/// Bind both in one pattern, so that the gate is dropped before the pool.
pub fn gated(max: usize, queue: usize, set: fn(Builder, &Gate) -> Builder) -> (Pool, Gate) {
    let gate = Gate::new();
    (pool_with(max, queue, |b| set(b, &gate)), gate)
}

/// Returns a pool of one worker, and the gate at which its task waits.
///
/// Bind both in one pattern, so that the gate is dropped before the pool.
pub fn held(queue: usize) -> (Arc<Pool>, Gate) {
    let gate = Gate::new();
    (Arc::new(occupied(&gate, queue)), gate)
}

/// Returns a pool of one worker, whose task ends once all clones of the sender are dropped.
pub fn until_unsent(queue: usize) -> (Arc<Pool>, mpsc::Sender<()>) {
    let pool = Arc::new(pool(1, queue));
    let (stop, stopped) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    must_serve(&pool, move || {
        tell.send(()).unwrap();
        let _ = stopped.recv();
    });
    told.recv().unwrap();
    (pool, stop)
}

/// Waits until `n` submissions wait for space.
#[track_caller]
pub fn wait_in_line(pool: &Pool, n: usize) {
    wait_until("submissions to wait", || pool.stats().waiting == n);
}

/// Returns a task that waits at the gate, then calls `f`.
pub fn after<R>(
    gate: &Gate,
    f: impl FnOnce() -> R + Send + 'static,
) -> impl FnOnce() -> R + Send + 'static {
    let key = gate.key();
    move || {
        key.pass();
        f()
    }
}

/// Returns a value that calls `f` when it is dropped.
pub fn on_drop<F: FnOnce()>(f: F) -> OnDrop<F> {
    OnDrop(Some(f))
}

/// Returns a task whose captures call `f` when they are dropped.
pub fn dropping(f: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let capture = on_drop(f);
    move || drop(capture)
}

type AtEnd = OnDrop<Box<dyn FnOnce()>>;

thread_local!(static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) });

/// Lets the thread-local destructors of this thread call `f`.
pub fn at_thread_end(f: impl FnOnce() + 'static) {
    AT_END.set(Some(OnDrop(Some(Box::new(f)))));
}

/// Returns a figure in KiB of `/proc/self/status`.
#[cfg(target_os = "linux")]
pub fn memory(figure: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix(figure));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.expect("a figure").parse().expect("a number")
}

/// Returns the next message.
#[track_caller]
pub fn arrives<T>(what: &str, rx: &mpsc::Receiver<T>) -> T {
    match rx.recv_timeout(LIMIT) {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Runs `f` on another thread and returns its result. Fails if `f` does not return.
#[track_caller]
pub fn returns<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = mpsc::channel();
    thread::spawn(move || tx.send(f()));
    arrives(what, &rx)
}

/// A pool as seen by its own hooks.
#[derive(Clone, Debug, Default)]
pub struct Own(Arc<OnceLock<Weak<Pool>>>);

impl Own {
    pub fn build(&self, builder: Builder) -> Arc<Pool> {
        let pool = Arc::new(builder.build().expect("pool"));
        self.0.set(Arc::downgrade(&pool)).expect("built once");
        pool
    }

    /// Waits until `build` has returned. Returns `None` if the pool is gone.
    pub fn get(&self) -> Option<Arc<Pool>> {
        wait_until("the pool to be built", || self.0.get().is_some());
        self.0.get()?.upgrade()
    }
}

/// Runs `f` on a worker of the pool and returns its result.
#[track_caller]
pub fn on_worker<R: Send + 'static>(
    pool: &Arc<Pool>,
    f: impl FnOnce(&Pool) -> R + Send + 'static,
) -> R {
    // Weak, so that the worker does not drop the last handle.
    let own = Arc::downgrade(pool);
    let outcome = pool.do_with_deadline(move || f(&own.upgrade().unwrap()), Duration::MAX);
    outcome.unwrap()
}

/// Calls until a worker has started the task and the caller has left at its deadline.
#[track_caller]
pub fn abandon<F, R>(pool: &Pool, make: impl Fn() -> F)
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    loop {
        match pool.do_with_deadline(make(), ms(50)) {
            Err(DeadlineError::TimedOut) => return,
            Err(DeadlineError::Expired(_)) => await_started(pool),
            other => unexpected("a time-out", other),
        }
    }
}
