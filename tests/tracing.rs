//! The feature `tracing`: spans and events, and that no subscriber can harm the pool.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use common::*;
use lazypool::{
    task, Builder, DeadlineError, Pool, Refusal, Refused, Shutdown, Submitter, WhenFull,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

/// Keeps everything. Pools named `bomb...` or `slow...` meet a subscriber that panics or sleeps.
#[derive(Clone, Default)]
struct Keeper(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    spans: Vec<Seen>,
    events: Vec<Said>,
    /// A span that the next clone or close of panics.
    bomb: Option<u64>,
    /// A span, and where those who close it wait, but for the thread named here.
    held: Option<(u64, Key, ThreadId)>,
    /// What a pool's events are told to, by message.
    listeners: HashMap<(&'static str, &'static str), Listener>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone, Debug)]
struct Seen {
    metadata: &'static Metadata<'static>,
    fields: HashMap<&'static str, String>,
    /// By id: its place in the list, from 1.
    parent: Option<u64>,
    handles: usize,
    entered: usize,
    exited: usize,
}

#[derive(Clone, Debug)]
struct Said {
    level: Level,
    fields: HashMap<&'static str, String>,
    within: Option<u64>,
}

struct Fields<'a>(&'a mut HashMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name(), text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

thread_local! {
    /// Spans that this thread is in: by subscriber's address, and id.
    static WITHIN: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

impl Keeper {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// What a pool's tasks, or events, carry its name as `pool` by.
    fn spans_of(&self, pool: &str) -> Vec<Seen> {
        let of = |s: &&Seen| s.fields.get("pool").is_some_and(|p| p == pool);
        self.kept().spans.iter().filter(of).cloned().collect()
    }

    fn events_of(&self, pool: &str) -> Vec<Said> {
        let of = |e: &&Said| e.fields.get("pool").is_some_and(|p| p == pool);
        self.kept().events.iter().filter(of).cloned().collect()
    }

    fn event_of(&self, pool: &str, message: &str) -> Option<Said> {
        (self.events_of(pool).into_iter()).find(|e| e.fields["message"] == message)
    }

    fn span(&self, id: u64) -> Seen {
        self.kept().spans[id as usize - 1].clone()
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = HashMap::new();
        span.record(&mut Fields(&mut fields));
        if fields.get("pool").is_some_and(|p| p == "bomb-at-new") {
            quiet_panic("no more spans");
        }
        let parent = match span.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if span.is_contextual() => self.current_span().id().map(Id::into_u64),
            None => None,
        };
        let mut kept = self.kept();
        if let Some(parent) = parent {
            assert!(kept.spans[parent as usize - 1].handles > 0, "closed");
        }
        kept.spans.push(Seen {
            metadata: span.metadata(),
            fields,
            parent,
            handles: 1,
            entered: 0,
            exited: 0,
        });
        Id::from_u64(kept.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut kept = self.kept();
        values.record(&mut Fields(
            &mut kept.spans[id.into_u64() as usize - 1].fields,
        ));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        if fields.get("pool").is_some_and(|p| p == "bomb-at-event") {
            quiet_panic("no more events");
        }
        if fields.get("pool").is_some_and(|p| p == "reentrant") {
            submit_from_within();
        }
        let listener = fields.get("pool").and_then(|pool| {
            let its = (pool.as_str(), fields["message"].as_str());
            self.kept().listeners.get(&its).cloned()
        });
        if let Some(listener) = listener {
            listener();
        }
        let within = self.current_span().id().map(Id::into_u64);
        self.kept().events.push(Said {
            level: *event.metadata().level(),
            fields,
            within,
        });
    }

    fn enter(&self, id: &Id) {
        let id = id.into_u64();
        let pool = self.span(id).fields.get("pool").cloned();
        match pool.as_deref() {
            Some("bomb-at-enter") => quiet_panic("no entry"),
            Some("slow") => thread::sleep(ms(2000)),
            _ => {}
        }
        self.kept().spans[id as usize - 1].entered += 1;
        WITHIN.with_borrow_mut(|w| w.push((self.address(), id)));
    }

    fn exit(&self, id: &Id) {
        let id = id.into_u64();
        self.kept().spans[id as usize - 1].exited += 1;
        WITHIN.with_borrow_mut(|w| w.retain(|at| *at != (self.address(), id)));
        if (self.span(id).fields.get("pool")).is_some_and(|p| p == "bomb-at-exit") {
            quiet_panic("no way out");
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        let mut kept = self.kept();
        if kept.bomb == Some(id.into_u64()) {
            drop(kept);
            quiet_panic("one of a kind");
        }
        kept.spans[id.into_u64() as usize - 1].handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut kept = self.kept();
        let span = &mut kept.spans[id.into_u64() as usize - 1];
        span.handles -= 1;
        let closed = span.handles == 0;
        if kept.bomb == Some(id.into_u64()) {
            drop(kept);
            quiet_panic("for ever");
        }
        let held = kept.held.clone();
        drop(kept);
        match held {
            Some((held, key, free)) if held == id.into_u64() && thread::current().id() != free => {
                key.pass();
            }
            _ => {}
        }
        closed
    }

    fn current_span(&self) -> Current {
        let mine = |at: &&(usize, u64)| at.0 == self.address();
        let id = WITHIN.with_borrow(|w| w.iter().rev().find(mine).map(|at| at.1));
        match id {
            None => Current::none(),
            Some(id) => Current::new(Id::from_u64(id), self.span(id).metadata),
        }
    }
}

/// The subscriber of the whole process.
fn keeper() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let keeper = Keeper::default();
        tracing::subscriber::set_global_default(keeper.clone()).expect("the first");
        keeper
    })
}

