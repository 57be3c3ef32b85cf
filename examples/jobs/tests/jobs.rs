//! What the example promises, against a real redis-server.

mod common;

use common::{job, output, query, site, some, until, NEVER_LATE};
use jobs::queue::Outcome;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

#[test]
fn takes_no_more_than_workers_and_queue() {
    let mut site = site("bound");
    site.produce(&some(400, "j", "sleep", "20"));
    let options = format!("--workers 2 --queue 3 {NEVER_LATE}");
    let _workers = [site.worker(&options), site.worker(&options)];
    let mut most = 0;
    let ledger = until("all are done", || {
        most = site
            .pending()
            .iter()
            .map(|&(_, pending)| pending)
            .fold(most, usize::max);
        Some(site.ledger()).filter(|ledger| ledger.done.len() == 400)
    });
    assert_eq!((most, ledger.twice().count()), (5, 0));
}

#[test]
fn redis_stopped_and_started_loses_nothing() {
    let mut site = site("restart");
    let all = some(1000, "j", "sleep", "20");
    site.produce(&all);
    let (name, mut worker) = site.worker("");
    for signal in ["TERM", "KILL"] {
        let before = site.ledger().done.len();
        until("some more are done", || {
            (site.ledger().done.len() > before + 20).then_some(())
        });
        site.stop(signal);
        sleep(Duration::from_millis(1500)); // longer than the visibility timeout
        site.start_again().expect("redis-server");
    }
    let (ledger, log) = (site.settled(), site.log(&name));
    assert_eq!(
        ledger.lost(all.iter().map(|job| &job.key)),
        Vec::<&String>::new()
    );
    assert!(ledger.dead.is_empty(), "{:?}", ledger.dead);
    assert_eq!(worker.ended(), None);
    assert_eq!(log.matches("no Redis answers at").count(), 2, "{log}");
    assert_eq!(log.matches("Redis is back").count(), 2, "{log}");
}

#[test]
fn a_poisoned_job_goes_to_the_dead_letters_and_takes_no_other_along() {
    let mut site = site("poison");
    let mut all = some(40, "j", "sleep", "50");
    all.insert(10, job("poison", "abort", ""));
    site.produce(&all);
    let mut workers = vec![site.worker("").1, site.worker("").1];
    let mut deaths = 0;
    until("all is settled", || {
        // Before the look at which have died: the last may have done so just before.
        let is_settled = site.ledger().unsettled == 0;
        for worker in &mut workers {
            if worker.ended().is_some() {
                deaths += 1;
                *worker = site.worker("").1;
            }
        }
        is_settled.then_some(())
    });
    let ledger = site.ledger();
    assert_eq!(ledger.dead.len(), 1, "{:?}", ledger.dead);
    assert_eq!(ledger.dead["poison"], "consumers died: 3");
    assert_eq!((ledger.done.len(), deaths), (40, 3));
}

#[test]
fn sigterm_under_load_finishes_what_runs_and_gives_back_the_rest() {
    let mut site = site("sigterm");
    site.produce(&some(100, "j", "sleep", "100"));
    let (name, mut worker) = site.worker(NEVER_LATE);
    until("some are done", || {
        (site.ledger().done.len() > 8).then_some(())
    });
    worker.signal("TERM");
    assert!(worker.wait().success(), "{}", site.log(&name));
    let (pending, done) = (site.pending(), site.ledger().done.len());
    assert!(
        pending.iter().all(|(name, _)| name == "nobody"),
        "{pending:?}"
    );
    assert!(done < 100);
    let _other = site.worker(NEVER_LATE);
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.twice().count()), (100, 0));
}

#[test]
fn a_job_longer_than_the_grace_period_is_told_to_stop_and_left_to_others() {
    let mut site = site("grace");
    site.produce(&some(1, "j", "sleep", "5000"));
    let (_, mut worker) = site.worker(&format!("{NEVER_LATE} --grace-ms 50"));
    until("it is taken", || (!site.pending().is_empty()).then_some(()));
    worker.signal("TERM");
    assert!(worker.wait().success());
    assert!(site.ledger().effects.is_empty());
    let _other = site.worker(NEVER_LATE);
    assert_eq!(site.settled().done.len(), 1);
}

