//! Laws 1, 4, 6, 10 and 20: what goes on while the OS takes long to start a thread.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

mod common;
#[path = "common/shortage.rs"]
mod shortage;

use std::sync::{mpsc, Arc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use common::*;
use lazypool::{Pool, Refused, Shutdown, WhenFull};
use shortage::Shortage;

/// Raises the pool's limit on another thread. Each start of a thread by this call waits at the
/// gate.
fn raise_slowly(pool: &Arc<Pool>, limit: usize, system: &Gate) -> thread::JoinHandle<()> {
    let key = system.key();
    beside(pool, move |pool| {
        let _slow = Shortage::when(move || {
            key.pass();
            false
        });
        pool.set_limit(limit).unwrap();
    })
}

/// Laws 1 and 14: a waker that a worker of one pool calls submits to another pool. That pool has
/// space for the task, so it is accepted, although it may have to wait for a thread's start there.
#[test]
fn law01_law21_a_waker_of_one_pool_submits_to_another() {
    timed_each([WhenFull::Refuse, WhenFull::Block], |policy| {
        let (own, other) = (pool(1, 0), Arc::new(pool(2, 1)));
        let (gate, system) = (Gate::new(), Gate::new());
        other.set_limit(1).unwrap();
        occupy(&other, &gate, 1);
        must_serve(&other, || ());
        let raises = raise_slowly(&other, 2, &system);
        system.wait_entered(1);

        let (its, (tell, told)) = (Arc::clone(&other), mpsc::channel());
        let waker = calling(move || {
            let served = its.when_full(policy).serve(|| ());
            tell.send(served.map_err(Refused::without_closure)).unwrap();
        });
        let start = Gate::new();
        let handle = await_then(own.awaitable(), &start, || ());
        let handle = pending(handle, &waker);
        start.open();
        let early = told.recv_timeout(ms(100));
        system.open();
        raises.join().unwrap();
        let served = early.unwrap_or_else(|_| arrives("the waker's answer", &told));
        assert!(served.is_ok(), "{served:?}");
        handle.join().unwrap();
        gate.open();
        assert_stats!(settle(&other), completed: 3, refused: 0);
    });
}

/// Laws 1 and 20: while the thread for a task in line is being started, a submission that must not
/// wait is accepted or refused at once. There is another free slot; and if the task in line still
/// waits, so do others.
#[test]
fn law01_law20_refuse_does_not_wait_for_a_thread_start_of_the_line() {
    timed_each([false, true], |is_call| {
        let pool = Arc::new(pool(3, 0));
        let (gate, system) = (Gate::new(), Gate::new());
        pool.set_limit(1).unwrap();
        occupy(&pool, &gate, 1);
        let future = pending(pool.awaitable().serve_async(|| ()), Waker::noop());
        let _open = (system.opener(), gate.opener());
        let raises = raise_slowly(&pool, 3, &system);
        system.wait_entered(1);

        let its = Arc::clone(&pool);
        let accepted = returns("an answer", move || match is_call {
            false => its.serve(|| ()).is_ok(),
            true => its.do_with_deadline(|| (), Duration::MAX).is_ok(),
        });
        assert!(!system.is_open());
        system.open();
        raises.join().unwrap();
        gate.open();
        block_on(future).expect("space").join().unwrap();
        assert_stats!(settle(&pool), completed: 2 + u64::from(accepted));
    });
}

/// The number of workers that become free while another one is being started, and of the further
/// tasks in line.
const FREE: usize = 8;

/// Makes a pool whose workers are all busy, and lets futures wait in line. Raises the limit by one
/// on another thread, which starts a thread for the first task in line. Frees all other workers
/// while the OS takes long to do so. Calls `meanwhile`; then lets the OS start the thread. Returns
/// how often that call called the wakers of the futures.
fn raise_beside_a_line(meanwhile: impl FnOnce(&Tally)) -> usize {
    let pool = Arc::new(pool(FREE + 1, 0));
    let (gate, system) = (Gate::new(), Gate::new());
    pool.set_limit(FREE).unwrap();
    occupy(&pool, &gate, FREE);
    let (ran, (tell, told)) = (Tally::default(), mpsc::channel());
    let waker = calling(move || tell.send(thread::current().id()).unwrap());
    let futures: Vec<_> = (0..=FREE)
        .map(|_| pending(pool.awaitable().serve_async(ran.task()), &waker))
        .collect();
    let _open = (system.opener(), gate.opener());
    let raises = raise_slowly(&pool, FREE + 1, &system);
    system.wait_entered(1);
    gate.open();
    wait_until("the workers to be free", || {
        pool.stats().completed >= FREE as u64
    });
    meanwhile(&ran);
    system.open();
    let raiser = raises.thread().id();
    raises.join().unwrap();
    for future in futures {
        block_on(future).expect("space").join().unwrap();
    }
    assert_stats!(settle(&pool), completed: 2 * FREE as u64 + 1, refused: 0);
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    told.try_iter().filter(|by| *by == raiser).count()
}

/// Law 20: a worker that becomes free runs a task in line, although the thread for the one before
/// is still being started.
#[test]
fn law20_a_slow_start_holds_up_only_the_task_it_is_for() {
    timed(|| {
        raise_beside_a_line(|ran| {
            wait_until("the tasks behind the first", || ran.get() == FREE as u64);
        });
    });
}

/// Law 20: a call serves no more of the line than it has made space for: here, for one task. The
/// workers that become free meanwhile serve the others.
#[test]
fn law20_a_call_serves_no_more_than_it_has_freed() {
    timed(|| {
        let served = raise_beside_a_line(|_| ());
        assert!(served <= 1, "{served} tasks of the line, with one slot");
    });
}

/// Serves a task that waits at a gate, on another thread. The OS is slow to start the thread for it, and
/// then does so, or refuses it.
fn serve_slowly(
    pool: &Arc<Pool>,
    hangs: &Gate,
    system: &Gate,
    refuses: bool,
) -> thread::JoinHandle<bool> {
    let (key, task) = (system.key(), hangs.task());
    beside(pool, move |pool| {
        let _slow = Shortage::when(move || {
            key.pass();
            refuses
        });
        pool.serve(task).is_ok()
    })
}

/// Laws 4 and 10: a worker becomes idle while another one is being started, in a pool that is being shut
/// down, or whose limit was lowered. It ends as that one is there.
#[test]
fn law04_law10_an_idle_worker_ends_for_one_that_was_being_started() {
    timed_each([false, true], |is_shut_down| {
        let pool = Arc::new(pool_with(2, 0, |b| b.idle_timeout(Duration::MAX)));
        let (gate, hangs, system) = (Gate::new(), Gate::new(), Gate::new());
        occupy(&pool, &gate, 1);
        let _open = (system.opener(), gate.opener(), hangs.opener());
        let served = serve_slowly(&pool, &hangs, &system, false);
        system.wait_entered(1);
        if is_shut_down {
            let report = pool.shutdown(Shutdown::Drain, Duration::ZERO);
            assert!(!report.is_clean());
        } else {
            pool.set_limit(1).unwrap();
        }
        gate.open();
        wait_until("the first worker to be idle", || pool.stats().idle == 1);
        system.open();
        assert!(served.join().unwrap());
        hangs.wait_entered(1);
        wait_until("the idle worker to end", || pool.stats().workers == 1);
        hangs.open();
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    });
}

/// Law 6: the limit is lowered to the smallest number of workers while one more is being started, which
/// the OS then refuses. None of the others ends for it.
#[test]
fn law06_no_worker_ends_for_one_that_the_system_refuses() {
    timed(|| {
        let pool = Arc::new(pool_with(3, 0, |b| b.min_workers(2)));
        let (gate, hangs, system) = (Gate::new(), Gate::new(), Gate::new());
        occupy(&pool, &gate, 2);
        let _open = (system.opener(), gate.opener(), hangs.opener());
        let served = serve_slowly(&pool, &hangs, &system, true);
        system.wait_entered(1);
        gate.open();
        wait_until("both workers to be idle", || pool.stats().idle == 2);
        pool.set_limit(2).unwrap();
        hangs.open();
        system.open();
        assert!(served.join().unwrap(), "an idle worker takes the task");
        assert_eq!(settle(&pool).workers, 2);
    });
}

/// Law 4: a worker is being started for the queue as the limit is lowered, and then is in its start hook. It ends after that. The
/// idle worker stays, and takes the next task.
#[test]
fn law04_no_idle_worker_ends_for_one_in_its_start_hook() {
    timed(|| {
        let (gate, hook, system) = (Gate::new(), Gate::new(), Gate::new());
        let key = hook.key();
        let pool = Arc::new(pool_with(2, 4, |b| {
            b.idle_timeout(Duration::MAX).on_worker_start(move |slot| {
                if slot == 1 {
                    key.pass();
                }
            })
        }));
        pool.set_limit(1).unwrap();
        occupy(&pool, &gate, 1);
        must_serve(&pool, || ());
        let _open = (system.opener(), gate.opener(), hook.opener());
        let raises = raise_slowly(&pool, 2, &system);
        system.wait_entered(1);
        pool.set_limit(1).unwrap();
        gate.open();
        wait_until("both tasks to end", || pool.stats().completed == 2);
        system.open();
        raises.join().unwrap();
        hook.wait_entered(1);
        let (tell, told) = mpsc::channel();
        must_serve(&pool, move || tell.send(()).unwrap());
        arrives("the next task", &told);
        hook.open();
        await_workers(&pool, 1);
        assert_eq!(settle(&pool).workers, 1);
    });
}

/// Law 4: a surplus worker takes no task that came after the limit was lowered. Between two tasks it was starting a
/// thread for a task that waited in the line of its group.
#[test]
fn law04_a_surplus_worker_takes_no_task_that_came_during_a_start() {
    timed(|| {
        let (first, long, system) = (Gate::new(), Gate::new(), Gate::new());
        let pool = Arc::new(pool(3, 8));
        let group = pool.limited_group(1);
        let _openers = (first.opener(), long.opener(), system.opener());
        let (its, in_start) = (first.key(), system.key());
        must_serve_in(&group, move || {
            // The next start of a thread by this worker takes long, and is refused.
            std::mem::forget(Shortage::when(move || {
                in_start.pass();
                true
            }));
            its.pass();
        });
        first.wait_entered(1);
        occupy(&pool, &long, 1);
        let shortage = Shortage::total();
        let queued = must_await(pool.awaitable(), || ());
        drop(shortage);
        // A thread, so that no waker is owed.
        let in_line = thread::spawn(move || group.when_full(WhenFull::Block).serve(|| ()).is_ok());
        wait_in_line(&pool, 1);
        first.open();
        system.wait_entered(1);
        pool.set_limit(1).unwrap();
        queued.cancel();
        must_serve(&pool, || ());
        system.open();
        await_workers(&pool, 1);
        assert_stats!(pool.stats(), completed: 1, running: 1);
        long.open();
        assert!(in_line.join().unwrap());
        assert_stats!(settle(&pool), completed: 4, discarded: 1);
    });
}

/// Law 13: a limit that is raised beside queued tasks asks for one thread if the OS gives none.
#[test]
fn law13_a_raised_limit_asks_for_one_thread_if_that_is_refused() {
    timed(|| {
        let pool = pool_with(64, 16, |b| b.on_worker_start(|_| ()));
        pool.set_limit(1).unwrap();
        let gate = hold(&pool, 1);
        (0..5).for_each(|_| must_serve(&pool, || ()));
        let shortage = Shortage::total();
        pool.set_limit(64).unwrap();
        drop(shortage);
        assert_eq!(pool.stats().spawn_failures, 1);
        gate.open();
        assert_eq!(settle(&pool).completed, 6);
    });
}
