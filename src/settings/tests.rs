use super::*;

fn every_setting() -> PoolSettings {
    PoolSettings {
        max_workers: 8,
        min_workers: 2,
        queue_capacity: 256,
        when_full: WhenFull::BlockFor(Duration::from_secs(90)),
        idle_timeout: Duration::ZERO,
        shutdown_on_drop: Shutdown::Discard,
        shutdown_timeout: Duration::from_secs(90),
        thread_name: String::from("crunch"),
        stack_size: Some(1 << 20),
        track_ages: true,
    }
}

const TOML: &str = r#"
max_workers = 8
min_workers = 2
queue_capacity = 256
when_full = "block:1m 30s"
idle_timeout = "0s"
shutdown_on_drop = "discard"
shutdown_timeout = "1m 30s"
thread_name = "crunch"
stack_size = 1048576
track_ages = true
"#;

/// Parses the same settings in TOML, YAML and JSON. Returns the result of each parser.
fn parse(toml: &str, yaml: &str, json: &str) -> [PoolSettings; 3] {
    [
        toml::from_str(toml).unwrap(),
        yaml_serde::from_str(yaml).unwrap(),
        serde_json::from_str(json).unwrap(),
    ]
}

/// Parses TOML, and the same settings in YAML, without quotes, and in JSON.
fn parse_each(toml: &str) -> [PoolSettings; 3] {
    let rows = toml
        .trim()
        .lines()
        .map(|row| row.split_once(" = ").unwrap());
    let rows: Vec<_> = rows
        .map(|(key, value)| format!("\"{key}\": {value}"))
        .collect();
    let yaml = rows.join("\n").replace('"', "");
    parse(toml, &yaml, &format!("{{{}}}", rows.join(",")))
}

#[test]
fn the_three_formats_say_the_same() {
    assert_eq!(parse_each(TOML), [(); 3].map(|()| every_setting()));
}

#[test]
fn what_is_left_out_is_the_builders_default() {
    let empty: PoolSettings = toml::from_str("").unwrap();
    assert_eq!(empty, PoolSettings::default());
    assert_eq!(serde_json::from_str::<PoolSettings>("{}").unwrap(), empty);
    let theirs = format!("{:?}", Builder::new());
    assert_eq!(format!("{:?}", empty.to_builder()), theirs);
    assert_eq!(format!("{:?}", Builder::from(empty)), theirs);
}

#[test]
fn every_setting_reaches_the_builder() {
    let by_hand = Builder::new()
        .max_workers(8)
        .min_workers(2)
        .queue_capacity(256)
        .when_full(WhenFull::BlockFor(Duration::from_secs(90)))
        .idle_timeout(Duration::ZERO)
        .shutdown_on_drop(Shutdown::Discard, Duration::from_secs(90))
        .thread_name("crunch")
        .stack_size(1 << 20)
        .track_ages(true);
    assert_eq!(
        format!("{:?}", every_setting().to_builder()),
        format!("{by_hand:?}")
    );
    let pool = every_setting().to_builder().build().unwrap();
    assert_eq!(pool.workers().len(), 2);
}

#[test]
fn settings_survive_a_round_trip_through_each_format() {
    for settings in [every_setting, PoolSettings::default] {
        let toml = toml::to_string(&settings()).unwrap();
        let yaml = yaml_serde::to_string(&settings()).unwrap();
        let json = serde_json::to_string(&settings()).unwrap();
        assert_eq!(parse(&toml, &yaml, &json), [(); 3].map(|()| settings()));
    }
}

/// Returns the errors that TOML, YAML and JSON give if `key` has this value. The value is written
/// as in JSON, which the other two formats can read.
fn errors(key: &str, value: &str) -> [String; 3] {
    let json = format!("{{\"{key}\": {value}}}");
    [
        toml::from_str::<PoolSettings>(&format!("{key} = {value}"))
            .unwrap_err()
            .to_string(),
        // The JSON text is also YAML. But YAML accepts a number where a text is expected. Then
        // there is no error, and the result is an empty text.
        yaml_serde::from_str::<PoolSettings>(&json)
            .map_or_else(|e| e.to_string(), |_| String::new()),
        serde_json::from_str::<PoolSettings>(&json)
            .unwrap_err()
            .to_string(),
    ]
}

