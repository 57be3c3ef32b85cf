//! The queue against a list of tasks and dead cells, and two flags.

use crate::parts::queue::{NotPushed, Popped, Queue};
use crate::Step;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Positions count in steps of this.
const STEP: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    name: u64,
    group: u8,
}

/// Boxed: the sanitizer counts them.
#[derive(Debug)]
struct Task(Box<Known>);

#[derive(Debug, Default)]
struct Model {
    /// From `head` on; `None`: dead.
    cells: VecDeque<Option<Known>>,
    head: u64,
    capacity: usize,
    pushed: u64,
    is_asleep: bool,
    is_closed: bool,
}

impl Model {
    fn tail(&self) -> u64 {
        self.head.wrapping_add(STEP * self.cells.len() as u64)
    }

    fn is_full(&self) -> bool {
        self.cells.len() == self.capacity && self.cells[0].is_some()
    }

    /// Dead cells before the oldest task go: all of them, or so many.
    fn skip(&mut self, most: usize) {
        for _ in 0..most {
            if !matches!(self.cells.front(), Some(None)) {
                return;
            }
            self.cells.pop_front();
            self.head = self.head.wrapping_add(STEP);
        }
    }

    fn cell(&mut self, position: u64) -> Option<&mut Option<Known>> {
        let ahead = position.wrapping_sub(self.head) / STEP;
        self.cells.get_mut(usize::try_from(ahead).ok()?)
    }

    fn is_open(&self) -> bool {
        !self.is_asleep && !self.is_closed
    }

    /// Room behind the last task.
    fn room(&self) -> Option<u64> {
        (self.is_open() && self.cells.len() < self.capacity).then(|| self.tail())
    }

    fn push_behind(&mut self, task: Known) {
        self.cells.push_back(Some(task));
        self.pushed += 1;
    }

    /// The oldest task; dead cells before it go.
    fn pop(&mut self) -> Option<(u64, Known)> {
        self.skip(usize::MAX);
        let task = self.cells.pop_front()??;
        let at = self.head;
        self.head = at.wrapping_add(STEP);
        Some((at, task))
    }

    /// The next task of the group, and the names of all that were looked at.
    fn take(&mut self, from: &mut u64, group: u8) -> (Option<Known>, Vec<u64>) {
        let mut looked = Vec::new();
        if (self.head.wrapping_sub(*from) as i64) > 0 {
            *from = self.head;
        }
        while *from != self.tail() {
            let cell = self.cell(*from).expect("between the ends");
            *from = from.wrapping_add(STEP);
            if let Some(task) = *cell {
                looked.push(task.name);
                if task.group == group {
                    *cell = None;
                    return (Some(task), looked);
                }
            }
        }
        (None, looked)
    }
}

struct Play {
    queue: Queue<Task>,
    model: Model,
    names: u64,
    /// Where tasks have been pushed.
    positions: Vec<u64>,
    /// What `room` said last.
    room: Option<u64>,
    /// Where a look for a group's tasks goes on.
    from: u64,
}

pub fn play(setup: u8, steps: &[Step]) {
    let capacity = 1 + usize::from(setup & 15) % 11;
    // In lap 0, or up to seven laps before the wrap.
    let lap = STEP * capacity.next_power_of_two() as u64;
    let origin = 0_u64.wrapping_sub(lap * u64::from(setup >> 5));
    let mut play = Play {
        queue: Queue::starting_at(origin, capacity),
        model: Model {
            head: origin,
            capacity,
            is_asleep: true,
            ..Model::default()
        },
        names: 0,
        positions: Vec::new(),
        room: None,
        from: origin,
    };
    play.look();
    if setup & 16 == 0 {
        play.wake();
    }
    for &step in steps {
        play.step(step);
        play.look();
    }
    while play.try_pop() {}
    play.look();
}

impl Play {
    fn step(&mut self, [what, with]: Step) {
        match what % 16 {
            0..3 => (0..=with >> 6).for_each(|_| self.push(with)),
            3 => {
                self.room = self.queue.room();
                assert_eq!(self.room, self.model.room());
            }
            4 => self.push_at(with),
            5 | 6 => (0..=with >> 6).for_each(|_| {
                let _ = self.try_pop();
            }),
            7 => self.try_pop_ready(),
            8 => self.pop_wanted(with),
            9..12 => self.take(with),
            12 => self.take_wanted(with),
            13 if with < 32 => {
                self.queue.close();
                self.model.is_closed = true;
            }
            13 | 14 => self.wake(),
            _ => self.sleep(),
        }
    }

    fn task(&mut self, with: u8) -> (Known, Option<Task>) {
        self.names += 1;
        let known = Known {
            name: self.names,
            group: with >> 1 & 3,
        };
        (known, Some(Task(Box::new(known))))
    }

