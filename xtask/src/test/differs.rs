//! Deliberate differences from Karpenter and kube-scheduler: each is in the code and in `docs/compatibility.md`.
//!
//! A comment of a crate says ``Differs: `key`.`` or several keys with commas between them; a key is the last cell of
//! one row of the table. The switches of `dra-sched`'s `Quirks` are keys too. A row without a key is about something
//! that has no one place in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};

use super::sources;

const TABLE: &str = "docs/compatibility.md";
const QUIRKS: &str = "crates/dra-sched/src/quirks.rs";
const MARK: &str = "Differs:";

/// Fewer keys than this in the code, and they were not found rather than removed.
const LEAST: usize = 40;

pub(crate) fn check() -> Result<()> {
    let root = go_programs::repository();
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"));
    let mut in_code = BTreeMap::new();
    let mut faults = Vec::new();
    for file in sources::rust_files(&root.join("crates"))? {
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        for (line, keys) in marks(&read(&shown)?) {
            if keys.is_empty() {
                faults.push(format!("{shown}:{line}: {MARK} names no key, see the last column of {TABLE}"));
            }
            in_code.extend(keys.into_iter().map(|key| (key, format!("{shown}:{line}"))));
        }
    }
    in_code.extend(switches(&read(QUIRKS)?).into_iter().map(|key| (key, QUIRKS.to_owned())));
    faults.extend(differences(&in_code, &keys_of_rows(&read(TABLE)?)));
    faults.iter().for_each(|fault| println!("{fault}"));
    println!("{} passed, {} failed", in_code.len(), faults.len());
    if !faults.is_empty() {
        bail!("{} differences are not told as they should be", faults.len());
    }
    if in_code.len() < LEAST {
        bail!("only {} keys were found in the code", in_code.len());
    }
    Ok(())
}

/// Keys in the code without a row, rows whose key is not in the code, keys of several rows.
fn differences(in_code: &BTreeMap<String, String>, rows: &[String]) -> Vec<String> {
    let in_table: BTreeSet<&String> = rows.iter().collect();
    let without_row = in_code.iter().filter(|(key, _)| !in_table.contains(key));
    let mut faults: Vec<String> =
        without_row.map(|(key, place)| format!("{place}: {TABLE} has no row with the key `{key}`")).collect();
    let stale = in_table.iter().filter(|key| !in_code.contains_key(**key));
    faults.extend(stale.map(|key| format!("{TABLE}: no code says {MARK} `{key}`")));
    let twice = in_table.iter().filter(|key| rows.iter().filter(|row| row == *key).count() > 1);
    faults.extend(twice.map(|key| format!("{TABLE}: several rows have the key `{key}`")));
    faults
}

/// The marks in a source file, with their line numbers and keys. Text in backticks is about the mark.
fn marks(source: &str) -> Vec<(usize, Vec<String>)> {
    let comments: Vec<Option<&str>> = source.lines().map(comment).collect();
    let mut found = Vec::new();
    for (index, line) in comments.iter().enumerate() {
        let Some(line) = line else { continue };
        for (start, _) in line.match_indices(MARK) {
            if line[..start].ends_with('`') {
                continue;
            }
            // The keys may go on in the next line of the comment.
            let next = comments.get(index + 1).copied().flatten().unwrap_or_default();
            found.push((index + 1, keys(&format!("{} {next}", &line[start + MARK.len()..]))));
        }
    }
    found
}

/// The text of a comment.
fn comment(line: &str) -> Option<&str> {
    let (code, comment) = line.split_once("//")?;
    // A quotation mark before it: more likely a text with slashes in it.
    if code.contains('"') { None } else { Some(comment.trim_start_matches(['/', '!']).trim()) }
}

/// Names in backticks with commas between them, and a full stop after the last.
fn keys(text: &str) -> Vec<String> {
    let Some((names, _)) = text.split_once("`.") else { return Vec::new() };
    let names: Option<Vec<&str>> = names.trim().strip_prefix('`').map(|names| names.split("`, `").collect());
    let is_key =
        |name: &&str| !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || "-_".contains(it));
    let names = names.unwrap_or_default();
    if names.iter().all(is_key) { names.into_iter().map(str::to_owned).collect() } else { Vec::new() }
}

/// The fields of the struct of quirks.
fn switches(source: &str) -> Vec<String> {
    let fields = source.lines().filter_map(|line| line.trim().strip_prefix("pub(crate) ")?.strip_suffix(": bool,"));
    fields.map(str::to_owned).collect()
}

/// The keys in the last cells of a table.
fn keys_of_rows(table: &str) -> Vec<String> {
    let rows = table.lines().filter(|line| line.starts_with("| "));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last.filter_map(|cell| Some(cell.trim().strip_prefix('`')?.strip_suffix('`')?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_code(source: &str) -> BTreeMap<String, String> {
        let marks = marks(source).into_iter();
        marks.flat_map(|(line, keys)| keys.into_iter().map(move |key| (key, format!("a.rs:{line}")))).collect()
    }

    #[test]
    fn marks_name_their_keys_on_this_line_and_the_next() {
        let source =
            "//! As upstream. Differs: `one`. Here it ends.\nlet a = 1; // Differs: `two`,\n// `three`. And so on.\n";
        assert_eq!(marks(source), [(1, vec!["one".to_owned()]), (2, vec!["two".to_owned(), "three".to_owned()])]);
    }

    #[test]
    fn a_mark_without_a_key_is_found_and_talk_about_marks_is_not_one() {
        assert_eq!(marks("/// Differs: upstream has `no` limit.\n"), [(1, Vec::new())]);
        assert_eq!(marks("/// A `Differs:` in the code.\nlet a = \"// Differs: x\";\n"), []);
    }

    #[test]
    fn a_difference_without_a_row_and_a_row_without_a_difference_are_faults() {
        let table = "| area | why | key |\n|---|---|---|\n| a | b | `one` |\n| c | d | |\n| e | f | `old` |\n";
        let rows = keys_of_rows(table);
        assert_eq!(rows, ["one", "old"]);
        let faults = differences(&in_code("// Differs: `one`. A.\n// Differs: `two`. B.\n"), &rows);
        assert_eq!(
            faults,
            [
                "a.rs:2: docs/compatibility.md has no row with the key `two`",
                "docs/compatibility.md: no code says Differs: `old`"
            ]
        );
    }

    #[test]
    fn switches_of_quirks_are_keys() {
        assert_eq!(switches("    pub(crate) forgets: bool,\n    pub(crate) fn of() {}\n"), ["forgets"]);
    }
}
