//! Each access of an atomic that a model makes, weakened.

use crate::edits::copy_tree;
use crate::models::{self, End, Model};
use crate::survivors::Survivors;
use crate::{Verdict, Which};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

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
        let mut files = BTreeMap::new();
        Self::read_folder(&mut files, &root.join("src"), "src");
        Self(files)
    }

    fn read_folder(files: &mut BTreeMap<String, Vec<String>>, folder: &Path, name: &str) {
        for entry in fs::read_dir(folder).expect("src") {
            let path = entry.expect("readable").path();
            let file = path.file_name().expect("a name").to_string_lossy();
            let name = format!("{name}/{file}");
            if path.is_dir() {
                Self::read_folder(files, &path, &name);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("readable");
                files.insert(name, text.lines().map(str::to_owned).collect());
            }
        }
    }

    /// `src/parts/ring.rs pop: the line`, numbered where a function has several alike.
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

    /// Whether there is the line, in the function, of an access that was weakened: `file function: line / act`.
    fn has(&self, name: &str) -> bool {
        let split = || {
            let (access, _act) = name.rsplit_once(" / ")?;
            let (place, line) = access.split_once(": ")?;
            let (file, function) = place.split_once(' ')?;
            Some((self.0.get(file)?, function, line))
        };
        let Some((lines, of, wanted)) = split() else {
            return false;
        };
        let mut within = false;
        let mut alike = 0;
        for line in lines {
            if let Some(function) = function(line) {
                within = function == of;
            }
            // Several alike are numbered, and so are several on one line.
            let line = line.trim();
            if within
                && wanted
                    .strip_prefix(line)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ']))
            {
                alike += 1;
            }
        }
        let number = wanted
            .rsplit_once(" #")
            .and_then(|(_, n)| n.split(' ').next()?.parse().ok());
        alike >= number.unwrap_or(1)
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
            if is_ours(file) {
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
                let ours = lines[..=n].iter().rev().find_map(|l| function(l)) == Some(AT_REST);
                if callers
                    || ours
                    || !(orders.contains("Ordering::") || code.contains("store_release("))
                {
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

/// Not the library's: the shim, and what is there for models only.
fn is_ours(file: &str) -> bool {
    file.starts_with("src/sync/") || file.starts_with("src/model/")
}

const AT_REST: &str = "assert_at_rest";

/// Whether each access among the survivors is still in the source; returns how many are not.
pub(crate) fn check(root: &Path) -> usize {
    let source = Source::read(root);
    let mut gone = 0;
    for (name, _) in Survivors::read(root).accesses() {
        if !source.has(name) {
            gone += 1;
            println!("listed as a survivor, but gone: {name}");
        }
    }
    gone
}

/// Weakens every access; returns how many survivors nobody has explained.
pub(crate) fn run(root: &Path, filters: &[String], which: &Which) -> usize {
    let mut models = match models::build(root, None) {
        Ok(models) => models,
        Err(said) => {
            eprintln!("{said}");
            return 1;
        }
    };
    models.retain(|m| which.asks(&m.name));
    let source = Source::read(root);
    let survivors = Survivors::read(root);

    // Which models make which access, and how long each takes.
    let reached = models::for_each(&models, |model| sites_of(model, &[], which.upto));
    let mut sites: BTreeMap<Site, BTreeSet<String>> = BTreeMap::new();
    let mut slow = Vec::new();
    for (model, (takes, reached)) in models.iter_mut().zip(reached) {
        match takes {
            Some(takes) => model.takes = takes,
            None => slow.push(model.name.clone()),
        }
        for site in reached {
            sites.entry(site).or_default().insert(model.name.clone());
        }
    }
    models.retain(|m| !slow.contains(&m.name) && m.takes > which.over);
    let seen: BTreeSet<_> = sites
        .keys()
        .map(|s| (s.file.clone(), s.line, s.column))
        .collect();
    let reach = sites.len();

    let sites: Vec<(Site, String, BTreeSet<String>)> = sites
        .into_iter()
        .filter(|(site, _)| !is_ours(&site.file))
        .map(|(site, models)| (source.name(&site), site, models))
        .filter(|(name, ..)| !name.contains(&format!(" {AT_REST}: ")))
        .map(|(name, site, models)| (site, name, models))
        .collect();
    // Which filter asks for it, if any.
    let asked = |site: &Site, name: &str, chain: &[String]| {
        let says = |f: &String| {
            let act = |act: &String| format!("{name} / {act}") == *f;
            name.contains(f.as_str()) || site.at().contains(f.as_str()) || chain.iter().any(act)
        };
        match filters {
            [] => Some(0),
            _ => filters.iter().position(says),
        }
    };
    let mut chains: Vec<_> = sites
        .iter()
        .flat_map(|(site, name, by)| site.acts().into_iter().map(move |c| (site, name, by, c)))
        .filter_map(|way| Some((asked(way.0, way.1, &way.3)?, way)))
        .collect();
    chains.sort_by_key(|(asked, _)| *asked);
    println!(
        "{} models, {} accesses, {} ways",
        models.len(),
        sites.len(),
        chains.len()
    );
    // How often a model has failed for a mutant of a file: it is tried sooner.
    let kills: Mutex<BTreeMap<(&str, String), u32>> = Mutex::default();

    let verdicts = models::for_each(&chains, |(_, (site, name, by, chain))| {
        let mut verdicts = Vec::new();
        for act in chain.iter().flat_map(|step| step.split('|')) {
            let mut by_speed: Vec<_> = models.iter().filter(|m| by.contains(&m.name)).collect();
            let verdict = if by_speed.is_empty() {
                Verdict::NotTried(by.len())
            } else {
                let known = kills.lock().expect("no panic under it").clone();
                by_speed.sort_by_key(|m| {
                    let times = known.get(&(site.file.as_str(), m.name.clone()));
                    m.takes / (1 + times.copied().unwrap_or(0))
                });
                weaken(site, act, by_speed.into_iter())
            };
            if let Verdict::Killed(by, _) = &verdict {
                let mut kills = kills.lock().expect("no panic under it");
                *kills.entry((site.file.as_str(), by.clone())).or_default() += 1;
            }
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
    // By file: killed, survived, timed out, not tried.
    let mut table: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let (mut explained, mut unexplained) = (0, 0);
    let mut names = Vec::new();
    for (name, verdict) in &verdicts {
        let file = name.split(' ').next().expect("a file");
        let row = table.entry(file).or_default();
        let column = match verdict {
            Verdict::Killed(..) => 0,
            Verdict::Survived(_) => 1,
            Verdict::TimedOut(_) => 2,
            Verdict::NotTried(_) => 3,
        };
        row[column] += 1;
        if column == 1 || column == 2 {
            match survivors.reason(name) {
                Some(_) => explained += 1,
                None => unexplained += 1,
            }
        }
        if column != 0 {
            names.push(name.clone());
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
        "\n{reach} accesses, {} more that no model makes; of the survivors, {explained} are \
         explained and {unexplained} are not",
        uncovered.len(),
    );
    println!("| file | killed | survived | timed out | not tried |");
    println!("|---|---|---|---|---|");
    for (file, [killed, survived, timed_out, not_tried]) in table {
        println!("| {file} | {killed} | {survived} | {timed_out} | {not_tried} |");
    }
    unexplained + stale
}

/// Weakens the accesses of `survivors.txt` under the scenarios of `cargo shuttle`, so long each
/// with each scheduler, until one of them fails; those whose name or reason is asked for. Returns
/// how many could not be run.
pub(crate) fn run_scenarios(root: &Path, filters: &[String], seconds: u64) -> usize {
    let copy = root.join("target/mutants");
    copy_tree(root, &copy);
    let scenarios = match models::build_scenarios(&copy) {
        Ok(scenarios) => scenarios,
        Err(said) => {
            eprintln!("{said}");
            return 1;
        }
    };
    let survivors = Survivors::read(root);
    let source = Source::read(root);
    let a_second = [("LAZYPOOL_SHUTTLE_SECS", "1")];
    let made = scenarios
        .iter()
        .flat_map(|scenario| sites_of(scenario, &a_second, Duration::from_secs(60)).1);
    let sites: BTreeMap<String, Site> = made
        .filter(|site| !is_ours(&site.file))
        .map(|site| (source.name(&site), site))
        .collect();
    let asked = |name: &str, reason: &str| {
        let says = |f: &String| name.contains(f.as_str()) || reason == f;
        filters.is_empty() || filters.iter().any(says)
    };
    let (limit, seconds) = (Duration::from_secs(60 + 4 * seconds), seconds.to_string());
    let mut not_run = 0;
    for (name, reason) in survivors.accesses() {
        if !asked(name, reason) {
            continue;
        }
        let (access, act) = name.rsplit_once(" / ").expect("access / act");
        let Some(site) = sites.get(access) else {
            not_run += 1;
            println!("{name} | NOT RUN: no scenario makes it ({reason})");
            continue;
        };
        let mutant = format!("{}/{act}", site.at());
        let variables = [
            ("LAZYPOOL_MUTANT", &*mutant),
            ("LAZYPOOL_SHUTTLE_SECS", &*seconds),
        ];
        let found = models::first_to_fail(&scenarios, &variables, limit);
        println!("{name} | {found} ({reason})");
    }
    not_run
}

/// How long a model takes (`None`: longer than it may), and the accesses it makes.
fn sites_of(
    model: &Model,
    variables: &[(&str, &str)],
    limit: Duration,
) -> (Option<Duration>, Vec<Site>) {
    let name = format!(
        "sites-{}-{}",
        std::process::id(),
        model.name.replace("::", "-")
    );
    let path = std::env::temp_dir().join(name);
    let start = Instant::now();
    let listing = path.to_str().expect("a plain name");
    let variables = [variables, &[("LAZYPOOL_SITES", listing)]].concat();
    let end = model.run(&variables, limit);
    let takes = match end {
        End::Passed => Some(start.elapsed()),
        End::TimedOut => None,
        End::Failed(said) => panic!("{}, not mutated: {said}", model.name),
    };
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
        match model.run(&[("LAZYPOOL_MUTANT", &mutant)], model.limit()) {
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
        Verdict::NotTried(slow) => format!("not tried: {slow} models, which are not run"),
    };
    let reason = match (verdict, survivors.reason(name)) {
        (Verdict::Killed(..) | Verdict::NotTried(_), _) => String::new(),
        (_, Some(reason)) => format!(" ({reason})"),
        (_, None) => " (unexplained)".to_owned(),
    };
    println!("{} {} | {name} | {what}{reason}", site.at(), site.access);
}
