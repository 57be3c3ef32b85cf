//! The members of a group against counts. The set must be freed by the last who can reach it,
//! handle or task, and by nobody before: the sanitizer sees both.

use crate::parts::deadline::{Deadline, Until};
use crate::parts::members::{Ended, Handle, Members, Pending};
use crate::sync::Ordering;
use crate::Step;
use std::time::Duration;

const MOST: usize = 16;

struct Play {
    /// Kept by the first of these and all of the second.
    handle: Option<Handle>,
    pending: Vec<Pending>,
    /// So many had come and gone before the first step.
    before: u64,
    /// Completed, panicked, discarded.
    ended: [usize; 3],
    address: *const Members,
    is_cancelled: bool,
}

pub fn play(setup: u8, steps: &[Step]) {
    // At first, or so many before the count of ends wraps, which has 42 bits.
    let before = match setup % 8 {
        0 => 0,
        n => (1 << 42) - u64::from(n),
    };
    let handle = Handle::starting_at(before);
    let mut play = Play {
        address: &raw const *handle,
        handle: Some(handle),
        pending: Vec::new(),
        before,
        ended: [0; 3],
        is_cancelled: false,
    };
    play.look();
    for &step in steps {
        play.step(step);
        play.look();
    }
    while let Some(task) = play.pending.pop() {
        task.end(Ended::Completed);
        play.ended[0] += 1;
        play.look();
    }
}

impl Play {
    fn step(&mut self, [what, with]: Step) {
        let index = usize::from(with).checked_rem(self.pending.len());
        match (what % 16, &self.handle, index) {
            (0..4, Some(handle), _) if self.pending.len() < MOST => {
                self.pending.push(handle.enter());
            }
            (4, Some(_), Some(index)) => {
                self.pending.swap_remove(index).refuse();
            }
            // Who submits a task may lose the way to the set, and finds it again.
            (5, Some(handle), Some(index)) => {
                // SAFETY: in place of its own.
                self.pending[index] = unsafe { handle.pending_task() };
            }
            (6..11, _, Some(index)) => {
                let how = usize::from(with) / MOST % 3;
                let ends = [Ended::Completed, Ended::Panicked, Ended::Discarded];
                let task = self.pending.swap_remove(index);
                task.end(ends[how]);
                self.ended[how] += 1;
            }
            (11, _, Some(index)) => {
                let members = self.pending[index].members();
                members.cancelled.store(true, Ordering::SeqCst);
                self.is_cancelled = true;
            }
            (12 | 13, Some(handle), _) => {
                // Nobody ends a task meanwhile: it does not wait where one is pending.
                let ended = self.pending.is_empty();
                let deadline = if ended {
                    Deadline::never()
                } else {
                    Deadline::new(Until::After(Duration::ZERO))
                };
                let said = handle.wait(&deadline, with & 1 == 0);
                assert_eq!(said, ended);
            }
            (14, _, _) if with < 64 => self.handle = None,
            _ => {}
        }
    }

    fn look(&self) {
        if let Some(handle) = &self.handle {
            let figures = [handle.completed(), handle.panicked(), handle.discarded()];
            let [completed, panicked, discarded] = self.ended;
            let completed = completed + self.before as usize;
            assert_eq!(figures, [completed, panicked, discarded]);
            assert_eq!(handle.pending(), self.pending.len());
        }
        let handle = self.handle.as_deref().into_iter();
        let all = handle.chain(self.pending.iter().map(Pending::members));
        for members in all {
            assert!(std::ptr::eq(members, self.address));
            let is_cancelled = members.cancelled.load(Ordering::SeqCst);
            assert_eq!(is_cancelled, self.is_cancelled);
        }
    }
}
