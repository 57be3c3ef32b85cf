//! Admission of submissions that the core has not accepted: each is refused, or waits in line.

use crate::core::submission::{Location, NotAccepted, Submission, SubmitError};
use crate::engine::shared::Core;
use crate::engine::submit::request::{SubmitOptions, SubmitterOptions};
use crate::error::Refusal;
use crate::parts::backoff::{BoundedSpin, Step};
use crate::parts::deadline::Deadline;
use crate::parts::gate::Flags;
use crate::parts::members::Members;
use crate::stats::WhenFull;
use crate::sync::Arc;
use crate::work::job::Task;
use crate::work::owed::Debts;

/// The result of the first poll of a future.
pub(crate) enum Admitted {
    Accepted(Location),
    /// The task waits in line, with this ticket.
    InLine(u64),
}

impl Core {
    /// Submits the task. Takes it out of `task` if it is accepted, and leaves it there otherwise.
    pub(crate) fn submit(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        debts: &mut Debts,
    ) -> Result<Location, SubmitError> {
        if self.env.is_fast_path_open() && !options.waits_for_group && !options.is_cancelled() {
            match self.accept(task, options.submission, debts) {
                Ok(location) => return Ok(self.has_accepted(location, options, debts)),
                // A saturated pool refuses a task without a write to memory that workers read.
                Err(NotAccepted::NoPermit(flags)) if self.must_refuse(flags, options) => {
                    return Err(self.refuse(options, options.no_space(&self.env, false), debts));
                }
                Err(NotAccepted::NoPermit(_)) => {}
                Err(NotAccepted::NotPlaced(why)) => {
                    return Err(self.refuse(options, SubmitError::Refused(why), debts));
                }
            }
        }
        self.submit_slowly(task, options, debts)
    }

    /// Submits the task without options. This is a separate function so that the compiler can
    /// leave the checks of options out. Does not return the place of the task, because no code needs it.
    pub(crate) fn submit_plain(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        debts: &mut Debts,
    ) -> Result<(), SubmitError> {
        if self.env.is_fast_path_open() {
            match self.accept(task, Submission::PLAIN, debts) {
                Ok(_) => return Ok(()),
                Err(NotAccepted::NoPermit(flags))
                    if self.must_refuse(flags, &SubmitterOptions::NONE.plain()) =>
                {
                    let why = SubmitError::Refused(Refusal::Saturated);
                    return Err(self.host.counts.refuse(why));
                }
                Err(NotAccepted::NoPermit(_)) => {}
                Err(NotAccepted::NotPlaced(why)) => {
                    return Err(self.host.counts.refuse(SubmitError::Refused(why)));
                }
            }
        }
        self.submit_plain_slowly(task, debts)
    }

