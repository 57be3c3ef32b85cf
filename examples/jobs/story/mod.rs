//! The whole story: three processes, ten thousand jobs, and what goes wrong in between.

pub mod kinds;
pub mod ledger;
pub mod process;

use crate::queue::Job;
use ledger::Ledger;
use process::{Process, Site};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
const ALONE: usize = 1_000;

/// Returns the usual mix; with faults, every so often one that fails.
fn jobs(prefix: &str, count: usize, faults: bool) -> Vec<Job> {
    let job = |n: usize| {
        let (kind, payload) = match n % 1_000 {
            7 | 507 if faults => ("panic", ""),
            250 if faults && n < 3_000 => ("hang", ""),
            333 | 666 if faults => ("flaky", "2"),
            800 if faults && n < 3_000 => ("juggle", "3"),
            _ if n % 2 == 0 => ("hash", "100"),
            _ => ("sleep", "20"),
        };
        Job::new(format!("{prefix}-{n:05}"), kind, payload)
    };
    (0..count).map(job).collect()
}

/// Processes that run `jobs work`.
#[derive(Default)]
struct Fleet {
    workers: Vec<Process>,
    hung: usize,
}

impl Fleet {
    /// Replaces processes that have ended, as a service manager would do.
    fn keep(&mut self, site: &mut Site, size: usize) {
        let ended = self.workers.iter_mut().filter_map(Process::ended);
        self.hung += ended.filter(|status| status.code() == Some(3)).count();
        self.workers.retain_mut(|worker| worker.ended().is_none());
        while self.workers.len() < size {
            self.workers.push(site.worker("--visibility-ms 1600").1);
        }
    }

    /// Does what goes wrong when so many percent are done.
    fn fault(&mut self, site: &mut Site, percent: usize) -> Result<(), String> {
        match percent {
            25 => {
                println!("kill -9 for the first process; its jobs are claimed later");
                drop(self.workers.remove(0));
            }
            45 => {
                println!("SIGTERM for the next: it finishes what runs, and gives back the rest");
                let mut worker = self.workers.remove(0);
                worker.signal("TERM");
                let status = worker.wait();
                // 3: just then too many of its workers hung.
                if !matches!(status.code(), Some(0 | 3)) {
                    return Err(format!("after SIGTERM: {status}"));
                }
            }
            _ => {
                println!("kill -9 for redis-server; it starts again from its append-only file");
                site.stop("KILL");
                sleep(Duration::from_millis(300));
                println!("kill -9 for a process: what it cannot report is done twice");
                drop(self.workers.remove(0));
                sleep(Duration::from_millis(300));
                site.start_again()?;
            }
        }
        Ok(())
    }
}

/// Tells it; returns whether the ledger is as it should be.
pub fn tell() -> Result<bool, Box<dyn Error>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let mut site = Site::new("story", std::env::current_exe()?, "")?;
    println!("redis-server answers at {}", site.place.url);
    let (alone, all) = (jobs("alone", ALONE, false), jobs("story", JOBS, true));
    let (took, ..) = run(&mut site, &alone, 1, &asked)?;
    println!(
        "{:.0} jobs/s by one process in peace",
        ALONE as f64 / took.as_secs_f64()
    );
    let (took, ledger, hung) = run(&mut site, &all, 3, &asked)?;
    println!(
        "{:.0} jobs/s by three, through all this",
        JOBS as f64 / took.as_secs_f64()
    );

    let keys: Vec<String> = all.iter().map(|job| job.key.clone()).collect();
    let lost = ledger.lost(&keys);
    println!("\nthe ledger\n  added                {JOBS:>6}");
    println!("  done at least once   {:>6}", ledger.done.len() - ALONE);
    println!("  work done twice      {:>6}", ledger.twice().count());
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
    // Those that cannot succeed, and no other, are dead.
    let bad = |job: &&Job| ["panic", "hang", "juggle"].contains(&job.kind.as_str());
    let bad = all.iter().filter(bad).map(|job| &job.key);
    let right = bad.eq(ledger.dead.keys());
    if !right {
        println!(
            "others are dead than those that cannot succeed: {:?}",
            ledger.dead
        );
    }
    Ok(lost.is_empty() && right)
}

/// Runs jobs on so many processes; with more than one, things go wrong.
fn run(
    site: &mut Site,
    jobs: &[Job],
    processes: usize,
    asked: &AtomicBool,
) -> Result<(Duration, Ledger, usize), String> {
    site.produce(jobs);
    println!(
        "\n{} jobs for {processes} process(es) of 4 workers",
        jobs.len()
    );
    let faults: &[usize] = if processes > 1 { &[25, 45, 65] } else { &[] };
    let (start, mut faults, mut shown) = (Instant::now(), faults.iter().peekable(), 0);
    let mut fleet = Fleet::default();
    loop {
        if asked.load(Ordering::Relaxed) {
            return Err("stopped by a signal".to_owned());
        }
        fleet.keep(site, processes);
        let status = site.place.open().and_then(|mut queue| queue.status());
        let left = status.map_err(|e| site.place.explain(&e))?.0;
        let percent = 100 * jobs.len().saturating_sub(left) / jobs.len();
        if percent >= shown {
            println!(
                "{percent:>3} %  {left} left, {:.1} s",
                start.elapsed().as_secs_f64()
            );
            shown = percent + 10;
        }
        if left == 0 {
            break;
        }
        if let Some(&due) = faults.next_if(|&&due| percent >= due) {
            fleet.fault(site, due)?;
        }
        sleep(Duration::from_millis(50));
    }
    let took = start.elapsed();
    fleet
        .workers
        .iter()
        .for_each(|worker| worker.signal("TERM"));
    for worker in &mut fleet.workers {
        worker.wait();
    }
    Ok((took, site.ledger(), fleet.hung))
}
