//! Tests of faults that once got the jobs stuck. "Before" describes the fault of each test.

use super::*;

/// Before: a full Redis refused the consumer, and not only the producers. It also refused a new
/// consumer and `status`.
#[test]
fn a_full_redis_drains() {
    let mut site = site("full", "");
    let mut all = some(300, "j", "hash", "1");
    all.extend([job("again", "flaky", "2"), job("bad", "fly", "")]);
    // At this point the server has no group and no script.
    let mut queue = site.s.open().expect("a connection");
    queue.produce(&all).expect("added");
    query::<()>(&site, "CONFIG", ("SET", "maxmemory", 1));
    says(site.jobs("produce --key late"), 1, "is full (maxmemory)");
    let mut worker = site.worker("");
    site.settles(301, 1);
    says(site.jobs("status"), 0, "waiting 0,");
    says(site.jobs("dead --send all"), 0, "\nsent again: 1\n");
    site.settles(301, 1);
    assert_eq!(worker.ended(), None);
}

/// Before: a socket call without a limit held up the end, for 30.8 s with a grace period of 5.
#[test]
fn the_grace_period_is_a_bound() {
    // The cases: with a job that goes on, and without one; with a server that falls silent, that is
    // gone, and that is silent from the start.
    for (jobs, fault) in [(1, "STOP"), (0, "STOP"), (1, "KILL"), (0, "early")] {
        let mut site = site("silent", "");
        site.produce(&[some(1, "first", "hash", "1"), some(jobs, "j", "sleep", "60000")].concat());
        if fault == "early" {
            site.server().signal("STOP");
        }
        let mut worker = site.worker(&format!("{NEVER_LATE} --grace-ms 500"));
        if fault == "early" {
            sleep(Duration::from_millis(200)); // it has begun to connect
        } else {
            until("it works", || site.ledger().done.len() == 1 && site.pending().len() == jobs);
            site.server().signal(fault);
        }
        let start = Instant::now();
        assert!(worker.end("TERM").success(), "{fault}: {}", site.log());
        let took = start.elapsed();
        // The bound is a second more than asked for, and another second for a slow machine.
        assert!(took < Duration::from_millis(2500), "{fault}, {jobs} jobs: {took:?}");
    }
}

/// Before: each of these entries stopped the consumer, or was tried forever.
#[test]
fn one_bad_member_stops_nothing() {
    let mut site = site("bad", "");
    let mut worker = site.worker("");
    // The entry of the second retry does not exist.
    query::<()>(&site, "ZADD", ("{it}:retry", 0, "nonsense", 0, "1-1 2"));
    let many = "f v ".repeat(5000);
    for fields in ["what is-this", "deadline_ms soon key deadline", many.trim()] {
        query::<()>(&site, "XADD", ("{it}", "*", Vec::from_iter(fields.split(' '))));
    }
    query::<()>(&site, "XADD", ("{it}", "*", b"\xff\xfe", "x", "key", b"\xff"));
    let kind = "k".repeat(100_000);
    site.produce(&[job("text", "sleep", "secret"), job("kind", &kind, "")]);
    site.produce(&some(20, "good", "hash", "1"));
    let dead = site.settles(20, 6).dead; // two dead letters have no key
    assert_eq!(dead["nonsense"], "unreadable retry");
    assert_eq!(dead["text"], "bad payload: it is not a number");
    assert_eq!(dead["deadline"], "bad field: invalid digit found in string");
    assert_eq!(dead["\u{fffd}"], "bad field: invalid utf-8 sequence of 1 bytes from index 0");
    assert_eq!(dead["kind"].len(), 200);
    assert_eq!(query::<usize>(&site, "XLEN", "{it}:dead"), 7, "{dead:?}");
    // Give two keys the wrong type.
    query::<()>(&site, "MSET", ("{it}:done", "text", "{it}:retry", "text"));
    site.produce(&[job("again", "flaky", "1"), job("fine", "hash", "1")]);
    until("all have left", || query::<usize>(&site, "XLEN", "{it}") == 0);
    assert_eq!(query::<usize>(&site, "XLEN", "{it}:dead"), 8);
    until("the log says so", || site.log().contains("WRONGTYPE"));
    assert!(!site.log().contains("secret") && worker.ended().is_none());
    says(site.jobs("work"), 1, "of the wrong type");
}

