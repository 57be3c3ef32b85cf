//! The models: building them, and running one.

use crate::planted::WHICH;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One model of `loom-tests/tests`.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// `file::test`.
    pub(crate) name: String,
    program: PathBuf,
    /// How long it takes, unmutated.
    pub(crate) takes: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    /// With the first line of its panic.
    Failed(String),
    TimedOut,
}

/// The workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("two levels up").to_owned()
}

/// Builds the models of a tree, all or those of one test file, as `cargo loom`
/// does (whose alias would be found twice in a copy below this tree).
pub(crate) fn build(tree: &Path, test: Option<&str>) -> Result<Vec<Model>, String> {
    build_under(tree, "loom", test)
}

/// Builds the scenarios of `cargo shuttle` in a copy of the tree, as one program: the test
/// `file::test` is there as `all::file::test`.
pub(crate) fn build_scenarios(copy: &Path) -> Result<Vec<Model>, String> {
    let tests = copy.join("shuttle-tests/tests");
    let mut all = "#![cfg(lazypool_shuttle)]\n".to_owned();
    for entry in fs::read_dir(&tests).map_err(|e| e.to_string())? {
        let name = entry.map_err(|e| e.to_string())?.file_name();
        if let Some(file) = name.to_str().and_then(|name| name.strip_suffix(".rs")) {
            if file != "all" {
                all += &format!("#[path = \"{file}.rs\"]\nmod {file};\n");
            }
        }
    }
    fs::write(tests.join("all.rs"), all).map_err(|e| e.to_string())?;
    build_under(copy, "shuttle", Some("all"))
}

fn build_under(tree: &Path, checker: &str, test: Option<&str>) -> Result<Vec<Model>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let package = format!("{checker}-tests");
    let flags = format!("build.rustflags=['--cfg','lazypool_{checker}']");
    let told = format!("env.LAZYPOOL_{}='1'", checker.to_uppercase());
    let output = Command::new(cargo)
        .current_dir(tree)
        .env_remove("RUSTFLAGS")
        .args(["test", "--package", &package, "--profile", "loom"])
        .args(["--config", &flags, "--config", &told])
        .args(["--target-dir", &format!("target/{checker}")])
        .args(["--no-run", "--color", "never"])
        .args(test.map_or(vec!["--tests"], |t| vec!["--test", t]))
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    // `Executable tests/ring.rs (target/loom/loom/deps/ring-0123456789abcdef)`
    let programs = said.lines().filter_map(|line| {
        let (file, program) = line
            .trim()
            .strip_prefix("Executable tests/")?
            .split_once(' ')?;
        let program = program.strip_prefix('(')?.strip_suffix(')')?;
        Some((file.strip_suffix(".rs")?, tree.join(program)))
    });
    let mut models = Vec::new();
    for (file, program) in programs {
        let listed = Command::new(&program)
            .arg("--list")
            .output()
            .map_err(|e| e.to_string())?;
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            if let Some(test) = line.strip_suffix(": test") {
                models.push(Model {
                    name: format!("{file}::{test}"),
                    program: program.clone(),
                    takes: Duration::ZERO,
                });
            }
        }
    }
    Ok(models)
}

impl Model {
    /// Runs it with variables of the environment set, at most for `limit`.
    pub(crate) fn run(&self, variables: &[(&str, &str)], limit: Duration) -> End {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (_, test) = self.name.split_once("::").expect("file::test");
        let name = format!(
            "mutants-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // A file and not a pipe: nobody reads while it runs.
        let said = std::env::temp_dir().join(name);
        let file = File::create(&said).expect("a temporary file");
        let mut command = Command::new(&self.program);
        command
            .args(["--exact", test, "--test-threads", "1", "--nocapture"])
            .env("RUST_BACKTRACE", "0")
            .env_remove("LAZYPOOL_SITES")
            .env_remove("LAZYPOOL_MUTANT")
            .env_remove(WHICH)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(file.try_clone().expect("a second handle"))
            .stdout(file);
        let start = Instant::now();
        let mut child = command.spawn().expect("a model that was just built");
        let end = loop {
            match child.try_wait().expect("a child of this process") {
                Some(status) if status.success() => break End::Passed,
                Some(_) => break End::Failed(reason(&said)),
                None if start.elapsed() > limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break End::TimedOut;
                }
                None => std::thread::sleep(Duration::from_millis(3)),
            }
        };
        let _ = fs::remove_file(&said);
        end
    }

    /// How long it may take, mutated: a mutant can have more states.
    pub(crate) fn limit(&self) -> Duration {
        self.takes * 8 + Duration::from_secs(5)
    }
}

/// Which scenario is the first to fail, and how, in words.
pub(crate) fn first_to_fail(
    scenarios: &[Model],
    variables: &[(&str, &str)],
    limit: Duration,
) -> String {
    for scenario in scenarios {
        let why = match scenario.run(variables, limit) {
            End::Passed => continue,
            End::Failed(why) => why,
            End::TimedOut => "it does not end".to_owned(),
        };
        let name = scenario.name.trim_start_matches("all::");
        return format!("found by {name}: {why}");
    }
    "NOT FOUND".to_owned()
}

/// The line after the first "panicked at".
fn reason(said: &Path) -> String {
    let said = fs::read(said).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let mut lines = said.lines().skip_while(|l| !l.contains("panicked at"));
    let first = lines.nth(1).unwrap_or("no panic").trim();
    first.chars().take(60).collect()
}

/// Does `f` for each, on as many threads as there are cores; results in order.
pub(crate) fn for_each<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut done: Vec<(usize, R)> = std::thread::scope(|s| {
        let work = || {
            let mut mine = Vec::new();
            while let Some((at, item)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                items.get(at).map(|item| (at, item))
            } {
                mine.push((at, f(item)));
            }
            mine
        };
        let threads: Vec<_> = (0..threads).map(|_| s.spawn(work)).collect();
        let ended = threads.into_iter().map(|t| t.join().expect("no panic"));
        ended.flatten().collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
