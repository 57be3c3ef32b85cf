//! The feature `tracing`: three events, each where an operator must act, and no spans. Subscribers
//! have no effect on admission and cannot harm the pool.

mod common;
#[path = "tracing/keeper.rs"]
mod keeper;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "common/last_handle.rs"]
mod last_handle;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "common/shortage.rs"]
mod shortage;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "tracing/within.rs"]
mod within;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use keeper::*;
use lazypool::{Builder, DeadlineError, Shutdown};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn a_spawn_failure_is_told() {
    let pool = named("unspawned", 1, 0, |b| b.stack_size(IMPOSSIBLE_STACK));
    assert!(pool.serve(|| ()).is_err());
    let event = keeper().event_of("unspawned", NOT_STARTED);
    assert_eq!(event.on, thread::current().id());
    assert!(!event.fields["error"].is_empty());
}

/// The event of a panic has label, slot and message. It occurs on the worker before the caller is
/// released.
#[test]
fn a_panic_is_told() {
    timed(|| {
        let pool = named("panics", 1, 0, |b| b);
        let worker = pool.do_with_deadline(|| thread::current().id(), LONG);
        let boom = || quiet_panic("no such file");
        panicked::<_, ()>(pool.labeled("load").do_with_deadline(boom, LONG));
        let event = keeper().event_of("panics", PANICKED);
        assert_eq!(event.on, worker.unwrap());
        assert_eq!(event.fields["label"], "load");
        assert_eq!(event.fields["slot"], "0");
        assert_eq!(event.fields["panic.message"], "no such file");

        let opaque = || std::panic::resume_unwind(Box::new(5));
        assert!(pool.do_with_deadline(opaque, LONG).is_err());
        let events = keeper().events_of("panics");
        assert_eq!(events.len(), 2);
        assert!(!events[1].fields.contains_key("panic.message"));
        assert!(!events[1].fields.contains_key("label"));
    });
}

/// A worker that was reported in its task is not reported again in its stop hook.
#[test]
fn a_straggler_is_not_told_of_again_in_its_stop_hook() {
    timed(|| {
        let in_hook = Gate::new();
        let pool = named("late-hook", 1, 0, |b| b.on_worker_stop(in_hook.hook()));
        let gate = hold(&pool, 1);
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 1);
        gate.open();
        in_hook.wait_entered(1);
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 1);
        in_hook.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        keeper().event_of("late-hook", STRAGGLER);
    });
}

/// A worker is reported although a thread that had its slot before was, in its stop hook.
#[test]
fn a_straggler_is_told_of_whoever_had_its_slot() {
    timed(|| {
        let in_hook = Gate::new();
        let pool = named("same-slot", 2, 1, |b| {
            b.idle_timeout(ms(5)).on_worker_stop(in_hook.hook())
        });
        must_serve(&pool, || ());
        in_hook.wait_entered(1);
        let gate = hold(&pool, 1);
        let _openers = (in_hook.opener(), gate.opener());
        pool.set_limit(1).unwrap();
        must_serve_in(&pool.labeled("second").group(), gate.task());
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 2);
        pool.set_limit(2).unwrap();
        gate.wait_entered(2);
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 3);
        let of_second = |event: &Said| event.fields.get("label").is_some_and(|l| l == "second");
        let events = keeper().events_of("same-slot");
        assert_eq!(events.iter().filter(|event| of_second(event)).count(), 1);
        assert_eq!(events.len(), 3);
    });
}

/// Two threads that had the same slot are in their stop hooks. One of them ends; the other one, which was reported, is not
/// reported again.
#[test]
fn a_straggler_is_told_of_once_beside_another_of_its_slot() {
    timed(|| {
        let (in_hook, calls) = (Gate::new(), AtomicUsize::new(0));
        let key = in_hook.key();
        let hook = move |_| {
            // The first one only waits.
            if calls.fetch_add(1, Ordering::SeqCst) == 0 {
                key.pass();
            }
        };
        let hook = Mutex::new(Some(hook));
        let pool = named("two-hooks", 2, 1, |b| {
            let hook = hook.lock().unwrap().take().expect("once");
            b.idle_timeout(ms(5)).on_worker_stop(hook)
        });
        must_serve(&pool, || ());
        in_hook.wait_entered(1);
        let (long, second) = (hold(&pool, 1), Gate::new());
        let _openers = (in_hook.opener(), long.opener(), second.opener());
        pool.set_limit(1).unwrap();
        must_serve(&pool, second.task());
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 2);
        pool.set_limit(2).unwrap();
        second.wait_entered(1);
        second.open();
        wait_until("its end", || pool.stats().retired == 2);
        wait_until("the other two", || {
            pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len() == 2
        });
        assert_eq!(keeper().events_of("two-hooks").len(), 2);
    });
}

