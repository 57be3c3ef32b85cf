//! Pictures of tables: a dot for the median, a line from the smallest round to
//! the largest, on a logarithmic scale.

use crate::harness::{figure, Kind, Table};
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// The workloads that are drawn.
const DRAWN: &[&str] = &[
    "timed/1c",
    "timed/2c",
    "queue/tiny/1p/24B",
    "refusal",
    "burst/64",
    "group/1024",
    "latency/timed/60%",
];

/// Writes a picture of every table that is worth one; returns their number.
pub(crate) fn write(dir: &Path, tables: &[Table]) -> io::Result<usize> {
    fs::create_dir_all(dir)?;
    let mut files = 0;
    for table in tables {
        if DRAWN.contains(&table.workload.as_str()) {
            let name = table.workload.replace('/', "-").replace('%', "");
            fs::write(dir.join(name).with_extension("svg"), picture(table))?;
            files += 1;
        }
    }
    Ok(files)
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 58.0;
const LINE: f64 = 24.0;

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Breaks the title where it no longer fits.
fn wrapped(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if last.len() + word.len() > 100 {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

fn picture(table: &Table) -> String {
    let mut rows: Vec<_> = table.rows.iter().filter(|r| r.value.median > 0.0).collect();
    rows.sort_by(|a, b| a.value.median.total_cmp(&b.value.median));
    let lowest = rows
        .iter()
        .map(|r| r.value.min)
        .fold(f64::INFINITY, f64::min);
    let highest = rows.iter().map(|r| r.value.max).fold(1.0, f64::max);
    let first = lowest.max(0.1).log10().floor();
    let last = highest.log10().ceil().max(first + 1.0);
    let x = |value: f64| {
        let part = (value.max(0.1).log10() - first) / (last - first);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    };
    let title = wrapped(&table.title);
    let top = TOP + 16.0 * (title.len() - 1) as f64;
    let bottom = top + LINE * rows.len() as f64;
    let height = bottom + 34.0;

    let mut svg = String::new();
    let mut put = |line: String| {
        svg.push_str(&line);
        svg.push('\n');
    };
    put(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">"
    ));
    put(String::from(STYLE));
    put(format!(
        "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>"
    ));
    for (i, line) in title.iter().enumerate() {
        let y = 20.0 + 16.0 * i as f64;
        put(format!(
            "<text class=\"ink\" x=\"12\" y=\"{y}\" font-weight=\"bold\">{}</text>",
            escaped(line)
        ));
    }
    put(format!(
        "<text class=\"faint\" x=\"12\" y=\"{:.0}\" font-size=\"11\">{}; less is better; \
         logarithmic; median, smallest and largest round</text>",
        top - 22.0,
        escaped(table.unit)
    ));
    for power in first as i32..=last as i32 {
        let at = x(10_f64.powi(power));
        put(format!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
        ));
        put(format!(
            "<text class=\"faint\" x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\" \
             font-size=\"11\">{}</text>",
            bottom + 18.0,
            tick(power)
        ));
    }
    for (i, row) in rows.iter().enumerate() {
        let y = top + LINE * (i as f64 + 0.5);
        let class = match row.kind {
            Kind::Ours => "ours",
            Kind::Peer => "peer",
            Kind::Limit => "limit",
        };
        put(format!(
            "<text class=\"{class}\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            y + 4.0,
            escaped(row.name)
        ));
        put(format!(
            "<line class=\"{class} span\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
            x(row.value.min),
            x(row.value.max)
        ));
        put(format!(
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"/>",
            x(row.value.median)
        ));
        put(format!(
            "<text class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(row.value.max) + 12.0,
            y + 4.0,
            figure(row.value.median)
        ));
    }
    let _ = writeln!(svg, "</svg>");
    svg
}

/// 10 to the given power, for an axis.
fn tick(power: i32) -> String {
    if power < 1 {
        format!("{}", 10_f64.powi(power))
    } else {
        let digits = format!("1{}", "0".repeat(power as usize));
        let mut out = String::new();
        for (i, c) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i) % 3 == 0 {
                out.push(',');
            }
            out.push(c);
        }
        out
    }
}

/// Both on light and on dark pages.
const STYLE: &str = "<style>\
.paper{fill:#fff}.ink{fill:#1f2328}.faint{fill:#656d76}.grid{stroke:#d8dee4}\
.ours{fill:#cf222e;stroke:none}.peer{fill:#57606a;stroke:none}.limit{fill:#8c959f;stroke:none}\
.span{stroke-width:2;stroke-opacity:.6}\
line.ours{stroke:#cf222e}line.peer{stroke:#57606a}line.limit{stroke:#8c959f}\
text.ours{font-weight:bold}text.limit{font-style:italic}\
@media (prefers-color-scheme:dark){\
.paper{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#8b949e}.grid{stroke:#30363d}\
.ours{fill:#ff7b72}.peer{fill:#b1bac4}.limit{fill:#8b949e}\
line.ours{stroke:#ff7b72}line.peer{stroke:#b1bac4}line.limit{stroke:#8b949e}}\
</style>";
