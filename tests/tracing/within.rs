//! What a subscriber may do within an event, beside code that only looks: it shuts its pool down, drops the pool's last
//! handle, waits for another pool, or does not return.

use std::sync::{mpsc, Arc};
use std::time::Duration;

use crate::common::*;
use crate::keeper::*;
use crate::last_handle::{Last, Scene, QUEUED};
use crate::shortage::Shortage;
use lazypool::{Pool, Shutdown};

/// The events, and the places where they occur: on a worker, on the thread that submits, on a worker that submits, on a
/// thread in `shutdown`.
pub(crate) const EVENTS: [&str; 4] = ["panic", "refused", "refused on a worker", "straggler"];
/// Those during which a pool's last handle may be dropped: a straggler is told of by a thread that borrows the pool.
const OF_OWNERS: [&str; 3] = ["panic", "refused", "refused on a worker"];

pub(crate) fn message(event: &str) -> &'static str {
    match event {
        "panic" => PANICKED,
        "straggler" => STRAGGLER,
        _ => NOT_STARTED,
    }
}

/// Calls `f` while the system refuses this thread every new thread.
pub(crate) fn without_threads<T>(f: impl FnOnce() -> T) -> T {
    let _shortage = Shortage::total();
    f()
}

/// Occupies a worker with a task that waits for the fuse. Returns code that causes the event: it opens the fuse, or serves
/// `task`, for which the system refuses a thread. It leaves a straggler to the caller.
///
/// For a subscriber, threads can be started again.
pub(crate) fn arm<'a>(
    event: &str,
    pool: &Pool,
    fuse: &'a Gate,
    task: impl FnOnce() + Send + 'static,
) -> Box<dyn FnOnce() + 'a> {
    let group = pool.group();
    let refused = move || {
        let mut is_first = true;
        let _shortage = Shortage::when(move || std::mem::take(&mut is_first));
        must_serve_in(&group, task);
    };
    match event {
        "panic" => occupy_then(pool, fuse, || quiet_panic("on purpose")),
        "refused on a worker" => occupy_then(pool, fuse, refused),
        "refused" => {
            occupy(pool, fuse, 1);
            return Box::new(refused);
        }
        _ => {
            occupy(pool, fuse, 1);
            return Box::new(|| ());
        }
    }
    Box::new(|| fuse.open())
}

/// Makes a scene with a pool of that name: two of three workers are occupied, and tasks are queued, because the system has
/// refused the third thread. Returns what causes the event, with the ledger's last task.
fn set<'a>(
    event: &str,
    (name, mode, last): (&str, Shutdown, &Last),
    fuse: &'a Gate,
) -> (Pool, Scene, Box<dyn FnOnce() + 'a>) {
    keeper();
    let of_hook = last.clone();
    let builder = builder(3, 2 * QUEUED).thread_name(name);
    let builder = builder.on_panic(move |_| _ = &of_hook);
    let serves = usize::from(event.starts_with("refused"));
    let (pool, scene) = Scene::new(builder, mode, last, serves);
    let task = (serves > 0).then(|| scene.ledger.entry(QUEUED));
    let cause = arm(event, &pool, fuse, move || task.iter().for_each(Entry::run));
    without_threads(|| scene.queue(&pool));
    (pool, scene, cause)
}

/// Law 10: a shutdown returns at once within a subscriber that is told of a panic or of a refused thread. Its report has the
/// workers that are still there.
#[test]
fn law10_a_shutdown_in_a_subscriber_returns_at_once() {
    timed_each(product(OF_OWNERS, MODES), |(event, mode)| {
        let fuse = Gate::new();
        let (pool, scene, cause) = set(event, ("shut", mode, &Last::default()), &fuse);
        let _opener = fuse.opener();
        let pool = Arc::new(pool);
        let (its, (tell, told)) = (Arc::clone(&pool), mpsc::channel());
        let listening = Listening::to("shut", message(event), move || {
            let report = its.shutdown(mode, Duration::MAX);
            tell.send((report, its.is_closed())).unwrap();
        });
        cause();
        let (report, is_closed) = arrives("the report", &told);
        drop(listening);
        assert!(is_closed && !report.is_clean() && !scene.busy.is_open());
        let mut slots: Vec<_> = report.stragglers.iter().map(|w| w.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1], "{report:?}");
        let queued = scene.ledger.tasks() as u64;
        let discards = mode != Shutdown::Drain;
        assert_eq!(report.discarded, if discards { queued } else { 0 });
        assert_eq!(reason(pool.serve(|| ())), "closed");
        fuse.open();
        scene.all_end(mode, false);
        assert!(pool.shutdown(mode, LIMIT).is_clean());
        let panics = usize::from(event == "panic") as u64;
        assert_stats!(check_at_rest(&pool), panicked: panics, hook_panics: 0);
    });
}

/// Laws 2 and 10: so does the drop of the pool's last handle. No task is lost by it.
#[test]
fn law10_a_pool_dropped_in_a_subscriber_does_not_wait() {
    timed_each(product(OF_OWNERS, MODES), |(event, mode)| {
        let (fuse, last) = (Gate::new(), Last::default());
        let (pool, scene, cause) = set(event, ("dropped", mode, &last), &fuse);
        let _opener = fuse.opener();
        let listening = Listening::to("dropped", message(event), move || last.drop_pool());
        scene.leave(pool);
        cause();
        scene.was_dropped();
        drop(listening);
        fuse.open();
        scene.all_end(mode, false);
        if scene.ledger.tasks() > QUEUED {
            let drains = u32::from(mode == Shutdown::Drain);
            assert_eq!(scene.ledger.runs(QUEUED), drains);
        }
        scene.must_be_freed();
    });
}

