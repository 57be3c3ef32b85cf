//! User code that does not return before all other threads are done. Laws 1, 20 and 21: nothing
//! waits for it but its own thread, and a task that was handed to that thread.
#![cfg(lazypool_shuttle)]

use lazypool::model::set_options;
use lazypool::{Shutdown, WhenFull};
use shuttle_tests::{
    count_steps, disturb_threads, explore, gate, join_all, step, steps_of, ticks, wait_until, Adds,
    Dice, Held, InLine, Rig, Stop, Team, Threads,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// Makes a call that does not wait for a task, or only for a while.
fn act(rig: &Arc<Rig>, dice: &mut Dice) {
    let steps = dice.below(4);
    let work = move || (0..steps).for_each(|_| step());
    match dice.below(9) {
        0 | 1 => _ = rig.wait(ticks(dice.between(1, 40)), work),
        2 => {
            if let Ok(held) = rig.handle(rig.pool.awaitable(), Adds::NOTHING, work) {
                held.leave(rig, dice);
            }
        }
        3 => {
            let team = Team::new(rig, Adds::NOTHING, true);
            team.serve(rig, work);
            team.cancel(rig, dice);
        }
        4 => drop((rig.pool.stats(), rig.pool.workers())),
        5 => rig.pool.nudge(),
        _ => drop(rig.serve(Adds::policy(WhenFull::Refuse), work)),
    }
}

fn crowd(rig: &Arc<Rig>, dice: &mut Dice) -> Threads {
    rig.crowd(dice, 1..=3, 1..=4, act)
}

/// Returns the handle of a task, and lets the task end on a worker. The worker calls `waker`.
fn call_on_worker(rig: &Arc<Rig>, waker: &Waker, stop: &Stop) -> Held {
    let (go, hold) = gate();
    let held = rig.handle(rig.pool.awaitable(), Adds::NOTHING, hold);
    let held = held.expect("space").register(waker).expect("it runs");
    go.store(true, Ordering::SeqCst);
    wait_until(|| stop.has_stopped());
    held
}

/// A worker calls the waker of a handle, which does not return. All calls do, those that must not
/// wait are refused only without space, and all tasks end but one that was handed to the worker.
#[test]
fn a_waker_of_a_handle() {
    explore("a_waker_of_a_handle", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 4, 8]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        let stop = Stop::new();
        let held = call_on_worker(&rig, &stop.waker(), &stop);
        join_all(crowd(&rig, dice));
        rig.wait_until_left(1);
        stop.go();
        held.end(&rig, dice);
        rig.end(Vec::new(), None);
    });
}

/// A waker that lets others run, then leaves a line.
struct Leaves(Mutex<Option<InLine>>, u64, AtomicBool);

impl Wake for Leaves {
    fn wake(self: Arc<Self>) {
        self.2.store(true, Ordering::SeqCst);
        (0..self.1).for_each(|_| step());
        let waits = self.0.lock().expect("no panic").take();
        drop(waits);
    }
}

/// A worker calls a waker, and then drops a value of that waker, which does not return. All tasks end, but one that was
/// handed to the worker while it called the waker.
#[test]
fn a_drop_after_a_waker() {
    explore("a_drop_after_a_waker", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 4, 8]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        let (stop, team) = (Stop::new(), Team::limited(&rig, 1));
        let (end_first, hold) = gate();
        team.serve(&rig, hold);
        let value = stop.value();
        let call = || rig.serve_async(team.group.awaitable(), move || drop(value));
        let polled = team.during(call, |polled| polled.as_ref().err()?.as_ref().err());
        let waits = polled.expect("the group is full");
        team.leaves();
        let leaves = Leaves(
            Mutex::new(Some(waits)),
            dice.below(20),
            AtomicBool::new(false),
        );
        let waker = Waker::from(Arc::new(leaves));
        let (go, hold) = gate();
        let held = rig.handle(rig.pool.awaitable(), Adds::NOTHING, hold);
        let held = held.expect("space").register(&waker).expect("it runs");
        let all = crowd(&rig, dice);
        go.store(true, Ordering::SeqCst);
        // The worker is this thread's last one.
        (0..dice.below(5)).for_each(|_| act(&rig, dice));
        wait_until(|| stop.has_stopped());
        end_first.store(true, Ordering::SeqCst);
        join_all(all);
        rig.wait_until_left(1);
        stop.go();
        held.end(&rig, dice);
        rig.end(Vec::new(), Some(&team));
    });
}

/// A task's turn comes too late, and the drop of its captures on a worker does not return. Other workers
/// run the tasks behind it, also those that relied on this worker to look at the queue.
#[test]
fn a_late_task() {
    explore("a_late_task", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[1, 4, 8]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        join_all(crowd(&rig, dice));
        let stop = Stop::new();
        let value = stop.value();
        let late = rig.beside(dice, move |rig, _| {
            drop(rig.serve(Adds::late(), move || drop(value)));
        });
        join_all(crowd(&rig, dice));
        rig.wait_until_left(1);
        stop.go();
        join_all(vec![late]);
        rig.end(Vec::new(), None);
    });
}