/// Before: all of them ran alone, one after the other.
#[test]
fn jobs_of_a_dead_consumer_run_side_by_side() {
    let mut all = some(8, "j", "sleep", "1000");
    all.iter_mut().for_each(|job| job.deadline_ms = 60_000);
    let (mut site, worker) = start("side", "", &all);
    until("all are taken", || site.pending() == [("w1".to_owned(), 8)]);
    drop(worker);
    let _other = site.worker("");
    until("all are claimed at once", || site.pending() == [("w2".to_owned(), 8)]);
    site.settles(8, 0);
}

/// Before: there was no limit in bytes.
#[test]
fn what_is_taken_is_bounded() {
    let large = format!("100{}", " ".repeat(4 << 20));
    for (count, payload, options, bound) in [
        (400, "20", "--workers 2 --queue 3", 5),
        (12, &large, "--bytes 10000000", 3), // the last one may exceed it
    ] {
        let options = format!("{NEVER_LATE} {options}");
        let (mut site, _one) = start("bound", &options, &some(count, "j", "sleep", payload));
        let _two = site.worker(&options);
        let mut most = 0;
        until("all are done", || {
            most = site.pending().iter().fold(most, |most, pending| most.max(pending.1));
            site.ledger().unsettled == 0
        });
        assert_eq!((most, site.ledger().twice().len()), (bound, 0));
    }
}

/// Before: it sent 196 a second.
#[test]
fn an_idle_consumer_sends_at_most_ten_commands_a_second() {
    let (site, _worker) = start("idle", NEVER_LATE, &some(1, "j", "hash", "1"));
    site.settles(1, 0);
    // The script that takes jobs also calls XREADGROUP once, so this counts every command of a
    // consumer.
    let sent = || -> usize {
        let info: String = query(&site, "INFO", "commandstats");
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
    let (mut site, gone) = start("forget", "--done-keys 10", &some(30, "j", "hash", "1"));
    until("all is settled", || site.ledger().unsettled == 0);
    until("few are left", || site.ledger().done.len() == 10);
    drop(gone);
    let _none = site.worker("--done-ms 1");
    until("none is left", || site.ledger().done.is_empty());
    until("only one consumer is known", || {
        query::<Vec<redis::Value>>(&site, "XINFO", ("CONSUMERS", "{it}", "g")).len() == 1
    });
}

#[test]
fn a_cluster_is_told_in_one_sentence() {
    let [mut one, mut two] = ["one", "two"].map(|name| site(name, "--cluster-enabled yes"));
    let port = two.s.url.rsplit([':', '/']).nth(1).expect("a port");
    query::<()>(&one, "CLUSTER", ("MEET", "127.0.0.1", port));
    query::<()>(&one, "CLUSTER", ("ADDSLOTSRANGE", 0, 8191));
    query::<()>(&two, "CLUSTER", ("ADDSLOTSRANGE", 8192, 16383));
    // Each of the two nodes has one of these two streams.
    two.s.stream = "{jobs}".to_owned();
    until("the cluster is up", || two.s.connect().is_ok() && one.s.connect().is_ok());
    says(one.jobs("work --stream {jobs}"), 1, "give the URL of the node that has `{jobs}`");
    says(one.jobs("work --stream jobs"), 1, "in a cluster write the stream in braces");
    let _worker = one.worker("");
    one.produce(&[job("a", "hash", "1")]);
    assert!(one.settles(1, 0).done.contains("a"));
}
