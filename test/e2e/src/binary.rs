//! The `dovetail` binary under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};

use crate::scratch::Scratch;

/// Names a binary to test in place of the one built from this checkout.
const OVERRIDE: &str = "DOVETAIL_BIN";

/// The controller with failpoints compiled in, built once in this process if it is not up to date.
///
/// # Errors
/// If it does not compile: tests fail then, they are not skipped.
pub fn with_failpoints() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<(Scratch, PathBuf), String>> = OnceLock::new();
    BUILT
        .get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map(|(_, path)| path.as_path())
        .map_err(|error| anyhow!("{error}"))
}

fn build() -> Result<(Scratch, PathBuf)> {
    let scratch = Scratch::new("binary")?;
    if let Some(path) = std::env::var_os(OVERRIDE) {
        return Ok((scratch, path.into()));
    }
    // All packages' features, as in `cargo test --workspace`, so that dependencies are not compiled a second time.
    let output = go_programs::cargo()
        .args(["build", "--workspace", "--bin", "dovetail", "--features", "provisioner/failpoints"])
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    if !output.status.success() {
        bail!("building dovetail: cargo ended with {}", output.status);
    }
    let built = executable(&String::from_utf8_lossy(&output.stdout)).context("cargo named no executable")?;
    // Under a name of our own, because the next build of any kind replaces that file.
    let ours = scratch.path().join("dovetail");
    if fs::hard_link(&built, &ours).is_err() {
        fs::copy(&built, &ours).with_context(|| format!("copy {}", built.display()))?;
    }
    Ok((scratch, ours))
}

/// The executable in Cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .find_map(|message| message.executable)
}
