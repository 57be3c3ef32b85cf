//! The commands, and what Prometheus reads.

use crate::bed::{Bed, Process, faulty, job, jobs};
use jobs::job::Fault;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

/// Runs a command that must work. Returns what it said.
fn run(args: &[&str], environment: &[(&str, &str)]) -> String {
    let (status, _, said) = Process::start(args, environment).end();
    assert!(status.success(), "{args:?}: {said}");
    said
}

/// A dead letter is listed with its reason. Once what was wrong is mended, it is revived and done.
#[tokio::test]
async fn a_dead_letter_is_revived() {
    let bed = Bed::new(&[]).await;
    let environment = bed.pairs();
    run(&["setup"], &environment); // once more, which changes nothing
    assert_eq!(run(&["add", "a", "10"], &environment), "added");
    assert_eq!(
        run(&["add", "a", "10"], &environment),
        "known: queued, running, dead or done"
    );
    bed.add(&[faulty("dead", Fault::Fail)], 1).await;
    let _fleet = bed.fleet(1);
    bed.law(&[job("a", 0)], &[("dead", "mail server")]).await;
    assert_eq!(
        run(&["status"], &environment),
        "0 wait, 0 held, 1 dead, the oldest due for 0 s"
    );
    let dead = run(&["dead"], &environment);
    let id = dead.split("  ").next().expect("a number");
    assert!(
        dead.contains("  dead  ") && dead.contains("the mail server is down"),
        "{dead}"
    );
    let mended = "UPDATE graphile_worker._private_jobs SET payload = payload::jsonb - 'fault'";
    bed.run(mended).await;
    assert_eq!(run(&["revive", id], &environment), "1 revived");
    bed.law(&[job("a", 0), job("dead", 0)], &[]).await;
    assert_eq!(run(&["revive", id], &environment), "0 revived");
    assert_eq!(run(&["forget", "1"], &environment), "0 forgotten");
    assert_eq!(run(&["forget", "0"], &environment), "2 forgotten");
}

/// The page has each metric that an alert of the README asks for.
#[tokio::test]
async fn the_metrics() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);
    let bed = Bed::new(&[("JOBS_METRICS", &address)]).await;
    let alerts = include_str!("../../../service/alerts.yml");
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let asked = alerts.split(word).filter(|word| word.starts_with("jobs_"));
    let asked: Vec<_> = asked.chain(["lazypool_workers_abandoned"]).collect();
    assert!(asked.len() > 2, "the alerts ask for jobs: {asked:?}");

    bed.add(&jobs(3, 0), 5).await;
    bed.run("UPDATE graphile_worker._private_jobs SET attempts = 5 WHERE key = '0'")
        .await;
    bed.run("UPDATE graphile_worker._private_jobs SET run_at = now() - interval '1 hour' WHERE key = '1'").await;
    // No worker takes it, so it stays due.
    bed.run("UPDATE graphile_worker._private_tasks SET identifier = 'job.v2'")
        .await;
    let mut process = Process::start(&["work"], &bed.pairs());
    let mut page = String::new();
    while !page.contains("jobs_oldest_due_seconds") {
        page.clear();
        if let Ok(mut stream) = TcpStream::connect(&address) {
            stream
                .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
                .expect("a request");
            stream.read_to_string(&mut page).expect("a page");
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let value = |name: &str| -> f64 {
        let line = page
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {page}"));
        line.rsplit(' ')
            .next()
            .expect("a value")
            .parse()
            .expect("a number")
    };
    for name in asked {
        value(name);
    }
    assert_eq!(value("jobs_dead_letters"), 1.0);
    assert!(value("jobs_oldest_due_seconds") >= 3600.0, "{page}");
    assert_eq!(value("lazypool_workers_abandoned"), 0.0);
    process.signal("TERM");
    process.says("stopping");
    process.end();
}
