//! Environments with packages of Python, each made once, in the user's cache folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{command, run};

/// The interpreter of an environment with the packages that a file of the repository lists, by the path from its top.
pub(crate) fn environment(name: &str, requirements: &str) -> Result<PathBuf> {
    let wanted = go_programs::repository().join(requirements);
    let text = fs::read_to_string(&wanted).with_context(|| format!("read {}", wanted.display()))?;
    let folder = go_programs::cache_folder().context("no cache folder: set XDG_CACHE_HOME or HOME")?.join(name);
    let python = folder.join("bin/python");
    let installed = folder.join("requirements.txt");
    if fs::read_to_string(&installed).is_ok_and(|installed| installed == text) {
        return Ok(python);
    }
    println!("installing {name} into {}; this takes a minute, once", folder.display());
    run(command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    install(&python, &wanted)?;
    fs::write(&installed, text).with_context(|| format!("write {}", installed.display()))?;
    Ok(python)
}

fn install(python: &Path, requirements: &Path) -> Result<()> {
    let mut install = command(&python.to_string_lossy());
    run(install.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements))
}