/// Law 10: within a subscriber that is told of a straggler, a shutdown waits as it does anywhere.
#[test]
fn law10_a_shutdown_in_a_subscriber_of_a_straggler_waits() {
    timed(|| {
        let pool = Arc::new(named("again", 1, QUEUED, |b| b));
        let (gate, ledger) = (Arc::new(hold(&pool, 1)), Ledger::new(QUEUED));
        let _opener = gate.opener();
        (0..QUEUED).for_each(|id| must_serve(&pool, ledger.task(id)));
        let (its, (tell, told)) = (Arc::clone(&pool), mpsc::channel());
        let opens = Arc::clone(&gate);
        let _listening = Listening::to("again", STRAGGLER, move || {
            let early = takes(ms(20), || its.shutdown(Shutdown::Drain, ms(20)));
            opens.open();
            let late = its.shutdown(Shutdown::Drain, Duration::MAX);
            tell.send((early.stragglers.len(), late.is_clean()))
                .unwrap();
        });
        let report = pool.shutdown(Shutdown::Drain, ms(1));
        assert_eq!(report.stragglers.len(), 1, "as its time was up");
        assert_eq!(told.try_recv(), Ok((1, true)));
        ledger.assert_all_ran();
        assert_stats!(check_at_rest(&pool), hook_panics: 0);
        keeper().event_of("again", STRAGGLER);
    });
}

/// Law 10: within any subscriber, calls of another pool wait as they do anywhere, and so do its shutdown and its drop.
#[test]
fn law10_a_subscriber_waits_for_another_pool() {
    timed_each(EVENTS, |event| {
        let (fuse, mode) = (Gate::new(), Shutdown::Drain);
        let (own, scene, cause) = set(event, ("waits", mode, &Last::default()), &fuse);
        let _opener = fuse.opener();
        let (tell, told) = mpsc::channel();
        let listening = Listening::to("waits", message(event), move || {
            let (other, ledger) = (pool(1, 2), Ledger::new(3));
            let value = other.do_with_deadline(|| 7, LONG).ok();
            let handle = must_await(other.awaitable(), || 8);
            let group = other.group();
            must_serve_in(&group, ledger.task(0));
            group.wait();
            let joined = handle.join().ok();
            must_serve(&other, ledger.task(1));
            let is_clean = other.shutdown(mode, Duration::MAX).is_clean();
            let dropped = pool(1, 0);
            must_serve(&dropped, ledger.task(2));
            drop(dropped);
            ledger.assert_all_ran();
            // Two workers may be stragglers.
            let _ = tell.send((value, joined, is_clean));
        });
        cause();
        if event == "straggler" {
            assert_eq!(own.shutdown(mode, ms(1)).stragglers.len(), 2);
        }
        let seen = arrives("the other pool", &told);
        assert_eq!(seen, (Some(7), Some(8), true));
        drop(listening);
        fuse.open();
        scene.all_end(mode, false);
        assert!(own.shutdown(mode, LIMIT).is_clean());
        assert_stats!(check_at_rest(&own), hook_panics: 0);
    });
}

/// Laws 1, 13 and 20: a subscriber that is told of a refused thread, and does not return, holds up only the thread that it
/// is called on. Others have all other places, start threads, and end the pool.
#[test]
fn law20_a_subscriber_of_a_refused_thread_that_does_not_return_holds_up_no_other() {
    timed_each(["idle pool", "busy pool", "worker"], |on| {
        let pool = Arc::new(named("stuck", 2, 2, |b| b));
        let (told, ledger) = (Gate::new(), Ledger::new(1));
        let _opener = told.opener();
        let key = told.key();
        let listening = Listening::to("stuck", NOT_STARTED, move || key.pass());
        let busy = (on == "busy pool").then(|| hold(&pool, 1));
        let (task, (tell, outcome)) = (ledger.task(0), mpsc::channel());
        let submits = move |pool: &Pool| {
            let served = without_threads(|| pool.serve(task));
            tell.send(served.map_or_else(|r| r.reason().as_str(), |()| "accepted"))
                .unwrap();
        };
        if on == "worker" {
            let own = Arc::downgrade(&pool);
            must_serve(&pool, move || submits(&own.upgrade().unwrap()));
        } else {
            drop(beside(&pool, submits));
        }
        told.wait_entered(1);
        drop(busy);
        let stuck = usize::from(on == "worker");
        others_go_on(&pool, stuck);
        assert_eq!(ledger.runs(0), u32::from(on != "idle pool"));
        assert!(outcome.try_recv().is_err(), "it has not returned");
        told.open();
        let expected = match on {
            "idle pool" => "spawn_failed",
            _ => "accepted",
        };
        assert_eq!(arrives("the outcome", &outcome), expected);
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
        drop(listening);
        ledger.wait_drops();
        assert_stats!(check_at_rest(&pool), hook_panics: 0);
    });
}

/// Checks that a pool of two has all places for this thread but that of the `stuck` worker. Ends the pool.
#[track_caller]
fn others_go_on(pool: &Pool, stuck: usize) {
    assert_eq!(pool.do_with_deadline(|| 7, LONG).unwrap(), 7);
    wait_until("the other tasks to end", || {
        let s = pool.stats();
        (s.queued, s.running, s.idle) == (0, stuck, s.workers - stuck)
    });
    let gate = Gate::new();
    let free = 2 - stuck;
    (0..free + 2).for_each(|_| must_serve(pool, gate.task()));
    saturated(pool.serve(|| ()));
    gate.wait_entered(free);
    gate.open();
    if stuck == 0 {
        assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    } else {
        wait_until("the other workers to end", || {
            pool.shutdown(Shutdown::Drain, ms(20)).stragglers.len() == stuck
        });
    }
    assert_eq!(reason(pool.serve(|| ())), "closed");
}
