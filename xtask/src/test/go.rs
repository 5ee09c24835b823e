//! Formats, vets and tests every Go module of the repository, and asks whether their code runs into known
//! vulnerabilities.
//!
//! Where the database of vulnerabilities cannot be had, a line says that nothing was looked at, and the rest counts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::go_versions;
use crate::process::{command, output, run};

/// Vet, for our packages only.
const VET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/test/vet.sh");
/// Go's own tool, at a fixed version.
const GOVULNCHECK: &str = "golang.org/x/vuln/cmd/govulncheck@v1.1.4";
/// What `go run` says when it has found something.
const FOUND: &str = "exit status 3";

pub(crate) fn check() -> Result<()> {
    let modules = modules()?;
    go_versions::check(&modules)?;
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
    check_vulnerabilities(&modules)?;
    Ok(())
}

/// Has Go remember what vet says, which takes most of the time of [`check`]. What is found is told there.
pub(crate) fn vet_ahead() -> Result<()> {
    modules()?.iter().try_for_each(|module| vet(module))
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
    vet(module)?;
    // Its own vet would look anew, with fewer checks, at ours and at every package that they depend on, for minutes.
    run(go_programs::go(module).args(["test", "-vet=off", "./..."]))
}

/// With the settings of the build of the program, so that they share what is compiled.
fn vet(module: &Path) -> Result<()> {
    let vet = |packages| {
        let mut go = go_programs::go(module);
        go.arg("vet").arg(format!("-vettool={VET}")).arg(packages);
        go
    };
    run(&mut vet("./..."))?;
    for other in [go_programs::KUBERNETES_1_36, go_programs::KUBERNETES_1_37] {
        if module.join(other.module_file).exists() {
            // A second Kubernetes compiles for minutes, and only where it is asked for: its packages are left out here.
            let packages = if module.join("internal").exists() { "./internal/..." } else { "./..." };
            run(vet(packages).env("GOFLAGS", other.go_flags()))?;
        }
    }
    Ok(())
}

/// Fails where govulncheck finds code that is called and vulnerable.
fn check_vulnerabilities(modules: &[PathBuf]) -> Result<()> {
    for module in modules {
        let output = go_programs::go(module).args(["run", GOVULNCHECK, "./..."]).output().context("run go")?;
        if output.status.success() {
            continue;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        // `go run` says in words how the tool ended.
        if said.contains(FOUND) {
            bail!("{}: known vulnerabilities\n{}", module.display(), String::from_utf8_lossy(&output.stdout));
        }
        let why = said.trim().lines().rfind(|line| !line.starts_with("exit status"));
        println!("SKIPPED: govulncheck, which cannot look: {}", why.unwrap_or("it gives no reason"));
        return Ok(());
    }
    println!("govulncheck: nothing known in {} modules", modules.len());
    Ok(())
}
