//! One round: the life of a pool under several faults, from its first task to its last thread.

use crate::books::{add, get, quiet_panic, Books, Site, Ticket};
use crate::calls::{Caller, From, LONG};
use crate::faults::{Fault, Plan, Seen};
use crate::rng::{mix, Rng};
use crate::POOLS;
use lazypool::{BuildError, Pool, Shutdown, Stats, WhenFull};
use soak::{os, spawn};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{scope, sleep, yield_now};
use std::time::{Duration, Instant};

/// Linux keeps 15 bytes of a thread's name.
const NAME: &str = "pool";

/// A time far beyond any healthy end.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        sleep(Duration::from_micros(500));
    }
}

/// Plays one round. With a greater `rare`, it has fewer faults. Returns its ledger and the faults
/// that it met.
pub(crate) fn play(seed: u64, rare: u64) -> Arc<Site> {
    let (rng, plan) = (&mut Rng::new(seed), Plan::drawn(seed, rare));
    os::pin(plan.has(Fault::OneCore));
    let threads = os::threads();
    let (site, pool) = build(plan, rng);
    if plan.has(Fault::OneCore) {
        site.seen.note(Fault::OneCore);
    }
    let peer = plan.has(Fault::OtherPool).then(|| build(plan, rng));
    if let (Some(pool), None | Some((_, Some(_)))) = (pool, &peer) {
        if let Some((peer, _)) = &peer {
            let _ = site.peer.set(Arc::downgrade(peer));
        }
        load(&pool, &site, rng);
        end(pool, &site, rng);
    }
    if let Some((site, Some(pool))) = peer {
        // Tasks of the first pool, which may be gone, have submitted to it.
        settle(&pool);
        if rng.one_in(2) {
            wait_for("the other pool's users", || Arc::strong_count(&pool) == 1);
            drop(pool);
        } else {
            close(&pool, &site);
        }
        wait_for("the pools' threads to end", || os::threads() == threads);
        site.check_drops();
    }
    wait_for("the pool's threads to end", || os::threads() == threads);
    site.check_drops();
    POOLS.lock().expect("no panic under it").clear();
    site
}

/// Builds a pool with its ledger. There is no pool if the OS refused a thread for the minimum.
fn build(plan: Plan, rng: &mut Rng) -> (Arc<Site>, Option<Arc<Pool>>) {
    // Most pools are small, so that a few tasks fill them.
    let is_large = rng.one_in(8);
    let workers = 1 + rng.below(if is_large { 100 } else { 4 }) as usize;
    let queue = rng.below(if is_large { 2_000 } else { 5 }) as usize;
    let blocks = rng.one_in(2);
    let site = Arc::new(Site {
        plan,
        blocks,
        workers,
        books: Books::default(),
        seen: Seen::new(),
        pool: OnceLock::new(),
        peer: OnceLock::new(),
        groups: OnceLock::new(),
    });
    let min = usize::from(plan.has(Fault::MinWorkers));
    let idle = match plan.has(Fault::Retired) {
        true => Duration::from_millis(rng.pick(&[0, 0, 1, 5])),
        false => rng.pick(&[Duration::from_secs(10), Duration::MAX]),
    };
    let mut builder = Pool::builder()
        .max_workers(workers)
        .min_workers(min)
        .queue_capacity(queue)
        .when_full([WhenFull::Refuse, WhenFull::Block][usize::from(blocks)])
        .idle_timeout(idle)
        .thread_name(NAME)
        .shutdown_on_drop(Shutdown::Drain, Duration::MAX);
    if plan.has_any(&[Fault::HookSlow, Fault::HookPanics]) {
        let hooks = [(); 4].map(|()| hook(&site, rng.draw()));
        let [start, stop, panicked, around] = hooks;
        let turns = AtomicU64::new(rng.draw());
        builder = builder
            .on_worker_start(move |_| start())
            .on_worker_stop(move |_| stop())
            .on_panic(move |_| panicked())
            .around(move |task| {
                // It may leave the task out or run it twice.
                let calls = [1, 1, 1, 0, 2][(turns.fetch_add(1, SeqCst) % 5) as usize];
                (0..calls).for_each(|_| task());
                around();
            });
    }
    if plan.has(Fault::NoThread) && rng.one_in(4) {
        spawn::refuse(0, 1);
    }
    let built = builder.build();
    spawn::refuse(0, 0);
    let pool = match built {
        Ok(pool) => Arc::new(pool),
        Err(BuildError::Spawn(_)) if plan.has(Fault::NoThread) => {
            site.seen.note(Fault::NoThread);
            return (site, None);
        }
        Err(error) => panic!("{error}"),
    };
    assert!(pool.stats().workers >= min, "fewer than min: {pool:?}");
    if min > 0 {
        site.seen.note(Fault::MinWorkers);
    }
    let _ = site.pool.set(Arc::downgrade(&pool));
    let limit = 1 + rng.below(2) as usize;
    let groups = [pool.group(), pool.limited_group(limit)];
    let _ = site
        .groups
        .set(groups.map(|group| (group, AtomicU64::new(0), AtomicU64::new(0))));
    let mut pools = POOLS.lock().expect("no panic under it");
    pools.push(Arc::downgrade(&pool));
    drop(pools);
    (site, Some(pool))
}

