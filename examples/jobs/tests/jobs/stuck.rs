//! What once got the jobs stuck. Each test says what it found before.

use super::{job, query, run, site, some, until, Site, NEVER_LATE};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Before: the consumer was refused with the producers, and so were a new one and `status`.
#[test]
fn a_full_redis_drains() {
    let mut site = site("full");
    let mut all = some(300, "j", "hash", "1");
    all.extend([job("again", "flaky", "2"), job("bad", "fly", "")]);
    // There is no group yet, and no script in the server.
    let mut queue = site.s.open().expect("a connection");
    queue.produce(&all).expect("added");
    let _: () = query(&site, "CONFIG SET maxmemory 1");
    let (code, said) = run(&site, "produce --key late");
    assert!(code == 1 && said.contains("is full (maxmemory)"), "{said}");
    let mut worker = site.worker("");
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.dead.len()), (301, 1), "{}", site.log());
    let (code, said) = run(&site, "status");
    assert!(code == 0 && said.starts_with("waiting 0,"), "{said}");
    let (code, said) = run(&site, "dead --send all");
    assert!(code == 0 && said.ends_with("sent again: 1\n"), "{said}");
    assert_eq!((site.settled().dead.len(), worker.ended()), (1, None));
}

/// Before: a socket call without a limit held up the end, for 30.8 s with a grace period of 5.
#[test]
fn the_grace_period_is_a_bound() {
    // With a job that goes on, and without one; the server silent, gone, and silent from the start.
    for (jobs, fault, early) in
        [(1, "STOP", false), (0, "STOP", false), (1, "KILL", false), (0, "STOP", true)]
    {
        let mut site = site("silent");
        site.produce(&some(1, "first", "hash", "1"));
        site.produce(&some(jobs, "j", "sleep", "60000"));
        if early {
            site.server().signal("STOP");
        }
        let mut worker = site.worker(&format!("{NEVER_LATE} --grace-ms 500"));
        if early {
            sleep(Duration::from_millis(200)); // it has begun to connect
        } else {
            until("it works", || site.ledger().done.len() == 1 && site.pending().len() == jobs);
            site.server().signal(fault);
        }
        let start = Instant::now();
        worker.signal("TERM");
        assert!(worker.wait().success(), "{fault}: {}", site.log());
        let took = start.elapsed();
        // A second more than asked for, and one for a slow machine.
        assert!(took < Duration::from_millis(2500), "{fault}, {jobs} jobs: {took:?}");
    }
}

/// Before: each of these stopped the consumer, or was tried for ever.
#[test]
fn one_bad_member_stops_nothing() {
    let mut site = site("bad");
    let mut worker = site.worker("");
    let mut queue = site.s.connect().expect("a connection");
    for member in ["nonsense", "1-1 2"]
    // of the second the entry has gone
    {
        let retry = ("{it}:retry", 0, member);
        redis::cmd("ZADD").arg(retry).exec(&mut queue.con).expect("added");
    }
    let many = "f v ".repeat(5000);
    for fields in ["what is-this", "deadline_ms soon key deadline", many.trim()] {
        let _: String = query(&site, &format!("XADD {{it}} * {fields}"));
    }
    let binary = ("{it}", "*", b"\xff\xfe", "x", "key", b"\xff");
    redis::cmd("XADD").arg(binary).exec(&mut queue.con).expect("added");
    let kind = "k".repeat(100_000);
    site.produce(&[job("text", "sleep", "secret"), job("kind", &kind, "")]);
    site.produce(&some(20, "good", "hash", "1"));
    let ledger = site.settled();
    for (key, why) in [
        ("nonsense", "unreadable retry"),
        ("text", "bad payload: it is not a number"),
        ("deadline", "bad field: invalid digit found in string"),
        ("\u{fffd}", "bad field: invalid utf-8 sequence of 1 bytes from index 0"),
    ] {
        assert_eq!(ledger.dead[key], why);
    }
    assert_eq!((ledger.dead["kind"].len(), ledger.done.len()), (200, 20));
    assert_eq!(query::<usize>(&site, "XLEN {it}:dead"), 7, "{:?}", ledger.dead);
    // Keys of the wrong type.
    let _: () = query(&site, "SET {it}:done text");
    let _: () = query(&site, "SET {it}:retry text");
    site.produce(&[job("again", "flaky", "1"), job("fine", "hash", "1")]);
    until("all have left", || query::<usize>(&site, "XLEN {it}") == 0);
    assert_eq!(query::<usize>(&site, "XLEN {it}:dead"), 8);
    until("the log says so", || site.log().contains("WRONGTYPE"));
    assert!(!site.log().contains("secret") && worker.ended().is_none());
    let (code, said) = run(&site, "work");
    assert!(code == 1 && said.contains("of the wrong type"), "{said}");
}

