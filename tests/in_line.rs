//! Law 20 (in line): a thread that waits sleeps, gets its turn, and holds up no caller. The order of
//! the line: `serve_async.rs`, `line_crowd.rs`.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::gates::*;
use common::*;
use lazypool::{Pool, WhenFull};

fn pool(max: usize, queue: usize) -> Pool {
    let builder = builder(max, queue).when_full(WhenFull::Block);
    builder.build().expect("pool")
}

/// Returns the CPU time that the calling thread has used so far.
#[cfg(target_os = "linux")]
fn own_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "the system measures the thread's CPU time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Asserts that the call waits while the gate is shut, and hardly uses the CPU.
#[cfg(target_os = "linux")]
#[track_caller]
fn assert_sleeps(what: &str, gate: &Gate, call: impl FnOnce() + Send) {
    // About a thousand times as long as a submission may spin.
    const SHUT: Duration = ms(200);
    thread::scope(|s| {
        let _opener = gate.opener();
        let key = gate.key();
        let call = s.spawn(move || {
            let before = own_time();
            call();
            assert!(key.is_open(), "{what}: the call did not wait");
            own_time() - before
        });
        thread::sleep(SHUT);
        gate.open();
        let used = call.join().unwrap();
        assert!(used < SHUT / 4, "{what}: {used:?} of processor time");
    });
}

/// Law 20: a thread sleeps while it waits for room, for an outcome, or for the end of another
/// thread's task or hook.
#[cfg(target_os = "linux")]
#[test]
fn law20_a_thread_that_waits_for_longer_does_not_spin() {
    timed(|| {
        for queue in [0, 2] {
            let call = |pool: &Pool| pool.do_with_deadline(|| (), LONG).unwrap();
            let blocking = pool(1, queue);
            for with_value in [false, true] {
                let gate = Gate::new();
                fill(&blocking, &gate);
                assert_sleeps("for room", &gate, || match with_value {
                    false => must_serve(&blocking, || ()),
                    true => call(&blocking),
                });
                settle(&blocking);
            }
            let gate = Gate::new();
            assert_sleeps("for its outcome", &gate, || {
                blocking.do_with_deadline(gate.task(), LONG).unwrap();
            });

            let gate = Gate::new();
            let key = gate.key();
            let builder = builder(1, queue).on_worker_start(move |_| key.pass());
            let hooked = builder.build().expect("pool");
            assert_sleeps("for a start hook", &gate, || call(&hooked));

            let gate = Gate::new();
            let key = gate.key();
            let builder = self::builder(1, queue).on_worker_stop(move |_| key.pass());
            let builder = builder
                .idle_timeout(Duration::ZERO)
                .when_full(WhenFull::Block);
            let hooked = builder.build().expect("pool");
            must_serve(&hooked, || ());
            gate.wait_entered(1);
            assert_sleeps("for a stop hook", &gate, || call(&hooked));
        }
        let (pool, gate) = held(2);
        assert_sleeps("in the queue", &gate, || {
            pool.do_with_deadline(|| (), LONG).unwrap();
        });
        let (group, gate) = (pool.group(), Gate::new());
        must_serve_in(&group, gate.task());
        assert_sleeps("for a group", &gate, || group.wait());
        let gate = Gate::new();
        assert_sleeps("for a scope", &gate, || {
            pool.scope(|s| s.serve(gate.task()).unwrap());
        });
    });
}

/// Law 20: the release of a finished task's caller waits for no thread except its worker. It does
/// not wait for workers in hooks or at their tasks, or for submitters that wait for room.
#[test]
fn law20_a_caller_is_released_whoever_else_is_held_up() {
    timed(|| {
        for queue in [0, 2] {
            let gate = Gate::new();
            // Each slot is held up at a different place. The caller's worker has slot 0.
            let (start, panicked) = (gate.key(), gate.key());
            let pool = builder(4, queue)
                .when_full(WhenFull::Block)
                .on_worker_start(move |slot| match slot {
                    1 => start.pass(),
                    _ => {}
                })
                .on_panic(move |_| panicked.pass())
                .build()
                .expect("pool");
            let own = Gate::new();
            thread::scope(|s| {
                let _openers = (gate.opener(), own.opener());
                let call = s.spawn(|| pool.do_with_deadline(own.task(), LONG).unwrap());
                own.wait_entered(1);
                must_serve(&pool, || ()); // in its start hook
                gate.wait_entered(1);
                must_serve(&pool, || quiet_panic("on purpose")); // in the panic hook
                gate.wait_entered(2);
                (0..=queue).for_each(|_| must_serve(&pool, gate.task()));
                gate.wait_entered(3);
                // Two submitters are in line. The first gets the room that the caller's worker
                // makes.
                for _ in 0..2 {
                    s.spawn(|| must_serve(&pool, gate.task()));
                }
                wait_in_line(&pool, 2);
                own.open();
                wait_until("the caller's release", || call.is_finished());
                assert!(!gate.key().is_open());
            });
            let s = settle(&pool);
            assert_eq!((s.completed, s.panicked), (5 + queue as u64, 1), "{s:?}");
            check_at_rest(&pool, &s);
        }
    });
}

/// Law 20: threads that do not wait, but retry in a loop, do not overtake a waiting submission
/// without end. Its turn comes within milliseconds.
#[test]
fn law20_threads_that_retry_do_not_overtake_the_line() {
    // The retrying threads may get some places before the waiting task's turn comes and this thread
    // wakes. Without the guarantee they got hundreds of thousands.
    const MANY: u64 = 50_000;
    timed(|| {
        for (retry, queue) in [(1, 0), (1, 1), (2, 1), (2, 16)] {
            let pool = pool(1, queue);
            let (over, taken) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|s| {
                let _over = on_drop(|| over.store(true, Ordering::SeqCst));
                for _ in 0..retry {
                    s.spawn(|| {
                        let refusing = pool.when_full(WhenFull::Refuse);
                        while !over.load(Ordering::SeqCst) {
                            let served = refusing.serve(|| spin(Duration::from_micros(5)));
                            taken.fetch_add(u64::from(served.is_ok()), Ordering::SeqCst);
                        }
                    });
                }
                wait_until("the retrying threads to run", || {
                    taken.load(Ordering::SeqCst) > 100
                });
                for _ in 0..rounds(50) {
                    let (told, served) = mpsc::channel();
                    let waits = || {
                        must_serve(&pool, || ());
                        told.send(()).unwrap_or_default();
                    };
                    thread::scope(|s| {
                        s.spawn(waits);
                        // Places that are taken in the first 10 ms do not count.
                        if served.recv_timeout(ms(10)).is_ok() {
                            return;
                        }
                        let before = taken.load(Ordering::SeqCst);
                        served.recv().unwrap();
                        let most = taken.load(Ordering::SeqCst) - before;
                        assert!(most < MANY, "overtaken {most} times");
                    });
                }
            });
            check_at_rest(&pool, &settle(&pool));
        }
    });
}
