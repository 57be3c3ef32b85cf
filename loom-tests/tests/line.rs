//! The lines of submissions that wait for a permit (`src/parts/line.rs`), with their gates and
//! without a pool. Laws 20 and 22. In a pool: `tests/wait_for_space.rs`.
#![cfg(lazypool_loom)]

use lazypool::model::{Grant, Left, Line};
use loom::thread;
use loom_tests::{beside, check, TwoWakers};
use std::sync::Arc;

/// Returns lines whose pool and group have a permit each, and these two permits.
fn occupied() -> (Arc<Line>, Grant) {
    let line = Arc::new(Line::new(1, 1));
    let grant = line.take_as_member().expect("free");
    (line, grant)
}

/// Returns lines whose pool has one permit, and that permit. The group has two.
fn full_pool() -> (Arc<Line>, Grant) {
    let line = Arc::new(Line::new(1, 2));
    let grant = line.take().expect("free");
    (line, grant)
}

/// Leaves the line, once no thread has the entry in hand. Returns the answer, if there is one.
fn leave(line: &Line, ticket: u64) -> Option<Grant> {
    loop {
        match line.leave(ticket) {
            Left::Answered(answer) => return answer,
            Left::Unanswered => return None,
            Left::Taken => thread::yield_now(),
        }
    }
}

/// Gives the permits back, and asserts that nothing is left.
fn end(line: &Line, grants: impl IntoIterator<Item = Grant>) {
    grants.into_iter().for_each(|grant| line.give(grant));
    line.assert_at_rest();
}

/// A submission joins the pool's line while the only permit is given back. Excludes: a submission that
/// sleeps beside a free permit (S1). All interleavings.
#[test]
fn join_against_give() {
    check(None, || {
        let (line, taken) = full_pool();
        let giver = beside(&line, move |line| line.give(taken));
        let ticket = line.join().expect("open");
        let grant = line.wait(ticket).expect("granted");
        giver.join().unwrap();
        end(&line, [grant]);
    });
}

/// A member joins the group's line while the only permit of the group and of the pool is given back.
/// Excludes: a member that sleeps beside free permits, in the line of its group or in the pool's; a
/// permit that is lost. Preemptions: 4.
#[test]
fn member_joins_against_give() {
    check(Some(4), || {
        let (line, taken) = occupied();
        let giver = beside(&line, move |line| line.give(taken));
        let ticket = line.join_as_member().expect("open");
        let grant = line.wait(ticket).expect("granted");
        giver.join().unwrap();
        end(&line, [grant]);
    });
}

/// Two submissions join while two permits are given back, one after the other, by different threads.
/// Excludes: a submission that sleeps beside a free permit. Preemptions: 2.
#[test]
fn two_join_against_two_gives() {
    check(Some(2), || {
        let line = Arc::new(Line::new(2, 1));
        let [first, second] = [(), ()].map(|()| line.take().expect("free"));
        let giver = beside(&line, move |line| line.give(first));
        let other = beside(&line, move |line| {
            let ticket = line.join().expect("open");
            line.wait(ticket).expect("granted")
        });
        let ticket = line.join().expect("open");
        line.give(second);
        let grants = [line.wait(ticket).expect("granted"), other.join().unwrap()];
        giver.join().unwrap();
        end(&line, grants);
    });
}

/// One permit goes round: a submission waits for it, and gives it back, while a second joins. Excludes:
/// a permit that is not passed on; an entry that is passed twice. Preemptions: 3.
#[test]
fn a_permit_goes_round() {
    check(Some(3), || {
        let (line, taken) = full_pool();
        let other = beside(&line, |line| {
            let ticket = line.join().expect("open");
            line.give(line.wait(ticket).expect("granted"));
        });
        line.give(taken);
        let ticket = line.join().expect("open");
        line.give(line.wait(ticket).expect("granted"));
        other.join().unwrap();
        end(&line, []);
    });
}

/// An owner leaves while the permit is given back. Excludes: a permit that is lost, or given to an
/// owner that has left; an answer that no owner fetches. All interleavings.
#[test]
fn leave_against_give() {
    check(None, || {
        let (line, taken) = full_pool();
        let ticket = line.join().expect("open");
        let giver = beside(&line, move |line| line.give(taken));
        let answer = leave(&line, ticket);
        giver.join().unwrap();
        end(&line, answer);
        end(&line, [line.take().expect("free")]);
    });
}

/// The first of two entries leaves while the permit is given back. Excludes: a permit that is lost with
/// that entry, so that the second sleeps beside it. Preemptions: 3.
#[test]
fn the_first_leaves_against_give() {
    check(Some(3), || {
        let (line, taken) = full_pool();
        let first = line.join().expect("open");
        let second = beside(&line, |line| {
            let ticket = line.join().expect("open");
            line.give(line.wait(ticket).expect("granted"));
        });
        let giver = beside(&line, move |line| line.give(taken));
        if let Some(grant) = leave(&line, first) {
            line.give(grant);
        }
        giver.join().unwrap();
        second.join().unwrap();
        end(&line, []);
    });
}

/// A member leaves, from the line of its group or the pool's, while the permits are given back.
/// Excludes: a permit of the group that is lost with the entry. Preemptions: 4.
#[test]
fn member_leaves_against_give() {
    for in_pool in [false, true] {
        check(Some(4), move || {
            let (line, taken) = if in_pool { full_pool() } else { occupied() };
            let ticket = line.join_as_member().expect("open");
            let giver = beside(&line, move |line| line.give(taken));
            let answer = leave(&line, ticket);
            giver.join().unwrap();
            end(&line, answer);
            end(&line, [line.take_as_member().expect("free")]);
        });
    }
}

