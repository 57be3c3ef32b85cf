//! Without threads: a pool is built, and whatever goes in comes back as `SpawnFailed`.

use lazypool::{task, BuildError, DeadlineError, Pool, Refusal, Refused, Shutdown, WhenFull};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn no_thread<F>(refused: &Refused<F>) -> bool {
    matches!(refused.reason(), Refusal::SpawnFailed(_))
}

fn comes_back(pool: &Pool) {
    let refused = pool.serve(|| ()).expect_err("no threads");
    assert!(no_thread(&refused));
    for limit in [Duration::ZERO, SECOND, Duration::MAX] {
        match pool.do_with_deadline(|| 1, limit) {
            Err(DeadlineError::Refused(refused)) => assert!(no_thread(&refused)),
            Err(DeadlineError::Expired(_)) => assert!(limit.is_zero()),
            _ => panic!("{limit:?}"),
        }
    }
    let group = pool.group();
    assert!(no_thread(&group.serve(|| ()).expect_err("no threads")));
    group.wait();
    assert!(group.wait_timeout(SECOND).is_ok());
    let mut sum = 0;
    pool.scope(|scope| scope.serve_or_run(|| sum += 1));
    assert_eq!(sum, 1);
    pool.serve(|| ())
        .or_else(Refused::caller_runs)
        .expect("lacked a thread");
}

/// Returns how many pools were built.
#[no_mangle]
pub extern "C" fn check() -> u32 {
    let mut pools = 0;
    for queue in [0, 4] {
        for policy in [
            WhenFull::Refuse,
            WhenFull::Block,
            WhenFull::BlockFor(SECOND),
        ] {
            let builder = || {
                Pool::builder()
                    .max_workers(2)
                    .queue_capacity(queue)
                    .when_full(policy)
            };
            assert!(matches!(
                builder().min_workers(1).build(),
                Err(BuildError::Spawn(_))
            ));
            let pool = builder().build().expect("it needs no thread");
            comes_back(&pool);
            assert_eq!((task::deadline(), task::remaining()), (None, None));
            let stats = pool.stats();
            assert_eq!((stats.accepted, stats.workers, stats.queued), (0, 0, 0));
            assert!(stats.spawn_failures > 0 && stats.spawn_failures == stats.refused);
            assert!(pool.workers().is_empty());
            assert!(pool.shutdown(Shutdown::Drain, SECOND).is_clean());
            let refused = pool.serve(|| ()).expect_err("shut down");
            assert!(matches!(refused.reason(), Refusal::Closed));
            pools += 1;
        }
    }
    pools
}
