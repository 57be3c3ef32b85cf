//! A slot: a single-slot channel to one worker thread.
//!
//! # The status word
//!
//! One word is the truth about a slot; the rings only hint at it. It holds a
//! state, three flags and the number of claims so far, and changes only by
//! read-modify-write.
//!
//! | state | who may change it | meaning |
//! |---|---|---|
//! | `FREE` | the popper of its entry in the free ring | no thread |
//! | `STARTING` | the spawner | a thread is being started |
//! | `CLAIMED` | the submitter that claimed it | its task is being written |
//! | `HELD` | the thread that holds it | being woken to look at the queue, or taken back |
//! | `HANDED` | the worker | a task is in the mailbox, or running |
//! | `OFFERED` | worker or caller, by CAS | as `HANDED`, not started; its caller may take it back |
//! | `RUNNING` | the worker | an offered task has started |
//! | `SEEK` | the worker | awake, without an order, looking at the queue |
//! | `IDLE` | anybody, by CAS | waiting for an order |
//! | `RETIRING` | the worker | told to end |
//! | `WARMING` | the worker | in its start hook, without an order |
//! | `STANDBY` | anybody, by CAS, until the hook ends | as `WARMING`, and idle but for that |
//!
//! | from | to | by | publishes |
//! |---|---|---|---|
//! | `IDLE` | `CLAIMED`, claims + 1 | submitter: hint, ready ring or bench | - |
//! | `CLAIMED` | `HANDED`, `OFFERED` | the submitter | the task (Release; Acquire in `order`) |
//! | `OFFERED` | `RUNNING` | worker | - |
//! | `OFFERED` | `HELD` | its caller, at the deadline | - |
//! | `HANDED`, `RUNNING` | `IDLE`, `SEEK` | worker | the emptied mailbox (Release; Acquire in the next claim) |
//! | `HELD` | `IDLE` | the caller that took its task back | as above |
//! | `IDLE` | `HELD`, then `SEEK` | whoever has pushed a task, or sees one, and nobody awake to take it | - |
//! | `SEEK` | `IDLE` | worker that found the queue empty | - |
//! | `IDLE` | `SEEK` | the same worker, looking once more | - |
//! | `IDLE` | `RETIRING` | cleaner (benched ones), shutdown (all) | - |
//! | `RETIRING` | `SEEK` | worker that found a queued task instead | - |
//! | `SEEK` | `RETIRING` | worker that finds the pool closed and the queue empty | - |
//! | `RETIRING` | `FREE` | worker, its last act on the slot | - |
//! | `FREE` | `STARTING` | popper of its free entry | - |
//! | `STARTING` | `HANDED`, `OFFERED` (claims + 1), `SEEK`, `IDLE` | spawner | task and thread handle |
//! | `STARTING` | `FREE` | spawner without a thread | - |
//! | `STARTING` | `WARMING` | spawner, instead of `SEEK` where there is a start hook | thread handle |
//! | `HELD` | `STANDBY` | the caller that took its task back, instead of `IDLE`, during the start hook | as `IDLE` |
//! | `STARTING` | `STANDBY` | spawner of one of `min_workers`, instead of `IDLE` where there is a start hook | thread handle |
//! | `STANDBY` | `CLAIMED`, claims + 1 | submitter that finds nobody idle, while `FRESH` | - |
//! | `WARMING`, `STANDBY` | `SEEK`, `IDLE` | worker, after the hook | - |
//!
//! Flags: `LISTED`: an entry of this slot is in the ready ring, or in the hands
//! of one popper, who always follows through. `BENCHED`: idle for a while;
//! claimed only when no other idle worker is to be had, and retired if it stays
//! so (see `cleaner.rs`). `PARKED`: the worker sleeps; who claims it wakes it.
//! `FRESH`: its start hook has not ended; it is not to become visible as idle.
//!
//! **Invariant**: an `IDLE` slot is `LISTED` or `BENCHED`, so a submitter that
//! finds the ready ring empty and nobody benched has seen every idle worker. A
//! claim by hint leaves the entry behind (`LISTED` stays); the popper of an
//! entry whose slot is not idle clears `LISTED` by CAS, and a worker that loses
//! against that CAS lists itself again before it goes idle.

