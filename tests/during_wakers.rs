//! A task that a thread hands to its last worker, which calls a waker and then drops a value. And a task that a worker has taken
//! from the queue, and that waits for a waker. Laws 2, 3, 10 and 21.

mod common;

use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{task, DeadlineError, Group, Pool, Refusal, Shutdown, TaskError};

/// A pool with a worker that calls a waker, and drops a value after that. Another worker is busy. Fields are
/// dropped in this order: the gates are opened before the pool is dropped.
struct Scene {
    /// The waker waits here.
    waker: Gate,
    /// The drop waits here.
    drops: Gate,
    busy: Gate,
    pool: Arc<Pool>,
    /// Sends work to the thread whose last worker it is.
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Scene {
    fn new(workers: usize, queue: usize) -> Self {
        let (waker, drops, busy, first) = (Gate::new(), Gate::new(), Gate::new(), Gate::new());
        let pool = Arc::new(pool(workers, queue));
        // A future waits in the line of a full group.
        let full = pool.limited_group(1);
        must_serve_in(&full, busy.task());
        busy.wait_entered(1);
        let capture = dropping(drops.task());
        let in_line = pending(
            full.awaitable().serve_async(capture),
            std::task::Waker::noop(),
        );
        let (jobs, job) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        thread::spawn(move || job.iter().for_each(|job| job()));
        let (its, task, (tell, told)) = (Arc::clone(&pool), first.task(), mpsc::channel());
        let serve = move || tell.send(must_await(its.awaitable(), task)).unwrap();
        jobs.send(Box::new(serve)).unwrap();
        let mut handle = arrives("the handle", &told);
        first.wait_entered(1);
        // The waker drops that future. Its capture is dropped once the waker has returned.
        let (key, in_line) = (waker.key(), Mutex::new(Some(in_line)));
        let calls = calling(move || {
            key.pass();
            drop(in_line.lock().unwrap().take());
        });
        assert!(poll(&mut handle, &calls).is_pending());
        first.open();
        waker.wait_entered(1);
        handle.detach();
        Self {
            waker,
            drops,
            busy,
            pool,
            jobs,
        }
    }

    /// Submits a task from the thread whose last worker calls the waker. The receiver gets what `submit` returns.
    fn give<T: Send + 'static>(
        &self,
        submit: impl FnOnce(&Pool) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (pool, (tell, told)) = (Arc::clone(&self.pool), mpsc::channel());
        let accepted = self.pool.stats().accepted;
        let job = move || tell.send(submit(&pool)).unwrap_or_default();
        self.jobs.send(Box::new(job)).unwrap();
        wait_until("the task", || self.pool.stats().accepted > accepted);
        let s = self.pool.stats();
        assert_eq!((s.queued, s.spawned), (0, 2), "that worker has it: {s}");
        told
    }

    /// Submits a task as [`Self::give`] does. Then lets the waker return, and waits until the worker drops the
    /// value.
    fn leave<T: Send + 'static>(
        &self,
        submit: impl FnOnce(&Pool) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let told = self.give(submit);
        self.end_wake();
        told
    }

    fn end_wake(&self) {
        self.waker.open();
        self.drops.wait_entered(1);
    }

    /// Lets all end. Returns the number of discarded and of expired tasks.
    fn end(self) -> (u64, u64) {
        self.drops.open();
        self.busy.open();
        let s = at_rest(&self.pool);
        assert_eq!(s.accepted, s.completed + s.discarded + s.expired);
        (s.discarded, s.expired)
    }
}

type Submit = fn(&Pool, &Group, mpsc::Sender<()>);

/// The ways to submit a task that sends `()`.
const VERBS: [Submit; 5] = [
    |pool, _, ran| must_serve(pool, move || ran.send(()).unwrap()),
    |pool, _, ran| {
        pool.do_with_deadline(move || ran.send(()).unwrap(), LONG)
            .unwrap();
    },
    |pool, _, ran| {
        let handle = must_await(pool.awaitable(), move || ran.send(()).unwrap());
        handle.join().unwrap();
    },
    |_, group, ran| must_serve_in(group, move || ran.send(()).unwrap()),
    |_, group, ran| {
        group
            .do_with_deadline(move || ran.send(()).unwrap(), LONG)
            .unwrap();
    },
];

