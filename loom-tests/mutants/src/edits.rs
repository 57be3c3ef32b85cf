//! Edits of the source: a check left out, two steps swapped.

use crate::models::{self, End};
use crate::survivors::Survivors;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// One edit of `edits.txt`.
#[derive(Debug)]
struct Edit {
    name: String,
    file: String,
    /// Models that are to fail: one of them is enough.
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

/// Makes every edit in a copy of the tree; returns how many no model saw, or
/// could not be made.
pub(crate) fn run(root: &Path, filters: &[String]) -> usize {
    let text = fs::read_to_string(root.join("loom-tests/mutants/edits.txt")).expect("the edits");
    let survivors = Survivors::read(root);
    let copy = root.join("target/mutants");
    let mut failures = 0;
    let mut killed = 0;
    let mut names = Vec::new();
    for edit in parse(&text) {
        let says = |f: &String| edit.name.contains(f.as_str()) || edit.file.contains(f.as_str());
        if !(filters.is_empty() || filters.iter().any(says)) {
            continue;
        }
        copy_tree(root, &copy);
        match make(&edit, &copy) {
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
                names.push(edit.name);
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
            let there = model.split_once("::").is_some_and(|(file, test)| {
                let file = root.join(format!("loom-tests/tests/{file}.rs"));
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
fn changed(edit: &Edit, tree: &Path) -> Result<String, String> {
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

fn make(edit: &Edit, copy: &Path) -> Result<Made, String> {
    fs::write(copy.join(&edit.file), changed(edit, copy)?).map_err(|e| e.to_string())?;
    let mut late = false;
    for wanted in &edit.models {
        let (test, _) = wanted.split_once("::").ok_or("file::model")?;
        let models = models::build(copy, Some(test)).map_err(|said| {
            let errors = said.lines().filter(|l| l.starts_with("error"));
            errors.collect::<Vec<_>>().join("; ")
        })?;
        let model = models
            .iter()
            .find(|m| m.name == *wanted)
            .ok_or_else(|| format!("no model {wanted}"))?;
        match model.run(None, Duration::from_secs(120)) {
            End::Passed => {}
            End::Failed(reason) => return Ok(Made::Killed(format!("{wanted}: {reason}"))),
            End::TimedOut => late = true,
        }
    }
    Ok(if late { Made::TimedOut } else { Made::Survived })
}

/// Makes `to` like `from`, but for build output; files that are alike keep their
/// time, so that only what differs is built again.
fn copy_tree(from: &Path, to: &Path) {
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
