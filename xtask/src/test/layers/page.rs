//! `ARCHITECTURE.md` names files and folders; each of them is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::test::sources::all_files;

const PAGE: &str = "ARCHITECTURE.md";

/// What the page names and the repository does not have, with its line.
pub(super) fn missing_paths(repository: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(repository.join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let files = all_files(repository)?;
    let ends = ends(&files);
    let missing = named(&text).into_iter().filter(|(_, path)| !ends.contains(*path));
    Ok(missing.map(|(line, path)| format!("{PAGE}:{line}: there is no {path}; name it where it is now")).collect())
}

/// The paths in backticks outside of code blocks, with their lines. A path has a slash or ends like a file.
fn named(page: &str) -> Vec<(usize, &str)> {
    let lines = page.lines().enumerate().filter(|(_, line)| !line.starts_with("    "));
    let quoted = lines.flat_map(|(index, line)| line.split('`').skip(1).step_by(2).map(move |text| (index + 1, text)));
    quoted.filter(|(_, text)| is_path(text)).map(|(line, text)| (line, text.trim_end_matches('/'))).collect()
}

fn is_path(text: &str) -> bool {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    let is_file = [".rs", ".md", ".toml"].iter().any(|end| text.ends_with(end));
    text.chars().all(is_part) && (text.contains('/') || is_file)
}

/// Every way to name a file or one of its folders: by its whole path, or by the end of it, without `.rs` if one likes.
fn ends(files: &[String]) -> BTreeSet<&str> {
    let mut ends = BTreeSet::new();
    let folders = files.iter().flat_map(|file| file.match_indices('/').map(|(at, _)| &file[..at]));
    let stems = files.iter().filter_map(|file| file.strip_suffix(".rs"));
    for path in files.iter().map(String::as_str).chain(stems).chain(folders) {
        ends.insert(path);
        ends.extend(path.match_indices('/').map(|(at, _)| &path[at + 1..]));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_from_words_flags_and_drawings() {
        let page = "See `docs/a.md`, `b.rs` and `crds/`; `karpenter.sh`, `plan --check x/y`.\n\n    `c/d` in a drawing\n`e/f`\n";
        assert_eq!(named(page), [(1, "docs/a.md"), (1, "b.rs"), (1, "crds"), (4, "e/f")]);
    }

    #[test]
    fn the_end_of_a_path_names_a_file_a_module_or_a_folder_and_part_of_a_name_does_not() {
        let files = ["crates/x/src/plan/reason.rs", "crds/a.yaml"].map(str::to_owned);
        let ends = ends(&files);
        for path in ["crates/x/src/plan/reason.rs", "reason.rs", "plan/reason", "src/plan", "crds", "a.yaml"] {
            assert!(ends.contains(path), "{path}");
        }
        for path in ["eason.rs", "plan/reason/x.rs", "crates/plan", "lan"] {
            assert!(!ends.contains(path), "{path}");
        }
    }
}