/// Returns a hook that is slow or panics at times.
fn hook(site: &Arc<Site>, seed: u64) -> impl Fn() + Send + Sync {
    // Weak: the site has groups, which keep the hooks.
    let (site, turns) = (Arc::downgrade(site), AtomicU64::new(seed));
    move || {
        let Some(site) = site.upgrade() else {
            return;
        };
        match mix(turns.fetch_add(1, SeqCst)) % 4 {
            0 if site.plan.has(Fault::HookSlow) => {
                site.seen.note(Fault::HookSlow);
                sleep(Duration::from_millis(1));
            }
            1 if site.plan.has(Fault::HookPanics) => {
                site.seen.note(Fault::HookPanics);
                add(&site.books.hook_panics);
                quiet_panic();
            }
            2 => yield_now(),
            _ => {}
        }
    }
}

/// Submits from several threads, and disturbs the pool meanwhile.
fn load(pool: &Arc<Pool>, site: &Arc<Site>, rng: &mut Rng) {
    let submitters = rng.pick(&[3, 3, 3, 16]);
    let calls = 180 / submitters as u64 + rng.below(60);
    let pauses = rng.pick(&[8, 8, 100]);
    let busy = AtomicUsize::new(submitters);
    scope(|s| {
        for _ in 0..submitters {
            let (busy, rng) = (&busy, Rng::new(rng.draw()));
            s.spawn(move || {
                let mut caller = Caller {
                    pool,
                    site,
                    rng,
                    from: From::Outside,
                };
                for _ in 0..calls {
                    caller.one();
                    if caller.rng.one_in(pauses) {
                        sleep(caller.rng.micros(1_500));
                    }
                }
                busy.fetch_sub(1, SeqCst);
            });
        }
        if site.plan.has(Fault::Storm) {
            for _ in 0..2 {
                let (busy, rng) = (&busy, Rng::new(rng.draw()));
                s.spawn(move || storm(pool, site, rng, busy));
            }
        }
        disturb(pool, site, rng, &busy);
    });
}

/// Shuts the pool down again and again, until a shutdown is clean or no thread submits any more.
fn storm(pool: &Pool, site: &Site, mut rng: Rng, busy: &AtomicUsize) {
    sleep(rng.micros(20_000));
    while busy.load(SeqCst) > 0 {
        site.seen.note(Fault::Storm);
        let timeouts = [Duration::ZERO, rng.micros(2_000), rng.micros(100_000), LONG];
        if shut_down(
            pool,
            rng.pick(&[Shutdown::Drain, Shutdown::Discard]),
            rng.pick(&timeouts),
        ) {
            return;
        }
        sleep(rng.micros(500));
    }
}

/// Returns `true` if the shutdown was clean.
fn shut_down(pool: &Pool, mode: Shutdown, timeout: Duration) -> bool {
    let start = Instant::now();
    let report = pool.shutdown(mode, timeout);
    let (took, s) = (start.elapsed(), pool.stats());
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    let is_right = match report.is_clean() {
        true => s.workers == 0 && s.accepted == ended && s.discarded >= report.discarded,
        false => took >= timeout,
    };
    assert!(is_right, "{report:?} after {took:?} of {timeout:?}: {s:?}");
    report.is_clean()
}