/// Before: all of them ran alone, one after the other.
#[test]
fn jobs_of_a_dead_consumer_run_side_by_side() {
    let mut site = site("side");
    let mut all = some(8, "j", "sleep", "700");
    all.iter_mut().for_each(|job| job.deadline_ms = 60_000);
    site.produce(&all);
    let worker = site.worker("");
    until("all are taken", || site.pending() == [("w1".to_owned(), 8)]);
    drop(worker);
    let _other = site.worker("");
    until("all are claimed at once", || site.pending() == [("w2".to_owned(), 8)]);
    assert_eq!(site.settled().done.len(), 8);
}

/// Before: there was no limit.
#[test]
fn what_is_taken_has_a_limit_in_bytes() {
    let mut site = site("bytes");
    let payload = format!("100{}", " ".repeat(4 << 20));
    site.produce(&some(12, "j", "sleep", &payload));
    let _worker = site.worker("--bytes 10000000");
    let mut most = 0;
    until("all are done", || {
        most = most.max(site.pending().iter().map(|(_, count)| count).sum());
        site.ledger().unsettled == 0
    });
    assert_eq!(most, 3, "the last one may exceed it");
}

/// Before: 196 a second.
#[test]
fn an_idle_consumer_sends_at_most_ten_commands_a_second() {
    let mut site = site("idle");
    let _worker = site.worker(NEVER_LATE);
    site.produce(&some(1, "j", "hash", "1"));
    site.settled();
    // Without those that a script calls, and those of the test.
    let sent = || -> usize {
        let info: String = query(&site, "INFO commandstats");
        let of = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            let calls = line.and_then(|line| line.split_once(','));
            calls.map_or(0, |(calls, _)| calls.parse().expect("a number"))
        };
        of("cmdstat_evalsha:calls=") + of("cmdstat_xreadgroup:calls=")
    };
    let (start, before) = (Instant::now(), sent());
    sleep(Duration::from_secs(4));
    let (sent, took) = (sent() - before, start.elapsed().as_secs_f64());
    // Each script that takes calls XREADGROUP once itself.
    println!("{sent} calls in {took:.1} s");
    assert!(sent > 0 && (sent as f64) < 10.0 * took, "{sent} calls in {took:.1} s");
}

#[test]
fn done_keys_and_consumers_that_have_gone_are_forgotten() {
    let mut site = site("forget");
    let gone = site.worker("");
    site.produce(&some(30, "j", "hash", "1"));
    assert_eq!(site.settled().done.len(), 30);
    drop(gone);
    let few = site.worker("--done-keys 10");
    until("few are left", || site.ledger().done.len() == 10);
    drop(few);
    let _none = site.worker("--done-ms 1");
    until("none is left", || site.ledger().done.is_empty());
    until("only one consumer is known", || {
        query::<Vec<redis::Value>>(&site, "XINFO CONSUMERS {it} g").len() == 1
    });
}

#[test]
fn a_cluster_is_told_in_one_sentence() {
    let [mut one, two] = ["one", "two"].map(|name| {
        let exe = env!("CARGO_BIN_EXE_jobs");
        Site::new(name, exe, "--cluster-enabled yes").expect("redis-server")
    });
    let at = two.s.url.replace("redis://", "").replace([':', '/'], " ");
    let _: () = query(&one, &format!("CLUSTER MEET {}", at.trim()));
    let _: () = query(&one, "CLUSTER ADDSLOTSRANGE 0 8191");
    let _: () = query(&two, "CLUSTER ADDSLOTSRANGE 8192 16383");
    // Of these two, each node has one.
    let [mut ours, mut theirs] = ["{it}", "{jobs}"];
    until("the cluster is up", || {
        query::<String>(&two, "CLUSTER INFO").contains("cluster_state:ok")
            && query::<String>(&one, "CLUSTER INFO").contains("cluster_state:ok")
    });
    if run(&one, "produce").0 != 0 {
        (ours, theirs) = (theirs, ours);
    }
    one.s.stream = theirs.to_owned();
    let (code, said) = run(&one, "work");
    assert!(code == 1 && said.contains("give the URL of the node that has `{"), "{said}");
    one.s.stream = ours.to_owned();
    let _worker = one.worker("");
    one.produce(&[job("a", "hash", "1")]);
    assert!(one.settled().done.contains("a"), "{}", one.log());
    one.s.stream = "jobs".to_owned();
    let (code, said) = run(&one, "status");
    assert!(code == 1 && said.contains("in a cluster write the stream in braces"), "{said}");
}