use crate::park::{Habit, Nearly, Step};
use crate::ring::Ring;
use crate::sync::{thread, AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::task::Task;
use std::mem::MaybeUninit;
use std::time::Instant;

pub(crate) const FREE: u64 = 0;
pub(crate) const STARTING: u64 = 1;
pub(crate) const CLAIMED: u64 = 2;
pub(crate) const HELD: u64 = 3;
pub(crate) const HANDED: u64 = 4;
pub(crate) const OFFERED: u64 = 5;
pub(crate) const RUNNING: u64 = 6;
pub(crate) const SEEK: u64 = 7;
pub(crate) const IDLE: u64 = 8;
pub(crate) const RETIRING: u64 = 9;
pub(crate) const WARMING: u64 = 10;
pub(crate) const STANDBY: u64 = 11;
const STATE: u64 = 15;
const LISTED: u64 = 1 << 4;
const BENCHED: u64 = 1 << 5;
const PARKED: u64 = 1 << 6;
const FRESH: u64 = 1 << 7;
const CLAIM: u64 = 1 << 8;

const fn state(word: u64) -> u64 {
    word & STATE
}

/// The flag of a worker whose life begins with a hook.
const fn fresh(hook: bool) -> u64 {
    if hook {
        FRESH
    } else {
        0
    }
}

/// The word with another state; awake and off the bench.
const fn with_state(word: u64, to: u64) -> u64 {
    word & !(STATE | PARKED | BENCHED) | to
}

/// An idle worker that the caller now owns.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct Claim {
    /// The slot's claim number: names the task that is about to be handed over.
    pub(crate) number: u64,
    /// The worker sleeps and must be woken once it has its order.
    pub(crate) parked: bool,
    /// It sat on the bench; the pool's count of those must go down by one.
    pub(crate) benched: bool,
}

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// A task: counts as accepted.
    Task,
    /// Waking the worker to look at the queue.
    Wake,
}

impl For {
    const fn apply(self, word: u64) -> u64 {
        match self {
            Self::Task => (with_state(word, CLAIMED)).wrapping_add(CLAIM),
            Self::Wake => with_state(word, HELD),
        }
    }
}

/// How a task is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hand {
    /// For good.
    Over,
    /// Its caller may take it back until the worker starts it.
    Offer,
}

impl Hand {
    pub(crate) fn of(task: &Task) -> Self {
        if task.is_awaited() {
            Self::Offer
        } else {
            Self::Over
        }
    }

    const fn state(self) -> u64 {
        match self {
            Self::Over => HANDED,
            Self::Offer => OFFERED,
        }
    }
}

const NOT_BUSY: u32 = 0;
const BUSY: u32 = 1;
/// About to know: a pop is under way.
const POPPING: u32 = 2;

impl Own {
    /// Tasks that have ended on this slot.
    pub(crate) fn tasks(&self) -> u64 {
        self.completed.load(Ordering::SeqCst) + self.panicked.load(Ordering::SeqCst)
    }

    /// Worker: has a task, from before the next step that others can see.
    #[inline]
    pub(crate) fn set_busy(&self) {
        // Relaxed: published by the read-modify-write that follows (the pop, or
        // the change of state).
        self.busy.store(BUSY, Ordering::Relaxed);
    }

    /// Worker: about to look whether there is a task. Until it says, who asks
    /// waits: the task must neither be missed nor be seen where there is none.
    #[inline]
    pub(crate) fn set_popping(&self) {
        // Relaxed: as `set_busy`.
        self.busy.store(POPPING, Ordering::Relaxed);
    }

    /// Worker: has none, and has counted the last.
    #[inline]
    pub(crate) fn set_not_busy(&self) {
        // Release: the count; pairs with the Acquire in `is_busy`.
        self.busy.store(NOT_BUSY, Ordering::Release);
    }

    /// To be asked after the status word has been read.
    pub(crate) fn is_busy(&self) -> bool {
        let mut nearly = Nearly::default();
        loop {
            match self.busy.load(Ordering::Acquire) {
                POPPING => nearly.wait(),
                busy => return busy == BUSY,
            }
        }
    }
}

/// What an idle worker is told.
#[derive(Debug)]
pub(crate) enum Order {
    Run { task: Task, claim: u64 },
    Seek,
    Retire,
}

/// The line that a hand-over moves: the status word and the mailbox.
#[repr(C, align(64))]
#[derive(Debug)]
struct Hot {
    status: AtomicU64,
    mailbox: UnsafeCell<MaybeUninit<Task>>,
}

/// What the worker writes and others rarely read.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Own {
    /// See `wait.rs`.
    pub(crate) decide: AtomicU64,
    /// The deadline at which the running task's caller left.
    pub(crate) left_at: AtomicU64,
    /// Written by the worker of the slot only.
    pub(crate) completed: AtomicU64,
    pub(crate) panicked: AtomicU64,
    /// Whether the worker has a task that the status word does not show: a
    /// queued one, or one that has ended and is not counted yet. Written by the
    /// worker only.
    busy: AtomicU32,
    pub(crate) label: Label,
    /// Written by the spawner while `STARTING`; read by who has claimed it.
    thread: UnsafeCell<Option<thread::Thread>>,
}

/// The label of the running task, for snapshots: a sequence lock with one
/// writer, touched only by labelled tasks.
#[derive(Debug)]
pub(crate) struct Label {
    at: AtomicPtr<u8>,
    len: AtomicU32,
    /// Odd during a write.
    writes: AtomicU32,
}

