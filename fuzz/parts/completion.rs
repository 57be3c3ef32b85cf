//! The decision of one worker, and the nodes of callers that wait for their tasks, against who owns
//! the result. A node is freed as soon as its caller may go.

use crate::parts::completion::{is_queued, mailbox_id, queue_id, Decision, WaitNode, Waited};
use crate::parts::deadline::{Deadline, Until};
use crate::Step;
use std::time::Duration;

const SLOT: usize = 65_535;
const MOST: usize = 4;
/// A generation has 58 bits.
const GENERATIONS: u64 = u64::MAX >> 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Nobody,
    Running(u64),
    Abandoned(u64),
}

/// A caller that waits.
struct Call {
    task_id: u64,
    node: Box<WaitNode>,
    label: Option<&'static str>,
    /// Its deadline, once it has told it.
    told: Option<u64>,
    is_started: bool,
    is_placed: bool,
    is_done: bool,
}

/// What the worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Start,
    Place,
    Complete,
    Release,
    Forget,
}

struct Play {
    decision: Decision,
    word: Word,
    calls: Vec<Call>,
    generation: u64,
    position: u64,
    next: Next,
    task_id: u64,
    node: *const WaitNode,
    /// When the caller left.
    left_at: u64,
}

pub fn play(setup: u8, steps: &[Step]) {
    let mut play = Play {
        decision: Decision::new(),
        word: Word::Nobody,
        calls: Vec::new(),
        // At first, or so many before the wrap.
        generation: 0_u64.wrapping_sub(u64::from(setup & 3)) & GENERATIONS,
        position: 0_u64.wrapping_sub(8 * u64::from(setup >> 2 & 3)),
        next: Next::Start,
        task_id: 0,
        node: std::ptr::null(),
        left_at: 0,
    };
    for &step in steps {
        play.step(step);
        play.look();
    }
}

impl Play {
    fn step(&mut self, [what, with]: Step) {
        match what % 16 {
            0..3 => self.submit(with),
            3 | 4 => self.tell(with),
            5..9 => self.work(with),
            9 => self.ask_deadline(),
            10 | 11 => self.leave(with),
            12 => self.take_back(with),
            13 => self.wait(with, Duration::from_micros(u64::from(with >> 4))),
            _ => self.wait(with, Duration::ZERO),
        }
    }

    fn pick(&self, with: u8) -> Option<usize> {
        usize::from(with).checked_rem(self.calls.len())
    }

    fn submit(&mut self, with: u8) {
        if self.calls.len() == MOST {
            return;
        }
        let task_id = if with & 1 == 0 {
            self.generation = (self.generation + 1) & GENERATIONS;
            mailbox_id(self.generation)
        } else {
            self.position = self.position.wrapping_add(8);
            queue_id(self.position)
        };
        assert_eq!(is_queued(task_id), with & 1 == 1);
        assert!(self.calls.iter().all(|call| call.task_id != task_id));
        let label = (with & 2 == 0).then_some("label");
        self.calls.push(Call {
            task_id,
            node: Box::new(WaitNode::new(label)),
            label,
            told: None,
            is_started: false,
            is_placed: false,
            is_done: false,
        });
    }

    fn tell(&mut self, with: u8) {
        let Some(call) = self.calls.iter_mut().find(|call| call.told.is_none()) else {
            return;
        };
        let told = 1 + u64::from(with);
        call.node.set_deadline(told);
        call.told = Some(told);
    }

    /// The worker's call, if its caller is there.
    fn own(&mut self) -> Option<&mut Call> {
        let task_id = self.task_id;
        self.calls.iter_mut().find(|call| call.task_id == task_id)
    }

    fn work(&mut self, with: u8) {
        self.next = match self.next {
            Next::Start => {
                let waiting = self.calls.iter_mut().filter(|call| !call.is_started);
                let Some(call) = waiting.into_iter().nth(usize::from(with) % MOST) else {
                    return;
                };
                call.is_started = true;
                assert_eq!(call.node.label, call.label);
                self.task_id = call.task_id;
                self.node = &raw const *call.node;
                self.decision.start(self.task_id);
                self.word = Word::Running(self.task_id);
                if is_queued(self.task_id) {
                    Next::Place
                } else {
                    Next::Complete
                }
            }
            Next::Place => {
                // SAFETY: the caller does not leave before, and this is the one call.
                unsafe { WaitNode::publish_slot(self.node, SLOT) };
                self.own().expect("it waits").is_placed = true;
                Next::Complete
            }
            Next::Complete => {
                let completed = self.decision.complete(self.task_id);
                if self.word == Word::Running(self.task_id) {
                    assert!(completed);
                    self.word = Word::Nobody;
                    Next::Release
                } else {
                    assert!(!completed);
                    Next::Forget
                }
            }
            Next::Release => {
                // SAFETY: the decision is won: the caller waits. This is the one call.
                unsafe { WaitNode::release(self.node) };
                self.own().expect("it waits").is_done = true;
                Next::Start
            }
            Next::Forget => {
                self.decision.forget(self.task_id);
                self.word = Word::Nobody;
                Next::Start
            }
        };
    }

    /// During the task, whose caller has told its deadline, or has left.
    fn ask_deadline(&mut self) {
        if self.next != Next::Complete {
            return;
        }
        let expected = match self.own() {
            Some(call) => call.told,
            None => Some(self.left_at),
        };
        if let Some(expected) = expected {
            // SAFETY: it runs, and its caller has told it or has left.
            let told = unsafe { self.decision.deadline(self.task_id, self.node) };
            assert_eq!(told, expected);
        }
    }

    /// A caller at its deadline whose task has been started, or is about to be.
    fn leave(&mut self, with: u8) {
        let Some(index) = self.pick(with) else { return };
        let call = &self.calls[index];
        let (task_id, Some(told)) = (call.task_id, call.told) else {
            return;
        };
        // Told which worker has it.
        if is_queued(task_id) && !call.is_placed {
            return;
        }
        let left = self.decision.leave(task_id, told);
        if self.word == Word::Running(task_id) {
            assert!(left);
            self.word = Word::Abandoned(task_id);
            self.left_at = told;
            self.calls.swap_remove(index);
        } else {
            assert!(!left);
            let is_delivered = self.next == Next::Release && self.task_id == task_id;
            assert!(!call.is_started || call.is_done || is_delivered);
        }
    }

    fn take_back(&mut self, with: u8) {
        if let Some(index) = self.pick(with) {
            if !self.calls[index].is_started {
                self.calls.swap_remove(index);
            }
        }
    }

    /// The longer ones say that they park.
    fn wait(&mut self, with: u8, limit: Duration) {
        let Some(index) = self.pick(with) else { return };
        let call = &self.calls[index];
        if call.is_done {
            assert_eq!(call.node.wait(&Deadline::never(), false), Waited::Done);
            self.calls.swap_remove(index);
        } else {
            let deadline = Deadline::new(Until::After(limit));
            let parallel = with & 8 == 0;
            assert_eq!(call.node.wait(&deadline, parallel), Waited::Expired);
            assert!(deadline.has_passed());
        }
    }

    fn look(&self) {
        let is_abandoned = matches!(self.word, Word::Abandoned(_));
        assert_eq!(self.decision.is_abandoned(), is_abandoned);
        for call in &self.calls {
            assert_eq!(call.node.is_done(), call.is_done);
            assert_eq!(call.node.worker_slot(), call.is_placed.then_some(SLOT));
        }
    }
}
