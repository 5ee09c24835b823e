//! Test data that is not part of the repository: objects that others published, and cases recorded on real servers.
//!
//! `DOVETAIL_CORPUS` is the folder that holds them; by default it is `shared` beside the repository. A clone alone does
//! not have it, so tests that read it pass without it. Each of them says in one line what it read or that it was
//! skipped. The test runner shows to nobody what a passing test prints, so the line also goes into a file below the
//! folder that `DOVETAIL_TEST_NOTES` names, and `cargo xtask test` prints these lines when a stage ends.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The folder with the data.
pub const FOLDER: &str = "DOVETAIL_CORPUS";

/// The folder for the lines of tests, a file for each.
pub const NOTES: &str = "DOVETAIL_TEST_NOTES";

/// A file or folder of the data; none, and a line that says so, where it is absent.
///
/// # Panics
/// The line cannot be written where it is wanted.
#[must_use]
pub fn open(test: &str, path: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os(FOLDER).map_or_else(beside, PathBuf::from);
    let found = root.join(path);
    if found.exists() {
        return Some(found);
    }
    note(test, &format_args!("SKIPPED, there is no {path} in {}", root.display()));
    None
}

/// The lines of a folder's `index.jsonl`: what each of its files holds, and what a server said of it.
///
/// # Panics
/// The index cannot be read, or a line is not such an entry.
#[must_use]
pub fn index<T: DeserializeOwned>(folder: &Path) -> Vec<T> {
    let path = folder.join("index.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    let entry = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
    text.lines().map(entry).collect()
}

/// Says in one line what a test read.
///
/// # Panics
/// The line cannot be written where it is wanted.
pub fn note(test: &str, read: &dyn Display) {
    let line = format!("{test}: {read}");
    println!("{line}");
    if let Some(folder) = std::env::var_os(NOTES) {
        let file = Path::new(&folder).join(test.replace(|it: char| !it.is_ascii_alphanumeric(), "-"));
        if let Err(error) = std::fs::write(&file, format!("{line}\n")) {
            panic!("write {}: {error}", file.display());
        }
    }
}