/// Changes the limit, cancels the groups, shuts the pool down and refuses threads while others
/// submit. Looks at the figures meanwhile.
fn disturb(pool: &Pool, site: &Site, rng: &mut Rng, busy: &AtomicUsize) {
    let (plan, seen) = (site.plan, &site.seen);
    let calm = rng.pick(&[6, 20]);
    let mut last = pool.stats();
    for turn in 0_u32.. {
        if busy.load(SeqCst) == 0 {
            break;
        }
        if plan.has(Fault::NoThread) && rng.one_in(2) {
            spawn::refuse(rng.below(3) as u32, 1 + rng.below(4) as u32);
        }
        if plan.has(Fault::LimitSet) {
            seen.note(Fault::LimitSet);
            let limit = 1 + rng.below(pool.max_workers() as u64) as usize;
            assert_eq!(pool.set_limit(limit), Ok(()), "{pool:?}");
        }
        let cancels = plan.has(Fault::GroupCancelled) && rng.one_in(8);
        for (group, ..) in site.groups.get().into_iter().flatten() {
            if cancels && group.pending() > 0 && !group.is_cancelled() {
                seen.note(Fault::GroupCancelled);
                group.cancel();
            }
        }
        let ends = [
            (Fault::Drain, Shutdown::Drain),
            (Fault::Discard, Shutdown::Discard),
            (Fault::Cancel, Shutdown::Cancel),
        ];
        if turn > calm && rng.one_in(4) {
            for (fault, mode) in ends {
                if plan.has(fault) {
                    seen.note(fault);
                    shut_down(pool, mode, rng.micros(500));
                }
            }
        }
        last = look(pool, &last, plan.has(Fault::NoThread));
        if last.retired > 0 && plan.has(Fault::Retired) && !pool.is_closed() {
            seen.note(Fault::Retired);
        }
        sleep(rng.micros(600));
    }
    spawn::refuse(0, 0);
    let s = pool.stats();
    for (fault, happened) in [
        (Fault::NoThread, s.spawn_failures > 0),
        (
            Fault::TakenBack,
            plan.has(Fault::TakenBack) && s.expired > 0,
        ),
    ] {
        if happened {
            seen.note(fault);
        }
    }
}

/// Asserts what must hold at every moment, and that counters only grow.
fn look(pool: &Pool, last: &Stats, is_fickle: bool) -> Stats {
    let (s, max) = (pool.stats(), pool.max_workers());
    let ended = s.completed + s.panicked + s.expired + s.discarded;
    let sound = s.workers as u64 == s.spawned - s.retired
        && s.running <= max
        && s.idle <= s.workers
        && s.workers <= s.peak_workers
        && s.peak_workers <= max
        && s.queued <= pool.queue_capacity()
        && ended <= s.accepted
        && pool.workers().len() <= max;
    assert!(sound, "figures that contradict each other: {s:?}");
    let counts = |s: &Stats| {
        [
            // If the OS refuses a thread, a queued task may have to come back.
            if is_fickle { 0 } else { s.accepted },
            s.refused,
            s.completed,
            s.panicked,
            s.expired,
            s.discarded,
            s.timed_out,
            s.spawned,
            s.retired,
            s.spawn_failures,
            s.hook_panics,
        ]
    };
    let grows = counts(last).iter().zip(counts(&s)).all(|(a, b)| *a <= b);
    assert!(grows, "a counter went back: {last:?}, then {s:?}");
    s
}

/// Makes the assertions that need a pool at rest, then ends the pool.
fn end(pool: Arc<Pool>, site: &Arc<Site>, rng: &mut Rng) {
    let plan = site.plan;
    for (group, ..) in site.groups.get().into_iter().flatten() {
        while group.wait_timeout(rng.micros(2_000)).is_err() && rng.one_in(2) {}
        group.wait();
    }
    let is_dropped = plan.has(Fault::Dropped);
    // Destructors of thread-locals may submit or shut down at any time.
    let is_quiet = !plan.has_any(&[Fault::LocalSubmits, Fault::LocalEnds]);
    if is_quiet && !(is_dropped && rng.one_in(2)) {
        settle(&pool);
        site.check(&pool.stats());
        if !pool.is_closed() {
            fill(&pool, site);
            settle(&pool);
            if !plan.has_any(&[Fault::HookSlow, Fault::HookPanics]) {
                crowd(&pool, site);
            }
            let rests = !plan.has_any(&[Fault::Retired, Fault::HookSlow, Fault::OtherPool]);
            if rests && rng.one_in(8) {
                rest(&pool);
            }
        }
    }
    if is_dropped {
        site.seen.note(Fault::Dropped);
        if rng.one_in(2) {
            abandon(pool, site, rng);
        }
    } else {
        close(&pool, site);
    }
}

fn settle(pool: &Pool) {
    wait_for("the pool to come to rest", || {
        let s = pool.stats();
        let ended = s.completed + s.panicked + s.expired + s.discarded;
        s.running == 0 && s.queued == 0 && s.accepted == ended
    });
}

