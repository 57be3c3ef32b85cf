use std::time::Duration;

use super::*;

/// Returns statistics with figures of different widths.
fn sample() -> Stats {
    Stats {
        accepted: 1_234_567,
        refused: 12,
        completed: 1_234_000,
        panicked: 3,
        expired: 4,
        discarded: 5,
        timed_out: 6,
        refusals: RefusalCounts {
            saturated: 7,
            closed: 2,
            cancelled: 1,
            expired: 2,
            ..RefusalCounts::default()
        },
        waiting: 33,
        queued: 555,
        workers: 8,
        idle: 7,
        peak_workers: 16,
        spawned: 20,
        retired: 13,
        spawn_failures: 1,
        hook_panics: 2,
        ..Stats::default()
    }
}

fn snapshot() -> WorkerSnapshot {
    WorkerSnapshot {
        slot: 3,
        busy: true,
        label: Some("import"),
        abandoned: false,
        abandoned_for: None,
        running_for: None,
        tasks: 9,
    }
}

#[test]
fn stats_print_as_an_aligned_table() {
    let expected = "\
accepted               1234567
refused                     12
refusals.saturated           7
refusals.closed              2
refusals.cancelled           1
refusals.spawn_failed        0
refusals.on_worker           0
refusals.forked              0
refusals.expired             2
refusals.group_full          0
completed              1234000
panicked                     3
expired                      4
discarded                    5
timed_out                    6
waiting                     33
queued                     555
running                      0
abandoned                    0
workers                      8
idle                         7
peak_workers                16
spawned                     20
retired                     13
spawn_failures               1
hook_panics                  2";
    assert_eq!(sample().to_string(), expected);
}

#[test]
fn every_line_of_the_table_is_equally_wide() {
    let largest = Stats {
        hook_panics: u64::MAX,
        ..Stats::default()
    };
    let with_ages = Stats {
        longest_running: Some(Duration::from_millis(1500)),
        oldest_queued: Some(Duration::from_micros(20)),
        ..sample()
    };
    for (stats, lines) in [(sample(), 26), (largest, 26), (with_ages, 28)] {
        let table = stats.to_string();
        let mut widths = table.lines().map(|line| line.chars().count());
        let width = widths.next();
        assert!(widths.all(|other| Some(other) == width), "{table}");
        assert_eq!(table.lines().count(), lines);
        assert!(!table.ends_with('\n'));
    }
    let ages = "longest_running           1.5s\noldest_queued           20.0\u{b5}s";
    assert!(with_ages.to_string().ends_with(ages), "{with_ages}");
}

#[test]
fn a_report_is_clean_when_no_worker_is_left() {
    let mut report = ShutdownReport {
        discarded: 2,
        stragglers: Vec::new(),
    };
    assert!(report.is_clean());
    report.stragglers.push(snapshot());
    assert!(!report.is_clean());
}

#[test]
fn stricter_modes_rank_higher_and_none_ranks_zero() {
    let modes = [Shutdown::Drain, Shutdown::Discard, Shutdown::Cancel];
    assert_eq!(modes.map(Shutdown::rank), [1, 2, 3]);
}

#[test]
fn refusals_add_up_to_refused() {
    let stats = sample();
    assert_eq!(stats.refusals.total(), stats.refused);
    assert_eq!(RefusalCounts::default().total(), 0);
}

#[test]
fn policies_and_modes_are_written_as_they_are_read() {
    let long = Duration::from_millis(90_250);
    for (policy, word) in [
        (WhenFull::Refuse, "refuse"),
        (WhenFull::Block, "block"),
        (WhenFull::BlockFor(long), "block:1m 30s 250ms"),
        (WhenFull::BlockFor(Duration::MAX), "block:never"),
    ] {
        assert_eq!(policy.to_string(), word);
        assert_eq!(word.parse(), Ok(policy));
    }
    for (mode, word) in [
        (Shutdown::Drain, "drain"),
        (Shutdown::Discard, "discard"),
        (Shutdown::Cancel, "cancel"),
    ] {
        assert_eq!(mode.to_string(), word);
        assert_eq!(word.parse(), Ok(mode));
    }
    let two = Duration::from_secs(2);
    assert_eq!("block: 2 s".parse(), Ok(WhenFull::BlockFor(two)));
    assert_eq!(format!("[{:>8}]", Shutdown::Drain), "[   drain]");
    assert_eq!(WhenFull::default(), WhenFull::Refuse);
}

