//! Tests that the protocol page matches the code: its tables list the code's steps, and its
//! pictures show them.

use crate::parts::queue::legal_steps as cell_steps;
use crate::parts::slot::legal_steps as slot_steps;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("protocol.md");

/// Returns the rows of the table that follows a marker on the page, as words without backquotes.
fn table(marker: &str) -> Vec<Vec<String>> {
    let (_, after) = PAGE.split_once(marker).expect("a marked table");
    let rows = after.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let words = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    rows.map(words).collect()
}

fn steps<S: std::fmt::Debug>(legal: impl Iterator<Item = (S, S)>) -> Vec<(String, String)> {
    legal
        .map(|(from, to)| (format!("{from:?}"), format!("{to:?}")))
        .collect()
}

#[test]
fn the_pages_tables_are_the_codes() {
    let steps_of = |marker: &str| -> Vec<(String, String)> {
        let rows = table(marker).into_iter();
        rows.map(|row| {
            let [from, to, by] = row.try_into().expect("three columns");
            assert_ne!(by, "", "{from} -> {to}: by whom");
            (from, to)
        })
        .collect()
    };
    assert_eq!(steps_of("<!-- slot steps"), steps(slot_steps()));
    assert_eq!(steps_of("<!-- cell steps"), steps(cell_steps()));
}

#[test]
fn every_state_of_a_step_has_a_meaning_on_the_page() {
    let states = |heading: &str| -> Vec<String> {
        let rows = table(heading).into_iter();
        rows.map(|mut row| row.swap_remove(0)).collect()
    };
    for (heading, legal) in [
        ("## A slot's states", steps(slot_steps())),
        ("## A queue cell's states", steps(cell_steps())),
    ] {
        let known = states(heading);
        let mut used: Vec<_> = legal
            .into_iter()
            .flat_map(|(from, to)| [from, to])
            .collect();
        used.sort();
        used.dedup();
        assert!(used.iter().all(|state| known.contains(state)), "{heading}");
        assert_eq!(used.len(), known.len(), "{heading}");
    }
}

