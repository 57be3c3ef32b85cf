//! The queue against a list of tasks and tombstones, and three flags.

use crate::parts::queue::{NotPushed, Popped, Queue, Queued};
use crate::Step;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Positions count in steps of this.
const STEP: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    name: u64,
    group: u8,
    revocable: bool,
}

/// Boxed: the sanitizer counts them.
#[derive(Debug)]
struct Task(Box<Known>);

impl Queued for Task {
    type Worker = ();

    fn announce(_: Option<&Self>, (): &()) {}

    fn is_revocable(&self) -> bool {
        self.0.revocable
    }
}

#[derive(Debug, Default)]
struct Model {
    /// From `head` on; `None`: a tombstone.
    cells: VecDeque<Option<Known>>,
    head: u64,
    capacity: usize,
    pushed: u64,
    is_asleep: bool,
    is_guarded: bool,
    /// Where it was closed.
    closed: Option<u64>,
}

impl Model {
    fn tail(&self) -> u64 {
        self.head.wrapping_add(STEP * self.cells.len() as u64)
    }

    fn tombstones(&self) -> usize {
        self.cells.iter().filter(|cell| cell.is_none()).count()
    }

    fn cell(&mut self, position: u64) -> Option<&mut Option<Known>> {
        let ahead = position.wrapping_sub(self.head) / STEP;
        self.cells.get_mut(usize::try_from(ahead).ok()?)
    }

    fn is_open(&self) -> bool {
        !self.is_asleep && self.closed.is_none()
    }

    /// Room behind the last task.
    fn room(&self) -> Option<u64> {
        (self.is_open() && self.cells.len() < self.capacity).then(|| self.tail())
    }

    fn push_behind(&mut self, task: Known) {
        self.cells.push_back(Some(task));
        self.pushed += 1;
    }

    /// The oldest task; tombstones before it go.
    fn pop(&mut self) -> Option<(u64, Known)> {
        loop {
            let cell = self.cells.pop_front()?;
            let at = self.head;
            self.head = at.wrapping_add(STEP);
            if let Some(task) = cell {
                return Some((at, task));
            }
        }
    }

    /// The next revocable task of the group, and the names of all that were looked at.
    fn take(&mut self, from: &mut u64, group: u8) -> (Option<Known>, Vec<u64>) {
        let mut looked = Vec::new();
        if (self.head.wrapping_sub(*from) as i64) > 0 {
            *from = self.head;
        }
        while *from != self.tail() {
            let cell = self.cell(*from).expect("between the ends");
            *from = from.wrapping_add(STEP);
            if let Some(task) = cell.filter(|task| task.revocable) {
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
    while play.pop_guarded() {}
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
            5 | 6 => (0..=with >> 6).for_each(|_| self.try_pop()),
            7 => self.try_pop_ready(),
            8 => drop(self.pop_guarded()),
            9 => {
                self.model.is_guarded = with & 1 == 0;
                self.queue.guard(with & 1 == 0);
            }
            10 | 11 => self.withdraw(with),
            12 => self.take_wanted(with),
            13 if with < 32 => self.close(),
            13 => self.wake(),
            14 => self.sleep(),
            _ => self.push_again(),
        }
    }

    fn task(&mut self, with: u8) -> (Known, Option<Task>) {
        self.names += 1;
        let known = Known {
            name: self.names,
            group: with >> 1 & 3,
            revocable: with & 1 == 0,
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
                let expected = if model.closed.is_some() {
                    NotPushed::Closed
                } else if model.is_asleep {
                    NotPushed::Asleep
                } else {
                    assert_eq!((model.room(), model.tombstones()), (None, 0));
                    NotPushed::Full
                };
                return assert_eq!(why, expected);
            }
            Ok(at) if model.room().is_some() => {
                assert_eq!(Some(at), model.room());
                model.push_behind(known);
                at
            }
            Ok(at) => {
                assert!(model.is_open());
                let cell = model.cell(at).expect("between the ends");
                assert_eq!(cell.replace(known), None, "a tombstone");
                model.pushed += 1;
                at
            }
        };
        self.positions.push(at);
    }

    /// Where there was room once.
    fn push_at(&mut self, with: u8) {
        let Some(at) = self.room else { return };
        let (known, mut task) = self.task(with);
        let pushed = self.queue.push_at(at, &mut task);
        assert_eq!(pushed, self.model.room() == Some(at));
        assert_eq!(pushed, task.is_none());
        if pushed {
            self.model.push_behind(known);
            self.positions.push(at);
        }
    }