/// A member that stands in the pool's line with the group's permit leaves, while another member joins
/// the group's line. Excludes: a second member that sleeps beside the free permit of the group.
/// Preemptions: 3.
#[test]
fn member_leaves_against_member_that_joins() {
    check(Some(3), || {
        let line = Arc::new(Line::new(1, 1));
        let taken = line.take().expect("free");
        let first = line.join_as_member().expect("open");
        let second = beside(&line, |line| {
            let ticket = line.join_as_member().expect("open");
            line.give(line.wait(ticket).expect("granted"));
        });
        let giver = beside(&line, move |line| line.give(taken));
        if let Some(grant) = leave(&line, first) {
            line.give(grant);
        }
        giver.join().unwrap();
        second.join().unwrap();
        end(&line, []);
    });
}

/// A group is cancelled while one of its members joins, in its line or the pool's, and the permits are
/// given back. Excludes: a member that sleeps on; a permit that is lost. Preemptions: 2.
#[test]
fn cancel_against_join_and_give() {
    for in_pool in [false, true] {
        check(Some(2), move || {
            let (line, taken) = if in_pool { full_pool() } else { occupied() };
            let canceller = beside(&line, |line| line.cancel());
            let giver = beside(&line, move |line| line.give(taken));
            let ticket = line.join_as_member();
            let grant = ticket.and_then(|ticket| line.wait(ticket));
            canceller.join().unwrap();
            giver.join().unwrap();
            end(&line, grant);
            end(&line, [line.take_as_member().expect("free")]);
        });
    }
}

/// A group is cancelled while its member is first in the pool's line, and another submission waits
/// behind it. Excludes: a permit that is lost with the member, so that the second sleeps beside it.
/// Preemptions: 3.
#[test]
fn cancel_of_the_first_against_give() {
    check(Some(3), || {
        let (line, taken) = full_pool();
        let first = line.join_as_member().expect("open");
        let second = line.join().expect("open");
        let canceller = beside(&line, |line| line.cancel());
        let giver = beside(&line, move |line| line.give(taken));
        if let Some(grant) = line.wait(first) {
            line.give(grant);
        }
        let grant = line.wait(second).expect("granted");
        canceller.join().unwrap();
        giver.join().unwrap();
        end(&line, [grant]);
    });
}

/// A pool is closed while a submission joins, alone or as a member of a full group, and the permits are
/// given back. Excludes: a submission that sleeps on; a permit that is lost. Preemptions: 3.
#[test]
fn close_against_join_and_give() {
    for is_member in [false, true] {
        check(Some(3), move || {
            let (line, taken) = occupied();
            let closer = beside(&line, |line| line.close());
            let giver = beside(&line, move |line| line.give(taken));
            let ticket = if is_member {
                line.join_as_member()
            } else {
                line.join()
            };
            let grant = ticket.and_then(|ticket| line.wait(ticket));
            closer.join().unwrap();
            giver.join().unwrap();
            end(&line, grant);
        });
    }
}

/// Two entries are in line while the bound is raised and then the permit is given back. Excludes: a
/// second entry that is answered before the first. All interleavings.
#[test]
fn law20_in_order() {
    check(None, || {
        let (line, taken) = full_pool();
        let [first, second] = [(), ()].map(|()| line.join_as_future().expect("open"));
        let giver = beside(&line, move |line| {
            line.raise(2);
            line.give(taken);
        });
        let looks = beside(&line, move |line| {
            let later = line.fetch(second, None);
            let earlier = later
                .is_some()
                .then(|| line.fetch(first, None).expect("it came first"));
            [later, earlier]
        });
        let mut answers = Vec::from(looks.join().unwrap());
        giver.join().unwrap();
        if answers[0].is_none() {
            answers = [first, second]
                .map(|ticket| line.fetch(ticket, None))
                .into();
        }
        let granted = answers.into_iter().map(|it| it.flatten().expect("granted"));
        end(&line, granted);
    });
}

/// A submission that does not wait comes while one is in line and the permit is given back. Excludes: a
/// newcomer that has the permit before the entry. All interleavings.
#[test]
fn law20_a_newcomer_is_turned_away() {
    check(None, || {
        let (line, taken) = full_pool();
        let ticket = line.join_as_future().expect("open");
        let giver = beside(&line, move |line| line.give(taken));
        let newcomer = beside(&line, |line| line.take());
        giver.join().unwrap();
        assert!(newcomer.join().unwrap().is_none(), "the entry comes first");
        let grant = line
            .fetch(ticket, None)
            .expect("answered")
            .expect("granted");
        end(&line, [grant]);
    });
}

/// A submission joins while the bound is raised. Excludes: a submission that sleeps beside the new
/// permit (S1). All interleavings.
#[test]
fn join_against_a_raised_bound() {
    check(None, || {
        let (line, taken) = full_pool();
        let raiser = beside(&line, |line| line.raise(2));
        let ticket = line.join().expect("open");
        let grant = line.wait(ticket).expect("granted");
        raiser.join().unwrap();
        end(&line, [grant, taken]);
    });
}

/// A future looks for its answer twice, with different wakers, while the permit is given back.
/// Excludes: a lost wake-up; a call of the first waker once the second look has returned. All
/// interleavings.
#[test]
fn fetch_against_the_answer() {
    check(None, || {
        let (line, taken) = full_pool();
        let ticket = line.join_as_future().expect("open");
        let giver = beside(&line, move |line| line.give(taken));
        let wakers = TwoWakers::new();
        let answer = wakers.poll(|waker| line.fetch(ticket, Some(waker)));
        giver.join().unwrap();
        wakers.assert_end();
        end(&line, answer);
    });
}
