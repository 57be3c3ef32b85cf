//! One slot alone, by more threads than loom can take: the execution's own thread is its worker.
#![cfg(lazypool_shuttle)]

use lazypool::model::{spawn, Held, JoinHandle, Slot, Told};
use shuttle_tests::{explore, join_all, step, Dice};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// What has been told to the worker, and by whom. It is written right after the step that it is
/// about, or before it where that is the last one.
#[derive(Debug, Default)]
struct Orders {
    given: HashSet<usize>,
    ran: HashSet<usize>,
    taken_back: HashSet<usize>,
    /// Orders to look at the queue: given, and received.
    sent: usize,
    searched: usize,
    /// Somebody holds the slot.
    held: bool,
    /// The worker has had an order since it was benched.
    needed: bool,
    /// Threads that may have its entry in their hands.
    asking: usize,
}

#[derive(Debug)]
struct Judged {
    slot: Slot,
    orders: Mutex<Orders>,
}

impl Judged {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().expect("no panic")
    }

    fn takes(&self) {
        let mut orders = self.orders();
        assert!(!orders.held, "two hold the slot");
        orders.held = true;
        orders.needed = true;
    }

    fn claim(&self, dice: &mut Dice) -> Option<Held> {
        let held = match dice.below(4) {
            0 => self.slot.claim_last_used(),
            1 => self.slot.claim_benched(),
            _ => {
                self.orders().asking += 1;
                let held = self.slot.claim_ready();
                self.orders().asking -= 1;
                held
            }
        }?;
        self.takes();
        Some(held)
    }

    fn give(&self, held: Held, task: usize, revocable: bool) -> u64 {
        let mut orders = self.orders();
        orders.held = false;
        orders.given.insert(task);
        drop(orders);
        self.slot.hand_over(held, task, revocable)
    }

    /// A caller at its deadline.
    fn take_back(&self, generation: u64, task: usize) {
        let Some(back) = self.slot.revoke(generation) else {
            return;
        };
        assert_eq!(back, task, "another's task");
        self.takes();
        let mut orders = self.orders();
        orders.taken_back.insert(task);
        orders.held = false;
        orders.sent += 1;
        drop(orders);
        self.slot.search_first();
    }

    fn submit(&self, task: usize, dice: &mut Dice) {
        let Some(held) = self.claim(dice) else {
            return;
        };
        match dice.below(3) {
            0 => {
                let mut orders = self.orders();
                orders.held = false;
                orders.sent += 1;
                drop(orders);
                self.slot.send_searching(held);
            }
            1 => {
                self.give(held, task, false);
            }
            _ => {
                let generation = self.give(held, task, true);
                dice.pause(6);
                self.take_back(generation, task);
            }
        }
    }

    fn clean(&self, dice: &mut Dice) {
        self.orders().asking += 1;
        let benched = self.slot.bench();
        let mut orders = self.orders();
        orders.asking -= 1;
        if benched == Some(true) {
            orders.needed = false;
        }
        drop(orders);
        dice.pause(10);
        if dice.one_in(2) {
            self.slot.retire(true);
        }
    }

    fn run(&self, task: usize) {
        let mut orders = self.orders();
        assert!(!orders.held, "it runs, and somebody holds the slot");
        assert!(orders.given.contains(&task), "{task} from nowhere");
        assert!(!orders.taken_back.contains(&task), "{task} was taken back");
        assert!(orders.ran.insert(task), "{task} twice");
    }

    fn look_at_queue(&self, dice: &mut Dice) {
        assert!(!self.orders().held, "it looks, and somebody holds the slot");
        if dice.one_in(2) {
            self.slot.start_queued();
            assert!(self.slot.is_busy());
        }
    }

    /// The worker ends, and another is started on the slot, with a start hook or without.
    fn end(&self, dice: &mut Dice) {
        self.slot.vacate();
        dice.pause(4);
        self.orders().sent += 1;
        if dice.one_in(2) {
            self.slot.start_again();
            return;
        }
        self.slot.start_in_hook();
        assert!(self.slot.is_busy());
        self.slot.search_first();
        dice.pause(4);
        assert!(self.slot.is_starting());
        let searches = loop {
            if let Some(searches) = self.slot.has_started() {
                break searches;
            }
            step();
        };
        assert!(searches, "nobody else holds it");
        assert!(!self.slot.is_starting());
    }

    /// The worker, until it is told to run the last task.
    fn work(&self, dice: &mut Dice) {
        loop {
            match self.slot.wait() {
                Told::Run(LAST) => return,
                Told::Run(task) => self.run(task),
                Told::Search => {
                    self.orders().searched += 1;
                    self.look_at_queue(dice);
                }
                Told::Retire => {
                    assert!(!self.orders().needed, "it was needed since it was benched");
                    if dice.one_in(2) {
                        self.slot.cancel_retirement();
                    } else {
                        self.end(dice);
                        continue;
                    }
                }
            }
            dice.pause(3);
            // In a pool that is closed or over its limit.
            if self.slot.is_busy() && dice.one_in(3) {
                self.slot.search_after_task();
                if dice.one_in(2) {
                    self.slot.retire_self();
                    self.end(dice);
                    continue;
                }
            }
            self.slot.publish_idle();
            if dice.one_in(4) && self.slot.claim_self() {
                self.orders().needed = true;
                self.look_at_queue(dice);
                self.slot.publish_idle();
            }
        }
    }
}

