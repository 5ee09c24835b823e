//! The core stays pure: what a core crate links, and what its sources name. And no product crate may panic: each denies
//! the lints against it.
//!
//! The planner must serve the controller, the command line, tests and fuzzers alike, and give the same answer in all of
//! them. So core crates have no runtime, no network, no clock and no environment, and iterate over nothing whose order
//! is random. `cargo tree` shows the links, features resolved for that crate alone; a scan of the sources shows the
//! rest.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{FEATURES, sources};
use crate::process::{cargo, output};

/// Core crates; one that is not there yet is left out.
const CORE: [&str; 12] = [
    "model",
    "api",
    "dra-types",
    "k8s-cel",
    "dra-sched",
    "dra-templates",
    "cloudprovider",
    "overlay",
    "scheduling",
    "checker",
    "cluster",
    "decode",
];

/// Packages that do I/O or need a runtime. A trailing `*` stands for any rest.
const FORBIDDEN_PACKAGES: [&str; 20] = [
    "async-std",
    "aws-*",
    "axum",
    "h2",
    "hyper",
    "hyper-*",
    "kube-client",
    "kube-runtime",
    "mio",
    "native-tls",
    "openssl",
    "rand",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "tokio",
    "tokio-*",
    "tonic",
    "ureq",
];

/// Paths that read the world or the clock.
const FORBIDDEN_PATHS: [&str; 12] = [
    "std::env",
    "std::fs",
    "std::process",
    "std::thread",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
];

/// Maps whose order differs from run to run, unless given a fixed hasher. One file does that for all.
const FORBIDDEN_MAPS: [&str; 4] =
    ["RandomState", "collections::HashMap", "collections::HashSet", "collections::hash_map"];
const MAPS_WITH_A_FIXED_HASHER: &str = "crates/model/src/collections.rs";

/// What the code of a product crate may not do outside tests; each crate denies these lints in its `lib.rs` or
/// `main.rs`.
const NO_PANICS: [&str; 3] = ["clippy::unwrap_used", "clippy::panic", "clippy::indexing_slicing"];

pub(crate) fn check() -> Result<()> {
    let mut failed = 0;
    let mut passed = 0;
    for entry in fs::read_dir(go_programs::repository().join("crates")).context("read crates")? {
        let sources = entry?.path().join("src");
        let library = sources.join("lib.rs");
        let library = if library.exists() { library } else { sources.join("main.rs") };
        let text = fs::read_to_string(&library).with_context(|| format!("read {}", library.display()))?;
        let missing: Vec<&str> = lints_not_denied(&text).collect();
        if missing.is_empty() {
            passed += 1;
        } else {
            failed += 1;
            println!("{}: does not deny {}", library.display(), missing.join(", "));
        }
    }
    for name in CORE {
        let folder = go_programs::repository().join("crates").join(name);
        if !folder.exists() {
            continue;
        }
        let faults = check_crate(name, &folder)?;
        for fault in &faults {
            println!("{name}: {fault}");
        }
        if faults.is_empty() { passed += 1 } else { failed += 1 }
    }
    let sdk = sdk_of_aws(&[])?;
    for package in &sdk {
        println!("a build of the workspace without more compiles {package}, and with it the SDK of AWS");
    }
    // That the same question finds the SDK where it is, so that the answer before says something.
    let is_found = !sdk_of_aws(&[crate::trimmed_sdk::FEATURE])?.is_empty();
    if sdk.is_empty() && is_found {
        passed += 1
    } else {
        failed += 1
    }
    println!("{passed} passed, {failed} failed");
    if failed > 0 || passed == 0 {
        bail!("{failed} crates are not what they should be");
    }
    Ok(())
}

