//! The static binary: Rust's own target for musl and its own linker; the C of three dependencies is compiled by Zig,
//! which has the headers of musl for every processor.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Platform;
use crate::process::{build_with, command, output, run, target_folder};
use crate::python::environment;

/// Zig's package, with its version.
const REQUIREMENTS: &str = "xtask/src/image/requirements.txt";

/// What builds for a platform.
pub(crate) struct Tools {
    pub(crate) platform: Platform,
    /// The C compiler and the archiver.
    programs: [PathBuf; 2],
}

impl Platform {
    fn rust_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    fn zig_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-musl",
            Self::Arm64 => "aarch64-linux-musl",
        }
    }
}

impl Tools {
    /// Installs what is missing.
    pub(crate) fn get(platform: Platform) -> Result<Self> {
        let target = platform.rust_target();
        let library = output(command("rustc").args(["--print", "target-libdir", "--target", target]))?;
        if !Path::new(library.trim()).exists() {
            run(command("rustup").args(["target", "add", target])).with_context(|| format!("get Rust's {target}"))?;
        }
        let python = environment("zig", REQUIREMENTS).context("get Zig")?;
        let folder = target_folder()?.join("image");
        let programs = [
            script(&folder.join(format!("cc-{}", platform.architecture())), &compiler(&python, platform.zig_target()))?,
            script(&folder.join("ar"), &archiver(&python))?,
        ];
        Ok(Self { platform, programs })
    }

    /// Builds the controller with a profile of Cargo's and the SDK of AWS.
    pub(super) fn build(&self, profile: &str) -> Result<PathBuf> {
        let told = self.told(profile)?;
        build_with(&told.for_controller(), "dovetail", &told.variables)
    }

    /// How Cargo is told of them.
    pub(crate) fn told(&self, profile: &str) -> Result<Told> {
        let target = self.platform.rust_target();
        let mut told = Told::of_this_computer(profile)?;
        told.arguments.push(format!("--target={target}"));
        let (of_cc, of_cargo) = (target.replace('-', "_"), target.replace('-', "_").to_uppercase());
        let [compiler, archiver] = self.programs.each_ref().map(|path| path.display().to_string());
        told.variables = vec![
            (format!("CC_{of_cc}"), compiler),
            (format!("AR_{of_cc}"), archiver),
            (format!("CARGO_TARGET_{of_cargo}_LINKER"), "rust-lld".to_owned()),
        ];
        Ok(told)
    }
}

/// Arguments and variables with which Cargo builds for a platform, with the trimmed SDK.
pub(crate) struct Told {
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(String, String)>,
}

impl Told {
    /// Without any tools: linked as Cargo links here.
    pub(crate) fn of_this_computer(profile: &str) -> Result<Self> {
        let sdk = crate::trimmed_sdk::make()?;
        let arguments =
            vec![format!("--profile={profile}"), "--locked".to_owned(), format!("--config={}", sdk.display())];
        Ok(Self { arguments, variables: Vec::new() })
    }

    /// The arguments for the controller's binary.
    pub(crate) fn for_controller(&self) -> Vec<&str> {
        let binary = ["--package=dovetail", "--bin=dovetail", "--features=dovetail/aws"];
        self.arguments.iter().map(String::as_str).chain(binary).collect()
    }
}

/// Zig has other names for targets, and is told of one more by whoever takes it for clang. What is not optimized it
/// would have checked by a library that Rust's linker does not know.
fn compiler(python: &Path, target: &str) -> String {
    format!(
        "#!/bin/sh\nfor argument do\n  shift\n  case $argument in --target=*) ;; *) set -- \"$@\" \"$argument\" ;; esac\ndone\n\
         exec '{}' -m ziglang cc -target {target} -fno-sanitize=undefined \"$@\"\n",
        python.display()
    )
}

fn archiver(python: &Path) -> String {
    format!("#!/bin/sh\nexec '{}' -m ziglang ar \"$@\"\n", python.display())
}

/// Writes a script, unless it is there: what Cargo compares is not touched without need.
fn script(path: &Path, text: &str) -> Result<PathBuf> {
    if !fs::read_to_string(path).is_ok_and(|there| there == text) {
        let folder = path.parent().context("a file without folder")?;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        let may_run = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path, may_run).with_context(|| format!("let {} be run", path.display()))?;
    }
    Ok(path.to_owned())
}
