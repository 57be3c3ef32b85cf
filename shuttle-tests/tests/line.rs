//! Threads and futures that wait for space in one line. Laws 20 and 22.
#![cfg(lazypool_shuttle)]

use lazypool::model::{peek, set_options, spawn};
use lazypool::WhenFull;
use shuttle_tests::{
    await_space, block_on, disturb_threads, explore, gate, join_all, step, ticks, wait_until, Adds,
    Dice, InLine, Rig, Team, Threads,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The numbers of the submissions that waited, in the order in which their tasks started.
type Started = Arc<Mutex<Vec<u64>>>;

fn note(started: &Started, number: u64) -> impl FnOnce() + Send + 'static {
    let started = Arc::clone(started);
    move || {
        started.lock().expect("no panic").push(number);
        step();
    }
}

/// Makes threads and futures join the line, one by one.
fn join_line(
    rig: &Arc<Rig>,
    waiting: u64,
    started: &Started,
    dice: &mut Dice,
) -> (Threads, Vec<InLine>) {
    let (mut threads, mut futures) = (Vec::new(), Vec::new());
    for number in 0..waiting {
        let work = note(started, number);
        if dice.one_in(2) {
            let waits = rig.serve_async(rig.pool.awaitable(), work);
            futures.push(waits.expect("the worker is busy"));
        } else {
            threads.push(rig.beside(dice, move |rig, _| {
                rig.serve(Adds::NOTHING, work).expect("it waits");
            }));
        }
        let joined = number as usize + 1;
        wait_until(|| peek(|| rig.pool.stats().waiting) == Some(joined));
    }
    (threads, futures)
}

/// Threads and futures join one by one, and some leave. Each later submission either must not wait,
/// or waits behind them. The tasks of the line start in the order in which they joined; no later
/// task starts before them.
#[test]
fn in_order() {
    explore("in_order", |dice| {
        let rig = Rig::new(true, 1, 0, |b| b);
        let (go, hold) = gate();
        rig.serve(Adds::NOTHING, hold).expect("a worker for it");
        let (started, waiting) = (Started::default(), dice.between(2, 5));
        let (mut all, futures) = join_line(&rig, waiting, &started, dice);
        for n in 0..dice.below(5) {
            let work = note(&started, waiting + n);
            let policy = dice.of(&[WhenFull::Refuse, WhenFull::Block]);
            all.push(rig.beside(dice, move |rig, _| {
                let served = rig.serve(Adds::policy(policy), work);
                assert!(served.is_ok() || policy == WhenFull::Refuse, "it waits");
            }));
        }
        let leaves = dice.one_in(2);
        let (leavers, polled): (Vec<_>, Vec<_>) =
            (futures.into_iter()).partition(|_| leaves && dice.one_in(3));
        let mut own = dice.fork();
        all.push(spawn(move || {
            own.pause(30);
            drop(leavers);
        }));
        dice.pause(30);
        go.store(true, Ordering::SeqCst);
        // Their turn comes, whether they are polled or not.
        wait_until(|| rig.pool.stats().waiting == 0);
        for mut waits in polled {
            let held = block_on(&mut waits, dice).expect("it waits as long as it takes");
            held.end(&rig, dice);
        }
        join_all(all);
        rig.wait_until_idle();
        let started = started.lock().expect("no panic").clone();
        let (first, rest): (Vec<_>, Vec<_>) = started.iter().partition(|n| **n < waiting);
        assert!(first.is_sorted() && started.ends_with(&rest), "{started:?}");
        rig.end(Vec::new(), None);
    });
}

/// Makes one submission, in a way that the dice choose. Some ways wait for space, and others must
/// not wait.
fn act(rig: &Arc<Rig>, team: &Team, kept: &mut Vec<InLine>, dice: &mut Dice) {
    let a_while = WhenFull::BlockFor(ticks(dice.of(&[0, 1, 4, 20, 60])));
    let policy = dice.of(&[WhenFull::Refuse, WhenFull::Block, a_while]);
    match dice.below(8) {
        0..3 => drop(rig.serve(Adds::policy(policy), step)),
        3 => drop(rig.wait_small(Rig::limit(dice))),
        4 => team.serve(rig, step),
        5 => await_space(rig, Some(team), kept, dice),
        _ => await_space(rig, None, kept, dice),
    }
}

/// Threads and futures wait in one line, beside a cancelled group with a limit, a pool limit that
/// falls and rises, threads that the OS refuses, and a shutdown. Laws 1, 2, 9, 10, 13, 20, 22.
#[test]
fn mixed_line() {
    explore("mixed_line", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.of(&[0, 0, 1, 2]), dice.idle());
        let rig = Rig::new(true, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        disturb_threads(dice, 3, &[2, 3, 5]);
        let team = Team::limited(&rig, dice.below(4) as usize);
        let its = Arc::clone(&team);
        let mut all = rig.crowd(dice, 3..=5, 1..=1, move |rig, dice| {
            let mut kept = Vec::new();
            for _ in 0..dice.between(1, 3) {
                act(rig, &its, &mut kept, dice);
            }
            for mut waits in kept {
                if dice.one_in(4) {
                    drop(waits);
                } else if let Ok(held) = block_on(&mut waits, dice) {
                    held.end(rig, dice);
                }
            }
        });
        all.extend(team.maybe_cancel(&rig, dice, 90));
        all.extend(rig.maybe(dice, 2, 60, move |rig, dice| {
            rig.set_limit(1);
            dice.pause(60);
            rig.set_limit(workers);
        }));
        all.extend(rig.maybe(dice, 3, 120, |rig, dice| rig.shut_down(dice)));
        join_all(all);
        set_options(|o| o.refuse_one_in = 0);
        rig.end(Vec::new(), Some(&team));
    });
}
