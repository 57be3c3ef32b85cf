//! Law 1 (admission): which submissions are accepted, and which are refused as `Saturated`.

mod common;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use lazypool::{DeadlineError, Pool};

fn retiring(max: usize, queue: usize, idle: Duration) -> Pool {
    pool_with(max, queue, |b| b.idle_timeout(idle))
}

/// Law 1: the pool accepts exactly `max_workers + queue_capacity` tasks of a burst, whether it
/// never ran a task before or all its workers are idle. It refuses the next task at once, submitted
/// by either verb, however far its deadline.
#[test]
fn law01_a_burst_fills_the_pool_to_the_brim() {
    let cases = [
        (1, 0),
        (2, 0),
        (13, 0),
        (5, 6),
        (7, 1),
        (1, 1),
        (1, 5),
        (3, 4),
        (4, 100),
    ];
    timed_each(cases, |(max, queue)| {
        let pool = pool(max, queue);
        assert_eq!((pool.max_workers(), pool.queue_capacity()), (max, queue));
        for round in 0..3 {
            let gate = Gate::new();
            for i in 0..max + queue {
                must_serve(&pool, gate.task());
                let s = pool.stats();
                assert!(s.queued + s.running > i, "round {round}: {s:?}");
            }
            saturated(pool.serve(gate.task()));
            for d in [LONG, Duration::MAX] {
                saturated(Err(refused(pool.do_with_deadline(gate.task(), d))));
            }
            gate.wait_entered(max);
            gate.open();
            settle(&pool);
            assert_eq!(gate.entered(), max + queue);
        }
        let all = 3 * (max + queue) as u64;
        assert_stats!(check_at_rest(&pool), accepted: all, completed: all, refused: 9);
    });
}

/// Law 1: a burst is accepted in full while workers are ending or have just ended, with a start
/// hook or without.
#[test]
fn law01_a_burst_into_retirement_is_accepted() {
    let cases = [
        (1, 0, ms(1)),
        (3, 0, Duration::ZERO),
        (3, 0, ms(1)),
        (4, 4, Duration::ZERO),
        (4, 4, ms(1)),
    ];
    let mut rng = Rng::new(11);
    let cases = product(cases, [false, true]);
    timed_each(cases, move |((max, queue, idle), hooked)| {
        let pool = pool_with(max, queue, |b| match hooked {
            false => b.idle_timeout(idle),
            true => (b.idle_timeout(idle)).on_worker_start(|_| thread::sleep(ms(1))),
        });
        for _ in 0..rounds(60) {
            let gate = Gate::new();
            burst(&pool, &gate);
            saturated(pool.serve(gate.task()));
            gate.open();
            settle(&pool);
            assert_eq!(gate.entered(), max + queue);
            thread::sleep(Duration::from_micros(rng.below(2500)));
        }
    });
}

/// Law 1: a burst is accepted in full if one worker is idle and the other slots have no thread.
#[test]
fn law01_a_burst_onto_an_idle_worker_is_accepted_with_a_start_hook() {
    timed_each(1..4, |idle| {
        let pool = pool_with(4, 100, |b| b.on_worker_start(|_| thread::sleep(ms(5))));
        for tasks in [idle, 104] {
            let gate = Gate::new();
            (0..tasks).for_each(|_| must_serve(&pool, gate.task()));
            gate.open();
            settle(&pool);
        }
    });
}

/// Law 1: at no moment are more accepted tasks unended than there is space for. After the load that
/// saturated the pool, the whole cap is usable. See pond 108, 115.
#[test]
fn law01_never_more_unended_tasks_than_space() {
    timed_each([(1, 0), (2, 0), (1, 2), (2, 3)], |(max, queue)| {
        let pool = retiring(max, queue, ms(1));
        // A task is counted late when accepted and early when ended, so the count is never too
        // high.
        let unended = Arc::new(AtomicI64::new(0));
        let space = (max + queue) as i64;
        on_threads(4, |_, mut rng| {
            for _ in 0..rounds(1500) {
                let work = Duration::from_micros(rng.below(20));
                let end = Arc::clone(&unended);
                let outcome = pool.serve(move || {
                    spin(work);
                    end.fetch_sub(1, Ordering::SeqCst);
                });
                if outcome.is_ok() {
                    let now = unended.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= space, "{now} unended, space for {space}");
                } else {
                    saturated(outcome);
                }
            }
        });
        let s = settle(&pool);
        assert_eq!(unended.load(Ordering::SeqCst), 0);
        assert_stats!(s, completed: s.accepted);
        assert_cap_usable(&pool);
    });
}

