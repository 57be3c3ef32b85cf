//! The guides show examples of this package. Their code must be the code that compiles here.

const ASYNC: &str = include_str!("../../../src/docs/async_code.md");
const MONITORING: &str = include_str!("../../../src/docs/monitoring.md");

#[test]
fn the_guides_show_the_examples_in_full() {
    for (page, example) in [
        (ASYNC, include_str!("../examples/minimal/offload.rs")),
        (ASYNC, include_str!("../examples/minimal/main.rs")),
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
    assert_eq!((ignored(ASYNC), ignored(MONITORING)), (5, 1));
    let excerpt = ASYNC
        .split("```rust,ignore\n")
        .filter_map(|rest| rest.split_once("\n```"))
        .map(|(code, _)| code)
        .find(|code| code.starts_with("if tenant"))
        .expect("an excerpt");
    let tests = include_str!("offload.rs");
    for line in excerpt.lines().map(str::trim) {
        let tested = tests.lines().any(|l| l.trim() == line);
        assert!(tested, "not in the test:\n{line}");
    }
}

/// The guide names the dependencies of its service as this package has them.
#[test]
fn the_guide_names_the_dependencies() {
    let manifest = include_str!("../Cargo.toml");
    let named = ASYNC.split_once("```toml\n").expect("a list").1;
    let named = named.split_once("\n```").expect("its end").0;
    let named = named.lines().filter(|l| !l.starts_with("lazypool"));
    for line in named {
        assert!(manifest.lines().any(|l| l == line), "not in it: {line}");
    }
}

/// Beside each figure of the docs lies the same figure in a URL: see `benches/peers/src/bin/figures.rs`.
#[test]
fn each_figure_is_the_one_of_its_file() {
    for (name, figure, reference) in [
        (
            "dashboard",
            include_str!("../../../src/docs/figures/dashboard.svg"),
            include_str!("../../../src/docs/figures/dashboard.md"),
        ),
        (
            "goodput",
            include_str!("../../../src/docs/figures/goodput.svg"),
            include_str!("../../../src/docs/figures/goodput.md"),
        ),
        (
            "pool",
            include_str!("../../../src/docs/figures/pool.svg"),
            include_str!("../../../src/docs/figures/pool.md"),
        ),
    ] {
        let url = reference.strip_prefix(&format!("[{name}-figure]: <data:image/svg+xml,"));
        let url = url.and_then(|url| url.strip_suffix(">\n"));
        let mut parts = url.expect("a definition").split('%');
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (code, rest) = part.split_at(2);
            let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
            shown.push(code.expect("a character"));
            shown += rest;
        }
        let file = figure.trim_end().replace('\n', " ");
        assert!(shown == file, "run `figures` again for {name}");
    }
}
