//! What Ginkgo, which the suites are written with, takes and tells.
//!
//! Its report is one JSON array, of a suite in each program; the specs that a focus leaves out are in it as skipped.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::spec::{Spec, Suite, Verdict};

/// How long a spec that is cut may clean up.
pub(super) const GRACE: Duration = Duration::from_secs(60);
/// A message is shown in one line; all of it is in the log.
const MESSAGE_CHARS: usize = 300;

/// The specs of a suite.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) description: String,
    pub(super) specs: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    suite_description: String,
    suite_succeeded: bool,
    special_suite_failure_reasons: Option<Vec<String>>,
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: String,
    location: Location,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Location {
    file_name: String,
    line_number: u32,
}

impl SpecReport {
    fn is_spec(&self) -> bool {
        self.leaf_node_type == "It"
    }
}

fn report(text: &str) -> Result<Report> {
    let mut reports: Vec<Report> = serde_json::from_str(text).context("a report of Ginkgo's")?;
    match (reports.pop(), reports.len()) {
        (Some(report), 0) => Ok(report),
        (_, others) => bail!("a report of Ginkgo's: of {others} suites, must be of one"),
    }
}

/// The specs that a dry run would have run.
pub(super) fn listing(suite: Suite, text: &str) -> Result<Listing> {
    let report = report(text)?;
    let mut specs: Vec<Spec> = Vec::new();
    for it in report.spec_reports.unwrap_or_default() {
        if !it.is_spec() || it.state != "passed" {
            continue;
        }
        let group = it.container_hierarchy_texts.unwrap_or_default().join(" ");
        let name = if group.is_empty() { it.leaf_node_text } else { format!("{group} {}", it.leaf_node_text) };
        // Two of a name cannot be told apart by a focus; they are run and judged together.
        if specs.iter().all(|other| other.name != name) {
            specs.push(Spec { suite, group, name });
        }
    }
    Ok(Listing { description: report.suite_description, specs })
}

/// What a run of one spec came to.
pub(super) fn verdict(text: &str) -> Result<Verdict> {
    let report = report(text)?;
    let nodes = report.spec_reports.unwrap_or_default();
    // What is left out by the focus is skipped too, but only a spec that skipped itself has a reason.
    let failed = nodes.iter().find(|node| !matches!(node.state.as_str(), "passed" | "skipped" | "pending"));
    if let Some(node) = failed {
        return Ok(Verdict::Failed(match &node.failure {
            Some(failure) => format!("{}: {} ({})", node.state, failure.text(), failure.location.text()),
            None => node.state.clone(),
        }));
    }
    let of_state = |state: &str| nodes.iter().filter(|node| node.is_spec() && node.state == state).count();
    if !report.suite_succeeded {
        let reasons = report.special_suite_failure_reasons.unwrap_or_default().join("; ");
        return Ok(Verdict::Failed(format!("the suite failed: {reasons}")));
    }
    if of_state("passed") > 0 {
        return Ok(Verdict::Passed);
    }
    let skipped_itself = nodes.iter().any(|node| node.is_spec() && node.state == "skipped" && node.failure.is_some());
    Ok(if skipped_itself { Verdict::Skipped } else { Verdict::Failed("no spec ran".to_owned()) })
}

impl Failure {
    fn text(&self) -> String {
        let words: Vec<&str> = self.message.split_whitespace().collect();
        let line = words.join(" ");
        match line.char_indices().nth(MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        }
    }
}

impl Location {
    fn text(&self) -> String {
        let file = Path::new(&self.file_name).file_name().unwrap_or_default();
        format!("{}:{}", file.to_string_lossy(), self.line_number)
    }
}

/// What makes a program run one spec for at most `limit`, and write a report.
pub(super) fn arguments(suite: &str, spec: &Spec, limit: Duration, report: &Path) -> Vec<String> {
    // Ginkgo has its own time-out, which lets the spec clean up.
    let fixed = ["-test.timeout=0", "--ginkgo.seed=1", "--ginkgo.v", "--ginkgo.no-color"];
    let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
    arguments.extend([
        format!("--ginkgo.focus={}", focus(suite, &spec.name)),
        format!("--ginkgo.timeout={}s", limit.as_secs()),
        format!("--ginkgo.grace-period={}s", GRACE.as_secs()),
        format!("--ginkgo.json-report={}", report.display()),
    ]);
    arguments
}

