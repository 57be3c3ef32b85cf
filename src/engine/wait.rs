//! How a submission waits between its attempts: for a step of another thread, for space, or for
//! its turn.
//!
//! **Fair in the end.** Once a submission has waited for about a millisecond it has *aged*. While
//! there are aged ones, any other takes space only if there is more of it than they need; else it
//! waits behind them, or is refused if it must not wait. What an aged one needs is left to it until
//! its call has left the list, a few steps after its task is accepted: between the two another may
//! be refused beside space that is reserved. The bench counts as one place, however many are on it. To be
//! exact there, a submission that must not wait would have to wait for whole attempts of others, thread
//! starts included.

use super::core::Core;
use super::request::SubmitOptions;
use crate::parts::backoff::{Backoff, BoundedSpin};
use crate::parts::deadline::Deadline;
use crate::parts::waiters::Waiting;
use crate::stats::WhenFull;

pub(super) struct Wait<'a> {
    core: &'a Core,
    options: &'a SubmitOptions<'a>,
    /// This thread is an idle worker that runs a waker: the idle worker that would get the task, or
    /// whose step it would wait for, may be itself.
    pub(super) between_tasks: bool,
    pub(super) may_queue: bool,
    pub(super) may_block: bool,
    /// How long it may wait for space, its deadline aside.
    pub(super) room_within: Deadline,
    backoff: Backoff,
    spin: BoundedSpin,
    waiting: Option<Waiting<'a>>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(core: &'a Core, options: &'a SubmitOptions<'a>) -> Self {
        let own = options.is_on_worker(&core.env);
        Self {
            core,
            options,
            between_tasks: core.env.is_between_tasks(),
            may_queue: !(own && options.awaited),
            may_block: !own && options.blocks(core.blocks),
            room_within: match options.extras.when_full.unwrap_or(core.settings.when_full) {
                WhenFull::BlockFor(limit) => Deadline::from_now(limit),
                _ => Deadline::never(),
            },
            backoff: Backoff::default(),
            spin: BoundedSpin::new(core.parallel, false),
            waiting: None,
        }
    }

    /// Before an attempt: back on the list, if it was taken off.
    pub(super) fn before_try(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.rejoin();
        }
    }

    /// Whether those who have waited for long leave something.
    pub(super) fn is_its_turn(&self) -> bool {
        let aged = self.core.waiters.aged();
        aged == 0
            || self.waiting.as_ref().is_some_and(Waiting::is_aged)
            || self.core.has_space_beyond(aged)
    }

    /// Whether the step of another thread may be this thread's own.
    pub(super) fn may_wait_for_itself(&self) -> bool {
        self.between_tasks && self.backoff.is_long()
    }

    /// After an attempt. `is_saturated`: everybody is busy; else a step of another thread is half
    /// done.
    pub(super) fn before_next_try(&mut self, is_saturated: bool) {
        match &mut self.waiting {
            _ if !is_saturated => self.backoff.wait(),
            Some(waiting) => waiting.sleep(self.options.earlier(&self.room_within)),
            None if self.core.may_make_room(&mut self.spin) => {}
            // Joined, it must look once more before it sleeps.
            None => self.waiting = Some(self.core.waiters.join()),
        }
    }
}
