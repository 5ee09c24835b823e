//! Formats, vets and tests every Go module of the repository.

use std::fs;
use std::path::PathBuf;

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

fn modules() -> Result<Vec<PathBuf>> {
    let tests = go_programs::repository().join("test");
    let mut modules = Vec::new();
    for entry in fs::read_dir(&tests).with_context(|| format!("read {}", tests.display()))? {
        let folder = entry?.path();
        if folder.join("go.mod").exists() {
            modules.push(folder);
        }
    }
    modules.sort();
    if modules.is_empty() {
        bail!("no Go module in {}", tests.display());
    }
    Ok(modules)
}

fn check_module(module: &PathBuf) -> Result<()> {
    println!("{}", module.display());
    let unformatted = output(command("gofmt").args(["-l", "."]).current_dir(module))?;
    if !unformatted.is_empty() {
        bail!("not formatted, run gofmt -w:\n{unformatted}");
    }
    // The same settings as the build of the program, so that they share what is compiled.
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        run(command("go").args(arguments).current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off"))?;
    }
    Ok(())
}
