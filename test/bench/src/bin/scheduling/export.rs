//! Cases as snapshot files, for `dovetail plan` to read.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use cloudprovider::InstanceType;
use cluster::snapshot_file::{self, Header, HeaderOptions, PreferencePolicyName, SCHEMA_VERSION};
use serde_json::{Value, json};

use crate::case::{self, Line, Names, Preferences};
use crate::cases::Named;

/// Writes each case into a file of its name.
pub(crate) fn write(cases: &[Named], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for case in cases {
        let path = folder.join(format!("{}.jsonl", case.name));
        // The file of the case tells the names of pods; it makes room for the snapshot.
        let neutral = path.with_extension("case");
        case.make().write(&neutral)?;
        convert(&neutral, &path).with_context(|| format!("write {}", path.display()))?;
        fs::remove_file(&neutral)?;
    }
    Ok(())
}

fn convert(case: &Path, to: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(to)?);
    let mut write = |line: &Value| -> Result<()> { Ok(writeln!(out, "{line}")?) };
    let mut instance_types: Vec<Arc<InstanceType>> = Vec::new();
    let mut node_pools: Vec<Value> = Vec::new();
    let mut templates: Vec<Value> = Vec::new();
    let mut names = Names::default();
    for line in case::read(case)? {
        match line? {
            Line::Options(options) => write(&header(options.preferences).to_line())?,
            Line::InstanceType(instance_type) => instance_types.push((*instance_type).into()),
            Line::NodePool(mut pool) => {
                pool["status"] = json!({"conditions": [is_ready()]});
                write(&pool)?;
                node_pools.push(pool);
            }
            Line::DaemonSet(set) => write(&set)?,
            Line::DeviceObject(object) => write(&object)?,
            Line::PodTemplate(template) => templates.push(template),
            Line::Node(on_node) => {
                write(&on_node.node)?;
                let name = on_node.node["metadata"]["name"].as_str();
                names.pods(&on_node.pods, &templates, name, |pod| write(&as_pod(pod)))?;
            }
            Line::Pods(counts) => names.pods(&counts, &templates, None, |pod| write(&as_pod(pod)))?,
        }
    }
    let pools = node_pools.iter().filter_map(|pool| pool["metadata"]["name"].as_str());
    let lines = snapshot_file::instance_type_lines(pools.map(|pool| (pool, instance_types.as_slice())));
    lines.into_iter().try_for_each(|line| write(&line))?;
    Ok(out.flush()?)
}

/// What the controller says of a pool that it has looked into; in a snapshot no other is planned with.
fn is_ready() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2023-11-14T22:13:20Z"})
}

/// Templates do not say what they are.
fn as_pod(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod
}

fn header(preferences: Preferences) -> Header {
    let preference_policy = match preferences {
        Preferences::Respect => PreferencePolicyName::Respect,
        Preferences::Ignore => PreferencePolicyName::Ignore,
    };
    Header {
        schema_version: SCHEMA_VERSION,
        time: model::Timestamp::default(),
        dovetail_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: String::new(),
        seed: 0,
        options: HeaderOptions { preference_policy, ..HeaderOptions::default() },
        feature_gates: Default::default(),
        kubernetes_feature_gates: Default::default(),
        scheduler_config: Default::default(),
        names_hidden: false,
    }
}

#[cfg(test)]
mod tests {
    use api::labels::ProviderLabels;
    use cluster::offline::{self, Settings};
    use scheduling::provisioning;

    use super::*;
    use crate::{cases, ours, verdict};

    #[test]
    fn a_snapshot_file_is_planned_as_the_case_that_it_was_made_of() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("bench-export-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (neutral, path) = (folder.join("case"), folder.join("case.jsonl"));
        let of = |case: &Named| ["P1-60", "P2-ignore-60", "P4-60"].contains(&case.name.as_str());
        let cases: Vec<Named> = cases::all(Some(60)).into_iter().filter(of).collect();
        assert_eq!(cases.len(), 3);
        for case in cases {
            case.make().write(&neutral)?;
            convert(&neutral, &path)?;
            let expected = ours::Input::read(&neutral)?.snapshot()?;
            let expected_plan = provisioning::plan(&expected);
            let labels = ProviderLabels::default();
            let parsed = decode::manifests::parse("case", &fs::read_to_string(&path)?);
            let settings = Settings::new(&[], &labels, &[("karpenter.kwok.sh", "KWOKNodeClass")]);
            let input = offline::read(parsed.manifests, parsed.errors, &settings);
            assert!(input.problems.is_empty(), "{}: {}", case.name, input.problems[0]);
            let (snapshot, errors) = cluster::snapshot(input.cluster, input.interner, &labels);
            assert!(errors.is_empty(), "{}: {}", case.name, errors[0]);
            let plan = provisioning::plan(&snapshot);
            let told = |snapshot, plan: &scheduling::Plan| -> Result<_> {
                Ok((plan.machines.len(), plan.existing.len(), plan.refusals.len(), verdict::price(snapshot, plan)?))
            };
            assert_eq!(told(&snapshot, &plan)?, told(&expected, &expected_plan)?, "{}", case.name);
            assert!(plan.refusals.len() < 60, "{}", case.name);
        }
        Ok(fs::remove_dir_all(&folder)?)
    }
}
