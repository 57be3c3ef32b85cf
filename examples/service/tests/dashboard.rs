//! Compares `dashboard.json` with the metrics of a running service. The service's page has every
//! metric and label that the dashboard asks for, and the dashboard asks for every metric on the
//! page.
#![cfg(unix)]

use serde_json::Value;
use service::client::{Client, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const DASHBOARD: &str = include_str!("../dashboard.json");

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("JSON")
}

/// Returns the page of a service that has done some work, so that it has the histograms as well.
fn page() -> String {
    let settings = std::env::temp_dir().join(format!("dashboard-{}.toml", std::process::id()));
    std::fs::write(&settings, "listen = \"127.0.0.1:0\"\ndeadline = \"60s\"\n").expect("settings");
    let service = Process::start(Path::new(env!("CARGO_BIN_EXE_service")), &settings);
    std::fs::remove_file(&settings).expect("settings");
    let mut client = Client::connect(service.as_ref().expect("service").address).expect("client");
    assert_eq!(client.get("/factorial?n=5").expect("answer").status, 200);
    // A client may have its answer before the task has ended and is recorded.
    for _ in 0..1000 {
        let page = client.get("/metrics").expect("answer").body;
        if page.contains("lazypool_task_duration_seconds") {
            return page;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no task was recorded");
}

/// Returns the names of the samples on a page, and the labels that each has.
fn samples(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut samples = BTreeMap::<String, BTreeSet<String>>::new();
    for line in page
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let (name, rest) = line.split_once('{').expect("every sample names its pool");
        let (labels, _) = rest.split_once('}').expect("a sample");
        let labels = labels.split(',').filter_map(|l| l.split_once('='));
        (samples.entry(name.to_owned()).or_default()).extend(labels.map(|(l, _)| l.to_owned()));
    }
    samples
}

/// Collects every text below `value` whose key is `key`.
fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(all) => all.iter().for_each(|v| strings(v, key, found)),
        Value::Object(all) => {
            for (name, v) in all {
                match v {
                    Value::String(text) if name == key => found.push(text),
                    v => strings(v, key, found),
                }
            }
        }
        _ => {}
    }
}

/// Returns the words of a query that are not numbers, each with `true` if it is a label. A label
/// stands in braces, or in the parentheses of `by`.
fn words(query: &str) -> Vec<(String, bool)> {
    let mut words = Vec::new();
    let (mut word, mut in_braces, mut in_by, mut in_text) = (String::new(), false, false, false);
    let mut last = String::new();
    for c in query.chars().chain([' ']) {
        if in_text {
            in_text = c != '"';
        } else if c.is_ascii_alphanumeric() || c == '_' || c == '$' {
            word.push(c);
        } else {
            if word.starts_with(|c: char| c.is_ascii_alphabetic()) {
                words.push((word.clone(), in_braces || in_by));
            }
            if !word.is_empty() {
                last = std::mem::take(&mut word);
            }
            match c {
                '"' => in_text = true,
                '{' => in_braces = true,
                '}' => in_braces = false,
                '(' => in_by = last == "by",
                ')' => in_by = false,
                _ => {}
            }
        }
    }
    words
}

#[test]
fn the_dashboard_asks_for_what_the_service_tells() {
    let samples = samples(&page());
    let dashboard = dashboard();
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    strings(&dashboard["templating"], "query", &mut queries);
    let mut asked = BTreeSet::new();
    for query in queries {
        let words = words(query);
        let (labels, others): (Vec<_>, Vec<_>) = words.iter().partition(|(_, is_label)| *is_label);
        let metrics: Vec<_> = (others.iter().map(|(w, _)| w))
            .filter(|w| w.starts_with("lazypool"))
            .collect();
        for metric in &metrics {
            let has = samples.get(*metric);
            let has = has.unwrap_or_else(|| panic!("the service tells no {metric}: {query}"));
            for (label, _) in &labels {
                assert!(has.contains(label), "{metric} has no {label}: {query}");
            }
        }
        asked.extend(metrics.into_iter().cloned());
        let known = [
            "sum",
            "max",
            "by",
            "rate",
            "label_values",
            "pool",
            "prometheus",
        ];
        for (word, _) in others {
            let is_known = known.contains(&word.as_str()) || word.starts_with("lazypool");
            assert!(is_known, "what is {word}? {query}");
        }
    }
    let told: BTreeSet<_> = samples.into_keys().collect();
    let unasked: Vec<_> = told.difference(&asked).collect();
    assert!(unasked.is_empty(), "on no panel: {unasked:?}");
}

#[test]
fn its_panels_are_whole_and_apart() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        for key in ["title", "description", "type"] {
            assert!(
                panel[key].as_str().is_some_and(|s| !s.is_empty()),
                "{panel}"
            );
        }
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{panel}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "two panels at {x}, {y}");
            }
        }
    }
}
