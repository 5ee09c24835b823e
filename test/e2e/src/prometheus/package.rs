//! The program: the one that is installed, else that of Debian's package, unpacked into the cache folder.
//!
//! Nothing is installed, so nobody has to be an administrator. Left out: updates of what has been unpacked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use anyhow::{Context, Result, bail};

const NAME: &str = "prometheus";

/// Where the program is; fetches it first if there is none.
///
/// # Errors
/// If there is none, and no package manager that has it.
pub(super) fn program() -> Result<PathBuf> {
    if let Some(installed) = installed() {
        return Ok(installed);
    }
    let cache = go_programs::cache_folder().context("no cache folder: set XDG_CACHE_HOME or HOME")?;
    let unpacked = cache.join("prometheus-debian");
    let program = unpacked.join("usr/bin").join(NAME);
    if !program.exists() {
        fetch(&cache, &unpacked).context("no `prometheus` in PATH, and Debian's package cannot be had; install it")?;
    }
    Ok(program)
}

fn installed() -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(NAME)).find(|program| program.is_file())
}

/// Unpacks the package aside, so that it appears whole or not at all.
fn fetch(cache: &Path, unpacked: &Path) -> Result<()> {
    eprintln!("fetching Debian's package of Prometheus into {}", unpacked.display());
    let aside = cache.join(format!("prometheus-debian.{}", process::id()));
    let result = unpack(&aside).and_then(|root| match fs::rename(root, unpacked) {
        // Another process was quicker.
        Err(_) if unpacked.exists() => Ok(()),
        result => result.with_context(|| format!("create {}", unpacked.display())),
    });
    let _ = fs::remove_dir_all(&aside);
    result
}

/// The folder into which the package is unpacked.
fn unpack(aside: &Path) -> Result<PathBuf> {
    // With lists of packages of its own: those of the system may be missing, and only an administrator may fetch them.
    let (state, cache) = (aside.join("state"), aside.join("cache"));
    for folder in [state.join("lists/partial"), cache.join("archives/partial")] {
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let options = [
        format!("Dir::State={}", state.display()),
        "Dir::State::status=/var/lib/dpkg/status".to_owned(),
        format!("Dir::Cache={}", cache.display()),
        // Another user could not write there.
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Retries=1".to_owned(),
        "Acquire::http::Timeout=20".to_owned(),
    ];
    for arguments in [&["update"][..], &["download", NAME]] {
        let mut apt = Command::new("apt-get");
        apt.arg("-qq").args(options.iter().flat_map(|option| ["-o", option])).args(arguments).current_dir(aside);
        run(&mut apt)?;
    }
    let is_package = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "deb");
    let package = fs::read_dir(aside)?.flatten().map(|entry| entry.path()).find(is_package);
    let root = aside.join("root");
    run(Command::new("dpkg-deb").arg("-x").arg(package.context("apt-get downloaded no package")?).arg(&root))?;
    Ok(root)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
