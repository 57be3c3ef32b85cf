use super::*;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(5);

fn waits(members: &Members) -> bool {
    members.wait(&Deadline::from_now(SOON), true)
}

impl Members {
    /// Holds the lock, as if a thread had been stopped in `wait`.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        lock(&self.rare)
    }
}

fn leave(leaving: Option<Leaving>) {
    leaving.into_iter().for_each(Leaving::finish_now);
}

fn end(task: Pending, outcome: Ended) {
    let gone = task.end(outcome);
    assert_eq!(gone.line, None, "nothing waits");
    leave(gone.leaving);
}

#[test]
fn a_wait_ends_once_nothing_is_pending() {
    let members = Owner::new(None, 0);
    assert!(waits(&members), "nothing was ever pending");
    let (first, second) = (members.enter(), members.enter());
    end(first, Ended::Completed);
    assert_eq!((members.pending(), waits(&members)), (1, false));
    leave(second.exit());
    assert_eq!((members.pending(), waits(&members)), (0, true));
    assert_eq!(members.ended(Ended::Completed), 1, "one was refused");
}

#[test]
fn a_wait_ends_although_the_next_task_enters_at_once() {
    let members = Owner::new(None, 0);
    for parallel in [false, true] {
        let task = members.enter();
        thread::scope(|s| {
            let waiter = s.spawn(|| members.wait(&Deadline::never(), parallel));
            while lock(&members.rare).sleeping == 0 {
                thread::yield_now();
            }
            // This thread holds the lock, so a waiter sees these steps as one: the last task
            // leaves, and the next one enters.
            let rare = lock(&members.rare);
            members.counts.left.fetch_add(LEFT, Ordering::SeqCst);
            members.zeros.fetch_add(1, Ordering::SeqCst);
            members.entered.fetch_add(1, Ordering::SeqCst);
            members.all_ended.notify_all();
            drop(rare);
            assert!(waiter.join().unwrap());
        });
        leave(task.exit());
    }
}

#[test]
fn each_way_to_end_has_its_count() {
    let members = Owner::new(None, 0);
    for (times, outcome) in [Ended::Completed, Ended::Panicked, Ended::Discarded]
        .into_iter()
        .enumerate()
    {
        for _ in 0..=times {
            end(members.enter(), outcome);
        }
        assert_eq!(members.ended(outcome), times as u64 + 1);
    }
    assert_eq!(members.pending(), 0);
}

#[test]
fn a_limit_holds_beside_many_threads() {
    const LIMIT: usize = 3;
    let members = Owner::new(Some(LIMIT), 0);
    let gate = members.gate().expect("a limit");
    let running = AtomicU64::new(0);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut accepted = 0;
                while accepted < 1000 {
                    let Ok((permit, _)) = gate.take() else {
                        thread::yield_now();
                        continue;
                    };
                    permit.leave_with_task();
                    let task = members.enter();
                    accepted += 1;
                    assert!(running.fetch_add(1, Ordering::SeqCst) < LIMIT as u64);
                    running.fetch_sub(1, Ordering::SeqCst);
                    end(task, Ended::Completed);
                }
            });
        }
    });
    assert_eq!(
        (members.pending(), members.ended(Ended::Completed)),
        (0, 4000)
    );
    assert_eq!(gate.free(), LIMIT as u64);
    let full = Owner::new(Some(0), 0);
    assert!(full.gate().expect("a limit").take().is_err());
}

#[test]
fn a_group_lives_until_its_last_task_has_ended() {
    let members = Owner::new(None, 0);
    let weak = Arc::downgrade(&members);
    let (first, last) = (members.enter(), members.enter());
    let clone = members.clone();
    drop(members);
    end(clone.enter(), Ended::Completed);
    drop(clone);
    end(first, Ended::Completed);
    assert_eq!(last.members().ended(Ended::Completed), 2);
    assert!(weak.upgrade().is_some(), "a task is pending");
    end(last, Ended::Discarded);
    assert!(weak.upgrade().is_none(), "the last task frees the group");
}

#[test]
fn a_group_is_freed_whether_its_owner_or_its_task_goes_last() {
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let members = Owner::new(None, 0);
        let weak = Arc::downgrade(&members);
        let tasks = [members.enter(), members.enter()];
        thread::scope(|s| {
            for task in tasks {
                s.spawn(|| end(task, Ended::Completed));
            }
            s.spawn(|| drop(members));
        });
        assert!(weak.upgrade().is_none());
    }
}

/// Law 19: a child that `fork` has made waits for no lock of a group: a thread that does not exist there may
/// hold it. To this group the process looks like such a child.
#[test]
fn a_child_waits_for_no_lock() {
    let mut members = Owner::new(None, 0);
    let own = Arc::get_mut(&mut members.0).expect("no other reference");
    own.generation = own.generation.wrapping_add(1);
    let task = members.enter();
    assert!(members.watch(&mut lock(&members.rare)));
    let stopped = members.hold();
    let (tell, told) = mpsc::channel();
    let child = thread::spawn(move || {
        leave(task.exit());
        tell.send(()).unwrap();
    });
    let has_left = told.recv_timeout(Duration::from_secs(10));
    drop(stopped);
    child.join().unwrap();
    assert_eq!(has_left, Ok(()));
}