#[test]
fn failures_are_tried_again_and_then_dead_with_their_reason() {
    let mut site = site("reasons");
    let _worker = site.worker(&format!("--workers 2 --queue 9 --lost 2 {NEVER_LATE}"));
    let mut slow = job("slow", "sleep", "20000");
    slow.deadline_ms = 1500;
    site.produce(&[
        job("panic", "panic", ""),
        slow,
        job("2", "flaky", "2"),
        job("3", "flaky", "3"),
    ]);
    let ledger = site.settled();
    let dead = [
        ("3", "failed: attempt 3"),
        ("panic", "panicked: as it was told"),
        ("slow", "timed out"),
    ];
    assert!(
        ledger
            .dead
            .iter()
            .map(|(key, why)| (key.as_str(), why.as_str()))
            .eq(dead),
        "{ledger:?}"
    );
    assert_eq!(Vec::from_iter(ledger.done), ["2"]);
    let mut late = job("late", "hash", "1");
    late.deadline_ms = 100;
    site.produce(&[job("a", "sleep", "900"), job("b", "sleep", "900"), late]);
    site.produce(&[job("twice", "sleep", "300"), job("twice", "sleep", "300")]);
    let ledger = site.settled();
    assert!(
        ledger.done.contains("twice") && ledger.twice().count() == 0,
        "{ledger:?}"
    );
}

#[test]
fn hung_jobs_cost_workers_until_the_process_exits_with_3() {
    let mut site = site("hang");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.expect("a port").to_string();
    let options = format!("--attempts 2 --workers 3 --lost 2 --metrics {address} {NEVER_LATE}");
    let (name, mut worker) = site.worker(&format!("{options} --deadline-ms 1500"));
    // The second attempt does not start beside the first.
    site.produce(&some(1, "first", "hang", ""));
    until("it is dead", || {
        (site.ledger().dead.len() == 1).then_some(())
    });
    until("a worker is lost", || {
        let (mut page, mut stream) = (String::new(), TcpStream::connect(&address).ok()?);
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .expect("a request");
        stream.read_to_string(&mut page).expect("a page");
        page.contains("lazypool_workers_abandoned{pool=\"jobs\"} 1")
            .then_some(())
    });
    // It goes on with the others.
    site.produce(&some(20, "j", "sleep", "10"));
    assert_eq!(site.settled().done.len(), 20);
    assert_eq!(worker.ended(), None);
    site.produce(&some(1, "second", "hang", ""));
    assert_eq!(worker.wait().code(), Some(3), "{}", site.log(&name));
}

#[test]
fn a_long_job_extends_its_visibility_timeout() {
    let mut site = site("long");
    let mut long = job("long", "sleep", "5000");
    long.deadline_ms = 60_000;
    let _workers = [
        site.worker("--visibility-ms 1500"),
        site.worker("--visibility-ms 1500"),
    ];
    site.produce(&[long]);
    assert_eq!(site.settled().twice().count(), 0);
}

#[test]
fn a_consumer_that_stood_still_for_too_long_loses_nothing() {
    let mut site = site("pause");
    let (_, worker) = site.worker("");
    site.produce(&some(8, "j", "sleep", "300"));
    until("they are taken", || {
        (!site.pending().is_empty()).then_some(())
    });
    worker.signal("STOP");
    let _other = site.worker("");
    until("the other has claimed them", || {
        (site.ledger().done.len() >= 4).then_some(())
    });
    worker.signal("CONT");
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.dead.len()), (8, 0));
}

#[test]
fn what_another_consumer_has_claimed_is_its_own() {
    let site = site("claimed");
    let [mut slow, mut quick] = ["slow", "quick"].map(|name| {
        let mut place = site.place.clone();
        (place.consumer, place.visibility) = (name.to_owned(), Duration::ZERO);
        place.connect().expect("a connection")
    });
    let take = |queue: &mut jobs::queue::Queue| queue.take(5, 100, 3).expect("jobs").2.pop();
    site.produce(&some(1, "j", "hash", "1"));
    let ours = take(&mut slow).expect("a job");
    let theirs = until("it is claimed", || take(&mut quick));
    assert_eq!((&theirs.id, theirs.times), (&ours.id, 2));
    let later = Outcome::Retried("late".to_owned(), Duration::ZERO, 1);
    for outcome in [Outcome::Released, later, Outcome::Dead("late".to_owned())] {
        slow.settle(&[(&ours, &outcome)]).expect("an answer");
        slow.extend(&[&ours.id], 1, (Duration::MAX / 2, 9))
            .expect("an answer");
        assert_eq!(site.pending(), [("quick".to_owned(), 1)], "{outcome:?}");
        assert_eq!(
            (site.ledger().unsettled, site.ledger().dead.len()),
            (1, 0),
            "{outcome:?}"
        );
    }
    // An answer that was lost is no death.
    quick
        .extend(&[], 1, (Duration::from_secs(60), 9))
        .expect("an answer");
    assert_eq!(until("it is claimed", || take(&mut quick)).times, 2);
    // But done is done.
    slow.settle(&[(&ours, &Outcome::Done)]).expect("an answer");
    assert_eq!((site.pending(), site.ledger().unsettled), (Vec::new(), 0));
}

