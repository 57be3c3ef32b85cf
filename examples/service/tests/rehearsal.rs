//! Tests that a pool of the rehearsal shows the finding of its way, and that one more worker helps.

#[allow(dead_code)] // its `main`
#[path = "../examples/rehearsal.rs"]
mod rehearsal;

use rehearsal::{pool_that_hangs, WAYS};
use std::thread;
use std::time::{Duration, Instant};

/// Far more time than any condition here takes.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn each_way_has_its_finding_and_one_more_worker_helps() {
    for &(way, finding) in WAYS {
        let (pool, sent) = pool_that_hangs(way).expect("a way");
        let start = Instant::now();
        while !format!("{pool:?}").contains(finding) || pool.stats().queued != 1 {
            assert!(start.elapsed() < LIMIT, "{way}: {pool:?}");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(sent.try_recv().is_err(), "{way}: the task waits");
        pool.nudge();
        assert!(sent.try_recv().is_err(), "{way}: first aid is not enough");
        pool.set_limit(2).expect("at most `max_workers`");
        sent.recv_timeout(LIMIT).expect(way);
    }
    assert!(pool_that_hangs("no way").is_none());
}
