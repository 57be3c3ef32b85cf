//! Laws 20 and 22: a long line of threads and futures, and events beside it. See `serve_async.rs`
//! for how a single future waits.

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{Group, Handle, Pool, Refused, ServeAsync, Shutdown, WhenFull};

const THREADS: usize = if cfg!(miri) { 3 } else { 49 };
const FUTURES: usize = cut(9_800) as usize;
const ALL: usize = THREADS + FUTURES;

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Space,
    Close,
    /// The cancel of a group with every second one in line.
    Cancel,
}

/// Laws 20 and 22: threads and futures in line get space in order, although no future is polled
/// meanwhile. A shutdown answers all of them at once, while the worker is still busy. The cancel of
/// a group does so for its own submissions; the others keep their order.
#[test]
fn law20_law22_a_crowd_in_line() {
    use End::{Cancel, Close, Space};
    let cases = [(Space, 0), (Space, 3), (Close, 0), (Cancel, 0)];
    timed_each(cases, |(end, queue)| {
        let (pool, gate) = full(queue);
        let group = pool.when_full(WhenFull::Block).group();
        let (ledger, order) = (Ledger::new(ALL), Arc::new(Mutex::new(Vec::new())));
        let (count, waker) = counted();
        let (mut threads, mut futures) = (Vec::new(), Vec::new());
        for id in 0..ALL {
            let (run, order) = (ledger.task(id), Arc::clone(&order));
            let task = move || {
                run();
                order.lock().unwrap().push(id);
            };
            let group = (id % 2 == 0).then(|| group.clone());
            if id % (ALL / THREADS) == 0 && threads.len() < THREADS {
                let thread = beside(&pool, move |pool| match group {
                    Some(group) => group.serve(task).map_err(Refused::without_closure),
                    None => (pool.when_full(WhenFull::Block).serve(task))
                        .map_err(Refused::without_closure),
                });
                threads.push((id, thread));
            } else {
                let on = group.as_ref().map_or(pool.awaitable(), Group::awaitable);
                futures.push((id, pending(on.serve_async(task), &waker)));
            }
            wait_in_line(&pool, id + 1);
        }
        assert_eq!(group.pending(), ALL.div_ceil(2));
        let why = |id| match end {
            Space => None,
            Close => Some("closed"),
            Cancel => (id % 2 == 0).then_some("cancelled"),
        };
        let wanted: Vec<usize> = (0..ALL).filter(|id| why(*id).is_none()).collect();
        match end {
            Space => {}
            Close => {
                let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
                assert_eq!(report.stragglers.len(), 1);
                assert_eq!(count.woken(), FUTURES);
            }
            Cancel => group.cancel(),
        }
        assert_eq!(pool.stats().waiting, wanted.len());
        if end != Space {
            group.wait();
        }
        gate.open();
        wait_until("the tasks to run", || {
            order.lock().unwrap().len() == wanted.len()
        });
        assert_eq!(*order.lock().unwrap(), wanted);
        group.wait();
        // The last waker may still be about to be called.
        wait_until("all wakers to be called", || count.woken() == FUTURES);
        // The futures that are not polled again keep no wait from ending.
        let left = if end == Space { FUTURES / 50 } else { 0 };
        let _unpolled: Vec<_> = futures.drain(..left).collect();
        let of_threads = threads.into_iter().map(|(id, t)| (id, t.join().unwrap()));
        let of_futures = futures.into_iter().map(|(id, future)| {
            let served = block_on(future).map(Handle::detach);
            (id, served.map_err(Refused::without_closure))
        });
        for (id, answer) in of_futures.chain(of_threads) {
            let got = answer.err().map(|refused| refused.reason().as_str());
            assert_eq!(got, why(id), "{id}");
        }
        for id in 0..ALL {
            assert_eq!(ledger.fate(id), (why(id).is_none().into(), 1), "{id}");
        }
        // One refusal is by `full`.
        let (refused, completed) = (1 + ALL - wanted.len(), 1 + queue + wanted.len());
        assert_stats!(at_rest(&pool), waiting: 0, refused: refused as u64,
            completed: completed as u64);
    });
}

type Awaited = Pin<Box<ServeAsync<fn(), ()>>>;

/// A future in line, and its waker, which acts like an executor that polls inline: it polls the
/// future, and then a second one of the same kind.
struct Chain {
    pool: Arc<Pool>,
    served: Arc<Mutex<Vec<Handle<()>>>>,
    awaited: Mutex<Option<Awaited>>,
    left: Mutex<u32>,
}

impl Wake for Chain {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut awaited = self.awaited.lock().unwrap();
        while let Some(future) = awaited.as_mut() {
            let Poll::Ready(served) = future.as_mut().poll(&mut Context::from_waker(&waker)) else {
                return;
            };
            let handle = served.expect("the pool is open");
            self.served.lock().unwrap().push(handle);
            let mut left = self.left.lock().unwrap();
            *left -= 1;
            let next = || Box::pin(self.pool.awaitable().serve_async(nothing as fn()));
            *awaited = (*left > 0).then(next);
        }
    }
}

fn nothing() {}

