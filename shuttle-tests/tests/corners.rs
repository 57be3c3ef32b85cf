//! Tasks that wait for each other; drops of a pool beside others; destructors of thread-locals;
//! waits for space that end.
#![cfg(lazypool_shuttle)]

use lazypool::{Shutdown, WhenFull};
use shuttle_tests::{explore, join_all, step, ticks, Adds, Meeting, Rig};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// As many tasks come as there may be workers, and each of them ends once all of them run. Beside
/// them come tasks that end by themselves, and perhaps a limit that is raised. No task stays queued
/// behind another while a worker is idle or could be started. Laws 4 and 5.
#[test]
fn all_run_at_once() {
    explore("all_run_at_once", |dice| {
        let (workers, queue) = (dice.between(2, 4), dice.of(&[0, 1, 2, 3, 6]));
        let idle = dice.idle();
        let rig = Rig::new(true, workers, queue, |b| b.idle_timeout(idle));
        let raises = dice.one_in(3);
        if raises {
            rig.set_limit(1);
        }
        if dice.one_in(2) {
            rig.wait_small(Duration::MAX);
        }
        let meeting = Meeting::of(workers);
        let mut all = rig.crowd(dice, workers..=workers, 1..=1, move |rig, dice| {
            for _ in 0..dice.below(3) {
                rig.act(None, dice, 0);
            }
            let meeting = Arc::clone(&meeting);
            let meet = move || meeting.meet();
            let served = if dice.one_in(2) {
                rig.serve(Adds::NOTHING, meet).is_ok()
            } else {
                rig.wait(Duration::MAX, meet)
            };
            assert!(served, "it waits for space");
        });
        all.extend(rig.crowd(dice, 0..=2, 1..=3, |rig, dice| rig.act(None, dice, 0)));
        if raises {
            all.push(rig.beside(dice, move |rig, dice| {
                dice.pause(40);
                rig.set_limit(workers);
            }));
        }
        rig.end(all, None);
    });
}

/// The last handle of a pool is dropped while others submit through groups, tasks hold handles of
/// their own pool, and perhaps a thread shuts it down. Whichever thread drops it, every closure ran
/// or was discarded, and every thread ends. Law 10.
#[test]
fn dropped_beside_others() {
    explore("dropped_beside_others", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(4), dice.idle());
        let mode = dice.of(&[Shutdown::Drain, Shutdown::Discard]);
        let timeout = dice.of(&[Duration::ZERO, ticks(20), Duration::MAX]);
        let rig = Rig::new(false, workers, queue, |b| {
            b.idle_timeout(idle).shutdown_on_drop(mode, timeout)
        });
        let ledger = rig.ledger();
        if mode == Shutdown::Discard {
            rig.expect_discards();
        }
        rig.judge_no_refusal();
        let group = rig.pool.group();
        // A task's closure holds the pool.
        let mut all = rig.crowd(dice, 1..=4, 1..=3, |rig, dice| rig.act(None, dice, 1));
        for _ in 0..dice.between(1, 2) {
            let (group, mut dice) = (group.clone(), dice.fork());
            all.push(lazypool::model::spawn(move || {
                for _ in 0..dice.between(1, 4) {
                    dice.pause(20);
                    let _ = group.serve(step);
                }
            }));
        }
        all.extend(rig.maybe(dice, 3, 60, |rig, dice| rig.shut_down(dice)));
        dice.pause(60);
        drop(rig);
        join_all(all);
        ledger.settle();
        // The group's tasks end, too, whichever thread held the pool last.
        group.wait();
        assert_eq!(group.pending(), 0);
    });
}

/// Submits, or shuts the pool down, in the destructor of a thread-local.
struct AtTheEnd {
    rig: Weak<Rig>,
    verb: u64,
    limit: Duration,
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let Some(rig) = self.rig.upgrade() else {
            return;
        };
        match self.verb {
            0 | 1 => drop(rig.serve_small()),
            2 | 3 => drop(rig.wait_small(self.limit)),
            4 => drop(rig.pool.shutdown(Shutdown::Discard, self.limit)),
            _ => drop(rig.pool.shutdown(Shutdown::Drain, self.limit)),
        }
    }
}

shuttle::thread_local! {
    static AT_THE_END: RefCell<Option<AtTheEnd>> = RefCell::new(None);
}

/// Tasks leave a thread-local behind whose destructor submits to the pool or shuts it down, after
/// the worker's last step. The submitted tasks end, and so does the pool.
#[test]
fn thread_local_destructors() {
    explore("thread_local_destructors", |dice| {
        let (workers, queue, idle) = (dice.between(1, 3), dice.below(3), dice.idle());
        let rig = Rig::new(false, workers, queue, |b| b.idle_timeout(idle));
        rig.expect_discards();
        let all = rig.crowd(dice, 1..=4, 1..=3, |rig, dice| {
            if dice.one_in(2) {
                return rig.act(None, dice, 0);
            }
            let left = AtTheEnd {
                rig: Arc::downgrade(rig),
                verb: dice.below(6),
                limit: Rig::limit(dice),
            };
            let task = move || AT_THE_END.with(|it| *it.borrow_mut() = Some(left));
            let _ = rig.serve(Adds::NOTHING, task);
        });
        rig.end(all, None);
    });
}

/// Submitters wait for space for a while, beside others that wait or do not. Each is refused no
/// sooner than its time is up, and only if there was no space. Law 1.
#[test]
fn waits_for_a_while() {
    explore("waits_for_a_while", |dice| {
        let (workers, queue) = (dice.between(1, 2), dice.below(3));
        let rig = Rig::new(false, workers, queue, |b| b);
        let mut all = rig.crowd(dice, 3..=6, 1..=4, |rig, dice| {
            let time = ticks(dice.of(&[0, 1, 4, 20, 60]));
            if dice.one_in(3) {
                rig.act(None, dice, 1);
            } else {
                let _ = rig.serve(Adds::policy(WhenFull::BlockFor(time)), || ());
            }
        });
        all.extend(rig.maybe(dice, 4, 80, |rig, dice| rig.shut_down(dice)));
        rig.end(all, None);
    });
}
