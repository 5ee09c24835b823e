//! Runs cargo-deny on `deny.toml`; installs it once, into the user's cache folder, at a fixed version.
//!
//! The database of advisories comes from a server other than crates.io's. Where it cannot be had, a line says that
//! advisories were not looked at, and the rest counts.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process::{cargo, command, run};

const VERSION: &str = "0.20.2";
const CHECK: [&str; 3] = ["--all-features", "check", "--hide-inclusion-graph"];

pub(crate) fn check() -> Result<()> {
    let program = install()?;
    let deny = || command(&program.to_string_lossy());
    run(deny().args(CHECK).args(["bans", "licenses", "sources"]))?;
    let fetched = deny().args(["fetch", "db"]).output().context("run cargo-deny")?;
    if fetched.status.success() {
        run(deny().args(CHECK).args(["--disable-fetch", "advisories"]))?;
        println!("4 passed, 0 failed");
    } else {
        let said = String::from_utf8_lossy(&fetched.stderr).trim().replace('\n', " ");
        println!("SKIPPED: advisories, whose database cannot be had here: {said}");
        println!("3 passed, 0 failed");
    }
    Ok(())
}

fn install() -> Result<PathBuf> {
    let root = go_programs::cache_folder()
        .context("no cache folder: set XDG_CACHE_HOME or HOME")?
        .join(format!("cargo-deny-{VERSION}"));
    let program = root.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        println!("installing cargo-deny {VERSION} into {}; this takes a few minutes, once", root.display());
        // A dev build: it runs for a second, and optimizing it would take longer than all its runs.
        run(cargo(["install", "--debug", "--locked", "--root"]).arg(&root).arg(format!("cargo-deny@{VERSION}")))?;
    }
    Ok(program)
}
