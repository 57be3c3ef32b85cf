//! What once got the jobs stuck. Each test says what it found before.

use super::{fails, job, ok, query, site, some, until, Site, NEVER_LATE};
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
    fails(&site, "produce --key late", "is full (maxmemory)");
    let mut worker = site.worker("");
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.dead.len()), (301, 1), "{}", site.log());
    assert!(ok(&site, "status").starts_with("waiting 0,"));
    assert!(ok(&site, "dead --send all").ends_with("sent again: 1\n"));
    assert_eq!((site.settled().dead.len(), worker.ended()), (1, None));
}

/// Before: a socket call without a limit held up the end, for 30.8 s with a grace period of 5.
#[test]
fn the_grace_period_is_a_bound() {
    // With a job that goes on, and without one; the server silent, gone, and silent from the start.
    for (jobs, fault) in [(1, "STOP"), (0, "STOP"), (1, "KILL"), (0, "early")] {
        let mut site = site("silent");
        site.produce(&some(1, "first", "hash", "1"));
        site.produce(&some(jobs, "j", "sleep", "60000"));
        let options = format!("{NEVER_LATE} --grace-ms 500");
        let mut worker = if fault == "early" {
            site.server().signal("STOP");
            let worker = site.worker(&options);
            sleep(Duration::from_millis(200)); // it has begun to connect
            worker
        } else {
            let worker = site.worker(&options);
            until("it works", || site.ledger().done.len() == 1 && site.pending().len() == jobs);
            site.server().signal(fault);
            worker
        };
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
    // Of the second the entry has gone.
    let retries = ("{it}:retry", 0, "nonsense", 0, "1-1 2");
    redis::cmd("ZADD").arg(retries).exec(&mut queue.con).expect("added");
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
    fails(&site, "work", "of the wrong type");
}

/// Before: all of them ran alone, one after the other.
#[test]
fn jobs_of_a_dead_consumer_run_side_by_side() {
    let mut site = site("side");
    let mut all = some(8, "j", "sleep", "1000");
    all.iter_mut().for_each(|job| job.deadline_ms = 60_000);
    site.produce(&all);
    let worker = site.worker("");
    until("all are taken", || site.pending() == [("w1".to_owned(), 8)]);
    drop(worker);
    let _other = site.worker("");
    until("all are claimed at once", || site.pending() == [("w2".to_owned(), 8)]);
    assert_eq!(site.settled().done.len(), 8);
}

/// Before: there was no limit in bytes.
#[test]
fn what_is_taken_is_bounded() {
    let large = format!("100{}", " ".repeat(4 << 20));
    for (count, payload, options, bound) in [
        (400, "20", "--workers 2 --queue 3", 5),
        (12, &large, "--bytes 10000000", 3), // the last one may exceed it
    ] {
        let mut site = site("bound");
        site.produce(&some(count, "j", "sleep", payload));
        let options = format!("{NEVER_LATE} {options}");
        let _workers = [site.worker(&options), site.worker(&options)];
        let mut most = 0;
        until("all are done", || {
            most = site.pending().iter().fold(most, |most, pending| most.max(pending.1));
            site.ledger().unsettled == 0
        });
        assert_eq!((most, site.ledger().twice().len()), (bound, 0));
    }
}

/// Before: 196 a second.
#[test]
fn an_idle_consumer_sends_at_most_ten_commands_a_second() {
    let mut site = site("idle");
    let _worker = site.worker(NEVER_LATE);
    site.produce(&some(1, "j", "hash", "1"));
    site.settled();
    // The script that takes jobs calls XREADGROUP once, too: so these are all that it sends.
    let sent = || -> usize {
        let info: String = query(&site, "INFO commandstats");
        let calls = info.split("cmdstat_xreadgroup:calls=").nth(1).expect("calls");
        calls.split(',').next().expect("a count").parse().expect("a number")
    };
    let (start, before) = (Instant::now(), sent());
    sleep(Duration::from_secs(4));
    let (sent, took) = (sent() - before, start.elapsed().as_secs_f64());
    println!("{sent} calls in {took:.1} s");
    assert!(sent > 0 && (sent as f64) < 10.0 * took, "{sent} calls in {took:.1} s");
}

#[test]
fn done_keys_and_consumers_that_have_gone_are_forgotten() {
    let mut site = site("forget");
    let gone = site.worker("--done-keys 10");
    site.produce(&some(30, "j", "hash", "1"));
    site.settled();
    until("few are left", || site.ledger().done.len() == 10);
    drop(gone);
    let _none = site.worker("--done-ms 1");
    until("none is left", || site.ledger().done.is_empty());
    until("only one consumer is known", || {
        query::<Vec<redis::Value>>(&site, "XINFO CONSUMERS {it} g").len() == 1
    });
}

#[test]
fn a_cluster_is_told_in_one_sentence() {
    let [mut one, mut two] = ["one", "two"].map(|name| {
        let exe = env!("CARGO_BIN_EXE_jobs");
        Site::new(name, exe, "--cluster-enabled yes").expect("redis-server")
    });
    let port = two.s.url.rsplit([':', '/']).nth(1).expect("a port");
    let _: () = query(&one, &format!("CLUSTER MEET 127.0.0.1 {port}"));
    let _: () = query(&one, "CLUSTER ADDSLOTSRANGE 0 8191");
    let _: () = query(&two, "CLUSTER ADDSLOTSRANGE 8192 16383");
    // Of these two, each node has one.
    two.s.stream = "{jobs}".to_owned();
    until("the cluster is up", || two.s.connect().is_ok() && one.s.connect().is_ok());
    fails(&one, "work --stream {jobs}", "give the URL of the node that has `{jobs}`");
    fails(&one, "work --stream jobs", "in a cluster write the stream in braces");
    let _worker = one.worker("");
    one.produce(&[job("a", "hash", "1")]);
    assert!(one.settled().done.contains("a"), "{}", one.log());
}
