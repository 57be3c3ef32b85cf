//! Kills consumers at random moments, and checks the whole ledger after each kill.
//!
//! `LAZYPOOL_KILLS=100` makes a hundred kills. `LAZYPOOL_SEED` repeats the moments of a run.

use super::*;

#[test]
fn nothing_is_lost_in_kills_at_random_moments() {
    let now = UNIX_EPOCH.elapsed().expect("a time").as_micros() as u64;
    let settings = [("LAZYPOOL_KILLS", 20), ("LAZYPOOL_SEED", now)];
    let [kills, mut seed] = settings.map(|(name, default)| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    });
    println!("LAZYPOOL_SEED={seed}");
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    let mut site = site("kills", "");
    // A job may run during many kills. `--deaths` is high, so that no job is taken for their cause.
    let options =
        "--workers 3 --queue 3 --deaths 900 --attempts 5 --deadline-ms 500 --visibility-ms 700";
    let mut workers = [(); 3].map(|()| site.worker(options));
    let mut all = Vec::new();
    let mix = [(40, "sleep", "20"), (20, "hash", "100"), (4, "flaky", "2"), (1, "panic", "")];
    for round in 1..=kills as usize {
        let jobs = mix.map(|(n, kind, of)| some(n, &format!("{kind}-{round:04}"), kind, of));
        site.produce(&jobs.concat());
        all.extend(jobs.concat());
        sleep(Duration::from_millis(below(250)));
        let victim = below(3) as usize;
        workers[victim].signal("KILL");
        workers[victim] = site.worker(options);

        let ledger = site.settles(64 * round, round);
        assert_eq!(ledger.lost(&all), Vec::<&String>::new(), "round {round}");
        assert!(ledger.is_right(&all), "round {round}: {:?}", ledger.dead);
    }
    let (twice, all) = (site.ledger().twice().len(), all.len());
    println!("{kills} kills: {all} jobs, {twice} with work done twice, 0 lost");
}
