//! Law 20: a line of many threads and futures, and events beside it. See `serve_async.rs` for its
//! order, and for how a single future waits.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::futures::{block_on, counted, poll, Count};
use common::*;
use lazypool::{
    DeadlineError, Group, Handle, Pool, Refusal, Refused, Shutdown, TaskError, WhenFull,
};

const THREADS: usize = if cfg!(miri) { 3 } else { 200 };
const FUTURES: usize = cut(9_800) as usize;
const ALL: usize = THREADS + FUTURES;

type Answer = Result<Handle<()>, Refused<()>>;

/// A thread that submits a task and waits for space.
type Submitting = JoinHandle<Result<(), Refused<()>>>;

/// Threads and futures in line, alternately. Every second one is in the group. All of their tasks
/// are in the ledger.
struct Crowd<F> {
    threads: Vec<(usize, Submitting)>,
    futures: Vec<(usize, F)>,
    count: Arc<Count>,
    ledger: Ledger,
    order: Arc<Mutex<Vec<usize>>>,
}

impl Crowd<()> {
    /// Lets all of them wait for space in a pool that is full.
    fn wait(
        pool: &Arc<Pool>,
        group: &Group,
    ) -> Crowd<impl std::future::Future<Output = Answer> + Unpin> {
        let (count, waker) = counted();
        let mut crowd = Crowd {
            threads: Vec::new(),
            futures: Vec::new(),
            count,
            ledger: Ledger::new(ALL),
            order: Arc::default(),
        };
        for id in 0..ALL {
            let (entry, order) = (crowd.ledger.entry(id), Arc::clone(&crowd.order));
            let task = move || {
                entry.run();
                order.lock().unwrap().push(id);
            };
            if id % (ALL / THREADS) == 0 && crowd.threads.len() < THREADS {
                let (pool, group) = (Arc::clone(pool), group.clone());
                let serve = move || {
                    let served = match id % 2 {
                        0 => group.serve(task),
                        _ => pool.when_full(WhenFull::Block).serve(task),
                    };
                    served.map_err(Refused::without_closure)
                };
                let builder = thread::Builder::new().stack_size(128 * 1024);
                crowd
                    .threads
                    .push((id, builder.spawn(serve).expect("a thread")));
            } else {
                let on = match id % 2 {
                    0 => group.awaitable(),
                    _ => pool.awaitable(),
                };
                let future = on.serve_async(task);
                let mut future =
                    Box::pin(async move { future.await.map_err(Refused::without_closure) });
                assert!(poll(&mut future, &waker).is_pending());
                crowd.futures.push((id, future));
            }
            wait_until("the submission to wait", || pool.stats().waiting == id + 1);
        }
        crowd
    }
}

impl<F: std::future::Future<Output = Answer> + Unpin> Crowd<F> {
    /// Takes all answers, which are there already or arrive without a poll. Tasks with handles run
    /// on.
    fn answers(self) -> Vec<(usize, Result<(), Refused<()>>)> {
        let futures = self.futures.into_iter().map(|(id, future)| {
            let answer = block_on(future);
            (id, answer.map(Handle::detach))
        });
        let mut answers: Vec<_> = futures.collect();
        let threads = self.threads.into_iter();
        answers.extend(threads.map(|(id, thread)| (id, thread.join().expect("no panic"))));
        answers
    }
}

fn blocking_group(pool: &Pool) -> Group {
    pool.when_full(WhenFull::Block).group()
}

/// All tasks in line get space in order, although no future is polled meanwhile.
#[test]
fn law20_a_crowd_is_served_in_order() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 0));
        let group = blocking_group(&pool);
        let crowd = Crowd::wait(&pool, &group);
        gate.open();
        let order = Arc::clone(&crowd.order);
        wait_until("all tasks to run", || order.lock().unwrap().len() == ALL);
        assert!(order.lock().unwrap().iter().copied().eq(0..ALL));
        group.wait();
        // The last waker may still be about to be called.
        wait_until("all wakers to be called", || crowd.count.woken() == FUTURES);
        let answers = crowd.answers();
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
        let stats = settle(&pool);
        assert_eq!((stats.waiting, stats.refused), (0, 0));
        assert_eq!(stats.completed, 1 + ALL as u64);
    });
}

/// A shutdown answers all submissions in line at once, while the worker is still busy. None of
/// their tasks runs.
#[test]
fn law20_a_shutdown_answers_a_crowd() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 0));
        let crowd = Crowd::wait(&pool, &blocking_group(&pool));
        let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
        assert_eq!(report.stragglers.len(), 1);
        assert_eq!((pool.stats().waiting, crowd.count.woken()), (0, FUTURES));
        let ledger = crowd.ledger.clone();
        for (_, answer) in crowd.answers() {
            assert!(answer.expect_err("the pool is closed").is_closed());
        }
        assert!((0..ALL).all(|id| (ledger.runs(id), ledger.drops(id)) == (0, 1)));
        assert_eq!(pool.stats().refusals.closed, ALL as u64);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
        check_at_rest(&pool, &pool.stats());
    });
}

