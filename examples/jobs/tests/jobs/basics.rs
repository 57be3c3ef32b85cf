//! What the example does without being stuck.

use super::{job, ok, query, run, site, some, until, NEVER_LATE};
use jobs::queue::Failure;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

#[test]
fn redis_stopped_and_started_loses_nothing() {
    let mut site = site("restart");
    let all = some(1000, "j", "sleep", "20");
    site.produce(&all);
    let mut worker = site.worker("");
    for signal in ["TERM", "KILL"] {
        let before = site.ledger().done.len();
        until("some more are done", || site.ledger().done.len() > before + 20);
        site.stop(signal);
        sleep(Duration::from_millis(1500)); // longer than the visibility timeout
        site.start_again().expect("redis-server");
    }
    let (ledger, log) = (site.settled(), site.log());
    assert_eq!((ledger.lost(&all), ledger.dead.len()), (Vec::new(), 0));
    assert_eq!(worker.ended(), None);
    assert_eq!(log.matches("trying again").count(), 2, "{log}");
    assert_eq!(log.matches("Redis is back").count(), 2, "{log}");
}

#[test]
fn a_poisoned_job_goes_to_the_dead_letters_and_takes_no_other_along() {
    let mut site = site("poison");
    let mut all = some(40, "j", "sleep", "50");
    all.insert(10, job("poison", "abort", ""));
    site.produce(&all);
    let mut workers = [site.worker(""), site.worker("")];
    let mut deaths = 0;
    until("all is settled", || {
        // Before the look at which have died: the last may have done so just before.
        let is_settled = site.ledger().unsettled == 0;
        for worker in workers.iter_mut().filter_map(|w| w.ended().map(|_| w)) {
            deaths += 1;
            *worker = site.worker("");
        }
        is_settled
    });
    let ledger = site.ledger();
    assert_eq!(ledger.dead["poison"], "consumers died: 3");
    assert_eq!((ledger.done.len(), ledger.dead.len(), deaths), (40, 1, 3));
}

#[test]
fn sigterm_finishes_what_runs_and_gives_back_the_rest() {
    let mut site = site("sigterm");
    // The second time the job is longer than the grace period, and told to stop.
    for (count, ms, grace) in [(100, "100", 5000), (1, "2000", 50)] {
        let key = format!("j{count}");
        site.produce(&some(count, &key, "sleep", ms));
        let mut worker = site.worker(&format!("{NEVER_LATE} --grace-ms {grace}"));
        let before = if count == 1 { 100 } else { 8 };
        until("some are taken", || {
            !site.pending().is_empty() && site.ledger().done.len() >= before
        });
        worker.signal("TERM");
        assert!(worker.wait().success(), "{}", site.log());
        let pending = site.pending();
        assert!(pending.iter().all(|(name, _)| name == "nobody"), "{pending:?}");
        assert!(site.ledger().unsettled > 0);
        let _other = site.worker(NEVER_LATE);
        let ledger = site.settled();
        assert_eq!((ledger.lost(&[]), ledger.twice()), (vec![], vec![]));
    }
}

#[test]
fn failures_are_tried_again_and_then_dead_with_their_reason() {
    let mut site = site("reasons");
    let _worker = site.worker(&format!("{NEVER_LATE} --workers 2 --queue 9 --lost 2"));
    let mut slow = job("slow", "sleep", "20000");
    slow.deadline_ms = 1500;
    let (two, three) = (job("2", "flaky", "2"), job("3", "flaky", "3"));
    site.produce(&[job("panic", "panic", ""), slow, two, three]);
    let ledger = site.settled();
    assert!(ledger.done.iter().eq(["2"]) && ledger.dead.len() == 3, "{ledger:?}");
    assert_eq!(ledger.dead["3"], "failed: attempt 3");
    assert_eq!(ledger.dead["panic"], "panicked: as it was told");
    assert_eq!(ledger.dead["slow"], "timed out");
    // One that no worker starts in time does not run then.
    let mut late = job("late", "hash", "1");
    late.deadline_ms = 100;
    site.produce(&[job("a", "sleep", "900"), job("b", "sleep", "900"), late]);
    site.settled();
    assert!(site.log().contains("late (hash), attempt 1: expired"), "{}", site.log());
}

#[test]
fn a_key_that_runs_does_not_start_beside_itself() {
    let mut site = site("twice");
    let _worker = site.worker("");
    site.produce(&[job("twice", "sleep", "400"), job("twice", "sleep", "400")]);
    let ledger = site.settled();
    assert_eq!((ledger.effects["twice"].len(), ledger.dead.len()), (1, 0));
}

#[test]
fn hung_jobs_cost_workers_until_the_process_exits_with_3() {
    let mut site = site("hang");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.expect("a port").to_string();
    let options = format!("--attempts 2 --workers 3 --lost 2 --metrics {address} {NEVER_LATE}");
    let mut worker = site.worker(&format!("{options} --deadline-ms 1500"));
    // The second attempt does not start beside the first.
    site.produce(&some(1, "first", "hang", ""));
    until("it is dead", || site.ledger().dead.len() == 1);
    until("a worker is lost", || {
        let (mut page, stream) = (String::new(), TcpStream::connect(&address));
        let mut stream = stream.expect("the metrics");
        let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        asked.and_then(|()| stream.read_to_string(&mut page)).expect("a page");
        page.contains("lazypool_workers_abandoned{pool=\"jobs\"} 1")
    });
    // It goes on with the others.
    site.produce(&some(20, "j", "sleep", "10"));
    assert_eq!((site.settled().done.len(), worker.ended()), (20, None));
    site.produce(&some(1, "second", "hang", ""));
    assert_eq!(worker.wait().code(), Some(3), "{}", site.log());
}

