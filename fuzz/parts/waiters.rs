//! Waiters against a list of tickets. Which of them was notified shows by whether it goes back to
//! the list, and counts again.

use crate::parts::deadline::{Deadline, Until};
use crate::parts::waiters::{Waiters, Waiting, AGE};
use crate::Step;
use std::thread;
use std::time::{Duration, Instant};

const MOST: usize = 8;
/// Of steps that take real time.
const NAPS: u32 = 2;

/// One that waits.
struct Waiter<'a> {
    waiting: Waiting<'a>,
    /// Its place in the order.
    came: u64,
    is_notified: bool,
    is_aged: bool,
    /// Before and after it has read the clock.
    joined: [Instant; 2],
}

struct Play<'a> {
    waiters: &'a Waiters,
    all: Vec<Waiter<'a>>,
    came: u64,
    naps: u32,
}

pub fn play(setup: u8, steps: &[Step]) {
    // At first, or so many before the wrap.
    let waiters = Waiters::starting_at(0_u64.wrapping_sub(u64::from(setup % 8)));
    let mut play = Play {
        waiters: &waiters,
        all: Vec::new(),
        came: 0,
        naps: 0,
    };
    for &step in steps {
        play.step(step);
        play.look();
    }
    // Who is on the list, and who is not?
    for index in 0..play.all.len() {
        play.rejoin(index);
        play.look();
    }
    while !play.all.is_empty() {
        play.leave(0);
        play.look();
    }
}

impl Play<'_> {
    fn step(&mut self, [what, with]: Step) {
        let index = usize::from(with).checked_rem(self.all.len());
        match (what % 16, index) {
            (0..5, _) => self.enter(),
            (5..8, _) => {
                self.waiters.notify();
                self.notified();
            }
            (8, _) => {
                self.waiters.notify_all();
                while self.notified() {}
            }
            (9 | 10, Some(index)) => self.rejoin(index),
            (11 | 12, Some(index)) => self.leave(index),
            (13 | 14, Some(index)) => self.sleep(index),
            (15, _) if with < 16 && self.naps < NAPS => {
                self.naps += 1;
                thread::sleep(AGE);
            }
            _ => {}
        }
    }

    fn listed(&self) -> usize {
        self.all.iter().filter(|w| !w.is_notified).count()
    }

    fn aged(&self) -> u64 {
        self.all.iter().filter(|w| w.is_aged).count() as u64
    }

    fn enter(&mut self) {
        if self.all.len() == MOST {
            return;
        }
        let before = Instant::now();
        let waiting = self.waiters.join();
        self.came += 1;
        self.all.push(Waiter {
            waiting,
            came: self.came,
            is_notified: false,
            is_aged: false,
            joined: [before, Instant::now()],
        });
    }

    /// The first on the list has been taken off, if there was one.
    fn notified(&mut self) -> bool {
        let listed = self.all.iter_mut().filter(|w| !w.is_notified);
        let first = listed.min_by_key(|w| w.came);
        let is_any = first.is_some();
        if let Some(first) = first {
            first.is_notified = true;
        }
        is_any
    }

    /// Back to its place, if it has been taken off.
    fn rejoin(&mut self, index: usize) {
        let waiter = &mut self.all[index];
        let before = self.waiters.waiting();
        waiter.waiting.rejoin();
        let is_back = self.waiters.waiting() > before;
        assert_eq!(is_back, waiter.is_notified);
        waiter.is_notified = false;
    }

    fn leave(&mut self, index: usize) {
        let waiter = self.all.remove(index);
        let passes_on = waiter.is_notified || waiter.is_aged || self.aged() != 0;
        drop(waiter);
        if passes_on {
            self.notified();
        }
    }

    /// Does not sleep: it is notified, or at its deadline.
    fn sleep(&mut self, index: usize) {
        let aged = self.waiters.aged();
        let waiter = &mut self.all[index];
        let deadline = if waiter.is_notified {
            Deadline::never()
        } else {
            Deadline::new(Until::After(Duration::ZERO))
        };
        let before = Instant::now();
        waiter.waiting.sleep(&deadline);
        let after = Instant::now();
        let grown = self.waiters.aged() != aged;
        if waiter.is_aged {
            assert!(!grown, "aged twice");
        } else if before >= waiter.joined[1] + AGE {
            assert!(grown, "it has waited for long");
        } else if after < waiter.joined[0] + AGE {
            assert!(!grown, "it has not waited for long");
        }
        waiter.is_aged |= grown;
        assert_eq!(waiter.waiting.is_aged(), waiter.is_aged);
    }

    fn look(&self) {
        assert_eq!(self.waiters.waiting(), self.listed() as u64);
        assert_eq!(self.waiters.aged(), self.aged());
    }
}
