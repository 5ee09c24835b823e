//! The chart and the binary agree: on options, and on rights.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::{binary, install};

/// Options that only the chart's users have; the binary reads them from the environment alone.
const NOT_OPTIONS: [&str; 1] = ["POD_NAMESPACE"];

#[test]
fn every_environment_variable_of_the_chart_is_an_option_of_the_binary() -> Result<()> {
    let output = Command::new(binary::with_failpoints()?).args(["run", "--help"]).output()?;
    let help = String::from_utf8(output.stdout)?;
    let known: BTreeSet<&str> =
        help.split("[env:").skip(1).filter_map(|rest| rest.trim_start().split(['=', ']']).next()).collect();
    ensure!(known.len() > 10, "only {known:?}");
    let objects = install::render("charts/dovetail", &[])?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().context("no env")?;
    let given: BTreeSet<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
    let unknown: Vec<_> = given.difference(&known).filter(|name| !NOT_OPTIONS.contains(name)).collect();
    ensure!(unknown.is_empty(), "the chart sets {unknown:?}, which `dovetail run --help` does not know");
    Ok(())
}