/// Workers that are idle as a shutdown with no time returns end by themselves: nobody is told.
#[test]
fn no_idle_worker_is_told_of() {
    timed(|| {
        let pool = named("idle-end", 2, 0, |b| {
            b.min_workers(2)
                .shutdown_on_drop(Shutdown::Cancel, Duration::ZERO)
        });
        pool.do_with_deadline(|| (), LONG).unwrap();
        wait_until("idle workers", || pool.stats().idle == 2);
        drop(pool);
        let events = keeper().events_of("idle-end");
        assert!(events.is_empty(), "{events:?}");
    });
}

/// A worker that has tasks before it is told of, also if it is between two of them as the shutdown's time is up.
#[test]
fn a_straggler_between_two_tasks_is_told_of() {
    timed(|| {
        for round in 0..cut(25) {
            let name = format!("between-{round}");
            let pool = named(&name, 1, 20_000, |b| b);
            let (first, last) = (hold(&pool, 1), Gate::new());
            let _openers = (first.opener(), last.opener());
            (0..10_000).for_each(|_| must_serve(&pool, || ()));
            must_serve(&pool, last.task());
            first.open();
            let timeout = Duration::from_micros(round % 50);
            assert_eq!(pool.shutdown(Shutdown::Drain, timeout).stragglers.len(), 1);
            keeper().event_of(&name, STRAGGLER);
        }
    });
}

/// Each straggler causes one event, however many shutdowns wait for it, on the thread that waited
/// first.
#[test]
fn a_straggler_is_told_of_once() {
    timed(|| {
        let pool = named("late", 2, 0, |b| b);
        let gate = Gate::new();
        let group = pool.labeled("stuck").group();
        must_serve_in(&group, gate.task());
        gate.wait_entered(1);
        group.cancel();
        for _ in 0..3 {
            let report = pool.shutdown(Shutdown::Drain, ms(1));
            assert_eq!(report.stragglers.len(), 1);
        }
        let event = keeper().event_of("late", STRAGGLER);
        assert_eq!(event.on, thread::current().id());
        assert_eq!(event.fields["label"], "stuck");
        assert_eq!(event.fields["slot"], "0");
        assert_eq!(event.fields["abandoned"], "true");
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(keeper().events_of("late").len(), 1);
    });
}

/// A pool without trouble causes no event. A shutdown called by a task does not wait, so it reports
/// no stragglers.
#[test]
fn a_clean_life_is_silent() {
    timed(|| {
        let pool = Arc::new(named("silent", 2, 4, |b| b));
        for n in 0..4 {
            assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
        }
        let gate = Gate::new();
        assert!(pool.do_with_deadline(gate.task(), ms(20)).is_err());
        let group = pool.group();
        must_serve_in(&group, || ());
        group.cancel();
        assert_eq!(pool.awaitable().serve(|| 1).unwrap().join().unwrap(), 1);
        gate.open();
        settle(&pool);
        let its = Arc::clone(&pool);
        let ends = move || drop(its.shutdown(Shutdown::Discard, Duration::ZERO));
        must_serve(&pool, ends);
        assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
        let events = keeper().events_of("silent");
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(keeper().kept().spans, 0);
    });
}

/// Law 7 for subscribers: their panics change no task's outcome and count as panics of hooks.
#[test]
fn law07_a_subscribers_panic_is_contained() {
    timed(|| {
        let pool = named("bomb", 1, 8, |b| b);
        let _listening = Listening::to("bomb", PANICKED, || quiet_panic("no more events"));
        for n in 0..5 {
            let caught = pool.do_with_deadline(|| quiet_panic("on purpose"), LONG);
            assert_eq!(panicked::<_, ()>(caught).message().unwrap(), "on purpose");
            assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
        }
        let s = assert_stats!(settle(&pool), completed: 5, panicked: 5, hook_panics: 5);
        assert_eq!(s.spawned, 1, "the same worker all along");
        let gate = hold(&pool, 1);
        let _listening = Listening::to("bomb", STRAGGLER, || quiet_panic("no more events"));
        assert_eq!(pool.shutdown(Shutdown::Drain, ms(1)).stragglers.len(), 1);
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(pool.stats().hook_panics, 6);
    });
}

