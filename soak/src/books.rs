//! The ledger of one pool: counts of the fates of all closures and results. They are counted, not
//! listed, so that a run may take days.

use crate::calls::{Caller, From, LABEL};
use crate::faults::{Fault, Plan, Seen};
use crate::rng::{mix, Rng};
use crate::PROGRESS;
use lazypool::{task, Group, Pool, Shutdown, Stats};
use std::cell::RefCell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{panicking, sleep, yield_now};
use std::time::{Duration, Instant};

/// Counts of the events that the callers and closures of one pool saw.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Closures offered to the pool.
    pub(crate) made: AtomicU64,
    /// Closures offered with a deadline of zero, which the pool does not count.
    pub(crate) zero: AtomicU64,
    pub(crate) ran: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Futures that were dropped before their task ran. If one was in line, the pool does not count
    /// it.
    pub(crate) left: AtomicU64,
    /// Closures that came back, for any reason, and those that came back as expired.
    pub(crate) back: AtomicU64,
    pub(crate) back_expired: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    /// Tasks that must count as panicked.
    pub(crate) panics: AtomicU64,
    pub(crate) hook_panics: AtomicU64,
    /// Tasks whose handle said `Expired`, and those whose handle said that they never ran.
    pub(crate) told_expired: AtomicU64,
    pub(crate) told_discarded: AtomicU64,
    pub(crate) results: AtomicU64,
    pub(crate) inside: AtomicU64,
    pub(crate) most_inside: AtomicU64,
}

pub(crate) fn add(n: &AtomicU64) {
    n.fetch_add(1, SeqCst);
}

pub(crate) fn get(n: &AtomicU64) -> u64 {
    n.load(SeqCst)
}

/// Everything that belongs to one pool, except the pool itself: a task may drop the last reference
/// to the pool.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) plan: Plan,
    pub(crate) blocks: bool,
    pub(crate) workers: usize,
    pub(crate) books: Books,
    pub(crate) seen: Seen,
    pub(crate) pool: OnceLock<Weak<Pool>>,
    /// Another pool, to which tasks of this one submit.
    pub(crate) peer: OnceLock<Weak<Site>>,
    /// Two groups, the second of which has a limit, with the number of tasks that each accepted and
    /// of futures that were dropped in its line.
    pub(crate) groups: OnceLock<[(Group, AtomicU64, AtomicU64); 2]>,
}

