//! The span of each task, for the feature `tracing`.

use crate::work::env::Env;
use crate::work::panics::{contain, drop_contained};
use tracing::level_filters::LevelFilter;
use tracing::span::{EnteredSpan, Id};
use tracing::{dispatcher, Level, Span};

/// The level of a task's span.
const LEVEL: Level = Level::INFO;

/// The submitter's span, if it is in one; boxed, since it is 40 bytes.
#[derive(Debug, Default)]
pub(super) struct Parent(Option<Box<Span>>);

impl Drop for Parent {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            drop_contained(self.0.take());
        }
    }
}

impl Parent {
    /// A submission must not unwind, half done as it is; without a span it goes on.
    #[inline]
    pub(super) fn current() -> Self {
        let mut parent = None;
        // One load where there is no subscriber.
        if LEVEL <= LevelFilter::current() {
            contain(|| {
                let span = Span::current();
                parent = (!span.is_none()).then(|| Box::new(span));
            });
        }
        Self(parent)
    }

    /// Enters the span of a task that starts, below its submitter's, if tasks have spans at all.
    pub(super) fn enter(
        mut self,
        env: &Env,
        label: Option<&'static str>,
        slot: usize,
    ) -> Option<EnteredSpan> {
        if LEVEL > LevelFilter::current() {
            return None;
        }
        let below = |parent: Option<Id>| {
            tracing::span!(
                target: "lazypool",
                parent: parent,
                LEVEL,
                "lazypool.task",
                pool = env.name,
                label,
                slot,
            )
        };
        let mut entered = None;
        env.hook(|| {
            // By the submitter's subscriber, which need not be this thread's: an id
            // means nothing to another.
            let span = self.0.take().and_then(|parent| {
                parent.with_subscriber(|(id, dispatch)| {
                    dispatcher::with_default(dispatch, || below(Some(id.clone())))
                })
            });
            entered = Some(span.unwrap_or_else(|| below(None)).entered());
        });
        entered
    }
}
