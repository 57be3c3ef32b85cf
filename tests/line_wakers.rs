//! Law 22: wakers of futures in line that submit at once, as those of an executor that polls inline.

mod common;

use common::*;
use lazypool::{Handle, Pool, Refused, ServeAsync};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

type Task = Box<dyn FnOnce() + Send>;
type Awaited = Pin<Box<ServeAsync<Task, ()>>>;

/// A future in line, whose waker polls it, and then a second one of the same kind.
struct Chain {
    pool: Arc<Pool>,
    ledger: Arc<Mutex<Vec<Handle<()>>>>,
    awaited: Mutex<Option<Awaited>>,
    left: Mutex<u32>,
}

impl Chain {
    fn go(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        loop {
            let mut awaited = self.awaited.lock().unwrap();
            let Some(future) = awaited.as_mut() else {
                return;
            };
            let served: Result<Handle<()>, Refused<Task>> = match future.as_mut().poll(&mut context)
            {
                Poll::Pending => return,
                Poll::Ready(served) => served,
            };
            self.ledger
                .lock()
                .unwrap()
                .push(served.expect("the pool is open"));
            let mut left = self.left.lock().unwrap();
            *left -= 1;
            let task: Task = Box::new(|| ());
            let next = || Box::pin(self.pool.awaitable().serve_async(task));
            *awaited = (*left > 0).then(next);
        }
    }
}

impl Wake for Chain {
    fn wake(self: Arc<Self>) {
        self.go();
    }
}

/// The stack of the thread that makes the space does not grow with the length of the line.
#[test]
fn law22_wakers_that_submit_are_not_nested() {
    const CHAINS: usize = 4_000;
    let body = || {
        let pool = Arc::new(pool(1, 2 * CHAINS));
        let gate = Gate::new();
        pool.serve(gate.task()).unwrap();
        gate.wait_entered(1);
        let full = pool.group();
        for _ in 0..2 * CHAINS {
            full.serve(|| ()).unwrap();
        }
        let ledger = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..CHAINS {
            let task: Task = Box::new(|| ());
            let first = Box::pin(pool.awaitable().serve_async(task));
            let chain = Arc::new(Chain {
                pool: Arc::clone(&pool),
                ledger: Arc::clone(&ledger),
                awaited: Mutex::new(Some(first)),
                left: Mutex::new(2),
            });
            chain.go();
        }
        assert_eq!(pool.stats().waiting, CHAINS);
        // All space at once. The first round of wakers submits the second round.
        full.cancel();
        wait_until("both rounds to be accepted", || {
            ledger.lock().unwrap().len() == 2 * CHAINS
        });
        gate.open();
        for handle in std::mem::take(&mut *ledger.lock().unwrap()) {
            handle.join().unwrap();
        }
        assert_eq!(pool.stats().completed, 2 * CHAINS as u64 + 1);
    };
    let thread = thread::Builder::new().stack_size(256 << 10).spawn(body);
    thread.unwrap().join().unwrap();
}
