//! What the example promises, against a real redis-server.

mod common;

use common::{cut_at_delivery, jobs, some, stderr, until, Site, LONG};
use jobs::queue::{Job, Outcome};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// No job is late, and nobody waits until a job is claimed: what is given back is free at once.
const NEVER_LATE: &str = "--deadline-ms 60000 --visibility-ms 600000";

fn keys(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|job| job.key.clone()).collect()
}

#[test]
fn takes_no_more_than_workers_and_queue() {
    let mut site = Site::new("bound");
    let all = some(600, "j", "sleep", "20");
    site.produce(&all);
    let options = format!("--workers 2 --queue 3 {NEVER_LATE}");
    let (_, _one) = site.worker(&options);
    let (_, _two) = site.worker(&options);
    let mut most = 0;
    let ledger = until("all done", || {
        for (name, pending) in site.pending() {
            assert!(pending <= 5, "{pending} pending with {name}");
            most = most.max(pending);
        }
        Some(site.ledger()).filter(|ledger| ledger.done.len() == all.len())
    });
    assert_eq!(most, 5, "it never used its capacity");
    assert_eq!(ledger.twice().count(), 0);
}

#[test]
fn redis_stopped_and_started_loses_nothing() {
    let mut site = Site::new("restart");
    let all = some(1500, "j", "sleep", "20");
    site.produce(&all);
    let (name, mut worker) = site.worker("");
    for signal in ["TERM", "KILL"] {
        let before = site.ledger().done.len();
        until("some more are done", || {
            (site.ledger().done.len() > before + 20).then_some(())
        });
        site.server.stop(signal);
        sleep(Duration::from_millis(1500)); // longer than the visibility timeout
        site.server.start_again().expect("redis-server");
    }
    let ledger = site.settled();
    assert_eq!(ledger.lost(&keys(&all)), Vec::<&String>::new());
    assert!(ledger.dead.is_empty(), "{:?}", ledger.dead);
    assert_eq!(worker.ended(), None);
    let log = site.log(&name);
    assert_eq!(log.matches("no Redis answers at").count(), 2, "{log}");
    assert_eq!(log.matches("Redis is back").count(), 2, "{log}");
}

#[test]
fn a_poisoned_job_goes_to_the_dead_letters_and_takes_no_other_along() {
    let mut site = Site::new("poison");
    let mut all = some(40, "j", "sleep", "50");
    all.insert(10, Job::new("poison".to_owned(), "abort", ""));
    site.produce(&all);
    let mut workers = vec![site.worker("").1, site.worker("").1];
    let (mut deaths, start) = (0, Instant::now());
    let mut is_settled = false;
    while !is_settled {
        // Before the look at who has died: the last may have done so just before.
        is_settled = site.ledger().unsettled == 0;
        for worker in &mut workers {
            if worker.ended().is_some() {
                deaths += 1;
                *worker = site.worker("").1;
            }
        }
        assert!(start.elapsed() < LONG);
        sleep(Duration::from_millis(20));
    }
    let ledger = site.ledger();
    assert_eq!(
        ledger.dead.into_iter().collect::<Vec<_>>(),
        [("poison".to_owned(), "consumers died: 3".to_owned())]
    );
    assert_eq!((ledger.done.len(), deaths), (40, 3));
}

#[test]
fn sigterm_under_load_finishes_what_runs_and_gives_back_the_rest() {
    let mut site = Site::new("sigterm");
    let all = some(200, "j", "sleep", "100");
    site.produce(&all);
    let (name, mut worker) = site.worker(NEVER_LATE);
    until("some are done", || {
        (site.ledger().done.len() > 8).then_some(())
    });
    worker.signal("TERM");
    assert!(worker.wait(LONG).success(), "{}", site.log(&name));
    let (pending, done) = (site.pending(), site.ledger().done.len());
    assert!(
        pending.iter().all(|(name, _)| name == "nobody"),
        "{pending:?}"
    );
    assert!(done < 200);
    let (_, _other) = site.worker(NEVER_LATE);
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.twice().count()), (200, 0));
}

