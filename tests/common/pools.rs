//! Pools, submissions to them, and gates that hold their tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lazypool::{Awaitable, Builder, Group, Handle, Pool, Refused, Shutdown};

use super::gates::{after, builder, held, on_drop};
use super::{saturated, settle, wait_until, OnDrop, Rng};

/// Returns a pool whose idle workers never retire.
pub fn pool(max: usize, queue: usize) -> Pool {
    pool_with(max, queue, |builder| builder)
}

/// Returns a pool with further settings. Its idle workers never retire, unless `set` says when.
pub fn pool_with(max: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Pool {
    set(builder(max, queue)).build().expect("pool")
}

/// Returns a pool of one worker, which is occupied by a task at the gate.
pub fn occupied(gate: &Gate, queue: usize) -> Pool {
    let pool = pool(1, queue);
    occupy(&pool, gate, 1);
    pool
}

/// Returns a pool of one worker with a full queue, and the gate at which the worker's task waits.
///
/// Bind both in one pattern, so that the gate is dropped before the pool.
pub fn full(queue: usize) -> (Arc<Pool>, Gate) {
    let (pool, gate) = held(queue);
    (0..queue).for_each(|_| must_serve(&pool, || ()));
    saturated(pool.serve(|| ()));
    (pool, gate)
}

/// Occupies `n` workers with tasks at the gate.
#[track_caller]
pub fn occupy(pool: &Pool, gate: &Gate, n: usize) {
    let before = gate.entered();
    (0..n).for_each(|_| must_serve(pool, gate.task()));
    gate.wait_entered(before + n);
}

/// Occupies `n` workers with tasks, and returns the gate at which they wait.
#[track_caller]
pub fn hold(pool: &Pool, n: usize) -> Gate {
    let gate = Gate::new();
    occupy(pool, &gate, n);
    gate
}

/// Runs `n` tasks at once and waits until the pool is at rest.
#[track_caller]
pub fn run_at_once(pool: &Pool, n: usize) {
    hold(pool, n).open();
    settle(pool);
}

/// Drops the pool on another thread. The receiver gets a message when the drop returns.
pub fn drop_aside(pool: impl Send + 'static) -> mpsc::Receiver<()> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        drop(pool);
        done.send(()).unwrap_or(());
    });
    ended
}

/// Runs `f` with the pool on another thread.
pub fn beside<T: Send + 'static>(
    pool: &Arc<Pool>,
    f: impl FnOnce(&Pool) -> T + Send + 'static,
) -> JoinHandle<T> {
    let pool = Arc::clone(pool);
    thread::spawn(move || f(&pool))
}

/// Runs `body` on `n` threads at once, with the number of each and random numbers of its own.
pub fn on_threads(n: usize, body: impl Fn(usize, Rng) + Sync) {
    let body = &body;
    thread::scope(|s| {
        for me in 0..n {
            s.spawn(move || body(me, Rng::new(me as u64)));
        }
    });
}

/// Discards queued tasks: by a shutdown, or by a cancel of their group.
pub fn discard_queued(by_shutdown: bool, pool: &Pool, group: &Group) {
    if by_shutdown {
        pool.shutdown(Shutdown::Discard, Duration::ZERO);
    } else {
        group.cancel();
    }
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

/// Serves a task for which there must be space, and returns its handle.
#[track_caller]
pub fn must_await<F, R>(on: Awaitable<'_>, f: F) -> Handle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    on.serve(f)
        .map_err(Refused::without_closure)
        .expect("space")
}

/// Serves a task that waits at the gate and then calls `f`. Waits until it is there.
#[track_caller]
pub fn occupy_then(pool: &Pool, gate: &Gate, f: impl FnOnce() + Send + 'static) {
    let before = gate.entered();
    must_serve(pool, after(gate, f));
    gate.wait_entered(before + 1);
}

/// Serves a task like [`occupy_then`], and returns its handle.
#[track_caller]
pub fn await_then<R: Send + 'static>(
    on: Awaitable<'_>,
    gate: &Gate,
    f: impl FnOnce() -> R + Send + 'static,
) -> Handle<R> {
    let before = gate.entered();
    let handle = must_await(on, after(gate, f));
    gate.wait_entered(before + 1);
    handle
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

    /// Returns a hook of workers that waits at the gate.
    pub fn hook(&self) -> impl Fn(usize) + Send + Sync + 'static {
        let key = self.key();
        move |_| key.pass()
    }

    /// Returns a hook that waits at the gate if the worker has this slot.
    pub fn hook_of(&self, slot: usize) -> impl Fn(usize) + Send + Sync + 'static {
        let key = self.key();
        move |its| {
            if its == slot {
                key.pass();
            }
        }
    }

    pub fn is_open(&self) -> bool {
        *self.0.open.lock().unwrap()
    }

    pub fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.opened.notify_all();
    }

    /// Returns a guard that opens the gate when it is dropped. Hold it inside a `thread::scope`,
    /// which would otherwise wait for the threads at the gate while a failed assertion unwinds.
    pub fn opener(&self) -> OnDrop<impl FnOnce() + '_> {
        on_drop(|| self.open())
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
