//! Two signals for the night on which a pool hangs. SIGUSR1 prints the pool, and a second later once more. SIGUSR2
//! gives first aid: it nudges the pool. If tasks are still queued or all workers busy after that, it lets the pool
//! have one more worker. "When a pool hangs" in the CONTRIBUTING.md of lazypool says when to send which, and how to
//! read what is printed.

use lazypool::Pool;
use std::{io, sync::Arc, thread, time::Duration};
use tokio::signal::unix::{signal, SignalKind};
use tokio::time::sleep;

/// Obeys the two signals on a thread of its own, because those of the service's runtime may all wait for the pool.
pub(crate) fn obey(pool: &Arc<Pool>) -> io::Result<()> {
    let pool = Arc::downgrade(pool);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    let mut print = signal(SignalKind::user_defined1())?;
    let mut help = signal(SignalKind::user_defined2())?;
    drop(entered);
    let obey = async move {
        loop {
            let helps = tokio::select! {
                _ = print.recv() => false,
                _ = help.recv() => true,
            };
            let Some(pool) = pool.upgrade() else { return };
            if helps {
                let pool = Arc::clone(&pool);
                // It may wait for a thread that is stopped. So it has a thread, too, if the OS gives one.
                let aid = move || {
                    pool.nudge();
                    eprintln!("nudged");
                    thread::sleep(Duration::from_millis(500));
                    let stats = pool.stats();
                    if stats.queued > 0 || stats.idle == 0 && stats.workers > 0 {
                        let more = pool.set_limit(pool.limit() + 1);
                        eprintln!("workers: at most {} {more:?}", pool.limit());
                    }
                };
                if let Err(error) = thread::Builder::new().spawn(aid) {
                    eprintln!("no thread for a nudge: {error}");
                }
            } else {
                eprintln!("{pool:?}");
            }
            sleep(Duration::from_secs(1)).await;
            eprintln!("{pool:?}");
        }
    };
    thread::Builder::new().spawn(move || runtime.block_on(obey))?;
    Ok(())
}
