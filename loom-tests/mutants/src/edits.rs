//! Edits of the source: a check left out, two steps swapped.

use crate::models::{self, End, Model};
use crate::planted::{plant, WHICH};
use crate::survivors::Survivors;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// One edit of `edits.txt`.
#[derive(Debug)]
pub(crate) struct Edit {
    name: String,
    pub(crate) file: String,
    /// Models that are to fail: one of them is enough. A scenario of `cargo shuttle` is
    /// `shuttle::file::test`.
    models: Vec<String>,
    /// Old text and new.
    changes: Vec<(String, String)>,
}

/// `== name`, `in file`, `by models`, then old text and new between lines of
/// `<<<`, `===` and `>>>`, as often as need be.
fn parse(text: &str) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut lines = text.lines();
    let until = |lines: &mut std::str::Lines<'_>, end: &str| {
        let taken: Vec<_> = lines.by_ref().take_while(|l| *l != end).collect();
        taken.join("\n")
    };
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("== ") {
            edits.push(Edit {
                name: name.to_owned(),
                file: String::new(),
                models: Vec::new(),
                changes: Vec::new(),
            });
        } else if let Some(edit) = edits.last_mut() {
            if let Some(file) = line.strip_prefix("in ") {
                edit.file = file.to_owned();
            } else if let Some(models) = line.strip_prefix("by ") {
                edit.models = models.split(' ').map(str::to_owned).collect();
            } else if line == "<<<" {
                let old = until(&mut lines, "===");
                let new = until(&mut lines, ">>>");
                edit.changes.push((old, new));
            } else {
                assert!(line.is_empty() || line.starts_with('#'), "{line}");
            }
        }
    }
    edits
}

/// The edits that the filters ask for, each with whether it is chosen at run time, in a copy of
/// the tree in which those are planted.
fn chosen(root: &Path, copy: &Path, filters: &[String]) -> Vec<(Edit, bool)> {
    let text = fs::read_to_string(root.join("loom-tests/mutants/edits.txt")).expect("the edits");
    let mut edits = parse(&text);
    let says = |edit: &Edit| {
        let says = |f: &String| edit.name.contains(f.as_str()) || edit.file.contains(f.as_str());
        filters.is_empty() || filters.iter().any(says)
    };
    edits.retain(says);
    copy_tree(root, copy);
    let planted = plant(root, copy, &edits);
    edits.into_iter().zip(planted).collect()
}

/// Makes every edit in a copy of the tree; returns how many no model saw, or
/// could not be made.
pub(crate) fn run(root: &Path, filters: &[String]) -> usize {
    let survivors = Survivors::read(root);
    let copy = root.join("target/mutants");
    let mut failures = 0;
    let mut killed = 0;
    let mut names = Vec::new();
    let edits = chosen(root, &copy, filters);
    let models = built(&copy, edits.iter().filter(|(_, planted)| *planted));
    // Those that are built alone come last.
    let numbered = edits.iter().enumerate();
    let (at_run_time, alone): (Vec<_>, Vec<_>) = numbered.partition(|(_, (_, planted))| *planted);
    for (number, (edit, planted)) in at_run_time.into_iter().chain(alone) {
        let made = if *planted {
            let number = number.to_string();
            let models = models.as_ref().map_err(Clone::clone);
            models.and_then(|models| run_models(edit, models, &[(WHICH, &number)]))
        } else {
            copy_tree(root, &copy);
            make(edit, &copy)
        };
        match made {
            Ok(Made::Killed(by)) => {
                killed += 1;
                println!("{} | {} | killed by {by}", edit.file, edit.name);
            }
            Ok(other) => {
                let reason = survivors.reason(&edit.name);
                failures += usize::from(reason.is_none());
                let what = match other {
                    Made::TimedOut => "TIMED OUT",
                    _ => "SURVIVED",
                };
                let reason = reason.unwrap_or("unexplained");
                println!("{} | {} | {what} ({reason})", edit.file, edit.name);
                names.push(edit.name.clone());
            }
            Err(why) => {
                failures += 1;
                println!("{} | {} | NOT MADE: {why}", edit.file, edit.name);
            }
        }
    }
    println!("\n{killed} edits killed, {} survived", names.len());
    if filters.is_empty() {
        for name in survivors.stale(|n| !n.starts_with("src/"), &names) {
            println!("listed as a survivor, but killed or gone: {name}");
            failures += 1;
        }
    }
    failures
}

/// Runs the edits under all scenarios of `cargo shuttle`, so long each with each scheduler,
/// until one of them fails. Returns how many could not be run.
pub(crate) fn run_scenarios(root: &Path, filters: &[String], seconds: u64) -> usize {
    let copy = root.join("target/mutants");
    let edits = chosen(root, &copy, filters);
    let scenarios = match models::build_scenarios(&copy) {
        Ok(scenarios) => scenarios,
        Err(said) => {
            eprintln!("{said}");
            return edits.len();
        }
    };
    let (limit, seconds) = (Duration::from_secs(60 + 4 * seconds), seconds.to_string());
    let mut not_run = 0;
    for (number, (edit, planted)) in edits.iter().enumerate() {
        if !planted {
            not_run += 1;
            println!("{} | {} | NOT RUN: not in a function", edit.file, edit.name);
            continue;
        }
        let number = number.to_string();
        let variables = [(WHICH, &*number), ("LAZYPOOL_SHUTTLE_SECS", &*seconds)];
        let found = models::first_to_fail(&scenarios, &variables, limit);
        println!("{} | {} | {found}", edit.file, edit.name);
    }
    not_run
}