/// In code, a wait of zero may be what is left of a time budget. In a settings file, `block:0s`
/// would say `block`, although no submission would wait.
#[test]
fn a_wait_of_zero_is_written_as_refuse() {
    let policy = WhenFull::BlockFor(Duration::ZERO);
    assert_eq!(policy.to_string(), "refuse");
}

#[test]
fn an_unknown_word_is_an_error_that_says_what_is_allowed() {
    let allowed = "; allowed: refuse, block, or block:<duration> such as block:250ms";
    let unit = " (a number needs a unit: ns, us, ms, s, m, h or d)";
    for (word, why) in [
        ("wait", ""),
        ("Block", ""),
        ("", ""),
        ("block:", " (it is empty)"),
        ("block:10", unit),
        ("block:9years", " (the units are ns, us, ms, s, m, h and d)"),
        ("block:0s", " (a wait of zero is no wait: \"refuse\")"),
        ("block: 0ms 0ns", " (a wait of zero is no wait: \"refuse\")"),
    ] {
        let error = word.parse::<WhenFull>().unwrap_err();
        assert_eq!(error.given(), word);
        let expected = format!("{word:?} is not allowed{why}{allowed}");
        assert_eq!(error.to_string(), expected);
    }
    let error = "Drain".parse::<Shutdown>().unwrap_err();
    let expected = "\"Drain\" is not allowed; allowed: drain, discard, cancel";
    assert_eq!(error.to_string(), expected);
}

#[cfg(feature = "serde")]
mod serialized {
    use super::*;
    use serde_json::json;

    #[test]
    fn stats_are_a_map_of_their_fields_in_order() {
        let text = serde_json::to_string(&sample()).unwrap();
        let expected = r#"{
            "accepted":1234567,"refused":12,"completed":1234000,"panicked":3,
            "expired":4,"discarded":5,"timed_out":6,
            "refusals":{
                "saturated":7,"closed":2,"cancelled":1,"spawn_failed":0,
                "on_worker":0,"forked":0,"expired":2,"group_full":0
            },
            "abandoned":0,"waiting":33,"longest_running":null,"oldest_queued":null,
            "queued":555,"running":0,"workers":8,"idle":7,"peak_workers":16,
            "spawned":20,"retired":13,"spawn_failures":1,"hook_panics":2
        }"#;
        assert_eq!(text, expected.replace(['\n', ' '], ""));
    }

    #[test]
    fn a_report_holds_its_stragglers() {
        let unlabeled = WorkerSnapshot {
            label: None,
            abandoned: true,
            abandoned_for: Some(Duration::from_millis(1_500)),
            ..snapshot()
        };
        let report = ShutdownReport {
            discarded: 2,
            stragglers: vec![snapshot(), unlabeled],
        };
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            json!({
                "discarded": 2,
                "stragglers": [
                    {
                        "slot": 3, "busy": true, "label": "import",
                        "abandoned": false, "abandoned_for": null, "running_for": null, "tasks": 9,
                    },
                    {
                        "slot": 3, "busy": true, "label": null,
                        "abandoned": true, "abandoned_for": { "secs": 1, "nanos": 500_000_000 },
                        "running_for": null, "tasks": 9,
                    },
                ],
            })
        );
    }
}

#[test]
fn a_report_has_a_line_for_each_straggler_in_columns() {
    let worker = |slot, label, busy| WorkerSnapshot {
        slot,
        busy,
        label,
        abandoned: busy,
        abandoned_for: busy.then_some(Duration::from_millis(1500)),
        tasks: 0,
        running_for: None,
    };
    let mut report = ShutdownReport {
        discarded: 3,
        stragglers: vec![worker(7, Some("export"), true), worker(12, None, false)],
    };
    let expected = "slot 7   busy            \"export\"  abandoned for 1.5s\n\
                    slot 12  without a task";
    assert_eq!(report.to_string(), expected);
    report.stragglers.clear();
    assert_eq!(report.to_string(), "every worker has ended");
}
