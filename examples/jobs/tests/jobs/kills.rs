//! Consumers killed at random moments, and the ledger compared in full after each kill.
//!
//! `LAZYPOOL_KILLS=100` makes it a hundred; `LAZYPOOL_SEED` repeats the moments of a run.

use super::{job, site, some};
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_in_kills_at_random_moments() {
    let now = UNIX_EPOCH.elapsed().expect("a time").as_micros() as u64;
    let (kills, mut seed) = (setting("LAZYPOOL_KILLS", 20), setting("LAZYPOOL_SEED", now));
    println!("LAZYPOOL_SEED={seed}");
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    let mut site = site("kills");
    // A job may be in many kills; none of these is to be blamed.
    let options =
        "--workers 3 --queue 3 --deaths 900 --attempts 5 --deadline-ms 500 --visibility-ms 700";
    let mut workers = [(); 3].map(|()| site.worker(options));
    let (mut all, mut fatal) = (Vec::new(), Vec::new());
    for round in 0..kills {
        let mut jobs = some(40, &format!("sleep-{round}"), "sleep", "20");
        jobs.extend(some(20, &format!("hash-{round}"), "hash", "100"));
        jobs.extend(some(4, &format!("flaky-{round}"), "flaky", "2"));
        fatal.push(format!("panic-{round:04}"));
        jobs.push(job(&fatal[fatal.len() - 1], "panic", ""));
        site.produce(&jobs);
        all.extend(jobs);
        sleep(Duration::from_millis(below(250)));
        let victim = below(3) as usize;
        workers[victim].signal("KILL");
        workers[victim] = site.worker(options);

        let ledger = site.settled();
        assert_eq!(ledger.lost(&all), Vec::<&String>::new(), "round {round}");
        assert!(ledger.dead.keys().eq(&fatal), "round {round}: {:?}", ledger.dead);
        assert_eq!(ledger.done.len() + fatal.len(), all.len(), "round {round}");
    }
    let (twice, all) = (site.ledger().twice().len(), all.len());
    println!("{kills} kills: {all} jobs, {twice} with work done twice, 0 lost");
}
