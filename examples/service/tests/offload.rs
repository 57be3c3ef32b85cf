//! Tests `offload` and `offload_waiting` of the guide to async code, for each way in which a request
//! can end, and under overload. They are in the file that the guide shows; `guides.rs` compares the
//! two. Also tests the guide's excerpt that limits the number of a tenant's requests in line.

#[path = "../examples/minimal/offload.rs"]
mod offload;

use lazypool::{task, Group, Pool, Shutdown, Submitter, WhenFull};
use offload::{offload, offload_waiting, Failed};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LONG: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(30);

fn pool(queue: usize) -> Arc<Pool> {
    let builder = Pool::builder().max_workers(1).queue_capacity(queue);
    Arc::new(builder.build().expect("pool"))
}

/// Returns a submitter without any effect.
fn on(pool: &Pool) -> Submitter<'_> {
    pool.when_full(WhenFull::Refuse)
}

/// Offloads work in a task of the runtime.
fn spawn(pool: &Arc<Pool>, work: impl FnOnce() + Send + 'static) -> JoinHandle<Result<(), Failed>> {
    let pool = Arc::clone(pool);
    tokio::spawn(async move { offload(on(&pool), LONG, work).await })
}

async fn until(what: &str, cond: impl Fn() -> bool) {
    let start = Instant::now();
    while !cond() {
        assert!(start.elapsed() < LIMIT, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs until the task is cancelled.
fn patient() {
    while !task::is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_value() {
    let pool = pool(0);
    let seen = || (task::label(), task::deadline().is_some());
    let seen = offload(pool.labeled("sum"), LONG, seen).await;
    assert_eq!(seen, Ok((Some("sum"), true)));
}

/// Finding 1 of the trial by new users: after three clients had left, one task ran and two waited.
#[tokio::test]
async fn hang_up() {
    let pool = pool(4);
    let started = Arc::new(AtomicBool::new(false));
    let requests = [(); 3].map(|()| {
        let started = Arc::clone(&started);
        let work = move || {
            started.store(true, Ordering::SeqCst);
            patient();
        };
        spawn(&pool, work)
    });
    // Wait until the first task has started. Before that, it could still be taken back.
    until("one to run", || {
        started.load(Ordering::SeqCst) && pool.stats().queued == 2
    })
    .await;
    // axum drops the future of a client that is gone, as `abort` does. Abort the running one last:
    // otherwise its worker could take the next task before that one is discarded.
    requests[1].abort();
    requests[2].abort();
    until("two to be discarded", || pool.stats().discarded == 2).await;
    requests[0].abort();
    until("none", || {
        pool.stats().running == 0 && pool.stats().queued == 0
    })
    .await;
    let stats = pool.stats();
    assert_eq!((stats.completed, stats.discarded), (1, 2), "{stats:?}");
}

/// Finding 4 of the trial: no counter showed such timeouts.
#[tokio::test]
async fn time_out() {
    let pool = pool(4);
    let deadline = Duration::from_secs(1);
    let (hear, deaf) = mpsc::channel::<()>();
    let never = Arc::new(AtomicBool::new(false));
    let ran = Arc::clone(&never);
    let (running, queued) = tokio::join!(
        offload(on(&pool), deadline, move || {
            assert!(task::deadline().is_some());
            deaf.recv().expect("until it is told");
        }),
        offload(on(&pool), deadline, move || ran
            .store(true, Ordering::SeqCst)),
    );
    assert_eq!(running, Err(Failed::TimedOut));
    assert_eq!(queued, Err(Failed::Expired), "it never ran");
    let stats = pool.stats();
    assert_eq!((stats.abandoned, stats.running), (1, 1), "{stats:?}");
    hear.send(()).expect("it waits");
    until("the end", || pool.stats().running == 0).await;
    let stats = pool.stats();
    assert_eq!((stats.timed_out, stats.completed), (1, 1), "{stats:?}");
    assert_eq!(stats.expired, 1, "{stats:?}");
    assert!(!never.load(Ordering::SeqCst));
}

/// If the work takes longer than the time left, the request fails long before its deadline.
#[tokio::test]
async fn too_late_to_start() {
    let pool = pool(0);
    let never = Arc::new(AtomicBool::new(false));
    let ran = Arc::clone(&never);
    let work = move || ran.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let late = offload(pool.min_remaining(2 * LONG), LONG, work).await;
    assert_eq!(late, Err(Failed::Expired));
    assert!(start.elapsed() < LONG);
    until("the count", || pool.stats().expired == 1).await;
    assert!(!never.load(Ordering::SeqCst));
}

#[tokio::test]
async fn panic() {
    let pool = pool(0);
    let answer = offload(on(&pool), LONG, || resume_unwind(Box::new("on purpose"))).await;
    assert_eq!(answer, Err::<(), _>(Failed::Panicked));
    until("the count", || pool.stats().panicked == 1).await;
}

/// Finding 1 of the trial: a task that a shutdown discarded was reported as a panic.
#[tokio::test]
async fn shutdown() {
    let pool = pool(4);
    let first = spawn(&pool, patient);
    until("it to run", || pool.stats().running == 1).await;
    let second = spawn(&pool, || ());
    until("it to queue", || pool.stats().queued == 1).await;
    pool.shutdown(Shutdown::Cancel, Duration::ZERO);
    assert_eq!(
        first.await.expect("no panic"),
        Ok(()),
        "it saw the cancel, and returned"
    );
    let discarded = second.await.expect("no panic");
    assert_eq!(discarded, Err(Failed::Closed));
    let refused = offload(on(&pool), LONG, || ()).await;
    assert_eq!(refused, Err(Failed::Closed));
}

/// The runtime drops its futures, and with them the handles. That cancels a running task, and a
/// queued one never starts.
#[test]
fn a_runtime_that_ends_before_the_task() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().expect("runtime");
    let pool = pool(1);
    let [started, never] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (open, gate) = mpsc::channel();
    let (first, pool_too) = (Arc::clone(&started), Arc::clone(&pool));
    runtime.spawn(async move {
        let work = move || {
            first.store(true, Ordering::SeqCst);
            patient();
            // Without this wait, the worker might take the other task before its handle is dropped.
            gate.recv().expect("until it is told");
        };
        offload(on(&pool_too), LONG, work).await
    });
    runtime.block_on(until("the first to run", || started.load(Ordering::SeqCst)));
    let (ran, pool_too) = (Arc::clone(&never), Arc::clone(&pool));
    let work = move || ran.store(true, Ordering::SeqCst);
    runtime.spawn(async move { offload(on(&pool_too), LONG, work).await });
    runtime.block_on(until("the other to queue", || pool.stats().queued == 1));
    drop(runtime);
    let stats = pool.stats();
    assert_eq!((stats.queued, stats.discarded), (0, 1), "{stats:?}");
    open.send(()).expect("it waits");
    let report = pool.shutdown(Shutdown::Drain, LIMIT);
    assert!(report.is_clean(), "it does not see the cancel");
    assert_eq!(pool.stats().completed, 1);
    assert!(!never.load(Ordering::SeqCst));
}

/// Who waits in vain learns that the work never ran. No counter shows that, as the guide to
/// monitoring says.
#[tokio::test]
async fn wait_for_space() {
    let pool = pool(0);
    let (open, gate) = mpsc::channel();
    let first = spawn(&pool, move || gate.recv().expect("until it is told"));
    until("it to run", || pool.stats().running == 1).await;
    let before = pool.stats();
    let never = || panic!("it never starts");
    let late = offload_waiting(on(&pool), Duration::from_millis(20), never).await;
    assert_eq!(late, Err::<(), _>(Failed::Busy));
    assert_eq!(pool.stats(), before, "it has left the line, uncounted");
    // The next one gets the space of the first.
    let (value, ()) = tokio::join!(offload_waiting(on(&pool), LONG, || 42), async {
        until("it to wait", || pool.stats().waiting == 1).await;
        open.send(()).expect("it waits");
    });
    assert_eq!(value, Ok(42));
    assert_eq!(first.await.expect("no panic"), Ok(()));
    assert_eq!(pool.stats().panicked, 0);
}

/// After the wait for space, a task ends as any: with its value, too late, or with a panic.
#[tokio::test]
async fn waiting_has_the_outcomes_of_offload() {
    let pool = pool(1);
    let brief = pool.run_limit(Duration::from_millis(1));
    let late = offload_waiting(brief, LONG, patient).await;
    assert_eq!(late, Err(Failed::TimedOut));
    let (open, gate) = mpsc::channel();
    let first = spawn(&pool, move || gate.recv().expect("until it is told"));
    until("it to run", || pool.stats().running == 1).await;
    let queued = offload_waiting(on(&pool), Duration::from_millis(1), || ()).await;
    assert_eq!(queued, Err(Failed::Expired));
    open.send(()).expect("it waits");
    assert_eq!(first.await.expect("no panic"), Ok(()));
    let panic = || resume_unwind(Box::new("on purpose"));
    let answer = offload_waiting(on(&pool), LONG, panic).await;
    assert_eq!(answer, Err::<(), _>(Failed::Panicked));
    let skipped = offload_waiting(pool.min_remaining(2 * LONG), LONG, || ()).await;
    assert_eq!(skipped, Err(Failed::Expired));
    let none = pool.limited_group(0);
    let refused = offload_waiting(none.labeled("read"), LONG, || ()).await;
    assert_eq!(refused, Err(Failed::TooMany));
    pool.shutdown(Shutdown::Drain, Duration::ZERO);
    let closed = offload_waiting(on(&pool), LONG, || ()).await;
    assert_eq!(closed, Err(Failed::Closed));
}

/// Space comes at the very deadline of those that wait. A caller is told that its work never ran, or
/// that it was too late, and that is so.
#[tokio::test(flavor = "multi_thread")]
async fn space_at_the_deadline() {
    let pool = pool(0);
    for n in 0..200_u64 {
        let wait = Duration::from_millis(1);
        let holds = Duration::from_micros(800 + 10 * (n % 100));
        let starts = Arc::new(AtomicBool::new(false));
        let started = Arc::clone(&starts);
        let first = spawn(&pool, move || {
            starts.store(true, Ordering::SeqCst);
            std::thread::sleep(holds);
        });
        while !started.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        let work = move || runs.store(true, Ordering::SeqCst);
        let answer = offload_waiting(on(&pool), wait, work).await;
        first.await.expect("no panic").unwrap_or_default();
        until("the end", || pool.stats().running == 0).await;
        match answer {
            Ok(()) => assert!(ran.load(Ordering::SeqCst)),
            Err(Failed::TimedOut) => {}
            Err(Failed::Busy | Failed::Expired) => assert!(!ran.load(Ordering::SeqCst)),
            Err(failed) => panic!("{failed}"),
        }
    }
}

/// The guide's excerpt: a tenant may have 4 tasks in the pool, and 32 requests in line.
async fn read<T: Send + 'static>(
    tenant: &Group,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failed> {
    let deadline = LONG;
    if tenant.pending() >= 4 + 32 {
        return Err(Failed::TooMany);
    }
    offload_waiting(tenant.labeled("read"), deadline, work).await
}

/// The line of a full group holds up nobody else, and the excerpt limits its length.
#[tokio::test]
async fn a_line_of_limited_length() {
    let pool = Arc::new(Pool::new(16).expect("pool"));
    let tenant = pool.limited_group(4);
    let requests = [(); 4 + 32].map(|()| {
        let tenant = tenant.clone();
        tokio::spawn(async move { read(&tenant, patient).await })
    });
    until("32 in line", || pool.stats().waiting == 32).await;
    assert_eq!(read(&tenant, || ()).await, Err(Failed::TooMany));
    assert_eq!(offload(on(&pool), LONG, || 1).await, Ok(1));
    requests.iter().for_each(JoinHandle::abort);
    until("none", || tenant.pending() == 0).await;
    assert_eq!(read(&tenant, || 2).await, Ok(2));
    // If others fill the pool, all requests of the tenant wait in line.
    let others = [(); 16].map(|()| spawn(&pool, patient));
    until("a full pool", || pool.stats().running == 16).await;
    let requests = [(); 4 + 32].map(|()| {
        let tenant = tenant.clone();
        tokio::spawn(async move { read(&tenant, patient).await })
    });
    until("36 in line", || pool.stats().waiting == 4 + 32).await;
    assert_eq!(read(&tenant, || ()).await, Err(Failed::TooMany));
    // In this order: the drop of the pool would wait for a request that gets space last.
    requests.iter().for_each(JoinHandle::abort);
    until("none", || tenant.pending() == 0).await;
    others.iter().for_each(JoinHandle::abort);
    until("the end", || pool.stats().running == 0).await;
}

#[tokio::test]
async fn refusal() {
    let pool = pool(0);
    let first = spawn(&pool, patient);
    until("it to run", || pool.stats().running == 1).await;
    let refused = offload(on(&pool), LONG, || ()).await;
    assert_eq!(refused, Err(Failed::Busy));
    assert_eq!(pool.stats().refusals.saturated, 1);
    first.abort();
}

/// A worker of the pool must not wait for a place, which its own task may have to make.
#[tokio::test]
async fn refusal_on_a_worker() {
    let pool = pool(0);
    let (inner, runtime) = (Arc::clone(&pool), tokio::runtime::Handle::current());
    let nested = move || runtime.block_on(offload_waiting(on(&inner), LONG, || ()));
    assert_eq!(
        offload(on(&pool), LONG, nested).await,
        Ok(Err(Failed::Busy))
    );
    assert_eq!(pool.stats().refusals.on_worker, 1);
}

/// Two routes of a tenant use one share. A tenant whose group is cancelled gets no more values.
#[tokio::test]
async fn a_share() {
    let pool = pool(4);
    let tenant = pool.limited_group(1);
    let (read, write) = (tenant.labeled("read"), tenant.labeled("write"));
    assert_eq!(offload(read, LONG, || 1).await, Ok(1));
    let (tell, told) = oneshot::channel();
    let waits = offload(write, LONG, move || {
        tell.send(task::label()).expect("the test waits for this");
        patient();
    });
    let other = async {
        // A figure is not enough: a task that a worker has, and has not started, would see no cancel.
        assert_eq!(told.await, Ok(Some("write")));
        let full = offload(read, LONG, || ()).await;
        assert_eq!(full, Err(Failed::TooMany));
        assert_eq!(
            offload(on(&pool), Duration::from_millis(1), || ()).await,
            Err(Failed::Expired)
        );
        tenant.cancel();
    };
    let (written, ()) = tokio::join!(waits, other);
    assert_eq!(written, Ok(()), "it saw the cancel, and returned");
    assert_eq!(offload(read, LONG, || ()).await, Err(Failed::Closed));
}

/// A task that stops at its deadline may have an incomplete value. No caller gets it, whether the
/// task or its caller is first.
#[tokio::test]
async fn no_value_past_the_deadline() {
    let pool = pool(0);
    for _ in 0..100 {
        let answer = offload(on(&pool), Duration::from_millis(2), patient).await;
        assert!(matches!(answer, Err(Failed::TimedOut | Failed::Expired)));
        until("the end", || pool.stats().running == 0).await;
    }
    let brief = pool.run_limit(Duration::from_millis(2));
    assert_eq!(offload(brief, LONG, patient).await, Err(Failed::TimedOut));
    assert_eq!(pool.stats().refused, 0);
}
