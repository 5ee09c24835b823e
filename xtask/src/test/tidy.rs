//! What a formatter leaves to people: how long lines of comments and pages are, and heads that lean on their neighbour.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::sources::all_files;

/// As `rustfmt.toml` has it for code.
const COMMENT_COLUMNS: usize = 120;
/// What a page's source may have. Tables, code and lines that are one long word are as long as they have to be.
const PAGE_COLUMNS: usize = 160;
/// Who reads an item alone does not know what it is the same as.
const LEANING: &str = "The same";

/// Checks comments and pages. Says how many lines were looked at.
pub(super) fn check() -> Result<usize> {
    let repository = go_programs::repository();
    let (mut lines, mut faults) = (0, Vec::new());
    for file in all_files(repository)? {
        let found = match Path::new(&file).extension().and_then(|it| it.to_str()) {
            Some("rs") => comments as fn(&str) -> Vec<(usize, String)>,
            Some("md") => page,
            _ => continue,
        };
        let text = fs::read_to_string(repository.join(&file)).with_context(|| format!("read {file}"))?;
        lines += text.lines().count();
        faults.extend(found(&text).into_iter().map(|(line, what)| format!("{file}:{line}: {what}")));
    }
    if faults.is_empty() {
        return Ok(lines);
    }
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    bail!("{} comments or pages are not tidy", faults.len())
}

/// What is wrong with the comments of a source file, by line.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut before = "";
    for (number, line) in (1..).zip(text.lines()) {
        let (whole, before) = (line.trim_start(), std::mem::replace(&mut before, line.trim_start()));
        let Some(said) = whole.strip_prefix("//") else { continue };
        let columns = line.chars().count();
        // A path or an address is not broken.
        if columns > COMMENT_COLUMNS && said.trim().contains(' ') {
            faults.push((number, format!("a comment of {columns} columns, {COMMENT_COLUMNS} are allowed")));
        }
        let said = said.strip_prefix(['/', '!']).map(str::trim_start);
        let is_head = !before.starts_with("//");
        if is_head && said.is_some_and(|said| said.split_once(LEANING).is_some_and(|(head, _)| head.is_empty())) {
            faults.push((number, format!("says {LEANING:?} first; say what it is")));
        }
    }
    faults
}

/// What is wrong with a page, by line.
fn page(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let columns = line.chars().count();
        is_code ^= line.trim_start().starts_with("```");
        let is_free = is_code || line.starts_with("    ") || line.trim_start().starts_with('|');
        if columns > PAGE_COLUMNS && !is_free && line.trim().contains(' ') {
            faults.push((number, format!("a line of {columns} columns, {PAGE_COLUMNS} are allowed")));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(faults: Vec<(usize, String)>) -> Vec<usize> {
        faults.into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn long_comments_and_heads_that_lean_on_others_are_found_and_code_is_left_to_the_formatter() {
        let long = "word ".repeat(30);
        let text = format!("// {long}\nlet a = \"{long}\";\n/// {LEANING} for b.\n/// {LEANING} in a second line.\n");
        assert_eq!(lines(comments(&text)), [1, 3]);
        assert!(comments(&format!("// {}\n//! Short.\n", "x".repeat(200))).is_empty());
    }

    #[test]
    fn long_lines_of_a_page_are_found_but_for_tables_and_code() {
        let long = "word ".repeat(40);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\n    {long}\n* {long}\n");
        assert_eq!(lines(page(&text)), [1, 7]);
    }
}