/// The crates of AWS' SDK that a build of the whole workspace compiles, with some features on beside those of tests. It
/// takes longer than all the rest, so only the stages for AWS and the release have it.
fn sdk_of_aws(features: &[&str]) -> Result<Vec<String>> {
    let features = [&[FEATURES], features].concat().join(",");
    let mut tree = cargo(["tree", "--workspace", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}"]);
    let text = output(tree.args(["--features", &features]))?;
    let mut found: Vec<String> = text.lines().filter(|line| line.starts_with("aws-")).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// The lints against panics that a `lib.rs` does not deny for code outside tests.
fn lints_not_denied(library: &str) -> impl Iterator<Item = &'static str> {
    let denied = library.split("#![cfg_attr(").skip(1).filter_map(|rest| rest.split(")]").next());
    let denied: String = denied.filter(|rest| rest.contains("not(test)") && rest.contains("deny(")).collect();
    NO_PANICS.into_iter().filter(move |lint| !denied.contains(lint))
}

fn check_crate(name: &str, folder: &Path) -> Result<Vec<String>> {
    let tree =
        output(&mut cargo(["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"]))?;
    let mut faults: Vec<String> = forbidden_packages(&tree).map(|package| format!("links {package}")).collect();
    faults.dedup();
    for file in sources::rust_files(&folder.join("src"))? {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let shown = file.strip_prefix(go_programs::repository()).unwrap_or(&file).display().to_string();
        let maps: &[&str] = if shown == MAPS_WITH_A_FIXED_HASHER { &[] } else { &FORBIDDEN_MAPS };
        let forbidden = [&FORBIDDEN_PATHS, maps].concat();
        faults.extend(forbidden_paths(&text, &forbidden).map(|(line, path)| format!("{shown}:{line} names {path}")));
    }
    Ok(faults)
}

/// The forbidden packages in the output of `cargo tree --prefix none --format {p}`.
fn forbidden_packages(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split(' ').next()).filter(|package| {
        FORBIDDEN_PACKAGES.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => package.starts_with(start),
            None => package == pattern,
        })
    })
}

/// The forbidden paths in a source file, with their line numbers; comments and the tests at its end do not count.
fn forbidden_paths<'a>(source: &'a str, forbidden: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    source.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]")).flat_map(|(index, line)| {
        let code = line.split("//").next().unwrap_or_default();
        forbidden.iter().filter(move |path| names(code, path)).map(move |path| (index + 1, *path))
    })
}

/// Whether `code` holds `path` as whole identifiers.
fn names(code: &str, path: &str) -> bool {
    let inside = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices(path).any(|(start, _)| {
        let before = code[..start].chars().next_back();
        let after = code[start + path.len()..].chars().next();
        !before.is_some_and(inside) && !after.is_some_and(inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_whose_code_may_panic_is_found() {
        let all = "//! A crate.\n#![cfg_attr(\n    not(test),\n    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)\n)]\n";
        assert_eq!(lints_not_denied(all).count(), 0);
        let some = "#![cfg_attr(not(test), deny(clippy::unwrap_used))]\n#![allow(clippy::panic)]\n";
        assert_eq!(lints_not_denied(some).collect::<Vec<_>>(), ["clippy::panic", "clippy::indexing_slicing"]);
        assert_eq!(lints_not_denied("pub mod a;\n").count(), 3);
    }

    #[test]
    fn a_runtime_or_a_client_in_the_tree_is_found() {
        let tree = "api v0.1.0 (/x/api)\nkube-core v5.0.0\ntokio v1.54.0\nserde v1.0.0 (*)\naws-sdk-ec2 v1.0.0\n";
        assert_eq!(forbidden_packages(tree).collect::<Vec<_>>(), ["tokio", "aws-sdk-ec2"]);
        assert_eq!(forbidden_packages("kube v5.0.0\nkube-derive v5.0.0\nhyperloglog v1.0.0\n").count(), 0);
    }

    #[test]
    fn a_clock_or_a_file_in_the_sources_is_found_with_its_line() {
        let source = "use x;\nlet a = std::time::Instant::now();\nuse std::fs::File;\n";
        assert_eq!(
            forbidden_paths(source, &FORBIDDEN_PATHS).collect::<Vec<_>>(),
            [(2, "Instant::now"), (3, "std::fs")]
        );
    }

    #[test]
    fn comments_longer_names_and_tests_are_not_code_of_the_core() {
        let source = "// std::fs\nlet my_std::fsx = 1;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(forbidden_paths(source, &FORBIDDEN_PATHS).count(), 0);
    }
}
