//! A worker's life.
//!
//! ```text
//!            order: task            the queue is empty, closed
//!  IDLE ----------------> run ---> SEEK ---------------------> end
//!   ^  \--order: look at queue---> SEEK       order: retire     ^
//!   |                              |  |                         |
//!   +---- nothing there -----------+  +-- task: run, then SEEK  |
//!   +-------------------------------------------- IDLE ---------+
//! ```
//!
//! A task's end goes in this order, which the laws on admission and accounting
//! rest on: the worker finds its next state (the next queued task, `SEEK`, or
//! `IDLE`), *then* counts the task, *then* releases whoever waits for it. So who
//! sees the end of a task, by its counters or its result, finds its worker free.

use crate::observe;
use crate::park::{Habit, Step};
use crate::queue::Queue;
use crate::shared::{Shared, BENCHED, HOOKED, LIMBO};
use crate::slot::{Order, Slot, STANDBY, WARMING};
use crate::sync::{lock, Arc, Ordering};
use crate::task::{Ctx, Task};
use crate::wait::{mailbox_ticket, queue_ticket};

/// The thread of the worker on a slot.
pub(crate) fn main(shared: &Arc<Shared>, slot: usize) {
    shared.own_this_thread();
    shared.slots[slot].await_first_order();
    let ctx = Ctx::new(shared, slot);
    let _entered = ctx.enter();
    let worker = Worker {
        shared,
        slot,
        it: &shared.slots[slot],
        ctx: &ctx,
        habit: Habit::new(shared.parallel),
    };
    worker.start_hook();
    if !worker.begin() {
        return;
    }
    while worker.obey() {}
}

struct Worker<'a> {
    shared: &'a Arc<Shared>,
    slot: usize,
    it: &'a Slot,
    ctx: &'a Ctx<'a>,
    habit: Habit,
}

