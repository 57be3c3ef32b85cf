//! Each access of an atomic that a model makes, weakened.

use crate::models::{self, End, Model};
use crate::survivors::Survivors;
use crate::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// An access, as the shim lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    file: String,
    line: usize,
    column: usize,
    access: String,
    order: String,
    /// Where a compare-and-swap fails.
    or_else: Option<String>,
}

impl Site {
    fn parse(listed: &str) -> Option<Self> {
        let mut words = listed.split(' ');
        let (rest, column) = words.next()?.rsplit_once(':')?;
        let (file, line) = rest.rsplit_once(':')?;
        Some(Self {
            file: file.to_owned(),
            line: line.parse().ok()?,
            column: column.parse().ok()?,
            access: words.next()?.to_owned(),
            order: words.next()?.to_owned(),
            or_else: words.next().map(str::to_owned),
        })
    }

    fn at(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }

    /// The ways to weaken it, in chains: where one survives, so do those that
    /// come after it in its chain, which is weaker by less.
    fn acts(&self) -> Vec<Vec<String>> {
        let orders: &[&str] = match (self.access.as_str(), self.order.as_str()) {
            (_, "Relaxed") => &[],
            ("load", "SeqCst") => &["Relaxed", "Acquire"],
            ("store", "SeqCst") => &["Relaxed", "Release"],
            (_, "SeqCst") => &["Relaxed", "AcqRel"],
            (_, "AcqRel") => &["Relaxed", "Acquire|Release"],
            _ => &["Relaxed"],
        };
        let or_else: &[&str] = match self.or_else.as_deref() {
            Some("SeqCst") => &["else-Relaxed", "else-Acquire"],
            Some("Acquire") => &["else-Relaxed"],
            _ => &[],
        };
        let steps: &[&str] = match self.access.as_str() {
            "load" => &[],
            "store" | "store_release" => &["omit"],
            "compare_exchange" => &["omit", "torn", "blind"],
            "swap" => &["omit"],
            _ => &["omit", "torn"],
        };
        let mut chains = vec![];
        for chain in [orders, or_else] {
            if !chain.is_empty() {
                chains.push(chain.iter().map(|s| (*s).to_owned()).collect());
            }
        }
        chains.extend(steps.iter().map(|s| vec![(*s).to_owned()]));
        chains
    }
}

/// The library's source, to give accesses names that outlive their line numbers.
struct Source(BTreeMap<String, Vec<String>>);

impl Source {
    fn read(root: &Path) -> Self {
        let files = fs::read_dir(root.join("src")).expect("src");
        let files = files.map(|f| f.expect("readable").path());
        let read = files.filter(|f| f.extension().is_some_and(|e| e == "rs"));
        Self(
            read.map(|f| {
                let name = f.file_name().expect("a file").to_string_lossy();
                let text = fs::read_to_string(&f).expect("readable");
                let lines = text.lines().map(str::to_owned).collect();
                (format!("src/{name}"), lines)
            })
            .collect(),
        )
    }

    /// `src/ring.rs pop: the line`, numbered where a function has several alike.
    fn name(&self, site: &Site) -> String {
        let lines = &self.0[&site.file];
        let line = &lines[site.line - 1];
        let start = (0..site.line)
            .rev()
            .find(|&n| function(&lines[n]).is_some())
            .unwrap_or(0);
        let function = function(&lines[start]).unwrap_or("?");
        let alike = lines[start..site.line - 1]
            .iter()
            .filter(|l| l.trim() == line.trim())
            .count();
        let number = match alike {
            0 => String::new(),
            n => format!(" #{}", n + 1),
        };
        // Several on one line.
        let others = line.matches(&format!("{}(", site.access)).count();
        let column = match others {
            0 | 1 => String::new(),
            _ => format!(" @{}", site.column - (line.len() - line.trim_start().len())),
        };
        format!("{} {function}: {}{number}{column}", site.file, line.trim())
    }

