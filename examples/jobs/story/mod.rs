//! The whole story: three processes, ten thousand jobs, and failures in between.

pub mod ledger;
pub mod process;

use crate::queue::Job;
use process::{Process, Site};
use std::collections::BTreeMap;
use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
const PROCESSES: usize = 3;

/// Returns the usual mix of jobs, with some that fail.
fn jobs() -> Vec<Job> {
    let job = |n: usize| {
        let (kind, payload) = match n % 1_000 {
            7 | 507 => ("panic", ""),
            250 if n < 3_000 => ("hang", ""),
            333 | 666 => ("flaky", "2"),
            800 if n < 3_000 => ("juggle", "3"),
            _ if n % 2 == 0 => ("hash", "100"),
            _ => ("sleep", "20"),
        };
        Job::new(format!("story-{n:05}"), kind, payload)
    };
    (0..JOBS).map(job).collect()
}

/// Causes the fault that is due once `percent` of the jobs are done. Each fault ends `worker`, one
/// of the processes.
fn fault(site: &mut Site, mut worker: Process, percent: usize) -> Result<(), Box<dyn Error>> {
    match percent {
        25 => println!("kill -9 for a process; its jobs are claimed later"),
        45 => {
            println!("SIGTERM for another: it finishes what runs, and gives back the rest");
            let status = worker.end("TERM");
            // The code is 3 if too many of its workers hung just then.
            assert!(matches!(status.code(), Some(0 | 3)), "after SIGTERM: {status}");
        }
        _ => {
            println!("kill -9 for redis-server; it starts again from its append-only file");
            site.server().end("KILL");
            sleep(Duration::from_millis(300));
            println!("kill -9 for a process: what it cannot report is done twice");
            drop(worker);
            site.start_again()?;
        }
    }
    Ok(())
}

/// Runs and prints the story. Returns `true` if the ledger is as it should be.
pub fn tell() -> Result<bool, Box<dyn Error>> {
    let mut site = Site::new("story", std::env::current_exe()?, "")?;
    let all = jobs();
    site.produce(&all);
    println!("{JOBS} jobs in {}, {PROCESSES} processes of 4 workers", site.s.url);
    let hung = run(&mut site)?;

    let ledger = site.ledger();
    let lost = ledger.lost(&all);
    println!("\nthe ledger\n  added                {JOBS:>6}");
    println!("  done at least once   {:>6}", ledger.done.len());
    println!("  work done twice      {:>6}", ledger.twice().len());
    println!("  dead letters         {:>6}", ledger.dead.len());
    let mut reasons = BTreeMap::new();
    for why in ledger.dead.values().filter_map(|why| why.split(':').next()) {
        *reasons.entry(why).or_insert(0) += 1;
    }
    for (reason, count) in reasons {
        println!("    {reason:<18} {count:>6}");
    }
    println!("  lost                 {:>6} {lost:?}", lost.len());
    println!("  processes that ended because half of their workers hung: {hung}");
    let right = ledger.is_right(&all);
    if !right {
        println!("others are dead than those that cannot succeed: {ledger:?}");
    }
    Ok(lost.is_empty() && right)
}

/// Runs the jobs, and makes the faults. Returns how many processes ended because workers hung.
fn run(site: &mut Site) -> Result<usize, Box<dyn Error>> {
    let (start, mut faults, mut shown) = (Instant::now(), [25, 45, 65].iter().peekable(), 0);
    let (mut workers, mut hung) = (Vec::<Process>::new(), 0);
    loop {
        // Replace processes that have ended, as a service manager would do.
        let ended = workers.iter_mut().filter_map(Process::ended);
        hung += ended.filter(|status| status.code() == Some(3)).count();
        workers.retain_mut(|worker| worker.ended().is_none());
        workers.resize_with(PROCESSES, || site.worker("--visibility-ms 1600"));
        let status = site.s.open().and_then(|mut queue| queue.status());
        let left = status.map_err(|e| site.s.explain(&e))?.0;
        let (percent, took) = (100 * (JOBS - left) / JOBS, start.elapsed().as_secs_f64());
        if percent >= shown {
            println!("{percent:>3} %  {left} left, {took:.1} s");
            shown = percent + 10;
        }
        if left == 0 {
            println!("{:.0} jobs/s", JOBS as f64 / took);
            return Ok(hung);
        }
        if let Some(&due) = faults.next_if(|&&due| percent >= due) {
            fault(site, workers.remove(0), due)?;
        }
        sleep(Duration::from_millis(50));
    }
}