/// The cancel of a group answers its submissions in the line at once; the others keep their order.
#[test]
fn law20_a_cancel_takes_its_group_out_of_a_crowd() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 0));
        let group = blocking_group(&pool);
        let crowd = Crowd::wait(&pool, &group);
        assert_eq!(group.pending(), ALL.div_ceil(2));
        group.cancel();
        wait_until("the group's half to leave", || {
            pool.stats().waiting == ALL / 2
        });
        group.wait();
        gate.open();
        let (order, ledger) = (Arc::clone(&crowd.order), crowd.ledger.clone());
        for (id, answer) in crowd.answers() {
            match answer {
                Ok(()) => assert_eq!(id % 2, 1),
                Err(refused) => {
                    assert!(matches!(refused.reason(), Refusal::Cancelled));
                    assert_eq!((id % 2, ledger.runs(id)), (0, 0));
                }
            }
        }
        settle(&pool);
        let odd = (0..ALL).filter(|id| id % 2 == 1);
        assert!(order.lock().unwrap().iter().copied().eq(odd));
        check_at_rest(&pool, &pool.stats());
    });
}

/// The limit is lowered and raised beside a line: never more tasks run at once than it allows, and
/// all run.
#[test]
fn law04_limits_beside_a_crowd() {
    timed(|| {
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        let pool = Arc::new(pool(3, 0));
        for gate in &gates {
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
        }
        let crowd = Crowd::wait(&pool, &blocking_group(&pool));
        pool.set_limit(1).unwrap();
        gates[0].open();
        gates[1].open();
        wait_until("the surplus workers to end", || pool.stats().workers == 1);
        assert_eq!(pool.stats().waiting, ALL, "the last worker is busy");
        gates[2].open();
        let order = Arc::clone(&crowd.order);
        wait_until("some tasks to run", || {
            order.lock().unwrap().len() > ALL / 4
        });
        assert_eq!(pool.stats().workers, 1);
        for limit in [3, 2, 1, 3] {
            pool.set_limit(limit).unwrap();
            wait_until("no more workers than the limit", || {
                pool.stats().workers <= limit
            });
        }
        assert!(crowd.answers().iter().all(|(_, answer)| answer.is_ok()));
        assert_eq!(settle(&pool).completed, 3 + ALL as u64);
        check_at_rest(&pool, &pool.stats());
    });
}

/// A raised limit is space for the line, even if it is raised several times while tasks wait.
#[test]
fn law04_a_raised_limit_serves_the_line() {
    timed(|| {
        let gate = Gate::new();
        let pool = pool(4, 0);
        pool.set_limit(1).unwrap();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let (_, waker) = counted();
        let mut futures: Vec<_> = (0..3)
            .map(|_| pool.awaitable().serve_async(gate.task()))
            .collect();
        for future in &mut futures {
            assert!(poll(future, &waker).is_pending());
        }
        for limit in 2..=4 {
            pool.set_limit(limit).unwrap();
            gate.wait_entered(limit);
            assert_eq!(pool.stats().waiting, 4 - limit);
        }
        gate.open();
        for future in futures {
            block_on(block_on(future).unwrap()).unwrap();
        }
    });
}

/// Deadlines of zero and without an end, in line. A thread leaves at its deadline; a future's task
/// expires at its turn. Submissions without a deadline wait.
#[test]
fn law17_deadlines_of_zero_and_of_ever_in_line() {
    timed(|| {
        let gate = Gate::new();
        let pool = Arc::new(occupied(&gate, 0));
        let blocks = pool.when_full(WhenFull::Block);
        let start = Instant::now();
        let at_once = blocks.with_deadline(Duration::ZERO);
        saturated(at_once.serve(|| unreachable!("too late")));
        let called = blocks.do_with_deadline(|| (), Duration::ZERO);
        assert!(matches!(called, Err(DeadlineError::Expired(_))));
        assert!(start.elapsed() < LIMIT);
        let (_, waker) = counted();
        let mut late = at_once.awaitable().serve_async(|| unreachable!("too late"));
        let ever = blocks.with_deadline(Duration::MAX);
        let mut patient = ever.awaitable().serve_async(|| 1);
        assert!(poll(&mut late, &waker).is_pending());
        assert!(poll(&mut patient, &waker).is_pending());
        let ran = Arc::new(AtomicUsize::new(0));
        let waits = [true, false].map(|calls| {
            let (pool, ran) = (Arc::clone(&pool), Arc::clone(&ran));
            let task = move || {
                ran.fetch_add(1, Ordering::SeqCst);
            };
            thread::spawn(move || {
                let blocks = pool.when_full(WhenFull::Block);
                if calls {
                    blocks.do_with_deadline(task, Duration::MAX).is_ok()
                } else {
                    blocks.with_deadline(Duration::MAX).serve(task).is_ok()
                }
            })
        });
        wait_until("four submissions in line", || pool.stats().waiting == 4);
        gate.open();
        let outcome: Result<(), _> = block_on(block_on(late).expect("accepted"));
        assert!(matches!(outcome, Err(TaskError::Expired)), "{outcome:?}");
        assert!(matches!(
            poll(&mut patient, &waker),
            Poll::Ready(Ok(_)) | Poll::Pending
        ));
        assert!(waits.into_iter().all(|thread| thread.join().unwrap()));
        let stats = settle(&pool);
        assert_eq!((ran.load(Ordering::SeqCst), stats.waiting), (2, 0));
        check_at_rest(&pool, &stats);
    });
}
