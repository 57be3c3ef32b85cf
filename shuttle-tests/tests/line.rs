//! Threads and futures that wait for space in one line. Laws 20 and 22.
#![cfg(lazypool_shuttle)]

use lazypool::model::{self, set_options};
use lazypool::{Refusal, WhenFull};
use shuttle_tests::{
    end_handle, explore, join_all, step, ticks, Bench, Dice, InLine, Limited, Polled, Via,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A gate: tasks run until it is opened.
fn hold(bench: &Bench) -> Arc<AtomicBool> {
    let go = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&go);
    let task = move || {
        while !until.load(Ordering::SeqCst) {
            shuttle::thread::yield_now();
        }
    };
    assert!(bench.serve_work(Via::Pool, task), "a worker for it");
    go
}

fn wait_for_waiting(bench: &Bench, count: usize) {
    while model::peek(|| bench.pool.stats().waiting) != Some(count) {
        shuttle::thread::yield_now();
    }
}

/// The numbers of the submissions that waited, in the order in which their tasks started.
type Started = Arc<Mutex<Vec<usize>>>;

fn note(started: &Started, number: usize) -> impl FnOnce() + Send + 'static {
    let started = Arc::clone(started);
    move || {
        started.lock().expect("no panic").push(number);
        step();
    }
}

/// Makes threads and futures join the line, one by one.
fn join_line(
    bench: &Arc<Bench>,
    waiting: usize,
    started: &Started,
    dice: &mut Dice,
) -> (Vec<model::JoinHandle<()>>, Vec<InLine>) {
    let (mut threads, mut futures) = (Vec::new(), Vec::new());
    for number in 0..waiting {
        let work = note(started, number);
        if dice.one_in(2) {
            match bench.poll_async(bench.pool.awaitable(), work) {
                Polled::Waits(waits) => futures.push(waits),
                _ => panic!("the worker is busy"),
            }
        } else {
            let bench = Arc::clone(bench);
            threads.push(model::spawn(move || {
                assert!(bench.serve_work(Via::Pool, work), "it waits");
            }));
        }
        wait_for_waiting(bench, number + 1);
    }
    (threads, futures)
}

/// Threads and futures join one by one, some leave, and others come that must not wait, or wait
/// behind them. The tasks start in the order in which they joined; no task that comes later starts
/// before them.
#[test]
fn in_order() {
    explore("in_order", |dice| {
        let bench = Bench::blocking(1, 0, |b| b);
        let go = hold(&bench);
        let started = Started::default();
        let waiting = dice.between(2, 5) as usize;
        let (mut all, futures) = join_line(&bench, waiting, &started, dice);
        let (later, behind) = (dice.between(0, 2), dice.between(0, 2));
        for n in 0..later + behind {
            let (bench, work) = (Arc::clone(&bench), note(&started, waiting + n as usize));
            all.push(model::spawn(move || {
                if n < later {
                    bench.serve_at_once(work);
                } else {
                    assert!(bench.serve_work(Via::Pool, work), "it waits");
                }
            }));
        }
        let leaves = dice.of(&[0, 1]);
        let (leavers, polled): (Vec<_>, Vec<_>) =
            (futures.into_iter()).partition(|_| leaves == 1 && dice.one_in(3));
        let mut own = dice.fork();
        all.push(model::spawn(move || {
            own.pause(30);
            drop(leavers);
        }));
        dice.pause(30);
        go.store(true, Ordering::SeqCst);
        // Their turn comes, whether they are polled or not.
        while bench.pool.stats().waiting > 0 {
            shuttle::thread::yield_now();
        }
        for waits in polled {
            let handle = waits.wait().expect("it waits as long as it takes");
            handle.join().expect("it runs");
        }
        join_all(all);
        bench.wait_until_idle();
        let started = started.lock().expect("no panic").clone();
        let (first, rest): (Vec<_>, Vec<_>) = started.iter().partition(|n| **n < waiting);
        assert!(first.is_sorted(), "{started:?}");
        assert!(started.ends_with(&rest), "{started:?}");
        bench.finish(true);
    });
}

/// Submits as a future, to the group or not; then awaits space, leaves the line, or stays in it
/// unpolled.
fn await_space(
    bench: &Arc<Bench>,
    limited: Option<&Limited>,
    left: &AtomicU64,
    kept: &mut Vec<InLine>,
    dice: &mut Dice,
) {
    let steps = dice.below(4);
    let work = move || (0..steps).for_each(|_| step());
    let polled = match limited {
        None => bench.poll_async(bench.pool.awaitable(), work),
        Some(limited) => limited.during(|| {
            let polled = bench.poll_async(limited.group().awaitable(), work);
            let is_full = matches!(polled, Polled::Refused(Refusal::GroupFull));
            (is_full, polled)
        }),
    };
    let answer = match polled {
        Polled::Accepted(handle) => Ok(handle),
        Polled::Refused(why) => Err(why),
        Polled::Waits(waits) => match (dice.below(4), limited) {
            (0, None) => return kept.push(waits),
            (0 | 1, _) => {
                dice.pause(20);
                left.fetch_add(u64::from(limited.is_some()), Ordering::Relaxed);
                return drop(waits);
            }
            _ => waits.wait(),
        },
    };
    if let Ok(handle) = answer {
        limited.inspect(|limited| limited.count());
        end_handle(bench, handle, dice);
    }
}

