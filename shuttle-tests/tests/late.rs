//! Events that come too late: the start of a task, the end that a caller waits for, the end of a
//! shutdown.
#![cfg(lazypool_shuttle)]

use lazypool::model::spawn;
use lazypool::{Pool, Shutdown};
use shuttle_tests::{explore, join_all, step, ticks, Meeting};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Returns a pool of two workers at most, of which `min` are started.
fn pool_of_two(min: usize, queue: usize) -> Arc<Pool> {
    let pool = Pool::builder().max_workers(2).min_workers(min);
    let pool = pool.queue_capacity(queue).idle_timeout(Duration::MAX);
    Arc::new(pool.build().expect("a pool"))
}

fn steps(count: u64) {
    (0..count).for_each(|_| step());
}

/// Returns a task that arrives at each of the meetings, and then takes some steps.
fn meets<const N: usize>(
    meetings: [&Arc<Meeting>; N],
    count: u64,
) -> impl FnOnce() + Send + 'static {
    let meetings = meetings.map(Arc::clone);
    move || {
        meetings.iter().for_each(|meeting| meeting.meet());
        steps(count);
    }
}

/// Returns a flag, and a task that takes some steps and then sets it.
fn flag(count: u64) -> (Arc<AtomicBool>, impl FnOnce() + Send + 'static) {
    let flag = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&flag);
    (flag, move || {
        steps(count);
        its.store(true, Ordering::SeqCst);
    })
}

/// A worker that others rely on, because it is awake, is handed a task that is too late, and then a
/// task that runs until the queued ones have run. Law 5: the other worker takes those.
#[test]
fn a_call_too_late_and_a_long_one() {
    explore("a_call_too_late_and_a_long_one", |dice| {
        // The queue has space for all tasks, even for those that leave a dead cell.
        let (pool, both) = (pool_of_two(2, 16), Meeting::of(2));
        let (its, met, pauses) = (Arc::clone(&pool), Arc::clone(&both), dice.below(12));
        let caller = spawn(move || {
            let _ = its.do_with_deadline(|| (), Duration::MAX);
            steps(pauses);
            let late = its.min_remaining(ticks(100_000));
            let late = late.do_with_deadline(|| (), ticks(10_000));
            assert!(late.is_err(), "it ran");
            let met = its.do_with_deadline(move || met.meet(), Duration::MAX);
            assert!(met.is_ok(), "space");
        });
        // These calls may time out in the queue. Then the caller takes its task out, and may hold
        // the oldest cell for a moment.
        let (its, mut own) = (Arc::clone(&pool), dice.fork());
        let leaver = spawn(move || {
            for _ in 0..3 {
                own.pause(12);
                let _ = its.do_with_deadline(|| (), ticks(own.below(3) + 1));
            }
        });
        let (its, mut own) = (Arc::clone(&pool), dice.fork());
        let submitter = spawn(move || {
            for _ in 0..own.below(6) {
                let _ = its.serve(|| ());
                own.pause(12);
            }
            its.serve(move || both.meet()).expect("space");
        });
        join_all(vec![caller, leaver, submitter]);
    });
}

/// The only worker pops a task whose group is cancelled meanwhile. Law 10: a drop waits for the task that is queued
/// behind it.
#[test]
fn left_queued_by_an_abandoned_worker() {
    explore("left_queued_by_an_abandoned_worker", |dice| {
        let pool = pool_of_two(0, 8);
        (pool.do_with_deadline(|| (), Duration::MAX)).expect("a worker");
        let (group, (ran, task)) = (pool.group(), flag(0));
        group.serve(|| ()).expect("space");
        pool.serve(task).expect("space");
        dice.pause(12);
        group.cancel();
        drop(pool);
        assert!(ran.load(Ordering::SeqCst), "left in the queue");
    });
}

