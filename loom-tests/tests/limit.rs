//! A limit that changes at run time, and groups that are cancelled on the way to a worker.
#![cfg(lazypool_loom)]

use lazypool::{Pool, Refusal, Shutdown};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{beside, check, end, pool, quietly, warm_pair, warm_pool, Flag, Ran};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// The limit is lowered beside a submission, with two idle workers: one of them ends, and the task
/// runs. Excludes: a task given to a worker that ends without running it; two workers that end; a
/// slot that is lost. Preemptions: 2.
#[test]
fn lowered_against_a_hand_over() {
    check(Some(2), || {
        let pool = Arc::new(warm_pair(2, 0));
        let ran = Ran::new();
        let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
        assert!(pool.serve(ran.task()).is_ok());
        limits.join().unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (1, 0));
    });
}

/// Two workers run a task each, and more are submitted; the limit is lowered to one meanwhile. Law
/// 4: the surplus worker starts at most one more task. A task that starts after that one runs
/// alone. `queue` is the queue's capacity; with 0, tasks are handed over.
fn law04_one_more_at_most(queue: usize) {
    check(Some(2), move || {
        let ran = Ran::new();
        let pool = Arc::new(warm_pair(2, queue));
        // Tasks that start while another runs, once `set_limit` has returned.
        let lowered = Arc::new(AtomicUsize::new(0));
        let running = Arc::new(AtomicUsize::new(0));
        let beside_another = Arc::new(AtomicUsize::new(0));
        let task = |task: Box<dyn FnOnce() + Send>| {
            let words = [&lowered, &running, &beside_another].map(Arc::clone);
            move || {
                let [lowered, running, beside_another] = words;
                let is_beside = running.fetch_add(1, Ordering::SeqCst) > 0;
                if is_beside && lowered.load(Ordering::SeqCst) == 1 {
                    beside_another.fetch_add(1, Ordering::SeqCst);
                }
                task();
                running.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let gates = quietly(|| {
            [(), ()].map(|()| {
                let (open, gate) = mpsc::channel::<()>();
                assert!(pool
                    .serve(task(Box::new(move || gate.recv().unwrap())))
                    .is_ok());
                open
            })
        });
        let [first, last] = gates;
        let limits = {
            let lowered = Arc::clone(&lowered);
            beside(&pool, move |pool| {
                pool.set_limit(1).unwrap();
                lowered.store(1, Ordering::SeqCst);
                last.send(()).unwrap();
            })
        };
        let accepted = (0..2)
            .filter(|_| pool.serve(task(Box::new(ran.task()))).is_ok())
            .count();
        limits.join().unwrap();
        first.send(()).unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        assert!(
            beside_another.load(Ordering::SeqCst) <= 1,
            "one more at most"
        );
    });
}

/// Tasks are handed over. Excludes: a second task that a surplus worker starts. Preemptions: 2.
#[test]
fn law04_one_more_at_most_by_hand_over() {
    law04_one_more_at_most(0);
}

/// Tasks come from the queue: the limit is read before the next task is popped. Excludes: a second
/// task that a surplus worker starts. Preemptions: 2.
#[test]
fn law04_one_more_at_most_from_the_queue() {
    law04_one_more_at_most(2);
}

/// A waker that submits a task, which must be refused.
struct IsRefused(Arc<Pool>, Ran, Arc<Flag>);

impl Wake for IsRefused {
    fn wake(self: Arc<Self>) {
        assert!((self.0.serve(self.1.task())).is_err_and(|e| e.is_saturated()));
        Arc::clone(&self.2).wake();
    }
}

/// Two workers run a task each as the limit is lowered to one. Then the first task ends, whose
/// handle has a waker, beside a submission. Law 4: the worker of that task is one too many, and
/// ends without another task. Excludes: a surplus worker that goes idle before it calls the waker:
/// the waker's submission, or the other one, would claim it. Preemptions: 2.
#[test]
fn law04_a_surplus_worker_with_a_waker() {
    check(Some(2), || {
        let pool = Arc::new(warm_pair(2, 0));
        let (ran, (flag, _)) = (Ran::new(), Flag::new());
        let [(open, gate), (open_last, last)] = [mpsc::channel(), mpsc::channel()];
        let handle = quietly(|| {
            let mut handle = (pool.awaitable())
                .serve(move || gate.recv().unwrap())
                .unwrap();
            let tries = IsRefused(Arc::clone(&pool), ran.clone(), Arc::clone(&flag));
            let waker = Waker::from(Arc::new(tries));
            let poll = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
            assert!(poll.is_pending());
            assert!(pool.serve(move || last.recv().unwrap()).is_ok());
            pool.set_limit(1).unwrap();
            handle
        });
        let task = ran.task();
        let other = beside(&pool, |pool| {
            assert!(pool.serve(task).is_err_and(|e| e.is_saturated()));
        });
        open.send(()).unwrap();
        flag.wait();
        handle.join().unwrap();
        while pool.stats().workers > 1 {
            thread::yield_now();
        }
        other.join().unwrap();
        open_last.send(()).unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (0, 0));
    });
}

/// The limit is lowered beside a push, while both workers are occupied: a surplus worker ends with
/// a task queued, which the other worker runs (P1, where the first one does not look). Preemptions:
/// 2.
#[test]
fn lowered_against_a_push() {
    check(Some(2), || {
        let pool = Arc::new(warm_pair(2, 1));
        let ran = Ran::new();
        let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
        let mut accepted = 0;
        for _ in 0..2 {
            accepted += usize::from(pool.serve(ran.task()).is_ok());
        }
        limits.join().unwrap();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
    });
}

/// The limit is lowered while a thread is started for a task, and raised again. Excludes: a slot
/// that is withheld for ever; a task whose thread is not started and that is accepted. Preemptions:
/// 2.
#[test]
fn lowered_against_a_spawn() {
    check(Some(2), || {
        let pool = Arc::new(quietly(|| {
            let pool = pool(2, 0);
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
            pool
        }));
        let ran = Ran::new();
        let limits = beside(&pool, |pool| {
            pool.set_limit(1).unwrap();
            pool.set_limit(2).unwrap();
        });
        for _ in 0..2 {
            match pool.serve(ran.task()) {
                Ok(()) => {}
                Err(refused) => assert!(matches!(refused.reason(), Refusal::Saturated)),
            }
        }
        limits.join().unwrap();
        end(&pool);
        assert_eq!(ran.alive(), 0);
    });
}

/// The limit is lowered while one of two tasks ends: its worker ends, too. Excludes: a surplus
/// worker that stays because it is not told (P3). Preemptions: 2.
#[test]
fn lowered_against_going_idle() {
    check(Some(2), || {
        let pool = pool(2, 0);
        let [first, second] = quietly(|| {
            [(), ()].map(|()| {
                let (open, gate) = mpsc::channel();
                assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
                open
            })
        });
        first.send(()).unwrap();
        pool.set_limit(1).unwrap();
        while pool.stats().workers > 1 {
            thread::yield_now();
        }
        second.send(()).unwrap();
        end(&pool);
    });
}

/// The limit is lowered beside a push that relies on a worker that watches the queue. That worker
/// is told to end, and its stop hook waits for the task. Excludes: a task that waits for the hook
/// beside an idle worker. Preemptions: 2.
#[test]
fn lowered_beside_a_stop_hook() {
    check(Some(2), || {
        let (told, has_run) = mpsc::channel();
        let has_run = Mutex::new(Some(has_run));
        let waits = move |_| {
            let first = has_run.lock().unwrap().take();
            first
                .into_iter()
                .for_each(|has_run| has_run.recv().unwrap());
        };
        let pool = Arc::new(quietly(|| {
            let pool = Pool::builder().max_workers(2).queue_capacity(2);
            let pool = pool.idle_timeout(Duration::from_nanos(1));
            let pool = pool.on_worker_stop(waits).build().expect("valid settings");
            let both = pool.group();
            both.serve(|| ()).unwrap();
            both.serve(|| ()).unwrap();
            both.wait();
            pool
        }));
        // The worker of this task watches the queue once it has ended.
        assert!(pool.serve(|| ()).is_ok());
        let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
        assert!(pool.serve(move || told.send(()).unwrap()).is_ok());
        limits.join().unwrap();
        end(&pool);
    });
}

/// The limit is lowered while the pool closes. Excludes: a lost change, of the two that are made to
/// the pool's phase. Preemptions: 2.
#[test]
fn lowered_against_a_shutdown() {
    check(Some(2), || {
        let pool = Arc::new(warm_pair(2, 0));
        let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        limits.join().unwrap();
        assert!(pool.serve(|| ()).is_err_and(|e| e.is_closed()));
        end(&pool);
    });
}

/// The limit is raised while a task is pushed behind the only worker, whose task waits for the
/// pushed one. Excludes: a task that stays queued beside a slot that the raised limit made usable,
/// because no thread is started. Preemptions: 2.
#[test]
fn raised_against_a_push() {
    check(Some(2), || {
        let pool = Arc::new(pool(2, 1));
        let (open, gate) = mpsc::channel();
        quietly(|| {
            pool.set_limit(1).unwrap();
            assert!(pool.serve(move || gate.recv().unwrap()).is_ok());
        });
        let limits = beside(&pool, |pool| pool.set_limit(2).unwrap());
        let second = pool.do_with_deadline(move || open.send(()).unwrap(), Duration::MAX);
        assert!(second.is_ok());
        limits.join().unwrap();
        end(&pool);
    });
}

/// Returns how many workers count as abandoned while a task without a group runs.
fn abandoned_during_the_next_task(pool: &Arc<Pool>) -> usize {
    let seen = Arc::clone(pool);
    let next = pool.do_with_deadline(move || seen.stats().abandoned, Duration::MAX);
    next.expect("a worker")
}

/// A group is cancelled while its task is handed to an idle worker. From then on until the task
/// ends, `stats` counts the worker as abandoned; after that it does not. Preemptions: 2.
#[test]
fn cancelled_on_the_way() {
    check(Some(2), || {
        let pool = Arc::new(quietly(|| {
            let pool = pool(1, 0);
            assert!(pool.do_with_deadline(|| (), Duration::MAX).is_ok());
            pool
        }));
        let group = pool.group();
        let seen = Arc::clone(&pool);
        let flag = group.clone();
        let task = move || {
            while !flag.is_cancelled() {
                thread::yield_now();
            }
            // The cancelling thread may not have tagged the worker's record yet.
            while seen.stats().abandoned == 0 {
                thread::yield_now();
            }
        };
        let canceller = beside(&group, |group| group.cancel());
        if group.serve(task).is_ok() {
            group.wait();
        }
        canceller.join().unwrap();
        assert_eq!(pool.stats().abandoned, 0);
        assert_eq!(abandoned_during_the_next_task(&pool), 0);
        end(&pool);
    });
}

/// A group is cancelled as its only task ends. Excludes: a worker that counts as abandoned after
/// its task, because the cancel tags its record without a check of which task runs. Preemptions: 2.
#[test]
fn cancelled_at_the_end() {
    check(Some(2), || {
        let pool = Arc::new(warm_pool(0));
        let group = pool.group();
        let canceller = beside(&group, |group| group.cancel());
        let _ = group.serve(|| ());
        group.wait();
        canceller.join().unwrap();
        assert_eq!(abandoned_during_the_next_task(&pool), 0);
        end(&pool);
    });
}
