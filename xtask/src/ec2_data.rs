//! `cargo xtask ec2-data`: gathers what is built in of EC2 anew.
//!
//! The sources are a Python package and a Go module of fixed versions. Both come through their registries' own tools,
//! which check what they download.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{command, describe, output, run as run_command};

/// Where EC2's answers are recorded.
const MOTO: &str = "5.2.5";
/// Where the figures are that EC2's API does not tell.
const KARPENTER: &str = "github.com/aws/karpenter-provider-aws";
const KARPENTER_VERSION: &str = "v1.15.1";
const DATA: &str = "crates/cloudprovider-aws/data";

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// The day that the files are to name [default: today, in UTC].
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

/// What `go mod download -json` says.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Module {
    #[serde(default)]
    zip: PathBuf,
    #[serde(default)]
    error: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let scratch = go_programs::repository().join("target/ec2-data");
    fs::create_dir_all(&scratch).with_context(|| format!("create {}", scratch.display()))?;
    let moto = moto(&scratch)?;
    let karpenter = karpenter(&scratch)?;
    let date = match &options.date {
        Some(date) => date.clone(),
        None => output(command("date").args(["-u", "+%F"]))?.trim().to_owned(),
    };
    let mut generate = command("python3");
    generate.arg(format!("{DATA}/generate.py")).args(["--moto-version", MOTO, "--out", DATA, "--date", &date]);
    generate.args(["--karpenter-version", KARPENTER_VERSION]);
    generate.arg("--karpenter").arg(karpenter).arg("--moto").arg(moto);
    run_command(&mut generate)
}

/// The folder of the package, in an environment of its own. What it depends on is not needed to read its files.
fn moto(scratch: &Path) -> Result<PathBuf> {
    let environment = scratch.join("python");
    run_command(command("python3").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    let mut install = command(&python.to_string_lossy());
    run_command(install.args(["-m", "pip", "install", "--quiet", "--no-deps", &format!("moto=={MOTO}")]))?;
    let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = output(command(&python.to_string_lossy()).args(["-c", ask]))?;
    Ok(Path::new(packages.trim()).join("moto"))
}

/// The module's archive. Go reports an error where it is too old to build the module; to read it, it is not.
fn karpenter(scratch: &Path) -> Result<PathBuf> {
    let mut download = command("go");
    download.current_dir(scratch).args(["mod", "download", "-json", &format!("{KARPENTER}@{KARPENTER_VERSION}")]);
    let told = download.output().with_context(|| format!("run {}", describe(&download)))?;
    let module: Module =
        serde_json::from_slice(&told.stdout).with_context(|| format!("what {} printed", describe(&download)))?;
    if module.zip.as_os_str().is_empty() {
        bail!("{}: {}", describe(&download), module.error);
    }
    Ok(module.zip)
}
