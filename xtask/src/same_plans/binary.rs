//! The binaries that are compared: given, or built of a revision.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{build_by, cargo, command, output, run, target_folder};

/// What is optimized, a little: our own crates but for the shell, and those of others in which most commands spend
/// their time. The rest is as tests have it, so that it is there already. All of it would compile for much longer, and
/// with nothing optimized the questions would take most of an hour.
const OPTIMIZED: [&str; 10] = [
    "antlr4rust",
    "cel",
    "granit-parser",
    "kube-cel",
    "libmimalloc-sys",
    "mimalloc",
    "regex",
    "regex-automata",
    "regex-syntax",
    "serde-saphyr",
];

/// A binary by its path, or by the revision of which it is built below the folder. One that was built is kept.
pub(super) fn of(text: &str, folder: &Path) -> Result<PathBuf> {
    if Path::new(text).is_file() {
        return fs::canonicalize(text).with_context(|| format!("find {text}"));
    }
    let commit =
        output(command("git").args(["rev-parse", "--verify", "--end-of-options"]).arg(format!("{text}^{{commit}}")))
            .with_context(|| format!("{text} is neither a file nor a revision"))?;
    let commit = commit.trim();
    let kept = folder.join("built").join(commit).join("dovetail");
    if !kept.is_file() {
        let built = build(commit, &folder.join("source"))?;
        let parent = kept.parent().context("the path has several parts")?;
        fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        fs::copy(&built, &kept).with_context(|| format!("copy {}", built.display()))?;
    }
    Ok(kept)
}

/// Builds in a worktree that all revisions share, so that Cargo compiles only what differs between them.
fn build(commit: &str, worktree: &Path) -> Result<PathBuf> {
    if worktree.exists() {
        run(command("git").arg("-C").arg(worktree).args(["checkout", "--quiet", "--force", "--detach", commit]))?;
    } else {
        run(command("git").args(["worktree", "add", "--quiet", "--force", "--detach"]).arg(worktree).arg(commit))?;
    }
    eprintln!("building dovetail of {commit}");
    // The whole workspace's features, as tests have them, for the sake of the dependencies.
    let mut build = cargo(["build", "--workspace", "--bin=dovetail", "--message-format=json-render-diagnostics"]);
    let levels = [("*", 0), ("provisioner", 0)].into_iter().chain(OPTIMIZED.map(|package| (package, 1)));
    build.args(["--config", "profile.dev.opt-level=1"]);
    build.args(levels.flat_map(|(package, level)| {
        ["--config".to_owned(), format!("profile.dev.package.\"{package}\".opt-level={level}")]
    }));
    build.current_dir(worktree).env("CARGO_TARGET_DIR", target_folder()?);
    build_by(&mut build, "dovetail")
}
