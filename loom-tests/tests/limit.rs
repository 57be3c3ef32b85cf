//! A limit that changes at run time, and groups that are cancelled on the way to a worker.
#![cfg(lazypool_loom)]

use lazypool::{Pool, Refusal};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{
    beside, check, end, hold, pool, quietly, warm, warm_pair, warm_pair_with, Flag, Ran,
};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

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

/// Two workers run a task each as the limit is lowered to one. Then the first task, whose handle
/// has a waker, ends beside a submission. Law 4: the worker of that task is one too many, and ends
/// without another task. Excludes: a surplus worker that goes idle before it calls the waker: the
/// waker's submission, or the other one, would claim it. Preemptions: 2.
#[test]
fn law04_a_surplus_worker_with_a_waker() {
    check(Some(2), || {
        let pool = Arc::new(warm_pair(2, 0));
        let (ran, (flag, _)) = (Ran::new(), Flag::new());
        let (open, gate) = mpsc::channel();
        let task = move || gate.recv().unwrap();
        let mut handle = quietly(|| pool.awaitable().serve(task).unwrap());
        let tries = IsRefused(Arc::clone(&pool), ran.clone(), Arc::clone(&flag));
        let waker = Waker::from(Arc::new(tries));
        let mut poll = || Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
        assert!(quietly(&mut poll).is_pending());
        let open_last = hold(&pool);
        quietly(|| pool.set_limit(1).unwrap());
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

/// The limit is lowered beside one submission or two, with two idle workers: one of them ends, and
/// the tasks run, handed over or queued (P1, where the first worker does not look). Excludes: a task
/// given to a worker that ends without running it; two workers that end; a slot that is lost.
/// Preemptions: 2.
#[test]
fn lowered_against_a_push() {
    for queue in [0, 1] {
        check(Some(2), move || {
            let pool = Arc::new(warm_pair(2, queue));
            let ran = Ran::new();
            let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
            assert!(pool.serve(ran.task()).is_ok());
            let accepted = 1
                + (0..queue)
                    .filter(|_| pool.serve(ran.task()).is_ok())
                    .count();
            limits.join().unwrap();
            end(&pool);
            assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        });
    }
}

/// The limit is lowered while a thread is started for a task, and raised again. Excludes: a slot
/// that is withheld for ever; a task that is accepted although its thread is not started.
/// Preemptions: 2.
#[test]
fn lowered_against_a_spawn() {
    check(Some(2), || {
        let pool = Arc::new(warm(2, 0));
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
        let [first, second] = [(), ()].map(|()| hold(&pool));
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
            first.into_iter().for_each(|it| it.recv().unwrap());
        };
        let pool = Arc::new(warm_pair_with(2, 2, |b| b.on_worker_stop(waits)));
        // The worker of this task watches the queue once it has ended.
        assert!(pool.serve(|| ()).is_ok());
        let limits = beside(&pool, |pool| pool.set_limit(1).unwrap());
        assert!(pool.serve(move || told.send(()).unwrap()).is_ok());
        limits.join().unwrap();
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
        quietly(|| pool.set_limit(1).unwrap());
        let open = hold(&pool);
        let limits = beside(&pool, |pool| pool.set_limit(2).unwrap());
        let second = pool.do_with_deadline(move || open.send(()).unwrap(), Duration::MAX);
        assert!(second.is_ok());
        limits.join().unwrap();
        end(&pool);
    });
}

/// A group is cancelled as its only task ends. Excludes: a worker that counts as abandoned after
/// its task, because the cancel tags its record without a check of which task runs. Preemptions: 2.
#[test]
fn cancelled_at_the_end() {
    check(Some(2), || {
        let pool = Arc::new(warm(1, 0));
        let group = pool.group();
        let canceller = beside(&group, |group| group.cancel());
        let _ = group.serve(|| ());
        group.wait();
        canceller.join().unwrap();
        // A task without a group.
        let seen = Arc::clone(&pool);
        let next = pool.do_with_deadline(move || seen.stats().abandoned, Duration::MAX);
        assert_eq!(next.ok(), Some(0));
        end(&pool);
    });
}