fn close(pool: &Pool, site: &Site) {
    let is_clean = shut_down(pool, Shutdown::Drain, Duration::MAX);
    assert!(is_clean, "not clean: {pool:?}");
    // A thread-local value of a worker may be submitting a task, which is refused.
    wait_for("an end of destructors", || {
        site.pool.get().is_some_and(|p| p.strong_count() == 1)
    });
    site.check(&pool.stats());
}

/// Leaves the last references to a pool to its tasks.
fn abandon(pool: Arc<Pool>, site: &Arc<Site>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(5) {
        let mut caller = Caller {
            pool: &pool,
            site,
            rng: rng.clone(),
            from: From::OtherPool,
        };
        let (act, last, pause) = (caller.idle(), Arc::clone(&pool), rng.micros(1_500));
        let (ticket, fate) = Ticket::new(site, act);
        let served = pool.when_full(WhenFull::Refuse).serve(move || {
            sleep(pause);
            drop(ticket.run(act));
            drop(last);
        });
        caller.answered(served, &fate, None, false, false);
    }
    if rng.one_in(3) {
        shut_down(&pool, Shutdown::Discard, rng.micros(500));
    }
    drop(pool);
    wait_for("the last task", || site.pool().is_none());
    let (group, ..) = &site.groups.get().expect("set by `build`")[0];
    let refused = group.serve(|| ()).expect_err("its pool is gone");
    assert!(refused.is_closed() || group.is_cancelled(), "{refused:?}");
}

/// Asserts that an open pool at rest accepts as many tasks as its whole capacity, and no more. A
/// worker in a hook counts as busy, so a task that is refused for that is tried again.
fn fill(pool: &Arc<Pool>, site: &Arc<Site>) {
    let (workers, plan) = (pool.max_workers(), site.plan);
    assert_eq!(pool.set_limit(workers), Ok(()), "{pool:?}");
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let rng = Rng::new(get(&site.books.made));
    let mut caller = Caller {
        pool,
        site,
        rng,
        from: From::OtherPool,
    };
    let mut serve = || {
        let (gate, act) = (Arc::clone(&gate), caller.idle());
        let (ticket, fate) = Ticket::new(site, act);
        let served = pool.when_full(WhenFull::Refuse).serve(move || {
            let held = gate.0.lock().expect("no panic under this lock");
            drop(gate.1.wait_while(held, |open| !*open));
            drop(ticket.run(act));
        });
        caller.answered(served, &fate, None, false, false).is_some()
    };
    let has_hooks = plan.has_any(&[Fault::HookSlow, Fault::HookPanics]);
    for n in 0..workers + pool.queue_capacity() {
        if has_hooks {
            wait_for("a worker out of its hook", &mut serve);
        } else {
            assert!(serve(), "at rest, and refused: task {n}, {pool:?}");
        }
    }
    assert!(!serve(), "more than its capacity: {pool:?}");
    *gate.0.lock().expect("no panic under this lock") = true;
    gate.1.notify_all();
}

/// Makes calls from as many threads as the pool has space for. None of them may be refused.
fn crowd(pool: &Arc<Pool>, site: &Arc<Site>) {
    let callers = (pool.max_workers() + pool.queue_capacity()).min(8);
    scope(|s| {
        for n in 0..callers as u64 {
            s.spawn(move || {
                let (rng, from) = (Rng::new(n), From::OtherPool);
                let mut caller = Caller {
                    pool,
                    site,
                    rng,
                    from,
                };
                for _ in 0..100 {
                    let act = caller.idle();
                    let (ticket, _) = Ticket::new(site, act);
                    let pool = pool.when_full(WhenFull::Refuse);
                    let outcome = pool.do_with_deadline(move || ticket.run(act), Duration::MAX);
                    outcome.expect("there is space").arrived(act);
                }
            });
        }
    });
}

/// Asserts that an idle pool uses no processor time.
fn rest(pool: &Pool) {
    let window = Duration::from_millis(60);
    let mut seen = Vec::new();
    // On a busy machine a worker may be late to fall asleep.
    for _ in 0..20 {
        sleep(window / 4);
        let before = os::activity(NAME);
        sleep(window);
        let after = os::activity(NAME);
        let used = after.0.saturating_sub(before.0);
        let woken = after.1.saturating_sub(before.1);
        if used < Duration::from_micros(200) && woken <= 1 {
            return;
        }
        seen.push((used, woken));
    }
    panic!("an idle pool keeps running: {seen:?}; {pool:?}");
}
