//! Tests that the protocol page matches the code: its tables list the code's steps, and its
//! pictures show them.

use crate::parts::queue::legal_steps as cell_steps;
use crate::parts::slot::legal_steps as slot_steps;
use std::collections::BTreeSet;

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

/// The four directions: a bit, and the sign of a line that ends in this direction.
const SIDES: [(usize, char); 4] = [(1, '▶'), (2, '◀'), (4, '▼'), (8, '▲')];

/// Returns the directions in which the line continues from a sign: the sum of their bits.
fn sides(sign: char) -> usize {
    /// The sign whose index is the sum.
    const STROKES: &str = "   ─ ┌┐┬ └┘┴│├┤┼";
    match sign {
        ' ' => 0,
        '▶' | '◀' => 1 + 2,
        '▼' | '▲' => 4 + 8,
        _ => STROKES.chars().position(|s| s == sign).unwrap_or(0),
    }
}

fn next((x, y): Point, side: usize) -> Point {
    match side {
        1 => (x + 1, y),
        2 => (x.wrapping_sub(1), y),
        4 => (x, y + 1),
        _ => (x, y.wrapping_sub(1)),
    }
}

/// Returns the steps that a picture shows. A line leads from the states at its plain ends to those
/// at its arrowheads. If it has arrowheads only, it leads from each of them to the others.
fn shown(picture: &str) -> Vec<(String, String)> {
    let rows: Vec<Vec<char>> = picture.lines().map(|row| row.chars().collect()).collect();
    let at = |(x, y): Point| *rows.get(y).and_then(|row| row.get(x)).unwrap_or(&' ');
    let name = |mut point: Point, side: usize| {
        point = next(point, side);
        if side < 4 {
            point = next(point, side); // a space is between a state and a line beside it
        }
        while at(next(point, 2)).is_alphabetic() {
            point = next(point, 2);
        }
        let letters = rows
            .get(point.1)
            .into_iter()
            .flat_map(|row| &row[point.0..]);
        let name: String = letters.take_while(|sign| sign.is_alphabetic()).collect();
        assert_ne!(name, "", "a line ends beside {point:?}");
        name
    };
    let mut seen = BTreeSet::new();
    let mut steps = Vec::new();
    let points = (0..rows.len()).flat_map(|y| (0..rows[y].len()).map(move |x| (x, y)));
    for first in points.filter(|point| sides(at(*point)) != 0) {
        let mut open: Vec<Point> = seen.insert(first).then_some(first).into_iter().collect();
        let mut ends = Vec::new();
        while let Some(point) = open.pop() {
            for (side, head) in SIDES
                .into_iter()
                .filter(|(side, _)| sides(at(point)) & side != 0)
            {
                let next = next(point, side);
                if sides(at(next)) == 0 {
                    ends.push((name(point, side), at(point) == head));
                } else if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        let is_plain = |(_, is_head): &&(String, bool)| !is_head;
        let plain: Vec<_> = ends.iter().filter(is_plain).collect();
        let from = if plain.is_empty() {
            ends.iter().collect()
        } else {
            plain
        };
        for (from, _) in from {
            let to = ends.iter().filter(|(to, is_head)| *is_head && to != from);
            steps.extend(to.map(|(to, _)| (from.clone(), to.clone())));
        }
    }
    steps.sort();
    steps
}

#[test]
fn the_pages_pictures_show_the_codes_steps() {
    for (marker, mut expected) in [
        ("<!-- slot picture", steps(slot_steps())),
        ("<!-- cell picture", steps(cell_steps())),
    ] {
        let (_, after) = PAGE.split_once(marker).expect("a marked picture");
        let after = after.split_once("```text\n").expect("a block").1;
        let picture = after.split_once("```").expect("its end").0;
        expected.sort();
        assert_eq!(shown(picture), expected, "the picture after `{marker}`");
    }
}
