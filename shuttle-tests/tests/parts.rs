//! The ring and the queue alone, by more threads than loom can take.
#![cfg(lazypool_shuttle)]

use lazypool::model::{spawn, NotPushed, Queue, Ring};
use shuttle_tests::explore;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Threads that take an index and put it back: nobody has another's, none is lost, and
/// a ring that holds as many as there are threads is never found empty.
#[test]
fn ring() {
    explore("ring", |dice| {
        let threads = dice.between(3, 6) as usize;
        let ring = Arc::new(Ring::new(threads, threads));
        let held = Arc::new(Mutex::new(HashSet::new()));
        let rounds = dice.between(1, 4);
        let all: Vec<_> = (0..threads)
            .map(|_| {
                let (ring, held) = (Arc::clone(&ring), Arc::clone(&held));
                spawn(move || {
                    for _ in 0..rounds {
                        let mine = ring.pop().expect("one for each");
                        assert!(held.lock().unwrap().insert(mine), "{mine} twice");
                        shuttle_tests::step();
                        held.lock().unwrap().remove(&mine);
                        ring.push(mine).expect("room for all");
                    }
                })
            })
            .collect();
        for thread in all {
            thread.join().expect("no panic");
        }
        let mut left: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
        left.sort_unstable();
        assert_eq!(left, (0..threads).collect::<Vec<_>>());
    });
}

const GROUP: usize = 8;

/// Pushes, pops, withdrawals and a search for a group's tasks: each task goes to one
/// thread, in order where nobody withdraws; what is left is counted right.
#[test]
fn queue() {
    explore("queue", |dice| {
        let capacity = dice.between(1, 4) as usize;
        let queue = Arc::new(Queue::new(capacity));
        let taken = Arc::new(Mutex::new(HashSet::new()));
        let take = |taken: &Mutex<HashSet<usize>>, name: Option<usize>| {
            if let Some(name) = name {
                assert!(taken.lock().unwrap().insert(name), "{name} twice");
            }
        };
        let mut all = Vec::new();
        let (pushers, others) = (dice.between(2, 4), dice.between(1, 3));
        for pusher in 0..pushers as usize {
            let (queue, taken, mut dice) = (Arc::clone(&queue), Arc::clone(&taken), dice.fork());
            all.push(spawn(move || {
                let mut pushed = Vec::new();
                for n in 0..dice.between(1, 4) as usize {
                    let name = 100 * (pusher + 1) + n;
                    // A task is withdrawn by its caller, or taken out with its group:
                    // who could do both would take what has filled the tombstone.
                    let withdraws = dice.one_in(2);
                    let answer = match dice.below(3) {
                        _ if withdraws => queue.push_revocable(name, 0),
                        0 => queue.push_plain(name),
                        _ => queue.push_revocable(name, GROUP),
                    };
                    match answer {
                        Ok(position) => {
                            pushed.push(name);
                            if withdraws && dice.one_in(2) {
                                let mine = queue.withdraw(position);
                                assert!(mine.is_none_or(|mine| mine == name), "another's");
                                take(&taken, mine);
                            }
                        }
                        Err(NotPushed::Full | NotPushed::Asleep) => {}
                        Err(NotPushed::Closed) => unreachable!("nobody closes it"),
                    }
                }
                pushed
            }));
        }
        for _ in 0..others {
            let (queue, taken, mut dice) = (Arc::clone(&queue), Arc::clone(&taken), dice.fork());
            all.push(spawn(move || {
                for _ in 0..dice.between(1, 6) {
                    let name = if dice.one_in(4) {
                        queue.take_of_group(GROUP)
                    } else {
                        queue.pop()
                    };
                    take(&taken, name);
                }
                Vec::new()
            }));
        }
        let mut pushed = HashSet::new();
        for thread in all {
            pushed.extend(thread.join().expect("no panic"));
        }
        while let Some(name) = queue.pop() {
            take(&taken, Some(name));
        }
        assert_eq!(*taken.lock().unwrap(), pushed);
        queue.assert_at_rest();
        assert_eq!(queue.pushed(), pushed.len() as u64);
    });
}