#[test]
fn a_job_longer_than_the_grace_period_is_told_to_stop_and_left_to_others() {
    let mut site = Site::new("grace");
    site.produce(&some(1, "j", "sleep", "5000"));
    let (_, mut worker) = site.worker(&format!("{NEVER_LATE} --grace-ms 50"));
    until("it is taken", || (!site.pending().is_empty()).then_some(()));
    worker.signal("TERM");
    assert!(worker.wait(LONG).success());
    assert!(site.ledger().effects.is_empty());
    let (_, _other) = site.worker(NEVER_LATE);
    assert_eq!(site.settled().done.len(), 1);
}

#[test]
fn a_job_whose_delivery_was_lost_with_its_connection_is_left_to_others() {
    let mut site = Site::new("cut");
    let way = cut_at_delivery(&site.place);
    site.produce(&some(1, "j", "hash", "1"));
    let (name, mut worker) = site.worker(&format!("{NEVER_LATE} --redis {way}"));
    until("the delivery is lost", || {
        site.log(&name).contains("trying again").then_some(())
    });
    worker.signal("TERM");
    assert!(worker.wait(LONG).success(), "{}", site.log(&name));
    let (_, _other) = site.worker(NEVER_LATE);
    assert_eq!(site.settled().done.len(), 1);
}

#[test]
fn more_consumers_than_jobs() {
    let mut site = Site::new("few");
    let workers: Vec<_> = (0..5).map(|_| site.worker("")).collect();
    let all = some(3, "j", "hash", "1");
    site.produce(&all);
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.twice().count()), (3, 0));
    for (_, worker) in &workers {
        worker.signal("TERM");
    }
    for (_, mut worker) in workers {
        assert!(worker.wait(LONG).success());
    }
}

#[test]
fn bad_input_goes_to_the_dead_letters_and_the_consumer_goes_on() {
    let mut site = Site::new("bad");
    let stream = site.place.stream.clone();
    let (_, mut worker) = site.worker("");
    let mut binary = Job::new("binary".to_owned(), "hash", "");
    binary.payload = vec![0xff, 0];
    let text = Job::new("text".to_owned(), "sleep", "soon");
    site.produce(&[Job::new("kind".to_owned(), "fly", ""), text, binary]);
    let _: String = site.query(&["XADD", &stream, "*", "key", "none", "what", "is this"]);
    let deadline = [
        "deadline_ms",
        "soon",
        "key",
        "deadline",
        "kind",
        "hash",
        "payload",
        "1",
    ];
    let _: String = site.query(&[&["XADD", &stream, "*"], &deadline[..]].concat());
    site.produce(&some(1, "good", "hash", "1"));
    let ledger = site.settled();
    let reason = |key: &str| ledger.dead[key].as_str();
    assert_eq!(reason("kind"), "unknown kind: fly");
    assert_eq!(reason("text"), "bad payload: `soon` is not a number");
    assert!(reason("binary").starts_with("bad payload: "));
    assert_eq!(reason("none"), "unknown kind: ");
    assert_eq!(
        reason("deadline"),
        "bad payload: `deadline_ms` is not a number"
    );
    assert_eq!((ledger.dead.len(), ledger.done.len()), (5, 1));
    assert_eq!(worker.ended(), None);
    type Letters = Vec<(String, BTreeMap<String, Vec<u8>>)>;
    let letters: Letters = site.query(&["XRANGE", &(stream + ":dead"), "-", "+"]);
    assert!(
        letters
            .iter()
            .any(|(_, letter)| letter["payload"] == [0xff, 0]),
        "{letters:?}"
    );
    let mut status = jobs(&[
        "status",
        "--redis",
        &site.place.url,
        "--stream",
        "{it}",
        "--group",
        "g",
    ]);
    assert!(status.status().expect("it runs").success());
}