/// A column and a row of a picture.
type Point = (usize, usize);
/// Where the name of each state begins.
type Names = [(&'static str, Point)];
/// For each pair of states, the corners of the line between them. The line begins beside the first
/// state and ends beside the second.
type Lines = [(&'static str, &'static str, &'static [Point])];

const SLOT_NAMES: &Names = &[
    ("Free", (1, 2)),
    ("Held", (11, 2)),
    ("Offered", (21, 2)),
    ("Busy", (33, 2)),
    ("Idle", (42, 2)),
    ("Searching", (31, 6)),
    ("Retiring", (32, 9)),
];
const SLOT_LINES: &Lines = &[
    ("Free", "Held", &[(6, 2), (9, 2)]),
    ("Held", "Offered", &[(16, 2), (19, 2)]),
    ("Offered", "Busy", &[(29, 2), (31, 2)]),
    ("Busy", "Idle", &[(38, 2), (40, 2)]),
    ("Idle", "Held", &[(43, 1), (43, 0), (12, 0), (12, 1)]),
    ("Held", "Busy", &[(12, 3), (12, 4), (33, 4), (33, 3)]),
    ("Held", "Searching", &[(12, 3), (12, 6), (29, 6)]),
    ("Busy", "Searching", &[(36, 3), (36, 5)]),
    ("Idle", "Searching", &[(42, 3), (42, 6), (41, 6)]),
    ("Idle", "Retiring", &[(45, 3), (45, 9), (41, 9)]),
    ("Searching", "Retiring", &[(36, 7), (36, 8)]),
    ("Retiring", "Free", &[(30, 9), (2, 9), (2, 3)]),
];
const CELL_NAMES: &Names = &[
    ("Empty", (1, 0)),
    ("Full", (11, 0)),
    ("Held", (21, 0)),
    ("Dead", (30, 0)),
];
const CELL_LINES: &Lines = &[
    ("Empty", "Full", &[(7, 0), (9, 0)]),
    ("Full", "Held", &[(16, 0), (19, 0)]),
    ("Held", "Dead", &[(26, 0), (28, 0)]),
    ("Held", "Empty", &[(22, 1), (22, 2), (3, 2), (3, 1)]),
    ("Dead", "Empty", &[(31, 1), (31, 2), (3, 2), (3, 1)]),
];

/// Returns all points of the line between two states, ordered from `from` to `to`.
fn points(lines: &Lines, from: &str, to: &str) -> Vec<Point> {
    let forth = lines.iter().find(|line| (line.0, line.1) == (from, to));
    let back = lines.iter().find(|line| (line.0, line.1) == (to, from));
    let Some((_, _, corners)) = forth.or(back) else {
        panic!("{from} -> {to} is a new step: give it a line in this file");
    };
    let towards = |x: usize, to: usize| if x < to { x + 1 } else { x.max(to + 1) - 1 };
    let mut points = vec![corners[0]];
    for corner in &corners[1..] {
        while let Some(&(x, y)) = points.last().filter(|last| *last != corner) {
            points.push((towards(x, corner.0), towards(y, corner.1)));
        }
    }
    if forth.is_none() {
        points.reverse();
    }
    points
}

/// Draws the states, and for each step a line with an arrowhead.
fn draw(names: &Names, lines: &Lines, steps: &[(String, String)]) -> String {
    /// The box-drawing characters. The index is the sum of the sides to which the line continues: 1
    /// right, 2 left, 4 down, 8 up.
    const STROKES: &str = " ───│┌┐┬│└┘┴│├┤┼";
    let mut sides: BTreeMap<Point, usize> = BTreeMap::new();
    let mut signs: BTreeMap<Point, char> = BTreeMap::new();
    for (from, to) in steps {
        let points = points(lines, from, to);
        for pair in points.windows(2) {
            let (side, opposite, head) = match (pair[0], pair[1]) {
                (a, b) if a.0 < b.0 => (1, 2, '▶'),
                (a, b) if a.0 > b.0 => (2, 1, '◀'),
                (a, b) if a.1 < b.1 => (4, 8, '▼'),
                _ => (8, 4, '▲'),
            };
            *sides.entry(pair[0]).or_default() |= side;
            *sides.entry(pair[1]).or_default() |= opposite;
            if Some(&pair[1]) == points.last() {
                signs.insert(pair[1], head);
            }
        }
    }
    for (point, sides) in sides {
        let stroke = STROKES.chars().nth(sides).expect("16 strokes");
        signs.entry(point).or_insert(stroke);
    }
    for (name, (x, y)) in names {
        signs.extend(
            name.chars()
                .enumerate()
                .map(|(n, sign)| ((x + n, *y), sign)),
        );
    }
    let (columns, rows) = signs.keys().fold((0, 0), |end, point| {
        (end.0.max(point.0), end.1.max(point.1))
    });
    let row = |y| -> String {
        let row = (0..=columns).map(|x| signs.get(&(x, y)).copied().unwrap_or(' '));
        row.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..=rows).map(row).collect()
}

#[test]
fn the_pages_pictures_show_the_codes_steps() {
    for (marker, drawn) in [
        (
            "<!-- slot picture",
            draw(SLOT_NAMES, SLOT_LINES, &steps(slot_steps())),
        ),
        (
            "<!-- cell picture",
            draw(CELL_NAMES, CELL_LINES, &steps(cell_steps())),
        ),
    ] {
        let (_, after) = PAGE.split_once(marker).expect("a marked picture");
        let after = after.split_once("```text\n").expect("a block").1;
        let on_page = after.split_once("```").expect("its end").0;
        assert!(
            on_page == drawn,
            "the steps have changed: after `{marker}` in src/engine/protocol.md put\n{drawn}"
        );
    }
}
