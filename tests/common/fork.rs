//! Children made by `fork`, and the checks of their parent's pool that they may make: law 19.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use lazypool::{Group, Pool, Refused, Shutdown, WhenFull};

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
    let (mut status, start) = (0, Instant::now());
    // SAFETY: `status` is valid for the call; `child` is a child of this process that has not been
    // waited for.
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } != child {
        thread::sleep(ms(1));
        if start.elapsed() > LIMIT {
            // SAFETY: `child` has not been waited for, so its number still belongs to it.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
    }
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
pub fn is_forked<T, F>(outcome: Result<T, Refused<F>>) {
    assert_eq!(reason(outcome), "forked");
}

/// Tries, in a child, every way to submit to the parent's pool and its groups, then `shutdown`.
#[track_caller]
pub fn assert_refuses(pool: &Pool, groups: &[Group]) {
    let (ran, made) = (Ledger::new(1), Cell::new(0));
    let task = || {
        made.set(made.get() + 1);
        ran.task(0)
    };
    for policy in [WhenFull::Refuse, WhenFull::Block, WhenFull::BlockFor(LONG)] {
        let on = pool.labeled("child").when_full(policy);
        is_forked(on.serve(task()));
        is_forked(on.with_deadline(LONG).min_remaining(ms(1)).serve(task()));
        for d in [Duration::MAX, LONG, Duration::from_nanos(1)] {
            is_forked::<(), _>(Err(refused(on.do_with_deadline(task(), d))));
        }
        is_forked(on.awaitable().serve(task()));
        is_forked(on.group().serve(task()));
        on.scope(|s| is_forked(s.serve(task())));
    }
    is_expired(pool.do_with_deadline(task(), Duration::ZERO));
    assert_groups_refuse(groups);
    match poll(&mut pool.awaitable().serve_async(task()), Waker::noop()) {
        Poll::Ready(outcome) => is_forked(outcome),
        Poll::Pending => panic!("the future waits"),
    }
    for mode in MODES {
        assert!(pool.shutdown(mode, Duration::MAX).is_clean());
    }
    is_forked(pool.serve(task()));
    let came_back = (ran.runs(0), ran.drops(0));
    assert_eq!(came_back, (0, made.get()));
}

/// Submits to the parent's groups in a child. Each submission must be refused as `Forked`.
#[track_caller]
fn assert_groups_refuse(groups: &[Group]) {
    for group in groups {
        is_forked(group.serve(|| ()));
        is_forked(group.awaitable().serve(|| ()));
        is_forked(group.labeled("child").serve(|| ()));
        is_forked::<(), _>(Err(refused(group.do_with_deadline(|| (), LONG))));
    }
}

/// Makes all checks in a child: submissions, `shutdown`, the drop, and a pool that the child
/// builds.
#[track_caller]
pub fn assert_child(pool: &mut Option<Pool>, groups: &[Group]) {
    let pool = pool.take().expect("the child's copy");
    assert_refuses(&pool, groups);
    drop(pool);
    assert_groups_refuse(groups);
    let own = super::pool(2, 2);
    assert_eq!(own.do_with_deadline(|| 1, LONG).unwrap(), 1);
    assert!(own.shutdown(Shutdown::Drain, LIMIT).is_clean());
}

/// Forks three times, checks the pool in each child, and returns the parent's pool.
#[track_caller]
pub fn fork_thrice(pool: Pool, group: &Group) -> Pool {
    let mut pool = Some(pool);
    for _ in 0..3 {
        in_child(|| assert_child(&mut pool, std::slice::from_ref(group)));
    }
    pool.expect("the parent's")
}

/// Checks in the parent that the whole cap of the pool is usable and that it shuts down cleanly.
#[track_caller]
pub fn assert_ends_well(pool: &Pool) {
    assert_cap_usable(pool);
    assert!(pool.shutdown(Shutdown::Drain, LIMIT).is_clean());
    check_at_rest(pool);
}
