//! `dovetail snapshot`: the planner's whole input in one file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use cluster::snapshot_file::{self, MinValuesPolicyName};
use serde_json::Value;

use super::input::scheduler_config;
use super::live::{self, LiveOptions};
use super::machine_types::MachineTypesArgs;
use super::progress::Progress;
use super::provider_args::OfflineProviderArgs;
use super::{Outcome, output};
use provisioner::options::{FeatureGates, go_bool};

/// Write what the planner sees in a cluster into one file
///
/// The file has one JSON object per line: a header, the objects that planning reads with the fields that it reads, and
/// the instance types of each NodePool. Environment variables, arguments, commands and images of containers are never
/// written. `dovetail plan -f` of the file gives the controller's own answer, so the file is all that a bug report
/// needs.
///
/// Reads the current cluster of the kubeconfig, or the one that this program runs in.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail snapshot > cluster.jsonl
  dovetail snapshot --hash-names -o report.jsonl
  dovetail snapshot | dovetail plan -f -")]
pub(super) struct Args {
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace names by numbers: of objects, namespaces, volumes and owners, UIDs, and values of your own labels
    ///
    /// Label keys, names of resources, drivers and instance types, and values of labels that Kubernetes or the cloud
    /// defines stay. The numbers follow the order of the names, so that the file has the same plan but for the names.
    #[arg(long)]
    hash_names: bool,
    /// File with instance types, in the provider's format [default: the provider's own]
    #[arg(long, value_name = "FILE", env = "INSTANCE_TYPES_FILE_PATH")]
    instance_types: Option<PathBuf>,
    #[command(flatten)]
    provider: OfflineProviderArgs,
    /// What the controller does if minValues cannot be met [default: the running controller's]
    #[arg(long, value_enum, env = "MIN_VALUES_POLICY", ignore_case = true)]
    min_values_policy: Option<Policy>,
    /// Whether the controller ignores pods with resource claims [default: the running controller's]
    #[arg(long, env = "IGNORE_DRA_REQUESTS", value_parser = go_bool, num_args = 0..=1, default_missing_value = "true",
          require_equals = true)]
    ignore_dra_requests: Option<bool>,
    /// The controller's feature gates, such as ReservedCapacity=false [default: the running controller's]
    #[arg(long, env = "FEATURE_GATES")]
    feature_gates: Option<String>,
    /// File with the controller's --scheduler-config [default: the running controller's]
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Policy {
    Strict,
    BestEffort,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let progress = Progress::new("reading the cluster");
    let options = LiveOptions {
        machines: MachineTypesArgs { instance_types: args.instance_types, provider: args.provider },
        min_values_policy: args.min_values_policy.map(|policy| match policy {
            Policy::Strict => MinValuesPolicyName::Strict,
            Policy::BestEffort => MinValuesPolicyName::BestEffort,
        }),
        ignore_dra_requests: args.ignore_dra_requests,
        feature_gates: args
            .feature_gates
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(FeatureGates::parse)
            .transpose()?,
        scheduler_config: args.scheduler_config.as_deref().map(scheduler_config).transpose()?,
    };
    let mut lines = live::read(&options)?;
    if args.hash_names {
        hide_names(&mut lines);
    }
    drop(progress);
    let text = to_text(&lines)?;
    match args.output {
        None => output::stdout(text.as_bytes())?,
        Some(path) => {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(Outcome::Done)
}

/// Hides names, but not the values of labels that come from the provider.
fn hide_names(lines: &mut [Value]) {
    let of_provider: BTreeSet<String> = lines
        .iter()
        .filter_map(|line| line.pointer("/instanceType/requirements")?.as_object())
        .flat_map(|requirements| requirements.keys().cloned())
        .collect();
    snapshot_file::hide_names(lines, &of_provider);
    if let Some(header) = lines.first_mut().and_then(Value::as_object_mut) {
        header.insert("namesHidden".to_owned(), Value::Bool(true));
    }
}

fn to_text(lines: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", serde_json::to_string(line)?)?;
    }
    Ok(text)
}
