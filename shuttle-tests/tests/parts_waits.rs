//! What threads wait with, alone, by more threads than loom can take: a call's decision and node,
//! the waiters for room, the members of a group.
#![cfg(lazypool_shuttle)]

use lazypool::model::{self, spawn, Call, Deadline, Decision, Member, Members, Task, Waiters};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::mpsc::{channel, Receiver, Sender};
use shuttle_tests::{explore, join_all, ticks, Dice, TICK};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A deadline, and the tick before which it has not passed.
fn soon(dice: &mut Dice) -> (Deadline, u64) {
    let limit = ticks(dice.below(40));
    let until = model::ticks() + (limit.as_nanos() / TICK.as_nanos()) as u64;
    (Deadline::within(limit), until)
}

fn assert_passed(until: u64) {
    assert!(model::ticks() >= until, "it leaves before its deadline");
}

// ---- completion -----------------------------------------------------------------

/// A call's task on its way to a worker, and the deadline that its caller will tell it.
struct Sent {
    task: Task,
    number: usize,
    told: Option<u64>,
}

/// A worker; which of its tasks' results it has delivered.
fn serve(decision: &Decision, tasks: &Receiver<Sent>, dice: &mut Dice) -> Vec<(usize, bool)> {
    let mut ends = Vec::new();
    while let Ok(Sent { task, number, told }) = tasks.recv() {
        decision.start(&task);
        dice.pause(5);
        if let Some(told) = told {
            assert_eq!(decision.deadline(&task), told, "another's deadline");
            dice.pause(5);
        }
        ends.push((number, decision.end(&task, number)));
        assert!(!decision.is_abandoned(), "it has ended");
    }
    ends
}

/// A call, from the submission to its end; what it got.
fn call(
    (decision, tasks): &(Arc<Decision>, Sender<Sent>),
    number: usize,
    dice: &mut Dice,
) -> Option<usize> {
    let call = Box::new(if dice.one_in(2) {
        Call::by_mailbox(number as u64)
    } else {
        Call::by_queue(8 * number as u64)
    });
    let how = dice.below(3);
    let told = (how == 0).then(|| 1 + dice.below(1_000));
    let task = call.task();
    let sent = Sent { task, number, told };
    assert!(tasks.send(sent).is_ok(), "the worker is there");
    dice.pause(12);
    match (told, how) {
        (Some(told), _) => {
            call.tell_deadline(told);
            dice.pause(12);
            call.leave(decision, told)
        }
        (None, 1) => {
            let (deadline, until) = soon(dice);
            let got = call.wait_until(decision, &deadline);
            if got.is_none() {
                assert_passed(until);
            }
            got
        }
        (None, _) => {
            let got = call.wait();
            assert_eq!(got, number, "another's result");
            Some(got)
        }
    }
}

/// Workers that start and end one task after another, callers that wait, or leave at a deadline, or
/// at once, and tasks that ask for the deadline. A result is its caller's or its worker's, as both
/// say; it is the caller's own; nobody leaves early, waits for ever, or is touched once gone.
#[test]
fn completion() {
    explore("completion", |dice| {
        let mut workers = Vec::new();
        let mut lines = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let decision = Arc::new(Decision::new());
            let (sender, tasks) = channel();
            lines.push((Arc::clone(&decision), sender));
            let mut dice = dice.fork();
            workers.push(spawn(move || serve(&decision, &tasks, &mut dice)));
        }
        let mut callers = Vec::new();
        for caller in 1..=dice.between(2, 5) as usize {
            let (lines, mut dice) = (lines.clone(), dice.fork());
            callers.push(spawn(move || {
                let calls = 0..dice.between(1, 3) as usize;
                let one = |n| {
                    let number = 10 * caller + n;
                    let line = &lines[dice.below(lines.len() as u64) as usize];
                    (number, call(line, number, &mut dice))
                };
                calls.map(one).collect::<Vec<_>>()
            }));
        }
        drop(lines);
        let ends = |workers: Vec<model::JoinHandle<Vec<_>>>| {
            let all = workers.into_iter().map(|w| w.join().expect("no panic"));
            all.flatten().collect::<Vec<_>>()
        };
        let all = callers.into_iter().map(|c| c.join().expect("no panic"));
        let got: HashMap<usize, Option<usize>> = all.flatten().collect();
        let delivered = ends(workers);
        assert_eq!(delivered.len(), got.len(), "each task has ended once");
        for (number, delivered) in delivered {
            assert_eq!(got[&number], delivered.then_some(number), "{number}");
        }
    });
}

// ---- waiters --------------------------------------------------------------------

/// Room for some, and threads that wait for it.
struct Room {
    waiters: Waiters,
    free: AtomicUsize,
}

impl Room {
    fn left(&self) -> u64 {
        self.free.load(Ordering::SeqCst) as u64
    }