#[test]
fn failures_are_tried_again_and_then_dead_with_their_reason() {
    let mut site = Site::new("reasons");
    let (_, _worker) = site.worker(&format!("--attempts 3 --workers 3 --lost 3 {NEVER_LATE}"));
    let mut slow = Job::new("slow".to_owned(), "sleep", "20000");
    slow.deadline_ms = 2500;
    site.produce(&[Job::new("panic".to_owned(), "panic", "no!"), slow]);
    site.produce(&[
        Job::new("twice".to_owned(), "flaky", "2"),
        Job::new("thrice".to_owned(), "flaky", "3"),
    ]);
    let ledger = site.settled();
    let dead = [
        ("panic", "panicked: no!"),
        ("slow", "timed out"),
        ("thrice", "failed: attempt 3"),
    ];
    assert_eq!(
        ledger.dead,
        dead.map(|(key, why)| (key.to_owned(), why.to_owned()))
            .into()
    );
    assert_eq!(Vec::from_iter(ledger.done), ["twice"]);
}

#[test]
fn a_job_that_no_worker_starts_in_time_expires() {
    let mut site = Site::new("expired");
    let (_, _worker) = site.worker(&format!("--attempts 1 --workers 1 --queue 1 {NEVER_LATE}"));
    let mut late = Job::new("late".to_owned(), "hash", "1");
    late.deadline_ms = 100;
    site.produce(&[Job::new("first".to_owned(), "sleep", "600"), late]);
    let ledger = site.settled();
    assert_eq!(
        ledger.dead,
        [("late".to_owned(), "expired".to_owned())].into()
    );
    assert_eq!(Vec::from_iter(ledger.done), ["first"]);
}