/// A thread calls the waker of a future in line, which does not return: a worker, or a thread that
/// has made space by a cancel or a limit. The others in line get their turn.
#[test]
fn a_waker_of_the_line() {
    explore("a_waker_of_the_line", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 4]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        rig.set_limit(workers - 1);
        let (go, _) = gate();
        let hold = || {
            let go = Arc::clone(&go);
            move || wait_until(|| go.load(Ordering::SeqCst))
        };
        for _ in 1..workers {
            rig.serve(Adds::NOTHING, hold()).expect("a worker");
        }
        let team = Team::new(&rig, Adds::NOTHING, true);
        (0..queue).for_each(|_| team.serve(&rig, step));
        let (stop, mut futures) = (Stop::new(), Vec::new());
        for _ in 0..dice.between(1, 4) {
            if let Ok(waits) = rig.serve_async(rig.pool.awaitable(), step) {
                futures.extend(waits.register(&stop.waker()));
            }
        }
        // Each of these makes space, on a thread that may then stop.
        let its = Arc::clone(&team);
        let makers = vec![
            rig.beside(dice, move |_, _| go.store(true, Ordering::SeqCst)),
            rig.beside(dice, move |rig, dice| its.cancel(rig, dice)),
            rig.beside(dice, move |rig, dice| {
                dice.pause(20);
                rig.set_limit(workers);
            }),
        ];
        wait_until(|| stop.has_stopped() || futures.is_empty());
        join_all(crowd(&rig, dice));
        rig.wait_until_left(1);
        stop.go();
        join_all(makers);
        drop(futures);
        rig.end(Vec::new(), Some(&team));
    });
}

/// The drop of a discarded capture does not return. The thread that discards waits for it, and no
/// other does: not even a shutdown with a limit.
#[test]
fn a_discarded_capture() {
    explore("a_discarded_capture", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.of(&[2, 4, 8]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        let (go, _) = gate();
        for _ in 0..workers {
            let go = Arc::clone(&go);
            let hold = move || wait_until(|| go.load(Ordering::SeqCst));
            rig.serve(Adds::NOTHING, hold).expect("a worker");
        }
        let (stop, team) = (Stop::new(), Team::new(&rig, Adds::NOTHING, true));
        let value = stop.value();
        team.serve(&rig, move || drop(value));
        let its = Arc::clone(&team);
        let by_shutdown = dice.one_in(2);
        let discards = rig.beside(dice, move |rig, dice| {
            if by_shutdown {
                drop(rig.pool.shutdown(Shutdown::Discard, Duration::ZERO));
            }
            its.cancel(rig, dice);
        });
        let mut all = crowd(&rig, dice);
        wait_until(|| stop.has_stopped());
        all.extend(crowd(&rig, dice));
        go.store(true, Ordering::SeqCst);
        join_all(all);
        rig.wait_until_left(0);
        team.group.wait();
        stop.go();
        join_all(vec![discards]);
        rig.end(Vec::new(), Some(&team));
    });
}

/// The stop hook of a worker does not return. It is no worker any more, so all tasks end.
#[test]
fn a_stop_hook() {
    explore("a_stop_hook", |dice| {
        let (workers, queue) = (dice.between(1, 3), dice.of(&[0, 1, 4]));
        let (stop, idle) = (Stop::new(), ticks(dice.of(&[0, 1, 10])));
        let its = stop.clone();
        let rig = Rig::new(false, workers, queue, |b| {
            b.idle_timeout(idle).on_worker_stop(move |_| its.here())
        });
        let early = crowd(&rig, dice);
        let _ = rig.serve_small();
        join_all(early);
        join_all(crowd(&rig, dice));
        rig.wait_until_left(0);
        stop.go();
        rig.end(Vec::new(), None);
    });
}

/// A hook of the first worker does not return: its start hook, or what wraps its first task, before or after that task. All
/// calls do, and all other tasks end.
#[test]
fn a_hook_of_a_worker() {
    explore("a_hook_of_a_worker", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 4, 8]), dice.idle());
        let (stop, kind) = (Stop::new(), dice.below(3));
        let its = stop.clone();
        let rig = Rig::new(false, workers, queue, |b| {
            let b = b.idle_timeout(idle);
            match kind {
                0 => b.on_worker_start(move |_| its.here()),
                1 => b.around(move |task| {
                    its.here();
                    task();
                }),
                _ => b.around(move |task| {
                    task();
                    its.here();
                }),
            }
        });
        let first = rig.serve(Adds::NOTHING, step);
        first.expect("a new pool");
        wait_until(|| stop.has_stopped());
        join_all(crowd(&rig, dice));
        rig.wait_until_left(1);
        stop.go();
        rig.end(Vec::new(), None);
    });
}