/// The number of the task that ends the worker's loop.
const LAST: usize = 0;

/// Submissions that claim the worker in each way, callers that take their tasks back, a cleaner that
/// benches it and retires it, and threads that look for it. Each task runs or comes back, once; each
/// order arrives, once; a worker that has been needed since it was benched is not retired; an idle
/// one can be found.
#[test]
fn slot() {
    explore("slot", |dice| {
        let slot = Slot::of_this_thread();
        slot.publish_idle();
        let judged = Arc::new(Judged {
            slot,
            orders: Mutex::default(),
        });
        let mut all: Vec<JoinHandle<()>> = Vec::new();
        for submitter in 1..=dice.between(1, 4) as usize {
            let (judged, mut dice) = (Arc::clone(&judged), dice.fork());
            all.push(spawn(move || {
                for n in 0..dice.between(1, 5) as usize {
                    judged.submit(10 * submitter + n, &mut dice);
                    dice.pause(8);
                }
            }));
        }
        if dice.one_in(2) {
            let (judged, mut dice) = (Arc::clone(&judged), dice.fork());
            all.push(spawn(move || {
                (0..dice.between(1, 4)).for_each(|_| judged.clean(&mut dice));
            }));
        }
        if dice.one_in(2) {
            let (judged, mut dice) = (Arc::clone(&judged), dice.fork());
            all.push(spawn(move || {
                for _ in 0..dice.between(1, 8) {
                    step();
                    let is_lost = judged.slot.is_lost() && judged.orders().asking == 0;
                    assert!(!is_lost, "idle, and nobody can find it");
                }
            }));
        }
        let (last, mut others) = (Arc::clone(&judged), dice.fork());
        let end = spawn(move || {
            join_all(all);
            loop {
                if let Some(held) = last.claim(&mut others) {
                    last.give(held, LAST, false);
                    return;
                }
                shuttle::thread::yield_now();
            }
        });
        judged.work(dice);
        end.join().expect("no panic");
        let slot = &judged.slot;
        slot.publish_idle();
        assert!(slot.retire(false), "nobody else is there");
        assert_eq!(slot.wait(), Told::Retire);
        slot.vacate();
        assert!(slot.is_free());
        let orders = judged.orders();
        let known: HashSet<_> = orders.ran.union(&orders.taken_back).copied().collect();
        let given = orders.given.iter().copied().filter(|task| *task != LAST);
        assert_eq!(known, given.collect(), "{orders:?}");
        assert_eq!(orders.searched, orders.sent, "{orders:?}");
    });
}
