//! Which tests each stage runs, and that every test target of the workspace is run by one.
//!
//! A stage's selections are what it hands to Cargo; [`Selection::takes`] reads them as Cargo does. Left out:
//! documentation tests of a package that the unit stage excludes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::FEATURES;
use crate::image::Told;
use crate::process::{self, cargo, command, output, run};

/// Tests that are run together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// What Cargo is told.
    arguments: &'static [&'static str],
    /// Features that are on.
    features: &'static str,
    /// Of these the library of this package only: Cargo would compile much a second time, with other features, if it
    /// were told of one package.
    lib_of: Option<&'static str>,
    /// What the tests themselves are told.
    for_tests: &'static [&'static str],
}

/// All but tests that need a control plane; those of the library that boots it do not.
pub(super) const UNIT: [Selection; 2] = [
    Selection { arguments: &["--workspace", "--exclude", "e2e"], features: FEATURES, lib_of: None, for_tests: &[] },
    Selection { arguments: &["--workspace", "--lib"], features: FEATURES, lib_of: Some("e2e"), for_tests: &[] },
];

pub(super) const HELM: [Selection; 1] =
    [Selection { arguments: &["--workspace", "--test", "charts"], features: FEATURES, lib_of: None, for_tests: &[] }];

/// They wait more than they compute, so more of them than there are processors run at a time. Tests of other crates
/// that need a control plane boot one when they are told to.
pub(super) const E2E: [Selection; 1] = [Selection {
    arguments: &["--workspace", "--test", "e2e"],
    features: FEATURES,
    lib_of: None,
    for_tests: &["--test-threads=4"],
}];

/// Of these tests those about devices, on another release of Kubernetes.
pub(super) const DRA: [Selection; 1] = [Selection {
    arguments: &["--workspace", "--test", "e2e"],
    features: FEATURES,
    lib_of: None,
    for_tests: &["--test-threads=2", "dra::", "claims_of_random_scenarios", "driver_rollout::", "idle_claims::"],
}];

/// What the tests before asked of API servers, beside what the chart grants.
pub(super) const GRANTED: [Selection; 1] =
    [Selection { arguments: &["--workspace", "--test", "granted"], features: FEATURES, lib_of: None, for_tests: &[] }];

/// One of the tests before, once more with the binary that is released.
pub(super) const RELEASE: [Selection; 1] = [Selection {
    arguments: &["--workspace", "--test", "e2e"],
    features: FEATURES,
    lib_of: None,
    for_tests: &["--exact", "launch::pending_pods_get_machines_and_are_bound_there"],
}];

/// The image with that binary.
pub(super) const IMAGE: [Selection; 1] =
    [Selection { arguments: &["--workspace", "--test", "image"], features: FEATURES, lib_of: None, for_tests: &[] }];

/// They share one server, so they run one after another. With the controller's package the dependencies have the
/// features that they have in its image, for which they are compiled anyway.
pub(super) const AWS: [Selection; 1] = [Selection {
    arguments: &["--package", "cloudprovider-aws-sdk", "--package", "dovetail", "--lib", "--test", "wire"],
    features: "cloudprovider-aws-sdk/sdk,dovetail/aws",
    lib_of: None,
    for_tests: &["--test-threads=1"],
}];

const ALL: [&[Selection]; 6] = [&UNIT, &HELM, &E2E, &GRANTED, &IMAGE, &AWS];

/// What `cargo metadata` says.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    test: bool,
    /// Features of its package without which Cargo passes it over.
    #[serde(default, rename = "required-features")]
    required_features: Vec<String>,
}