/// As many threads as there is space for call the pool, so that none of them ever meets a full pool.
/// Between calls they pause for less than `pause` microseconds.
fn callers_never_refused((max, queue): (usize, usize), idle: Duration, turns: u64, pause: u64) {
    let pool = &retiring(max, queue, idle);
    let callers = pool.max_workers() + pool.queue_capacity();
    on_threads(callers, |_, mut rng| {
        for turn in 0..turns {
            let kind = rng.below(8);
            let task = move || match kind {
                0 => quiet_panic("on purpose"),
                1 => spin(Duration::from_micros(5)),
                2 => thread::yield_now(),
                _ => {}
            };
            let d = if kind % 2 == 0 { Duration::MAX } else { LONG };
            match pool.do_with_deadline(task, d) {
                Ok(()) => assert_ne!(kind, 0),
                Err(DeadlineError::Panicked(_)) => assert_eq!(kind, 0),
                other => panic!("turn {turn}: {other:?}, {:?}", pool.stats()),
            }
            let pause = Duration::from_micros(rng.below(pause.max(1)));
            match kind {
                0..4 => spin(pause / 8),
                _ if pause.is_zero() => {}
                _ => thread::sleep(pause),
            }
        }
    });
    let s = assert_stats!(check_at_rest(pool), refused: 0);
    assert_eq!(s.completed + s.panicked, turns * callers as u64, "{s:?}");
}

/// Laws 1 and 6: as many callers as there is space for are never refused. A worker is free before
/// its caller is released, so this includes back-to-back calls on a pool of one. A call that races
/// the retirement of the only worker able to take it is accepted, and runs. See pond 33,
/// elasticsearch 124667.
#[test]
fn law01_law06_as_many_callers_as_space_are_never_refused() {
    timed(|| {
        callers_never_refused((1, 0), Duration::MAX, rounds(20_000), 0);
        for shape in [(2, 0), (8, 0), (1, 1), (1, 3), (3, 5)] {
            callers_never_refused(shape, Duration::MAX, rounds(600), 0);
        }
        // These sleep most of the time, so they run side by side.
        thread::scope(|s| {
            let shapes = [(1, 0), (1, 0), (1, 0), (1, 1), (1, 1), (2, 0), (3, 2)];
            for (shape, idle) in shapes.into_iter().zip([0, 1, 2, 0, 1, 1, 1].map(ms)) {
                s.spawn(move || callers_never_refused(shape, idle, rounds(700), 3000));
            }
        });
    });
}

/// Law 1: the place of a cancelled task stays taken while an older task is queued before it, and no
/// longer. After that the whole queue is free, even for a worker of the pool. The worker fills it
/// in a time that is proportional to its length.
#[test]
fn law01_cancelled_tasks_leave_their_space() {
    const SPACE: usize = cut(1 << 17) as usize;
    timed(|| {
        let (pool, gate) = (Arc::new(pool(1, SPACE)), Gate::new());
        let own = Arc::downgrade(&pool);
        let (tell, told) = mpsc::channel();
        occupy_then(&pool, &gate, move || {
            let pool = own.upgrade().unwrap();
            let start = Instant::now();
            let served = (0..=SPACE).take_while(|_| pool.serve(|| ()).is_ok());
            tell.send((served.count(), start.elapsed())).unwrap();
        });
        let [older, younger] = [(); 2].map(|()| pool.group());
        for n in 0..SPACE {
            must_serve_in(if n < SPACE / 2 { &older } else { &younger }, || ());
        }
        younger.cancel();
        saturated(pool.serve(|| ()));
        older.cancel();
        gate.open();
        let (served, took) = arrives("the number of tasks", &told);
        assert_eq!(served, SPACE);
        // The limit is many times as long as filling the queue takes.
        assert!(took < Duration::from_secs(4), "{took:?}");
        at_rest(&pool);
    });
}

/// The memory of a queue grows with its use, not with its length.
#[cfg(target_os = "linux")]
#[test]
fn a_long_queue_takes_no_memory_before_it_is_used() {
    timed(|| {
        let before = memory("VmRSS");
        let (pool, gate) = held(1 << 22);
        let grown = memory("VmRSS").saturating_sub(before);
        assert!(grown < 64 * 1024, "{grown} KiB of 256 MiB");
        (0..1000).for_each(|_| must_serve(&pool, || ()));
        gate.open();
        assert_eq!(settle(&pool).completed, 1001);
    });
}
