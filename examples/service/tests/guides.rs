//! The guides show examples of this package. Their code must be the code that compiles here.

use lazypool::Pool;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const ASYNC: &str = include_str!("../../../src/docs/async_code.md");
const MONITORING: &str = include_str!("../../../src/docs/monitoring.md");

#[test]
fn the_guides_show_the_examples_in_full() {
    for (page, example) in [
        (ASYNC, include_str!("../examples/minimal.rs")),
        (ASYNC, include_str!("../examples/smol.rs")),
        (ASYNC, include_str!("../examples/stream.rs")),
        (MONITORING, include_str!("../examples/metrics.rs")),
    ] {
        let lines: Vec<_> = example
            .lines()
            .skip_while(|l| l.is_empty() || l.starts_with("//!"))
            .collect();
        let code = lines.join("\n");
        let code = code.trim();
        assert!(code.contains("fn main"));
        assert!(
            page.contains(&format!("```rust,ignore\n{code}\n```")),
            "not on the page:\n{code}"
        );
    }
}

/// No code of the guides is tested by nothing: what `cargo test` of the library ignores is an
/// example of this package, or the one excerpt, which `offload.rs` has.
#[test]
fn what_the_guides_do_not_test_themselves_is_tested_here() {
    let ignored = |page: &str| page.matches("```rust,ignore\n").count();
    assert_eq!((ignored(ASYNC), ignored(MONITORING)), (4, 1));
    let excerpt = ASYNC
        .split("```rust,ignore\n")
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(code, _)| code)
        .find(|code| !code.contains("fn main"))
        .expect("an excerpt");
    let tests = include_str!("offload.rs");
    for line in excerpt.lines() {
        let tested = tests.lines().any(|l| l.trim() == line);
        assert!(tested, "not in the test:\n{line}");
    }
}

/// `dashboard.json` asks for each metric on the page of a pool that has done some work, and for no
/// other.
#[test]
fn the_dashboard_asks_for_what_a_pool_tells() {
    let exporter = PrometheusBuilder::new().install_recorder();
    let exporter = exporter.expect("the only one of this process");
    let pool = Pool::builder().max_workers(1).track_ages(true).build();
    let pool = pool.expect("a pool");
    pool.labeled("mail").serve(|| ()).expect("it is idle");
    // The worker records the task a moment after it has run.
    let start = Instant::now();
    let page = loop {
        pool.publish_metrics();
        let page = exporter.render();
        if page.contains("lazypool_task_duration_seconds") {
            break page;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{page}");
    };
    let told: BTreeSet<_> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('{')?.0))
        .collect();
    // In the dashboard, each word that begins with `lazypool_` is the name of a metric.
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = include_str!("../dashboard.json").split(|c| !is_word(c));
    let asked: BTreeSet<_> = words.filter(|w| w.starts_with("lazypool_")).collect();
    assert_eq!(asked, told);
    for label in ["pool", "label", "reason"] {
        assert!(page.contains(&format!("{label}=\"")), "{page}");
    }
}
