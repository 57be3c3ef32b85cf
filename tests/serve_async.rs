//! `Awaitable::serve_async`: a submission that waits for space without a thread.
use lazypool::*;
use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

struct Count(AtomicUsize, std::thread::Thread);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
        self.1.unpark();
    }
}
fn waker() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0), std::thread::current()));
    (Arc::clone(&count), Waker::from(count))
}
fn block_on<F: Future>(f: F) -> F::Output {
    let (_, waker) = waker();
    let mut f = pin!(f);
    let start = Instant::now();
    loop {
        if let Poll::Ready(r) = f.as_mut().poll(&mut Context::from_waker(&waker)) {
            return r;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it hangs");
        std::thread::park_timeout(Duration::from_secs(20));
    }
}
fn poll<F: Future + Unpin>(f: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(f).poll(&mut Context::from_waker(waker))
}
fn full(queue: usize) -> (Pool, mpsc::Sender<()>) {
    let pool = Pool::builder()
        .max_workers(1)
        .queue_capacity(queue)
        .build()
        .unwrap();
    let (open, gate) = mpsc::channel::<()>();
    pool.serve(move || drop(gate.recv())).unwrap();
    while pool.stats().running == 0 {
        std::thread::yield_now();
    }
    for _ in 0..queue {
        pool.serve(|| ()).unwrap();
    }
    assert!(pool.serve(|| ()).is_err());
    (pool, open)
}
fn until(what: &str, f: impl Fn() -> bool) {
    let start = Instant::now();
    while !f() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn it_wakes_on_space_and_gives_the_value() {
    for queue in [0, 1] {
        let (pool, open) = full(queue);
        let (count, waker) = waker();
        let mut serve = pool.awaitable().serve_async(|| 42);
        assert!(poll(&mut serve, &waker).is_pending());
        assert_eq!(pool.stats().waiting, 1);
        assert_eq!(count.0.load(SeqCst), 0);
        drop(open);
        until("woken", || count.0.load(SeqCst) == 1);
        let Poll::Ready(Ok(handle)) = poll(&mut serve, &waker) else {
            panic!("ready")
        };
        assert_eq!(handle.join().unwrap(), 42);
        assert_eq!(
            block_on(block_on(pool.awaitable().serve_async(|| 1)).unwrap()).unwrap(),
            1
        );
        assert_eq!(pool.stats().waiting, 0);
    }
}

#[test]
fn dropped_while_waiting_it_leaves_and_the_next_is_served() {
    for queue in [0, 1] {
        let (pool, open) = full(queue);
        let (_, waker) = waker();
        let drops = Arc::new(());
        let (a, ran) = (Arc::clone(&drops), Arc::new(AtomicUsize::new(0)));
        let r = Arc::clone(&ran);
        let mut first = pool.awaitable().serve_async(move || {
            r.fetch_add(100, SeqCst);
            drop(a)
        });
        let r = Arc::clone(&ran);
        let mut second = pool.awaitable().serve_async(move || {
            r.fetch_add(1, SeqCst);
        });
        assert!(poll(&mut first, &waker).is_pending());
        assert!(poll(&mut second, &waker).is_pending());
        drop(first);
        assert_eq!(Arc::strong_count(&drops), 1);
        assert_eq!(pool.stats().waiting, 1);
        drop(open);
        block_on(block_on(second).unwrap()).unwrap();
        assert_eq!(ran.load(SeqCst), 1);
    }
}

/// Served, and dropped before it was polled again: its handle is dropped.
#[test]
fn dropped_once_it_is_served_it_cancels() {
    let (pool, open) = full(1);
    let (count, waker) = waker();
    let mut serve = pool
        .awaitable()
        .serve_async(|| while !task::is_cancelled() {});
    assert!(poll(&mut serve, &waker).is_pending());
    drop(open);
    until("woken", || count.0.load(SeqCst) == 1);
    drop(serve);
    until("at rest", || {
        pool.stats().running == 0 && pool.stats().queued == 0
    });
}

#[test]
fn never_polled_again_it_holds_nobody_up() {
    for queue in [0, 1] {
        let (pool, open) = full(queue);
        let (_, waker) = waker();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut forgotten: Vec<_> = (0..3)
            .map(|n| {
                let ran = Arc::clone(&ran);
                let mut f = pool
                    .awaitable()
                    .serve_async(move || ran.lock().unwrap().push(n));
                assert!(poll(&mut f, &waker).is_pending());
                f
            })
            .collect();
        std::thread::scope(|s| {
            let block = pool.when_full(WhenFull::Block);
            let r = Arc::clone(&ran);
            let blocked = s.spawn(move || block.serve(move || r.lock().unwrap().push(3)).is_ok());
            until("waits", || pool.stats().waiting == 4);
            drop(open);
            assert!(blocked.join().unwrap());
            until("all have run", || ran.lock().unwrap().len() == 4);
        });
        assert_eq!(*ran.lock().unwrap(), [0, 1, 2, 3], "in their order");
        std::mem::forget(forgotten.pop());
        drop(forgotten);
        assert_eq!(pool.stats().completed, 5 + queue as u64);
    }
}

#[test]
fn a_shutdown_gives_it_back() {
    for mode in [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel] {
        let (pool, open) = full(1);
        let (count, waker) = waker();
        let mut serve = pool.awaitable().serve_async(|| 7);
        assert!(poll(&mut serve, &waker).is_pending());
        pool.shutdown(mode, Duration::ZERO);
        assert_eq!(count.0.load(SeqCst), 1);
        let Poll::Ready(Err(refused)) = poll(&mut serve, &waker) else {
            panic!("refused")
        };
        assert!(refused.is_closed());
        assert_eq!(refused.run_anyway(), 7);
        drop(open);
        assert!(pool.shutdown(mode, Duration::MAX).is_clean());
        assert!(block_on(pool.awaitable().serve_async(|| 7))
            .unwrap_err()
            .is_closed());
    }
}

#[test]
fn a_cancelled_group_gives_it_back() {
    let (pool, open) = full(1);
    let (count, waker) = waker();
    let (group, other) = (pool.group(), pool.group());
    let mut serve = group.awaitable().serve_async(|| 7);
    let mut kept = other.awaitable().serve_async(|| 8);
    assert!(poll(&mut serve, &waker).is_pending());
    assert!(poll(&mut kept, &waker).is_pending());
    assert_eq!(group.pending(), 1);
    group.cancel();
    assert_eq!(count.0.load(SeqCst), 1);
    let Poll::Ready(Err(refused)) = poll(&mut serve, &waker) else {
        panic!("refused")
    };
    assert!(matches!(refused.reason(), Refusal::Cancelled));
    group.wait();
    drop(open);
    assert_eq!(block_on(block_on(kept).unwrap()).unwrap(), 8);
    other.wait();
    assert_eq!(other.completed(), 1);
}

/// Whose waker submits again: on a worker that is idle.
#[test]
fn a_waker_may_submit() {
    struct Again(Arc<Pool>, AtomicUsize);
    impl Wake for Again {
        fn wake(self: Arc<Self>) {
            let this = Arc::clone(&self);
            let served = self.0.serve(move || {
                this.1.fetch_add(1, SeqCst);
            });
            let called = self.0.do_with_deadline(|| (), Duration::from_secs(5));
            assert!(called.is_err() || called.is_ok());
            self.1.fetch_add(if served.is_ok() { 0 } else { 1 }, SeqCst);
        }
    }
    for queue in [0, 1] {
        let (pool, open) = full(queue);
        let pool = Arc::new(pool);
        let again = Arc::new(Again(Arc::clone(&pool), AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&again));
        let mut serve = pool.awaitable().serve_async(|| 7);
        assert!(poll(&mut serve, &waker).is_pending());
        drop(open);
        until("it has submitted", || again.1.load(SeqCst) == 1);
        assert_eq!(block_on(block_on(serve).unwrap()).unwrap(), 7);
    }
}

/// Many futures and threads, some dropped, some late: every closure is run or dropped once.
#[test]
fn a_storm() {
    for (workers, queue) in [(1, 0), (2, 0), (1, 1), (2, 3)] {
        let pool = Pool::builder()
            .max_workers(workers)
            .queue_capacity(queue)
            .idle_timeout(Duration::from_millis(1))
            .build()
            .unwrap();
        let (ran, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let out = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for t in 0..6_u64 {
                let (pool, ran, alive, out) = (&pool, &ran, &alive, &out);
                s.spawn(move || {
                    let (_, waker) = waker();
                    let mut seed = t + 1;
                    for _ in 0..3000 {
                        seed = seed
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let (r, a) = (Arc::clone(ran), Arc::clone(alive));
                        let f = move || {
                            r.fetch_add(1, SeqCst);
                            drop(a)
                        };
                        match (seed >> 33) % 6 {
                            0 => {
                                let mut f = pool.awaitable().serve_async(f);
                                drop(poll(&mut f, &waker));
                            }
                            1 => {
                                block_on(pool.awaitable().serve_async(f)).unwrap().detach();
                                out.fetch_add(1, SeqCst);
                            }
                            2 => {
                                block_on(block_on(pool.awaitable().serve_async(f)).unwrap())
                                    .unwrap();
                                out.fetch_add(1, SeqCst);
                            }
                            3 => {
                                pool.when_full(WhenFull::Block).serve(f).unwrap();
                                out.fetch_add(1, SeqCst);
                            }
                            4 => {
                                let w = WhenFull::BlockFor(Duration::from_micros(seed % 300));
                                if pool.when_full(w).serve(f).is_ok() {
                                    out.fetch_add(1, SeqCst);
                                }
                            }
                            _ => {
                                let w = pool.when_full(WhenFull::Block);
                                if w.do_with_deadline(f, Duration::from_micros(seed % 300))
                                    .is_ok()
                                {
                                    out.fetch_add(1, SeqCst);
                                }
                                if seed % 7 == 0 {
                                    pool.set_limit(1 + (seed >> 40) as usize % workers).unwrap();
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(pool.shutdown(Shutdown::Drain, Duration::MAX).is_clean());
        assert_eq!(Arc::strong_count(&alive), 1);
        assert!(ran.load(SeqCst) >= out.load(SeqCst));
        let stats = pool.stats();
        assert_eq!((stats.waiting, stats.queued, stats.running), (0, 0, 0));
        assert_eq!(
            stats.accepted,
            stats.completed + stats.discarded + stats.expired
        );
    }
}