impl Site {
    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.get()?.upgrade()
    }

    /// Asserts that the pool counted the events that its callers and tasks saw. `s` is of a pool at
    /// rest.
    pub(crate) fn check(&self, s: &Stats) {
        let books = &self.books;
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        let at_rest = s.accepted == ended && (s.queued, s.running) == (0, 0);
        assert!(at_rest, "the ledger does not balance: {s:?}\n{books:?}");
        let offered = get(&books.made) - get(&books.zero);
        let withdrawn = offered.wrapping_sub(s.accepted + s.refused);
        let told = get(&books.told_expired);
        let late = get(&books.back_expired) - get(&books.zero) + told;
        let late = late.wrapping_sub(s.refusals.expired);
        // A worker without a task may have panicked in a hook, and not be counted yet.
        let hooks = get(&books.hook_panics);
        let hooked = s.hook_panics == hooks || s.hook_panics < hooks && s.workers > 0;
        for (is_right, what) in [
            (withdrawn <= get(&books.left), "offered"),
            (get(&books.ran) == s.completed + s.panicked, "ran"),
            (get(&books.panics) == s.panicked, "panicked"),
            (get(&books.timed_out) == s.timed_out, "timed out"),
            (s.expired >= late, "expired"),
            (hooked, "hook panics"),
        ] {
            assert!(is_right, "{what}: {s:?}\n{books:?}");
        }
        // Tasks that a handle or group cancelled after their deadline count as expired (law 17).
        let most = s.discarded + s.expired - late;
        let silent = get(&books.made) - get(&books.ran) - get(&books.back) - told - withdrawn;
        let groups = self.groups.get().into_iter().flatten();
        let discarded: usize = groups.map(|(group, ..)| group.discarded()).sum();
        let least = discarded as u64 + get(&books.told_discarded);
        let is_right = (least..=most).contains(&silent);
        assert!(is_right, "{silent} dropped silently: {s:?}\n{books:?}");
        self.check_drops();
    }

    /// Asserts what must hold even if there is no pool to ask any more.
    pub(crate) fn check_drops(&self) {
        let books = &self.books;
        let balance = get(&books.inside) == 0
            && get(&books.results) == 0
            && get(&books.dropped) == get(&books.made)
            && get(&books.ran) + get(&books.back) <= get(&books.made)
            && get(&books.most_inside) <= self.workers as u64;
        assert!(balance, "drops: {books:?}");
        for (group, accepted, left) in self.groups.get().into_iter().flatten() {
            let ended = (group.completed() + group.panicked() + group.discarded()) as u64;
            let most = get(accepted) + get(left);
            let is_right = group.pending() == 0 && (get(accepted)..=most).contains(&ended);
            assert!(is_right, "{accepted:?} accepted: {group:?}");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Nothing,
    Yields,
    Spins,
    Sleeps,
    AwaitsCancel,
    Submits,
    ShutsDown,
    SetsLocal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Explodes {
    Nothing,
    Task,
    Payload,
    Capture,
    Result,
}

/// The behavior of a closure. It is small, so that a closure with its ticket fits into a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Act {
    /// Names the task, and decides how long it takes.
    pub(crate) tag: u32,
    pub(crate) does: Does,
    pub(crate) explodes: Explodes,
    pub(crate) labeled: bool,
    /// `Some` if the task has a deadline. With `Some(true)`, it runs until the deadline has passed,
    /// so that the ledger knows that it timed out.
    pub(crate) timed: Option<bool>,
}

impl Act {
    pub(crate) fn random(rng: &mut Rng, site: &Site, from: From) -> Self {
        let plan = site.plan;
        let is_first = from == From::Outside;
        let local = plan.has_any(&[Fault::LocalSubmits, Fault::LocalEnds]);
        let nests = plan.has_any(&[Fault::Nested, Fault::OtherPool]);
        let does = match rng.below(40) {
            0..4 => Does::Yields,
            4..10 => Does::Spins,
            10..14 => Does::Sleeps,
            14..16 => Does::AwaitsCancel,
            16..22 if nests && is_first => Does::Submits,
            22 if plan.has(Fault::EndsInside) && is_first && rng.one_in(2) => Does::ShutsDown,
            23..33 if local => Does::SetsLocal,
            _ => Does::Nothing,
        };
        let explodes = match rng.below(24) {
            0 if plan.has(Fault::Panics) => Explodes::Task,
            1 if plan.has(Fault::DropPanics) => Explodes::Payload,
            2 if plan.has(Fault::DropPanics) => Explodes::Capture,
            3 if plan.has(Fault::DropPanics) => Explodes::Result,
            _ => Explodes::Nothing,
        };
        let (tag, labeled, timed) = (rng.draw() as u32, false, None);
        Self {
            tag,
            does,
            explodes,
            labeled,
            timed,
        }
    }

    /// Returns `true` if the caller gets a panic's payload.
    pub(crate) fn panics(self) -> bool {
        !matches!(self.explodes, Explodes::Nothing | Explodes::Result)
    }
}

/// The fate of one closure.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    pub(crate) ran: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl Fate {
    pub(crate) fn has_run(&self) -> bool {
        get(&self.ran) > 0
    }

    /// Asserts that a closure that came back has neither run nor been dropped.
    #[track_caller]
    pub(crate) fn check_unrun(&self) {
        let fate = (get(&self.ran), get(&self.dropped));
        assert_eq!(fate, (0, 0), "handed back: runs and drops");
    }
}

/// Captured by each closure, to count its fate.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) site: Arc<Site>,
    pub(crate) fate: Arc<Fate>,
    /// A hash that reveals a closure whose bytes were damaged on the way. Odd: its drop panics.
    check: u64,
}

impl Ticket {
    pub(crate) fn new(site: &Arc<Site>, act: Act) -> (Self, Arc<Fate>) {
        add(&site.books.made);
        let is_bomb = act.explodes == Explodes::Capture;
        let check = mix(act.tag.into()) & !1 | u64::from(is_bomb);
        let (site, fate) = (Arc::clone(site), Arc::default());
        (
            Self {
                site,
                fate: Arc::clone(&fate),
                check,
            },
            fate,
        )
    }

    /// The body of every closure.
    pub(crate) fn run(self, act: Act) -> Value {
        let site = Arc::clone(&self.site);
        let books = &site.books;
        assert_eq!(self.fate.ran.fetch_add(1, SeqCst), 0, "a closure ran twice");
        assert_eq!(
            self.check & !1,
            mix(act.tag.into()) & !1,
            "another closure's data"
        );
        add(&books.ran);
        PROGRESS.fetch_add(1, SeqCst);
        let inside = books.inside.fetch_add(1, SeqCst) + 1;
        books.most_inside.fetch_max(inside, SeqCst);
        let label = act.labeled.then_some(LABEL);
        let told = (
            task::label(),
            task::deadline().is_some(),
            task::slot().is_some(),
        );
        assert_eq!(told, (label, act.timed.is_some(), true), "{act:?}");
        does(&site, act);
        if act.timed == Some(true) {
            while task::remaining() != Some(Duration::ZERO) {
                sleep(Duration::from_micros(100));
            }
            assert!(task::is_cancelled(), "late, and not cancelled");
            add(&books.timed_out);
        }
        books.inside.fetch_sub(1, SeqCst);
        match act.explodes {
            Explodes::Task => {
                site.seen.note(Fault::Panics);
                add(&books.panics);
                quiet_panic();
            }
            Explodes::Payload => {
                site.seen.note(Fault::DropPanics);
                add(&books.panics);
                resume_unwind(Box::new(Bomb));
            }
            _ => {}
        }
        add(&books.results);
        let value = Value {
            site,
            tag: act.tag,
            is_bomb: act.explodes == Explodes::Result,
        };
        // Not at the closing brace, where a panic of this drop would leak the value
        // (rust-lang/rust#47949).
        drop(self);
        value
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let books = &self.site.books;
        assert_eq!(
            self.fate.dropped.fetch_add(1, SeqCst),
            0,
            "a closure was dropped twice"
        );
        add(&books.dropped);
        if self.check & 1 == 1 && !panicking() {
            self.site.seen.note(Fault::DropPanics);
            books.panics.fetch_add(self.fate.has_run().into(), SeqCst);
            quiet_panic();
        }
    }
}

