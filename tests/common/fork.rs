//! Children made by `fork`, and the checks of their parent's pool that they may make: law 19.

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::{assert_cap_usable, check_at_rest, ms, LIMIT, LONG};
use lazypool::{DeadlineError, Group, Pool, Refusal, Refused, Shutdown, WhenFull};

pub const MODES: [Shutdown; 3] = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];

pub fn fork() -> i32 {
    // SAFETY: each child here uses only pools, the allocator (which the C library makes usable in a
    // child) and `_exit`. These tests are about the pool's own locks, which another thread may
    // hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    child
}

pub fn exit(code: i32) -> ! {
    // SAFETY: `_exit` ends the process without running any code of its parent.
    unsafe { libc::_exit(code) }
}

/// Returns the exit code of a child. Fails if the child hangs.
#[track_caller]
pub fn code_of(child: i32) -> i32 {
    let mut status = 0;
    let mut ended = false;
    let mut turns = 0;
    while !ended && turns < 1000 {
        // SAFETY: `status` is valid for the call; `child` is a child of this process that has not
        // been waited for.
        ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child;
        turns += 1;
        if !ended {
            thread::sleep(ms(if turns < 50 { 1 } else { 30 }));
        }
    }
    if !ended {
        // SAFETY: `child` has not been waited for, so its number still belongs to it.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(ended, "the child hangs");
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Runs `body` in a child and waits until the child ends.
#[track_caller]
pub fn in_child(body: impl FnOnce()) {
    let child = fork();
    if child == 0 {
        let outcome = panic::catch_unwind(AssertUnwindSafe(body));
        exit(i32::from(outcome.is_err()));
    }
    assert_eq!(code_of(child), 0, "the child found something wrong");
}

#[track_caller]
pub fn is_forked<F>(outcome: Result<(), Refused<F>>) {
    let refused = outcome.expect_err("nothing is accepted in a child");
    assert!(matches!(refused.reason(), Refusal::Forked), "{refused:?}");
}

#[track_caller]
fn call_is_forked<F, R>(outcome: Result<R, DeadlineError<F>>) {
    match outcome {
        Err(DeadlineError::Refused(refused)) => is_forked(Err(refused)),
        _ => panic!("not refused as forked"),
    }
}

/// Tries, in a child, every way to submit to the parent's pool and its groups, then `shutdown`.
#[track_caller]
pub fn assert_refuses(pool: &Pool, groups: &[Group]) {
    let ran = Arc::new(AtomicUsize::new(0));
    let task = || {
        let ran = Arc::clone(&ran);
        move || {
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    is_forked(pool.serve(task()));
    call_is_forked(pool.do_with_deadline(task(), Duration::MAX));
    call_is_forked(pool.do_with_deadline(task(), Duration::from_nanos(1)));
    let at_once = pool.do_with_deadline(task(), Duration::ZERO);
    assert!(matches!(at_once, Err(DeadlineError::Expired(_))));
    drop(at_once);
    for policy in [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)] {
        let with = pool.labeled("child").when_full(policy);
        is_forked(with.serve(task()));
        is_forked(with.with_deadline(LONG).min_remaining(ms(1)).serve(task()));
        call_is_forked(with.do_with_deadline(task(), LONG));
        is_forked(with.awaitable().serve(task()).map(drop));
        is_forked(with.group().serve(task()));
        with.scope(|s| is_forked(s.serve(task())));
    }
    assert_groups_refuse(groups, &task);
    let mut served = pin!(pool.awaitable().serve_async(task()));
    let polled = served
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(outcome) => is_forked(outcome.map(drop)),
        Poll::Pending => panic!("the future waits"),
    }
    for mode in MODES {
        let report = pool.shutdown(mode, Duration::MAX);
        assert!(report.is_clean(), "{report:?}");
    }
    is_forked(pool.serve(task()));
    assert_eq!(ran.load(Ordering::SeqCst), 0, "a closure ran");
    assert_eq!(Arc::strong_count(&ran), 1, "each refused closure came back");
}

/// Submits to the parent's groups in a child. Each submission must be refused as `Forked`.
#[track_caller]
pub fn assert_groups_refuse<F>(groups: &[Group], task: &impl Fn() -> F)
where
    F: FnOnce() + Send + 'static,
{
    for group in groups {
        is_forked(group.serve(task()));
        is_forked(group.awaitable().serve(task()).map(drop));
    }
}

/// Makes all checks in a child: submissions, `shutdown`, the drop, and a pool that the child
/// builds.
#[track_caller]
pub fn assert_child(pool: &mut Option<Pool>, groups: &[Group]) {
    let pool = pool.take().expect("the child's copy");
    assert_refuses(&pool, groups);
    drop(pool);
    assert_groups_refuse(groups, &|| || ());
    assert_own_pool_works();
}

#[track_caller]
pub fn assert_own_pool_works() {
    let own = Pool::builder().max_workers(2).queue_capacity(2).build();
    let own = own.expect("a pool of the child's own");
    assert_eq!(own.do_with_deadline(|| 1, LONG).unwrap(), 1);
    assert!(own.shutdown(Shutdown::Drain, LIMIT).is_clean());
}

/// Forks, checks the pool in the child, and returns the parent's pool.
#[track_caller]
pub fn fork_beside(pool: Pool, group: &Group) -> Pool {
    let mut pool = Some(pool);
    in_child(|| assert_child(&mut pool, std::slice::from_ref(group)));
    pool.take().expect("the parent's")
}

#[track_caller]
pub fn fork_thrice(pool: Pool, group: &Group) -> Pool {
    (0..3).fold(pool, |pool, _| fork_beside(pool, group))
}

/// Checks in the parent that the whole cap of the pool is usable and that it shuts down cleanly.
#[track_caller]
pub fn assert_ends_well(pool: &Pool) {
    assert_cap_usable(pool);
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    check_at_rest(pool, &pool.stats());
}
