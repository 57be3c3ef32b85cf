//! Pools, submissions to them, and workers that are kept busy.

use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use lazypool::{Awaitable, Builder, Group, Handle, Pool, Refused};

use super::gates::held;
use super::{saturated, settle, Gate};

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
