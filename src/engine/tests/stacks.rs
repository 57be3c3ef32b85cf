//! The stacks that CONTRIBUTING.md has a person look for: user code looks for itself in its own.
//!
//! Only where no function is inlined, and where a build without debug information has the functions' names.

use super::held_locks::occupy;
use super::*;
use std::backtrace::Backtrace;
use std::sync::OnceLock;

const PAGE: &str = include_str!("../../../CONTRIBUTING.md");

/// Returns the functions that the row of a finding names, of which a stack must have one.
fn looked_for(finding: &str) -> impl Iterator<Item = &'static str> {
    let begins = format!("| `{finding}` |");
    let row = PAGE.lines().find(|row| row.starts_with(&begins));
    let row = row.expect("a row").trim_end_matches(" |");
    let (_, last) = row.rsplit_once(" | ").expect("columns");
    last.split('`').skip(1).step_by(2)
}

/// User code that does not return until this is opened, and notes its stack.
#[derive(Clone, Default)]
struct Stands(Arc<(OnceLock<String>, OnceLock<()>)>);

impl Stands {
    fn stand(&self) {
        let (stack, opened) = &*self.0;
        _ = stack.set(Backtrace::force_capture().to_string());
        until(|| opened.get().is_some());
    }

    /// Waits until the pool's dump has this finding, and lets the code return. Panics if its stack has none of the
    /// functions that the row names.
    fn shows_as(&self, finding: &str, core: &Core) {
        let (stack, opened) = &*self.0;
        until(|| stack.get().is_some() && format!("{:?}", core.findings().0).contains(finding));
        let stack = stack.get().expect("it stands");
        let has_one = looked_for(finding).any(|name| stack.contains(name));
        opened.set(()).expect("opened once");
        assert!(has_one, "{finding}: {stack}");
    }
}

impl Wake for Stands {
    fn wake(self: Arc<Self>) {
        self.stand();
    }
}

/// A captured value whose drop does not return.
struct StandsInDrop(Stands);

impl Drop for StandsInDrop {
    fn drop(&mut self) {
        self.0.stand();
    }
}

fn one_worker() -> Builder {
    Builder::new().max_workers(1).queue_capacity(1)
}

#[test]
fn a_waker_shows_as_user_code() {
    let pool = one_worker().build().expect("a pool");
    let (stands, (open, gate)) = (Stands::default(), mpsc::channel::<()>());
    let mut handle = (pool.awaitable())
        .serve(move || gate.recv().unwrap_or_default())
        .expect("space");
    let waker = Waker::from(Arc::new(stands.clone()));
    let polled = Pin::new(&mut handle).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop(open);
    stands.shows_as("UserCode", pool.core());
    end(pool.core());
}

#[test]
fn captures_of_a_late_task_show_as_a_task_behind_user_code() {
    let pool = one_worker().build().expect("a pool");
    let (stands, (_, open)) = (Stands::default(), occupy(&pool.group()));
    let late = pool.with_deadline(Duration::from_nanos(1));
    let value = StandsInDrop(stands.clone());
    late.serve(move || drop(value)).expect("space");
    drop(open);
    stands.shows_as("TaskBehindUserCode", pool.core());
    end(pool.core());
}

#[test]
fn hooks_show_as_hooks() {
    let (start, stop) = (Stands::default(), Stands::default());
    let (starts, stops) = (start.clone(), stop.clone());
    let pool = one_worker().on_worker_start(move |_| starts.stand());
    let pool = pool.on_worker_stop(move |_| stops.stand());
    let pool = pool.build().expect("a pool");
    let core = pool.core();
    assert!(serves(core, || ()));
    start.shows_as("StartHook", core);
    thread::scope(|s| {
        s.spawn(|| end(core));
        stop.shows_as("StopHook", core);
    });
}
