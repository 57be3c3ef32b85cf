//! Tests with a thread that holds a lock, as if the OS had stopped it.

use super::*;
use crate::parts::slot::Sleeper;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Waits until the condition holds, for at most ten seconds. Returns `true` if it does.
fn within_seconds(is_reached: impl Fn() -> bool) -> bool {
    let start = now();
    while !is_reached() {
        if now() - start > Duration::from_secs(10) {
            return false;
        }
        thread::yield_now();
    }
    true
}

/// Serves a task that waits, and waits until it runs. Returns its worker's slot, and the way to let it end.
pub(super) fn occupy(group: &Group) -> (usize, mpsc::Sender<()>) {
    let ((open, gate), (tell, told)) = (mpsc::channel(), mpsc::channel());
    let waits = move || {
        tell.send(task::slot()).expect("a test");
        gate.recv().unwrap_or_default()
    };
    group.serve(waits).expect("space");
    let slot = told.recv().expect("it runs").expect("on a worker");
    (slot, open)
}

/// A thread pushes a task in reliance on the start of a worker, whose hook then does not return. A worker that
/// has become idle meanwhile runs the task.
#[test]
fn a_start_with_a_hook_has_idle_workers_look_again() {
    let (hook, open) = waits_on(1);
    let builder = Builder::new().max_workers(2).queue_capacity(4);
    let core = &pool(builder.on_worker_start(hook));
    assert!(serves(core, || ()));
    let is_at_rest = || {
        let inside = core.reading();
        core.slots[0].load().is_idle() && (inside.awake, inside.notified) == (0, 0)
    };
    until(is_at_rest);
    thread::scope(|s| {
        let stopped = core.host.registry.lock();
        s.spawn(|| core.start_worker().expect("a thread"));
        until(|| core.reading().notified == 1);
        // The other worker has become idle between the submission's look and this push.
        let (tell, told) = mpsc::channel();
        push_only(core, move || tell.send(()).expect("a test"));
        drop(stopped);
        let told = told.recv_timeout(Duration::from_secs(10));
        drop(open);
        assert_eq!(told, Ok(()));
    });
    end(core);
}

/// Law 5: a caller's task is queued, and its idle worker has been claimed and not yet told. A thread that raises the limit starts no
/// other worker for that task.
#[test]
fn law05_a_raised_limit_starts_no_thread_beside_a_worker_that_is_being_told() {
    let builder = Builder::new().max_workers(3).queue_capacity(4);
    let core = &pool(builder.on_worker_start(|_| ()));
    core.set_limit(2);
    assert!(serves(core, || ()));
    until(|| core.slots[0].load().is_idle() && core.reading().awake == 0);
    let notice = core.in_flight.notify();
    let claim = core.slots[0].claim_idle().expect("it is idle");
    push_only(core, || ());
    thread::scope(|s| _ = s.spawn(|| core.set_limit(3)));
    assert_eq!(core.stats().spawned, 1);
    claim.notify(notice);
    until(|| core.stats().completed == 2);
    end(core);
}

/// A worker that asks whether it has to end does not count as awake meanwhile: the thread that holds the
/// registry's lock may have been stopped.
#[test]
fn a_worker_that_asks_whether_it_has_to_end_is_not_counted() {
    let core = &pool(Builder::new().max_workers(1).queue_capacity(4));
    assert!(serves(core, || ()));
    until(|| core.slots[0].load().is_idle());
    let mut stopped = core.host.registry.lock();
    core.env.set_surplus(true, &mut stopped.key);
    let (tell, told) = mpsc::channel();
    assert!(serves_apart(core, move || tell.send(()).expect("a test")));
    let is_left = || {
        let inside = core.reading();
        let searches = core.slots[0].load().state() == State::Paying;
        searches && (inside.awake, inside.notified) == (0, 0)
    };
    let is_uncounted = within_seconds(is_left);
    core.env.set_surplus(false, &mut stopped.key);
    drop(stopped);
    assert!(is_uncounted);
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(()));
    end(core);
}