/// Submits in one of the ways in which a submission waits, or must not wait.
fn act(
    bench: &Arc<Bench>,
    limited: &Limited,
    left: &AtomicU64,
    kept: &mut Vec<InLine>,
    dice: &mut Dice,
) {
    match dice.below(8) {
        0 => drop(bench.serve_work(Via::Pool, step)),
        1 => drop(bench.serve_blocking_for(ticks(dice.of(&[0, 1, 4, 20, 60])))),
        2 => drop(bench.wait_small(Bench::limit(dice))),
        3 => drop(bench.serve_at_once(step)),
        4 => {
            let served = limited.during(|| {
                let served = bench.serve_why(Via::Group(limited.group()), step);
                (matches!(served, Err(Refusal::GroupFull)), served)
            });
            if served.is_ok() {
                limited.count();
            }
        }
        5 => await_space(bench, Some(limited), left, kept, dice),
        _ => await_space(bench, None, left, kept, dice),
    }
}

/// Threads and futures wait in one line, beside a cancelled group with a limit, a pool limit that
/// falls and rises, threads that the OS refuses, and a shutdown. Laws 1, 2, 9, 10, 13, 20, 22.
#[test]
fn mixed_line() {
    explore("mixed_line", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.of(&[0, 0, 1, 2]));
        let idle = dice.of(&[Duration::ZERO, ticks(10), Duration::MAX, Duration::MAX]);
        let bench = Bench::blocking(workers, queue, |b| b.idle_timeout(idle));
        bench.expect_limit(1);
        if dice.one_in(3) {
            let n = dice.of(&[2, 3, 5]);
            set_options(|o| o.refuse_one_in = n);
        }
        if dice.one_in(6) {
            set_options(|o| o.spurious_one_in = 8);
        }
        let limited = Limited::new(&bench, dice.below(4) as usize);
        let left = Arc::new(AtomicU64::new(0));
        let threads = dice.between(3, 5);
        let (its, lefts) = (Arc::clone(&limited), Arc::clone(&left));
        let mut all = bench.submitters(dice, threads, move |bench, dice| {
            let mut kept = Vec::new();
            for _ in 0..dice.between(1, 3) {
                act(bench, &its, &lefts, &mut kept, dice);
            }
            for waits in kept {
                if dice.one_in(4) {
                    drop(waits);
                } else if let Ok(handle) = waits.wait() {
                    end_handle(bench, handle, dice);
                }
            }
        });
        if dice.one_in(2) {
            let its = Arc::clone(&limited);
            all.extend(bench.submitters(dice, 1, move |_, dice| {
                dice.pause(90);
                its.group().cancel();
            }));
        }
        if dice.one_in(2) {
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                for limit in [1, workers] {
                    dice.pause(60);
                    bench.pool.set_limit(limit).expect("within bounds");
                }
            }));
        }
        all.extend(bench.may_shut_down(dice, 3, 120));
        join_all(all);
        limited.settle(left.load(Ordering::Relaxed));
        set_options(|o| o.refuse_one_in = 0);
        bench.wait_until_idle();
        drop(limited);
        bench.finish(true);
    });
}

/// The line is full as the OS begins to refuse threads and the only worker ends. Each submission in
/// line is refused, or its task runs. Law 13.
#[test]
fn line_without_threads() {
    explore("line_without_threads", |dice| {
        let workers = dice.between(1, 2) as usize;
        let queue = dice.below(2) as usize;
        let idle = dice.of(&[Duration::ZERO, ticks(10)]);
        let bench = Bench::blocking(workers, queue, |b| b.idle_timeout(idle));
        let go = hold(&bench);
        set_options(|o| o.refuse_one_in = 1);
        let threads = dice.between(2, 4);
        let all = bench.submitters(dice, threads, |bench, dice| {
            let polled = if dice.one_in(2) {
                bench.poll_async(bench.pool.awaitable(), step)
            } else {
                bench.serve_work(Via::Pool, step);
                return;
            };
            let answer = match polled {
                Polled::Waits(waits) => waits.wait(),
                Polled::Accepted(handle) => Ok(handle),
                Polled::Refused(why) => Err(why),
            };
            match answer {
                Ok(handle) => handle.join().expect("it runs"),
                Err(Refusal::SpawnFailed(_)) => {}
                Err(why) => panic!("{why}"),
            }
        });
        dice.pause(200);
        go.store(true, Ordering::SeqCst);
        join_all(all);
        bench.wait_until_idle();
        bench.finish(false);
    });
}

/// One future after another awaits space and then its value, on a pool of one. None is refused. Law
/// 22.
#[test]
fn back_to_back() {
    explore("back_to_back", |dice| {
        let policy = dice.of(&[WhenFull::Refuse, WhenFull::Block]);
        let bench = Bench::new(1, 0, |b| b.when_full(policy));
        for _ in 0..dice.between(2, 4) {
            let mut handle = match bench.poll_async(bench.pool.awaitable(), step) {
                Polled::Accepted(handle) => handle,
                // The worker is just serving the line, and comes to the task next.
                Polled::Waits(waits) => waits.wait().expect("the worker is free"),
                Polled::Refused(why) => panic!("the worker is free: {why}"),
            };
            shuttle_tests::block_on(&mut handle).expect("it runs");
        }
        bench.finish(false);
    });
}