#[test]
fn a_long_job_stays_and_one_of_a_consumer_that_stood_still_is_not_lost() {
    let mut site = site("long");
    let mut long = job("long", "sleep", "3000");
    long.deadline_ms = 60_000;
    let [_one, two] = [site.worker(""), site.worker("")];
    site.produce(&[long]);
    assert_eq!(site.settled().effects["long"].len(), 1);
    site.produce(&some(16, "j", "sleep", "300"));
    until("both have some", || site.pending().len() == 2);
    two.signal("STOP");
    until("the other has claimed them", || site.ledger().unsettled == 0);
    two.signal("CONT");
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.dead.len()), (17, 0));
}

#[test]
fn what_another_consumer_has_claimed_is_its_own() {
    let site = site("claimed");
    site.produce(&some(1, "j", "hash", "1"));
    let [(mut slow, ours), (mut quick, theirs)] = ["slow", "quick"].map(|name| {
        let mut s = site.s.clone();
        (s.consumer, s.visibility) = (name.to_owned(), Duration::ZERO);
        let (mut queue, mut jobs) = (s.connect().expect("a connection"), Vec::new());
        until("there is a job", || {
            jobs = queue.take(5, 100, 0).expect("an answer").1;
            !jobs.is_empty()
        });
        (queue, jobs.remove(0))
    });
    assert_eq!((&theirs.id, theirs.times), (&ours.id, 2));
    let late = || "late".to_owned();
    for end in [Failure::Cancelled, Failure::Passing(late()), Failure::Lasting(late())] {
        slow.settle(&[(&ours, &Err(end))]).expect("an answer");
        slow.extend(&[&ours.id], false).expect("an answer");
        assert_eq!(site.pending(), [("quick".to_owned(), 1)]);
        assert_eq!((site.ledger().unsettled, site.ledger().dead.len()), (1, 0));
    }
    // An answer that was lost is no death.
    quick.extend(&[], false).expect("an answer");
    assert_eq!(quick.take(5, 100, 0).expect("an answer").1[0].times, 2);
    // But done is done.
    slow.settle(&[(&ours, &Ok(()))]).expect("an answer");
    assert_eq!((site.pending(), site.ledger().unsettled), (Vec::new(), 0));
}

#[test]
fn produce_status_and_dead() {
    let mut site = site("status");
    let text = ok(&site, "produce --kind sleep --payload 1 --count 3 --key k");
    assert_eq!(text, "added 3 jobs, with the keys k-0 and so on\n");
    ok(&site, "produce --kind nonsense --key bad --count 2");
    let text = ok(&site, "status");
    assert_eq!(text, "waiting 5, pending 0, retries 0, done 0, dead 0\n");
    let worker = site.worker("");
    site.settled();
    let text = ok(&site, "status");
    assert!(text.starts_with("waiting 0, pending 0, retries 0, done 3, dead 2\n"), "{text}");
    assert!(text.contains("dead: bad-0 (nonsense): unknown kind: nonsense"), "{text}");
    // What is done is skipped.
    ok(&site, "produce --kind sleep --payload 1 --count 3 --key k");
    assert_eq!(site.settled().twice(), Vec::<&String>::new());
    drop(worker);
    let list = ok(&site, "dead");
    let id = list.split(['[', ']']).nth(1).expect("an id");
    assert!(ok(&site, &format!("dead --send {id}")).ends_with("sent again: 1\n"));
    assert!(ok(&site, "status").starts_with("waiting 1, pending 0, retries 0, done 3, dead 1\n"));
    assert!(ok(&site, "dead --delete all").ends_with("deleted: 1\n"));
    assert_eq!(ok(&site, "dead"), "");
    let _worker = site.worker("");
    assert_eq!(site.settled().dead.len(), 1);
}

#[test]
fn errors_say_what_is_wrong() {
    let site = site("errors");
    let _: () = query(&site, "SET text no-stream");
    for (code, words, text) in [
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
        let (found, said) = run(&site, words);
        assert_eq!(found, code, "{words}: {said}");
        assert!(said.starts_with("jobs: ") && said.contains(text), "{words}: {said}");
    }
    assert_eq!(query::<Vec<String>>(&site, "KEYS *"), ["text"], "an error made a key");
    assert!(run(&site, "work --help").1.starts_with("Durable jobs"));
    let mut story = std::process::Command::new(env!("CARGO_BIN_EXE_jobs"));
    let story = story.env("PATH", "/nonexistent").output().expect("it runs");
    let said = String::from_utf8_lossy(&story.stderr);
    assert!(said.contains("apt-get install redis-server"), "{said}");
}
