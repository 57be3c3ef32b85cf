//! The ring and the queue alone, by more threads than loom can take.
#![cfg(lazypool_shuttle)]

use lazypool::model::{spawn, JoinHandle, NotPushed, Queue, Ring};
use shuttle_tests::{explore, join_all, Dice};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Threads that take an index and put it back: nobody has another's, none is lost, and
/// a ring that holds as many as there are threads is never found empty; each push is counted.
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
                        let before = ring.pushes();
                        ring.push(mine).expect("room for all");
                        assert!(ring.pushes() > before, "a push that is not counted");
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

/// Pushes, pops, tasks that their callers take back, and a search for a group's: each task goes to
/// one thread; none is left.
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
        // Threads that may have popped a task which is not in `taken` yet.
        let popping = Arc::new(AtomicUsize::new(0));
        let mut all = Vec::new();
        let (pushers, others) = (dice.between(2, 4), dice.between(1, 3));
        for pusher in 0..pushers as usize {
            let (queue, taken, mut dice) = (Arc::clone(&queue), Arc::clone(&taken), dice.fork());
            let popping = Arc::clone(&popping);
            all.push(spawn(move || {
                let mut pushed = Vec::new();
                for n in 0..dice.between(1, 4) as usize {
                    let name = 100 * (pusher + 1) + n;
                    let takes = dice.one_in(2);
                    let answer = match dice.below(3) {
                        0 => queue.push(name),
                        _ => queue.push_of(name, GROUP),
                    };
                    match answer {
                        Ok(position) => {
                            pushed.push(name);
                            if takes && dice.one_in(2) {
                                let mine = queue.take(position);
                                assert!(mine.is_none_or(|mine| mine == name), "another's");
                                let popped = popping.load(Ordering::Relaxed) > 0
                                    || taken.lock().unwrap().contains(&name);
                                assert!(mine.is_some() || popped, "{name} is nobody's");
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
            let popping = Arc::clone(&popping);
            all.push(spawn(move || {
                for _ in 0..dice.between(1, 6) {
                    if dice.one_in(4) {
                        popping.fetch_add(1, Ordering::Relaxed);
                        take(&taken, queue.take_of_group(GROUP));
                        popping.fetch_sub(1, Ordering::Relaxed);
                    } else {
                        popping.fetch_add(1, Ordering::Relaxed);
                        take(&taken, queue.pop());
                        popping.fetch_sub(1, Ordering::Relaxed);
                    }
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

/// A queue, and whether its one worker lives.
struct Line {
    queue: Queue,
    lives: shuttle::sync::Mutex<bool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    taken: Mutex<HashSet<usize>>,
    /// `close` has returned.
    closed: AtomicBool,
}

impl Line {
    fn take(&self, name: usize) {
        assert!(self.taken.lock().unwrap().insert(name), "{name} twice");
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether it was accepted; where it is, if it is in the queue.
    fn push(self: &Arc<Self>, name: usize) -> Option<Option<u64>> {
        let was_closed = self.is_closed();
        loop {
            match self.queue.push(name) {
                Ok(position) => {
                    assert!(!was_closed, "accepted by a closed queue");
                    return Some(Some(position));
                }
                Err(NotPushed::Asleep) if self.start(name) => return Some(None),
                Err(NotPushed::Asleep) => {}
                Err(NotPushed::Full | NotPushed::Closed) => return None,
            }
        }
    }

    /// A worker whose first task this is, unless one lives.
    fn start(self: &Arc<Self>, name: usize) -> bool {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = !*lives;
        if starts {
            *lives = true;
            self.queue.wake();
            let line = Arc::clone(self);
            let worker = spawn(move || {
                line.take(name);
                line.work();
            });
            self.workers.lock().unwrap().push(worker);
        }
        starts
    }

    /// The worker, until the queue is empty and asleep.
    fn work(&self) {
        loop {
            while let Some(name) = self.queue.pop() {
                self.take(name);
            }
            let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
            if self.queue.sleep() {
                *lives = false;
                return;
            }
        }
    }
}

/// A worker that leaves once the queue is empty, and is started by a push that finds it asleep;
/// tasks taken back, and perhaps a close: whatever is accepted has a worker to come, nothing is accepted
/// once the queue was closed.
#[test]
fn queue_and_its_worker() {
    explore("queue_and_its_worker", |dice| {
        let line = Arc::new(Line {
            queue: Queue::asleep(dice.between(1, 3) as usize),
            lives: shuttle::sync::Mutex::new(false),
            workers: Mutex::default(),
            taken: Mutex::default(),
            closed: false.into(),
        });
        let pushed = Arc::new(Mutex::new(HashSet::new()));
        let act = |line: &Arc<Line>, pushed: &Mutex<HashSet<usize>>, name, dice: &mut Dice| {
            let Some(position) = line.push(name) else {
                return;
            };
            pushed.lock().unwrap().insert(name);
            let taken = position.filter(|_| dice.one_in(3)).and_then(|at| {
                dice.pause(4);
                line.queue.take(at)
            });
            if let Some(mine) = taken {
                assert_eq!(mine, name, "another's");
                line.take(mine);
            }
        };
        let mut all = Vec::new();
        for pusher in 0..dice.between(1, 3) as usize {
            let (line, pushed) = (Arc::clone(&line), Arc::clone(&pushed));
            let mut dice = dice.fork();
            all.push(spawn(move || {
                for n in 0..dice.between(1, 4) as usize {
                    act(&line, &pushed, 10 * pusher + n, &mut dice);
                    dice.pause(20);
                }
            }));
        }
        if dice.one_in(2) {
            let (line, mut dice) = (Arc::clone(&line), dice.fork());
            all.push(spawn(move || {
                dice.pause(30);
                line.queue.close();
                line.closed.store(true, Ordering::Relaxed);
            }));
        }
        join_all(all);
        let workers = std::mem::take(&mut *line.workers.lock().unwrap());
        join_all(workers);
        assert_eq!(*line.taken.lock().unwrap(), *pushed.lock().unwrap());
        line.queue.assert_at_rest();
    });
}
