//! Tests of the example with consumers that do not get stuck.

use super::*;
use std::io::{read_to_string, Write};
use std::net::{TcpListener, TcpStream};

#[test]
fn redis_stopped_and_started_loses_nothing() {
    let all = some(1000, "j", "sleep", "20");
    let (mut site, mut worker) = start("restart", "", &all);
    for signal in ["TERM", "KILL"] {
        let before = site.ledger().done.len();
        until("some more are done", || site.ledger().done.len() > before + 20);
        site.server().end(signal);
        sleep(Duration::from_millis(1500)); // longer than the visibility timeout
        site.start_again().expect("redis-server");
    }
    let (ledger, log) = (site.settles(1000, 0), site.log());
    assert_eq!((ledger.lost(&all), worker.ended()), (Vec::new(), None));
    assert_eq!(log.matches("trying again").count(), 2, "{log}");
    assert_eq!(log.matches("Redis is back").count(), 2, "{log}");
}

#[test]
fn a_poisoned_job_goes_to_the_dead_letters_and_takes_no_other_along() {
    let mut all = some(40, "j", "sleep", "50");
    all.insert(10, job("poison", "abort", ""));
    let (mut site, worker) = start("poison", "", &all);
    let (mut workers, mut deaths) = ([worker, site.worker("")], 0);
    until("all is settled", || {
        // Read this first. Once all is settled, no more workers die, so the loop sees every death.
        let is_settled = site.ledger().unsettled == 0;
        for worker in workers.iter_mut().filter_map(|w| w.ended().map(|_| w)) {
            deaths += 1;
            *worker = site.worker("");
        }
        is_settled
    });
    assert_eq!((&*site.settles(40, 1).dead["poison"], deaths), ("consumers died: 3", 3));
}

#[test]
fn sigterm_finishes_what_runs_and_gives_back_the_rest() {
    let mut site = site("sigterm", "");
    // In the second case the job takes longer than the grace period, and is told to stop.
    for (n, ms, grace, before, after) in [(100, "100", 5000, 8, 100), (1, "2000", 50, 100, 101)] {
        site.produce(&some(n, &format!("j{n}"), "sleep", ms));
        let mut worker = site.worker(&format!("{NEVER_LATE} --grace-ms {grace}"));
        until("some are taken", || {
            !site.pending().is_empty() && site.ledger().done.len() >= before
        });
        assert!(worker.end("TERM").success(), "{}", site.log());
        let pending = site.pending();
        assert!(pending.iter().all(|(name, _)| name == "nobody"), "{pending:?}");
        assert!(site.ledger().unsettled > 0);
        let _other = site.worker(NEVER_LATE);
        let ledger = site.settles(after, 0);
        assert_eq!((ledger.lost(&[]), ledger.twice()), (vec![], vec![]));
    }
}

#[test]
fn failures_are_tried_again_and_then_dead_with_their_reason() {
    let slow = Job { deadline_ms: 1500, ..job("slow", "sleep", "20000") };
    let all = [job("panic", "panic", ""), slow, job("2", "flaky", "2"), job("3", "flaky", "3")];
    let options = format!("{NEVER_LATE} --workers 2 --queue 9 --lost 2");
    let (site, _worker) = start("reasons", &options, &all);
    let ledger = site.settles(1, 3);
    assert!(ledger.done.contains("2"), "{ledger:?}");
    assert_eq!(ledger.dead["3"], "failed: attempt 3");
    assert_eq!(ledger.dead["panic"], "panicked: as it was told");
    assert_eq!(ledger.dead["slow"], "timed out");
    // A job that no worker starts before its deadline does not run later.
    let late = Job { deadline_ms: 100, ..job("late", "hash", "1") };
    site.produce(&[job("a", "sleep", "900"), job("b", "sleep", "900"), late]);
    until("all is settled", || site.ledger().unsettled == 0);
    assert!(site.log().contains("late (hash), attempt 1: expired"), "{}", site.log());
}

#[test]
fn a_key_that_runs_does_not_start_beside_itself() {
    let twice = [job("twice", "sleep", "400"), job("twice", "sleep", "400")];
    let (site, _worker) = start("twice", "", &twice);
    assert_eq!(site.settles(1, 0).effects["twice"].len(), 1);
}

#[test]
fn hung_jobs_cost_workers_until_the_process_exits_with_3() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.expect("a port").to_string();
    let options = format!("{NEVER_LATE} --attempts 2 --workers 3 --lost 2 --deadline-ms 1500");
    let options = format!("{options} --metrics {address}");
    // The second attempt does not start beside the first.
    let (site, mut worker) = start("hang", &options, &some(1, "first", "hang", ""));
    until("it is dead", || site.ledger().dead.len() == 1);
    until("a worker is lost", || {
        let mut stream = TcpStream::connect(&address).expect("the metrics");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
        let page = read_to_string(stream).expect("a page");
        page.contains("lazypool_workers_abandoned{pool=\"jobs\"} 1")
    });
    // The consumer goes on with the other jobs.
    site.produce(&some(20, "j", "sleep", "10"));
    site.settles(20, 1);
    assert_eq!(worker.ended(), None);
    site.produce(&some(1, "second", "hang", ""));
    until("it ends", || worker.ended().is_some());
    assert_eq!(worker.ended().and_then(|status| status.code()), Some(3), "{}", site.log());
}

