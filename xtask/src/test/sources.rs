//! Which sources there are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{command, output};

/// Rust sources below a folder, without files and folders that hold only tests.
pub(crate) fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default();
        if stem == "tests" {
            continue;
        }
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All files of the repository, from its top; with those that are not committed yet, so that a commit that moves or
/// adds one can be checked before it is made.
pub(super) fn all_files(repository: &Path) -> Result<Vec<String>> {
    let listed = output(command("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    Ok(listed.lines().filter(|file| repository.join(file).exists()).map(str::to_owned).collect())
}
