//! The pools under test, and what each must be able to do.

mod channels;
mod lazy;
mod pools;
mod runtimes;

use crossbeam_channel::{bounded, Receiver, Sender};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

pub(crate) use lazy::{Guarded, Lazypool, Retrying, GUARDED, OURS, UNQUEUED};
pub(crate) use runtimes::TOKIO;

/// What pool a workload asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) workers: usize,
    /// Tasks that may wait, where the pool can bound them.
    pub(crate) queue: usize,
    /// Refuse when full, where the pool has to be told when it is built.
    pub(crate) refuse: bool,
    /// What a task needs of its deadline when it starts, where the pool asks for that.
    pub(crate) takes: Duration,
}

impl Shape {
    pub(crate) fn new(workers: usize, queue: usize) -> Self {
        Self {
            workers,
            queue,
            refuse: false,
            takes: Duration::ZERO,
        }
    }

    pub(crate) fn refusing(self) -> Self {
        Self {
            refuse: true,
            ..self
        }
    }
}

/// How a wait with a deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Called<R> {
    Value(R),
    /// There was no room.
    Refused,
    Late,
}

impl<R> Called<R> {
    fn of(value: Option<R>) -> Self {
        value.map_or(Self::Late, Self::Value)
    }
}

/// How ours can be used otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Unqueued,
    Retrying,
}

/// A pool under test, in its best documented configuration.
pub(crate) trait Contender: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// One of ours, not a peer.
    const OURS: bool = false;
    /// Ours under one more name, for the workloads where it makes a difference.
    const VARIANT: Option<Variant> = None;
    /// Can bound its queue and refuse.
    const BOUNDED: bool = false;
    /// Can do without a queue: a task is taken by an idle worker or refused.
    const UNQUEUED: bool = false;
    /// Can stop waiting for a value at a deadline with what it has of its own.
    const DEADLINE: bool = false;
    /// Has a future of a task's value.
    const AWAITABLE: bool = false;

    fn build(shape: Shape) -> Self;

    /// Fire and forget; waits for room where the queue is bounded.
    fn execute(&self, f: impl FnOnce() + Send + 'static);

    /// `n` times the same task.
    fn feed(&self, n: u64, f: impl FnOnce() + Clone + Send + 'static) {
        for _ in 0..n {
            self.execute(f.clone());
        }
    }

    /// Only if there is room at once.
    fn try_execute(&self, _: impl FnOnce() + Send + 'static) -> bool {
        unreachable!("only asked of a BOUNDED contender")
    }

    /// Runs `f` on a worker and waits for its value, no longer than `limit`.
    fn call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Option<R> {
        let (task, reply) = replying(f);
        self.execute(task);
        reply.recv_timeout(limit).ok()
    }

    /// The same, but refused at once where there is no room and the pool can say so.
    fn try_call<R: Send + 'static>(
        &self,
        f: impl FnOnce() -> R + Send + 'static,
        limit: Duration,
    ) -> Called<R> {
        if !Self::BOUNDED {
            return Called::of(self.call(f, limit));
        }
        let (task, reply) = replying(f);
        if self.try_execute(task) {
            Called::of(reply.recv_timeout(limit).ok())
        } else {
            Called::Refused
        }
    }

    /// Runs `f` on a worker and awaits its value, on the runtime of the caller.
    fn value<R: Send + 'static>(
        &self,
        _: impl FnOnce() -> R + Send + 'static,
    ) -> impl Future<Output = R> + Send {
        async { unreachable!("only asked of an AWAITABLE contender") }
    }

    /// Runs `f(0)` to `f(n - 1)` as `n` tasks and waits for all.
    fn batch(&self, n: usize, f: fn(usize)) {
        let latch = Latch::new(n);
        for i in 0..n {
            let latch = Arc::clone(&latch);
            self.execute(move || {
                f(i);
                latch.count_down();
            });
        }
        latch.wait();
    }
}

/// A task that sends its value: how one waits for a value, with a limit, where
/// a pool has nothing of its own for it.
fn replying<R: Send + 'static>(
    f: impl FnOnce() -> R + Send + 'static,
) -> (impl FnOnce() + Send + 'static, Receiver<R>) {
    let (tx, rx): (Sender<R>, _) = bounded(1);
    // A failed send: nobody waits any more.
    (move || drop(tx.send(f())), rx)
}

struct Latch {
    left: AtomicUsize,
    waiter: Thread,
}

impl Latch {
    fn new(n: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(n),
            waiter: thread::current(),
        })
    }

    fn count_down(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    fn wait(&self) {
        while self.left.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}

/// Something that is done with every contender.
pub(crate) trait Visitor {
    fn visit<C: Contender>(&mut self);
}

/// The registry: everybody who takes part, in the order of the tables.
pub(crate) fn visit_all(v: &mut impl Visitor) {
    v.visit::<Lazypool<true>>();
    v.visit::<Retrying>();
    v.visit::<Lazypool<false>>();
    v.visit::<channels::Crossbeam>();
    v.visit::<channels::Parkring>();
    v.visit::<pools::ParkringPool>();
    v.visit::<pools::Threadpool>();
    v.visit::<pools::RustyPool>();
    v.visit::<pools::Rayon>();
    v.visit::<pools::Threadfin>();
    v.visit::<runtimes::Tokio>();
    v.visit::<runtimes::Blocking>();
    v.visit::<runtimes::Affinitypool>();
}