    fn take(&self) -> bool {
        let less = |free: usize| free.checked_sub(1);
        let order = Ordering::SeqCst;
        self.free.fetch_update(order, order, less).is_ok()
    }

    fn make(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.waiters.notify();
    }

    /// Takes room if it comes in time, or at once, and gives it back: nobody else misses it.
    fn borrow(&self, dice: &mut Dice) {
        let taken = if dice.one_in(4) {
            self.waiters.try_once(|| self.left(), || self.take())
        } else {
            let (deadline, until) = soon(dice);
            let taken = self
                .waiters
                .wait_until(&deadline, || self.left(), || self.take());
            if !taken {
                assert_passed(until);
            }
            taken
        };
        if taken {
            dice.pause(6);
            self.make();
        }
    }
}

/// Threads that need room and keep it, others that leave at a deadline or give it back, and just as
/// much room as is kept, made one by one or at once. All get it who wait for it; nothing is left
/// over, nobody counted.
#[test]
fn waiters() {
    explore("waiters", |dice| {
        let room = Arc::new(Room {
            waiters: Waiters::new(),
            free: AtomicUsize::new(0),
        });
        let keep = dice.between(1, 4);
        let mut all = Vec::new();
        for _ in 0..keep {
            let (room, mut dice) = (Arc::clone(&room), dice.fork());
            all.push(spawn(move || {
                dice.pause(30);
                room.waiters.wait_for(|| room.left(), || room.take());
            }));
        }
        for _ in 0..dice.below(4) {
            let (room, mut dice) = (Arc::clone(&room), dice.fork());
            all.push(spawn(move || {
                dice.pause(30);
                (0..dice.between(1, 3)).for_each(|_| room.borrow(&mut dice));
            }));
        }
        let mut left = keep;
        while left > 0 {
            let (room, mut dice) = (Arc::clone(&room), dice.fork());
            let share = dice.between(1, left);
            left -= share;
            all.push(spawn(move || {
                dice.pause(60);
                if dice.one_in(3) {
                    // As places of tasks that were taken out: an event for each, and the room later, all
                    // at once.
                    (1..share).for_each(|_| room.waiters.notify());
                    dice.pause(60);
                    room.free.fetch_add(share as usize, Ordering::SeqCst);
                    room.waiters.notify();
                } else if dice.one_in(3) {
                    room.free.fetch_add(share as usize, Ordering::SeqCst);
                    room.waiters.notify_all();
                } else {
                    (0..share).for_each(|_| room.make());
                }
            }));
        }
        join_all(all);
        assert_eq!(room.free.load(Ordering::SeqCst), 0, "made, and not taken");
        room.waiters.assert_at_rest();
    });
}

// ---- members --------------------------------------------------------------------

/// How many tasks have entered and ended at least, and at most.
#[derive(Debug, Default)]
struct Tally {
    enters: usize,
    entered: usize,
    ends: usize,
    ended: usize,
    /// By look under way: the least and the most that were pending meanwhile.
    looks: Vec<(usize, usize, usize)>,
    begun: usize,
    /// Completions and panics: begun, and done.
    completes: [usize; 2],
    panics: [usize; 2],
}

impl Tally {
    fn bounds(&self) -> (usize, usize) {
        (self.entered - self.ends, self.enters - self.ended)
    }

    fn changed(&mut self) {
        let (least, most) = self.bounds();
        for (_, low, high) in &mut self.looks {
            *low = least.min(*low);
            *high = most.max(*high);
        }
    }
}

/// A group's members, for those who keep their handle, and the tally beside them.
#[derive(Clone)]
struct Set {
    members: Arc<Members>,
    tally: Arc<Mutex<Tally>>,
}

fn tell(tally: &Mutex<Tally>, change: impl FnOnce(&mut Tally)) {
    let mut tally = tally.lock().expect("no panic");
    change(&mut tally);
    tally.changed();
}

impl Set {
    fn enter(&self) -> Member {
        tell(&self.tally, |tally| tally.enters += 1);
        let member = self.members.enter();
        tell(&self.tally, |tally| tally.entered += 1);
        member
    }

    fn refuse(&self, member: Member) {
        tell(&self.tally, |tally| tally.ends += 1);
        self.members.refused(member);
        tell(&self.tally, |tally| tally.ended += 1);
    }

    /// What `look` says, and the least and the most that were pending meanwhile.
    fn during<R>(&self, look: impl FnOnce(&Members) -> R) -> (R, usize, usize) {
        let mut number = 0;
        tell(&self.tally, |tally| {
            let (least, most) = tally.bounds();
            tally.begun += 1;
            number = tally.begun;
            tally.looks.push((number, least, most));
        });
        let said = look(&self.members);
        let mut tally = self.tally.lock().expect("no panic");
        let at = tally.looks.iter().position(|(n, ..)| *n == number);
        let (_, least, most) = tally.looks.swap_remove(at.expect("begun"));
        (said, least, most)
    }

