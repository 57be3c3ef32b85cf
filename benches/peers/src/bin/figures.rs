//! Draws the figures of the README and the guides from the files of their runs.
//!
//! ```text
//! cargo run --release -p peers --bin goodput -- benches/goodput.tsv
//! cargo run --release -p service --example states -- 120 benches/states.tsv
//! cargo run --release -p peers --bin figures
//! ```
//!
//! A figure has no background, and colors that one can see on white and on black. Rustdoc copies no
//! files. So beside each `NAME.svg`, this program writes `NAME.md` with the figure in a URL: a page of
//! the docs includes it in front of its text, and there it wins over the text's own reference to
//! the file, which is for a reader of the repository.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Done = Result<(), Box<dyn Error>>;
type Points = Vec<(f64, f64)>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const GRAY: RGBColor = RGBColor(0x7d, 0x7d, 0x7d);
const GRID: RGBAColor = RGBAColor(0x7d, 0x7d, 0x7d, 0.25);
const GREEN: RGBColor = RGBColor(0x1f, 0x9d, 0x55);
const BLUE: RGBColor = RGBColor(0x3b, 0x82, 0xd6);
const ORANGE: RGBColor = RGBColor(0xd9, 0x77, 0x06);
const PURPLE: RGBColor = RGBColor(0x9b, 0x59, 0xd0);
const RED: RGBColor = RGBColor(0xd6, 0x45, 0x45);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the fields of each line of a file in `benches`.
fn lines(file: &str) -> Result<Vec<Vec<String>>, Box<dyn Error>> {
    let path = repository().join("benches").join(file);
    let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let fields = lines.map(|line| line.split('\t').map(str::to_owned).collect());
    Ok(fields.collect())
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&GRAY)
}

/// Draws the axes of a chart: a grid, and labels in gray, with their units.
fn axes(chart: &mut Chart<'_, '_>, names: [&str; 2], units: [&'static str; 2], size: i32) -> Done {
    let label = |unit: &'static str| move |x: &f64| format!("{} {unit}", (x * 10.0).round() / 10.0);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRAY)
        .label_style(text(size))
        .axis_desc_style(text(size))
        .x_desc(names[0])
        .y_desc(names[1])
        .x_labels(7)
        .y_labels(5)
        .x_label_formatter(&label(units[0]))
        .y_label_formatter(&label(units[1]))
        .draw()?;
    Ok(())
}

/// Goodput over offered load, by contender.
fn goodput(to: &Path) -> Done {
    let mut curves: Vec<(String, Points)> = Vec::new();
    for line in lines("goodput.tsv")? {
        let numbers: Result<Vec<f64>, _> = line[1..].iter().map(|x| x.parse()).collect();
        let numbers = numbers?;
        let median = numbers[1 + (numbers.len() - 1) / 2]; // the rounds are in order
        if curves.last().is_none_or(|(name, _)| *name != line[0]) {
            curves.push((line[0].clone(), Vec::new()));
        }
        let (_, points) = curves.last_mut().ok_or("no curve")?;
        points.push((numbers[0], median));
    }
    let area = SVGBackend::new(to, (760, 400)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..300.0, 0.0..105.0)?;
    let load = "offered load, in percent of what the workers can do";
    axes(&mut chart, [load, "answers in time"], ["%", "%"], 15)?;
    let styles = [(GREEN, 3), (BLUE, 4), (PURPLE, 6), (ORANGE, 7), (RED, 9)];
    let curves: Vec<_> = curves.into_iter().zip(styles).collect();
    for ((name, _), (color, width)) in &curves {
        let style = color.stroke_width((*width).min(5));
        chart
            .draw_series(LineSeries::new(Vec::new(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    // The last one in the legend is the widest and at the bottom, so that one can see all of them
    // where they are the same.
    for ((_, points), (color, width)) in curves.into_iter().rev() {
        chart.draw_series(LineSeries::new(points, color.stroke_width(width)))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::Coordinate(300, 120))
        .label_font(text(15))
        .border_style(TRANSPARENT)
        .background_style(TRANSPARENT)
        .draw()?;
    area.present()?;
    Ok(())
}

/// Returns a column of the lines of one service in the course of time.
fn column(lines: &[Vec<String>], service: &str, column: usize) -> Result<Points, Box<dyn Error>> {
    let mut points = Vec::new();
    for line in lines.iter().filter(|line| line[1] == service) {
        points.push((line[0].parse()?, line[column].parse()?));
    }
    Ok(points)
}

/// Returns the share of submissions that failed in the last ten seconds, in percent.
fn failed(lines: &[Vec<String>], service: &str) -> Result<Points, Box<dyn Error>> {
    let mut counters = Vec::new();
    for number in 2..6 {
        counters.push(column(lines, service, number)?);
    }
    let seconds = 10;
    let share = |i: usize| {
        let grown = |n: usize| counters[n][i].1 - counters[n][i - seconds].1;
        let [accepted, refused, expired, late] = [0, 1, 2, 3].map(grown);
        let failed = (refused + expired + late) / (accepted + refused);
        (counters[0][i].0, 100.0 * failed.min(1.0))
    };
    Ok((seconds..counters[0].len()).map(share).collect())
}

/// Four panels of the dashboard for each of four services.
fn dashboard(to: &Path) -> Done {
    let lines = lines("states.tsv")?;
    let last: f64 = lines.last().ok_or("no lines")?[0].parse()?;
    let services = ["healthy", "slow", "overloaded", "hung"];
    let panels = [
        ("Failed", 105.0, "%", GREEN),
        ("Lost workers", 4.4, "", RED),
        ("Longest running task", last, "s", ORANGE),
        ("Oldest queued task", 0.3, "s", BLUE),
    ];
    let area = SVGBackend::new(to, (960, 620)).into_drawing_area();
    let cells = area.split_evenly((panels.len(), services.len()));
    for (row, (title, top, unit, color)) in panels.into_iter().enumerate() {
        for (at, service) in services.into_iter().enumerate() {
            let points = match title {
                "Failed" => failed(&lines, service)?,
                "Lost workers" => column(&lines, service, 6)?,
                "Longest running task" => column(&lines, service, 7)?,
                _ => column(&lines, service, 8)?,
            };
            let mut chart = ChartBuilder::on(&cells[row * services.len() + at])
                .margin(6)
                .caption(format!("{service}: {}", title.to_lowercase()), text(14))
                .x_label_area_size(20)
                .y_label_area_size(46)
                .build_cartesian_2d(0.0..last, 0.0..top)?;
            axes(&mut chart, ["", ""], ["s", unit], 12)?;
            chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
        }
    }
    area.present()?;
    Ok(())
}

/// Returns the definition of the reference `[NAME-figure]`, with the figure in its URL.
fn reference(name: &str, figure: &str) -> String {
    let mut url = String::new();
    for char in figure.chars() {
        match char {
            '\n' => url.push(' '),
            '<' | '>' | '#' | '%' | '"' | '\\' | '&' => url += &format!("%{:02X}", u32::from(char)),
            _ => url.push(char),
        }
    }
    format!("[{name}-figure]: <data:image/svg+xml,{}>\n", url.trim_end())
}

fn main() -> Done {
    let figures = repository().join("src/docs/figures");
    goodput(&figures.join("goodput.svg"))?;
    dashboard(&figures.join("dashboard.svg"))?;
    for name in ["goodput", "dashboard", "pool"] {
        let figure = fs::read_to_string(figures.join(name).with_extension("svg"))?;
        let to = figures.join(name).with_extension("md");
        fs::write(to, reference(name, &figure))?;
    }
    Ok(())
}