/// Law 21: a waker, and the drop of what it drops, hold up the task that was handed to their worker, and no other one.
#[test]
fn law21_one_task_waits_for_a_waker_and_for_what_it_drops() {
    timed_each(product([0, 4], [0, 1, 2, 3, 4]), move |(queue, verb)| {
        let scene = Scene::new(3, queue);
        let (group, (ran, runs)) = (scene.pool.group(), mpsc::channel());
        let told = scene.leave({
            let group = group.clone();
            move |pool| VERBS[verb](pool, &group, ran)
        });
        let (other, others) = mpsc::channel();
        for submit in VERBS {
            submit(&scene.pool, &group, other.clone());
            arrives("another task", &others);
            wait_until("its end", || scene.pool.stats().idle == 1);
        }
        assert_eq!(runs.try_recv(), Err(mpsc::TryRecvError::Empty));
        scene.drops.open();
        arrives("the task", &runs);
        arrives("its submission", &told);
        group.wait();
        assert_eq!(scene.end(), (0, 0));
    });
}

/// Laws 3 and 21: a caller takes its task back at its deadline, during the waker or the drop.
#[test]
fn law03_a_caller_takes_its_task_back_from_a_worker_that_calls_a_waker() {
    timed_each(product([0, 4], [false, true]), |(queue, drops)| {
        let scene = Scene::new(3, queue);
        let call = |pool: &Pool| {
            let result = pool.do_with_deadline(|| (), ms(300));
            matches!(result, Err(DeadlineError::Expired(_)))
        };
        let told = match drops {
            true => scene.leave(call),
            false => scene.give(call),
        };
        assert!(arrives("the call", &told), "it has not run");
        scene.end_wake();
        assert_eq!(scene.end(), (0, 1));
    });
}

/// Law 21: a handle cancels its task, by its drop or by a call: during the waker at once, during the drop as its worker comes to it.
#[test]
fn law21_a_handle_cancels_a_task_that_a_worker_has_which_calls_a_waker() {
    let cases = product(product([0, 4], [false, true]), [false, true]);
    timed_each(cases, |((queue, drops_handle), during_drop)| {
        let (scene, ledger) = (Scene::new(3, queue), Ledger::new(1));
        let task = ledger.task(0);
        let serve = |pool: &Pool| must_await(pool.awaitable(), task);
        let told = match during_drop {
            true => scene.leave(serve),
            false => scene.give(serve),
        };
        let handle = arrives("the handle", &told);
        if drops_handle {
            drop(handle);
        } else {
            handle.cancel();
            if during_drop {
                scene.drops.open();
            }
            assert!(matches!(handle.join(), Err(TaskError::Cancelled)));
        }
        if !during_drop {
            assert_eq!(ledger.fate(0), (0, 1), "on this thread");
            scene.end_wake();
        }
        assert_eq!(scene.end(), (1, 0));
        assert_eq!(ledger.fate(0), (0, 1));
    });
}

/// Law 5: the worker offers the caller's task again, because it must drop a value first. The caller's next task comes while that worker calls a waker
/// to which the end of the first one has led. It needs no other worker.
#[test]
fn law05_a_caller_whose_task_was_offered_again_needs_no_other_worker() {
    timed(|| {
        let (scene, second, third) = (Scene::new(4, 4), Gate::new(), Gate::new());
        let _open = (second.opener(), third.opener());
        let group = scene.pool.limited_group(1);
        let its = group.clone();
        let told = scene.give(move |pool| {
            its.do_with_deadline(|| (), LONG).unwrap();
            must_serve(pool, || ());
        });
        let key = second.key();
        let in_line = group.awaitable().serve_async(third.task());
        let in_line = pending(Box::pin(in_line), &calling(move || key.pass()));
        scene.end_wake();
        scene.drops.open();
        second.wait_entered(1);
        arrives("both tasks", &told);
        // The third worker has the task of the future.
        let s = scene.pool.stats();
        assert_eq!((s.queued, s.spawned), (0, 3), "{s}");
        second.open();
        third.open();
        drop(in_line);
        scene.end();
    });
}

