//! The line and the members of a group alone, with more threads than loom can take.
#![cfg(lazypool_shuttle)]

use lazypool::model::{spawn, Deadline, Left, Line, Member, Members};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::mpsc::channel;
use shuttle_tests::{explore, join_all, ticks};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Places, and a line of submissions that wait for them.
struct Room {
    line: Line,
    free: AtomicUsize,
    /// For each entry, by its number:
    tickets: Mutex<HashMap<u32, u64>>,
    served: Mutex<Vec<u32>>,
}

impl Room {
    fn serve(&self) {
        self.line.serve(|number| {
            let less = |free: usize| free.checked_sub(1);
            let order = Ordering::SeqCst;
            self.free.fetch_update(order, order, less).ok()?;
            self.served.lock().expect("no panic").push(number);
            Some(number)
        });
    }

    fn join(&self, number: u32) -> u64 {
        let ticket = self.line.join(number);
        let tickets = self.tickets.lock();
        tickets.expect("no panic").insert(number, ticket);
        self.serve();
        ticket
    }

    fn make(&self) {
        self.free.fetch_add(1, Ordering::SeqCst);
        self.serve();
    }
}

/// Threads join the line and wait, and others leave it or give their place back. There is one place
/// for each thread that keeps it. All threads that wait get a place, in the order in which they
/// joined; no place is left over. Law 20.
#[test]
fn line() {
    explore("line", |dice| {
        let room = Arc::new(Room {
            line: Line::new(),
            free: AtomicUsize::new(0),
            tickets: Mutex::default(),
            served: Mutex::default(),
        });
        let (keep, leave) = (dice.between(1, 4) as u32, dice.below(3) as u32);
        let mut all = Vec::new();
        for number in 0..keep + leave {
            let (room, mut dice) = (Arc::clone(&room), dice.fork());
            all.push(spawn(move || {
                dice.pause(30);
                let ticket = room.join(number);
                if number < keep {
                    assert_eq!(room.line.wait(ticket), number, "another's answer");
                    return;
                }
                dice.pause(30);
                loop {
                    match room.line.leave(ticket) {
                        Left::Answered(_) => return room.make(),
                        Left::Unanswered(_) => return,
                        Left::Served => shuttle::thread::yield_now(),
                    }
                }
            }));
        }
        for _ in 0..keep {
            let (room, mut dice) = (Arc::clone(&room), dice.fork());
            all.push(spawn(move || {
                dice.pause(60);
                room.make();
            }));
        }
        join_all(all);
        assert_eq!(room.free.load(Ordering::SeqCst), 0, "made, and not taken");
        let tickets = room.tickets.lock().expect("no panic");
        let served = room.served.lock().expect("no panic");
        let served: Vec<_> = served.iter().map(|number| tickets[number]).collect();
        assert!(served.is_sorted(), "{served:?}");
        room.line.assert_at_rest();
    });
}

/// Threads submit to a group and wait for it, and workers end its tasks. A wait does not end before
/// the tasks that were pending as it began. Law 14.
#[test]
fn members() {
    explore("members", |dice| {
        let limit = dice.of(&[1, 2, u64::MAX]);
        let members = Members::limited(limit);
        let (mut workers, mut lines) = (Vec::new(), Vec::new());
        for _ in 0..dice.between(1, 3) {
            let (sender, tasks) = channel::<(Member, Arc<AtomicBool>)>();
            lines.push(sender);
            let mut dice = dice.fork();
            workers.push(spawn(move || {
                while let Ok((member, ended)) = tasks.recv() {
                    dice.pause(4);
                    ended.store(true, Ordering::SeqCst);
                    match dice.below(3) {
                        0 => member.complete(),
                        1 => member.panic(),
                        _ => member.discard(),
                    }
                }
            }));
        }
        let mut all = Vec::new();
        for _ in 0..dice.between(2, 4) {
            let (members, lines, mut dice) = (members.clone(), lines.clone(), dice.fork());
            all.push(spawn(move || {
                for _ in 0..dice.between(1, 4) {
                    let Some(member) = members.enter() else {
                        continue;
                    };
                    let pending = members.pending();
                    assert!((1..=limit).contains(&pending), "{pending} of {limit}");
                    if dice.one_in(4) {
                        member.refuse();
                        continue;
                    }
                    let ended = Arc::new(AtomicBool::new(false));
                    let task = (member, Arc::clone(&ended));
                    let sent = lines[dice.below(lines.len() as u64) as usize].send(task);
                    assert!(sent.is_ok(), "the worker is there");
                    let waited = if dice.one_in(2) {
                        members.wait();
                        true
                    } else {
                        members.wait_until(&Deadline::within(ticks(dice.below(40))))
                    };
                    let ended = ended.load(Ordering::SeqCst);
                    assert!(!waited || ended, "pending all the time");
                }
            }));
        }
        drop(lines);
        join_all(all);
        members.wait();
        join_all(workers);
        assert_eq!(members.pending(), 0);
    });
}