impl Worker<'_> {
    fn hook(&self, hook: &(dyn Fn(usize) + Send + Sync)) {
        self.ctx.in_hook.set(true);
        self.shared.hook(|| hook(self.slot));
        self.ctx.in_hook.set(false);
    }

    fn start_hook(&self) {
        if let Some(start) = &self.shared.hooks.start {
            self.hook(start);
        }
    }

    /// After the start hook; `false` at the end.
    fn begin(&self) -> bool {
        match self.it.end_start_hook() {
            STANDBY => self.appear(true),
            WARMING => self.appear(false),
            _ => true, // it has an order
        }
    }

    /// Becomes visible after the start hook, and goes on as after a task.
    fn appear(&self, standby: bool) -> bool {
        let shared = self.shared;
        match &shared.queue {
            Some(queue) => {
                shared.seekers.add();
                self.it.seek();
                self.leave_hook(standby);
                self.seek(queue)
            }
            None => {
                self.it.publish_idle(&shared.ready, self.slot);
                self.leave_hook(standby);
                shared.made_room();
                self.stay_or_go()
            }
        }
    }

    /// Visible now: counted no longer.
    fn leave_hook(&self, standby: bool) {
        if standby {
            self.shared.standby.fetch_sub(1, Ordering::SeqCst);
        }
        self.shared.transit.sub(HOOKED);
    }

    /// Waits for one order and carries it out; `false` at the end.
    fn obey(&self) -> bool {
        let order = self.it.wait_for_order(
            &self.habit,
            || self.shared.tell_cleaner(self.slot),
            || self.shared.sleep_idle(self.slot),
        );
        match order {
            Order::Run { task, claim } => {
                self.work(&mut Some(task), mailbox_ticket(claim));
                match &self.shared.queue {
                    Some(queue) => self.seek(queue),
                    None => self.stay_or_go(),
                }
            }
            Order::Seek => match &self.shared.queue {
                Some(queue) => {
                    self.shared.seekers.came();
                    self.seek(queue)
                }
                None => unreachable!("only a queued task sends a worker seeking"),
            },
            Order::Retire => self.end(),
        }
    }

    /// Runs a task, and queued ones after it as long as there are any. Without a
    /// queue the worker is `IDLE` then, with one it is a seeker.
    fn work(&self, first: &mut Option<Task>, ticket: u64) {
        let (mut now, mut next) = (first, &mut None);
        let mut ticket = Some(ticket);
        while let Some(its) = ticket.take() {
            self.ctx.ticket.set(its);
            Task::run_in(now, self.ctx, &mut |panicked| {
                ticket = self.end_task(panicked, next);
            });
            std::mem::swap(&mut now, &mut next);
        }
    }

    /// A task has run: finds what comes next, and counts the task. The next one's ticket.
    fn end_task(&self, panicked: bool, place: &mut Option<Task>) -> Option<u64> {
        let own = &self.it.own;
        // Until the task is counted, and for the next one if it is queued.
        own.set_busy();
        let next = match &self.shared.queue {
            None => {
                self.it.publish_idle(&self.shared.ready, self.slot);
                None
            }
            Some(queue) => {
                let popped = self.dequeue(queue, place);
                if popped.is_none() {
                    self.shared.seekers.add();
                    self.it.seek();
                }
                popped
            }
        };
        self.shared.made_room();
        let count = if panicked {
            &own.panicked
        } else {
            &own.completed
        };
        // Release: whoever sees the count sees the worker free. Only this
        // thread writes it.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
        if next.is_none() {
            own.set_not_busy();
        }
        next
    }

    /// Moves the next queued task into the place; its ticket.
    #[inline]
    fn dequeue(&self, queue: &Queue, place: &mut Option<Task>) -> Option<u64> {
        if let Some(position) = queue.pop(place) {
            return Some(queue_ticket(position));
        }
        if self.shared.kept.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.take_kept(place)
    }

    #[cold]
    fn take_kept(&self, place: &mut Option<Task>) -> Option<u64> {
        // Whoever asks for `POPPING` to end may hold the lock.
        self.it.own.set_busy();
        *place = Some(lock(&self.shared.registry).kept.pop_front()?);
        self.shared.kept.fetch_sub(1, Ordering::SeqCst);
        // No caller waits for a kept task: it needs no ticket.
        Some(0)
    }

    /// A seeker's look at the queue.
    fn look(&self, queue: &Queue, place: &mut Option<Task>) -> Option<u64> {
        if self.shared.nothing_queued() {
            return None;
        }
        if queue.len() > 1 {
            self.shared.call_another();
        }
        let own = &self.it.own;
        own.set_popping();
        let popped = self.dequeue(queue, place);
        match popped {
            Some(_) => own.set_busy(),
            None => own.set_not_busy(),
        }
        popped
    }

    /// A seeker looks at the queue until it has gone idle (`true`) or ended.
    fn seek(&self, queue: &Queue) -> bool {
        let shared = self.shared;
        let mut place = None;
        loop {
            let mut spin = self.habit.first_spin();
            let mut last = false;
            loop {
                let is_there = queue.is_next_there() || shared.kept.load(Ordering::Relaxed) > 0;
                if is_there || last {
                    if let Some(ticket) = self.look(queue, &mut place) {
                        self.habit.met(&spin);
                        shared.seekers.sub();
                        shared.made_room();
                        self.ctx.owes_a_look.set(true);
                        self.work(&mut place, ticket);
                        (spin, last) = (self.habit.first_spin(), false);
                        continue;
                    }
                }
                if last {
                    break;
                }
                last = shared.is_closed() || spin.step() == Step::Spent;
            }
            if shared.is_closed() && shared.nothing_queued() {
                shared.transit.add(LIMBO);
                shared.seekers.sub();
                self.it.retire_self();
                return self.end();
            }
            self.it.publish_idle(&shared.ready, self.slot);
            shared.seekers.sub();
            shared.made_room();
            if shared.nothing_queued() && !shared.is_closed() {
                return true;
            }
            shared.seekers.add();
            let Some(claim) = self.it.claim_self() else {
                // Claimed: whoever did has an order for us. The count may have
                // been relied on meanwhile.
                shared.seekers.sub();
                shared.wake_for_queue();
                return true;
            };
            if claim.benched {
                shared.transit.sub(BENCHED);
            }
        }
    }

    /// Without a queue, after a task: the pool may have closed before the worker
    /// published that it is idle, and nobody may have told it.
    fn stay_or_go(&self) -> bool {
        if self.shared.is_closed() {
            self.shared.retire_idle();
        }
        true
    }

    /// Told to end: does so unless there is a queued task to look at. In limbo
    /// on entry.
    fn end(&self) -> bool {
        let shared = self.shared;
        if let Some(stop) = &shared.hooks.stop {
            let registry = lock(&shared.registry);
            if !shared.nothing_queued() {
                return self.go_on();
            }
            // Submitters no longer wait for the outcome: the second look below
            // is under the lock, too.
            shared.transit.add(HOOKED - LIMBO);
            drop(registry);
            self.hook(stop);
        }
        let mut registry = lock(&shared.registry);
        if shared.hooks.stop.is_some() {
            shared.transit.sub(HOOKED - LIMBO);
        }
        if !shared.nothing_queued() {
            if shared.hooks.stop.is_none() {
                return self.go_on();
            }
            // It has stopped, so it starts again; not visible before it has.
            shared.transit.add(HOOKED - LIMBO);
            drop(registry);
            self.start_hook();
            return self.appear(false);
        }
        let ending = registry.take_ending();
        registry.live -= 1;
        registry.retired += 1;
        let own = registry.handles[self.slot].take();
        registry.graveyard.extend(own);
        self.it.vacate();
        shared.free_slot(self.slot);
        shared.transit.sub(LIMBO);
        if registry.live <= shared.settings.min_workers {
            shared.cleaning.wake(&registry);
        }
        shared.changed.notify_all();
        drop(registry);
        shared.made_room();
        shared.join(ending);
        observe::worker_retired(shared, self.slot);
        false
    }

    /// Back to the queue instead of ending.
    fn go_on(&self) -> bool {
        self.shared.seekers.call();
        self.it.seek();
        self.shared.transit.sub(LIMBO);
        true
    }
}
