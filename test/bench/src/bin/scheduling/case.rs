//! The neutral form of a case, which both sides read: a file of JSON lines.
//!
//! One line is one thing: options, an instance type, a NodePool, a DaemonSet, a DeviceClass or ResourceClaimTemplate, a
//! template of pods, a node with the pods on it, its NodeClaim if it has one and its ResourceSlices, or pods that wait.
//! Pods are counted by template, which are numbered from 0 in the order of the file, so a hundred thousand of them are
//! a few lines. Objects are as the API has them; prices are in nano-dollars per hour. Waiting pods are called
//! `pod-000000` and so on in the order of the file, those on nodes `bound-000000` and so on; the UID is the name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use bench::machine::Machine;
use cloudprovider::InstanceType;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The namespace of all pods but those of DaemonSets.
pub(crate) const NAMESPACE: &str = "bench";

/// One line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Line {
    Options(Options),
    InstanceType(Box<InstanceType>),
    NodePool(Value),
    DaemonSet(Value),
    /// A DeviceClass or a ResourceClaimTemplate.
    DeviceObject(Value),
    PodTemplate(Value),
    Pods(Vec<PodCount>),
    #[serde(untagged)]
    Node(OnNode),
}

/// A node and what runs there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OnNode {
    pub node: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Value>,
    pub pods: Vec<PodCount>,
}

/// How to plan.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    pub preferences: Preferences,
}

/// What preferred rules are.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Preferences {
    #[default]
    Respect,
    Ignore,
}

/// So many pods of a template.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PodCount {
    pub template: usize,
    pub count: usize,
}

/// Everything a planner is asked.
#[derive(Default)]
pub(crate) struct Case {
    pub options: Options,
    pub instance_types: Vec<InstanceType>,
    pub node_pools: Vec<Value>,
    pub daemon_sets: Vec<Value>,
    /// DeviceClasses and ResourceClaimTemplates.
    pub device_objects: Vec<Value>,
    pub nodes: Vec<CaseNode>,
    /// Templates of pods that wait, one for each pod, in order.
    pub pods: Vec<Value>,
}

/// A node, with a template for each pod that runs there.
#[derive(Default)]
pub(crate) struct CaseNode {
    pub node: Value,
    /// None for a node that is not Karpenter's.
    pub node_claim: Option<Value>,
    /// The ResourceSlices of its devices.
    pub slices: Vec<Value>,
    pub pods: Vec<Value>,
}

impl From<Machine> for CaseNode {
    /// Without pods and devices.
    fn from(machine: Machine) -> Self {
        Self { node: machine.node, node_claim: Some(machine.node_claim), ..Self::default() }
    }
}

impl Case {
    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let mut out = BufWriter::new(file);
        let mut line = |line: &Line| -> Result<()> {
            serde_json::to_writer(&mut out, line)?;
            Ok(out.write_all(b"\n")?)
        };
        line(&Line::Options(self.options))?;
        for instance_type in &self.instance_types {
            line(&Line::InstanceType(Box::new(instance_type.clone())))?;
        }
        for pool in &self.node_pools {
            line(&Line::NodePool(pool.clone()))?;
        }
        for daemon_set in &self.daemon_sets {
            line(&Line::DaemonSet(daemon_set.clone()))?;
        }
        for object in &self.device_objects {
            line(&Line::DeviceObject(object.clone()))?;
        }
        let mut templates = Templates::default();
        for CaseNode { node, node_claim, slices, pods } in &self.nodes {
            let pods = templates.count(pods, &mut line)?;
            let (node, node_claim, slices) = (node.clone(), node_claim.clone(), slices.clone());
            line(&Line::Node(OnNode { node, node_claim, slices, pods }))?;
        }
        let pods = templates.count(&self.pods, &mut line)?;
        line(&Line::Pods(pods))?;
        out.flush()?;
        Ok(())
    }
}

/// Numbers of the templates that were written, by their text.
#[derive(Default)]
struct Templates(BTreeMap<String, usize>);

impl Templates {
    /// Writes templates that are new and counts neighbours that are alike.
    fn count(&mut self, pods: &[Value], line: &mut impl FnMut(&Line) -> Result<()>) -> Result<Vec<PodCount>> {
        let mut counts: Vec<PodCount> = Vec::new();
        for pod in pods {
            let next = self.0.len();
            let template = *self.0.entry(pod.to_string()).or_insert(next);
            if template == next {
                line(&Line::PodTemplate(pod.clone()))?;
            }
            match counts.last_mut() {
                Some(last) if last.template == template => last.count += 1,
                _ => counts.push(PodCount { template, count: 1 }),
            }
        }
        Ok(counts)
    }
}

/// Reads the file line by line; only one line is in memory at a time.
pub(crate) fn read(path: &Path) -> Result<impl Iterator<Item = Result<Line>>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let lines = BufReader::new(file).lines().enumerate();
    Ok(lines
        .map(|(number, line)| serde_json::from_str(&line?).with_context(|| format!("line {} of a case", number + 1))))
}

/// Names the pods of a case, in the order of the file.
#[derive(Default)]
pub(crate) struct Names {
    bound: usize,
    waiting: usize,
}

impl Names {
    /// Makes the counted pods, on a node or waiting, one after the other: there may be a hundred thousand.
    pub(crate) fn pods(
        &mut self,
        counts: &[PodCount],
        templates: &[Value],
        node: Option<&str>,
        mut each: impl FnMut(&mut Value) -> Result<()>,
    ) -> Result<()> {
        for count in counts {
            let mut object = templates.get(count.template).context("a template that is not there")?.clone();
            for _ in 0..count.count {
                let (kind, index) =
                    if node.is_some() { ("bound", &mut self.bound) } else { ("pod", &mut self.waiting) };
                let name = format!("{kind}-{index:06}");
                *index += 1;
                object["metadata"]["namespace"] = NAMESPACE.into();
                object["metadata"]["uid"] = name.as_str().into();
                object["metadata"]["name"] = name.into();
                object["metadata"]["creationTimestamp"] = "2023-11-14T22:13:20Z".into();
                match node {
                    Some(node) => {
                        object["spec"]["nodeName"] = node.into();
                        object["status"] = json!({"phase": "Running"});
                    }
                    None => {
                        let waits = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
                        object["status"] = json!({"phase": "Pending", "conditions": waits});
                    }
                }
                each(&mut object)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_was_written() -> Result<()> {
        let pod = |cpu: &str| json!({"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}});
        let case = Case {
            nodes: vec![CaseNode {
                node: json!({"metadata": {"name": "n"}}),
                pods: vec![pod("1"), pod("1")],
                ..CaseNode::default()
            }],
            pods: vec![pod("2"), pod("1"), pod("1")],
            ..Case::default()
        };
        let path = std::env::temp_dir().join(format!("bench-case-{}", std::process::id()));
        case.write(&path)?;
        let lines: Vec<Line> = read(&path)?.collect::<Result<_>>()?;
        std::fs::remove_file(&path)?;
        let told: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap_or_default()).collect();
        assert_eq!(told.len(), 5);
        assert_eq!(told[2], r#"{"node":{"metadata":{"name":"n"}},"pods":[{"template":0,"count":2}]}"#);
        assert_eq!(told[4], r#"{"pods":[{"template":1,"count":1},{"template":0,"count":2}]}"#);
        Ok(())
    }
}