    fn push(&mut self, with: u8) {
        let (known, mut task) = self.task(with);
        let model = &mut self.model;
        let pushed = self.queue.push(&mut task);
        assert_eq!(pushed.is_err(), task.is_some(), "it is taken or stays");
        let at = match pushed {
            Err(why) => {
                let expected = if model.is_closed {
                    NotPushed::Closed
                } else if model.is_asleep {
                    NotPushed::Asleep
                } else {
                    assert!(model.is_full());
                    NotPushed::Full
                };
                return assert_eq!(why, expected);
            }
            Ok(at) => {
                // One is enough for it.
                model.skip(usize::from(model.room().is_none()));
                assert_eq!(Some(at), model.room());
                model.push_behind(known);
                at
            }
        };
        self.positions.push(at);
    }

    /// Where there was room once.
    fn push_at(&mut self, with: u8) {
        let Some(at) = self.room else { return };
        let (known, mut task) = self.task(with);
        // SAFETY: from this queue's `room`; nobody else uses it.
        let pushed = unsafe { self.queue.push_at(at, &mut task) };
        assert_eq!(pushed, self.model.room() == Some(at));
        assert_eq!(pushed, task.is_none());
        if pushed {
            self.model.push_behind(known);
            self.positions.push(at);
        }
    }

    fn try_pop(&mut self) -> bool {
        let mut place = None;
        let popped = self.queue.try_pop(&mut place);
        let expected = self.model.pop();
        assert_eq!(
            popped,
            expected.map_or(Popped::Empty, |(at, _)| Popped::Task(at))
        );
        assert_eq!(place.map(|task| *task.0), expected.map(|(_, task)| task));
        expected.is_some()
    }

    /// The same with one look: alone it misses nothing.
    fn try_pop_ready(&mut self) {
        let mut place = None;
        let popped = self.queue.try_pop_ready(&mut place);
        let expected = self.model.pop();
        let place = place.map(|task| *task.0);
        assert_eq!(popped.zip(place), expected);
    }

    /// The oldest task of a group.
    fn pop_wanted(&mut self, with: u8) {
        let group = with & 3;
        let mut place = None;
        let popped = (self.queue).pop_wanted(&mut place, |task| task.0.group == group);
        self.model.skip(usize::MAX);
        let mut from = self.model.head;
        let (expected, _) = self.model.take(&mut from, group);
        let at = from.wrapping_sub(STEP);
        assert_eq!(
            popped,
            match expected {
                Some(_) => Popped::Task(at),
                None if self.model.cells.is_empty() => Popped::Empty,
                None => Popped::InProgress,
            }
        );
        assert_eq!(place.map(|task| *task.0), expected);
    }

    /// By who pushed it, in time or too late.
    fn take(&mut self, with: u8) {
        let count = self.positions.len();
        let Some(recent) = count.checked_sub(1 + usize::from(with) % 16) else {
            return;
        };
        let at = self.positions[recent];
        let taken = self.queue.take(at);
        let expected = self.model.cell(at).and_then(Option::take);
        assert_eq!(taken.map(|task| *task.0), expected);
    }

    fn take_wanted(&mut self, with: u8) {
        if with & 8 == 0 {
            self.from = self.queue.first();
            self.model.skip(usize::MAX);
            assert_eq!(self.from, self.model.head);
        }
        let group = with & 3;
        let mut from = self.from;
        let (expected, looked) = self.model.take(&mut from, group);
        let seen = RefCell::<Vec<u64>>::default();
        let wanted = |task: &Task| {
            seen.borrow_mut().push(task.0.name);
            task.0.group == group
        };
        let taken = self.queue.take_wanted(&mut self.from, wanted);
        assert_eq!(taken.map(|task| *task.0), expected);
        assert_eq!((self.from, seen.into_inner()), (from, looked));
    }

    fn wake(&mut self) {
        self.queue.wake();
        self.model.is_asleep = false;
    }

    fn sleep(&mut self) {
        let slept = self.queue.sleep();
        assert_eq!(slept, self.model.cells.is_empty());
        self.model.is_asleep |= slept;
    }

    fn look(&self) {
        let (queue, model) = (&self.queue, &self.model);
        let is_empty = model.cells.is_empty();
        let is_full = queue.is_full(model.head) && queue.is_oldest_there(model.head);
        assert_eq!((queue.is_empty(), is_full), (is_empty, model.is_full()));
        assert_eq!(queue.is_next_there(), !is_empty);
        assert_eq!(
            (queue.load_head(), queue.pushed()),
            (model.head, model.pushed)
        );
        assert_eq!(queue.room(), model.room());
        let free = model.capacity - model.cells.len();
        assert_eq!(queue.space(), free as u64);
        for pushes in 1..=model.capacity + 1 {
            let has_room = model.is_open() && pushes <= free;
            assert_eq!(queue.has_room_for(pushes as u64), has_room);
        }
    }
}