    /// Accesses in the code of models' reach, by file, line and column: all but
    /// those in tests, for `std` only, and in functions that are their callers'
    /// (`track_caller`).
    fn accesses(&self) -> Vec<(String, usize, usize)> {
        const NAMES: [&str; 10] = [
            "load(",
            "store(",
            "swap(",
            "compare_exchange(",
            "fetch_add(",
            "fetch_sub(",
            "fetch_or(",
            "fetch_and(",
            "fetch_max(",
            "store_release(",
        ];
        let mut found = Vec::new();
        for (file, lines) in &self.0 {
            if ["src/sync.rs", "src/model.rs"].contains(&file.as_str()) {
                continue;
            }
            let mut callers = false;
            for (n, line) in lines.iter().enumerate() {
                if line.starts_with("#[cfg(all(test") || line.starts_with("#[cfg(test)]") {
                    break;
                }
                if line.contains("track_caller") {
                    callers = true;
                } else if function(line).is_some() {
                    callers = (n.saturating_sub(3)..n).any(|n| lines[n].contains("track_caller"));
                }
                let code = line.split("//").next().unwrap_or("");
                let orders = lines[n..lines.len().min(n + 7)].join(" ");
                if callers || !(orders.contains("Ordering::") || code.contains("store_release(")) {
                    continue;
                }
                for name in NAMES {
                    for (at, _) in code.match_indices(name) {
                        let before = code[..at].chars().last();
                        if before == Some('.') || name == "store_release(" {
                            found.push((file.clone(), n + 1, at + 1));
                        }
                    }
                }
            }
        }
        found
    }
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with("//") {
        return None;
    }
    let at = line.find("fn ").filter(|&at| {
        let before = &line[..at];
        before.is_empty() || before.starts_with("pub") || before.starts_with("unsafe")
    })?;
    line[at + 3..].split(['(', '<']).next()
}

/// What a quick model takes at most.
const QUICK: std::time::Duration = std::time::Duration::from_secs(2);

/// Weakens every access; returns how many survivors nobody has explained.
pub(crate) fn run(root: &Path, filters: &[String], quick: bool) -> usize {
    let mut models = match models::build(root, None) {
        Ok(models) => models,
        Err(said) => {
            eprintln!("{said}");
            return 1;
        }
    };
    let source = Source::read(root);
    let survivors = Survivors::read(root);

    // Which models make which access, and how long each takes.
    let reached = models::for_each(&models, sites_of);
    let mut sites: BTreeMap<Site, BTreeSet<String>> = BTreeMap::new();
    for (model, (takes, reached)) in models.iter_mut().zip(reached) {
        model.takes = takes;
        for site in reached {
            sites.entry(site).or_default().insert(model.name.clone());
        }
    }
    models.sort_by_key(|m| m.takes);
    if quick {
        models.retain(|m| m.takes < QUICK);
        println!("{} quick models", models.len());
    }
    let seen: BTreeSet<_> = sites
        .keys()
        .map(|s| (s.file.clone(), s.line, s.column))
        .collect();
    let reach = sites.len();

    let sites: Vec<(Site, String, BTreeSet<String>)> = sites
        .into_iter()
        .filter(|(site, _)| site.file != "src/model.rs")
        .map(|(site, models)| (source.name(&site), site, models))
        .map(|(name, site, models)| (site, name, models))
        .filter(|(site, name, _)| {
            let says = |f: &String| name.contains(f.as_str()) || site.at().contains(f.as_str());
            filters.is_empty() || filters.iter().any(says)
        })
        .collect();
    let chains: Vec<_> = sites
        .iter()
        .flat_map(|(site, name, by)| site.acts().into_iter().map(move |c| (site, name, by, c)))
        .collect();

    let verdicts = models::for_each(&chains, |(site, name, by, chain)| {
        let mut verdicts = Vec::new();
        for act in chain.iter().flat_map(|step| step.split('|')) {
            let verdict = weaken(site, act, models.iter().filter(|m| by.contains(&m.name)));
            let name = format!("{name} / {act}");
            report(&name, site, &verdict, &survivors);
            let goes_on = matches!(verdict, Verdict::Killed(..));
            verdicts.push((name, verdict));
            // Acquire and Release are not in one line.
            if !goes_on && act == chain[0] {
                break;
            }
        }
        verdicts
    });

    let verdicts: Vec<_> = verdicts.into_iter().flatten().collect();
    let mut unexplained = 0;
    let (mut killed, mut explained, mut timed_out) = (0, 0, 0);
    let mut names = Vec::new();
    for (name, verdict) in verdicts {
        match verdict {
            Verdict::Killed(..) => killed += 1,
            _ => {
                timed_out += usize::from(matches!(verdict, Verdict::TimedOut(_)));
                match survivors.reason(&name) {
                    Some(_) => explained += 1,
                    None => unexplained += 1,
                }
                names.push(name);
            }
        }
    }
    let uncovered: Vec<_> = source
        .accesses()
        .into_iter()
        .filter(|a| !seen.contains(a))
        .collect();
    println!("\naccesses that no model makes:");
    for (file, line, _) in &uncovered {
        println!("  {file}:{line}: {}", source.0[file][line - 1].trim());
    }
    let mut stale = 0;
    if filters.is_empty() {
        for name in survivors.stale(|n| n.starts_with("src/"), &names) {
            println!("listed as a survivor, but killed or gone: {name}");
            stale += 1;
        }
    }
    println!(
        "\n{reach} accesses, {} not made by any model; {killed} killed, {} survived: \
         {explained} explained, {unexplained} not; {timed_out} of them timed out",
        uncovered.len(),
        explained + unexplained,
    );
    unexplained + stale
}

