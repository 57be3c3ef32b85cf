//! How a submission waits between its attempts: for a step of another thread, for room, or in line
//! behind others.

use super::core::Core;
use super::request::{no_room, SubmitOptions};
use crate::error::Refusal;
use crate::parts::backoff::{Backoff, BoundedSpin};
use crate::parts::deadline::Deadline;
use crate::parts::queue::Sweep;
use crate::parts::waiters::Waiting;
use crate::stats::WhenFull;
use crate::sync::thread;
use crate::work::observe::Starts;

/// How a submission waits between its attempts.
pub(super) struct Wait<'a> {
    core: &'a Core,
    pub(super) options: &'a SubmitOptions<'a>,
    /// On a worker of the pool, or for one that waits.
    own: bool,
    pub(super) may_queue: bool,
    pub(super) may_block: bool,
    /// How long it may wait for room, its deadline aside.
    pub(super) room_within: Deadline,
    backoff: Backoff,
    /// For room in the middle of the queue.
    pub(super) sweep: Sweep,
    spin: BoundedSpin,
    waiting: Option<Waiting<'a>>,
    /// It has lined up behind others, and has not tried yet.
    lined_up: bool,
    /// Below `waiting`, so that they are told once it has left the list.
    pub(super) starts: Starts<'a>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(core: &'a Core, options: &'a SubmitOptions<'a>) -> Self {
        let own = options.is_on_worker(&core.env);
        let blocks = options.blocks(core.blocks);
        let may_block = !own && blocks;
        let mut this = Self {
            core,
            options,
            own,
            may_queue: !(own && options.awaited),
            may_block,
            room_within: match options.when_full(core.settings.when_full) {
                WhenFull::BlockFor(limit) => Deadline::from_now(limit),
                _ => Deadline::never(),
            },
            backoff: Backoff::default(),
            sweep: Sweep::default(),
            spin: BoundedSpin::new(core.parallel),
            waiting: None,
            lined_up: false,
            starts: Starts::new(&core.env),
        };
        if may_block && core.waiters.aged() != 0 && !core.is_closed() {
            this.waiting = Some(core.waiters.join());
            // Asked once more, on the list: who closes or cancels may have notified all
            // before.
            this.lined_up = !core.is_closed() && !options.is_cancelled();
        }
        this
    }

    /// On a worker of its own nothing waits for more than a step of another.
    pub(super) fn is_hurried(&self) -> bool {
        self.own && self.backoff.is_spent() && !self.sweep.has_advanced()
    }

    pub(super) fn no_room(&self) -> Refusal {
        let waits = self.options.blocks(self.core.blocks) || self.options.awaited;
        no_room(self.own && waits)
    }

    /// Before an attempt: waits for its turn, if it has lined up; then it is back on the
    /// list, if it was taken off.
    pub(super) fn before_try(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            if std::mem::take(&mut self.lined_up) {
                waiting.sleep(self.options.earlier(&self.room_within));
            }
            if waiting.rejoin() {
                // It was notified of room, which may lie behind where the sweep is.
                self.sweep.end();
            }
        }
    }

    /// After an attempt. `settled`: all is occupied; else something is half done.
    pub(super) fn before_next_try(&mut self, settled: bool) {
        let may_sleep = settled || self.backoff.is_spent() && self.is_in_transit();
        let looks_on = self.sweep.take_advance();
        match &mut self.waiting {
            _ if looks_on && !settled => thread::yield_now(),
            _ if !may_sleep => self.backoff.wait(),
            None if settled && self.core.may_make_room(&mut self.spin) => {}
            // Joined, it must look once more, everywhere, before it sleeps.
            None => {
                self.waiting = Some(self.core.waiters.join());
                self.sweep.end();
            }
            Some(waiting) if settled => waiting.sleep(self.options.earlier(&self.room_within)),
            Some(waiting) => waiting.sleep(self.options.earlier(&Deadline::never())),
        }
    }

    /// A thread is being started or ends, hooks included: that may take its time. Who ends
    /// it notifies.
    fn is_in_transit(&self) -> bool {
        !self.own && self.core.in_flight.see().is_any_in_transit()
    }
}
