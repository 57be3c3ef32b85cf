//! The mechanisms below the pool, each alone: the first byte says which. It is played on one thread
//! against a model, two bytes a step. A step that is not legal, by the model, is left out; each
//! answer must be the model's. What is lost, freed twice or touched too late, the sanitizer sees.
//! (The ring has a target of its own.)
//!
//! `LAZYPOOL_PART=queue fuzz/run 0 parts -max_total_time=60` plays one of them only.
#![no_main]

// They are private to the crate: their sources are compiled in here.
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../src/parts/mod.rs"]
mod parts;
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../src/sync/mod.rs"]
mod sync;

#[path = "../parts/completion.rs"]
mod completion;
#[path = "../parts/line.rs"]
mod line;
#[path = "../parts/members.rs"]
mod members;
#[path = "../parts/queue.rs"]
mod queue;
#[path = "../parts/slot.rs"]
mod slot;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// A step: what, and with what.
type Step = [u8; 2];

const PARTS: [(&str, fn(u8, &[Step])); 5] = [
    ("queue", queue::play),
    ("slot", slot::play),
    ("completion", completion::play),
    ("line", line::play),
    ("members", members::play),
];

/// The one to play, whatever the input says.
static ONLY: LazyLock<Option<usize>> = LazyLock::new(|| {
    let name = std::env::var("LAZYPOOL_PART").ok()?;
    let part = PARTS.iter().position(|part| part.0 == name);
    Some(part.expect("LAZYPOOL_PART names one of the parts"))
});

fuzz_target!(|data: &[u8]| {
    let &[which, setup, ref steps @ ..] = data else {
        return;
    };
    let part = ONLY.unwrap_or(usize::from(which) % PARTS.len());
    let (steps, _) = steps.as_chunks();
    PARTS[part].1(setup, steps);
});
