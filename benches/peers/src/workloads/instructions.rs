//! Instructions per operation, as callgrind counts them: the same on a busy machine.
//!
//! Each is counted in processes of its own, with some operations and with twice as many;
//! the difference is free of what starting and ending cost.
//!
//! A timed wait is not among them: what its two sides do while they wait for each other is not
//! the same twice.

use super::{CHILD, QUEUE};
use crate::contenders::{visit_all, Contender, Shape, Visitor, OURS};
use crate::harness::aligned;
use crate::tally::{tick, Gate, Tally};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const OPERATIONS: u64 = 2_000;
/// Of those between which the worker must fall asleep.
const HAND_OVERS: u64 = 20;
const SHOWN: &[&str] = &[OURS, "crossbeam-channel", "parkring channel", "rusty_pool"];

const PUSH: &str = "push";
const HAND_OVER: &str = "hand-over, no queue";
const RUN: &str = "push, pop and run";
const REFUSAL: &str = "refusal";
const UNQUEUED_REFUSAL: &str = "refusal, no queue";
const ALL: [&str; 5] = [PUSH, RUN, HAND_OVER, REFUSAL, UNQUEUED_REFUSAL];

fn operations(what: &str) -> u64 {
    if what == HAND_OVER {
        HAND_OVERS
    } else {
        OPERATIONS
    }
}

// ---- in the child -----------------------------------------------------------------