/// Law 20: a worker releases the caller of a finished task without waiting for another thread.
#[test]
fn a_caller_is_released_while_another_thread_holds_the_lines_lock() {
    let core = &pool(Builder::new().max_workers(1).when_full(WhenFull::Block));
    // A first call starts the worker. A thread that starts a worker also serves the line. If a
    // later call started the worker, it would wait for the line's lock, which is held below.
    call(core, || ()).expect("a worker");
    let (open, gate) = mpsc::channel();
    let (done, released) = mpsc::channel();
    thread::scope(|s| {
        s.spawn(move || {
            let outcome = call(core, move || gate.recv());
            done.send(outcome.is_ok())
        });
        until(|| core.stats().running != 0);
        s.spawn(move || {
            assert!(serves(core, || ()));
        });
        until(|| core.host.line.waiting() != 0);
        let stopped = core.host.line.hold();
        open.send(()).expect("it waits");
        let released = released.recv_timeout(Duration::from_secs(10));
        drop(stopped);
        assert_eq!(released, Ok(true));
    });
    end(core);
}

/// Law 20: a caller is also released if its worker is surplus, and another thread holds the
/// registry's lock to start, end or count workers.
#[test]
fn a_caller_of_a_surplus_worker_is_released_while_the_registry_is_locked() {
    for queue in [0, 4] {
        let core = &pool(Builder::new().max_workers(2).queue_capacity(queue));
        let (done, released) = mpsc::channel();
        thread::scope(|s| {
            let gates = [(); 2].map(|()| {
                let (open, gate) = mpsc::channel::<()>();
                let done = done.clone();
                s.spawn(move || {
                    let outcome = call(core, move || gate.recv());
                    done.send(outcome.is_ok())
                });
                open
            });
            until(|| core.stats().running >= 2);
            core.set_limit(1);
            let stopped = core.host.registry.lock();
            gates
                .iter()
                .for_each(|open| open.send(()).expect("it waits"));
            let released = [(); 2].map(|()| released.recv_timeout(Duration::from_secs(10)));
            drop(stopped);
            assert_eq!(released, [Ok(true); 2], "queue of {queue}");
        });
        until(|| core.stats().workers <= 1);
        end(core);
    }
}

/// Laws 5 and 20: a worker that needs a lock holds up no task of others while another thread has that lock
/// and is stopped. It pays as soon as the lock is free.
#[test]
fn a_worker_that_waits_for_a_lock_has_the_queue_looked_at() {
    for of_line in [true, false] {
        let builder = Builder::new().max_workers(2).min_workers(2);
        let pool = builder.queue_capacity(4).build().expect("a pool");
        for _ in 0..cut(500) {
            a_task_runs_beside_a_lock(&pool, of_line);
        }
        end(pool.core());
    }
}

fn a_task_runs_beside_a_lock(pool: &Pool, of_line: bool) {
    let core = pool.core();
    let group = pool.limited_group(1);
    let (slot, open) = occupy(&group);
    let its = &core.slots[slot];
    let mut in_line = pin!(group.awaitable().serve_async(|| ()));
    if of_line {
        assert!(poll_once(in_line.as_mut()).is_pending());
    }
    // At its task's end the worker passes a permit in line, or takes the last task out of a group for which
    // a thread waits.
    assert!(of_line || group.wait_timeout(Duration::from_nanos(1)).is_err());
    let locks = (
        of_line.then(|| core.host.line.hold()),
        (!of_line).then(|| group.members().hold()),
    );
    open.send(()).expect("it waits");
    until(|| its.load().state() == State::Paying);
    let (tell, told) = mpsc::channel();
    assert!(serves_apart(core, move || tell.send(()).expect("a test")));
    let ran = told.recv_timeout(Duration::from_secs(10));
    drop(locks);
    let is_passed = within_seconds(|| core.stats().waiting == 0);
    assert!(is_passed, "the lock is free");
    assert_eq!(ran, Ok(()), "the other worker is idle");
    if of_line {
        until(|| poll_once(in_line.as_mut()).is_ready());
    }
    group.wait();
    until(|| core.stats().idle == 2);
}

/// Law 20: a worker was claimed, and its claimer is stopped. A task relies on that worker, and the lock that a look
/// for another one needs is held for a while. The worker looks again once the lock is free.
#[test]
fn a_claimed_worker_looks_again_once_a_lock_is_free() {
    // The worker may leave the count too early. Then no task relies on it.
    let mut seen = 0..cut(10);
    while !seen.is_empty() {
        let core = &pool(Builder::new().max_workers(2).queue_capacity(4));
        assert!(serves(core, || ()));
        let mut claim = None;
        until(|| {
            claim = core.slots[0].claim_last_used(0, true);
            claim.is_some()
        });
        let stopped = core.host.registry.lock();
        let (tell, told) = mpsc::channel();
        push_only(core, move || tell.send(()).expect("a test"));
        let is_relied_on = core.reading().awake == 1;
        until(|| core.reading().awake == 0);
        // So that the worker has tried.
        thread::sleep(Duration::from_millis(5));
        drop(stopped);
        let ran = !is_relied_on || told.recv_timeout(Duration::from_secs(10)).is_ok();
        notify(core, claim.expect("claimed"));
        assert!(ran, "a slot is free");
        end(core);
        if is_relied_on {
            seen.next();
        }
    }
}

