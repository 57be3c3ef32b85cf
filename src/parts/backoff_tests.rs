use super::*;

const SOON: Duration = Duration::from_micros(50);

fn is_long(adaptive: &AdaptiveSpin) -> bool {
    adaptive.spin().looks == MANY_LOOKS
}

/// Looks for something that never comes, until the spin ends. Returns how often it looked.
fn looks_in_vain(adaptive: &AdaptiveSpin) -> u32 {
    let looks = Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        None::<()>
    };
    assert_eq!(adaptive.look_for(look, || false), None);
    looks.get()
}

#[test]
fn one_long_spin_after_a_short_sleep() {
    let adaptive = AdaptiveSpin::new(true);
    assert!(!is_long(&adaptive));
    adaptive.slept(Duration::from_millis(1));
    assert!(!is_long(&adaptive), "it was idle");
    adaptive.slept(SOON);
    assert!(is_long(&adaptive));
    assert!(adaptive.spin().looks > 8 * BoundedSpin::new(true, false).looks);
    adaptive.met(Step::Spun);
    assert!(!is_long(&adaptive), "once");
    let alone = AdaptiveSpin::new(false);
    alone.slept(SOON);
    assert_eq!(alone.spin().looks, 0, "no other thread runs meanwhile");
}

#[test]
fn a_long_spin_yields_at_once_and_again_after_each_length_of_a_plain_spin() {
    let adaptive = AdaptiveSpin::new(true);
    adaptive.slept(SOON);
    let mut spin = adaptive.spin();
    let steps = (1..=MANY_LOOKS).map(|look| (look, spin.step()));
    let yields = steps
        .filter(|(_, step)| *step == Step::Yielded)
        .map(|(look, _)| look);
    let expected: Vec<u32> = (0..MANY_LOOKS / LOOKS)
        .map(|n| FEW_LOOKS + n * LOOKS)
        .collect();
    assert_eq!(yields.collect::<Vec<u32>>(), expected);
}

#[test]
fn an_immediate_find_uses_up_no_long_spin() {
    let adaptive = AdaptiveSpin::new(true);
    adaptive.slept(SOON);
    assert_eq!(adaptive.look_for(|| Some(1), || false), Some(1));
    assert!(is_long(&adaptive), "the thread had slept");
    let mut looks = 0;
    let third = || {
        looks += 1;
        (looks == 3).then_some(3)
    };
    assert_eq!(adaptive.look_for(third, || false), Some(3));
    assert!(!is_long(&adaptive), "that was the long spin");
}

#[test]
fn a_wait_ends_with_its_spin_or_when_told() {
    let adaptive = AdaptiveSpin::new(true);
    assert_eq!(looks_in_vain(&adaptive), 1 + LOOKS + YIELDS);
    adaptive.slept(SOON);
    assert_eq!(looks_in_vain(&adaptive), 1 + MANY_LOOKS + YIELDS);
    assert!(!is_long(&adaptive), "once");
    let mut looks = 0;
    let look = || {
        looks += 1;
        None::<()>
    };
    assert_eq!(adaptive.look_for(look, || true), None);
    assert_eq!(looks, 1);
}

#[test]
fn after_three_spins_in_vain_only_a_long_one_finds_something() {
    let adaptive = AdaptiveSpin::new(true);
    let plain = 1 + LOOKS + YIELDS;
    for expected in [plain, plain, plain, 1, 1] {
        assert_eq!(looks_in_vain(&adaptive), expected);
    }
    adaptive.slept(SOON);
    assert_eq!(looks_in_vain(&adaptive), 1 + MANY_LOOKS + YIELDS);
    assert_eq!(looks_in_vain(&adaptive), 1, "the long one was in vain, too");
    while !is_long(&adaptive) {
        adaptive.slept(SOON);
    }
    adaptive.met(Step::Spun);
    assert_eq!(looks_in_vain(&adaptive), plain);
}