/// A subscriber that submits to the pool of the event neither hangs nor harms the pool.
#[test]
fn a_subscriber_may_submit() {
    thread_local!(static AT_IT: Cell<bool> = const { Cell::new(false) });
    timed(|| {
        let pool = Arc::new(named("reentrant", 3, 2, |b| b.idle_timeout(ms(1))));
        let its = Arc::downgrade(&pool);
        let _listening = Listening::to("reentrant", PANICKED, move || {
            let Some(pool) = its.upgrade() else { return };
            if !AT_IT.replace(true) {
                let _ = pool.serve(|| ());
                let _ = pool.do_with_deadline(|| (), Duration::MAX);
                AT_IT.set(false);
            }
        });
        for _ in 0..rounds(300) {
            for _ in 0..4 {
                let _ = pool.serve(|| quiet_panic("an event"));
            }
            let _ = pool.do_with_deadline(|| (), LONG);
        }
        let s = assert_stats!(settle(&pool), hook_panics: 0);
        assert!(s.panicked > 0);
    });
}

/// A subscriber may submit, even if its thread was serving the line as the event occurred.
#[test]
fn a_subscriber_may_submit_when_a_thread_is_refused_in_line() {
    timed(|| {
        let impossible = |b: Builder| b.stack_size(IMPOSSIBLE_STACK);
        let pool = Arc::new(named("refused", 1, 0, impossible));
        let (its, told) = (Arc::downgrade(&pool), Tally::default());
        let tally = told.clone();
        let _listening = Listening::to("refused", NOT_STARTED, move || {
            tally.add(1);
            if tally.get() == 1 {
                assert!(its.upgrade().unwrap().serve(|| ()).is_err());
            }
        });
        let mut future = pool.awaitable().serve_async(|| ());
        assert!(poll(&mut future, Waker::noop()).is_ready());
        assert_eq!(told.get(), 2);
    });
}

/// Law 3 for subscribers: a slow subscriber delays the task of the event, but the caller leaves at
/// its deadline.
#[test]
fn law03_a_slow_subscriber_breaks_no_deadline() {
    timed(|| {
        let pool = named("slow", 1, 0, |b| b);
        pool.do_with_deadline(|| (), LONG).unwrap();
        let told = Gate::new();
        let _opener = told.opener();
        let key = told.key();
        let _listening = Listening::to("slow", PANICKED, move || key.pass());
        let slow = || quiet_panic("told slowly");
        match takes(ms(50), || pool.do_with_deadline(slow, ms(50))) {
            Err(DeadlineError::TimedOut | DeadlineError::Expired(_)) => {}
            other => panic!("{other:?}"),
        }
        told.open();
        settle(&pool);
    });
}

/// Law 19: a subscriber forks. The child asks the pool, which refuses, and exits; or it returns from the
/// subscriber, and no task of the parent runs there. The parent notices nothing.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn law19_a_subscriber_that_forks() {
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::sync::atomic::AtomicI32;
    const TASK_RAN: i32 = 77;
    let parent = std::process::id();
    let is_child = move || std::process::id() != parent;
    /// Ends a child.
    fn leave(pool: &lazypool::Pool) -> ! {
        let asks = || fork::assert_refuses(pool, &[pool.group()]);
        let outcome = catch_unwind(AssertUnwindSafe(asks));
        fork::exit(i32::from(outcome.is_err()));
    }
    let cases = product(within::EVENTS, [false, true]);
    isolated_each(cases, move |(event, returns)| {
        let pool = Arc::new(named("forks", 3, 8, |b| b));
        let (busy, fuse, ran) = (hold(&pool, 1), Gate::new(), Tally::default());
        let _openers = (busy.opener(), fuse.opener());
        let bystander = || {
            let ran = ran.clone();
            move || match is_child() {
                true => fork::exit(TASK_RAN),
                false => ran.add(1),
            }
        };
        let cause = within::arm(event, &pool, &fuse, bystander());
        // They are queued behind those two.
        within::without_threads(|| (0..3).for_each(|_| must_serve(&pool, bystander())));
        let (its, child) = (Arc::downgrade(&pool), Arc::new(AtomicI32::new(0)));
        let forked = Arc::clone(&child);
        let _listening = Listening::to("forks", within::message(event), move || {
            if forked.load(Ordering::SeqCst) == 0 {
                let id = fork::fork();
                if id == 0 && !returns {
                    leave(&its.upgrade().expect("the test has it"));
                }
                forked.store(if id == 0 { -1 } else { id }, Ordering::SeqCst);
            }
        });
        cause();
        if event == "straggler" {
            pool.shutdown(Shutdown::Drain, ms(1));
        }
        if is_child() {
            leave(&pool);
        }
        wait_until("the fork", || child.load(Ordering::SeqCst) != 0);
        assert_eq!(fork::code_of(child.load(Ordering::SeqCst)), 0);
        busy.open();
        fuse.open();
        let s = at_rest(&pool);
        let tasks = 3 + u64::from(event.starts_with("refused"));
        assert_eq!(
            (ran.get(), s.accepted, s.hook_panics),
            (tasks, 2 + tasks, 0)
        );
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}
