//! The subscriber of the whole process, which keeps all events of pools, and calls the listeners of tests.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::common::pool_with;
use lazypool::{Builder, Pool};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

pub(crate) const PANICKED: &str = "task panicked";
pub(crate) const NOT_STARTED: &str = "worker thread could not be started";
pub(crate) const STRAGGLER: &str = "worker has not ended by the shutdown's timeout";

/// A subscriber that keeps all events of pools.
#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<Mutex<Kept>>);

#[derive(Default)]
pub(crate) struct Kept {
    /// How many spans the crate opened.
    pub(crate) spans: usize,
    events: Vec<Said>,
    /// Callbacks for a pool's events, by the pool's name and the event's message.
    listeners: HashMap<(&'static str, &'static str), Listener>,
}

type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone, Debug)]
pub(crate) struct Said {
    level: Level,
    pub(crate) fields: HashMap<&'static str, String>,
    pub(crate) on: thread::ThreadId,
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

impl Keeper {
    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events_of(&self, pool: &str) -> Vec<Said> {
        let of = |e: &&Said| e.fields.get("pool").is_some_and(|p| p == pool);
        self.kept().events.iter().filter(of).cloned().collect()
    }

    /// Returns the only event of the pool. Checks its message and level.
    #[track_caller]
    pub(crate) fn event_of(&self, pool: &str, message: &str) -> Said {
        let events = self.events_of(pool);
        let [event] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(event.fields["message"], message);
        assert_eq!(event.level, Level::WARN);
        event.clone()
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let is_of_a_pool = span.metadata().target().starts_with("lazypool");
        self.kept().spans += usize::from(is_of_a_pool);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = HashMap::new();
        event.record(&mut Fields(&mut fields));
        let listener = fields.get("pool").and_then(|pool| {
            assert_eq!(event.metadata().target(), "lazypool");
            let its = (pool.as_str(), fields["message"].as_str());
            self.kept().listeners.get(&its).cloned()
        });
        self.kept().events.push(Said {
            level: *event.metadata().level(),
            fields,
            on: thread::current().id(),
        });
        if let Some(listener) = listener {
            listener();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Returns the subscriber of the whole process.
pub(crate) fn keeper() -> &'static Keeper {
    static KEEPER: OnceLock<Keeper> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let keeper = Keeper::default();
        let set = tracing::subscriber::set_global_default(keeper.clone());
        set.expect("the first subscriber of the process");
        keeper
    })
}

/// Calls `f` at events of a pool, on the thread on which each occurs, until this is dropped.
pub(crate) struct Listening((&'static str, &'static str));

impl Listening {
    pub(crate) fn to(
        pool: &'static str,
        message: &'static str,
        f: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let its = (pool, message);
        keeper().kept().listeners.insert(its, Arc::new(f));
        Self(its)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let listener = keeper().kept().listeners.remove(&self.0);
        // The listener's captures may cause events of their own.
        drop(listener);
    }
}

/// Returns a pool of that name, once there is a subscriber.
pub(crate) fn named(
    name: &str,
    max: usize,
    queue: usize,
    set: impl Fn(Builder) -> Builder,
) -> Pool {
    keeper();
    pool_with(max, queue, |b| set(b).thread_name(name))
}