/// Has `f` told of a pool's events until it is dropped, on the thread on which each occurs.
struct Listening((&'static str, &'static str));

impl Listening {
    fn to(pool: &'static str, message: &'static str, f: impl Fn() + Send + Sync + 'static) -> Self {
        let its = (pool, message);
        keeper().kept().listeners.insert(its, Arc::new(f));
        Self(its)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let listener = keeper().kept().listeners.remove(&self.0);
        // What it has captured may have events of its own.
        drop(listener);
    }
}

fn named(name: &str, max: usize) -> Builder {
    keeper();
    Pool::builder()
        .max_workers(max)
        .idle_timeout(Duration::MAX)
        .thread_name(name)
}

/// A caller that leaves a running task: again, where no worker started it in time.
fn leave<R, F>(pool: &Pool, mut call: impl FnMut() -> Result<R, DeadlineError<F>>) {
    loop {
        match call() {
            Err(DeadlineError::TimedOut) => return,
            Err(DeadlineError::Expired(_)) => await_started(pool),
            _ => panic!("it did not time out"),
        }
    }
}

fn id(span: &tracing::Span) -> u64 {
    span.id().expect("enabled").into_u64()
}

/// A span for each task: below the submitter's, entered around the closure, closed at its end.
#[test]
fn a_task_has_a_span() {
    timed(|| {
        let pool = named("spans", 1).queue_capacity(8).build().unwrap();
        let request = tracing::info_span!("request");
        request.in_scope(|| {
            let said = || tracing::info!(pool = "spans", "inside");
            pool.labeled("parse").do_with_deadline(said, LONG).unwrap();
        });
        let spans = keeper().spans_of("spans");
        let [span] = spans.as_slice() else {
            panic!("{spans:?}")
        };
        assert_eq!(span.metadata.name(), "lazypool.task");
        assert_eq!(span.metadata.target(), "lazypool");
        assert_eq!(*span.metadata.level(), Level::INFO);
        assert_eq!(span.fields["label"], "parse");
        assert_eq!(span.fields["slot"], "0");
        assert_eq!(span.parent, Some(id(&request)));
        assert_eq!((span.entered, span.exited, span.handles), (1, 1, 0));
        let inside = keeper().event_of("spans", "inside").unwrap().within;
        let within = keeper().span(inside.expect("in a span"));
        assert_eq!(within.fields["pool"], "spans");
        assert_eq!(within.parent, Some(id(&request)));
        assert_eq!(keeper().span(id(&request)).handles, 1, "the test's own");

        // Every way in; queued ones too, whose submitter's span has closed meanwhile.
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let parent = tracing::info_span!("short").in_scope(|| {
            must_serve(&pool, || ());
            pool.group().serve(|| ()).unwrap();
            id(&tracing::Span::current())
        });
        assert_eq!(keeper().span(parent).handles, 2, "held by the tasks");
        gate.open();
        settle(&pool);
        request.in_scope(|| pool.scope(|s| assert!(s.serve(|| ()).is_ok())));
        let parents: Vec<_> = (keeper().spans_of("spans").iter())
            .map(|s| s.parent)
            .collect();
        let request = Some(id(&request));
        assert_eq!(
            parents,
            [request, None, Some(parent), Some(parent), request]
        );
        assert_eq!(keeper().span(parent).handles, 0);
        assert!(!keeper().spans_of("spans")[1].fields.contains_key("label"));
    });
}