fn sites_of(model: &Model) -> (std::time::Duration, Vec<Site>) {
    let name = format!(
        "sites-{}-{}",
        std::process::id(),
        model.name.replace("::", "-")
    );
    let path = std::env::temp_dir().join(name);
    let start = std::time::Instant::now();
    let listing = path.to_str().expect("a plain name");
    let end = model.run(
        Some(("LAZYPOOL_SITES", listing)),
        std::time::Duration::from_secs(600),
    );
    assert_eq!(end, End::Passed, "{}, not mutated", model.name);
    let takes = start.elapsed();
    let listed = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(&path);
    (takes, listed.lines().filter_map(Site::parse).collect())
}

fn weaken<'a>(site: &Site, act: &str, models: impl Iterator<Item = &'a Model>) -> Verdict {
    let mutant = format!("{}/{act}", site.at());
    let mut late = Vec::new();
    let mut ran = 0;
    for model in models {
        ran += 1;
        match model.run(Some(("LAZYPOOL_MUTANT", &mutant)), model.limit()) {
            End::Passed => {}
            End::Failed(reason) => return Verdict::Killed(model.name.clone(), reason),
            End::TimedOut => {
                late.push(model.name.clone());
                if late.len() == 2 {
                    break;
                }
            }
        }
    }
    if late.is_empty() {
        Verdict::Survived(ran)
    } else {
        Verdict::TimedOut(late)
    }
}

fn report(name: &str, site: &Site, verdict: &Verdict, survivors: &Survivors) {
    let what = match verdict {
        Verdict::Killed(by, reason) => format!("killed by {by}: {reason}"),
        Verdict::Survived(ran) => format!("SURVIVED {ran} models"),
        Verdict::TimedOut(late) => format!("TIMED OUT in {}", late.join(", ")),
    };
    let reason = match (verdict, survivors.reason(name)) {
        (Verdict::Killed(..), _) => String::new(),
        (_, Some(reason)) => format!(" ({reason})"),
        (_, None) => " (unexplained)".to_owned(),
    };
    println!("{} {} | {name} | {what}{reason}", site.at(), site.access);
}
