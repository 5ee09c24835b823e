//! An overlay from what drivers have published: read from files or from a cluster.

use std::collections::BTreeSet;

use anyhow::bail;
use dra_types::{NodeScope, ResourceSlice};
use overlay::capture::{Captured, Source};
use serde_json::{Value, json};

use super::objects::Objects;
/// Nodes that a message names.
const NAMED: usize = 5;
/// What a machine is called that no slice names.
const NO_NAME: &str = "captured";

/// What is to be captured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) node: Option<&'a str>,
    pub(super) driver: Option<&'a str>,
    pub(super) without: &'a [String],
}

/// Captures one node of the objects.
pub(super) fn capture(objects: &Objects, wanted: Wanted<'_>) -> anyhow::Result<Captured> {
    let slices: Vec<&ResourceSlice> = objects.slices.iter().collect();
    if slices.is_empty() {
        bail!("there is no ResourceSlice in the input");
    }
    let node_name = match wanted.node {
        Some(name) => name.to_owned(),
        None => only_node(&slices)?,
    };
    let known = objects.nodes.iter().find(|(name, _)| *name == node_name).map(|(_, labels)| labels.clone());
    let labels = known.unwrap_or_else(|| {
        let here: Vec<&ResourceSlice> = slices
            .iter()
            .copied()
            .filter(|it| !matches!(&it.node_scope, Some(NodeScope::Node(of)) if *of != *node_name))
            .collect();
        overlay::capture::implied_labels(&here)
    });
    let type_name = labels.get(api::labels::INSTANCE_TYPE);
    let of_type = type_name.and_then(|name| objects.types.iter().find(|it| it.name == **name));
    let label_of_type = |key: &str| match of_type {
        Some(of_type) => of_type.certain_label(key).map(str::to_owned),
        None => type_name.filter(|_| key == api::labels::INSTANCE_TYPE).cloned(),
    };
    let source = Source {
        node_name: &node_name,
        labels: &labels,
        slices: &slices,
        label_of_type: &label_of_type,
        driver: wanted.driver,
        without: wanted.without,
    };
    Ok(overlay::capture::capture(&source)?)
}

/// The node that the slices are of.
fn only_node(slices: &[&ResourceSlice]) -> anyhow::Result<String> {
    let of_devices = slices.iter().flat_map(|slice| &slice.devices).filter_map(|device| device.node_scope.as_ref());
    let scopes = slices.iter().filter_map(|slice| slice.node_scope.as_ref()).chain(of_devices);
    let names: BTreeSet<&str> = scopes
        .filter_map(|scope| match scope {
            NodeScope::Node(name) => Some(name.as_str()),
            NodeScope::Selector(_) | NodeScope::AllNodes | NodeScope::PerDevice => None,
        })
        .collect();
    let mut shown = names.iter().take(NAMED).copied();
    match names.len() {
        0 => Ok(NO_NAME.to_owned()),
        1 => Ok(shown.next().unwrap_or_default().to_owned()),
        count => bail!(
            "the slices are of {count} nodes ({}{}); choose one with --node",
            shown.collect::<Vec<_>>().join(", "),
            if count > NAMED { ", …" } else { "" }
        ),
    }
}

/// The overlay as a manifest.
pub(super) fn manifest(captured: &Captured) -> anyhow::Result<Value> {
    Ok(json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": captured.overlay.metadata.name },
        "spec": serde_json::to_value(&captured.overlay.spec)?,
    }))
}

/// The manifest with its notes above it.
pub(super) fn yaml(captured: &Captured) -> anyhow::Result<String> {
    let mut text = String::new();
    for note in &captured.notes {
        text.push_str(&format!("# {note}\n"));
    }
    text.push_str(&serde_saphyr::to_string(&manifest(captured)?)?);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_nodes_has_to_be_named() {
        let slice = |node: &str| {
            let object = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
                "spec": {"driver": "d", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
            });
            ResourceSlice::from_json(&object).unwrap()
        };
        let (a, b) = (slice("a"), slice("b"));
        assert_eq!(only_node(&[&a]).unwrap(), "a");
        let error = only_node(&[&b, &a]).unwrap_err().to_string();
        assert_eq!(error, "the slices are of 2 nodes (a, b); choose one with --node");
    }
}
