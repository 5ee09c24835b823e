//! That Go modules on one release of Kubernetes agree on the versions of whatever they share.
//!
//! Go keeps what it has compiled of a package for others only if everything that the package imports is the same. One
//! version of `golang.org/x/sys` that differs has Kubernetes' client compiled once more, for minutes.
//! Left out: modules without Kubernetes, and `go_karpenter.mod`, which is for benchmarks only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Whose version is the release.
const RELEASED: &str = "k8s.io/apimachinery";
/// The module whose versions count.
const CONTROL_PLANE: &str = "control-plane";
/// Built for benchmarks only, with the versions of Karpenter's release.
const KARPENTERS_OWN: &str = go_programs::KARPENTERS_OWN.module_file;

/// Versions by the module's path.
type Versions = BTreeMap<String, String>;

/// Fails where a module file has another version of something than the control plane of its release.
pub(super) fn check(modules: &[PathBuf]) -> Result<()> {
    let mut files: Vec<(PathBuf, Versions)> = Vec::new();
    for module in modules {
        for file in module_files(module)? {
            let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
            files.push((file, versions(&text)));
        }
    }
    let is_control_plane = |file: &Path| file.parent().is_some_and(|module| module.ends_with(CONTROL_PLANE));
    let releases: BTreeMap<&str, &Versions> = files
        .iter()
        .filter(|(file, _)| is_control_plane(file))
        .filter_map(|(_, versions)| Some((versions.get(RELEASED)?.as_str(), versions)))
        .collect();
    let faults: Vec<String> = files
        .iter()
        .filter_map(|(file, versions)| Some((file, versions, versions.get(RELEASED)?)))
        .flat_map(|(file, versions, release)| {
            let Some(&control_plane) = releases.get(release.as_str()) else {
                return vec![format!("{}: no control plane is on {RELEASED} {release}", file.display())];
            };
            let others = differences(versions, control_plane);
            others.into_iter().map(|other| format!("{}: {other}", file.display())).collect()
        })
        .collect();
    faults.iter().for_each(|fault| println!("{fault}"));
    if !faults.is_empty() {
        bail!("{} versions in Go modules differ from the control plane's, so Go compiles much twice", faults.len());
    }
    println!("{} module files agree on {} releases of Kubernetes", files.len(), releases.len());
    Ok(())
}

/// The module files in a folder.
fn module_files(module: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(module).with_context(|| format!("read {}", module.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|it| it == "mod") && !file.ends_with(KARPENTERS_OWN));
    files.sort();
    Ok(files)
}

/// What differs of what both have.
fn differences(versions: &Versions, control_plane: &Versions) -> Vec<String> {
    versions
        .iter()
        .filter_map(|(path, version)| Some((path, version, control_plane.get(path)?)))
        .filter(|(_, version, wanted)| version != wanted)
        .map(|(path, version, wanted)| format!("{path} {version} in place of {wanted}"))
        .collect()
}

/// What a module file requires, after its replacements by other versions.
fn versions(text: &str) -> Versions {
    let (mut required, mut replaced) = (Versions::new(), Versions::new());
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let words: Vec<&str> =
            code.split_ascii_whitespace().filter(|word| !matches!(*word, "require" | "replace")).collect();
        match words[..] {
            [path, "=>", _, version] => drop(replaced.insert(path.to_owned(), version.to_owned())),
            [path, version] if version.starts_with('v') => drop(required.insert(path.to_owned(), version.to_owned())),
            _ => {}
        }
    }
    for (path, version) in replaced {
        required.entry(path).and_modify(|it| *it = version);
    }
    required
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = "module dovetail.test/a\n\ngo 1.26.8\n\nrequire k8s.io/api v0.36.3\n\nrequire (\n\
        \tgolang.org/x/sys v0.46.0 // indirect\n\tk8s.io/client-go v0.0.0\n)\n\n\
        replace (\n\tk8s.io/client-go => k8s.io/client-go v0.36.3\n\tk8s.io/kubectl => k8s.io/kubectl v0.36.3\n)\n";

    #[test]
    fn a_module_files_versions_are_those_after_replacements() {
        let found = versions(MODULE);
        let found: Vec<_> = found.iter().map(|(path, version)| (path.as_str(), version.as_str())).collect();
        let expected = [("golang.org/x/sys", "v0.46.0"), ("k8s.io/api", "v0.36.3"), ("k8s.io/client-go", "v0.36.3")];
        assert_eq!(found, expected);
    }

    #[test]
    fn another_version_of_what_both_have_is_a_difference() {
        let control_plane = versions(MODULE);
        let mut other = control_plane.clone();
        other.insert("only.here/module".to_owned(), "v1.0.0".to_owned());
        assert!(differences(&other, &control_plane).is_empty());

        other.insert("golang.org/x/sys".to_owned(), "v0.47.0".to_owned());
        assert_eq!(differences(&other, &control_plane), ["golang.org/x/sys v0.47.0 in place of v0.46.0"]);
    }
}
