//! A rehearsal of the night on which a pool hangs: a process whose pool hangs in a way that you choose. "When a pool
//! hangs" in the CONTRIBUTING.md of lazypool has the commands for it, and says what the findings mean.
//!
//! ```text
//! cargo run -p service --example rehearsal -- waker
//! kill -USR1 PID
//! kill -USR2 PID
//! ```
//!
//! Each of the ways holds one worker, the only one that the pool's limit allows. So a task waits in the queue, until
//! SIGUSR2 lets the pool have one more worker. In most of them it is user code that hangs. With `stopped`, it is a worker that stands still
//! between two steps, as if the OS had stopped it: its stack has the handler of a signal.

#[cfg(unix)]
#[path = "minimal/signals.rs"]
mod signals;

use lazypool::{Pool, Refused, Shutdown};
use std::future::Future;
use std::pin::pin;
#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use std::{env, mem, process, thread};

/// What hangs, and the finding that says so. A task that hangs leads to none.
pub(crate) const WAYS: &[(&str, &str)] = &[
    ("task", "findings: []"),
    ("waker", "code: UserCode("),
    ("late-drop", "code: TaskBehindUserCode("),
    ("start-hook", "code: StartHook("),
    #[cfg(unix)]
    ("stopped", "aid: OrderNotTaken("),
];

/// Does not return.
fn hang() {
    loop {
        thread::park();
    }
}

struct HangingWaker;

impl Wake for HangingWaker {
    fn wake(self: Arc<Self>) {
        hang();
    }
}

/// A value whose drop does not return.
struct HangsInDrop;

impl Drop for HangsInDrop {
    fn drop(&mut self) {
        hang();
    }
}

/// Has an idle worker of the pool stand still where it sleeps.
#[cfg(unix)]
fn stop_a_worker(pool: &Pool) {
    static STANDS: AtomicBool = AtomicBool::new(false);
    extern "C" fn stand_still(_: libc::c_int) {
        STANDS.store(true, Ordering::SeqCst);
        loop {
            // SAFETY: it may be called in the handler of a signal.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: it has no condition.
    let worker = pool.do_with_deadline(|| unsafe { libc::pthread_self() }, Duration::MAX);
    let worker = worker.expect("space");
    // By then it sleeps.
    thread::sleep(Duration::from_millis(100));
    STANDS.store(false, Ordering::SeqCst);
    let handler = stand_still as extern "C" fn(libc::c_int);
    // SAFETY: the handler does only what a handler may. The pool lets an idle worker live for longer than this takes.
    let sent = unsafe {
        libc::signal(libc::SIGURG, handler as libc::sighandler_t);
        libc::pthread_kill(worker, libc::SIGURG)
    };
    assert_eq!(sent, 0, "an error of `pthread_kill`");
    while !STANDS.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// Returns a pool that hangs in this way, with a task in its queue, and what that task sends. `None` if there is no
/// such way.
pub(crate) fn pool_that_hangs(way: &str) -> Option<(Arc<Pool>, mpsc::Receiver<()>)> {
    let mut pool = Pool::builder().max_workers(2).queue_capacity(2);
    // The end of `main` does not wait for what hangs.
    pool = pool.shutdown_on_drop(Shutdown::Cancel, Duration::ZERO);
    if way == "start-hook" {
        pool = pool.on_worker_start(|slot| {
            if slot == 0 {
                hang();
            }
        });
    }
    let pool = Arc::new(pool.build().expect("no worker starts yet"));
    pool.set_limit(1).expect("at most `max_workers`");
    let (begin, begins) = mpsc::channel::<()>();
    let first = move || begins.recv().unwrap_or_default();
    match way {
        "task" => pool.serve(hang).expect("space"),
        "start-hook" => pool.serve(|| ()).expect("space"),
        #[cfg(unix)]
        "stopped" => stop_a_worker(&pool),
        "waker" => {
            let mut handle = pool.awaitable().serve(first).expect("space");
            let waker = Waker::from(Arc::new(HangingWaker));
            let polled = pin!(&mut handle).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending(), "the task waits");
            // A handle that is dropped or detached drops its waker.
            mem::forget(handle);
        }
        "late-drop" => {
            pool.serve(first).expect("space");
            let late = pool.with_deadline(Duration::from_nanos(1));
            let value = HangsInDrop;
            late.serve(move || drop(value)).expect("space");
        }
        _ => return None,
    }
    drop(begin);
    let (send, sent) = mpsc::channel();
    let last = move || send.send(()).unwrap_or_default();
    let mut last = Some(last);
    // The first task may still be in the queue.
    while let Some(task) = last.take() {
        last = pool.serve(task).err().map(Refused::into_inner);
    }
    Some((pool, sent))
}

fn main() {
    let way = env::args().nth(1).unwrap_or_default();
    let Some((pool, sent)) = pool_that_hangs(&way) else {
        let ways: Vec<_> = WAYS.iter().map(|(way, _)| *way).collect();
        eprintln!("usage: rehearsal {}", ways.join("|"));
        process::exit(2);
    };
    #[cfg(unix)]
    signals::obey(&pool).expect("handlers for the signals");
    println!(
        "{way}: process {} hangs, with a task in its queue",
        process::id()
    );
    sent.recv().expect("the task is in the queue");
    println!("that task has run");
    process::exit(0);
}