fn does(site: &Arc<Site>, act: Act) {
    let start = Instant::now();
    let mut rng = Rng::new(act.tag.into());
    let length = rng.micros(600);
    match act.does {
        Does::Nothing => {}
        Does::Yields => yield_now(),
        Does::Spins => while start.elapsed() < length / 8 {},
        Does::Sleeps => sleep(length),
        Does::AwaitsCancel => {
            while start.elapsed() < 10 * length && !task::is_cancelled() {
                sleep(Duration::from_micros(100));
            }
        }
        Does::Submits => submit(site, rng),
        Does::ShutsDown => {
            if let Some(pool) = site.pool() {
                site.seen.note(Fault::EndsInside);
                let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
                let report = pool.shutdown(rng.pick(&modes), Duration::MAX);
                assert!(!report.is_clean(), "this worker has not ended");
            }
        }
        Does::SetsLocal => LOCAL.with(|local| {
            let ends = site.plan.has(Fault::LocalEnds)
                && (!site.plan.has(Fault::LocalSubmits) || rng.one_in(2));
            local.borrow_mut().get_or_insert_with(|| Local {
                site: Arc::clone(site),
                ends,
            });
        }),
    }
}

/// Submits a task from inside a task, to its own pool or to the other one.
fn submit(site: &Arc<Site>, mut rng: Rng) {
    let own = site
        .plan
        .has(Fault::Nested)
        .then_some((From::OwnWorker, Fault::Nested));
    let other = site.peer.get().map(|_| (From::OtherPool, Fault::OtherPool));
    let (from, fault) = match (own, other) {
        (Some(own), Some(other)) => rng.pick(&[own, other]),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return,
    };
    let called = match from {
        From::OtherPool => site.peer.get().and_then(Weak::upgrade),
        _ => Some(Arc::clone(site)),
    };
    let called = called.and_then(|called| Some((called.pool()?, called)));
    if let Some((pool, called)) = called {
        site.seen.note(fault);
        Caller {
            pool: &pool,
            site: &called,
            rng,
            from,
        }
        .one();
    }
}

/// A thread-local value of a worker, whose destructor uses the pool.
struct Local {
    site: Arc<Site>,
    ends: bool,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

impl Drop for Local {
    fn drop(&mut self) {
        let Some(pool) = self.site.pool() else {
            return;
        };
        if self.ends {
            self.site.seen.note(Fault::LocalEnds);
            pool.shutdown(Shutdown::Drain, Duration::ZERO);
        } else {
            self.site.seen.note(Fault::LocalSubmits);
            let rng = Rng::new(get(&self.site.books.made));
            Caller {
                pool: &pool,
                site: &self.site,
                rng,
                from: From::OtherPool,
            }
            .serve();
        }
    }
}

/// The result of a task.
#[derive(Debug)]
pub(crate) struct Value {
    site: Arc<Site>,
    tag: u32,
    is_bomb: bool,
}

impl Value {
    /// Asserts that the result is of this task. Defuses it, as it has arrived: only results that no
    /// caller takes may panic in their drop.
    pub(crate) fn arrived(mut self, act: Act) {
        self.is_bomb = false;
        assert_eq!((self.tag, false), (act.tag, act.panics()), "another result");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        let books = &self.site.books;
        books.results.fetch_sub(1, SeqCst);
        if self.is_bomb && !panicking() {
            self.site.seen.note(Fault::DropPanics);
            add(&books.panics);
            quiet_panic();
        }
    }
}

/// A panic payload whose drop panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !panicking() {
            quiet_panic();
        }
    }
}

/// Panics without the panic hook, which ends the process.
pub(crate) fn quiet_panic() -> ! {
    resume_unwind(Box::new("meant"))
}

/// Drops a value whose drop may panic, and catches the panic.
pub(crate) fn defuse<T>(what: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(what)));
}