/// A waker that submits once, with `Refuse`.
struct Submits(Weak<Rig>, AtomicU64);

impl Wake for Submits {
    fn wake(self: Arc<Self>) {
        let rig = self.0.upgrade().expect("the pool is there");
        if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            let _ = rig.serve(Adds::policy(WhenFull::Refuse), step);
        }
    }
}

fn submits(rig: &Arc<Rig>) -> Waker {
    Waker::from(Arc::new(Submits(Arc::downgrade(rig), AtomicU64::new(0))))
}

/// Wakers of futures and handles submit, beside threads that the OS refuses and a limit that falls
/// and rises. Each is answered. Laws 13 and 21.
#[test]
fn wakers_that_submit() {
    explore("wakers_that_submit", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 1, 2]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        disturb_threads(dice, 2, &[2, 3, 5]);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&kept);
        let mut all = rig.crowd(dice, 2..=4, 1..=5, move |rig, dice| {
            let waker = submits(rig);
            match dice.below(4) {
                0 => act(rig, dice),
                1 => {
                    let steps = dice.below(6);
                    let work = move || (0..steps).for_each(|_| step());
                    let served = rig.handle(rig.pool.awaitable(), Adds::NOTHING, work);
                    if let Some(held) = served.ok().and_then(|held| held.register(&waker)) {
                        held.leave(rig, dice);
                    }
                }
                _ => match rig.serve_async(rig.pool.awaitable(), step) {
                    Ok(waits) => {
                        let waits = waits.register(&waker);
                        its.lock().expect("no panic").extend(waits);
                    }
                    Err(Ok(held)) => held.leave(rig, dice),
                    Err(Err(_)) => {}
                },
            }
        });
        if dice.one_in(2) {
            all.push(rig.beside(dice, |rig, dice| rig.move_limit(dice)));
        }
        join_all(all);
        set_options(|o| o.refuse_one_in = 0);
        rig.wait_until_left(0);
        let kept = std::mem::take(&mut *kept.lock().expect("no panic"));
        drop(kept);
        rig.end(Vec::new(), None);
    });
}

/// Workers call wakers of handles, while tasks on other workers wait for tasks of their own. All tasks end, also one
/// that was handed to a worker in the moment before its waker. Law 14.
#[test]
fn nested_beside_wakers() {
    explore("nested_beside_wakers", |dice| {
        let (workers, queue, idle) = (dice.between(2, 3), dice.of(&[0, 1, 4]), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        let all = rig.crowd(dice, 2..=3, 1..=4, |rig, dice| {
            if dice.one_in(2) {
                let served = rig.handle(rig.pool.awaitable(), Adds::NOTHING, step);
                let waker = submits(rig);
                if let Some(held) = served.ok().and_then(|held| held.register(&waker)) {
                    held.end(rig, dice);
                }
                return;
            }
            let (its, times) = (Arc::downgrade(rig), dice.between(1, 3));
            let waits = move || {
                let rig = its.upgrade().expect("the pool is there");
                (0..times).for_each(|_| _ = rig.wait(Duration::MAX, step));
            };
            let _ = rig.serve(Adds::policy(WhenFull::Refuse), waits);
        });
        join_all(all);
        rig.wait_until_left(0);
        rig.end(Vec::new(), None);
    });
}

/// The number of steps that a submission may take if it must not wait. In a pool without a line, the
/// most that was seen is 406, in 7,500 executions: other threads change what it reads.
const MANY_STEPS: u64 = 1_000;

/// Submissions that must not wait, beside a line of threads and futures that is hardly ever empty.
/// Each ends within a bounded number of its own steps, whatever the others do. Laws 1 and 20.
#[test]
fn own_steps() {
    explore("own_steps", |dice| {
        count_steps();
        let (workers, queue) = (dice.between(1, 3), dice.of(&[0, 1, 4]));
        let rig = Rig::new(false, workers, queue, |b| b);
        disturb_threads(dice, 4, &[2, 3]);
        let mut all = rig.crowd(dice, 2..=4, 20..=40, |rig, dice| {
            let steps = dice.below(3);
            let work = move || (0..steps).for_each(|_| step());
            let _ = rig.serve(Adds::policy(WhenFull::Block), work);
        });
        all.extend(rig.crowd(dice, 1..=2, 1..=4, |rig, _| {
            let (steps, _) = steps_of(|| rig.serve(Adds::policy(WhenFull::Refuse), step));
            assert!(steps <= MANY_STEPS, "{steps} steps");
        }));
        join_all(all);
        set_options(|o| o.refuse_one_in = 0);
        rig.end(Vec::new(), None);
    });
}
