//! `cargo xtask trimmed-sdk`: the SDK of AWS without what we do not call.
//!
//! A crate of the SDK has every operation of its service, and no features to leave some out: EC2's alone is more than a
//! million lines, and needs 8 GB and minutes to compile. Here copies of those crates are made that have only the
//! operations that our adapter calls, a tenth of the text. Cargo takes them instead of the originals where it is given
//! the file that [`make`] writes (`--config`). Nothing of ours changes with it, nor does `Cargo.lock`: without that
//! file the same sources build, only slower.
//!
//! Which operations are called is read from the adapter's sources, so there is no list to keep.

mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde::Deserialize;

use crate::process::{cargo, output, target_folder};
use crate::test::sources::rust_files;
use sources::Sources;

/// The crates that are worth it. What credentials need of the others is most of them.
const TRIMMED: [&str; 7] = [
    "aws-sdk-arczonalshift",
    "aws-sdk-ec2",
    "aws-sdk-eks",
    "aws-sdk-iam",
    "aws-sdk-pricing",
    "aws-sdk-sqs",
    "aws-sdk-ssm",
];
/// The only crate that calls them.
const ADAPTER: &str = "cloudprovider-aws-sdk";
/// Its feature that takes the SDK in.
pub(crate) const FEATURE: &str = "cloudprovider-aws-sdk/sdk";
/// Changes where this program makes other copies of the same input.
const EDITION: &str = "1";

#[derive(clap::Args)]
pub(crate) struct Options {}

/// Makes the copies and prints how Cargo is told of them.
pub(crate) fn run(_: &Options) -> Result<()> {
    println!("--config={}", make()?.display());
    Ok(())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

/// Makes the copies, unless they are there, and gives the file of configuration that puts them in the originals' place.
pub(crate) fn make() -> Result<PathBuf> {
    let folder = target_folder()?.join("trimmed-sdk");
    let calls = calls_of_adapter()?;
    let mut copies = Vec::new();
    for package in packages()? {
        let original = package.manifest_path.parent().context("a manifest without folder")?;
        let copy = folder.join(format!("{}-{}", package.name, package.version));
        trim(original, &copy, &calls).with_context(|| format!("trim {}", original.display()))?;
        copies.push(copy.to_string_lossy().into_owned());
    }
    let config = folder.join("config.toml");
    // A list of texts reads the same in JSON and TOML.
    write_if_changed(&config, &format!("paths = {}\n", serde_json::to_string(&copies)?))?;
    Ok(config)
}

/// The originals, where Cargo has unpacked them.
fn packages() -> Result<Vec<Package>> {
    let host = output(crate::process::command("rustc").args(["--print", "host-tuple"]))?;
    let text = output(
        cargo(["metadata", "--format-version=1", "--locked", "--features", FEATURE])
            .args(["--filter-platform", host.trim()]),
    )?;
    let metadata: Metadata = serde_json::from_str(&text).context("read cargo metadata")?;
    let packages: Vec<_> = metadata.packages.into_iter().filter(|it| TRIMMED.contains(&&*it.name)).collect();
    ensure!(packages.len() == TRIMMED.len(), "{ADAPTER} uses {} of {} crates", packages.len(), TRIMMED.len());
    Ok(packages)
}

/// The names of all methods without arguments that the adapter calls; operations are among them.
fn calls_of_adapter() -> Result<BTreeSet<String>> {
    let call = Regex::new(r"\.([a-z][a-z0-9_]*)\(\)").context("an expression of ours")?;
    let mut calls = BTreeSet::new();
    for file in rust_files(&go_programs::repository().join("crates").join(ADAPTER).join("src"))? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        calls.extend(call.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    Ok(calls)
}

/// Copies a crate without the operations that are not called.
fn trim(original: &Path, copy: &Path, calls: &BTreeSet<String>) -> Result<()> {
    let sources = Sources::read(&original.join("src"))?;
    let operations: BTreeSet<_> = sources.operations().into_iter().filter(|it| calls.contains(it)).collect();
    ensure!(!operations.is_empty(), "no operation of it is called");
    let made_of = format!("{EDITION} {}", operations.iter().cloned().collect::<Vec<_>>().join(" "));
    let note = copy.join("made-of");
    if fs::read_to_string(&note).is_ok_and(|text| text == made_of) {
        return Ok(());
    }
    if copy.exists() {
        fs::remove_dir_all(copy).with_context(|| format!("remove {}", copy.display()))?;
    }
    for (path, text) in sources.trimmed(&operations) {
        write_if_changed(&copy.join("src").join(path), &text)?;
    }
    let manifest = original.join("Cargo.toml");
    let manifest = fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
    write_if_changed(&copy.join("Cargo.toml"), &without_tests(&manifest))?;
    // Last, so that what is there without it was cut short.
    write_if_changed(&note, &made_of)
}

/// A manifest without the tests, whose files are not copied, and without hints, of which Cargo warns. What tests depend
/// on stays: Cargo wants what is taken instead of a crate to depend on the same.
fn without_tests(manifest: &str) -> String {
    let mut is_left_out = false;
    let kept = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_left_out = matches!(*line, "[[test]]" | "[hints]");
        }
        !is_left_out
    });
    kept.map(|line| format!("{line}\n")).collect()
}

/// Cargo looks at times of files.
fn write_if_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let folder = path.parent().context("a file without folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_loses_its_tests_and_keeps_what_the_library_needs() {
        let manifest = "[package]\nname = \"a\"\n[[test]]\nname = \"t\"\n[dependencies.b]\nversion = \"1\"\n\
                        [dev-dependencies.c]\nversion = \"1\"\n[hints]\nmostly-unused = true\n";
        let kept =
            "[package]\nname = \"a\"\n[dependencies.b]\nversion = \"1\"\n[dev-dependencies.c]\nversion = \"1\"\n";
        assert_eq!(without_tests(manifest), kept);
    }
}