/// A regular expression of Go's that takes the spec of this name only; Ginkgo puts the suite's description before it.
fn focus(suite: &str, name: &str) -> String {
    // A quotation ends with the two characters `\E`, so these are written one by one.
    let quoted = format!("{suite} {name}").replace("\\E", "\\E\\\\E\\Q");
    format!("^\\Q{quoted}\\E$")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(kind: &str, containers: &[&str], text: &str, state: &str) -> Value {
        json!({
            "ContainerHierarchyTexts": containers, "LeafNodeType": kind, "LeafNodeText": text, "State": state,
        })
    }

    fn failed(mut node: Value, message: &str) -> Value {
        node["Failure"] =
            json!({ "Message": message, "Location": { "FileName": "/a/drift_test.go", "LineNumber": 7 } });
        node
    }

    fn of_nodes(succeeded: bool, nodes: &[Value]) -> String {
        json!([{ "SuiteDescription": "Regression", "SuiteSucceeded": succeeded, "SpecReports": nodes }]).to_string()
    }

    fn check(succeeded: bool, nodes: &[Value], expected: &Verdict) -> Result<()> {
        assert_eq!(verdict(&of_nodes(succeeded, nodes))?, *expected);
        Ok(())
    }

    #[test]
    fn the_listing_has_each_name_once_and_neither_hooks_nor_what_is_left_out() -> Result<()> {
        let nodes = [
            node("BeforeSuite", &[], "", "passed"),
            node("It", &["Drift", "Budgets"], "should a", "passed"),
            node("It", &["Drift", "Budgets"], "should a", "passed"),
            node("It", &["Drift"], "should b", "skipped"),
            node("It", &["Drift"], "should c", "pending"),
            node("It", &[], "alone", "passed"),
        ];
        let listing = listing(Suite::Regression, &of_nodes(true, &nodes))?;
        assert_eq!(listing.description, "Regression");
        let names: Vec<_> = listing.specs.iter().map(|spec| (spec.group.as_str(), spec.name.as_str())).collect();
        assert_eq!(names, [("Drift Budgets", "Drift Budgets should a"), ("", "alone")]);
        Ok(())
    }

    #[test]
    fn a_spec_passes_only_if_it_ran_and_nothing_around_it_failed() -> Result<()> {
        let (ran, left_out) = (node("It", &["D"], "a", "passed"), node("It", &["D"], "b", "skipped"));
        check(true, &[left_out.clone(), ran.clone()], &Verdict::Passed)?;
        check(true, std::slice::from_ref(&left_out), &Verdict::Failed("no spec ran".to_owned()))?;
        check(true, &[left_out.clone(), failed(left_out, "not here")], &Verdict::Skipped)?;
        let hook = failed(node("BeforeSuite", &[], "", "failed"), "cache  failed\n to sync");
        let message = "failed: cache failed to sync (drift_test.go:7)";
        check(false, &[hook, ran.clone()], &Verdict::Failed(message.to_owned()))?;
        let cut = failed(node("It", &["D"], "a", "timedout"), "A suite timeout occurred");
        let message = "timedout: A suite timeout occurred (drift_test.go:7)";
        check(false, &[cut], &Verdict::Failed(message.to_owned()))?;
        check(false, &[ran], &Verdict::Failed("the suite failed: ".to_owned()))
    }

    #[test]
    fn a_report_that_is_none_is_an_error_and_a_long_message_is_cut_between_characters() {
        assert!(verdict("[]").is_err() && verdict("{").is_err());
        let location = Location { file_name: "a.go".to_owned(), line_number: 1 };
        let text = Failure { message: "ü".repeat(400), location }.text();
        assert_eq!(text.chars().count(), MESSAGE_CHARS + 1);
    }

    #[test]
    fn the_focus_quotes_the_whole_name() {
        assert_eq!(focus("DRA", "should (a|b)"), "^\\QDRA should (a|b)\\E$");
        assert_eq!(focus("DRA", "a\\Eb"), "^\\QDRA a\\E\\\\E\\Qb\\E$");
    }
}