/// Laws 2 and 10: a cancel of its group discards a task that was handed to the worker. A shutdown lets it run.
#[test]
fn law02_law10_a_cancel_and_a_shutdown_during_a_waker() {
    timed_each(product([0, 4], [false, true]), |(queue, shuts_down)| {
        let scene = Scene::new(3, queue);
        let group = scene.pool.group();
        let told = scene.give({
            let group = group.clone();
            move |_| match group.do_with_deadline(|| (), LONG) {
                Err(DeadlineError::Refused(refused)) => Some(refused.into_parts().1),
                Ok(()) => None,
                other => panic!("{other:?}"),
            }
        });
        if shuts_down {
            let report = scene.pool.shutdown(Shutdown::Discard, ms(0));
            assert_eq!((report.discarded, report.stragglers.len()), (0, 2));
        } else {
            group.cancel();
        }
        scene.end_wake();
        scene.drops.open();
        let why = arrives("the call", &told);
        match shuts_down {
            true => assert!(why.is_none(), "{why:?}"),
            false => assert!(matches!(why, Some(Refusal::Cancelled)), "{why:?}"),
        }
        group.wait();
        assert_eq!(scene.end(), (u64::from(!shuts_down), 0));
    });
}

/// A pool with one worker that takes a task from the queue and owes a waker then, which waits. `waker` is
/// dropped before the pool.
struct Before<T> {
    waker: Gate,
    pool: Arc<Pool>,
    /// Gets what `submit` has returned.
    told: mpsc::Receiver<T>,
    /// Gets what the waker learns of the task, once it is to return.
    seen: mpsc::Receiver<(bool, Option<Duration>)>,
}

impl<T: Send + 'static> Before<T> {
    /// Waits until the worker calls the waker. The task is submitted by `submit`, on another thread.
    fn new(submit: impl FnOnce(&Pool) -> T + Send + 'static) -> Self {
        let pool = Arc::new(pool(1, 2));
        let (busy, waker) = (Gate::new(), Gate::new());
        must_serve(&pool, busy.task());
        busy.wait_entered(1);
        let (its, (tell, told)) = (Arc::clone(&pool), mpsc::channel());
        thread::spawn(move || {
            let result = submit(&its);
            drop(its);
            tell.send(result).unwrap_or_default();
        });
        wait_until("the task", || pool.stats().queued == 1);
        // The cell behind it is dead. Its permit comes free as the worker takes the task.
        drop(must_await(pool.awaitable(), || unreachable!("cancelled")));
        // The first in line gets the permit of the busy task, the second that of the dead cell.
        let first = pool.awaitable().serve_async(|| ());
        let first = pending(Box::pin(first), std::task::Waker::noop());
        let mut in_line = Box::pin(pool.awaitable().serve_async(|| ()));
        let (key, (see, seen)) = (waker.key(), mpsc::channel());
        let calls = calling(move || {
            key.pass();
            see.send((task::is_cancelled(), task::remaining())).unwrap();
        });
        assert!(poll(&mut in_line, &calls).is_pending());
        busy.open();
        waker.wait_entered(1);
        drop((first, in_line));
        Self {
            waker,
            pool,
            told,
            seen,
        }
    }

    /// Lets the waker return, and all end. Returns the number of discarded, expired and timed out tasks, without
    /// those of `new`.
    fn end(self) -> (T, (u64, u64, u64)) {
        self.waker.open();
        let result = arrives("the call", &self.told);
        let s = at_rest(&self.pool);
        assert_eq!(s.accepted, s.completed + s.discarded + s.expired);
        (result, (s.discarded - 3, s.expired, s.timed_out))
    }
}

/// Law 2: a worker has taken a task of a group from the queue, and calls a waker before the task's code. The
/// group is cancelled meanwhile. The task does not run.
#[test]
fn law02_no_task_runs_whose_group_was_cancelled_during_a_waker() {
    timed(|| {
        let (groups, group) = mpsc::channel();
        let (ran, runs) = mpsc::channel();
        let before = Before::new(move |pool| {
            let group = pool.group();
            must_serve_in(&group, move || ran.send(()).unwrap());
            groups.send(group).unwrap();
        });
        let group = arrives("the group", &group);
        group.cancel();
        assert_eq!(before.end(), ((), (1, 0, 0)));
        group.wait();
        assert!(runs.recv().is_err(), "it was dropped");
    });
}

