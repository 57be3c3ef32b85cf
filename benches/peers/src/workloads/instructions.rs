//! Instructions per operation, as callgrind counts them: the same on a busy machine.
//!
//! Each is counted in processes of its own, with some operations and with twice as many;
//! the difference is free of what starting and ending cost.

use super::{CHILD, QUEUE};
use crate::contenders::{visit_all, Contender, Shape, Visitor, OURS};
use crate::harness::aligned;
use crate::tally::{tick, Gate, Tally};
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const OPERATIONS: u64 = 2_000;
const SHOWN: &[&str] = &[OURS, "crossbeam-channel", "parkring channel", "rusty_pool"];

const PUSH: &str = "push";
const RUN: &str = "push, pop and run";
const REFUSAL: &str = "refusal";
const UNQUEUED_REFUSAL: &str = "refusal, no queue";
const ALL: [&str; 4] = [PUSH, RUN, REFUSAL, UNQUEUED_REFUSAL];

// ---- in the child -----------------------------------------------------------------

fn admits<C: Contender>(what: &str) -> bool {
    match what {
        REFUSAL => C::BOUNDED,
        UNQUEUED_REFUSAL => C::BOUNDED && C::UNQUEUED,
        _ => true,
    }
}

/// Does `n` operations; whether there is such a one.
pub(super) fn perform<C: Contender>(what: &str, n: u64) -> bool {
    // What is counted has a closure of its own, as elsewhere: what a pool compiles for one
    // that is used in two places is inlined in neither.
    let words = [1_u64, 2, 3];
    let gate = Arc::new(Gate::default());
    match what {
        PUSH | RUN => {
            // Room for twice as many in either process: they start alike.
            let pool = C::build(Shape::new(1, 4 * OPERATIONS as usize));
            let tally = Tally::start();
            pool.execute(holding(&gate));
            wait_asleep(&tally, 1);
            pool.feed(n, move || {
                black_box(words);
                tick();
            });
            if what == RUN {
                // The last task holds the worker again: for how long it would look for more
                // is another question.
                pool.execute(holding(&Arc::default()));
                gate.open();
                wait_asleep(&tally, 2 + n);
            }
            // To drop it would run what is queued.
            std::mem::forget(pool);
        }
        REFUSAL | UNQUEUED_REFUSAL if admits::<C>(what) => {
            let queue = if what == REFUSAL { QUEUE } else { 0 };
            let pool = C::build(Shape::new(1, queue).refusing());
            let tally = Tally::start();
            // Without a queue the worker must be waiting already.
            while !pool.try_execute(holding(&gate)) {
                asleep();
            }
            wait_asleep(&tally, 1);
            while pool.try_execute(tick) {}
            for _ in 0..n {
                let taken = pool.try_execute(move || {
                    black_box(words);
                    tick();
                });
                assert!(!taken, "the pool is saturated");
            }
            std::mem::forget(pool);
        }
        _ => return false,
    }
    true
}

fn holding(gate: &Arc<Gate>) -> impl FnOnce() + Send + 'static {
    let gate = Arc::clone(gate);
    move || {
        tick();
        gate.pass();
    }
}

/// Callgrind lets one thread run at a time, and counts those that spin.
fn wait_asleep(tally: &Tally, n: u64) {
    while tally.ran() < n {
        asleep();
    }
    tally.check(n);
}

fn asleep() {
    thread::sleep(Duration::from_millis(20));
}

// ---- in the parent ----------------------------------------------------------------

/// Instructions by source file, or by function where that is unknown.
type Costs = BTreeMap<String, f64>;

fn counted(name: &str, what: &str, n: u64) -> Result<Costs, String> {
    let program = std::env::current_exe().map_err(|why| why.to_string())?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/stdout"])
        .arg(program)
        .args([CHILD, name, what, &n.to_string()])
        .output()
        .map_err(|why| match why.kind() {
            ErrorKind::NotFound => "callgrind counts them: install the package valgrind".to_owned(),
            _ => format!("valgrind: {why}"),
        })?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("{name}, {what}: {}\n{why}", out.status));
    }
    costs(&String::from_utf8_lossy(&out.stdout))
        .ok_or_else(|| format!("{name}, {what}: callgrind's figures do not add up to its total"))
}