/// Fails if some test target is run by no stage.
pub(crate) fn check() -> Result<()> {
    let text = output(&mut cargo(["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("read cargo metadata")?;
    let (run, missed) = divide(&metadata, &ALL.concat());
    missed.iter().for_each(|target| println!("no stage runs {target}"));
    println!("{run} passed, {} failed", missed.len());
    ensure!(missed.is_empty(), "{} test targets are run by no stage", missed.len());
    ensure!(run > 0, "the workspace has no test target");
    Ok(())
}

/// How many test targets the selections take, and which they do not.
fn divide(metadata: &Metadata, selections: &[Selection]) -> (usize, Vec<String>) {
    let targets = metadata.packages.iter().flat_map(|package| package.targets.iter().map(move |it| (package, it)));
    let (run, missed): (Vec<_>, Vec<_>) = targets
        .filter(|(_, target)| target.test)
        .partition(|(package, target)| selections.iter().any(|selection| selection.takes(&package.name, target)));
    let name = |(package, target): (&Package, &Target)| {
        format!("{} of kind {} in {}", target.name, target.kind.join(", "), package.name)
    };
    (run.len(), missed.into_iter().map(name).collect())
}

impl Selection {
    /// Whether Cargo runs a target of a package.
    fn takes(&self, package: &str, target: &Target) -> bool {
        let is = |kind: &str| target.kind.iter().any(|it| it == kind);
        let (mut any_target, mut named) = (true, false);
        let (mut any_package, mut named_package) = (true, false);
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--workspace" => {}
                "--exclude" if arguments.next() == Some(&package) => return false,
                "--exclude" => {}
                "--package" => {
                    (any_package, named_package) = (false, arguments.next() == Some(&package) || named_package);
                }
                "--lib" => (any_target, named) = (false, named || is("lib")),
                "--test" => {
                    (any_target, named) = (false, arguments.next() == Some(&&*target.name) && is("test") || named);
                }
                // One that is not known here selects nothing, so that the check fails and is looked at.
                _ => return false,
            }
        }
        let of_library = self.lib_of.is_none_or(|name| name == package && is("lib"));
        let has = |feature: &String| self.features.split(',').any(|on| on == format!("{package}/{feature}"));
        of_library
            && (any_package || named_package)
            && (any_target || named)
            && target.required_features.iter().all(has)
    }

    /// Runs the tests; `environment` is what they find set, `cargo_is_told` comes before all else.
    fn run(&self, cargo_is_told: &[&str], environment: &[(&str, OsString)]) -> Result<()> {
        let mut tests = match self.lib_of {
            Some(package) => self.lib_tests(package)?,
            None => {
                let mut arguments = vec!["test", "--no-fail-fast", "--features", self.features];
                arguments.extend(self.arguments);
                arguments.extend(cargo_is_told);
                arguments.push("--");
                cargo(arguments)
            }
        };
        tests.args(self.for_tests).envs(environment.iter().map(|(name, value)| (name, value)));
        run(&mut tests)
    }

    /// The program with the tests of a library, built like all others.
    fn lib_tests(&self, package: &str) -> Result<Command> {
        #[derive(Deserialize)]
        struct Message {
            executable: Option<PathBuf>,
            manifest_path: Option<PathBuf>,
            target: Option<Target>,
        }
        let mut build = cargo(["test", "--no-run", "--message-format=json-render-diagnostics", "--features"]);
        build.arg(self.features);
        let messages = output(build.args(self.arguments))?;
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        let is_wanted = |message: &Message| {
            let is_library = |target: &Target| target.name == package && target.kind.iter().any(|kind| kind == "lib");
            message.target.as_ref().is_some_and(is_library)
        };
        for Message { executable, manifest_path, .. } in messages.filter(is_wanted) {
            if let (Some(executable), Some(manifest)) = (executable, manifest_path) {
                let mut tests = command(&executable.to_string_lossy());
                // As Cargo does.
                tests.current_dir(manifest.parent().context("a manifest without folder")?);
                return Ok(tests);
            }
        }
        bail!("{} built no tests of the library of {package}", process::describe(&build))
    }
}

/// Runs selections, and prints the lines in which tests say what they read of data that the repository does not have.
/// At least `lines` of them are wanted.
pub(super) fn run_all(selections: &[Selection], environment: &[(&str, &str)], lines: usize) -> Result<()> {
    run_told(selections, &[], environment, lines)
}

/// Runs selections as Cargo is told to build them.
pub(super) fn run_with(selections: &[Selection], told: &Told, environment: &[(&str, &str)]) -> Result<()> {
    let mut environment = environment.to_vec();
    environment.extend(told.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let arguments: Vec<&str> = told.arguments.iter().map(String::as_str).collect();
    run_told(selections, &arguments, &environment, 0)
}

/// Compiles what [`run_with`] runs.
pub(super) fn build(selections: &[Selection], told: &Told) -> Result<()> {
    selections.iter().try_for_each(|selection| {
        let mut tests = cargo(["test", "--no-run", "--features", selection.features]);
        tests.args(selection.arguments).args(&told.arguments).envs(told.variables.iter().cloned());
        run(&mut tests)
    })
}

fn run_told(
    selections: &[Selection],
    cargo_is_told: &[&str],
    environment: &[(&str, &str)],
    lines: usize,
) -> Result<()> {
    let notes = process::target_folder()?.join("test-notes");
    if notes.exists() {
        fs::remove_dir_all(&notes).with_context(|| format!("empty {}", notes.display()))?;
    }
    fs::create_dir_all(&notes).with_context(|| format!("make {}", notes.display()))?;
    let mut environment: Vec<(&str, OsString)> =
        environment.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
    environment.push(("DOVETAIL_TEST_NOTES", notes.clone().into_os_string()));
    let results: Vec<Result<()>> =
        selections.iter().map(|selection| selection.run(cargo_is_told, &environment)).collect();
    let read = read_notes(&notes)?;
    if !read.is_empty() {
        println!("\nread of data outside the repository (DOVETAIL_CORPUS, ../shared by default):");
        read.iter().for_each(|line| println!("  {line}"));
    }
    results.into_iter().collect::<Result<()>>()?;
    ensure!(read.len() >= lines, "{} tests said what they read or skipped, at least {lines} should", read.len());
    Ok(())
}

fn read_notes(folder: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(text: &str) -> Metadata {
        serde_json::from_str(text).unwrap()
    }

    fn workspace(more: &str) -> Metadata {
        metadata(&format!(
            r#"{{"packages": [
                {{"name": "api", "targets": [
                    {{"name": "api", "kind": ["lib"], "test": true}},
                    {{"name": "admission", "kind": ["test"], "test": true}},
                    {{"name": "an_example", "kind": ["example"], "test": false}}]}},
                {{"name": "e2e", "targets": [
                    {{"name": "e2e", "kind": ["lib"], "test": true}},
                    {{"name": "charts", "kind": ["test"], "test": true}},
                    {{"name": "e2e", "kind": ["test"], "test": true}}
                    {more}]}}]}}"#
        ))
    }

    #[test]
    fn every_target_of_such_a_workspace_is_run() {
        assert_eq!(divide(&workspace(""), &ALL.concat()), (5, Vec::new()));
    }

    #[test]
    fn a_target_that_needs_a_feature_is_run_only_with_it() {
        let adapter = |name: &str| {
            metadata(&format!(
                r#"{{"packages": [{{"name": "{name}", "targets": [
                    {{"name": "wire", "kind": ["test"], "test": true, "required-features": ["sdk"]}}]}}]}}"#
            ))
        };
        assert_eq!(divide(&adapter("cloudprovider-aws-sdk"), &ALL.concat()), (1, Vec::new()));
        assert_eq!(divide(&adapter("api"), &ALL.concat()).1, ["wire of kind test in api"]);
    }

    #[test]
    fn a_target_that_no_stage_runs_is_named() {
        let with_bin = workspace(r#", {"name": "demo", "kind": ["bin"], "test": true}"#);
        assert_eq!(divide(&with_bin, &ALL.concat()).1, ["demo of kind bin in e2e"]);
        // Without its second selection the unit stage would leave out the library that boots control planes.
        let (run, missed) = divide(&workspace(""), &[&UNIT[..1], &HELM, &E2E].concat());
        assert_eq!((run, missed), (4, vec!["e2e of kind lib in e2e".to_owned()]));
    }

    #[test]
    fn lines_of_tests_are_read_in_order() {
        let folder = std::env::temp_dir().join(format!("dovetail-notes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("one"), "b: 2\n").unwrap();
        fs::write(folder.join("two"), "a: 1\n").unwrap();
        assert_eq!(read_notes(&folder).unwrap(), ["a: 1", "b: 2"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