    fn wait(&self, dice: &mut Dice) {
        let limit = dice.below(3);
        let (ended, least, _) = self.during(|members| match limit {
            0 => {
                members.wait();
                true
            }
            1 => members.wait_no_longer(),
            _ => {
                let (deadline, until) = soon(dice);
                let ended = members.wait_until(&deadline);
                if !ended {
                    assert_passed(until);
                }
                ended
            }
        });
        assert!(!ended || least == 0, "{least} were pending all the time");
    }

    fn look(&self) {
        let (pending, least, most) = self.during(Members::pending);
        assert!(
            (least..=most).contains(&pending),
            "{least}..={most}: {pending}"
        );
        let figures = |at: usize| {
            let tally = self.tally.lock().expect("no panic");
            [tally.completes[at], tally.panics[at]]
        };
        let before = figures(1);
        let said = [self.members.completed(), self.members.panicked()];
        let after = figures(0);
        for n in 0..2 {
            assert!(
                (before[n]..=after[n]).contains(&said[n]),
                "{before:?} {said:?} {after:?}"
            );
        }
    }
}

/// Ends a task, which does not know the handle.
fn end(member: Member, tally: &Mutex<Tally>, panics: bool) {
    let of = |tally: &mut Tally, at: usize| {
        if panics {
            tally.panics[at] += 1;
        } else {
            tally.completes[at] += 1;
        }
    };
    tell(tally, |tally| {
        tally.ends += 1;
        of(tally, 0);
    });
    if panics {
        member.panic();
    } else {
        member.complete();
    }
    tell(tally, |tally| {
        tally.ended += 1;
        of(tally, 1);
    });
}

/// Threads that submit to a group, or are refused, workers that end its tasks, perhaps after the
/// last handle has gone, and threads that wait for it or look at it. Nobody waits for ever, nor
/// goes on while a task is pending; the figures are those of some moment; the set is freed once.
#[test]
fn members() {
    explore("members", |dice| {
        let set = Set {
            members: Arc::new(Members::new()),
            tally: Arc::default(),
        };
        let mut workers = Vec::new();
        let mut lines = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let (sender, tasks) = channel();
            lines.push(sender);
            let (tally, mut dice) = (Arc::clone(&set.tally), dice.fork());
            workers.push(spawn(move || {
                while let Ok(member) = tasks.recv() {
                    dice.pause(4);
                    end(member, &tally, dice.one_in(4));
                }
            }));
        }
        let mut all = Vec::new();
        for _ in 0..dice.between(1, 4) {
            let (set, lines, mut dice) = (set.clone(), lines.clone(), dice.fork());
            all.push(spawn(move || {
                for _ in 0..dice.between(1, 4) {
                    let member = set.enter();
                    if dice.one_in(4) {
                        set.refuse(member);
                    } else {
                        let line = &lines[dice.below(lines.len() as u64) as usize];
                        assert!(line.send(member).is_ok(), "the worker is there");
                    }
                }
            }));
        }
        drop(lines);
        for _ in 0..dice.below(4) {
            let (set, mut dice) = (set.clone(), dice.fork());
            all.push(spawn(move || {
                dice.pause(20);
                for _ in 0..dice.between(1, 3) {
                    if dice.one_in(2) {
                        set.wait(&mut dice);
                    } else {
                        set.look();
                    }
                }
            }));
        }
        let stays = dice.one_in(2).then(|| set.clone());
        drop(set);
        join_all(all);
        if let Some(set) = &stays {
            set.members.wait();
        }
        join_all(workers);
        if let Some(set) = stays {
            set.look();
            assert_eq!(set.members.pending(), 0);
        }
    });
}

/// Tasks that end beside a wait, and a thread that sees that nothing is pending and submits the next
/// one: that is pending until the wait has returned.
#[test]
fn moments() {
    explore("moments", |dice| {
        let members = Arc::new(Members::new());
        let tasks: Vec<_> = (0..dice.between(1, 2)).map(|_| members.enter()).collect();
        let mut all = Vec::new();
        let waited_for = Arc::clone(&members);
        all.push(spawn(move || waited_for.wait()));
        for task in tasks {
            let mut dice = dice.fork();
            all.push(spawn(move || {
                dice.pause(4);
                if dice.one_in(2) {
                    task.complete();
                } else {
                    task.discard();
                }
            }));
        }
        dice.pause(4);
        let mut next = None;
        for _ in 0..dice.below(4) {
            if members.is_waited_for() && members.pending() == 0 {
                next = Some(members.enter());
                break;
            }
        }
        join_all(all);
        if let Some(next) = next {
            next.complete();
        }
    });
}