/// What does not run has no span, and lets go of the submitter's.
#[test]
fn only_tasks_that_run_have_spans() {
    timed(|| {
        let pool = named("unrun", 1).queue_capacity(2).build().unwrap();
        let gate = Gate::new();
        must_serve(&pool, gate.task());
        gate.wait_entered(1);
        let request = tracing::info_span!("request");
        request.in_scope(|| {
            assert!(pool.do_with_deadline(|| (), ms(1)).is_err());
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.cancel();
            must_serve(&pool, || ());
            let discarded = thread::scope(|s| {
                let caller = s.spawn(|| {
                    let span = tracing::info_span!("caller");
                    let _entered = span.enter();
                    pool.do_with_deadline(|| (), LONG)
                });
                wait_until("both queued", || pool.stats().queued == 2);
                saturated(pool.serve(|| ()));
                pool.shutdown(Shutdown::Discard, Duration::ZERO);
                caller.join().unwrap()
            });
            assert!(matches!(discarded, Err(DeadlineError::Refused(_))));
        });
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        let s = pool.stats();
        assert_eq!((s.expired, s.discarded, s.refused), (1, 3, 1));
        assert_eq!(keeper().spans_of("unrun").len(), 1, "the gate's");
        assert_eq!(keeper().span(id(&request)).handles, 1, "the test's own");
        let callers: Vec<_> = (keeper().kept().spans.iter())
            .filter(|s| s.metadata.name() == "caller")
            .map(|s| s.handles)
            .collect();
        assert_eq!(callers, [0]);
    });
}