impl Label {
    pub(crate) fn new() -> Self {
        Self {
            at: AtomicPtr::new(std::ptr::null_mut()),
            len: AtomicU32::new(0),
            writes: AtomicU32::new(0),
        }
    }

    /// Only from the slot's worker.
    pub(crate) fn set(&self, label: Option<&'static str>) {
        let writes = self.writes.load(Ordering::Relaxed);
        self.writes.swap(writes.wrapping_add(1), Ordering::SeqCst);
        let (at, len) = label
            .and_then(|l| Some((l.as_ptr(), u32::try_from(l.len()).ok()?)))
            .unwrap_or((std::ptr::null(), 0));
        self.at.store(at.cast_mut(), Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.writes.swap(writes.wrapping_add(2), Ordering::SeqCst);
    }

    /// The label at some moment; `None` if it keeps changing.
    pub(crate) fn get(&self) -> Option<&'static str> {
        for _ in 0..8 {
            let before = self.writes.load(Ordering::SeqCst);
            let at = self.at.load(Ordering::SeqCst);
            let len = self.len.load(Ordering::SeqCst);
            if before % 2 == 1 || self.writes.load(Ordering::SeqCst) != before {
                continue;
            }
            if at.is_null() {
                return None;
            }
            // SAFETY: no write between the two equal, even readings of `writes`
            // (all `SeqCst`), so both parts are of one `&'static str`.
            let bytes = unsafe { std::slice::from_raw_parts(at.cast_const(), len as usize) };
            // SAFETY: as above: they were a `str`.
            return Some(unsafe { std::str::from_utf8_unchecked(bytes) });
        }
        None
    }
}

#[derive(Debug)]
pub(crate) struct Slot {
    hot: Hot,
    pub(crate) own: Own,
}

// SAFETY: the mailbox and the thread handle are touched only by the thread that
// owns them by the module's tables; a task is Send, a handle Send and Sync.
unsafe impl Sync for Slot {}

/// A reading of the status word. Two equal ones: the same task all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    pub(crate) fn state(self) -> u64 {
        state(self.0)
    }

    /// Tasks handed over, or about to be, since the slot exists.
    pub(crate) fn claims(self) -> u64 {
        self.0 / CLAIM
    }

    pub(crate) fn is_idle(self) -> bool {
        self.state() == IDLE
    }

    pub(crate) fn is_benched(self) -> bool {
        self.0 & BENCHED != 0
    }

    /// Holds a task, by the word alone (a worker in `SEEK` may hold one, too).
    pub(crate) fn is_occupied(self) -> bool {
        matches!(self.state(), CLAIMED | HANDED | OFFERED | RUNNING)
    }
}

impl Slot {
    pub(crate) fn new() -> Self {
        Self {
            hot: Hot {
                status: AtomicU64::new(FREE),
                mailbox: UnsafeCell::new(MaybeUninit::uninit()),
            },
            own: Own {
                decide: AtomicU64::new(0),
                left_at: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                panicked: AtomicU64::new(0),
                busy: AtomicU32::new(NOT_BUSY),
                label: Label::new(),
                thread: UnsafeCell::new(None),
            },
        }
    }

    fn status(&self) -> &AtomicU64 {
        &self.hot.status
    }

    #[inline]
    pub(crate) fn see(&self) -> Seen {
        Seen(self.status().load(Ordering::SeqCst))
    }

