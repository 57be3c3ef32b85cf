//! The last handle of a pool is dropped by code that the pool itself calls. Law 10: such a drop does not
//! wait. Laws 2 and 21: no accepted task is lost by it, and none runs twice.

mod common;
#[path = "common/last_handle.rs"]
mod last_handle;

use std::future::Future;
use std::pin::Pin;
use std::task::Waker;

use common::*;
use last_handle::{Last, Scene, QUEUED};
use lazypool::{task, Builder, Group, Handle, Pool, Refused, Shutdown};

/// Ids of further tasks in the ledger.
const OTHER: usize = QUEUED;
const IN_LINE: usize = QUEUED + 1;

/// Sets the hook so that it waits at the gate on the worker of slot 1, and then drops the pool.
fn dropping_hook(builder: Builder, hook: &str, gate: &Gate, last: &Last) -> Builder {
    let (key, last) = (gate.key(), last.clone());
    let drops = move |slot| {
        if slot == 1 {
            key.pass();
            last.drop_pool();
        }
    };
    match hook {
        "start" => builder.on_worker_start(drops),
        "stop" => builder.idle_timeout(ms(5)).on_worker_stop(drops),
        "panic" => builder.on_panic(move |panic| drops(panic.slot)),
        _ => builder.around(move |task| {
            task();
            drops(task::slot().expect("on a worker"));
        }),
    }
}

/// Law 10: a hook that drops the last handle of its pool does not wait, neither for its own worker nor for another one.
#[test]
fn law10_a_pool_dropped_in_a_hook_does_not_wait() {
    let hooks = ["start", "stop", "panic", "around"];
    timed_each(product(hooks, MODES), |(hook, mode)| {
        let (in_hook, second, last) = (Gate::new(), Gate::new(), Last::default());
        let builder = dropping_hook(builder(2, QUEUED), hook, &in_hook, &last);
        let (pool, scene) = Scene::new(builder, mode, &last, 1);
        let _openers = (in_hook.opener(), second.opener());
        drop(last);
        let entry = scene.ledger.entry(OTHER);
        must_serve(&pool, move || {
            entry.run();
            if hook == "panic" {
                quiet_panic("on purpose");
            }
        });
        in_hook.wait_entered(1);
        if hook == "stop" {
            // That thread has left its slot.
            occupy(&pool, &second, 1);
        }
        scene.queue(&pool);
        scene.leave(pool);
        in_hook.open();
        scene.was_dropped();
        second.open();
        scene.all_end(mode, false);
        // A shutdown discards what is queued. A new worker has its first task in hand.
        assert_eq!(scene.ledger.fate(OTHER), (1, 1));
        scene.must_be_freed();
    });
}

type Served = Result<Handle<()>, Refused<()>>;

/// What a pool has for the waker that drops it.
struct Victims {
    /// The handle of a running task, on the worker that is not busy.
    running: Handle<()>,
    /// The handle of a queued task, alone in its group.
    queued: Handle<()>,
    group: Group,
    /// A future in line, alone in its group.
    in_line: Pin<Box<dyn Future<Output = Served>>>,
    group_in_line: Group,
}

impl Victims {
    /// Fills the pool. The queued task has a capture that drops the pool, if `has_capture` is set.
    fn new(pool: &Pool, scene: &Scene, second: &Gate, has_capture: Option<Last>) -> Self {
        let running = await_then(pool.awaitable(), second, || ());
        scene.queue(pool);
        let (group, group_in_line) = (pool.group(), pool.group());
        let entry = scene.ledger.entry(OTHER);
        let capture = has_capture.map(|last| on_drop(move || last.drop_pool()));
        let queued = must_await(group.awaitable(), move || {
            entry.run();
            drop(capture);
        });
        let served = (group_in_line.awaitable()).serve_async(scene.ledger.task(IN_LINE));
        let in_line = Box::pin(async { served.await.map_err(Refused::without_closure) });
        Self {
            running,
            queued,
            group,
            in_line,
            group_in_line,
        }
    }

    /// Stores the waker where `way` will call or drop it.
    fn store(&mut self, way: &str, waker: &Waker) {
        let of = |those: &[&str]| {
            if those.contains(&way) {
                waker
            } else {
                Waker::noop()
            }
        };
        let in_line = of(&["line", "group in line", "future's drop"]);
        assert!(poll(&mut self.in_line, in_line).is_pending());
        assert!(poll(&mut self.running, of(&["end"])).is_pending());
        let queued = of(&["cancel", "group", "handle's drop"]);
        assert!(poll(&mut self.queued, queued).is_pending());
    }

    /// Has the waker called or dropped. Returns all other handles, whose drop would cancel their tasks.
    fn wake(mut self, way: &str, second: &Gate, scene: &Scene) -> Vec<Handle<()>> {
        match way {
            "end" | "line" => second.open(),
            "cancel" => self.queued.cancel(),
            "group" | "capture" => self.group.cancel(),
            "group in line" => self.group_in_line.cancel(),
            _ => {}
        }
        if way == "future's drop" {
            drop(self.in_line);
            return vec![self.running, self.queued];
        }
        if way == "handle's drop" {
            drop(self.queued);
            return vec![self.running];
        }
        scene.was_dropped();
        // Its turn has come, or it was refused.
        let served = ready(&mut self.in_line, Waker::noop());
        assert!(served.is_ok() || way != "line");
        let kept = [self.running, self.queued];
        kept.into_iter().chain(served).collect()
    }
}

/// Returns a waker that drops the pool as it is woken, or else as it is dropped.
fn dropping_waker(last: Last, woken: bool) -> Waker {
    if woken {
        return calling(move || last.drop_pool());
    }
    let drops = on_drop(move || last.drop_pool());
    calling(move || _ = &drops)
}

/// Law 10: a waker that drops the last handle of its pool does not wait: on a worker as a task ends, or as a future in line
/// gets its space; and on any thread that cancels. Nor does the drop of a waker, or of a capture, that does so.
#[test]
fn law10_a_pool_dropped_in_a_waker_does_not_wait() {
    let ends = ["end", "line"];
    let cancels = ["cancel", "group", "handle's drop", "capture"];
    let cancels_line = ["group in line", "future's drop"];
    let ways = ends.into_iter().chain(cancels).chain(cancels_line);
    timed_each(product(ways, MODES), move |(way, mode)| {
        let last = Last::default();
        let of_hook = last.clone();
        let builder = builder(2, QUEUED + 1).on_panic(move |_| _ = &of_hook);
        let (pool, scene) = Scene::new(builder, mode, &last, 2);
        let second = Gate::new();
        let _opener = second.opener();
        let capture = (way == "capture").then(|| last.clone());
        let mut victims = Victims::new(&pool, &scene, &second, capture);
        victims.store(way, &dropping_waker(last, !way.ends_with("drop")));
        scene.leave(pool);
        let handles = victims.wake(way, &second, &scene);
        scene.was_dropped();
        second.open();
        // Only a worker that calls a waker may have taken its next task already.
        let on_worker = ends.contains(&way);
        scene.all_end(mode, on_worker);
        let ran = scene.ledger.runs(OTHER) == 1;
        if cancels.contains(&way) {
            assert!(!ran, "it was cancelled");
        } else if mode == Shutdown::Drain || !on_worker {
            assert_eq!(ran, mode == Shutdown::Drain);
        }
        drop(handles);
        scene.must_be_freed();
    });
}