#[test]
fn produce_status_and_dead() {
    let mut site = site("status");
    let run = |site: &common::Site, words: &str| {
        let (code, said) = output(&mut site.jobs(words));
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let text = run(&site, "produce --kind sleep --payload 1 --count 3 --key k");
    assert_eq!(text, "added 3 jobs, with the keys k-0 and so on\n");
    run(&site, "produce --kind nonsense --key bad --count 2");
    assert_eq!(
        run(&site, "status"),
        "waiting 5, pending 0, retries 0, done 0, dead 0\n"
    );
    let (_, worker) = site.worker("");
    site.settled();
    let status = run(&site, "status");
    assert!(
        status.starts_with("waiting 0, pending 0, retries 0, done 3, dead 2\n"),
        "{status}"
    );
    assert!(
        status.contains("dead: bad-0 (nonsense): unknown kind: nonsense"),
        "{status}"
    );
    // What is done is skipped.
    run(&site, "produce --kind sleep --payload 1 --count 3 --key k");
    assert_eq!(site.settled().twice().count(), 0);
    drop(worker);
    let list = run(&site, "dead");
    let id = list.split(['[', ']']).nth(1).expect("an id");
    assert!(run(&site, &format!("dead --send {id}")).ends_with("sent again: 1\n"));
    assert!(run(&site, "status").starts_with("waiting 1, pending 0, retries 0, done 3, dead 1\n"));
    assert!(run(&site, "dead --delete all").ends_with("deleted: 1\n"));
    assert_eq!(run(&site, "dead"), "");
    let _worker = site.worker("");
    assert_eq!(site.settled().dead.len(), 1);
}

#[test]
fn errors_say_what_is_wrong() {
    let mut site = site("errors");
    let _: () = query(&site, "SET text no-stream");
    for (words, code, text) in [
        (
            "work --stream text",
            1,
            "`text`, or a key that begins so, is of the wrong type: ",
        ),
        ("produce --stream text", 1, "is of the wrong type: "),
        ("status --stream text", 1, "is of the wrong type: "),
        (
            "status --stream nothing",
            1,
            "no group reads the stream `nothing`: ",
        ),
        (
            "work --redis redis://me:secret@127.0.0.1:1/",
            1,
            "no Redis answers at 127.0.0.1:1/: ",
        ),
        ("status --redis what?", 1, "bad URL what?: "),
        (
            "status --redis rediss://127.0.0.1/",
            1,
            "no TLS for rediss://127.0.0.1/: ",
        ),
        (
            "work --deadline-ms 15000",
            2,
            "--deadline-ms must be less than --visibility-ms",
        ),
        ("work --lost 9", 2, "--lost must be from 1 to --workers, 4"),
        ("work --workers many", 2, "--workers many: invalid digit"),
        ("work --worker 2", 2, "unknown option --worker"),
        ("work --workers", 2, "options are written --name value"),
        ("walk", 2, "unknown command `walk`"),
    ] {
        let (found, said) = output(&mut site.jobs(words));
        assert_eq!(found, Some(code), "{words}: {said}");
        assert!(
            said.starts_with("jobs: ") && said.contains(text),
            "{words}: {said}"
        );
    }
    assert_eq!(
        query::<Vec<String>>(&site, "KEYS *"),
        ["text"],
        "an error made a key"
    );
    assert!(output(&mut site.jobs("work --help"))
        .1
        .starts_with("Durable jobs"));
    site.exe = env!("CARGO_BIN_EXE_jobs").into();
    let mut story = std::process::Command::new(&site.exe);
    let (code, said) = output(story.env("PATH", "/nonexistent"));
    assert!(
        code == Some(1) && said.contains("apt-get install redis-server"),
        "{said}"
    );
}