/// A debt whose lock another thread holds keeps back no debt that needs another lock.
#[test]
fn a_permit_is_passed_while_a_group_is_locked() {
    let builder = Builder::new().max_workers(1).queue_capacity(0);
    let pool = builder.build().expect("a pool");
    let group = pool.group();
    let (_, open) = occupy(&group);
    // The end of the task owes a leave of the group, and the pass of its permit.
    assert!(group.wait_timeout(Duration::from_nanos(1)).is_err());
    let mut in_line = pin!(pool.awaitable().serve_async(|| ()));
    assert!(poll_once(in_line.as_mut()).is_pending());
    let locked = group.members().hold();
    open.send(()).expect("it waits");
    let is_passed = within_seconds(|| pool.core().stats().waiting == 0);
    drop(locked);
    assert!(is_passed, "the permit is free");
    group.wait();
    until(|| poll_once(in_line.as_mut()).is_ready());
    end(pool.core());
}

/// A worker whose task has ended passes a permit, and so waits for a lock. A reading says what it pays.
#[test]
fn a_reading_says_what_a_worker_pays_that_waits_for_a_lock() {
    let builder = Builder::new().max_workers(2).queue_capacity(0);
    let pool = builder.build().expect("a pool");
    let group = pool.limited_group(1);
    let (slot, open) = occupy(&group);
    let mut in_line = pin!(group.awaitable().serve_async(|| ()));
    assert!(poll_once(in_line.as_mut()).is_pending());
    // The next task of the group needs a thread, and the start of one needs this lock.
    let locked = pool.core().host.registry.lock();
    open.send(()).expect("it waits");
    let passes = || {
        let inside = pool.core().reading().slots.remove(&slot);
        inside.is_some_and(|inside| format!("{inside:?}").ends_with(r#" pays {"passes"}"#))
    };
    let is_said = within_seconds(passes);
    drop(locked);
    assert!(is_said);
    until(|| poll_once(in_line.as_mut()).is_ready());
    end(pool.core());
}

/// A caller waits for the lock of its group's list, while its task runs. The task learns its deadline.
#[test]
fn a_task_learns_its_deadline_while_its_caller_waits_for_a_lock() {
    let builder = Builder::new().max_workers(1).queue_capacity(4);
    let pool = builder.build().expect("a pool");
    let group = pool.group();
    let (_, open) = occupy(&group);
    let ((held, is_held), (let_go, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let (tell, told) = mpsc::channel();
    thread::scope(|s| {
        s.spawn(|| {
            let (gate, mut has_held) = (gate, false);
            while !has_held {
                // Called under the lock, once the list is full.
                group.members().note(0, || {
                    has_held = true;
                    held.send(()).expect("a test");
                    gate.recv().unwrap_or_default();
                    0
                });
            }
        });
        is_held.recv().expect("it has the lock");
        let asks = move || tell.send(task::deadline()).expect("a test");
        s.spawn(|| {
            group
                .do_with_deadline(asks, Duration::from_secs(60))
                .is_ok()
        });
        until(|| pool.core().stats().queued == 1);
        drop(open);
        let asked = told.recv_timeout(Duration::from_secs(10));
        drop(let_go);
        assert!(asked.expect("an answer").is_some());
    });
    end(pool.core());
}

/// Law 4: a worker that was told to end, and has to wait for a lock first, has an idle one end.
#[test]
fn law04_an_idle_worker_ends_for_one_that_waits_for_a_lock() {
    for _ in 0..cut(100) {
        let builder = Builder::new().max_workers(2).min_workers(2);
        let pool = builder.build().expect("a pool");
        let core = pool.core();
        until(|| core.stats().idle == 2);
        let group = pool.group();
        let (slot, open) = occupy(&group);
        assert!(group.wait_timeout(Duration::from_nanos(1)).is_err());
        let locked = group.members().hold();
        open.send(()).expect("it waits");
        // It is idle for a moment, in which it tries to lock. It may be told to end then.
        until(|| core.slots[slot].load().state() != State::Busy);
        thread::scope(|s| _ = s.spawn(|| core.set_limit(1)));
        let is_within = within_seconds(|| core.stats().workers <= 1);
        drop(locked);
        assert!(is_within, "the limit");
        group.wait();
        end(core);
    }
}

/// Debug builds and models assert that a thread holds no lock, no cell, no notice and no slot as it pays, and that it waits for no lock
/// with a cell in hand.
#[test]
#[cfg(debug_assertions)]
fn a_thread_that_holds_a_lock_a_cell_or_a_slot_does_not_pay() {
    let core = &pool(Builder::new().max_workers(1));
    assert!(serves(core, || ()));
    until(|| core.slots[0].load().is_idle());
    let panics_with = |owe: fn(&mut Owed)| {
        let mut owed = Owed::default();
        owe(&mut owed);
        let paid = catch_unwind(AssertUnwindSafe(|| core.pay(&mut owed)));
        drop(owed.take_calls());
        paid.is_err()
    };
    let calls = |owed: &mut Owed| owed.calls().drop_captured(Box::new(()));
    let panics = || panics_with(Owed::look) && panics_with(calls);
    let claim = core.slots[0].claim_idle().expect("it is idle");
    assert!(panics(), "it holds a slot");
    let notice = core.in_flight.notify();
    assert!(panics(), "it holds a notice");
    core.in_flight.forgo(notice);
    assert!(serves(core, || ()), "it is queued");
    let (oldest, mut freed) = (core.queue.oldest().0, Freed::default());
    claim.notify({
        let waits = || catch_unwind(AssertUnwindSafe(|| drop(core.host.registry.lock()))).is_err();
        let kept = core.queue.take_if(oldest, &mut freed, |_| {
            assert!(panics() && waits(), "it holds a cell");
            false
        });
        assert!(kept.is_none() && freed.is_empty());
        core.in_flight.notify()
    });
    let locked = core.host.registry.lock();
    assert!(panics(), "it holds a lock");
    drop(locked);
    end(core);
}

/// A worker that is about to sleep sweeps instead, or tries to, if a sweep is due. It does not take that for a short sleep,
/// after which it would spin for longer.
#[test]
fn an_idle_worker_that_sweeps_has_not_slept() {
    const LONG: Duration = Duration::from_secs(3_600);
    let core = &pool(Builder::new().max_workers(1).idle_timeout(LONG));
    assert_eq!(core.time_to_sleep(), Some(Duration::MAX), "no worker");
    assert!(serves(core, || ()));
    let is_due = || core.host.sweep_at.store(1, Ordering::Relaxed);
    let next = || core.time_to_sleep().expect("no sweep is due");
    until(|| core.slots[0].load().is_parked());
    is_due();
    let locked = core.host.registry.lock();
    assert_eq!(core.time_to_sleep(), None, "the lock is held");
    assert!((Duration::from_secs(1)..LONG / 16).contains(&next()));
    drop(locked);
    is_due();
    assert_eq!(core.time_to_sleep(), None, "it has swept");
    assert!((LONG / 4..LONG).contains(&next()));
    assert_eq!(core.slots[0].load().state(), State::Idle);
    end(core);
}

/// Workers sleep, and are told to end under the lock of the registry. They are woken up when it is free.
#[test]
fn workers_are_told_to_end_with_the_lock_free() {
    let core = &pool(Builder::new().max_workers(3).idle_timeout(Duration::MAX));
    assert!((0..3).all(|_| core.start_worker().is_ok()));
    let sleeping = || core.slots.iter().filter(|slot| slot.record.sleeps());
    until(|| sleeping().count() == 3);
    // Each of these panics in a debug build if it wakes a worker up under the lock.
    core.set_limit(2);
    until(|| core.stats().workers == 2);
    until(|| sleeping().count() == 2);
    let sleeper = || {
        let registry = core.registry();
        let thread = registry.workers.iter().flatten().next();
        Sleeper::of(thread.expect("a worker").handle.thread())
    };
    let under_the_lock = || {
        let sleeper = sleeper();
        let _registry = core.registry();
        sleeper.unpark();
    };
    let panicked = catch_unwind(AssertUnwindSafe(under_the_lock)).is_err();
    assert_eq!(panicked, cfg!(debug_assertions));
    sleeper().unpark();
    end(core);
}
