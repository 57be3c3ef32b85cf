//! `survivors.txt`: the mutants that no model sees, and why.

use std::collections::BTreeMap;
use std::path::Path;

/// Survivors by name, each with the letter of its reason; the reasons are in the
/// proof page.
#[derive(Debug)]
pub(crate) struct Survivors {
    listed: BTreeMap<String, String>,
}

impl Survivors {
    /// Lines `reason | name`; `#` begins a comment.
    pub(crate) fn read(root: &Path) -> Self {
        let path = root.join("loom-tests/mutants/survivors.txt");
        let text = std::fs::read_to_string(path).expect("the list of survivors");
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let listed = lines.map(|line| {
            let (reason, name) = line.split_once(" | ").expect("reason | name");
            (name.to_owned(), reason.to_owned())
        });
        Self {
            listed: listed.collect(),
        }
    }

    pub(crate) fn reason(&self, name: &str) -> Option<&str> {
        self.listed.get(name).map(String::as_str)
    }

    /// The accesses listed, each with its reason.
    pub(crate) fn accesses(&self) -> impl Iterator<Item = (&str, &str)> {
        let listed = self.listed.iter();
        let listed = listed.filter(|(name, _)| name.starts_with("src/"));
        listed.map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    /// Those listed of a kind (by how their names begin) that are not in `seen`:
    /// the list has rotted.
    pub(crate) fn stale<'a>(
        &'a self,
        ours: impl Fn(&str) -> bool + 'a,
        seen: &'a [String],
    ) -> impl Iterator<Item = &'a str> {
        let names = self.listed.keys().map(String::as_str);
        names.filter(move |name| ours(name) && !seen.iter().any(|s| s == name))
    }
}
