//! Counts the tasks that ran, so that no figure can be of tasks that did not.
//!
//! Every thread counts on a line of its own: two workers that shared a counter
//! would spend more time on it than on anything this program measures.

use crossbeam_utils::CachePadded;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

type Stripe = CachePadded<AtomicU64>;

/// The stripes of living threads, and what ended threads counted.
static STRIPES: Mutex<(Vec<Arc<Stripe>>, u64)> = Mutex::new((Vec::new(), 0));

struct Mine(Arc<Stripe>);

impl Drop for Mine {
    fn drop(&mut self) {
        let mut stripes = STRIPES.lock().expect("no panic while held");
        stripes.0.retain(|s| !Arc::ptr_eq(s, &self.0));
        stripes.1 += self.0.load(Ordering::Acquire);
    }
}

thread_local! {
    // Two variables: this one needs no destructor and is read for every task.
    static FAST: Cell<*const Stripe> = const { Cell::new(std::ptr::null()) };
    static MINE: RefCell<Option<Mine>> = const { RefCell::new(None) };
}

/// One more task ran.
#[inline]
pub(crate) fn tick() {
    let mut stripe = FAST.get();
    if stripe.is_null() {
        stripe = register();
    }
    // SAFETY: `MINE` of this thread keeps the stripe; a task cannot run after
    // the thread's destructors.
    let stripe = unsafe { &*stripe };
    // One writer: no read-modify-write.
    stripe.store(stripe.load(Ordering::Relaxed) + 1, Ordering::Release);
}

#[cold]
fn register() -> *const Stripe {
    let stripe = Arc::new(Stripe::default());
    let fast = Arc::as_ptr(&stripe);
    STRIPES
        .lock()
        .expect("no panic while held")
        .0
        .push(Arc::clone(&stripe));
    MINE.set(Some(Mine(stripe)));
    FAST.set(fast);
    fast
}

fn total() -> u64 {
    let stripes = STRIPES.lock().expect("no panic while held");
    stripes.1
        + stripes
            .0
            .iter()
            .map(|s| s.load(Ordering::Acquire))
            .sum::<u64>()
}

/// Who is being measured: to be blamed where tasks are missing.
static MEASURED: Mutex<&str> = Mutex::new("");

pub(crate) fn measure_now(name: &'static str) {
    *MEASURED.lock().expect("no panic while held") = name;
}

fn now_measured() -> &'static str {
    *MEASURED.lock().expect("no panic while held")
}

/// Counts from a moment on.
#[derive(Debug)]
pub(crate) struct Tally(u64);

impl Tally {
    pub(crate) fn start() -> Self {
        Self(total())
    }

    pub(crate) fn ran(&self) -> u64 {
        total() - self.0
    }

    /// Waits until `n` tasks have run. Looks a few times at once, then sleeps
    /// between two looks: a thread that spins here would take a core from the
    /// workers.
    pub(crate) fn wait(&self, n: u64) {
        for _ in 0..20 {
            if self.ran() >= n {
                return self.check(n);
            }
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
        let start = Instant::now();
        while self.ran() < n {
            thread::sleep(Duration::from_micros(20));
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{}: lost tasks: {} of {n} ran",
                now_measured(),
                self.ran()
            );
        }
        self.check(n);
    }

    /// Exactly `n` tasks have run.
    pub(crate) fn check(&self, n: u64) {
        let (name, ran) = (now_measured(), self.ran());
        assert_eq!(ran, n, "{name}: tasks that ran, tasks submitted");
    }
}

/// Holds workers until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: std::sync::Condvar,
}

impl Gate {
    pub(crate) fn pass(&self) {
        let mut open = self.open.lock().expect("no panic while held");
        while !*open {
            open = self.opened.wait(open).expect("no panic while held");
        }
    }

    pub(crate) fn open(&self) {
        *self.open.lock().expect("no panic while held") = true;
        self.opened.notify_all();
    }
}
