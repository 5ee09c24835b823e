//! Runs cargo-deny on `deny.toml`; installs it once, into the user's cache folder, at a fixed version.
//!
//! Advisories are left out: their database comes from a server other than crates.io's.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::process::{cargo, command, run};

const VERSION: &str = "0.20.2";

pub(crate) fn check() -> Result<()> {
    let program = install()?;
    run(command(&program.to_string_lossy()).args([
        "--all-features",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))?;
    println!("3 passed, 0 failed");
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
