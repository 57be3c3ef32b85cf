use super::*;
use crate::parts::cut::cut;
use std::time::Duration;

fn figures(set: &Members) -> [usize; 4] {
    [
        set.pending(),
        set.completed(),
        set.panicked(),
        set.discarded(),
    ]
}

#[test]
fn every_end_is_counted_once() {
    let set = Handle::new();
    let tasks: Vec<_> = (0..6).map(|_| set.enter()).collect();
    let refused = set.enter();
    assert_eq!(figures(&set), [7, 0, 0, 0]);
    refused.refuse();
    assert_eq!(figures(&set), [6, 0, 0, 0]);
    let ends = [Ended::Completed, Ended::Panicked, Ended::Discarded];
    for (task, how) in tasks.into_iter().zip(ends.into_iter().cycle()) {
        assert!(std::ptr::eq(task.members(), &raw const *set));
        assert!(!set.has_ended());
        task.end(how);
    }
    assert_eq!(figures(&set), [0, 2, 2, 2]);
    assert!(set.wait(&Deadline::never(), true));
}

fn waiting(set: &Members) -> usize {
    let rare = lock(&set.rare);
    let flag = set.ended.load(Ordering::SeqCst) & WAITED;
    assert_eq!(flag != 0, rare.waiting != 0);
    let flag = set.entered.load(Ordering::SeqCst) & ENTER_WAITED;
    assert_eq!(flag != 0, rare.waiting != 0);
    rare.waiting
}

/// As many tasks before as lead each step across the wrap of `ended`'s count.
fn near_the_wrap() -> impl Iterator<Item = u64> {
    (0..=cut(8)).map(|n| (1 << (u64::BITS - ENDED_SHIFT)) - n)
}

fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn every_end_is_counted_once_across_the_wrap() {
    for start in near_the_wrap() {
        let set = Handle::starting_at(start);
        let since = |figures: [usize; 4]| {
            let [pending, completed, rest @ ..] = figures;
            (pending, completed.wrapping_sub(start as usize), rest)
        };
        assert_eq!(since(figures(&set)), (0, 0, [0, 0]), "{start:#x}");
        let mut tasks: Vec<_> = (0..6).map(|_| set.enter()).collect();
        let refused = set.enter();
        assert_eq!(since(figures(&set)), (7, 0, [0, 0]), "{start:#x}");
        refused.refuse();
        let ends = [Ended::Completed, Ended::Panicked, Ended::Discarded];
        for n in 1..=6 {
            assert!(!set.wait(&Deadline::from_now(Duration::ZERO), false));
            tasks.pop().expect("six").end(ends[n % 3]);
            let expected = (6 - n, n / 3, [n.div_ceil(3), (n + 1) / 3]);
            assert_eq!(since(figures(&set)), expected, "{start:#x}");
        }
        assert!(set.wait(&Deadline::never(), true), "{start:#x}");
    }
}

#[test]
fn a_waiter_is_woken_and_the_last_one_frees_across_the_wrap() {
    for start in near_the_wrap() {
        let set = Handle::starting_at(start);
        let tasks = [(); 3].map(|()| set.enter());
        assert_eq!(set.pending(), 3, "{start:#x}");
        std::thread::scope(|s| {
            s.spawn(|| assert!(set.wait(&Deadline::never(), false)));
            until(|| waiting(&set) == 1);
            for task in tasks {
                task.end(Ended::Completed);
            }
        });
        let mut left = [(); 4].map(|()| set.enter()).into_iter();
        left.next().expect("four").end(Ended::Discarded);
        drop(set);
        // The last end must make the word `LEFT`: then it frees.
        for (task, pending) in left.zip([3, 2, 1]) {
            let word = task.members().ended.load(Ordering::SeqCst);
            assert_eq!(word.wrapping_add(pending * ENDED), LEFT, "{start:#x}");
            task.end(Ended::Completed);
        }
    }
}

#[test]
fn tasks_outlive_the_handle_and_the_last_one_frees() {
    // By the sanitizers: neither freed too soon nor never.
    for handle_goes_before in 0..4 {
        let set = Handle::new();
        let mut tasks: Vec<_> = (0..3).map(|_| set.enter()).collect();
        let mut set = Some(set);
        for n in 0..3 {
            if n == handle_goes_before {
                set = None;
            }
            let task = tasks.pop().expect("three");
            task.members().cancelled.store(true, Ordering::SeqCst);
            task.end(Ended::Completed);
        }
        drop(set);
    }
}

#[test]
fn a_waiter_leaves_at_its_deadline_or_is_woken_by_the_last() {
    let set = Handle::new();
    let task = set.enter();
    let soon = Deadline::from_now(Duration::from_millis(20));
    assert!(!set.wait(&soon, false) && soon.has_passed());
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| assert!(set.wait(&Deadline::never(), false)));
        }
        until(|| waiting(&set) == 2);
        let last = set.enter();
        task.end(Ended::Completed);
        last.refuse();
    });
    assert_eq!(waiting(&set), 0);
}

/// Law 14: by each way in which nothing is pending for a moment.
#[test]
fn a_wait_ends_even_if_the_next_task_enters_at_once() {
    let ends: [fn(Pending); 3] = [
        |task| task.end(Ended::Completed),
        |task| task.end(Ended::Discarded),
        Pending::refuse,
    ];
    for end in ends {
        let set = Handle::new();
        let first = set.enter();
        let next = std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| assert!(set.wait(&Deadline::never(), true)));
            }
            until(|| waiting(&set) == 2);
            end(first);
            // Pending until both have returned.
            set.enter()
        });
        assert_eq!((set.pending(), waiting(&set)), (1, 0));
        next.end(Ended::Completed);
    }
}

#[test]
fn a_wait_goes_on_while_one_is_pending() {
    let set = Handle::new();
    let mut task = set.enter();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(set.wait(&Deadline::never(), true));
            assert!(over.load(Ordering::SeqCst));
        });
        until(|| waiting(&set) == 1);
        for how in [Ended::Completed, Ended::Panicked, Ended::Discarded] {
            let next = set.enter();
            std::mem::replace(&mut task, next).end(how);
            let refused = set.enter();
            refused.refuse();
        }
        over.store(true, Ordering::SeqCst);
        task.end(Ended::Completed);
    });
}
