//! Pools, submissions to them, and gates that hold their tasks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use lazypool::{Awaitable, Builder, Group, Handle, Pool, Refused};

use super::gates::held;
use super::{saturated, settle, wait_until};

/// Returns a pool whose idle workers never retire.
pub fn pool(max: usize, queue: usize) -> Pool {
    pool_with(max, queue, |builder| builder)
}

/// Returns a pool with further settings. Its idle workers never retire, unless `set` says when.
pub fn pool_with(max: usize, queue: usize, set: impl FnOnce(Builder) -> Builder) -> Pool {
    let builder = Pool::builder().max_workers(max).queue_capacity(queue);
    let builder = builder.idle_timeout(Duration::MAX);
    set(builder).build().expect("pool")
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

/// Runs `n` tasks at once and waits until the pool is at rest.
#[track_caller]
pub fn run_at_once(pool: &Pool, n: usize) {
    let gate = Gate::new();
    occupy(pool, &gate, n);
    gate.open();
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
