//! A limit that changes at run time, and groups that are cancelled on the way to a worker.
#![cfg(lazypool_loom)]

use lazypool::{Pool, Refusal};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::mpsc;
use loom::thread;
use loom_tests::{
    beside, check, check_pool, check_tasks, end, hold, poll, pool, quietly, try_serve, warm,
    warm_pair, Flag, Gate, Ran,
};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Two workers run a task each, and more are submitted; the limit is lowered to one meanwhile. Law
/// 4: the surplus worker starts at most one more task. A task that starts after that one runs
/// alone. `queue` is the queue's capacity. With 0, tasks are handed over; else they come from the
/// queue, and the limit is read before the next one is popped. Excludes: a second task that a surplus
/// worker starts. Preemptions: 2.
fn one_more_at_most(queue: usize) {
    check(Some(2), move || {
        let ran = Ran::new();
        let pool = warm_pair(2, queue).build();
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
        let [first, last] = [(), ()].map(|()| {
            let (gate, waits) = Gate::new();
            assert!(quietly(|| pool.serve(task(Box::new(waits))).is_ok()));
            gate
        });
        let its = Arc::clone(&lowered);
        let limits = beside(&pool, move |pool| {
            pool.set_limit(1).unwrap();
            its.store(1, Ordering::SeqCst);
            last.open();
        });
        let mut accepted = 0;
        for _ in 0..2 {
            accepted += try_serve(&pool, task(Box::new(ran.task())));
        }
        limits.join().unwrap();
        first.open();
        end(&pool);
        assert_eq!((ran.times(), ran.alive()), (accepted, 0));
        assert!(
            beside_another.load(Ordering::SeqCst) <= 1,
            "one more at most"
        );
    });
}

#[test]
fn law04_one_more_at_most() {
    [0, 2].into_iter().for_each(one_more_at_most);
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
    check_tasks(2, warm_pair(2, 0), |pool, ran| {
        let (flag, _) = Flag::new();
        let (gate, waits) = Gate::new();
        let mut handle = quietly(|| pool.awaitable().serve(waits).unwrap());
        let tries = IsRefused(Arc::clone(pool), ran.clone(), Arc::clone(&flag));
        let waker = Waker::from(Arc::new(tries));
        assert!(quietly(|| poll(&mut handle, &waker)).is_pending());
        let last = hold(pool);
        quietly(|| pool.set_limit(1).unwrap());
        let task = ran.task();
        let other = beside(pool, |pool| {
            assert!(pool.serve(task).is_err_and(|e| e.is_saturated()));
        });
        gate.open();
        flag.wait();
        handle.join().unwrap();
        while pool.stats().workers > 1 {
            thread::yield_now();
        }
        other.join().unwrap();
        last.open();
        0
    });
}

/// The limit is lowered beside one submission or two, with two idle workers: one of them ends, and
/// the tasks run, handed over or queued (P1, where the first worker does not look). Excludes: a task
/// given to a worker that ends without running it; two workers that end; a slot that is lost.
/// Preemptions: 2.
#[test]
fn lowered_against_a_push() {
    for queue in [0, 1] {
        check_tasks(2, warm_pair(2, queue), move |pool, ran| {
            let limits = beside(pool, |pool| pool.set_limit(1).unwrap());
            assert!(pool.serve(ran.task()).is_ok());
            let more = if queue > 0 {
                try_serve(pool, ran.task())
            } else {
                0
            };
            limits.join().unwrap();
            1 + more
        });
    }
}

/// The limit is lowered while a thread is started for a task, and raised again. Excludes: a slot
/// that is withheld for ever; a task that is accepted although its thread is not started.
/// Preemptions: 2.
#[test]
fn lowered_against_a_spawn() {
    check(Some(2), || {
        let pool = warm(2, 0).build();
        let ran = Ran::new();
        let limits = beside(&pool, |pool| {
            pool.set_limit(1).unwrap();
            pool.set_limit(2).unwrap();
        });
        for _ in 0..2 {
            if let Err(refused) = pool.serve(ran.task()) {
                assert!(matches!(refused.reason(), Refusal::Saturated));
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
    check_pool(2, pool(2, 0), |pool| {
        let [first, second] = [(), ()].map(|()| hold(pool));
        first.open();
        pool.set_limit(1).unwrap();
        while pool.stats().workers > 1 {
            thread::yield_now();
        }
        second.open();
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
        let pool = warm_pair(2, 2).build_with(|b| b.on_worker_stop(waits));
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
    check_pool(2, pool(2, 1), |pool| {
        quietly(|| pool.set_limit(1).unwrap());
        let gate = hold(pool);
        let limits = beside(pool, |pool| pool.set_limit(2).unwrap());
        gate.open_by_call(pool);
        limits.join().unwrap();
    });
}

/// A group is cancelled as its only task ends. Excludes: a worker that counts as abandoned after
/// its task, because the cancel tags its record without a check of which task runs. Preemptions: 2.
#[test]
fn cancelled_at_the_end() {
    check_pool(2, warm(1, 0), |pool| {
        let group = pool.group();
        let canceller = beside(&group, |group| group.cancel());
        let _ = group.serve(|| ());
        group.wait();
        canceller.join().unwrap();
        // A task without a group.
        let seen = Arc::clone(pool);
        let next = pool.do_with_deadline(move || seen.stats().abandoned, Duration::MAX);
        assert_eq!(next.ok(), Some(0));
    });
}