/// Law 2: as above, for a call. Its caller gets the closure back.
#[test]
fn law02_no_call_runs_whose_group_was_cancelled_during_a_waker() {
    timed(|| {
        let (ledger, (groups, group)) = (Ledger::new(1), mpsc::channel());
        let task = ledger.task(0);
        let before = Before::new(move |pool| {
            let group = pool.group();
            groups.send(group.clone()).unwrap();
            match group.do_with_deadline(task, LONG) {
                Err(DeadlineError::Refused(refused)) => refused.into_parts().1,
                other => panic!("{other:?}"),
            }
        });
        let group = arrives("the group", &group);
        group.cancel();
        let (why, counts) = before.end();
        assert!(matches!(why, Refusal::Cancelled), "{why:?}");
        assert_eq!(counts, (1, 0, 0));
        group.wait();
        assert_eq!(ledger.fate(0), (0, 1), "not run");
    });
}

/// Laws 2 and 3: a worker has taken a call's task from the queue, and calls a waker first. At its deadline the caller
/// takes its closure back. The waker sees nothing of the task.
#[test]
fn law03_a_caller_takes_its_task_back_during_a_waker() {
    timed_each(
        product([false, true], [false, true]),
        |(in_group, nudged)| {
            let ledger = Ledger::new(1);
            let task = ledger.task(0);
            let before = Before::new(move |pool| {
                let (group, limit) = (pool.group(), ms(200));
                let outcome = match in_group {
                    true => group.do_with_deadline(task, limit),
                    false => pool.do_with_deadline(task, limit),
                };
                group.wait();
                match outcome {
                    Err(DeadlineError::Expired(unrun)) => unrun.into_inner(),
                    other => panic!("{other:?}"),
                }
            });
            if nudged {
                before.pool.nudge();
                let s = before.pool.stats();
                assert_eq!(s.queued, 0, "its caller finds it where it is");
            }
            let back = arrives("the call", &before.told);
            let s = before.pool.stats();
            assert_eq!((s.expired, s.timed_out), (1, 0), "{s}");
            assert_eq!(ledger.fate(0), (0, 0), "it came back");
            drop(back);
            before.waker.open();
            assert_eq!(arrives("the waker", &before.seen), (false, None));
            at_rest(&before.pool);
            assert_eq!(ledger.fate(0), (0, 1));
        },
    );
}

/// Law 18: as above, but the waker takes so long that too little time is left.
#[test]
fn law18_no_call_runs_in_vain_after_a_waker() {
    timed(|| {
        let before = Before::new(|pool| {
            let submitter = pool.min_remaining(LONG - ms(50));
            let result = submitter.do_with_deadline(|| (), LONG);
            matches!(result, Err(DeadlineError::Expired(_)))
        });
        thread::sleep(ms(50));
        assert_eq!(before.end(), (true, (0, 1, 0)));
    });
}

/// Law 9: a task that a pool without a queue has accepted during a waker is not queued, and has no age as one.
#[test]
fn law09_no_age_without_a_queued_task() {
    timed(|| {
        let pool = Arc::new(pool_with(1, 0, |b| b.track_ages(true)));
        let (first, waker) = (Gate::new(), Gate::new());
        let _openers = (first.opener(), waker.opener());
        let key = waker.key();
        let handle = must_await(pool.awaitable(), first.task());
        let handle = pending(handle, &calling(move || key.pass()));
        first.wait_entered(1);
        first.open();
        waker.wait_entered(1);
        beside(&pool, |pool| must_serve(pool, || ()))
            .join()
            .unwrap();
        let stats = pool.stats();
        assert_eq!((stats.queued, stats.oldest_queued), (0, None));
        assert!(stats.running == 1 && stats.idle == 0);
        drop(handle);
    });
}
