//! All edits in one build: each function that an edit changes asks at run time which of its
//! texts to run. So the models are built once, and not once for each edit.

use crate::edits::{changed, Edit};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The variable that says which edit a run makes, by its number.
pub(crate) const WHICH: &str = "LAZYPOOL_PLANTED";

/// What the functions ask.
const SWITCH: &str = r#"
pub(crate) fn planted(number: usize) -> bool {
    static WHICH: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
    let which = WHICH.get_or_init(|| std::env::var("LAZYPOOL_PLANTED").ok()?.parse().ok());
    *which == Some(number)
}
"#;

/// By lines: the one that ends in the opening brace, and the one that closes it.
struct Function {
    open: usize,
    close: usize,
    is_const: bool,
}

/// New texts of one function, each with its edit's number.
type Texts = Vec<(usize, Vec<String>)>;

/// Puts all edits that can be chosen at run time into the copy of a tree; which of them.
pub(crate) fn plant(root: &Path, copy: &Path, edits: &[Edit]) -> Vec<bool> {
    let mut planted = vec![false; edits.len()];
    let mut bodies: BTreeMap<&str, BTreeMap<usize, Texts>> = BTreeMap::new();
    for (number, edit) in edits.iter().enumerate() {
        let Some(changes) = bodies_changed(root, edit) else {
            continue;
        };
        planted[number] = true;
        let file = bodies.entry(edit.file.as_str()).or_default();
        for (function, body) in changes {
            file.entry(function).or_default().push((number, body));
        }
    }
    for (file, changes) in bodies {
        let mut lines = lines_of(root, file);
        let functions = functions(&lines);
        for (at, texts) in changes.into_iter().rev() {
            let Function { open, close, .. } = functions[at];
            let mut body = Vec::new();
            let alternatives = texts.len();
            for (number, text) in texts {
                body.push(format!("if crate::sync::planted({number}) {{"));
                body.extend(text);
                body.push("} else {".to_owned());
            }
            body.extend_from_slice(&lines[open + 1..close]);
            body.extend(vec!["}".to_owned(); alternatives]);
            lines.splice(open + 1..close, body);
        }
        fs::write(copy.join(file), lines.join("\n") + "\n").expect("writable");
    }
    let shim = "src/sync/mod.rs";
    let text = fs::read_to_string(root.join(shim)).expect("the shim");
    fs::write(copy.join(shim), text + SWITCH).expect("writable");
    planted
}

fn lines_of(root: &Path, file: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join(file)).expect("readable");
    text.lines().map(str::to_owned).collect()
}

/// The functions that an edit changes, by their place in the file, and their new bodies;
/// `None` if it changes anything else.
fn bodies_changed(root: &Path, edit: &Edit) -> Option<Vec<(usize, Vec<String>)>> {
    let old = lines_of(root, &edit.file);
    let text = changed(edit, root).ok()?;
    let new: Vec<String> = text.lines().map(str::to_owned).collect();
    let (before, after) = (functions(&old), functions(&new));
    if before.len() != after.len() || rest(&old, &before) != rest(&new, &after) {
        return None;
    }
    let mut found = Vec::new();
    for (at, (one, other)) in before.iter().zip(&after).enumerate() {
        let body = &new[other.open + 1..other.close];
        if body != &old[one.open + 1..one.close] {
            if one.is_const {
                return None;
            }
            found.push((at, body.to_vec()));
        }
    }
    Some(found)
}

/// All but the bodies.
fn rest<'a>(lines: &'a [String], functions: &[Function]) -> Vec<&'a String> {
    let mut from = 0;
    let mut rest = Vec::new();
    for function in functions {
        rest.extend(&lines[from..=function.open]);
        from = function.close;
    }
    rest.extend(&lines[from..]);
    rest
}

/// The functions of a file as rustfmt leaves it, but for those within others.
fn functions(lines: &[String]) -> Vec<Function> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let first = &lines[at];
        let Some(is_const) = begins_function(first) else {
            at += 1;
            continue;
        };
        let open = (at..lines.len()).find(|&n| lines[n].ends_with(['{', '}', ';']));
        let Some(open) = open else { break };
        at = open + 1;
        if !lines[open].ends_with('{') {
            continue;
        }
        let indent = first.len() - first.trim_start().len();
        let end = format!("{}}}", &first[..indent]);
        let Some(close) = (at..lines.len()).find(|&n| lines[n] == end) else {
            break;
        };
        found.push(Function {
            open,
            close,
            is_const,
        });
        at = close + 1;
    }
    found
}

/// Whether a line begins a function, and a `const` one.
fn begins_function(line: &str) -> Option<bool> {
    let mut is_const = false;
    for word in line.split_whitespace() {
        match word {
            "fn" => return Some(is_const),
            "const" => is_const = true,
            "unsafe" | "pub" | "pub(crate)" | "pub(super)" => {}
            _ => return None,
        }
    }
    None
}