/// Reads what callgrind writes: the costs of a place itself, without those of its calls.
/// `None` if they are not the total that it states.
fn costs(out: &str) -> Option<Costs> {
    let (mut files, mut functions) = (HashMap::new(), HashMap::new());
    let (mut file, mut function) = (String::new(), String::new());
    let (mut costs, mut total) = (Costs::new(), None);
    let mut lines = out.lines();
    while let Some(line) = lines.next() {
        match line.split_once('=') {
            Some(("fl" | "fi" | "fe", name)) => file = named(&mut files, name),
            Some(("fn", name)) => function = named(&mut functions, name),
            Some(("cfl" | "cfi", name)) => drop(named(&mut files, name)),
            Some(("cfn", name)) => drop(named(&mut functions, name)),
            // What the callee costs is in the next line, and at the callee's own places.
            Some(("calls", _)) => drop(lines.next()),
            _ if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                // A line, and what was executed there; nothing if it is but a label.
                let cost: f64 = line.split_whitespace().nth(1).unwrap_or("0").parse().ok()?;
                *costs.entry(place(&file, &function)).or_default() += cost;
            }
            _ => {
                if let Some(n) = line.strip_prefix("totals:") {
                    total = n.trim().parse().ok();
                }
            }
        }
    }
    (total == Some(costs.values().sum::<f64>())).then_some(costs)
}

/// `(id) name` where a name is first used, `(id)` from then on.
fn named(names: &mut HashMap<String, String>, text: &str) -> String {
    match text.split_once(' ') {
        Some((id, name)) => {
            names.insert(id.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(text).cloned().unwrap_or_default(),
    }
}

/// A file as its package calls it.
fn place(file: &str, function: &str) -> String {
    if file == "???" {
        return function.to_owned();
    }
    if let Some((_, std)) = file.split_once("/library/") {
        return std.to_owned();
    }
    if let Some((_, registry)) = file.split_once("/registry/src/") {
        return registry
            .split_once('/')
            .map_or(registry, |(_, of)| of)
            .to_owned();
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let within = workspace.and_then(|root| Path::new(file).strip_prefix(root).ok());
    let within = within.or_else(|| Path::new(file).file_name().map(Path::new));
    within.map_or_else(|| file.to_owned(), |path| path.display().to_string())
}

fn per_operation(name: &str, what: &str) -> Result<Costs, String> {
    let mut costs = counted(name, what, 2 * OPERATIONS)?;
    for (place, cost) in counted(name, what, OPERATIONS)? {
        *costs.entry(place).or_default() -= cost;
    }
    costs
        .values_mut()
        .for_each(|cost| *cost /= OPERATIONS as f64);
    Ok(costs)
}

/// Counts, and prints, all of them; ours by file, too.
pub(crate) fn print() -> Result<(), String> {
    type Counted = (&'static str, [Option<Costs>; ALL.len()]);
    struct Count(Result<Vec<Counted>, String>);
    impl Visitor for Count {
        fn visit<C: Contender>(&mut self) {
            let Ok(found) = &mut self.0 else { return };
            if SHOWN.contains(&C::NAME) {
                let mut costs = [const { None }; ALL.len()];
                for (cost, what) in costs.iter_mut().zip(ALL) {
                    if admits::<C>(what) {
                        match per_operation(C::NAME, what) {
                            Ok(found) => *cost = Some(found),
                            Err(why) => return self.0 = Err(why),
                        }
                    }
                }
                found.push((C::NAME, costs));
            }
        }
    }
    let mut count = Count(Ok(Vec::new()));
    visit_all(&mut count);
    let all = count.0?;

    println!("Instructions per operation (callgrind), closures of 24 bytes, 1 worker");
    let heads = std::iter::once("").chain(all.iter().map(|(name, _)| *name));
    let mut lines = vec![heads.map(str::to_owned).collect::<Vec<_>>()];
    for (i, what) in ALL.into_iter().enumerate() {
        let total = |costs: &Costs| format!("{:.0}", costs.values().sum::<f64>());
        let cell = |costs: &[Option<Costs>]| costs[i].as_ref().map_or("-".to_owned(), total);
        let cells = all.iter().map(|(_, costs)| cell(costs));
        lines.push(std::iter::once(what.to_owned()).chain(cells).collect());
    }
    print!("{}", aligned(&lines));

    let ours = all.iter().find(|(name, _)| *name == OURS);
    if let Some((_, [Some(push), Some(run), ..])) = ours {
        by_file(push, run);
    }
    Ok(())
}

fn by_file(push: &Costs, run: &Costs) {
    println!("\n{OURS}, by source file, inlined functions at their own");
    let mut places: Vec<_> = run.iter().collect();
    places.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut lines = vec![["", PUSH, RUN].map(str::to_owned).to_vec()];
    for (place, run) in places {
        let push = push.get(place).copied().unwrap_or(0.0);
        // What differs by less is what starting and ending differ by.
        if push.abs() >= 0.5 || run.abs() >= 0.5 {
            lines.push(vec![
                place.clone(),
                format!("{push:.0}"),
                format!("{run:.0}"),
            ]);
        }
    }
    print!("{}", aligned(&lines));
    if !run.keys().any(|place| place.ends_with("queue.rs")) {
        println!(
            "by function, for want of line numbers; with them: \
             cargo run --profile bench -p peers -- --instructions"
        );
    }
}
