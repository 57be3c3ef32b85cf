//! A slot and the ready ring against its states: a spawner, submitters, the popper of an entry,
//! the cleaner and the worker each take a step that is theirs.

use crate::parts::ring::Ring;
use crate::parts::slot::{Claim, Order, Slot, State};
use crate::Step;
use std::thread;
use std::time::{Duration, Instant};

/// Of 64 bits the generation has the upper 58.
const GENERATIONS: u64 = u64::MAX >> 6;
/// Far longer than a thread takes that has been woken already.
const LONG: Duration = Duration::from_secs(10);

/// Whose a held slot is.
#[derive(Debug, Clone, Copy)]
enum Holder {
    Spawner,
    Claimed(Claim),
    /// A caller that has taken its task back.
    Revoked,
}

/// Where the slot's entry of the ready ring is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    None,
    InRing,
    /// A popper has yet to follow it.
    Popped,
}

struct Play {
    slot: Slot<Box<u64>, ()>,
    ready: Ring,
    state: State,
    generation: u64,
    holder: Option<Holder>,
    entry: Entry,
    /// In its start hook.
    is_starting: bool,
    is_parked: bool,
    /// The task that nobody has taken out yet.
    mailbox: Option<u64>,
    /// The worker has a task, of the mailbox or the queue.
    is_at_work: bool,
    tasks: u64,
}

/// A step that, by the model, is its owner's.
macro_rules! own {
    ($step:expr) => {
        // SAFETY: the model says whose the slot is; it does nothing else meanwhile.
        unsafe { $step }
    };
}

pub fn play(setup: u8, steps: &[Step]) {
    // At first, or so many before the wrap.
    let generation = 0_u64.wrapping_sub(u64::from(setup % 4)) & GENERATIONS;
    let mut play = Play {
        slot: Slot::starting_at(generation, ()),
        ready: Ring::new(1, 0),
        state: State::Free,
        generation,
        holder: None,
        entry: Entry::None,
        is_starting: false,
        is_parked: false,
        mailbox: None,
        is_at_work: false,
        tasks: 0,
    };
    play.look();
    for &step in steps {
        play.step(step);
        play.look();
    }
    if play.mailbox.is_some() {
        play.poll();
    }
}

impl Play {
    fn step(&mut self, [what, with]: Step) {
        let flag = with & 1 == 0;
        match what % 16 {
            0 | 1 if self.state == State::Free => {
                own!(self.slot.begin_start(flag));
                self.is_starting = flag;
                self.state = State::Held;
                self.holder = Some(Holder::Spawner);
            }
            // Whoever holds the slot.
            0..4 => self.go_on_holder(with),
            4 => {
                let last = self.generation.wrapping_sub(u64::from(with >> 1 & 3)) & GENERATIONS;
                let last = if with & 8 == 0 { last } else { 0 };
                let fits = self.is_listed_idle() && (flag || !self.is_parked);
                self.claimed(fits, |slot| slot.claim_last_used(last, flag));
            }
            5 => {
                let popped = self.ready.pop();
                assert_eq!(popped, (self.entry == Entry::InRing).then_some(0));
                if popped.is_some() {
                    self.entry = Entry::Popped;
                }
            }
            6 if self.entry == Entry::Popped => {
                let fits = self.state == State::Idle;
                self.entry = Entry::None;
                self.claimed(fits, Slot::claim_listed);
            }
            6 | 7 => self.claimed(self.is_benched(), Slot::claim_benched),
            8 if self.entry == Entry::Popped => {
                self.entry = Entry::None;
                assert_eq!(self.slot.bench(), self.is_benched());
            }
            8 | 9 => {
                let fits = self.state == State::Idle && (flag || self.is_benched());
                self.left_idle(fits, State::Retiring, |slot| slot.retire(!flag));
            }
            10 => self.revoke(with),
            11..=15 if self.is_starting => self.end_start_hook(),
            11 | 12 if !self.is_at_work && self.state != State::Free => self.poll(),
            13 if !self.is_at_work => self.rest(),
            14 if !self.is_at_work => {
                let fits = self.state == State::Idle;
                assert_eq!(self.slot.claim_self(), fits);
                if fits {
                    self.is_parked = false;
                    self.state = State::Searching;
                }
            }
            _ => self.go_on_worker(with),
        }
    }

    /// Idle, and its entry is in the ready ring or in the hands of a popper.
    fn is_listed_idle(&self) -> bool {
        self.state == State::Idle && self.entry != Entry::None
    }

    fn is_benched(&self) -> bool {
        self.state == State::Idle && self.entry == Entry::None
    }

    /// Leaves `Idle`, if it should: with what it was.
    fn left_idle(
        &mut self,
        fits: bool,
        to: State,
        leave: impl FnOnce(&Slot<Box<u64>, ()>) -> Option<Claim>,
    ) -> Option<Claim> {
        let claim = leave(&self.slot);
        assert_eq!(claim.is_some(), fits);
        let claim = claim?;
        assert_eq!(claim.parked, self.is_parked);
        self.is_parked = false;
        self.state = to;
        Some(claim)
    }

    fn claimed(&mut self, fits: bool, claim: impl FnOnce(&Slot<Box<u64>, ()>) -> Option<Claim>) {
        if let Some(claim) = self.left_idle(fits, State::Held, claim) {
            self.holder = Some(Holder::Claimed(claim));
        }
    }

    fn publish_idle(&mut self) {
        own!(self.slot.publish_idle(&self.ready, 0));
        if self.entry == Entry::None {
            self.entry = Entry::InRing;
        }
        self.state = State::Idle;
    }