#[test]
fn workers_come_and_go() {
    timed(|| {
        let pool = named("turnover", 2).build().unwrap();
        pool.do_with_deadline(|| (), LONG).unwrap();
        let spawned = keeper().event_of("turnover", "worker spawned").unwrap();
        assert_eq!((spawned.level, spawned.within), (Level::DEBUG, None));
        assert_eq!(spawned.fields["slot"], "0");
        assert!(keeper().event_of("turnover", "worker retired").is_none());
        pool.shutdown(Shutdown::Drain, Duration::MAX);
        let retired = keeper().event_of("turnover", "worker retired").unwrap();
        assert_eq!(retired.level, Level::DEBUG);
        assert_eq!(retired.fields["slot"], "0");
        assert_eq!(keeper().events_of("turnover").len(), 2);
    });
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn a_spawn_failure_is_told() {
    // No system has this much address space.
    let pool = named("unspawned", 1).stack_size(1 << 56).build().unwrap();
    let span = tracing::info_span!("request");
    assert!(span.in_scope(|| pool.serve(|| ())).is_err());
    let event = keeper()
        .event_of("unspawned", "worker thread could not be started")
        .unwrap();
    assert_eq!((event.level, event.within), (Level::WARN, Some(id(&span))));
    assert!(!event.fields["error"].is_empty());
}

/// Within the task's span, with label, slot and message, before the caller is released.
#[test]
fn a_panic_is_told() {
    timed(|| {
        let pool = named("panics", 1).build().unwrap();
        let boom = || quiet_panic("no such file");
        let caught = pool.labeled("load").do_with_deadline(boom, LONG);
        assert!(matches!(caught, Err(DeadlineError::Panicked(_))));
        let event = keeper().event_of("panics", "task panicked").unwrap();
        assert_eq!(event.level, Level::WARN);
        assert_eq!(event.fields["label"], "load");
        assert_eq!(event.fields["slot"], "0");
        assert_eq!(event.fields["panic.message"], "no such file");
        let within = keeper().span(event.within.expect("in a span"));
        assert_eq!(within.fields["label"], "load");
        assert_eq!((within.entered, within.exited), (1, 1));

        let opaque = || std::panic::resume_unwind(Box::new(5));
        assert!(pool.do_with_deadline(opaque, LONG).is_err());
        let events = keeper().events_of("panics");
        assert!(!events.last().unwrap().fields.contains_key("panic.message"));
    });
}

/// Who leaves is told in the caller's span; who outlives a shutdown, on the thread that waited.
#[test]
fn time_outs_and_stragglers_are_told() {
    timed(|| {
        let pool = named("late", 2).build().unwrap();
        let gate = Gate::new();
        let request = tracing::info_span!("request");
        request.in_scope(|| {
            let stuck = pool.labeled("stuck");
            leave(&pool, || stuck.do_with_deadline(gate.task(), ms(50)));
        });
        gate.wait_entered(1);
        let event = keeper().event_of("late", "caller timed out").unwrap();
        assert_eq!(event.level, Level::WARN);
        assert_eq!(event.within, Some(id(&request)));
        assert_eq!(event.fields["label"], "stuck");
        assert_eq!(event.fields["slot"], "0");

        let told = "worker has not ended by the shutdown's timeout";
        let report = pool.shutdown(Shutdown::Drain, ms(1));
        assert_eq!(report.stragglers.len(), 1);
        let event = keeper().event_of("late", told).unwrap();
        assert_eq!(event.level, Level::WARN);
        assert_eq!(event.fields["label"], "stuck");
        assert_eq!(event.fields["slot"], "0");
        assert_eq!(event.fields["abandoned"], "true");
        gate.open();
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        let events = keeper().events_of("late");
        let warned = events.iter().filter(|e| e.fields["message"] == told);
        assert_eq!(warned.count(), 1);
    });
}

/// A worker whose task nobody waits for any more is told of once, whatever the reason: a caller
/// that left says so itself.
#[test]
fn abandoned_workers_are_told_of_once() {
    timed(|| {
        let pool = named("abandon", 2).build().unwrap();
        let told = || {
            let mut events = keeper().events_of("abandon");
            events.retain(|e| e.fields["message"] == "worker abandoned");
            events
        };
        let gate = Gate::new();
        let group = pool.labeled("cancelled").group();
        group.serve(gate.task()).ok().unwrap();
        gate.wait_entered(1);
        group.cancel();
        group.cancel();
        assert_eq!(told().len(), 1);
        let notices = || {
            while !lazypool::task::is_cancelled() {
                thread::yield_now();
            }
            assert!(lazypool::task::is_cancelled());
        };
        let late = pool.labeled("late").with_deadline(ms(30));
        // Again, where no worker started it in time.
        let run_late = |task: fn()| {
            let before = pool.stats().timed_out;
            while pool.stats().timed_out == before {
                late.serve(task).unwrap();
                settle_but(&pool, 1);
            }
        };
        run_late(notices);
        // One that does not look.
        run_late(|| thread::sleep(ms(60)));
        gate.open();
        group.wait();
        let events = told();
        let said: Vec<_> = (events.iter())
            .map(|e| (e.fields["label"].as_str(), e.fields["why"].as_str()))
            .collect();
        let late = ("late", "deadline");
        assert_eq!(said, [("cancelled", "cancelled"), late, late]);
        assert!(events.iter().all(|e| e.level == Level::WARN));
    });
}

fn settle_but(pool: &Pool, running: usize) {
    wait_until("the others to end", || {
        let stats = pool.stats();
        stats.running == running && stats.queued == 0
    });
}

/// A submitter with a subscriber of its own: its tasks' spans go there, not to the workers' one,
/// where the parent's id would mean another span or none.
#[test]
fn a_submitters_own_subscriber_gets_the_spans() {
    timed(|| {
        let pool = named("scoped", 1).build().unwrap();
        let own = Keeper::default();
        let parent = tracing::subscriber::with_default(own.clone(), || {
            let request = tracing::info_span!("request");
            let _entered = request.enter();
            let said = || tracing::info!(pool = "scoped", "inside");
            pool.do_with_deadline(said, LONG).unwrap();
            id(&request)
        });
        let spans = own.spans_of("scoped");
        let [span] = spans.as_slice() else {
            panic!("{spans:?}")
        };
        assert_eq!(span.parent, Some(parent));
        assert_eq!((span.entered, span.exited, span.handles), (1, 1, 0));
        assert_eq!(own.span(parent).handles, 0);
        assert!(keeper().spans_of("scoped").is_empty());
        // The worker's own subscriber is as before.
        assert!(keeper().event_of("scoped", "inside").is_some());
    });
}

/// Law 7, for subscribers: their panics change no task's outcome, and count as those of hooks.
#[test]
fn a_subscribers_panic_is_contained() {
    timed(|| {
        for (name, per_task) in [
            ("bomb-at-new", 1),
            ("bomb-at-enter", 1),
            ("bomb-at-exit", 1),
            ("bomb-at-event", 0),
        ] {
            let pool = named(name, 1).queue_capacity(8).build().unwrap();
            for n in 0..5 {
                assert_eq!(pool.do_with_deadline(move || n, LONG).unwrap(), n);
            }
            let caught = pool.do_with_deadline(|| quiet_panic("on purpose"), LONG);
            assert!(matches!(caught, Err(DeadlineError::Panicked(_))));
            let s = settle(&pool);
            assert_eq!((s.completed, s.panicked), (5, 1), "{name}");
            assert_eq!(s.spawned, 1, "{name}: the same worker all along");
            // The event of the spawn, and of the panic.
            let events = if name == "bomb-at-event" { 2 } else { 0 };
            assert_eq!(s.hook_panics, 6 * per_task + events, "{name}");
            assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        }
    });
}

/// Where the submitter's span cannot be had, or not be given back, the submission goes on.
#[test]
fn a_subscribers_panic_does_not_harm_a_submission() {
    timed(|| {
        let pool = named("submission", 1).queue_capacity(1).build().unwrap();
        let own = Keeper::default();
        tracing::subscriber::with_default(own.clone(), || {
            let request = tracing::info_span!("request");
            let entered = request.enter();
            own.kept().bomb = Some(id(&request));
            assert_eq!(pool.do_with_deadline(|| 1, LONG).unwrap(), 1);
            let group = pool.group();
            group.serve(|| ()).unwrap();
            group.wait();
            pool.scope(|s| assert!(s.serve(|| ()).is_ok()));
            own.kept().bomb = None;

            // Taken along, and given back by a refusal.
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            must_serve(&pool, || ());
            let refused = pool.do_with_deadline(
                {
                    let own = own.clone();
                    let id = id(&request);
                    move || drop((own, id))
                },
                ms(1),
            );
            assert!(matches!(refused, Err(DeadlineError::Refused(_))));
            gate.open();
            settle(&pool);
            drop(entered);
        });
        let s = pool.stats();
        assert_eq!((s.completed, s.hook_panics), (5, 0));
    });
}

static REENTRANT: OnceLock<Pool> = OnceLock::new();

/// What a subscriber may do that hands what it is told to a pool: the very one.
fn submit_from_within() {
    thread_local! {
        static AT_IT: Cell<bool> = const { Cell::new(false) };
    }
    let Some(pool) = REENTRANT.get() else { return };
    if !AT_IT.replace(true) {
        let _ = pool.serve(|| ());
        let _ = pool.do_with_deadline(|| (), Duration::MAX);
        AT_IT.set(false);
    }
}

/// A subscriber that submits to the pool that it is told of neither waits for ever nor breaks it.
#[test]
fn a_subscriber_may_submit() {
    timed(|| {
        let pool = REENTRANT.get_or_init(|| {
            named("reentrant", 3)
                .queue_capacity(2)
                .idle_timeout(ms(1))
                .build()
                .unwrap()
        });
        let mut retired = 0;
        let is_enough = || {
            let s = pool.stats();
            s.spawned > 10 && s.panicked > 100
        };
        for round in 0.. {
            if round >= rounds(300) && is_enough() {
                break;
            }
            for _ in 0..4 {
                let _ = pool.serve(|| quiet_panic("an event"));
            }
            let _ = pool.do_with_deadline(|| (), LONG);
            if round % 16 == 0 {
                // Not for all to be gone: a worker that tells of its end has another started.
                wait_until("a worker to retire", || pool.stats().retired > retired);
                retired = pool.stats().retired;
            }
        }
        assert_eq!(settle(pool).hook_panics, 0);
    });
}

/// Law 3, for subscribers: a slow one takes its time from the task; the caller leaves at its
/// deadline.
#[test]
fn a_slow_subscriber_breaks_no_deadline() {
    timed(|| {
        let pool = named("slow", 1).build().unwrap();
        let start = Instant::now();
        leave(&pool, || pool.do_with_deadline(|| (), ms(50)));
        // To enter the span takes two seconds.
        assert!(start.elapsed() < ms(2000), "{:?}", start.elapsed());
        settle(&pool);
    });
}

/// Law 3: a caller leaves at its deadline though a subscriber is being told that its task has exceeded
/// its run limit. That once came after the outcome was decided.
#[test]
fn law03_a_caller_leaves_while_a_subscriber_hears_of_the_run_limit() {
    timed(|| {
        let pool = named("limit-told", 1).build().unwrap();
        let told = Gate::new();
        let _opener = told.opener();
        let key = told.key();
        let _listening = Listening::to("limit-told", "worker abandoned", move || key.pass());
        let task = || {
            let due = task::deadline().expect("its run limit");
            thread::sleep(due.saturating_duration_since(Instant::now()));
        };
        leave(&pool, || {
            pool.run_limit(ms(1)).do_with_deadline(task, ms(50))
        });
        told.open();
        let s = settle(&pool);
        assert_eq!((s.completed, s.timed_out), (1, 1), "{s:?}");
    });
}

/// Calls within a span that nobody but this thread closes before the gate opens.
fn call_within(own: &Keeper, gate: &Gate, pool: Submitter<'_>) -> Result<(), DeadlineError<()>> {
    tracing::subscriber::with_default(own.clone(), || {
        let request = tracing::info_span!("request");
        own.kept().held = Some((id(&request), gate.key(), thread::current().id()));
        let call = || pool.do_with_deadline(|| (), LONG);
        request
            .in_scope(call)
            .map_err(DeadlineError::without_closure)
    })
}

/// Law 3, for subscribers: one that takes its time where a span is closed does not hold up the
/// caller whose task a shutdown discards: the span is the caller's to close. The discarder once let
/// go of it first.
#[test]
fn law03_a_slow_close_of_a_span_holds_up_no_discarded_caller() {
    timed(|| {
        let own = Keeper::default();
        let pool = named("closing", 1).queue_capacity(1).build().unwrap();
        let (close, task) = (Gate::new(), Gate::new());
        must_serve(&pool, task.task());
        task.wait_entered(1);
        thread::scope(|s| {
            let _openers = (close.opener(), task.opener());
            let caller = s.spawn(|| call_within(&own, &close, pool.labeled("discarded")));
            wait_until("the call to queue", || pool.stats().queued == 1);
            let report = pool.shutdown(Shutdown::Discard, Duration::ZERO);
            assert_eq!(report.discarded, 1);
            let returned = caller.join().unwrap();
            assert!(matches!(returned, Err(DeadlineError::Refused(_))));
        });
        assert_eq!(close.entered(), 0);
        assert_eq!(own.kept().spans[0].handles, 0);
    });
}

/// The same where its turn comes with too little of its deadline left: the span is the caller's to
/// close, and not the worker's, which is to be had for the next task.
#[test]
fn law03_a_slow_close_of_a_span_holds_up_no_late_caller() {
    timed(|| {
        let own = Keeper::default();
        let pool = named("closing-late", 1).queue_capacity(1).build().unwrap();
        let (close, task) = (Gate::new(), Gate::new());
        must_serve(&pool, task.task());
        task.wait_entered(1);
        thread::scope(|s| {
            let _openers = (close.opener(), task.opener());
            // It may start within its first millisecond.
            let caller = s.spawn(|| call_within(&own, &close, pool.min_remaining(LONG - ms(1))));
            wait_until("the call to queue", || pool.stats().queued == 1);
            thread::sleep(ms(2));
            task.open();
            wait_until("the caller's return", || caller.is_finished());
            let returned = caller.join().unwrap();
            assert!(matches!(returned, Err(DeadlineError::Expired(_))));
            pool.do_with_deadline(|| (), LONG).expect("its worker");
        });
        assert_eq!(close.entered(), 0);
        assert_eq!(own.kept().spans[0].handles, 0);
    });
}

const SPAWNED: &str = "worker spawned";

/// A submitter that has waited for room for long gets a worker of its own by a raised limit, and
/// there is place for one more; `told` hears of each on that worker's thread. Another worker is busy
/// until the gate opens.
fn starts_after_long(
    name: &'static str,
    busy: &Gate,
    told: impl Fn(&Pool) + Send + Sync + 'static,
) -> (Arc<Pool>, Listening, thread::JoinHandle<()>) {
    let pool = Arc::new(named(name, 3).when_full(WhenFull::Block).build().unwrap());
    pool.set_limit(1).unwrap();
    must_serve(&pool, busy.task());
    busy.wait_entered(1);
    let its = Arc::clone(&pool);
    let submitter = thread::spawn(move || must_serve(&its, || ()));
    wait_until("it to wait", || pool.stats().waiting == 1);
    // After a millisecond, those who come line up behind it.
    thread::sleep(ms(20));
    let its = Arc::clone(&pool);
    let listening = Listening::to(name, SPAWNED, move || told(&its));
    pool.set_limit(3).unwrap();
    (pool, listening, submitter)
}

/// Law 14, for subscribers: one that submits, on the thread of the worker whose start it is told of,
/// waits neither for space nor behind others.
#[test]
fn law14_a_subscriber_that_submits_does_not_wait() {
    timed(|| {
        let busy = Gate::new();
        let (tx, told) = mpsc::channel();
        let (pool, _listening, submitter) = starts_after_long("own-line", &busy, move |pool| {
            let served = pool.serve(|| ()).map_err(Refused::without_closure);
            tx.send(served).unwrap();
        });
        let mut served = 0;
        let next = || told.recv_timeout(LIMIT).expect("it returns");
        let mut count = |outcome: Result<(), Refused<()>>| match outcome {
            Ok(()) => served += 1,
            Err(refused) => assert!(matches!(refused.reason(), Refusal::OnWorker)),
        };
        let first = next();
        let has_started_another = first.is_ok();
        count(first);
        if has_started_another {
            count(next());
        }
        wait_until("both submissions", || submitter.is_finished());
        busy.open();
        let s = settle(&pool);
        assert_eq!((s.completed, s.hook_panics), (2 + served, 0));
    });
}

/// Law 20, for subscribers: nobody waits for a worker whose start a subscriber is told of: neither the
/// one whose task it has, nor others, who start another.
#[test]
fn law20_nobody_waits_behind_a_subscriber() {
    timed(|| {
        let (busy, told) = (Gate::new(), Gate::new());
        let key = told.key();
        let (pool, _listening, submitter) =
            starts_after_long("others-line", &busy, move |_| key.pass());
        let _openers = (busy.opener(), told.opener());
        told.wait_entered(1);
        submitter.join().unwrap();
        let its = Arc::clone(&pool);
        let other = thread::spawn(move || must_serve(&its, || ()));
        wait_until("another submission", || other.is_finished());
        told.wait_entered(2);
        saturated(pool.when_full(WhenFull::Refuse).serve(|| ()));
        told.open();
        busy.open();
        assert_eq!(settle(&pool).completed, 3);
    });
}

/// Laws 2 and 14, for subscribers: a cancel discards what is queued, and makes room, before it calls
/// its own.
#[test]
fn law14_a_cancel_makes_room_before_it_calls_its_subscriber() {
    timed(|| {
        let pool = named("cancel-room", 1).queue_capacity(1).build().unwrap();
        let (busy, told) = (Gate::new(), Gate::new());
        let _openers = (busy.opener(), told.opener());
        let group = pool.group();
        must_serve_in(&group, busy.task());
        busy.wait_entered(1);
        must_serve_in(&group, || unreachable!("its group is cancelled"));
        let key = told.key();
        let _listening = Listening::to("cancel-room", "worker abandoned", move || key.pass());
        let canceller = group.clone();
        let cancel = thread::spawn(move || canceller.cancel());
        told.wait_entered(1);
        let s = pool.stats();
        assert_eq!((s.abandoned, s.queued, s.discarded), (1, 0, 1));
        must_serve(&pool, || ());
        told.open();
        cancel.join().expect("no panic");
        busy.open();
        check_at_rest(&pool, &settle(&pool));
    });
}

/// Law 3, for subscribers: a call ends at its deadline while a subscriber is told of the worker that
/// was started for it.
#[test]
fn law03_no_deadline_waits_for_the_subscriber_of_its_worker() {
    timed(|| {
        let pool = named("asks", 1).build().unwrap();
        let told = Gate::new();
        let key = told.key();
        let _listening = Listening::to("asks", SPAWNED, move || key.pass());
        let _opener = told.opener();
        let start = Instant::now();
        let outcome = pool.do_with_deadline(|| (), ms(30));
        assert!(
            matches!(outcome, Err(DeadlineError::Expired(_))),
            "{outcome:?}"
        );
        assert!(start.elapsed() >= ms(30));
        told.wait_entered(1);
        told.open();
        settle(&pool);
        assert!(pool
            .do_with_deadline(|| task::remaining().is_some(), LONG)
            .unwrap());
        assert_eq!(pool.stats().hook_panics, 0);
    });
}

/// Law 19, for subscribers: in a child, the parent's spans are not closed, as a task that the fork
/// left half discarded was once. Either who discards it was in the middle of it.
#[cfg(unix)]
#[test]
fn law19_a_child_closes_no_span_of_a_discarded_task() {
    /// Forks when it is dropped. The child says how many handles the span has at the end.
    struct ForksInDrop(Arc<AtomicI32>);

    impl Drop for ForksInDrop {
        fn drop(&mut self) {
            // SAFETY: the child uses the pool, the subscriber, which no other thread uses, and `_exit`.
            self.0.store(unsafe { libc::fork() }, Ordering::SeqCst);
        }
    }

    isolated("law19_a_child_closes_no_span_of_a_discarded_task", || {
        for by_shutdown in [false, true] {
            let own = Keeper::default();
            let pool = named("forks", 1).queue_capacity(1).build().unwrap();
            let gate = Gate::new();
            must_serve(&pool, gate.task());
            gate.wait_entered(1);
            let group = pool.group();
            let child = Arc::new(AtomicI32::new(0));
            let capture = ForksInDrop(Arc::clone(&child));
            tracing::subscriber::with_default(own.clone(), || {
                let _request = tracing::info_span!("request").entered();
                group.serve(move || drop(capture)).unwrap();
            });
            assert_eq!(own.kept().spans[0].handles, 1, "the task's");
            if by_shutdown {
                pool.shutdown(Shutdown::Discard, Duration::ZERO);
            } else {
                group.cancel();
            }
            let (child, handles) = (child.load(Ordering::SeqCst), own.kept().spans[0].handles);
            if child == 0 {
                // SAFETY: ends the process without running anything of its parent's.
                unsafe { libc::_exit(handles as i32) };
            }
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            assert_eq!(handles, 0, "in the parent");
            let mut status = 0;
            // SAFETY: `status` is valid for the call, `child` our own.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "{status:#x}");
            assert_eq!(libc::WEXITSTATUS(status), 1, "handles in the child");
            gate.open();
            settle(&pool);
        }
    });
}

/// Law 19, for subscribers: a child that one makes as a worker starts or has ended is over there, and
/// runs nothing of its parent's. One made at the start once went on and ran the worker's first task.
#[cfg(unix)]
#[test]
fn law19_a_subscriber_that_forks_as_a_worker_starts_or_ends() {
    isolated(
        "law19_a_subscriber_that_forks_as_a_worker_starts_or_ends",
        || {
            for message in ["worker spawned", "worker retired"] {
                let child = Arc::new(AtomicI32::new(0));
                let forked = Arc::clone(&child);
                let _fork = Listening::to("forks", message, move || {
                    // SAFETY: the child uses the pool, the subscriber, which no other thread uses, and `_exit`.
                    forked.store(unsafe { libc::fork() }, Ordering::SeqCst);
                });
                let parent = std::process::id();
                let task = move || {
                    if std::process::id() != parent {
                        // SAFETY: ends the process without running anything of its parent's.
                        unsafe { libc::_exit(77) };
                    }
                };
                let pool = named("forks", 1).build().unwrap();
                pool.do_with_deadline(task, LONG).unwrap();
                assert!(pool.shutdown(Shutdown::Drain, LONG).is_clean());
                let child = child.load(Ordering::SeqCst);
                assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
                let mut status = 0;
                // SAFETY: `status` is valid for the call, `child` our own.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0, "{message}: the child's end");
            }
        },
    );
}
