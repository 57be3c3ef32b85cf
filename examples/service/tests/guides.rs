//! The guides show examples of this package in full. Their code must be the code that compiles
//! here.

const ASYNC: &str = include_str!("../../../src/docs/async_code.md");
const MONITORING: &str = include_str!("../../../src/docs/monitoring.md");

#[track_caller]
fn is_shown(page: &str, example: &str) {
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

#[test]
fn the_page_on_async_code_shows_the_minimal_service() {
    is_shown(ASYNC, include_str!("../examples/minimal.rs"));
}

#[test]
fn the_page_on_async_code_shows_smol() {
    is_shown(ASYNC, include_str!("../examples/smol.rs"));
}

#[test]
fn the_page_on_async_code_shows_a_stream() {
    is_shown(ASYNC, include_str!("../examples/stream.rs"));
}

#[test]
fn the_page_on_monitoring_shows_the_metrics_example() {
    is_shown(MONITORING, include_str!("../examples/metrics.rs"));
}
