//! Tests of submissions that join a line.

use super::*;
use crate::parts::line::POOL;
use crate::sync::Patience;
use std::sync::OnceLock;

/// A waker that notes that it was called.
#[derive(Default)]
struct Called(OnceLock<()>);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        let _ = self.0.set(());
    }
}

/// Laws 3 and 20: a thread has given a permit back, and was stopped before it passes it to the first future in line. A call
/// that joins the line leaves that to this thread: it calls no waker of the future, and returns at its deadline.
#[test]
fn a_call_that_joins_a_line_serves_no_other() {
    let pool = Builder::new().max_workers(1).queue_capacity(0);
    let pool = pool.build().expect("a pool");
    let core = pool.core();
    let (permit, _) = core.gate.take().expect("a permit");
    let called = Arc::new(Called::default());
    let waker = Waker::from(Arc::clone(&called));
    let mut in_line = pin!(pool.awaitable().serve_async(|| ()));
    let mut context = Context::from_waker(&waker);
    assert!(in_line.as_mut().poll(&mut context).is_pending());
    assert!(core.gate.give(permit).needs_care());
    let call = pool
        .when_full(WhenFull::Block)
        .do_with_deadline(|| (), Duration::from_millis(20));
    assert!(matches!(call, Err(DeadlineError::Expired(_))));
    assert!(called.0.get().is_none(), "by this thread");
    let mut owed = Owed::default();
    let passed = core.pass(POOL, Patience::Waits, &mut owed);
    passed.expect("it waits for the lock");
    core.pay(&mut owed);
    assert!(called.0.get().is_some());
    until(|| in_line.as_mut().poll(&mut context).is_ready());
    end(core);
}