    fn try_pop(&mut self) {
        let mut place = None;
        let popped = self.queue.try_pop(&mut place);
        let expected = (!self.model.is_guarded).then(|| self.model.pop());
        assert_eq!(
            popped,
            match expected {
                None => Popped::Guarded,
                Some(None) => Popped::Empty,
                Some(Some((at, _))) => Popped::Task(at),
            }
        );
        let expected = expected.flatten().map(|(_, task)| task);
        assert_eq!(place.map(|task| *task.0), expected);
    }

    /// The same with one look: alone it misses nothing.
    fn try_pop_ready(&mut self) {
        let mut place = None;
        let popped = self.queue.try_pop_ready(&mut place, &());
        let expected = (!self.model.is_guarded).then(|| self.model.pop()).flatten();
        let place = place.map(|task| *task.0);
        assert_eq!(popped.zip(place), expected);
    }

    fn pop_guarded(&mut self) -> bool {
        let mut place = None;
        let popped = self.queue.pop_guarded(&mut place);
        let expected = self.model.pop();
        assert_eq!(
            popped,
            expected.map_or(Popped::Empty, |(at, _)| Popped::Task(at))
        );
        assert_eq!(place.map(|task| *task.0), expected.map(|(_, task)| task));
        expected.is_some()
    }

    fn withdraw(&mut self, with: u8) {
        let count = self.positions.len();
        let Some(recent) = count.checked_sub(1 + usize::from(with) % 16) else {
            return;
        };
        let at = self.positions[recent];
        let (queue, counted) = (&self.queue, Cell::new(0));
        let taken = queue.withdraw(at, || check_room_made(queue, &counted));
        let cell = self.model.cell(at);
        let expected = cell.and_then(|cell| cell.take_if(|task| task.revocable));
        assert_eq!(taken.map(|task| *task.0), expected);
        assert_eq!(counted.get(), u32::from(expected.is_some()));
    }

    fn take_wanted(&mut self, with: u8) {
        if with & 8 == 0 {
            self.from = self.queue.first();
            assert_eq!(self.from, self.model.head);
        }
        let group = with & 3;
        let mut from = self.from;
        let (expected, looked) = self.model.take(&mut from, group);
        let (queue, counted, seen) = (&self.queue, Cell::new(0), RefCell::default());
        let wanted = |task: &Task| {
            RefCell::<Vec<u64>>::borrow_mut(&seen).push(task.0.name);
            task.0.group == group
        };
        let taken = queue.take_wanted(&mut self.from, wanted, || check_room_made(queue, &counted));
        assert_eq!(taken.map(|task| *task.0), expected);
        assert_eq!(counted.get(), u32::from(expected.is_some()));
        assert_eq!((self.from, seen.into_inner()), (from, looked));
    }

    fn close(&mut self) {
        let end = self.queue.close();
        assert_eq!(end, self.model.tail());
        self.model.closed = Some(end);
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

    /// As who closes does it with a task that stays.
    fn push_again(&mut self) {
        if self.model.closed.is_none() || self.model.is_asleep || self.model.is_guarded {
            return;
        }
        let mut place = None;
        let popped = self.queue.try_pop(&mut place);
        match self.model.pop() {
            None => assert_eq!(popped, Popped::Empty),
            Some((at, known)) => {
                assert_eq!(popped, Popped::Task(at));
                let task = place.expect("a task");
                assert_eq!(*task.0, known);
                self.positions.push(self.model.tail());
                self.queue.push_again(task);
                self.model.push_behind(known);
            }
        }
    }

    fn look(&self) {
        let (queue, model) = (&self.queue, &self.model);
        let is_empty = model.cells.is_empty();
        let is_full = model.cells.len() == model.capacity && model.tombstones() == 0;
        assert_eq!((queue.is_empty(), queue.is_full()), (is_empty, is_full));
        assert_eq!(queue.is_next_there(), !is_empty);
        assert_eq!((queue.pops(), queue.pushed()), (model.head, model.pushed));
        assert_eq!(queue.room(), model.room());
        let free = model.capacity - model.cells.len();
        for pushes in 1..=model.capacity + 1 {
            let has_room = model.is_open() && pushes <= free;
            assert_eq!(queue.has_room_for(pushes as u64), has_room);
        }
        assert_eq!(queue.is_before(model.tail()), !is_empty);
        if let Some(end) = model.closed {
            let is_before = (end.wrapping_sub(model.head) as i64) > 0;
            assert_eq!(queue.is_before(end), is_before);
        }
    }
}

/// A task is being taken out: it is room already, and the queue is not yet seen empty.
fn check_room_made(queue: &Queue<Task>, counted: &Cell<u32>) {
    counted.set(counted.get() + 1);
    assert!(!queue.is_full() && !queue.is_empty());
}