/// Law 22: the stack of the thread that makes the space does not grow with the length of the line,
/// even if each waker submits at once.
#[test]
fn law22_wakers_that_submit_are_not_nested() {
    const CHAINS: usize = 4_000;
    let body = || {
        let (pool, gate) = held(2 * CHAINS);
        let filling = pool.group();
        (0..2 * CHAINS).for_each(|_| must_serve_in(&filling, || ()));
        let served = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..CHAINS {
            let first = Box::pin(pool.awaitable().serve_async(nothing as fn()));
            let chain = Arc::new(Chain {
                pool: Arc::clone(&pool),
                served: Arc::clone(&served),
                awaited: Mutex::new(Some(first)),
                left: Mutex::new(2),
            });
            chain.wake();
        }
        assert_eq!(pool.stats().waiting, CHAINS);
        // All space at once. The first round of wakers submits the second round.
        filling.cancel();
        let accepted = || served.lock().unwrap().len();
        wait_until("both rounds to be accepted", || accepted() == 2 * CHAINS);
        gate.open();
        for handle in std::mem::take(&mut *served.lock().unwrap()) {
            handle.join().unwrap();
        }
        assert_eq!(pool.stats().completed, 2 * CHAINS as u64 + 1);
    };
    let thread = thread::Builder::new().stack_size(256 << 10).spawn(body);
    thread.unwrap().join().unwrap();
}

/// What happens to the first of the futures that own one another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Dropped,
    Accepted,
    Closed,
    Cancelled,
}

/// Law 10: futures in line, each captured by the closure of the one before, are dropped with the
/// first of them. The stack does not grow with their number, whether they still wait, have been
/// refused, or the first one has been accepted.
#[test]
fn law10_futures_in_line_that_own_one_another() {
    const CHAIN: usize = cut(100_000) as usize;
    use Fate::{Accepted, Cancelled, Closed, Dropped};
    isolated_each([Dropped, Accepted, Closed, Cancelled], |fate| {
        let (pool, gate) = held(0);
        let (group, drops) = (pool.group(), Tally::default());
        let mut first = None::<Box<dyn std::any::Any + Send>>;
        for _ in 0..CHAIN {
            let (next, tally) = (first.take(), drops.clone());
            let capture = on_drop(move || {
                tally.add(1);
                drop(next);
            });
            let future = group.awaitable().serve_async(move || drop(capture));
            first = Some(Box::new(pending(future, Waker::noop())));
        }
        assert_eq!(pool.stats().waiting, CHAIN);
        match fate {
            Dropped => {}
            // The last one in line was made first: it runs, and then its handle is dropped.
            Accepted => gate.open(),
            Closed => _ = pool.shutdown(Shutdown::Discard, Duration::ZERO),
            Cancelled => group.cancel(),
        }
        drop(first);
        gate.open();
        group.wait();
        wait_until("all captures to be dropped", || drops.get() == CHAIN as u64);
        assert_eq!(pool.stats().waiting, 0);
    });
}

/// Puts `n` futures in the line of a full pool, and calls `joined` with the time that each took.
fn long_line(
    pool: &Pool,
    n: usize,
    mut joined: impl FnMut(usize, Duration),
) -> Vec<Option<impl Sized>> {
    let mut futures = Vec::with_capacity(n);
    for n in 0..n {
        let future = pool.awaitable().serve_async(nothing);
        let start = Instant::now();
        futures.push(Some(pending(future, Waker::noop())));
        joined(n, start.elapsed());
    }
    futures
}

/// Law 20: to leave the line takes at most the logarithm of its length. Many futures that are
/// dropped in random order take about as long as those that are dropped in the order of the line.
#[test]
fn law20_futures_leave_a_long_line_in_any_order() {
    const ALL: usize = cut(200_000) as usize;
    timed(|| {
        let (pool, _gate) = held(0);
        let leave = |order: &[usize], limit: Duration| {
            let mut futures = long_line(&pool, ALL, |_, _| ());
            let start = Instant::now();
            for (n, place) in order.iter().enumerate() {
                drop(futures[*place].take());
                let took = start.elapsed();
                assert!(took < limit, "{n} of {ALL} took {took:?}");
            }
            assert_eq!(pool.stats().waiting, 0);
            start.elapsed()
        };
        let mut order: Vec<usize> = (0..ALL).collect();
        let expected = leave(&order, LIMIT).min(leave(&order, LIMIT));
        let mut rng = Rng::new(8);
        (1..ALL).for_each(|n| order.swap(n, rng.below(n as u64 + 1) as usize));
        leave(&order, 10 * expected + ms(300));
    });
}

/// Law 20: to join a long line, and to give space to the first in line, is quick every time: the
/// line's tables do not grow while its lock is held. The machine may be slow at any time, but
/// hardly at the same future three times.
#[test]
fn law20_no_step_of_a_long_line_takes_long() {
    const ALL: usize = cut(120_000) as usize;
    isolated(|| {
        let [mut join, mut serve] = [(); 2].map(|()| vec![LIMIT; ALL]);
        for _ in 0..3 {
            let (pool, _gate) = held(ALL);
            let queued = (0..ALL).map(|_| must_await(pool.awaitable(), || ()));
            let queued = Vec::from_iter(queued);
            let futures = long_line(&pool, ALL, |n, took| join[n] = took.min(join[n]));
            // Each cancel makes space for one task. No future is polled.
            for (n, handle) in queued.iter().enumerate() {
                let start = Instant::now();
                handle.cancel();
                serve[n] = start.elapsed().min(serve[n]);
            }
            assert_eq!(pool.stats().waiting, 0);
            drop(futures);
        }
        for (least, what) in [(join, "joined"), (serve, "was served")] {
            let (n, worst) = (least.iter().enumerate())
                .max_by_key(|(_, took)| **took)
                .unwrap();
            let longest = if cfg!(miri) {
                ms(1_000)
            } else {
                limit(2) / 1_000
            };
            assert!(*worst < longest, "future {n} {what} in {worst:?}");
        }
    });
}
