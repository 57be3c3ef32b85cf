//! Tests that the tables of the protocol page list the code's steps.

use crate::parts::queue::legal_steps as cell_steps;
use crate::parts::slot::{legal_steps as slot_steps, State};

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
fn the_page_says_in_which_states_user_code_runs() {
    let rows = table("<!-- states").into_iter();
    let mut on_page: Vec<_> = rows
        .map(|row| (row[0].clone(), row[1].starts_with("yes")))
        .collect();
    let states = slot_steps().map(|(from, _)| from);
    let mut in_code: Vec<(String, bool)> = states
        .map(|it: State| (format!("{it:?}"), it.runs_user_code()))
        .collect();
    on_page.sort();
    in_code.sort();
    in_code.dedup();
    assert_eq!(on_page, in_code);
}
