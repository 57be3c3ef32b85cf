//! The members of a group against counts.

use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::{Ended, Members};
use crate::Step;
use std::time::Duration;

#[derive(Default)]
struct Play {
    pending: u64,
    /// Completed, panicked, discarded.
    ended: [u64; 3],
    is_cancelled: bool,
    noted: Vec<u64>,
    next: u64,
}

pub fn play(setup: u8, steps: &[Step]) {
    let limit = match setup % 4 {
        0 => u64::MAX,
        n => u64::from(n),
    };
    let members = Members::new(limit);
    let mut play = Play::default();
    for &step in steps {
        play.step(&members, limit, step);
        play.look(&members);
    }
}

impl Play {
    fn step(&mut self, members: &Members, limit: u64, [what, with]: Step) {
        match what % 16 {
            0..5 => {
                let entered = members.enter();
                assert_eq!(entered, self.pending < limit);
                self.pending += u64::from(entered);
            }
            5 if self.pending > 0 => {
                members.leave();
                self.pending -= 1;
            }
            6..10 if self.pending > 0 => {
                let how = usize::from(with % 3);
                members.end([Ended::Completed, Ended::Panicked, Ended::Discarded][how]);
                self.pending -= 1;
                self.ended[how] += 1;
            }
            10 => {
                members.cancel();
                self.is_cancelled = true;
            }
            11 | 12 => {
                // Nothing ends meanwhile: it does not wait where a task is pending.
                let ended = self.pending == 0;
                let deadline = if ended {
                    Deadline::never()
                } else {
                    Deadline::new(Until::After(Duration::ZERO))
                };
                assert_eq!(members.wait(&deadline, with & 1 == 0), ended);
            }
            13 | 14 => {
                self.next = self.next.wrapping_add(8);
                // Some of those before it have been popped, and may go.
                let passed = self.next.wrapping_sub(8 * u64::from(with % 32));
                members.note(self.next, || passed);
                self.noted.retain(|at| *at >= passed.min(self.next));
                self.noted.push(self.next);
            }
            15 => {
                let queued = members.take_queued();
                assert!(queued.is_sorted());
                let all = self.noted.iter().all(|at| queued.contains(at));
                assert!(all, "{:?} of {queued:?}", self.noted);
                self.noted.clear();
            }
            _ => {}
        }
    }

    fn look(&self, members: &Members) {
        let ends = [Ended::Completed, Ended::Panicked, Ended::Discarded];
        assert_eq!(ends.map(|how| members.ended(how)), self.ended);
        assert_eq!(members.pending(), self.pending);
        assert_eq!(members.is_cancelled(), self.is_cancelled);
    }
}
