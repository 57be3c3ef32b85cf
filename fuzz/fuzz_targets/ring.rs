//! The ring against `crossbeam_queue::ArrayQueue` and a `VecDeque`, call by call;
//! then by two threads, where nothing may be lost, doubled or overtaken.
#![no_main]

// The ring is private to the crate: its source is compiled in here.
#[allow(dead_code, unreachable_pub)]
#[path = "../../src/parts/ring.rs"]
mod ring;
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../src/sync/mod.rs"]
mod sync;

use crossbeam_queue::ArrayQueue;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ring::Ring;
use std::collections::VecDeque;
use std::sync::Barrier;

#[derive(Debug, Arbitrary)]
enum Call {
    Push(u16),
    Pop,
    IsEmpty,
    Pushes,
    /// Several of one kind: to get round the ring within a small input.
    Fill(u8),
    Drain(u8),
}

#[derive(Debug, Arbitrary)]
struct Input {
    capacity: u8,
    filled: u8,
    calls: Vec<Call>,
    /// One script per thread: push or pop.
    scripts: Option<[Vec<bool>; 2]>,
}

fuzz_target!(|input: Input| {
    let capacity = 1 + usize::from(input.capacity) % 70;
    let filled = usize::from(input.filled) % (capacity + 1);
    alone(capacity, filled, &input.calls);
    if let Some(scripts) = &input.scripts {
        together(capacity, scripts);
    }
});

fn alone(capacity: usize, filled: usize, calls: &[Call]) {
    let ring = Ring::new(capacity, filled);
    // What the ring rounds its capacity up to.
    let size = capacity.next_power_of_two();
    let yardstick = ArrayQueue::new(size);
    let mut model = VecDeque::new();
    let mut pushes = filled as u64;
    for value in 0..filled {
        yardstick.push(value).expect("room");
        model.push_back(value);
    }
    let push = |value, model: &mut VecDeque<usize>, pushes: &mut u64| {
        let pushed = ring.push(value);
        assert_eq!(pushed, yardstick.push(value));
        assert_eq!(pushed.is_ok(), model.len() < size);
        if pushed.is_ok() {
            model.push_back(value);
            *pushes += 1;
        }
    };
    let pop = |model: &mut VecDeque<usize>| {
        let popped = ring.pop();
        assert_eq!(popped, yardstick.pop());
        assert_eq!(popped, model.pop_front());
    };
    for call in calls {
        match *call {
            Call::Push(value) => push(usize::from(value), &mut model, &mut pushes),
            Call::Pop => pop(&mut model),
            Call::IsEmpty => assert_eq!(ring.is_empty(), model.is_empty()),
            Call::Pushes => assert_eq!(ring.pushes(), pushes),
            Call::Fill(n) => (0..n).for_each(|n| push(n.into(), &mut model, &mut pushes)),
            Call::Drain(n) => (0..n).for_each(|_| pop(&mut model)),
        }
    }
    while !model.is_empty() {
        pop(&mut model);
    }
    assert!(ring.is_empty() && ring.pop().is_none());
}

fn together(capacity: usize, scripts: &[Vec<bool>; 2]) {
    let ring = Ring::new(capacity, 0);
    let size = capacity.next_power_of_two();
    let start = Barrier::new(2);
    // Each thread pushes its own numbers in order; numbers tell who and when.
    let play = |who: usize, script: &[bool]| {
        start.wait();
        let mut taken = Vec::new();
        let mut next = 0;
        for &push in script.iter().take(1000) {
            if push {
                next += usize::from(ring.push(who << 15 | next).is_ok());
            } else {
                taken.extend(ring.pop());
            }
        }
        (next, taken)
    };
    let play = &play;
    let ((a_pushed, a_taken), (b_pushed, b_taken)) = std::thread::scope(|s| {
        let other = s.spawn(move || play(1, &scripts[1]));
        (play(0, &scripts[0]), other.join().expect("no panic"))
    });
    let left: Vec<_> = std::iter::from_fn(|| ring.pop()).collect();
    assert!(left.len() <= size);
    // Whoever takes sees each thread's numbers in the order they were pushed.
    for taken in [&a_taken, &b_taken, &left] {
        for who in 0..2 {
            let of_who = taken.iter().filter(|n| *n >> 15 == who);
            assert!(of_who.is_sorted());
        }
    }
    let mut all = [a_taken, b_taken, left].concat();
    all.sort_unstable();
    let pushed = (0..a_pushed).chain((0..b_pushed).map(|n| 1 << 15 | n));
    assert!(all.into_iter().eq(pushed));
}
