//! The whole story: three processes, ten thousand jobs, and what goes wrong in between.

pub mod kinds;
pub mod ledger;
pub mod process;

use crate::queue::{Job, Place};
use ledger::Ledger;
use process::{log, Process, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::error::Error;
use std::io::{stdout, IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
const ALONE: usize = 1_000;

/// The usual mix, and every so often one that fails.
fn jobs(prefix: &str, count: usize, faults: bool) -> Vec<Job> {
    let job = |n: usize| {
        let (kind, payload) = match n % 1_000 {
            7 | 507 if faults => ("panic", "at the disco"),
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

/// Processes that run `jobs work`; one that ends is replaced, as a service manager would do.
struct Fleet {
    place: Place,
    effects: PathBuf,
    folder: PathBuf,
    workers: Vec<Process>,
    started: usize,
    hung: usize,
}

impl Fleet {
    fn keep(&mut self, size: usize) -> Result<(), String> {
        let mut hung = 0;
        self.workers.retain_mut(|worker| {
            let ended = worker.ended();
            hung += usize::from(ended.is_some_and(|status| status.code() == Some(3)));
            ended.is_none()
        });
        self.hung += hung;
        while self.workers.len() < size {
            self.started += 1;
            let name = format!("{}-{}", self.place.stream, self.started);
            let Place {
                url, stream, group, ..
            } = &self.place;
            let exe = std::env::current_exe().map_err(|e| e.to_string())?;
            let mut command = Command::new(exe);
            command.args(["work", "--redis", url, "--stream", stream, "--group", group]);
            command.args(["--name", &name]);
            command.args(["--deadline-ms", "800", "--visibility-ms", "1600"]);
            command.arg("--effects").arg(&self.effects);
            command.stderr(log(&self.folder, &name));
            let worker = Process::start(&mut command).map_err(|e| e.to_string())?;
            self.workers.push(worker);
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
    let mut server = Server::start("story")?;
    println!(
        "redis-server answers at {}; its data are in {}",
        server.url(),
        server.folder.display()
    );
    let alone = jobs("alone", ALONE, false);
    let (took, _, _) = run(&mut server, &alone, 1, &asked)?;
    let one = ALONE as f64 / took.as_secs_f64();
    let all = jobs("story", JOBS, true);
    let (took, ledger, hung) = run(&mut server, &all, 3, &asked)?;
    let three = JOBS as f64 / took.as_secs_f64();

    let keys: Vec<String> = all.iter().map(|job| job.key.clone()).collect();
    let lost = ledger.lost(&keys);
    println!("\nthe ledger");
    println!("  added                {JOBS:>6}");
    println!("  done at least once   {:>6}", ledger.done.len());
    println!("  work done twice      {:>6}", ledger.twice().count());
    for (key, consumers) in ledger.twice().take(3) {
        println!("    key {key}: by {}", consumers.join(" and "));
    }
    println!("  dead letters         {:>6}", ledger.dead.len());
    for (reason, count) in ledger.reasons() {
        println!("    {reason:<18} {count:>6}");
    }
    println!("  lost                 {:>6} {lost:?}", lost.len());
    println!("  processes that ended because half of their workers hung: {hung}");
    println!("throughput: {three:.0} jobs/s by three processes, through all this; {one:.0} by one in peace");
    // Those that cannot succeed, and no other, are dead.
    let bad = all
        .iter()
        .filter(|job| ["panic", "hang", "juggle"].contains(&job.kind.as_str()));
    let right = bad.map(|job| &job.key).eq(ledger.dead.keys());
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
    server: &mut Server,
    jobs: &[Job],
    processes: usize,
    asked: &AtomicBool,
) -> Result<(Duration, Ledger, usize), String> {
    let (stream, folder) = (format!("by-{processes}"), server.folder.clone());
    let (url, visibility) = (server.url(), Duration::from_millis(1600));
    let (group, consumer) = ("story".to_owned(), "producer".to_owned());
    let place = Place {
        url,
        stream,
        group,
        consumer,
        visibility,
    };
    let explain = |e| place.explain(&e);
    place
        .connect()
        .and_then(|mut queue| queue.produce(jobs))
        .map_err(explain)?;
    let mut fleet = Fleet {
        place: place.clone(),
        effects: folder.join(format!("effects-{processes}")),
        folder,
        workers: Vec::new(),
        started: 0,
        hung: 0,
    };
    println!(
        "{} jobs for {processes} process(es) of 4 workers",
        jobs.len()
    );
    let faults = if processes > 1 {
        &[25, 45, 65][..]
    } else {
        &[]
    };
    let (start, mut next, mut shown) = (Instant::now(), faults.iter(), 0);
    let mut due = next.next();
    loop {
        if asked.load(Ordering::Relaxed) {
            return Err("stopped by a signal".to_owned());
        }
        fleet.keep(processes)?;
        let [waiting, later, dead, done] = place.counts().map_err(explain)?;
        let left = waiting + later;
        let percent = 100 * (done + dead) / jobs.len();
        let seconds = start.elapsed().as_secs_f64();
        if stdout().is_terminal() {
            print!("\r{percent:>3} %  done {done}, dead {dead}, waiting or pending {left}, {seconds:.1} s  ");
        } else if percent >= shown {
            println!("{percent:>3} %  done {done}, dead {dead}, waiting or pending {left}, {seconds:.1} s");
            shown = percent + 10;
        }
        let _ = stdout().flush();
        if done + dead >= jobs.len() && left == 0 {
            break;
        }
        if due.is_some_and(|&at| percent >= at) {
            match due {
                Some(25) => {
                    println!("\nkill -9 for the first process; another is started, its jobs are claimed later");
                    drop(fleet.workers.remove(0));
                }
                Some(45) => {
                    println!(
                        "\nSIGTERM for the next: it finishes what runs, and gives back the rest"
                    );
                    let mut worker = fleet.workers.remove(0);
                    worker.signal("TERM");
                    let status = worker.wait(Duration::from_secs(20));
                    // 3: just then too many of its workers hung.
                    if !matches!(status.code(), Some(0 | 3)) {
                        return Err(format!("after SIGTERM: {status}"));
                    }
                }
                _ => {
                    println!(
                        "\nkill -9 for redis-server; it is started again from its append-only file"
                    );
                    server.stop("KILL");
                    sleep(Duration::from_millis(300));
                    println!("kill -9 for the next process: what it has done and cannot report is done twice");
                    drop(fleet.workers.remove(0));
                    sleep(Duration::from_millis(300));
                    server.start_again()?;
                }
            }
            due = next.next();
        }
        sleep(Duration::from_millis(50));
    }
    println!();
    let took = start.elapsed();
    for worker in &fleet.workers {
        worker.signal("TERM");
    }
    for worker in &mut fleet.workers {
        worker.wait(Duration::from_secs(20));
    }
    let ledger = Ledger::read(&place, &fleet.effects).map_err(explain)?;
    Ok((took, ledger, fleet.hung))
}