#[test]
fn hung_jobs_cost_workers_until_the_process_exits_with_3() {
    let mut site = Site::new("hang");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let options = format!("--attempts 1 --workers 3 --lost 2 --metrics {address} {NEVER_LATE}");
    let (name, mut worker) = site.worker(&format!("{options} --deadline-ms 3000"));
    site.produce(&some(1, "first", "hang", ""));
    until("it is dead", || {
        (site.ledger().dead.len() == 1).then_some(())
    });
    until("a worker is lost", || {
        let mut page = String::new();
        let mut stream = TcpStream::connect(&address).expect("a connection");
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
    assert_eq!(worker.wait(LONG).code(), Some(3), "{}", site.log(&name));
    assert_eq!(
        Vec::from_iter(site.settled().dead.into_values()),
        ["timed out"; 2]
    );
}

#[test]
fn a_long_job_extends_its_visibility_timeout() {
    let mut site = Site::new("long");
    let mut long = Job::new("long".to_owned(), "sleep", "10000");
    long.deadline_ms = 60_000;
    let (_, _one) = site.worker("--visibility-ms 3000");
    let (_, _two) = site.worker("--visibility-ms 3000");
    site.produce(&[long]);
    // Through three visibility timeouts.
    let ledger = until("it is done", || {
        let pending: Vec<(String, String, u64, u64)> =
            site.query(&["XPENDING", "{it}", "g", "-", "+", "9"]);
        assert!(pending.iter().all(|&(.., times)| times == 1), "{pending:?}");
        Some(site.ledger()).filter(|ledger| ledger.done.len() == 1)
    });
    assert_eq!(ledger.twice().count(), 0);
}

#[test]
fn a_consumer_that_stood_still_for_too_long_loses_nothing() {
    let mut site = Site::new("pause");
    let (_, worker) = site.worker("");
    site.produce(&some(8, "j", "sleep", "300"));
    until("they are taken", || {
        (!site.pending().is_empty()).then_some(())
    });
    worker.signal("STOP");
    let (_, _other) = site.worker("");
    until("the other has claimed them", || {
        (site.ledger().done.len() >= 4).then_some(())
    });
    worker.signal("CONT");
    let ledger = site.settled();
    assert_eq!((ledger.done.len(), ledger.dead.len()), (8, 0));
}

#[test]
fn what_another_consumer_has_claimed_is_its_own() {
    let site = Site::new("claimed");
    let consumer = |name: &str| {
        let mut place = site.place.clone();
        (place.consumer, place.visibility) = (name.to_owned(), Duration::ZERO);
        place.connect().expect("a connection")
    };
    let (mut slow, mut quick) = (consumer("slow"), consumer("quick"));
    site.produce(&some(1, "j", "hash", "1"));
    let jobs = slow.take(5).expect("jobs");
    let claimed = until("it is claimed", || quick.claim().expect("an answer"));
    assert_eq!((&claimed.id, claimed.deliveries), (&jobs[0].id, 2));
    let later = Outcome::Retried("late".to_owned(), Duration::ZERO);
    for outcome in [Outcome::Released, later, Outcome::Dead("late".to_owned())] {
        slow.settle(&[(&jobs[0], &outcome)]).expect("an answer");
        slow.extend(&[&jobs[0].id]).expect("an answer");
        assert_eq!(site.pending(), [("quick".to_owned(), 1)], "{outcome:?}");
        let ledger = site.ledger();
        assert_eq!((ledger.unsettled, ledger.dead.len()), (1, 0), "{outcome:?}");
    }
    // But done is done.
    slow.settle(&[(&jobs[0], &Outcome::Done)])
        .expect("an answer");
    assert_eq!((site.pending(), site.ledger().unsettled), (Vec::new(), 0));
}

#[test]
fn a_key_that_is_done_is_skipped() {
    let mut site = Site::new("key");
    let (_, _worker) = site.worker("");
    let all = some(5, "j", "hash", "1");
    for _ in 0..2 {
        site.produce(&all);
        assert_eq!(site.settled().done.len(), 5);
    }
    assert_eq!(site.ledger().twice().count(), 0);
}

#[test]
fn produce_and_status() {
    let mut site = Site::new("status");
    let url = site.place.url.clone();
    let run = |words: &str| {
        let mut command = jobs(&words.split(' ').collect::<Vec<_>>());
        command.args(["--redis", &url, "--stream", "{it}", "--group", "g"]);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = run("produce --kind sleep --payload 1 --count 3 --key k");
    assert_eq!(text, "added 3 jobs, with the keys k-0 and so on\n");
    run("produce --kind nonsense --key bad");
    assert_eq!(
        run("status"),
        "waiting 4, pending 0, retries 0, done 0, dead 0\n"
    );
    let (_, worker) = site.worker("");
    site.settled();
    let status = run("status");
    assert!(
        status.starts_with("waiting 0, pending 0, retries 0, done 3, dead 1\n"),
        "{status}"
    );
    assert!(
        status.contains("dead: bad-0 (nonsense): unknown kind: nonsense\n"),
        "{status}"
    );
    site.produce(&some(1, "long", "sleep", "100000"));
    let status = until("it is pending", || {
        Some(run("status")).filter(|text| text.contains("pending 1,"))
    });
    assert!(status.contains("pending with w1: 1\n"), "{status}");
    drop(worker);
}

#[test]
fn errors_say_what_is_wrong() {
    let site = Site::new("errors");
    let _: () = site.query(&["SET", "text", "no stream"]);
    let no_stream = "`text` (or a key that begins so) is no stream: ";
    let no_group = "no group reads the stream `nothing`: ";
    let nobody = "no Redis answers at redis://127.0.0.1:1/: ";
    let cases = [
        ("work --stream text", 1, no_stream),
        ("produce --stream text", 1, no_stream),
        ("status --stream text", 1, no_stream),
        ("status --stream nothing", 1, no_group),
        ("work --redis redis://127.0.0.1:1/", 1, nobody),
        ("produce --redis redis://127.0.0.1:1/", 1, nobody),
        ("status --redis what?", 1, "what?"),
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
    ];
    for (words, code, text) in cases {
        let (command, options) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = jobs(&[command, "--redis", &site.place.url]);
        let output = command.args(options.split_whitespace()).output();
        let output = output.expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words}: {said}");
        assert!(
            said.starts_with("jobs: ") && said.contains(text),
            "{words}: {said}"
        );
    }
    let made: Vec<String> = site.query(&["KEYS", "*"]);
    assert_eq!(made, ["text"], "an error made a key");
    let help = jobs(&["work", "--help"]).output().expect("it runs");
    assert!(help.status.success() && help.stdout.starts_with(b"Durable jobs"));
}

#[test]
fn the_story_without_redis_server_says_how_to_install_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobs"));
    let output = command
        .env("PATH", "/nonexistent")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("apt-get install redis-server"),
        "{}",
        stderr(&output)
    );
}
