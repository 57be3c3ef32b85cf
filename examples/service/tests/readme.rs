//! The README shows two examples of this package in full: it must show what compiles here.

const README: &str = include_str!("../../../README.md");

#[track_caller]
fn is_shown(example: &str) {
    let lines: Vec<_> = example
        .lines()
        .skip_while(|l| l.is_empty() || l.starts_with("//!"))
        .collect();
    let code = lines.join("\n");
    let code = code.trim();
    assert!(code.contains("fn main"));
    assert!(
        README.contains(&format!("```rust,ignore\n{code}\n```")),
        "not in README.md:\n{code}"
    );
}

#[test]
fn the_readme_shows_the_minimal_service() {
    is_shown(include_str!("../examples/minimal.rs"));
}

#[test]
fn the_readme_shows_the_metrics_example() {
    is_shown(include_str!("../examples/metrics.rs"));
}
