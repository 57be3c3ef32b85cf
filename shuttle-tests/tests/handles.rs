//! Handles: joined, awaited with changing wakers, cancelled, dropped and detached. Law 21.
#![cfg(lazypool_shuttle)]

use lazypool::{Awaitable, Group, Handle, TaskError, WhenFull};
use shuttle::sync::{Condvar, Mutex};
use shuttle_tests::{explore, join_all, planned_panic, step, ticks, Bench, Dice};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// A task's value. It counts how many values exist.
struct Value(Arc<AtomicI64>);

impl Value {
    fn new(alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(alive))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        step();
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a value is dropped again");
    }
}

/// A waker that notes that it was woken. Some panic, all take a step.
struct Flag {
    woken: Mutex<u64>,
    told: Condvar,
    panics: bool,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        step();
        *self.woken.lock().unwrap() += 1;
        self.told.notify_all();
        if self.panics {
            planned_panic();
        }
    }
}

impl Flag {
    fn new(panics: bool) -> Arc<Self> {
        Arc::new(Self {
            woken: Mutex::new(0),
            told: Condvar::new(),
            panics,
        })
    }

    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while *woken == 0 {
            woken = self.told.wait(woken).unwrap();
        }
    }
}

/// Awaits the handle, with a new waker for each of a few polls: the last one must be woken.
fn block_on<R>(mut handle: Handle<R>, dice: &mut Dice) -> Result<R, TaskError> {
    let mut earlier = Vec::new();
    let outcome = loop {
        let flag = Flag::new(dice.one_in(4));
        let waker = Waker::from(Arc::clone(&flag));
        match Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => break outcome,
            Poll::Pending if earlier.len() < 3 && dice.one_in(2) => {}
            Poll::Pending => flag.wait(),
        }
        earlier.push(flag);
    };
    drop(handle);
    assert!(earlier.iter().all(|flag| *flag.woken.lock().unwrap() <= 1));
    outcome
}

struct Run {
    bench: Arc<Bench>,
    group: Group,
    alive: Arc<AtomicI64>,
    /// Counts the group's tasks.
    served: AtomicU64,
}

impl Run {
    /// Submits a task with a handle, and then joins, awaits, cancels, drops or detaches the handle.
    fn act(&self, dice: &mut Dice) {
        let ticket = self.bench.ticket();
        let (number, alive) = (ticket.number(), Arc::clone(&self.alive));
        let (steps, panics) = (dice.below(4), dice.one_in(6));
        let task = move || {
            ticket.run(|| {
                for _ in 0..steps {
                    let _ = lazypool::task::is_cancelled();
                    step();
                }
                if panics {
                    planned_panic();
                }
                Value::new(&alive)
            })
        };
        let in_group = dice.one_in(2);
        let blocks = self.bench.pool.when_full(WhenFull::Block);
        let on: Awaitable<'_> = if in_group {
            self.group.awaitable()
        } else {
            blocks.labeled("awaited").awaitable()
        };
        let mut handle = None;
        let accepted = self
            .bench
            .call(number, task, |f| on.serve(f).map(|new| handle = Some(new)));
        self.served
            .fetch_add(u64::from(in_group && accepted.is_ok()), Ordering::Relaxed);
        let Some(handle) = handle else { return };
        dice.pause(20);
        if dice.one_in(4) {
            handle.cancel();
        }
        let outcome = match dice.below(6) {
            0 => return drop(handle),
            1 => return handle.detach(),
            2 => handle.join(),
            3 => match handle.join_timeout(ticks(dice.below(20))) {
                Ok(outcome) => outcome,
                Err(handle) if dice.one_in(2) => return drop(handle),
                Err(handle) => block_on(handle, dice),
            },
            _ => block_on(handle, dice),
        };
        match outcome {
            Ok(_) => assert!(!panics),
            Err(TaskError::Panicked(_)) => assert!(panics),
            Err(TaskError::Cancelled | TaskError::Discarded) => {}
            Err(other) => panic!("it has no deadline: {other:?}"),
        }
    }
}

/// Several threads use handles, with and without a group that may be cancelled, beside other calls
/// and perhaps a shutdown. Laws 2, 9, 21.
#[test]
fn handles() {
    explore("handles", |dice| {
        let (workers, queue) = (dice.between(1, 3) as usize, dice.below(5) as usize);
        let bench = Bench::blocking(workers, queue, |b| b);
        let run = Arc::new(Run {
            group: bench.pool.group(),
            bench: Arc::clone(&bench),
            alive: Arc::default(),
            served: AtomicU64::new(0),
        });
        let threads = dice.between(2, 4);
        let acts = Arc::clone(&run);
        let mut all = bench.submitters(dice, threads, move |bench, dice| {
            for _ in 0..dice.between(1, 4) {
                if dice.one_in(4) {
                    bench.act(dice, 0);
                } else {
                    acts.act(dice);
                }
            }
        });
        if dice.one_in(2) {
            let group = run.group.clone();
            all.extend(bench.submitters(dice, 1, move |_, dice| {
                dice.pause(60);
                group.cancel();
            }));
        }
        if dice.one_in(4) {
            let limits = [1, dice.between(1, workers as u64) as usize];
            bench.expect_limit(1);
            all.extend(bench.submitters(dice, 1, move |bench, dice| {
                for limit in limits {
                    dice.pause(40);
                    bench.pool.set_limit(limit).expect("within bounds");
                }
            }));
        }
        all.extend(bench.may_shut_down(dice, 4, 90));
        join_all(all);
        run.group.wait();
        let ended = run.group.completed() + run.group.panicked() + run.group.discarded();
        assert_eq!(
            ended as u64,
            run.served.load(Ordering::Relaxed),
            "{:?}",
            run.group
        );
        bench.wait_until_idle();
        let alive = Arc::clone(&run.alive);
        drop(run);
        bench.finish(true);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "values are left");
    });
}