#[test]
fn a_long_job_stays_and_one_of_a_consumer_that_stood_still_is_not_lost() {
    let long = Job { deadline_ms: 60_000, ..job("long", "sleep", "3000") };
    let (mut site, _one) = start("long", "", &[long]);
    let two = site.worker("");
    assert_eq!(site.settles(1, 0).effects["long"].len(), 1);
    site.produce(&some(16, "j", "sleep", "300"));
    until("both have some", || site.pending().len() == 2);
    two.signal("STOP");
    until("the other has claimed them", || site.ledger().unsettled == 0);
    two.signal("CONT");
    site.settles(17, 0);
}

#[test]
fn what_another_consumer_has_claimed_is_its_own() {
    let site = site("claimed", "");
    site.produce(&some(1, "j", "hash", "1"));
    let [(mut slow, ours), (mut quick, theirs)] = ["slow", "quick"].map(|name| {
        let mut s = site.s.clone();
        (s.consumer, s.visibility) = (name.to_owned(), Duration::ZERO);
        let mut queue = s.connect().expect("a connection");
        sleep(Duration::from_millis(600)); // until then, a new connection claims nothing
        let job = queue.take(5, 100, 0).expect("an answer").1.remove(0);
        (queue, job)
    });
    assert_eq!((&theirs.id, theirs.times), (&ours.id, 2));
    let late = || "late".to_owned();
    for end in [Failure::Cancelled, Failure::Passing(late()), Failure::Lasting(late())] {
        slow.settle(&[(&ours, &Err(end))]).expect("an answer");
        slow.extend(&[&ours.id], false).expect("an answer");
        assert_eq!(site.pending(), [("quick".to_owned(), 1)]);
        assert_eq!((site.ledger().unsettled, site.ledger().dead.len()), (1, 0));
    }
    // A lost answer does not count as a death of the consumer.
    quick.extend(&[], false).expect("an answer");
    assert_eq!(quick.take(5, 100, 0).expect("an answer").1[0].times, 2);
    // A job that is reported as done stays done, although another consumer has it.
    slow.settle(&[(&ours, &Ok(()))]).expect("an answer");
    assert_eq!((site.pending(), site.ledger().unsettled), (Vec::new(), 0));
}

#[test]
fn produce_status_and_dead() {
    let mut site = site("status", "");
    let add = "produce --kind sleep --payload 1 --count 3 --key k";
    assert_eq!(says(site.jobs(add), 0, ""), "added 3 jobs, with the keys k-0 and so on\n");
    says(site.jobs("produce --kind nonsense --key bad --count 2"), 0, "added 2");
    let text = says(site.jobs("status"), 0, "");
    assert_eq!(text, "waiting 5, pending 0, retries 0, done 0, dead 0\n");
    let worker = site.worker("");
    site.settles(3, 2);
    let text = says(site.jobs("status"), 0, "dead: bad-0 (nonsense): unknown kind: nonsense");
    assert!(text.starts_with("waiting 0, pending 0, retries 0, done 3, dead 2\n"), "{text}");
    // Jobs that are done are skipped.
    says(site.jobs(add), 0, "added 3");
    assert_eq!(site.settles(3, 2).twice(), Vec::<&String>::new());
    drop(worker);
    let list = says(site.jobs("dead"), 0, "");
    let id = list.split(['[', ']']).nth(1).expect("an id");
    says(site.jobs(&format!("dead --send {id}")), 0, "\nsent again: 1\n");
    says(site.jobs("status"), 0, "waiting 1, pending 0, retries 0, done 3, dead 1\n");
    says(site.jobs("dead --delete all"), 0, "\ndeleted: 1\n");
    assert_eq!(says(site.jobs("dead"), 0, ""), "");
    let _worker = site.worker("");
    site.settles(3, 1);
}

#[test]
fn errors_say_what_is_wrong() {
    let site = site("errors", "");
    query::<()>(&site, "SET", ("text", "no-stream"));
    for (code, words, text) in [
        (0, "work --help", "Durable jobs"),
        (1, "work --stream text", "`text`, or a key that begins so, is of the wrong type: "),
        (1, "produce --stream text", "is of the wrong type: "),
        (1, "status --stream text", "is of the wrong type: "),
        (1, "status --stream nothing", "no group reads the stream `nothing`: "),
        (1, "work --redis redis://me:secret@127.0.0.1:1/", "no Redis answers at 127.0.0.1:1/: "),
        (1, "status --redis what?", "bad URL what?: "),
        (1, "status --redis rediss://127.0.0.1/", "no TLS for rediss://127.0.0.1/: "),
        (2, "work --deadline-ms 15000", "--deadline-ms must be less than --visibility-ms"),
        (2, "work --lost 9", "--lost must be from 1 to --workers, 4"),
        (2, "work --workers many", "--workers many: invalid digit"),
        (2, "work --worker 2", "unknown option --worker"),
        (2, "work --workers", "options are written --name value"),
        (2, "walk", "unknown command `walk`"),
    ] {
        says(site.jobs(words), code, text);
    }
    assert_eq!(query::<Vec<String>>(&site, "KEYS", "*"), ["text"], "an error made a key");
    let mut story = Command::new(env!("CARGO_BIN_EXE_jobs"));
    story.env("PATH", "/nonexistent");
    says(story, 1, "apt-get install redis-server");
}