/// Bad values, each with a text that its error contains in all three formats.
const BAD: &str = r#"
max_workers = 0 => max_workers is 0; allowed: 1 or more
max_workers = 65537 => max_workers is 65537; allowed: 1..=65536
max_workers = -1 => max_workers: invalid
max_workers = 2.5 => max_workers: invalid type: floating point `2.5`
max_workers = "8" => max_workers: invalid type: string "8"
min_workers = 65536 => min_workers is 65536; allowed: 0..=
min_workers = true => min_workers: invalid type: boolean `true`
queue_capacity = 16777217 => queue_capacity is 16777217; allowed: 0..=16777216
queue_capacity = [] => queue_capacity: invalid type: sequence
stack_size = "2M" => stack_size: invalid type: string "2M"
stack_size = 16383 => stack_size is 16383; allowed: 16384 or more
when_full = "wait" => when_full: "wait" is not allowed; allowed: refuse, block, or block:<duration>
when_full = "block:0s" => when_full: "block:0s" is not allowed (a wait of zero is no wait: "refuse")
shutdown_on_drop = "abort" => shutdown_on_drop: "abort" is not allowed; allowed: drain, discard, cancel
thread_name = "a\u0000b" => thread_name is empty or contains a NUL byte; allowed: any other text
thread_name = "" => thread_name is empty or contains a NUL byte; allowed: any other text
idle_timeout = "10" => idle_timeout: "10" is not a duration such as "250ms": a number needs a unit
idle_timeout = "forever" => idle_timeout: "forever" is not a duration such as "250ms": it has no number; for no limit write "never"
shutdown_timeout = "5 parsecs" => shutdown_timeout: "5 parsecs" is not a duration
"#;

/// Numbers instead of texts, each with a part of its error in TOML and JSON. YAML accepts them.
const NUMBERS: &str = r#"
when_full = 1 => when_full: invalid type: integer `1`, expected refuse, block, or block:<duration>
idle_timeout = 10 => idle_timeout: invalid type: integer `10`, expected a duration such as "250ms"
thread_name = 7 => thread_name: invalid type: integer `7`
"#;

#[test]
fn a_bad_value_is_an_error_that_names_its_key() {
    let rows = |text: &'static str| {
        text.trim().lines().map(|row| {
            let (setting, expected) = row.split_once(" => ").unwrap();
            let (key, value) = setting.split_once(" = ").unwrap();
            (key, errors(key, value), expected)
        })
    };
    for (key, errors, expected) in rows(BAD) {
        for error in errors {
            assert!(error.contains(expected), "{key}, {expected}: {error}");
            assert!(!error.contains(&format!("{key}: {key}: ")), "{error}");
        }
    }
    for (_, [toml, _, json], expected) in rows(NUMBERS) {
        assert!(toml.contains(expected), "{toml}");
        assert!(json.contains(expected), "{json}");
    }
    assert_eq!((rows(BAD).count(), rows(NUMBERS).count()), (19, 3));
}

#[test]
fn an_unknown_key_is_an_error_that_names_it_and_those_there_are() {
    for error in errors("max_worker", "8") {
        assert!(error.contains("unknown field `max_worker`"), "{error}");
        for key in KEYS {
            assert!(error.contains(key), "{error}");
        }
    }
}

#[test]
fn a_key_given_twice_is_an_error() {
    let twice = r#"{"max_workers": 1, "max_workers": 2}"#;
    let error = serde_json::from_str::<PoolSettings>(twice).unwrap_err();
    assert!(error.to_string().contains("duplicate field `max_workers`"));
}

#[test]
fn what_is_no_table_is_an_error() {
    let error = serde_json::from_str::<PoolSettings>("[8]").unwrap_err();
    assert!(error.to_string().contains("a table of a pool's settings"));
}

#[test]
fn an_error_shows_its_place() {
    let text = "queue_capacity = 1\nmax_workers = 0\n";
    let error = toml::from_str::<PoolSettings>(text).unwrap_err();
    assert_eq!(&text[error.span().unwrap()], "0");
    let text = "queue_capacity = 1\nidle_timeout = \"soon\"\n";
    let error = toml::from_str::<PoolSettings>(text).unwrap_err();
    assert_eq!(&text[error.span().unwrap()], "\"soon\"");
    let error = serde_json::from_str::<PoolSettings>("{\n\"max_workers\": -1\n}").unwrap_err();
    assert_eq!(error.line(), 2);
    assert_eq!(error.to_string().matches(" at line ").count(), 1, "{error}");
}
