use super::*;
use std::thread;

fn notified(entry: &Entry) -> bool {
    entry.notified.load(Ordering::SeqCst)
}

/// New ones, whose tickets begin at 0, or wrap at the first, second or third entry.
fn starts() -> impl Iterator<Item = Waiters> {
    [0, u64::MAX, u64::MAX - 1, u64::MAX - 2]
        .into_iter()
        .map(Waiters::starting_at)
}

#[test]
fn first_come_first_served_and_back_in_place() {
    for waiters in starts() {
        let (a, b, c) = (Entry::new(), Entry::new(), Entry::new());
        let mut first = waiters.join(&a);
        let mut second = waiters.join(&b);
        let third = waiters.join(&c);
        waiters.notify();
        assert!(notified(&a) && !notified(&b));
        first.rejoin();
        assert!(!notified(&a));
        waiters.notify();
        assert!(notified(&a) && !notified(&b), "it was in front again");
        drop(third); // from the end
        waiters.notify();
        assert!(notified(&b));
        assert_eq!(waiters.waiting(), 0);
        waiters.notify(); // Nobody is there.

        // The later one is back before the earlier one.
        second.rejoin();
        first.rejoin();
        waiters.notify();
        assert!(notified(&a) && !notified(&b), "places are kept");
    }
}

#[test]
fn sleeps_until_notified_or_the_deadline() {
    let waiters = Waiters::new();
    let entry = Entry::new();
    let mut waiting = waiters.join(&entry);
    assert_eq!(waiters.waiting(), 1);
    let deadline = Deadline::from_now(Duration::from_millis(50));
    waiting.sleep(&deadline);
    assert!(deadline.has_passed() && !notified(&entry));
    // Notified before it sleeps: not at all, whatever the deadline.
    waiters.notify();
    waiting.sleep(&Deadline::never());
    waiting.rejoin();
    // And while it sleeps.
    thread::scope(|s| {
        s.spawn(|| waiters.notify());
        waiting.sleep(&Deadline::never());
    });
    assert!(notified(&entry));
}

#[test]
fn room_not_used_is_passed_on() {
    for waiters in starts() {
        let (a, b) = (Entry::new(), Entry::new());
        let first = waiters.join(&a);
        let second = waiters.join(&b);
        waiters.notify();
        drop(first);
        assert!(notified(&b));
        drop(second);
        assert_eq!(waiters.waiting(), 0);
        // One that nobody notified leaves without a word.
        let (a, b) = (Entry::new(), Entry::new());
        let first = waiters.join(&a);
        let _second = waiters.join(&b);
        drop(first);
        assert!(!notified(&b));
        waiters.notify_all();
        assert!(notified(&b));
    }
}

/// Also where it was notified, and has yet to wake.
#[test]
fn newcomers_line_up_behind_one_that_has_waited_long() {
    for (waiters, is_notified) in starts().zip([false; 4]).chain(starts().zip([true; 4])) {
        let (a, b, c) = (Entry::new(), Entry::new(), Entry::new());
        let mut old = waiters.join(&a);
        assert!(!waiters.has_aged());
        // If this thread is slow, its time is up before it has slept.
        while !waiters.has_aged() {
            old.sleep(&Deadline::from_now(10 * AGE));
        }
        if is_notified {
            waiters.notify();
            assert!(notified(&a) && waiters.waiting() == 0);
        }
        let (second, is_first) = waiters.line_up(&b);
        assert!(!is_first, "the room is the old one's");
        let (third, is_first) = waiters.line_up(&c);
        assert!(!is_first);
        if is_notified {
            old.rejoin(); // It tries from its place.
        }
        // Whoever leaves notifies the next, who has not tried yet.
        drop(old);
        assert!(!waiters.has_aged());
        assert!(notified(&b) && !notified(&c));
        drop(second);
        assert!(notified(&c));
        drop(third);
        let (_alone, is_first) = waiters.line_up(&a);
        assert!(is_first, "it tries at once");
    }
}

#[test]
fn one_that_never_sleeps_long_grows_old_as_well() {
    let waiters = Waiters::new();
    let entry = Entry::new();
    let mut waiting = waiters.join(&entry);
    thread::sleep(2 * AGE);
    // Notified while it was trying.
    waiters.notify();
    waiting.sleep(&Deadline::never());
    assert!(waiters.has_aged());
    drop(waiting);
    assert!(!waiters.has_aged());
}