#[test]
fn after_several_tasks_in_a_row_spins_come_back_and_offer_the_core_early() {
    let adaptive = AdaptiveSpin::new(true);
    let plain = 1 + LOOKS + YIELDS;
    for _ in 0..AdaptiveSpin::IN_VAIN {
        looks_in_vain(&adaptive);
    }
    assert_eq!(looks_in_vain(&adaptive), 1);
    adaptive.ran_several();
    let mut spin = adaptive.spin();
    let offered = (1..=plain).find(|_| spin.step() == Step::Yielded);
    assert_eq!(offered, Some(FEW_LOOKS));
    for expected in [plain, plain, plain, 1] {
        assert_eq!(looks_in_vain(&adaptive), expected);
    }
}

#[test]
fn long_spins_in_vain_get_rare_and_come_back() {
    let adaptive = AdaptiveSpin::new(true);
    let until_long = |adaptive: &AdaptiveSpin| {
        let mut sleeps = 0_u32;
        while !is_long(adaptive) {
            adaptive.slept(SOON);
            sleeps += 1;
        }
        adaptive.missed();
        sleeps
    };
    let gaps: Vec<_> = (0..13).map(|_| until_long(&adaptive)).collect();
    assert_eq!(gaps[..5], [1, 2, 3, 5, 9]);
    assert_eq!(gaps[11..], [1 + Throttle::LONGEST_PAUSE; 2]);
    // Plain spins find something, but not often enough in a row for the pauses to get short again.
    let enough = |times| (0..times).for_each(|_| adaptive.met(Step::Spun));
    enough(Throttle::MANY - 1);
    adaptive.slept(SOON);
    enough(Throttle::MANY - 1);
    assert_eq!(until_long(&adaptive), Throttle::LONGEST_PAUSE);
    enough(Throttle::MANY);
    assert_eq!([until_long(&adaptive), until_long(&adaptive)], [1, 2]);
}

#[test]
fn the_core_is_offered_early_where_that_has_helped() {
    let adaptive = AdaptiveSpin::new(true);
    let until_offer = || {
        let mut spin = adaptive.spin();
        let looks = (1..).find(|_| spin.step() == Step::Yielded);
        (looks.expect("an offer"), spin)
    };
    assert_eq!(until_offer().0, LOOKS + 1);
    adaptive.met(Step::Yielded);
    let (looks, mut spin) = until_offer();
    assert_eq!(looks, FEW_LOOKS);
    for _ in FEW_LOOKS..LOOKS {
        assert_eq!(spin.step(), Step::Spun, "it goes on if that was in vain");
    }
    adaptive.met(Step::Spun);
    assert_eq!(until_offer().0, LOOKS + 1);
}

#[test]
fn a_wait_ends_in_the_advice_to_park() {
    for (parallel, looks) in [(true, LOOKS), (false, 0)] {
        let mut spin = BoundedSpin::new(parallel, false);
        for _ in 0..looks {
            assert_eq!(spin.step(), Step::Spun);
        }
        for _ in 0..YIELDS {
            assert_eq!(spin.step(), Step::Yielded);
        }
        assert_eq!([spin.step(), spin.step()], [Step::Spent; 2]);
    }
}

/// Law 20: a wait for another thread's step ends in sleeps, for any priorities of the two threads.
#[test]
fn a_wait_for_a_step_of_another_ends_in_sleeps() {
    let mut backoff = Backoff::default();
    for _ in 0..TRIES + YIELDS_BEFORE_SLEEP {
        backoff.wait();
    }
    for _ in 0..3 {
        let start = std::time::Instant::now();
        backoff.wait();
        assert!(start.elapsed() >= NAP);
    }
    backoff.0 = u32::MAX;
    backoff.wait();
    assert_eq!(backoff.0, u32::MAX);
}

#[test]
fn as_many_cores_as_this_process_may_use() {
    let told = std::thread::available_parallelism().expect("it is known");
    assert_eq!((cores(), cores()), (told.get(), told.get()));
}