    /// CAS on the status word. SeqCst throughout: status changes take part in
    /// the Dekker pairs of `shared.rs`; on x86-64 it costs what AcqRel does.
    #[inline]
    #[cfg_attr(lazypool_loom, track_caller)]
    fn swap_if(&self, from: u64, to: u64) -> bool {
        self.status()
            .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// A change of state by its one owner. Others may clear `LISTED` meanwhile,
    /// so it is an addition; the word read before is returned.
    #[inline]
    #[cfg_attr(lazypool_loom, track_caller)]
    fn step(&self, from: u64, to: u64, claims: u64) -> u64 {
        let delta = to.wrapping_sub(from).wrapping_add(claims * CLAIM);
        let before = self.status().fetch_add(delta, Ordering::SeqCst);
        debug_assert_eq!(state(before), state(from));
        before
    }

    // ---- claiming an idle worker -------------------------------------------

    fn claimed(before: u64, purpose: For) -> Claim {
        Claim {
            number: purpose.apply(before) / CLAIM,
            parked: before & PARKED != 0,
            benched: before & BENCHED != 0,
        }
    }

    /// Claims the worker if it is idle and not benched, whatever the rings say; asleep
    /// only if `even_parked`. `last`: the claim after which it is likely to have gone
    /// idle, without one since (zero: unknown). Then its line is asked for once, to be
    /// written, and not first to be read.
    #[inline]
    pub(crate) fn claim_hinted(&self, purpose: For, last: u64, even_parked: bool) -> Option<Claim> {
        let likely = (last * CLAIM) | LISTED | IDLE;
        let word = if last == 0 {
            self.status().load(Ordering::SeqCst)
        } else {
            match self.status().compare_exchange(
                likely,
                purpose.apply(likely),
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Some(Self::claimed(likely, purpose)),
                Err(now) => now,
            }
        };
        let unfit = if even_parked {
            BENCHED
        } else {
            BENCHED | PARKED
        };
        let ok = word & (STATE | unfit) == IDLE && self.swap_if(word, purpose.apply(word));
        ok.then(|| Self::claimed(word, purpose))
    }

    /// Follows an entry of the ready ring through: claims the worker, or drops
    /// the listing if it is busy or benched.
    #[inline]
    pub(crate) fn claim_listed(&self, purpose: For) -> Option<Claim> {
        loop {
            let word = self.status().load(Ordering::SeqCst);
            debug_assert!(word & LISTED != 0);
            if word & (STATE | BENCHED) == IDLE {
                if self.swap_if(word, purpose.apply(word) & !LISTED) {
                    return Some(Self::claimed(word, purpose));
                }
            } else if self.swap_if(word, word & !LISTED) {
                return None;
            }
        }
    }

    /// Claims the worker if it is idle on the bench.
    pub(crate) fn claim_benched(&self, purpose: For) -> Option<Claim> {
        loop {
            let word = self.status().load(Ordering::SeqCst);
            if word & (STATE | BENCHED) != IDLE | BENCHED {
                return None;
            }
            if self.swap_if(word, purpose.apply(word)) {
                return Some(Self::claimed(word, purpose));
            }
        }
    }

    /// Claims the worker for a task it will start after its start hook.
    pub(crate) fn claim_standby(&self) -> Option<Claim> {
        let word = self.status().load(Ordering::SeqCst);
        let ok =
            word & (STATE | FRESH) == STANDBY | FRESH && self.swap_if(word, For::Task.apply(word));
        ok.then(|| Self::claimed(word, For::Task))
    }

    /// The worker to wake once it has its order, if it sleeps.
    ///
    /// # Safety
    /// The caller has claimed or holds the slot (`CLAIMED`, `HELD`).
    unsafe fn sleeper(&self, claim: Claim) -> Option<thread::Thread> {
        if !claim.parked {
            return None;
        }
        // SAFETY: written only while STARTING; a claimed slot is not, and the
        // claim's Acquire saw the spawner's publication.
        self.own.thread.with(|t| unsafe { (*t).clone() })
    }

    /// Hands the task to a claimed worker. Who claimed it wakes it if `parked`.
    ///
    /// # Safety
    /// The caller's claim (`CLAIMED`).
    #[inline]
    pub(crate) unsafe fn hand_over(&self, claim: Claim, task: Task, hand: Hand) {
        // Cloned before the worker can end and another take the slot.
        // SAFETY: the slot is claimed.
        let sleeper = unsafe { self.sleeper(claim) };
        // SAFETY: the slot is claimed: the mailbox is empty and ours.
        unsafe { self.fill(task) };
        self.step(CLAIMED, hand.state(), 0);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    /// # Safety
    /// The slot is `CLAIMED` or `STARTING` by the caller.
    #[inline]
    unsafe fn fill(&self, task: Task) {
        // SAFETY: by this function's contract nobody else touches the mailbox.
        self.hot.mailbox.with_mut(|m| unsafe {
            (*m).write(task);
        });
    }

    /// # Safety
    /// There is a task in the mailbox, and it is the caller's alone: the worker
    /// saw `HANDED` or won `OFFERED -> RUNNING`, or its submitter won
    /// `OFFERED -> HELD`.
    #[inline]
    unsafe fn empty(&self) -> Task {
        // SAFETY: by this function's contract.
        self.hot
            .mailbox
            .with_mut(|m| unsafe { (*m).assume_init_read() })
    }

    /// Takes an offered task back if the worker has not started it. The slot is
    /// then `HELD` by the caller.
    pub(crate) fn withdraw(&self, claim: u64) -> Option<Task> {
        loop {
            let word = self.status().load(Ordering::SeqCst);
            if state(word) != OFFERED || word / CLAIM != claim {
                return None;
            }
            if self.swap_if(word, with_state(word, HELD)) {
                // SAFETY: won OFFERED -> HELD.
                return Some(unsafe { self.empty() });
            }
        }
    }

    /// Sends a held worker to look at the queue.
    ///
    /// # Safety
    /// The caller holds the slot (`HELD`).
    pub(crate) unsafe fn send_seeking(&self, claim: Claim) {
        // SAFETY: held.
        let sleeper = unsafe { self.sleeper(claim) };
        self.step(HELD, SEEK, 0);
        if let Some(sleeper) = sleeper {
            sleeper.unpark();
        }
    }

    // ---- going idle -----------------------------------------------------------

    /// Makes the slot claimable, from a state that the caller owns; `ready` is the
    /// pool's ready ring and `index` this slot's.
    #[inline]
    pub(crate) fn publish_idle(&self, ready: &Ring, index: usize) {
        let mut word = self.status().load(Ordering::SeqCst);
        loop {
            if word & LISTED == 0 {
                self.status().fetch_or(LISTED, Ordering::SeqCst);
                ready
                    .push(index)
                    .expect("one entry per slot at most: the ring has room");
                word = self.status().load(Ordering::SeqCst);
            } else {
                // Release: the emptied mailbox. A failure is a popper that
                // dropped the listing.
                match self.status().compare_exchange(
                    word,
                    with_state(word, IDLE),
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                ) {
                    Ok(_) => return,
                    Err(now) => word = now,
                }
            }
        }
    }

    /// Worker: from a finished task to looking at the queue.
    pub(crate) fn seek(&self) {
        let from = state(self.status().load(Ordering::SeqCst));
        if from != SEEK {
            debug_assert!(matches!(
                from,
                HANDED | RUNNING | RETIRING | WARMING | STANDBY
            ));
            self.step(from, SEEK, 0);
        }
    }

    /// Worker: takes itself back from `IDLE` to look at the queue once more.
    /// `None` if another was faster, whose order is on its way.
    pub(crate) fn claim_self(&self) -> Option<Claim> {
        loop {
            let word = self.status().load(Ordering::SeqCst);
            if state(word) != IDLE {
                return None;
            }
            if self.swap_if(word, with_state(word, SEEK)) {
                return Some(Self::claimed(word, For::Wake));
            }
        }
    }

    // ---- worker: waiting for an order -----------------------------------------

    /// A new worker: waits until its spawner has registered it.
    pub(crate) fn await_first_order(&self) {
        let mut nearly = Nearly::default();
        while self.see().state() == STARTING {
            nearly.wait();
        }
    }

    /// The order in the word, if there is one.
    #[inline]
    fn order(&self) -> Option<Order> {
        let mut word = self.status().load(Ordering::SeqCst);
        loop {
            match state(word) {
                HANDED => break,
                OFFERED => {
                    match self.status().compare_exchange(
                        word,
                        with_state(word, RUNNING),
                        Ordering::SeqCst,
                        Ordering::SeqCst,
                    ) {
                        Ok(_) => break,
                        Err(now) => word = now,
                    }
                }
                SEEK => return Some(Order::Seek),
                RETIRING => return Some(Order::Retire),
                _ => return None,
            }
        }
        Some(Order::Run {
            // SAFETY: HANDED was seen with Acquire, or OFFERED -> RUNNING won.
            task: unsafe { self.empty() },
            claim: word / CLAIM,
        })
    }

    /// Waits for an order. `before_park` runs each time just before the thread
    /// sleeps, and `sleep` puts it to sleep.
    #[inline]
    pub(crate) fn wait_for_order(
        &self,
        habit: &Habit,
        before_park: impl Fn(),
        sleep: impl Fn(),
    ) -> Order {
        loop {
            if let Some(order) = self.order() {
                return order;
            }
            let mut spin = habit.spin();
            while spin.step() != Step::Spent {
                if let Some(order) = self.order() {
                    habit.met(&spin);
                    return order;
                }
            }
            habit.missed();
            let word = self.status().load(Ordering::SeqCst);
            if state(word) != IDLE {
                // Claimed, its order a few instructions away, or taken back by
                // a caller about to make the slot idle again.
                thread::yield_now();
                continue;
            }
            if word & PARKED == 0 && !self.swap_if(word, word | PARKED) {
                continue;
            }
            before_park();
            let start = Instant::now();
            sleep();
            habit.slept(start.elapsed());
        }
    }

    // ---- retirement -------------------------------------------------------------

    /// Cleaner: marks an idle worker; `false` if it is not idle, or benched.
    pub(crate) fn bench(&self) -> bool {
        let word = self.status().load(Ordering::SeqCst);
        word & (STATE | BENCHED) == IDLE && self.swap_if(word, word | BENCHED)
    }

    /// Tells an idle worker to end: a benched one (cleaner), or any (shutdown).
    pub(crate) fn retire(&self, only_benched: bool) -> Option<Claim> {
        loop {
            let word = self.status().load(Ordering::SeqCst);
            if state(word) != IDLE || only_benched && word & BENCHED == 0 {
                return None;
            }
            if self.swap_if(word, with_state(word, RETIRING)) {
                return Some(Self::claimed(word, For::Wake));
            }
        }
    }

    /// Worker that looked at the queue of a closed pool in vain.
    pub(crate) fn retire_self(&self) {
        self.step(SEEK, RETIRING, 0);
    }

    /// Worker, its last act on the slot.
    pub(crate) fn vacate(&self) {
        self.step(RETIRING, FREE, 0);
    }

    // ---- spawning ---------------------------------------------------------------

    /// Spawner: takes a slot whose free entry it popped; `hook`: its worker begins
    /// with a start hook.
    pub(crate) fn start(&self, hook: bool) {
        let before = self.step(FREE, STARTING | fresh(hook), 0);
        // An addition: it would carry into the claims.
        debug_assert_eq!(before & FRESH, 0);
    }

    /// Spawner: there is no thread to be had.
    pub(crate) fn start_failed(&self, hook: bool) {
        self.step(STARTING | fresh(hook), FREE, 0);
    }

    /// Spawner: the thread exists and waits for its first order.
    ///
    /// # Safety
    /// The caller started the slot (`STARTING`), and the thread does not touch
    /// it before the caller has published its first order.
    pub(crate) unsafe fn set_thread(&self, thread: thread::Thread) {
        // SAFETY: STARTING is the caller's alone.
        self.own.thread.with_mut(|t| unsafe { *t = Some(thread) });
    }

    /// Spawner: the new worker's first task. Returns its claim number.
    ///
    /// # Safety
    /// As `set_thread`, which came before.
    pub(crate) unsafe fn hand_first(&self, task: Task, hand: Hand) -> u64 {
        // SAFETY: STARTING is the caller's alone.
        unsafe { self.fill(task) };
        self.step(STARTING, hand.state(), 1) / CLAIM + 1
    }

    /// Spawner: the new worker starts by looking at the queue.
    pub(crate) fn start_seeking(&self) {
        self.step(STARTING, SEEK, 0);
    }

    /// Spawner: the new worker becomes visible after its start hook.
    pub(crate) fn start_warming(&self) {
        self.step(STARTING, WARMING, 0);
    }

    /// Spawner: as `start_warming`, and a task may come first.
    pub(crate) fn start_standby(&self) {
        self.step(STARTING, STANDBY, 0);
    }

    /// Worker: the start hook has ended. Its state then: `WARMING` or `STANDBY` if
    /// it has no order, and has to become visible.
    pub(crate) fn end_start_hook(&self) -> u64 {
        state(self.status().fetch_and(!FRESH, Ordering::SeqCst))
    }

    /// Whether the start hook of the slot's worker has not ended.
    pub(crate) fn is_fresh(&self) -> bool {
        self.status().load(Ordering::SeqCst) & FRESH != 0
    }

    /// Who took a task back from a worker in its start hook: leaves it to the
    /// worker to become visible. `false` if the hook has ended.
    pub(crate) fn leave_standby(&self) -> bool {
        let word = self.status().load(Ordering::SeqCst);
        debug_assert_eq!(state(word), HELD);
        // Others may clear LISTED meanwhile.
        word & FRESH != 0 && (self.swap_if(word, with_state(word, STANDBY)) || self.leave_standby())
    }
}

#[cfg(lazypool_loom)]
impl Slot {
    /// For models, once its thread has ended: nothing but a listing is left.
    pub(crate) fn assert_at_rest(&self, listed: bool) {
        let word = self.status().load(Ordering::SeqCst) % CLAIM;
        assert_eq!(word, if listed { LISTED } else { FREE }, "a slot's word");
        assert_eq!(self.own.busy.load(Ordering::SeqCst), NOT_BUSY, "busy");
    }
}

// The status word and a task share a line, and nothing else does.
#[cfg(not(lazypool_loom))]
const _: () = assert!(size_of::<Hot>() == 64 && size_of::<Own>() == 64);

#[cfg(all(test, not(lazypool_loom)))]
mod tests {
    use super::*;
    use crate::task::tests::{marked, Marks};

    fn idle(ready: &Ring) -> Slot {
        let slot = Slot::new();
        slot.start(false);
        slot.publish_idle(ready, 0);
        slot
    }

    fn task(marks: &Marks) -> Task {
        marked(marks, 0, false)
    }

    #[test]
    fn an_idle_slot_is_listed_once_and_claimed_once() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = idle(&ready);
        assert_eq!(ready.pop(), Some(0));
        let claim = slot.claim_listed(For::Task).expect("idle");
        assert_eq!(
            (claim.number, claim.parked, claim.benched),
            (1, false, false)
        );
        assert!(slot.claim_hinted(For::Task, 0, true).is_none());
        // SAFETY: claimed.
        unsafe { slot.hand_over(claim, task(&marks), Hand::Over) };
        assert!(slot.see().is_occupied());
        let Some(Order::Run { task, claim }) = slot.order() else {
            panic!("a task was handed over");
        };
        assert_eq!(claim, 1);
        let _ = task.discard();
        slot.publish_idle(&ready, 0);
        assert!(slot.see().is_idle());
        assert_eq!((ready.pop(), ready.pop()), (Some(0), None));
    }

    #[test]
    fn a_claim_by_hint_leaves_an_entry_that_is_dropped_or_used_again() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = idle(&ready);
        let claim = slot.claim_hinted(For::Task, 0, true).expect("idle");
        // Its entry is still there; who pops it finds it busy and drops it.
        assert_eq!(ready.pop(), Some(0));
        assert!(slot.claim_listed(For::Task).is_none());
        // SAFETY: claimed.
        unsafe { slot.hand_over(claim, task(&marks), Hand::Over) };
        let Some(Order::Run { task, .. }) = slot.order() else {
            panic!("a task was handed over");
        };
        let _ = task.discard();
        slot.publish_idle(&ready, 0);
        // Listed anew; and by hint again, the entry staying.
        let claim = slot.claim_hinted(For::Task, 0, true).expect("idle");
        assert_eq!(claim.number, 2);
        assert!(!ready.is_empty());
    }

