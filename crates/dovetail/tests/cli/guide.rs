//! What the user guide says that the program prints is what it prints.

use std::path::{Path, PathBuf};

use crate::scratch::Scratch;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Ends what a page shows where the rest says nothing new.
const LEFT_OUT: &str = "\n…";

/// The commands of a page that are followed by what they print, with that.
fn transcripts(page: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        let Some(code) = line.strip_prefix("    ").or((line.is_empty() && in_block).then_some("")) else {
            in_block = false;
            continue;
        };
        let command = code.strip_prefix("$ ").unwrap_or(code);
        let commands = ["dovetail plan ", "dovetail explain ", "dovetail overlay ", "dovetail catalogue "];
        if commands.iter().any(|start| command.starts_with(start)) {
            in_block = true;
            found.push((command.to_owned(), String::new()));
        } else if in_block && let Some((_, printed)) = found.last_mut() {
            printed.push_str(code);
            printed.push('\n');
        }
    }
    found.retain(|(_, printed)| !printed.trim().is_empty());
    found
}

fn check(page: &str, folder: &str, expected: usize) {
    let scratch = Scratch::new();
    let root = repository().join(folder);
    let transcripts = transcripts(page);
    assert_eq!(transcripts.len(), expected, "{page}");
    for (command, printed) in transcripts {
        let arguments: Vec<String> = command
            .split_whitespace()
            .skip(1)
            .map(|argument| match root.join(argument) {
                path if path.exists() => path.display().to_string(),
                _ => argument.to_owned(),
            })
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ran = scratch.run(&arguments);
        let said = format!("{}{}", ran.stderr, ran.stdout);
        let lines =
            |text: &str| text.lines().map(str::trim_end).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("\n");
        let (said, printed) = (lines(&said), lines(&printed));
        match printed.strip_suffix(LEFT_OUT) {
            Some(beginning) => assert_eq!(said.get(..beginning.len()), Some(beginning), "{page}: {command}"),
            None => assert_eq!(said, printed, "{page}: {command}"),
        }
    }
}

#[test]
fn the_page_on_planning_offline_shows_what_is_printed() {
    check("docs/offline.md", "examples/shop", 6);
}

#[test]
fn the_page_on_disruption_shows_what_is_printed() {
    check("docs/disruption.md", "examples/fleet", 2);
}

#[test]
fn the_readme_shows_what_is_printed() {
    check("README.md", ".", 1);
}

#[test]
fn the_page_on_overlays_shows_what_is_printed() {
    check("docs/nodeoverlays.md", "", 1);
}

#[test]
fn the_way_to_a_first_gpu_pod_shows_what_is_printed() {
    check("docs/first-gpu-pod.md", "", 5);
}

#[test]
fn the_page_on_devices_on_eks_shows_what_is_printed() {
    check("docs/devices-on-eks.md", "", 5);
}

#[test]
fn the_node_class_and_node_pool_of_the_page_for_eks_are_taken() {
    let text = std::fs::read_to_string(repository().join("docs/getting-started-eks.md")).unwrap();
    let machines = text.split_once("```yaml").unwrap().1.split_once("```").unwrap().0;
    let scratch = Scratch::new();
    scratch.write("machines.yaml", machines);
    let workload = repository().join("examples/web/shop.yaml").display().to_string();
    let ran = scratch.run(&["plan", "--provider", "aws", "-f", "machines.yaml", "-f", &workload, "--expand-workloads"]);
    assert!(!ran.stderr.contains("problem:"), "{}", ran.stderr);
    assert!(ran.stdout.contains("New machines") && ran.stdout.contains("default"), "{}{}", ran.stdout, ran.stderr);
}
