//! The limits on their own.

use super::Add;
use crate::harness::{race, Entrant, Options, Pace};
use crate::limits::{parked_round_trips, spinning_round_trips, threads, ROUND_TRIP};
use std::time::{Duration, Instant};

pub(crate) fn list(options: &Options, add: Add<'_>) {
    if !options.wants("limits") {
        return;
    }
    let budget = options.budget;
    let paced = move |f: fn(u64) -> Duration| move |pace: &mut Pace| pace.run(budget, f);
    let entrants = vec![
        Entrant::limit(ROUND_TRIP, paced(spinning_round_trips)),
        Entrant::limit("parked round trip", paced(parked_round_trips)),
        Entrant::limit("thread start and join", paced(|n| threads(n, || ()))),
        Entrant::limit("Instant::now", paced(clock)),
    ];
    let title = "What the machine allows";
    add(race(options.rounds, entrants, "limits", title, "ns"));
}

fn clock(n: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        std::hint::black_box(Instant::now());
    }
    start.elapsed()
}