/// A worker runs a task whose group is cancelled, then pops the next one, while the other worker
/// ends as the pool does. Law 10: the drop waits for that next task.
#[test]
fn taken_by_an_abandoned_worker() {
    explore("taken_by_an_abandoned_worker", |dice| {
        let pool = pool_of_two(0, 8);
        let (group, all) = (pool.group(), Meeting::of(3));
        let mut busy = |most| meets([&all], dice.below(most));
        group.serve(busy(300)).expect("a worker");
        pool.serve(busy(150)).expect("a worker");
        all.meet();
        let (ran, next) = flag(0);
        match dice.below(2) {
            0 => pool.serve(next).expect("space"),
            _ => pool.group().serve(next).expect("space"),
        }
        group.cancel();
        drop(pool);
        assert!(ran.load(Ordering::SeqCst), "it runs after the drop");
    });
}

/// Two workers run tasks of cancelled groups, but not at the same time: one worker pops a wanted
/// task before the other starts its cancelled one. Law 10: a drop waits for the wanted task.
#[test]
fn abandoned_by_turns() {
    explore("abandoned_by_turns", |dice| {
        let pool = pool_of_two(0, 8);
        let (one, two) = (pool.group(), pool.group());
        let (all, queued) = (Meeting::of(3), Meeting::of(3));
        let [first, second] = [(), ()].map(|()| meets([&all, &queued], dice.below(120)));
        one.serve(first).expect("a worker");
        pool.serve(second).expect("a worker");
        all.meet();
        one.cancel();
        let (ran, wanted) = flag(dice.below(60));
        let over = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&over);
        let cancelled = move || {
            (0..300)
                .take_while(|_| !its.load(Ordering::SeqCst))
                .for_each(|_| step());
        };
        // The order matters: the second task is popped after the first.
        pool.serve(wanted).expect("space");
        two.serve(cancelled).expect("space");
        queued.meet();
        let pauses = dice.below(100);
        let canceller = spawn(move || {
            steps(pauses);
            two.cancel();
        });
        drop(pool);
        let has_run = ran.load(Ordering::SeqCst);
        over.store(true, Ordering::SeqCst);
        canceller.join().expect("no panic");
        assert!(has_run, "it runs after the drop");
    });
}

/// A caller takes its task back, and so makes its worker idle, while the limit is lowered. Law 4:
/// an idle worker that is one too many ends at once.
#[test]
fn taken_back_as_the_limit_is_lowered() {
    explore("taken_back_as_the_limit_is_lowered", |dice| {
        let pool = pool_of_two(2, 0);
        // This worker is busy until the other has ended.
        let both = Meeting::of(2);
        let met = Arc::clone(&both);
        pool.serve(move || met.meet()).expect("an idle worker");
        let (its, limit) = (Arc::clone(&pool), dice.between(1, 6));
        let caller = spawn(move || {
            let _ = its.do_with_deadline(|| (), ticks(limit));
        });
        let (its, pauses) = (Arc::clone(&pool), dice.below(30));
        let lowers = spawn(move || {
            steps(pauses);
            its.set_limit(1).expect("in range");
        });
        join_all(vec![caller, lowers]);
        let mut looks = 0;
        while pool.stats().workers > 1 {
            shuttle::thread::yield_now();
            looks += 1;
            assert!(looks < 3_000, "one stays: {:?}", pool.stats());
        }
        both.meet();
    });
}

struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

shuttle::thread_local! {
    static KEPT: RefCell<Option<Gone>> = RefCell::new(None);
}

/// The last worker ends at the moment at which the shutdown stops waiting. Law 10: no thread
/// outlives a clean report.
#[test]
fn ended_as_the_time_is_up() {
    explore("ended_as_the_time_is_up", |dice| {
        let pool = Pool::builder().max_workers(1).idle_timeout(Duration::MAX);
        let pool = pool.build().expect("a pool");
        let gone = Arc::new(AtomicBool::new(false));
        let kept = Gone(Arc::clone(&gone));
        let keep = move || KEPT.with(|its| *its.borrow_mut() = Some(kept));
        (pool.do_with_deadline(keep, Duration::MAX)).expect("a worker");
        let report = pool.shutdown(Shutdown::Drain, ticks(dice.below(8)));
        let is_over = gone.load(Ordering::SeqCst);
        assert!(
            !report.is_clean() || is_over,
            "a clean report, and a thread"
        );
    });
}