    #[cold]
    fn submit_plain_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        debts: &mut Debts,
    ) -> Result<(), SubmitError> {
        self.submit_slowly(task, &SubmitterOptions::NONE.plain(), debts)
            .map(drop)
    }

    /// Does what a group adds to a task that was just accepted: the task keeps its permit of the group,
    /// and the group notes where the task is. Returns the location.
    #[inline]
    fn has_accepted(
        self: &Arc<Self>,
        location: Location,
        options: &SubmitOptions<'_>,
        debts: &mut Debts,
    ) -> Location {
        if let Some(permit) = options.of_group.take() {
            permit.leave_with_task();
        }
        if let Some(members) = options.members {
            // The task may have begun, and ask for the deadline. The next step may wait for a lock.
            options.submission.start(&self.env);
            self.member_accepted(members, location, || debts.get_or_insert_default());
            self.set_last_task(location);
        }
        location
    }

    /// Returns `true` if a submission that got no permit in an open pool must not wait for one.
    #[inline]
    fn must_refuse(&self, flags: Flags, options: &SubmitOptions<'_>) -> bool {
        !flags.is_closed() && !options.blocks(self.host.blocks)
    }

    /// Counts a refusal of a submission that is not in line. Gives its group's permit back.
    #[inline(always)]
    pub(crate) fn refuse(
        self: &Arc<Self>,
        options: &SubmitOptions<'_>,
        why: SubmitError,
        debts: &mut Debts,
    ) -> SubmitError {
        let why = self.host.counts.refuse(why);
        if let Some(permit) = options.of_group.take() {
            self.give_to_group(options.members(), permit, debts.get_or_insert_default());
        }
        why
    }

    /// Admits a task that may have to wait, or whose pool is not in its usual state.
    #[cold]
    fn submit_slowly(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        debts: &mut Debts,
    ) -> Result<Location, SubmitError> {
        options.submission.start(&self.env);
        if let Some(why) = self.may_not_submit(options.members()) {
            return Err(self.refuse(options, SubmitError::Refused(why), debts));
        }
        let policy = options.extras.when_full.unwrap_or(self.host.when_full);
        // A worker of this pool must not wait for space, because that worker itself may have to
        // make the space.
        let may_wait = policy.blocks() && !options.submission.is_on_worker(&self.env);
        let block_until = match policy {
            WhenFull::BlockFor(limit) if may_wait => Deadline::from_now(limit),
            _ => Deadline::never(),
        };
        if options.waits_for_group {
            // Only a submission that may wait comes here without its group's permit.
            return self.wait_for_space(task, options, &block_until, debts);
        }
        let mut spin = BoundedSpin::new(self.parallel, false);
        loop {
            let not_accepted = match self.accept_slowly(task, options.submission, debts) {
                Ok(location) => return Ok(self.has_accepted(location, options, debts)),
                Err(not_accepted) => not_accepted,
            };
            if let Some(why) = not_accepted.into_refusal() {
                return Err(self.refuse(options, SubmitError::Refused(why), debts));
            }
            if !may_wait {
                let why = options.no_space(&self.env, policy.blocks());
                return Err(self.refuse(options, why, debts));
            }
            if !self.spin_for_space(&mut spin) {
                return self.wait_for_space(task, options, &block_until, debts);
            }
        }
    }

    /// Admits the task of a future: accepts it, refuses it, or puts it in line. On a worker of this
    /// pool, which must not wait, a task without space is refused as `OnWorker`.
    pub(crate) fn admit_future(
        self: &Arc<Self>,
        task: &mut Option<Task>,
        options: &SubmitOptions<'_>,
        debts: &mut Debts,
    ) -> Result<Admitted, SubmitError> {
        if let Some(why) = self.may_not_submit(options.members()) {
            return Err(self.refuse(options, SubmitError::Refused(why), debts));
        }
        if !options.waits_for_group {
            let not_accepted = match self.accept_slowly(task, options.submission, debts) {
                Ok(location) => {
                    let location = self.has_accepted(location, options, debts);
                    return Ok(Admitted::Accepted(location));
                }
                Err(not_accepted) => not_accepted,
            };
            if let Some(why) = not_accepted.into_refusal() {
                return Err(self.refuse(options, SubmitError::Refused(why), debts));
            }
            if options.submission.is_on_worker(&self.env) {
                let why = options.no_space(&self.env, true);
                return Err(self.refuse(options, why, debts));
            }
        }
        let wanted = task.take().expect("a task to submit");
        self.join_line(wanted, options, None, debts.get_or_insert_default())
            .map(Admitted::InLine)
            .map_err(|back| {
                *task = Some(back);
                let why = self
                    .may_not_submit(options.members())
                    .unwrap_or(Refusal::Closed);
                self.refuse(options, SubmitError::Refused(why), debts)
            })
    }

    /// Returns the reason if the submission is refused whether there is space or not.
    pub(crate) fn may_not_submit(&self, members: Option<&Members>) -> Option<Refusal> {
        if self.env.is_forked() {
            return Some(Refusal::Forked);
        }
        if members.is_some_and(Members::is_cancelled) {
            return Some(Refusal::Cancelled);
        }
        self.gate.flags().is_closed().then_some(Refusal::Closed)
    }

    /// Spins for a moment, and returns `true` as soon as there is ample space. A few short tasks may
    /// end soon, and a sleep costs more than the spin. Does not spin while other submissions wait in
    /// line, because they get the space first.
    fn spin_for_space(&self, spin: &mut BoundedSpin) -> bool {
        let ample = (self.queue_capacity as u64 / 4).clamp(1, 16);
        while spin.step() != Step::Spent {
            let flags = self.gate.flags();
            if flags.is_waited_for() || flags.is_closed() {
                return false;
            }
            if self.gate.free() >= ample {
                return true;
            }
        }
        false
    }
}
