//! `cargo xtask codegen`: files that are generated and committed, because people and other tools read them.
//!
//! | file | from |
//! |---|---|
//! | `crds/*.yaml` | `dovetail crds` |
//! | `charts/dovetail-crd/templates/*.yaml` | `crds/`: Helm would take `{{` in a description for its own |
//! | `docs/dra-support.md` | `dovetail support` |

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{build, command, output};

const CRDS: &str = "crds";
const CRD_CHART: &str = "charts/dovetail-crd/templates";
const SUPPORT: &str = "docs/dra-support.md";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change nothing; fail if a file is not what it should be.
    #[arg(long)]
    check: bool,
}

/// Contents by path from the top of the repository.
type Files = BTreeMap<PathBuf, String>;

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.check { check() } else { write_stale() }
}

/// Fails if a generated file is not what it should be.
pub(crate) fn check() -> Result<()> {
    let wanted = generate()?;
    let stale = differences(&wanted)?;
    for (path, difference) in &stale {
        println!("{}: {difference}", path.display());
    }
    let passed = wanted.keys().filter(|path| !stale.contains_key(*path)).count();
    println!("{passed} passed, {} failed", stale.len());
    if !stale.is_empty() {
        bail!("generated files are not up to date; run `cargo xtask codegen`");
    }
    Ok(())
}

fn write_stale() -> Result<()> {
    let wanted = generate()?;
    for path in differences(&wanted)?.keys() {
        match wanted.get(path) {
            Some(content) => write(path, content)?,
            None => fs::remove_file(at(path)).with_context(|| format!("remove {}", path.display()))?,
        }
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn generate() -> Result<Files> {
    let dovetail = build(&["--workspace", "--features", crate::test::FEATURES, "--bin=dovetail"], "dovetail")?;
    let crds = output(command(&dovetail.to_string_lossy()).arg("crds"))?;
    let mut files = Files::new();
    for document in documents(&crds) {
        let name = metadata_name(document).context("a CRD without a name")?;
        let (plural, group) = name.split_once('.').with_context(|| format!("CRD {name}: its name has no group"))?;
        let file = format!("{group}_{plural}.yaml");
        files.insert(Path::new(CRDS).join(&file), document.to_owned());
        files.insert(Path::new(CRD_CHART).join(&file), escape_for_helm(document));
    }
    if files.is_empty() {
        bail!("`dovetail crds` printed no CRD");
    }
    files.insert(SUPPORT.into(), output(command(&dovetail.to_string_lossy()).arg("support"))?);
    Ok(files)
}

/// The documents of a YAML stream; each ends with a newline.
fn documents(stream: &str) -> impl Iterator<Item = &str> {
    stream.split("---\n").filter(|document| !document.trim().is_empty())
}

/// `metadata.name` of a document that our own generator wrote, so in block style.
fn metadata_name(document: &str) -> Option<&str> {
    document
        .lines()
        .skip_while(|line| *line != "metadata:")
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .find_map(|line| line.strip_prefix("  name: "))
}

fn escape_for_helm(document: &str) -> String {
    document.replace("{{", "{{ \"{{\" }}")
}

/// What is missing, stale, or should not be there.
fn differences(wanted: &Files) -> Result<BTreeMap<PathBuf, &'static str>> {
    let mut stale = BTreeMap::new();
    for (path, content) in wanted {
        match fs::read_to_string(at(path)) {
            Ok(found) if found == *content => {}
            Ok(_) => {
                stale.insert(path.clone(), "differs from what is generated");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                stale.insert(path.clone(), "is missing");
            }
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    for folder in [CRDS, CRD_CHART] {
        let Ok(entries) = fs::read_dir(at(Path::new(folder))) else { continue };
        for entry in entries {
            let path = Path::new(folder).join(entry?.file_name());
            if path.extension().is_some_and(|extension| extension == "yaml") && !wanted.contains_key(&path) {
                stale.insert(path, "is not generated any more");
            }
        }
    }
    Ok(stale)
}

fn write(path: &Path, content: &str) -> Result<()> {
    let absolute = at(path);
    if let Some(folder) = absolute.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(&absolute, content).with_context(|| format!("write {}", path.display()))
}

fn at(path: &Path) -> PathBuf {
    go_programs::repository().join(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_splits_into_named_documents() {
        let stream = "---\nkind: A\nmetadata:\n  labels:\n    name: no\n  name: as.x.io\nspec: {}\n---\nkind: B\nmetadata:\n  name: bs.x.io\n";
        let names: Vec<_> = documents(stream).filter_map(metadata_name).collect();
        assert_eq!(names, ["as.x.io", "bs.x.io"]);
    }

    #[test]
    fn a_template_action_in_a_description_is_printed_by_helm_not_run() {
        assert_eq!(escape_for_helm("a {{ b }}"), "a {{ \"{{\" }} b }}");
    }
}