fn admits<C: Contender>(what: &str) -> bool {
    match what {
        REFUSAL => C::BOUNDED,
        UNQUEUED_REFUSAL | HAND_OVER => C::BOUNDED && C::UNQUEUED,
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
        HAND_OVER if admits::<C>(what) => {
            let pool = C::build(Shape::new(1, 0).refusing());
            let tally = Tally::start();
            // Not for long: after a while ours looks whether its worker is needed at all, and
            // the next hand-over takes another way.
            let rest = |ran| {
                while tally.ran() < ran {
                    thread::sleep(Duration::from_millis(1));
                }
                thread::sleep(Duration::from_millis(5));
            };
            // Not counted: the first starts a thread, and calls some things for the first time.
            const FIRST: u64 = 2;
            for ran in 0..FIRST {
                rest(ran);
                while !pool.try_execute(tick) {
                    asleep();
                }
            }
            for ran in FIRST..FIRST + n {
                rest(ran);
                assert!(handed_over(&pool, words), "the worker is idle");
            }
            rest(FIRST + n);
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

/// What is counted of a hand-over: what the submitter does. Callgrind is told its name.
#[inline(never)]
fn handed_over<C: Contender>(pool: &C, words: [u64; 3]) -> bool {
    pool.try_execute(move || {
        black_box(words);
        tick();
    })
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
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/stdout"]);
    if what == HAND_OVER {
        valgrind.args(["--collect-atstart=no", "--toggle-collect=*handed_over*"]);
    }
    let out = valgrind
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

/// Counts until two processes agree, up to five times; the one with the least. On a busy machine
/// a thread now and then spins for longer than usual while the process starts.
fn undisturbed(name: &str, what: &str, n: u64) -> Result<Costs, String> {
    let total = |costs: &Costs| costs.values().sum::<f64>();
    // By less than a quarter of an instruction per operation.
    let agree = |a: &Costs, b: &Costs| (total(a) - total(b)).abs() < operations(what) as f64 / 4.0;
    let mut all: Vec<Costs> = Vec::new();
    while all.len() < 5 {
        let costs = counted(name, what, n)?;
        let agreed = all.iter().any(|other| agree(other, &costs));
        all.push(costs);
        if agreed {
            break;
        }
    }
    let least = all.into_iter().min_by(|a, b| total(a).total_cmp(&total(b)));
    Ok(least.expect("counted once at least"))
}

fn per_operation(name: &str, what: &str) -> Result<Costs, String> {
    let n = operations(what);
    let mut costs = undisturbed(name, what, 2 * n)?;
    for (place, cost) in undisturbed(name, what, n)? {
        *costs.entry(place).or_default() -= cost;
    }
    costs.values_mut().for_each(|cost| *cost /= n as f64);
    Ok(costs)
}

type Counted = (&'static str, [Option<Costs>; ALL.len()]);

/// Counts all of them, for those of these names.
fn count_all(names: &'static [&'static str]) -> Result<Vec<Counted>, String> {
    struct Count(&'static [&'static str], Result<Vec<Counted>, String>);
    impl Visitor for Count {
        fn visit<C: Contender>(&mut self) {
            let Ok(found) = &mut self.1 else { return };
            if self.0.contains(&C::NAME) {
                let mut costs = [const { None }; ALL.len()];
                for (cost, what) in costs.iter_mut().zip(ALL) {
                    if admits::<C>(what) {
                        match per_operation(C::NAME, what) {
                            Ok(found) => *cost = Some(found),
                            Err(why) => return self.1 = Err(why),
                        }
                    }
                }
                found.push((C::NAME, costs));
            }
        }
    }
    let mut count = Count(names, Ok(Vec::new()));
    visit_all(&mut count);
    count.1
}

/// Counts and prints; then saves ours in a file. Or holds ours against such a file.
pub(crate) fn count(save: Option<&Path>, check: Option<&Path>) -> Result<(), String> {
    // A file that cannot be read should not cost a minute.
    let committed = check.map(Figures::read).transpose()?;
    let all = count_all(if check.is_some() { &[OURS] } else { SHOWN })?;
    let ours = all.iter().find(|(name, _)| *name == OURS);
    let (_, costs) = ours.ok_or("ours are always counted")?;
    let ours = Figures::of(costs);
    if let Some((file, committed)) = check.zip(committed) {
        return ours.check(&committed, file);
    }
    print(&all);
    if let [Some(push), Some(run), ..] = costs {
        by_file(push, run);
    }
    save.map_or(Ok(()), |file| ours.save(file))
}

fn print(all: &[Counted]) {
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
    if !run.keys().any(|place| place.starts_with("src/")) {
        println!(
            "by function, for want of line numbers; with them: \
             cargo run --profile bench -p peers -- --instructions"
        );
    }
}

// ---- against committed figures ------------------------------------------------------

/// How much more is let pass: another order of the same code is not another path. In hundredths,
/// and at least so many instructions.
const ALLOWANCE: (f64, f64) = (3.0, 3.0);

/// Ours, by operation, and the compiler whose code they are of.
#[derive(Debug)]
struct Figures {
    compiler: String,
    figures: BTreeMap<String, f64>,
}

/// What tells one compiler from another, if there is one to ask.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("--version").output();
    let version = out.ok().and_then(|out| String::from_utf8(out.stdout).ok());
    let version = version.map(|text| text.trim().to_owned());
    let known = version.filter(|text| !text.is_empty());
    let known = known.unwrap_or_else(|| String::from("an unknown compiler"));
    format!("{known}, {}", std::env::consts::ARCH)
}

impl Figures {
    const HEAD: &'static str = "operation\tinstructions";
    const COMPILER: &'static str = "# ";

    fn of(costs: &[Option<Costs>; ALL.len()]) -> Self {
        let total = |costs: &Costs| costs.values().sum::<f64>().round();
        let each = ALL.iter().zip(costs).filter_map(|(what, costs)| {
            let costs = costs.as_ref()?;
            Some(((*what).to_owned(), total(costs)))
        });
        Self {
            compiler: compiler(),
            figures: each.collect(),
        }
    }

    fn save(&self, file: &Path) -> Result<(), String> {
        let mut out = format!("{}{}\n{}\n", Self::COMPILER, self.compiler, Self::HEAD);
        for (what, figure) in &self.figures {
            let _ = writeln!(out, "{what}\t{figure}");
        }
        fs::write(file, out).map_err(|why| format!("{}: {why}", file.display()))
    }

    fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
        Self::parse(&text).ok_or_else(|| format!("{}: not what --save writes", file.display()))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let compiler = lines.next()?.strip_prefix(Self::COMPILER)?.to_owned();
        if lines.next()? != Self::HEAD {
            return None;
        }
        let figure = |line: &str| {
            let (what, figure) = line.split_once('\t')?;
            Some((what.to_owned(), figure.parse().ok()?))
        };
        Some(Self {
            compiler,
            figures: lines.map(figure).collect::<Option<_>>()?,
        })
    }

    /// Prints both; an error if one of ours is above what is allowed, or has no figure, or a
    /// figure has none of ours.
    fn check(&self, committed: &Self, file: &Path) -> Result<(), String> {
        let heads = ["", "committed", "allowed", "now", ""];
        let mut lines = vec![heads.map(str::to_owned).to_vec()];
        let (mut above, mut below) = (0, 0);
        let names: BTreeSet<_> = self
            .figures
            .keys()
            .chain(committed.figures.keys())
            .collect();
        for what in names {
            let (now, then) = (self.figures.get(what), committed.figures.get(what));
            let (percent, least) = ALLOWANCE;
            let margin = |then: f64| (then * percent / 100.0).max(least).round();
            let verdict = match (now, then) {
                (Some(now), Some(then)) if *now > then + margin(*then) => "MORE",
                (Some(now), Some(then)) if *now < then - margin(*then) => "less",
                (Some(_), Some(_)) => "",
                (Some(_), None) => "NOT IN THE FILE",
                (None, _) => "NOT COUNTED",
            };
            above += usize::from(verdict.starts_with(char::is_uppercase));
            below += usize::from(verdict == "less");
            let shown = |n: Option<f64>| n.map_or("-".to_owned(), |n| format!("{n:.0}"));
            lines.push(vec![
                what.clone(),
                shown(then.copied()),
                shown(then.map(|n| n + margin(*n))),
                shown(now.copied()),
                verdict.to_owned(),
            ]);
        }
        println!("Instructions per operation of {OURS} (callgrind)");
        print!("{}", aligned(&lines));
        let update = format!(
            "cargo run --release -p peers -- --instructions --save {}",
            file.display()
        );
        if below > 0 {
            println!("fewer than committed; so that it stays so: {update}");
        }
        if above == 0 {
            return Ok(());
        }
        let mut why = format!("{above} of them: not what {} allows\n", file.display());
        if self.compiler != committed.compiler {
            let _ = writeln!(
                why,
                "these are of {}, those of {}: that alone may be why",
                self.compiler, committed.compiler
            );
        }
        let _ = write!(why, "by source file: cargo run --profile bench -p peers -- --instructions\nif it is worth it: {update}");
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(of: &[(&str, f64)]) -> Figures {
        Figures {
            compiler: String::from("rustc 1"),
            figures: of.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        }
    }

    #[test]
    fn more_than_the_allowance_fails() {
        let committed = figures(&[(PUSH, 100.0), (RUN, 1000.0)]);
        let check = |push, run| {
            let now = figures(&[(PUSH, push), (RUN, run)]);
            now.check(&committed, Path::new("FILE"))
        };
        assert!(check(103.0, 1030.0).is_ok());
        assert!(check(50.0, 1000.0).is_ok());
        assert!(check(104.0, 1000.0).is_err());
        assert!(check(100.0, 1031.0).is_err());
    }

    #[test]
    fn an_operation_on_one_side_only_fails() {
        let (one, two) = (figures(&[(PUSH, 1.0)]), figures(&[(PUSH, 1.0), (RUN, 1.0)]));
        assert!(one.check(&two, Path::new("FILE")).is_err());
        assert!(two.check(&one, Path::new("FILE")).is_err());
    }

    #[test]
    fn what_is_saved_can_be_read() {
        let file = std::env::temp_dir().join(format!("peers-{}.tsv", std::process::id()));
        let saved = figures(&[(PUSH, 117.0), (UNQUEUED_REFUSAL, 153.0)]);
        saved.save(&file).expect("a file for the test");
        let read = Figures::read(&file);
        fs::remove_file(&file).expect("it is there");
        let read = read.expect("what was saved");
        assert_eq!(
            (read.compiler, read.figures),
            (saved.compiler, saved.figures)
        );
        for text in [
            "",
            "# x\n",
            "# x\nother\n",
            "operation\tinstructions\n",
            "# x\noperation\tinstructions\na b\n",
        ] {
            assert!(Figures::parse(text).is_none(), "{text:?}");
        }
    }
}
