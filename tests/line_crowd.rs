//! Law 20: a long line of threads and futures, and events beside it. See `serve_async.rs` for its
//! order, and for how a single future waits.

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::*;
use lazypool::{Group, Handle, Pool, Refused, ServeAsync, Shutdown, WhenFull};

const THREADS: usize = if cfg!(miri) { 3 } else { 200 };
const FUTURES: usize = cut(9_800) as usize;
const ALL: usize = THREADS + FUTURES;

type Task = Box<dyn FnOnce() + Send>;
type Submitted = Result<(), Refused<()>>;

/// Threads and futures in line, alternately. Every second one is in the group. All of their tasks
/// are in the ledger.
struct Crowd {
    group: Group,
    threads: Vec<(usize, JoinHandle<Submitted>)>,
    futures: Vec<(usize, ServeAsync<Task, ()>)>,
    count: Arc<Count>,
    ledger: Ledger,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Crowd {
    /// Lets all of them wait for space in a pool that is full.
    fn wait(pool: &Arc<Pool>) -> Self {
        let (count, waker) = counted();
        let mut crowd = Self {
            group: pool.when_full(WhenFull::Block).group(),
            threads: Vec::new(),
            futures: Vec::new(),
            count,
            ledger: Ledger::new(ALL),
            order: Arc::default(),
        };
        for id in 0..ALL {
            let (run, order) = (crowd.ledger.task(id), Arc::clone(&crowd.order));
            let task: Task = Box::new(move || {
                run();
                order.lock().unwrap().push(id);
            });
            let (its, group) = (Arc::clone(pool), crowd.group.clone());
            if id % (ALL / THREADS) == 0 && crowd.threads.len() < THREADS {
                let serve = move || {
                    let served = match id % 2 {
                        0 => group.serve(task),
                        _ => its.when_full(WhenFull::Block).serve(task),
                    };
                    served.map_err(Refused::without_closure)
                };
                let builder = thread::Builder::new().stack_size(128 * 1024);
                let thread = builder.spawn(serve).expect("a thread");
                crowd.threads.push((id, thread));
            } else {
                let on = [group.awaitable(), its.awaitable()][id % 2];
                let future = pending(on.serve_async(task), &waker);
                crowd.futures.push((id, future));
            }
            wait_in_line(pool, id + 1);
        }
        crowd
    }

    fn ran(&self) -> usize {
        self.order.lock().unwrap().len()
    }

    /// Takes all answers, which are there already or arrive without a poll. Tasks with handles run
    /// on.
    fn answers(&mut self) -> Vec<(usize, Submitted)> {
        let (threads, futures) = (self.threads.drain(..), self.futures.drain(..));
        let of_threads = threads.map(|(id, thread)| (id, thread.join().expect("no panic")));
        let of_futures = futures.map(|(id, future)| {
            let served = block_on(future).map(Handle::detach);
            (id, served.map_err(Refused::without_closure))
        });
        of_futures.chain(of_threads).collect()
    }
}

/// All tasks in line get space in order, although no future is polled meanwhile.
#[test]
fn law20_a_crowd_is_served_in_order() {
    timed(|| {
        let (pool, gate) = held(0);
        let mut crowd = Crowd::wait(&pool);
        gate.open();
        wait_until("all tasks to run", || crowd.ran() == ALL);
        assert!(crowd.order.lock().unwrap().iter().copied().eq(0..ALL));
        crowd.group.wait();
        // The last waker may still be about to be called.
        wait_until("all wakers to be called", || crowd.count.woken() == FUTURES);
        assert!(crowd.answers().iter().all(|(_, answer)| answer.is_ok()));
        assert_stats!(settle(&pool), waiting: 0, refused: 0, completed: 1 + ALL as u64);
    });
}

/// A shutdown answers all submissions in line at once, while the worker is still busy. None of
/// their tasks runs.
#[test]
fn law20_a_shutdown_answers_a_crowd() {
    timed(|| {
        let (pool, gate) = held(0);
        let mut crowd = Crowd::wait(&pool);
        let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
        assert_eq!(report.stragglers.len(), 1);
        assert_eq!((pool.stats().waiting, crowd.count.woken()), (0, FUTURES));
        let mut answers = crowd.answers().into_iter();
        assert!(answers.all(|(_, answer)| reason(answer) == "closed"));
        crowd.ledger.assert_none_ran();
        assert_eq!(pool.stats().refusals.closed, ALL as u64);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
        check_at_rest(&pool);
    });
}

/// The cancel of a group answers its submissions in the line at once; the others keep their order.
#[test]
fn law20_a_cancel_takes_its_group_out_of_a_crowd() {
    timed(|| {
        let (pool, gate) = held(0);
        let mut crowd = Crowd::wait(&pool);
        assert_eq!(crowd.group.pending(), ALL.div_ceil(2));
        crowd.group.cancel();
        wait_in_line(&pool, ALL / 2);
        crowd.group.wait();
        gate.open();
        for (id, answer) in crowd.answers() {
            if id % 2 == 1 {
                answer.expect("accepted");
            } else {
                assert_eq!((reason(answer), crowd.ledger.runs(id)), ("cancelled", 0));
            }
        }
        at_rest(&pool);
        let odd = (0..ALL).filter(|id| id % 2 == 1);
        assert!(crowd.order.lock().unwrap().iter().copied().eq(odd));
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
