//! Discards in which captures wait for other tasks of the same discard. Laws 8, 10, 21.
#![cfg(lazypool_shuttle)]

use lazypool::Shutdown;
use shuttle_tests::{explore, gate, join_all, ticks, Adds, Dice, Held, Rig, Team};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Shared {
    rig: Arc<Rig>,
    team: Arc<Team>,
    handles: Mutex<Vec<Option<Held>>>,
}

impl Shared {
    /// Joins, awaits, cancels, drops or detaches the handle of a task, if it is still there.
    fn end(&self, number: usize, dice: &mut Dice) {
        let held = self.handles.lock().expect("no panic")[number].take();
        held.into_iter().for_each(|held| held.end(&self.rig, dice));
    }
}

/// Captured by a task. If the task is discarded, the drop of the capture waits for another task, or
/// discards more. On the worker, which drops the capture of a task whose group was cancelled, it does
/// not wait: the other task may need that worker.
struct Capture {
    shared: Arc<Shared>,
    dice: Dice,
    other: usize,
    has_run: bool,
}

impl Capture {
    fn run(mut self) {
        self.has_run = true;
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let (shared, dice) = (&self.shared, &mut self.dice);
        match dice.below(8) {
            _ if self.has_run => {}
            0..3 if lazypool::task::slot().is_some() => {}
            0..3 => shared.end(self.other, dice),
            3 => shared.team.cancel(&shared.rig, dice),
            4 => shared.team.wait_for(ticks(3)),
            // Within a discard of the same pool a shutdown does not wait.
            5 => drop(shared.rig.pool.shutdown(Shutdown::Discard, Duration::MAX)),
            _ => {}
        }
    }
}

/// Queued tasks are discarded in one or two discards, by a shutdown, a group, or handles; each
/// capture joins, awaits, drops or discards other tasks. All of it ends, and each closure runs or
/// is dropped once.
#[test]
fn captures_that_wait() {
    explore("captures_that_wait", |dice| {
        let count = dice.between(2, 6);
        let rig = Rig::new(false, 1, count, |b| b);
        rig.expect_discards();
        let (go, hold) = gate();
        rig.serve(Adds::NOTHING, hold).expect("a new pool");
        let shared = Arc::new(Shared {
            team: Team::new(&rig, Adds::NOTHING, false),
            rig: Arc::clone(&rig),
            handles: Mutex::default(),
        });
        for _ in 0..count {
            let capture = Capture {
                shared: Arc::clone(&shared),
                dice: dice.fork(),
                other: dice.below(count) as usize,
                has_run: false,
            };
            let in_team = dice.one_in(2);
            let on = match in_team {
                true => shared.team.group.awaitable(),
                false => rig.pool.awaitable(),
            };
            let held = rig.handle(on, Adds::NOTHING, move || capture.run());
            if in_team {
                shared.team.count();
            }
            let mut handles = shared.handles.lock().expect("no panic");
            handles.push(Some(held.expect("space for all")));
        }
        let its = Arc::clone(&shared);
        let discards = rig.crowd(dice, 1..=2, 1..=1, move |rig, dice| {
            dice.pause(30);
            match dice.below(3) {
                0 => drop(rig.pool.shutdown(Shutdown::Discard, Duration::MAX)),
                1 => its.team.cancel(rig, dice),
                _ => its.end(0, dice),
            }
        });
        dice.pause(90);
        go.store(true, Ordering::SeqCst);
        join_all(discards);
        (0..count as usize).for_each(|rest| shared.end(rest, dice));
        rig.end(Vec::new(), Some(&shared.team));
    });
}
