//! `cargo xtask image`: the controller as an OCI archive, without a container engine.
//!
//! The binary is linked statically, so the image holds nothing else but the certificates by which it trusts AWS. What
//! the Dockerfile makes is like it, and has a bill of materials besides.

mod archive;
mod build;
mod elf;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::process::target_folder;
pub(crate) use build::{Told, Tools};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What the image is for; may be given more than once [default: all]
    #[arg(long)]
    platform: Vec<Platform>,
}

/// What an image is for, as Go and therefore OCI call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Platform {
    #[value(name = "linux/amd64")]
    Amd64,
    #[value(name = "linux/arm64")]
    Arm64,
}

impl Platform {
    /// That of this computer's processor.
    pub(crate) fn host() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 }
    }

    fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// An archive, and the binaries that are in it.
pub(crate) struct Made {
    pub(crate) archive: PathBuf,
    pub(crate) binaries: Vec<(Platform, PathBuf)>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut platforms = options.platform.clone();
    platforms.sort();
    platforms.dedup();
    if platforms.is_empty() {
        platforms = Platform::value_variants().to_vec();
    }
    let tools = platforms.iter().map(|platform| Tools::get(*platform)).collect::<Result<Vec<_>>>()?;
    let made = make(&tools, "release")?;
    for (platform, binary) in &made.binaries {
        let size = fs::metadata(binary).with_context(|| format!("look at {}", binary.display()))?.len();
        println!("linux/{}: {} ({size} bytes)", platform.architecture(), binary.display());
    }
    println!("{}", made.archive.display());
    Ok(())
}

/// Builds the binary with each of the tools and this profile of Cargo's, and puts all into one archive.
pub(crate) fn make(tools: &[Tools], profile: &str) -> Result<Made> {
    let mut binaries = Vec::new();
    for tools in tools {
        let binary = tools.build(profile)?;
        binaries.push((tools.platform, binary));
    }
    let mut contents = Vec::new();
    for (platform, path) in &binaries {
        contents.push((*platform, read_checked(*platform, path)?));
    }
    let archive = target_folder()?.join("image/dovetail.tar");
    let folder = archive.parent().context("a file without folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let bytes = archive::archive(&contents, env!("CARGO_PKG_VERSION"))?;
    fs::write(&archive, bytes).with_context(|| format!("write {}", archive.display()))?;
    Ok(Made { archive, binaries })
}

fn read_checked(platform: Platform, path: &Path) -> Result<Vec<u8>> {
    let binary = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    elf::check(platform, &binary).with_context(|| format!("{}", path.display()))?;
    Ok(binary)
}
