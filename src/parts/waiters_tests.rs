use super::*;
use std::thread;

/// Taken off the list by an event.
fn notified(waiting: &Waiting<'_>) -> bool {
    waiting.find(&lock(&waiting.waiters.list)).is_err()
}

/// Back in its place; whether an event had taken it off.
fn rejoin(waiting: &Waiting<'_>) -> bool {
    let was_off = notified(waiting);
    waiting.rejoin();
    was_off
}

/// New ones, whose tickets begin at 0, or wrap at the first, second or third entry.
fn starts() -> impl Iterator<Item = Waiters> {
    [0, u64::MAX, u64::MAX - 1, u64::MAX - 2]
        .into_iter()
        .map(Waiters::starting_at)
}

/// One that has waited for long.
fn aged(waiters: &Waiters) -> Waiting<'_> {
    let mut waiting = waiters.join();
    while !waiting.is_aged() {
        waiting.sleep(&Deadline::never());
    }
    waiting
}

#[test]
fn first_come_first_served_and_back_in_place() {
    for waiters in starts() {
        let first = waiters.join();
        let second = waiters.join();
        let third = waiters.join();
        assert!(!rejoin(&first), "it is there");
        waiters.notify();
        assert!(notified(&first) && !notified(&second));
        assert!(rejoin(&first) && !notified(&first));
        waiters.notify();
        assert!(
            notified(&first) && !notified(&second),
            "it was in front again"
        );
        drop(third); // from the end
        waiters.notify();
        assert!(notified(&second));
        assert_eq!(waiters.waiting(), 0);
        waiters.notify(); // Nobody is there.

        // The later one is back before the earlier one.
        assert!(rejoin(&second) && rejoin(&first));
        waiters.notify();
        assert!(notified(&first) && !notified(&second), "places are kept");
    }
}

#[test]
fn sleeps_until_notified_or_the_deadline() {
    let waiters = Waiters::new();
    let mut waiting = aged(&waiters);
    assert_eq!(waiters.waiting(), 1);
    let deadline = Deadline::from_now(Duration::from_millis(50));
    waiting.sleep(&deadline);
    assert!(deadline.has_passed() && !notified(&waiting));
    // Notified before it sleeps: not at all, whatever the deadline.
    waiters.notify();
    waiting.sleep(&Deadline::never());
    assert!(rejoin(&waiting));
    // And while it sleeps.
    thread::scope(|s| {
        s.spawn(|| waiters.notify());
        waiting.sleep(&Deadline::never());
    });
    assert!(notified(&waiting));
}

#[test]
fn space_not_used_is_passed_on() {
    for waiters in starts() {
        let first = waiters.join();
        let second = waiters.join();
        waiters.notify();
        drop(first);
        assert!(notified(&second));
        drop(second);
        assert_eq!(waiters.waiting(), 0);
        // One that nobody notified leaves without a word.
        let first = waiters.join();
        let second = waiters.join();
        drop(first);
        assert!(!notified(&second));
        waiters.notify_all();
        assert!(notified(&second));
    }
}

/// It counts until it leaves, notified or not; then the next one looks at the space left for it.
#[test]
fn one_that_has_waited_long_counts_and_notifies_the_next() {
    for is_notified in [false, true] {
        for waiters in starts() {
            let old = aged(&waiters);
            assert_eq!(waiters.aged(), 1);
            let (second, third) = (waiters.join(), waiters.join());
            assert!(!second.is_aged());
            if is_notified {
                waiters.notify();
                assert!(notified(&old) && waiters.aged() == 1);
                rejoin(&old); // It tries from its place.
            }
            drop(old);
            assert_eq!(waiters.aged(), 0);
            assert!(notified(&second) && !notified(&third));
        }
    }
}

/// The first tries again as soon as it is aged: it may have left space to others that are aged.
#[test]
fn the_first_stops_sleeping_when_it_becomes_aged() {
    let waiters = Waiters::new();
    let joined = std::time::Instant::now();
    let mut waiting = waiters.join();
    waiting.sleep(&Deadline::never());
    assert!(waiting.is_aged() && !notified(&waiting));
    assert!(joined.elapsed() >= AGE);
    // The next one sleeps on.
    let mut next = waiters.join();
    let deadline = Deadline::from_now(10 * AGE);
    next.sleep(&deadline);
    assert!(next.is_aged() && deadline.has_passed());
}

/// It may have left the space of its event to the aged one.
#[test]
fn one_that_leaves_beside_an_aged_one_notifies_it() {
    for waiters in starts() {
        let first = waiters.join();
        let mut second = waiters.join();
        let deadline = Deadline::from_now(2 * AGE);
        while !second.is_aged() {
            second.sleep(&deadline);
        }
        assert!(!first.is_aged());
        waiters.notify();
        assert!(rejoin(&first) && !notified(&second));
        drop(first);
        assert!(notified(&second));
    }
}

#[test]
fn one_that_is_always_notified_becomes_aged_as_well() {
    let waiters = Waiters::new();
    let mut waiting = waiters.join();
    thread::sleep(2 * AGE);
    // Notified while it was trying.
    waiters.notify();
    waiting.sleep(&Deadline::never());
    assert_eq!(waiters.aged(), 1);
    drop(waiting);
    assert_eq!(waiters.aged(), 0);
}

/// The first leaves before it has aged, with an event that had been for two; meanwhile the second
/// ages, which is not yet the first. One of the two sees to it that the second tries.
#[test]
fn one_that_ages_while_the_first_leaves_tries() {
    for _ in 0..30 {
        let waiters = &Waiters::new();
        let first = waiters.join();
        thread::scope(|s| {
            let tries = s.spawn(|| {
                let mut second = waiters.join();
                let long = Deadline::from_now(Duration::from_secs(20));
                second.sleep(&long);
                !long.has_passed()
            });
            while waiters.waiting() != 2 {
                std::hint::spin_loop();
            }
            // Asleep, as a rule; not yet aged.
            thread::sleep(AGE / 4);
            let held = waiters.hold();
            s.spawn(|| drop(first));
            // Let go as it ages: the one that comes takes the lock before the one that is woken.
            let limit = Deadline::from_now(20 * AGE);
            while waiters.aged() == 0 && !limit.has_passed() {
                std::hint::spin_loop();
            }
            drop(held);
            assert!(
                tries.join().expect("no panic"),
                "it sleeps beside free space"
            );
        });
    }
}