    #[test]
    fn a_hint_names_the_last_claim_and_claims_an_idle_worker_only() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = idle(&ready);
        for last in 0..2 {
            let claim = slot.claim_hinted(For::Task, last, true).expect("idle");
            assert_eq!(claim.number, last + 1);
            assert!(slot.claim_hinted(For::Task, claim.number, true).is_none());
            // SAFETY: claimed.
            unsafe { slot.hand_over(claim, task(&marks), Hand::Offer) };
            let _ = slot.withdraw(claim.number).expect("offered").discard();
            slot.publish_idle(&ready, 0);
            assert!(slot.claim_self().is_some());
            assert!(slot.claim_hinted(For::Task, claim.number, true).is_none());
            slot.retire_self();
            assert!(slot.claim_hinted(For::Task, claim.number, true).is_none());
            slot.vacate();
            slot.start(false);
            slot.publish_idle(&ready, 0);
        }
    }

    #[test]
    fn the_bench_is_for_the_last_resort() {
        let ready = Ring::new(1, 0);
        let slot = idle(&ready);
        assert!(slot.claim_benched(For::Task).is_none());
        assert!(slot.bench() && !slot.bench());
        assert!(slot.claim_hinted(For::Task, 0, true).is_none());
        assert_eq!(ready.pop(), Some(0));
        assert!(slot.claim_listed(For::Task).is_none());
        let claim = slot.claim_benched(For::Wake).expect("idle");
        assert!(claim.benched);
        assert_eq!(slot.see().claims(), 0, "a wake-up is no task");
    }

    #[test]
    fn an_offered_task_is_run_or_taken_back() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = idle(&ready);
        let claim = slot.claim_hinted(For::Task, 0, true).unwrap();
        // SAFETY: claimed.
        unsafe { slot.hand_over(claim, task(&marks), Hand::Offer) };
        assert!(slot.withdraw(claim.number + 1).is_none(), "another task");
        let _ = slot.withdraw(claim.number).expect("not started").discard();
        assert!(slot.order().is_none());
        slot.publish_idle(&ready, 0);

        let claim = slot.claim_hinted(For::Task, 0, true).unwrap();
        // SAFETY: claimed.
        unsafe { slot.hand_over(claim, task(&marks), Hand::Offer) };
        let Some(Order::Run { task, claim }) = slot.order() else {
            panic!("a task was offered");
        };
        assert!(slot.withdraw(claim).is_none(), "started");
        let _ = task.discard();
        assert_eq!(marks.dropped(), [2]);
    }

    #[test]
    fn a_retired_slot_starts_again() {
        let ready = Ring::new(1, 0);
        let slot = idle(&ready);
        assert!(slot.retire(true).is_none(), "not benched");
        assert!(slot.retire(false).is_some());
        assert!(matches!(slot.order(), Some(Order::Retire)));
        slot.vacate();
        assert_eq!(slot.see().state(), FREE);
        slot.start(true);
        slot.start_failed(true);
        assert!(slot.see().state() == FREE && !slot.is_fresh());
        slot.start(false);
        slot.start_seeking();
        assert!(matches!(slot.order(), Some(Order::Seek)));
    }

    #[test]
    fn a_label_is_read_whole() {
        let own = Slot::new();
        let label = &own.own.label;
        assert_eq!(label.get(), None);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    label.set(Some("short"));
                    label.set(Some("a longer one"));
                    label.set(None);
                }
            });
            for _ in 0..100_000 {
                let seen = label.get();
                assert!(
                    matches!(seen, None | Some("short" | "a longer one")),
                    "{seen:?}"
                );
            }
            stop.store(true, Ordering::SeqCst);
        });
        for now in [Some("one"), Some("another"), None] {
            label.set(now);
            assert_eq!(label.get(), now);
        }
    }

    #[test]
    fn a_sleeping_worker_is_woken_by_its_order() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = Slot::new();
        slot.start(false);
        let naps = std::sync::atomic::AtomicUsize::new(0);
        let (claim, order) = std::thread::scope(|s| {
            let worker = s.spawn(|| {
                slot.await_first_order();
                let sleep = || match naps.fetch_add(1, Ordering::SeqCst) {
                    0 => (), // in vain, as `park` may
                    _ => std::thread::park(),
                };
                slot.wait_for_order(&Habit::new(true), || (), sleep)
            });
            // SAFETY: started, and its thread waits.
            unsafe { slot.set_thread(worker.thread().clone()) };
            slot.publish_idle(&ready, 0);
            while naps.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            let claim = slot.claim_hinted(For::Task, 0, true).expect("idle");
            // SAFETY: claimed.
            unsafe { slot.hand_over(claim, task(&marks), Hand::Over) };
            (claim, worker.join().unwrap())
        });
        assert!(claim.parked && !claim.benched);
        let Order::Run { task, claim: 1 } = order else {
            panic!("{order:?}");
        };
        let _ = task.discard();
        slot.publish_idle(&ready, 0);
        let claim = slot.claim_self().expect("idle");
        assert!(!claim.parked, "it has woken");
        assert_eq!(slot.see().state(), SEEK);
        assert!(slot.claim_self().is_none());
    }

    #[test]
    fn a_worker_in_its_start_hook_takes_a_task_if_it_is_on_standby() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = Slot::new();
        slot.start(true);
        assert!(slot.is_fresh() && slot.claim_standby().is_none());
        slot.start_standby();
        let offer = |slot: &Slot| {
            let claim = slot.claim_standby().expect("on standby");
            assert!(slot.claim_standby().is_none(), "claimed once");
            // SAFETY: claimed.
            unsafe { slot.hand_over(claim, task(&marks), Hand::Offer) };
            claim.number
        };
        let take_back = |claim| {
            let task = slot.withdraw(claim).expect("not started");
            let _ = task.discard();
        };
        take_back(offer(&slot));
        assert!(slot.leave_standby());
        // The hook ends with a task there.
        let claim = offer(&slot);
        assert_eq!((claim, slot.end_start_hook()), (2, OFFERED));
        assert!(!slot.is_fresh());
        take_back(claim);
        assert!(!slot.leave_standby());
        slot.publish_idle(&ready, 0);
        assert!(slot.see().is_idle() && slot.claim_standby().is_none());

        // And without one: nobody claims it before it is visible.
        for start in [Slot::start_standby, Slot::start_warming] {
            let slot = Slot::new();
            slot.start(true);
            start(&slot);
            let state = slot.see().state();
            assert!(state == STANDBY || slot.claim_standby().is_none());
            assert_eq!(slot.end_start_hook(), state);
            assert!(slot.claim_standby().is_none());
            slot.seek();
            assert_eq!(slot.see().state(), SEEK);
        }
    }

    #[test]
    fn a_new_worker_starts_with_a_task() {
        let (ready, marks) = (Ring::new(1, 0), Marks::new(1));
        let slot = Slot::new();
        for life in 1..=3 {
            slot.start(false);
            // SAFETY: started; no thread needs to be woken.
            assert_eq!(unsafe { slot.hand_first(task(&marks), Hand::Over) }, life);
            let seen = slot.see();
            assert_eq!((seen.claims(), seen.is_idle()), (life, false));
            assert!(seen.is_occupied() && !seen.is_benched());
            let Some(Order::Run { task, claim }) = slot.order() else {
                panic!("a task was handed over");
            };
            assert_eq!(claim, life);
            let _ = task.discard();
            slot.publish_idle(&ready, 0);
            assert!(!slot.see().is_occupied());
            assert!(slot.bench() && slot.see().is_benched());
            assert!(slot.retire(true).is_some_and(|claim| claim.benched));
            slot.vacate();
            assert!(!slot.see().is_benched());
        }
    }

    #[test]
    fn a_worker_says_what_it_has_done_and_whether_it_has_a_task() {
        let slot = &Slot::new();
        let own = &slot.own;
        own.completed.store(3, Ordering::SeqCst);
        own.panicked.store(2, Ordering::SeqCst);
        assert_eq!(own.tasks(), 5);
        assert!(!own.is_busy());
        own.set_busy();
        assert!(own.is_busy());
        own.set_not_busy();
        assert!(!own.is_busy());
        // Until it knows, who asks waits.
        own.set_popping();
        assert_eq!(own.busy.load(Ordering::SeqCst), POPPING);
        std::thread::scope(|s| {
            let ask = |slot: &Slot| slot.own.is_busy();
            let asked = s.spawn(move || ask(slot));
            own.set_busy();
            assert!(asked.join().unwrap());
        });
    }
}
