//! Formats, vets and tests every Go module of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{command, output, run};

pub(crate) fn check() -> Result<()> {
    let modules = modules()?;
    let mut failed = 0;
    for module in &modules {
        if let Err(error) = check_module(module) {
            failed += 1;
            println!("{}: {error:#}", module.display());
        }
    }
    println!("{} passed, {failed} failed", modules.len() - failed);
    if failed > 0 {
        bail!("{failed} of {} Go modules failed", modules.len());
    }
    Ok(())
}

/// Every folder with a `go.mod` below `test`, however deep.
fn modules() -> Result<Vec<PathBuf>> {
    let tests = go_programs::repository().join("test");
    let mut modules = Vec::new();
    collect(&tests, &mut modules)?;
    modules.sort();
    if modules.is_empty() {
        bail!("no Go module in {}", tests.display());
    }
    Ok(modules)
}

fn collect(folder: &Path, modules: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let folder = entry.path();
        if folder.join("go.mod").exists() {
            modules.push(folder.clone());
        }
        collect(&folder, modules)?;
    }
    Ok(())
}

fn check_module(module: &Path) -> Result<()> {
    println!("{}", module.display());
    let unformatted = output(command("gofmt").args(["-l", "."]).current_dir(module))?;
    if !unformatted.is_empty() {
        bail!("not formatted, run gofmt -w:\n{unformatted}");
    }
    // The same settings as the build of the program, so that they share what is compiled.
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        run(go(module).args(arguments))?;
    }
    let other = go_programs::KUBERNETES_1_36;
    if module.join(other.module_file).exists() {
        run(go(module).args(["vet", "./..."]).env("GOFLAGS", other.go_flags()))?;
    }
    Ok(())
}

fn go(module: &Path) -> Command {
    let mut go = command("go");
    go.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off");
    go
}