/// All models that the edits name, or all that there are; with scenarios only if one names one.
fn built<'a>(
    copy: &Path,
    edits: impl Iterator<Item = &'a (Edit, bool)>,
) -> Result<Vec<Model>, String> {
    let wanted: BTreeSet<&str> = edits
        .flat_map(|(edit, _)| &edit.models)
        .filter_map(|name| Some(name.split_once("::")?.0))
        .collect();
    let mut models = Vec::new();
    for test in wanted {
        models.extend(build_file(copy, test)?);
    }
    Ok(models)
}

/// The models of one test file, or all scenarios.
fn build_file(copy: &Path, test: &str) -> Result<Vec<Model>, String> {
    let built = if test == "shuttle" {
        models::build_scenarios(copy).map(|mut scenarios| {
            for scenario in &mut scenarios {
                scenario.name = scenario.name.replacen("all", "shuttle", 1);
            }
            scenarios
        })
    } else {
        models::build(copy, Some(test))
    };
    built.map_err(|said| {
        let errors = said.lines().filter(|l| l.starts_with("error"));
        errors.collect::<Vec<_>>().join("; ")
    })
}

/// What became of an edit.
enum Made {
    /// By which model, and what it said.
    Killed(String),
    Survived,
    TimedOut,
}

/// Whether each edit can be made, and its models are there; how many cannot.
pub(crate) fn check(root: &Path) -> usize {
    let text = fs::read_to_string(root.join("loom-tests/mutants/edits.txt")).expect("the edits");
    let edits = parse(&text);
    let mut failures = 0;
    for edit in &edits {
        let mut wrong = changed(edit, root).err();
        for model in &edit.models {
            let (tests, model) = match model.strip_prefix("shuttle::") {
                Some(scenario) => ("shuttle-tests", scenario),
                None => ("loom-tests", model.as_str()),
            };
            let there = model.split_once("::").is_some_and(|(file, test)| {
                let file = root.join(format!("{tests}/tests/{file}.rs"));
                let text = fs::read_to_string(file).unwrap_or_default();
                text.contains(&format!("fn {test}("))
            });
            if !there {
                wrong = Some(format!("no model {model}"));
            }
        }
        if let Some(why) = wrong {
            failures += 1;
            println!("{} | {} | {why}", edit.file, edit.name);
        }
    }
    println!("{} edits, {failures} that cannot be made", edits.len());
    failures
}

/// The file's text with the edit.
pub(crate) fn changed(edit: &Edit, tree: &Path) -> Result<String, String> {
    let mut text = fs::read_to_string(tree.join(&edit.file)).map_err(|e| e.to_string())?;
    for (old, new) in &edit.changes {
        let times = text.matches(old.as_str()).count();
        if times != 1 {
            return Err(format!("found {times} times: {old}"));
        }
        text = text.replace(old.as_str(), new);
    }
    Ok(text)
}

/// Makes one edit alone.
fn make(edit: &Edit, copy: &Path) -> Result<Made, String> {
    fs::write(copy.join(&edit.file), changed(edit, copy)?).map_err(|e| e.to_string())?;
    let files: BTreeSet<&str> = (edit.models.iter())
        .filter_map(|name| Some(name.split_once("::")?.0))
        .collect();
    let mut models = Vec::new();
    for file in files {
        models.extend(build_file(copy, file)?);
    }
    run_models(edit, &models, &[])
}

/// Runs the models that an edit names, until one fails.
fn run_models(edit: &Edit, models: &[Model], variables: &[(&str, &str)]) -> Result<Made, String> {
    let mut late = false;
    for wanted in &edit.models {
        let model = models
            .iter()
            .find(|m| m.name == *wanted)
            .ok_or_else(|| format!("no model {wanted}"))?;
        match model.run(variables, Duration::from_secs(120)) {
            End::Passed => {}
            End::Failed(reason) => return Ok(Made::Killed(format!("{wanted}: {reason}"))),
            End::TimedOut => late = true,
        }
    }
    Ok(if late { Made::TimedOut } else { Made::Survived })
}

/// Makes `to` like `from`, but for build output; files that are alike keep their
/// time, so that only what differs is built again.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the tree") {
        let entry = entry.expect("readable");
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        let (source, copy) = (entry.path(), to.join(&name));
        if entry.file_type().expect("a type").is_dir() {
            copy_tree(&source, &copy);
        } else {
            let text = fs::read(&source).expect("readable");
            if fs::read(&copy).ok().as_ref() != Some(&text) {
                fs::write(&copy, text).expect("writable");
            }
        }
    }
}