    fn go_on_holder(&mut self, with: u8) {
        let Some(holder) = self.holder.take() else {
            return;
        };
        let is_first = matches!(holder, Holder::Spawner);
        match (holder, with % 8) {
            (Holder::Spawner, 0) => {
                own!(self.slot.start_failed());
                self.state = State::Free;
                self.is_starting = false;
                return;
            }
            (Holder::Spawner, _) => own!(self.slot.set_thread(thread::current())),
            _ => {}
        }
        match (holder, with % 8) {
            (Holder::Revoked, _) | (Holder::Spawner, 1..4) => {
                own!(self.slot.send_searching(Claim::AWAKE));
                self.state = State::Searching;
            }
            (Holder::Claimed(claim), 0 | 3) => {
                thread::park_timeout(Duration::ZERO); // an old token goes
                own!(self.slot.send_searching(claim));
                check_woken(claim);
                self.state = State::Searching;
            }
            (_, n) => {
                self.hand_over(holder, is_first, n & 1 == 1);
            }
        }
    }

    fn hand_over(&mut self, holder: Holder, is_first: bool, revocable: bool) {
        self.tasks += 1;
        let task = Box::new(self.tasks);
        self.generation = (self.generation + 1) & GENERATIONS;
        let generation = match holder {
            Holder::Claimed(claim) => {
                thread::park_timeout(Duration::ZERO);
                let generation = own!(self.slot.hand_over(claim, task, revocable));
                check_woken(claim);
                generation
            }
            _ => {
                assert!(is_first);
                own!(self.slot.hand_over(Claim::AWAKE, task, revocable))
            }
        };
        assert_eq!(generation, self.generation);
        self.mailbox = Some(self.tasks);
        self.state = if revocable {
            State::Offered
        } else {
            State::Busy
        };
    }

    /// The task's own caller, or that of another.
    fn revoke(&mut self, with: u8) {
        let generation = self.generation.wrapping_sub(u64::from(with % 3)) & GENERATIONS;
        let revoked = self.slot.revoke(generation);
        let fits = self.state == State::Offered && generation == self.generation;
        assert_eq!(revoked.is_some(), fits);
        if let Some(task) = revoked {
            assert_eq!(Some(*task), self.mailbox.take());
            self.state = State::Held;
            self.holder = Some(Holder::Revoked);
        }
    }

    /// The worker, unless its spawner has yet to let it go.
    fn end_start_hook(&mut self) {
        if matches!(self.holder, Some(Holder::Spawner)) {
            return;
        }
        let mut counted = false;
        let started = own!(self.slot.has_started(|| counted = true));
        let searches = self.state == State::Searching;
        let expected = (self.state != State::Held).then_some(searches);
        assert_eq!((started, counted), (expected, searches));
        self.is_starting = expected.is_none();
    }

    /// The worker asks for its order.
    fn poll(&mut self) {
        match (own!(self.slot.poll_order()), self.state) {
            (None, State::Idle | State::Held)
            | (Some(Order::Search), State::Searching)
            | (Some(Order::Retire), State::Retiring) => {}
            (Some(Order::Run { task, generation }), State::Offered | State::Busy) => {
                assert_eq!(Some(*task), self.mailbox.take());
                assert_eq!(generation, self.generation);
                self.state = State::Busy;
                self.is_at_work = true;
            }
            (order, state) => panic!("{order:?} in {state:?}"),
        }
    }

    fn rest(&mut self) {
        let is_idle = self.state == State::Idle;
        assert_eq!(self.slot.may_park(), is_idle);
        self.is_parked |= is_idle;
    }

    /// The worker goes on from where it is.
    fn go_on_worker(&mut self, with: u8) {
        let flag = with & 1 == 0;
        match self.state {
            State::Busy if self.is_at_work && with & 6 == 0 => {
                own!(self.slot.step(State::Busy, State::Searching));
                self.is_at_work = false;
                self.state = State::Searching;
            }
            State::Busy if self.is_at_work => {
                self.is_at_work = false;
                self.publish_idle();
            }
            State::Searching if flag => {
                own!(self.slot.step(State::Searching, State::Busy));
                self.is_at_work = true;
                self.state = State::Busy;
            }
            State::Searching if with & 6 == 0 => {
                own!(self.slot.step(State::Searching, State::Retiring));
                self.state = State::Retiring;
            }
            State::Searching => self.publish_idle(),
            State::Retiring if flag => {
                own!(self.slot.step(State::Retiring, State::Searching));
                self.state = State::Searching;
            }
            State::Retiring => {
                own!(self.slot.step(State::Retiring, State::Free));
                self.state = State::Free;
            }
            _ => {}
        }
    }

    fn look(&self) {
        let word = self.slot.see();
        assert_eq!(
            (word.state(), word.generation()),
            (self.state, self.generation)
        );
        assert_eq!(
            (word.is_starting(), word.is_parked(), word.is_benched()),
            (self.is_starting, self.is_parked, self.is_benched())
        );
        let is_gone = matches!(self.state, State::Free | State::Retiring);
        assert_eq!(word.is_in_service(), !self.is_starting && !is_gone);
        assert_eq!(word.is_idle(), self.state == State::Idle);
        assert_eq!(self.slot.is_held(), self.state == State::Held);
        assert_eq!(self.ready.is_empty(), self.entry != Entry::InRing);
    }
}

/// The worker, which is this thread here, has been woken, if it slept.
fn check_woken(claim: Claim) {
    if claim.parked {
        let start = Instant::now();
        thread::park_timeout(LONG);
        assert!(start.elapsed() < LONG, "it sleeps on");
    }
}
