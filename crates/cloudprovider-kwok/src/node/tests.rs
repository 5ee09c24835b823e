use crate::names;
use std::sync::Arc;

use api::labels::ProviderLabels;
use cloudprovider::InstanceType;
use cloudprovider::launch::launch_options;
use serde_json::json;

use super::*;
use crate::catalogue::default_instance_types;

fn claim() -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "general-x7k2p",
            "labels": {"karpenter.sh/nodepool": "general", "team": "a"},
            "annotations": {"example.com/note": "n", "dovetail.sh/planned-pods": "uid-2,uid-3"},
        },
        "spec": {
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["s-4x-amd64-linux"]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-c", "test-zone-b"]},
                {"key": "example.com/tier", "operator": "In", "values": ["web"]},
                {"key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"]},
            ],
            "resources": {"requests": {"cpu": "1"}},
            "taints": [{"key": "example.com/own", "value": "1", "effect": "NoSchedule"}],
            "startupTaints": [
                {"key": "example.com/start", "effect": "NoExecute"},
                {"key": "example.com/own", "value": "2", "effect": "NoSchedule"},
            ],
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        },
    }))
    .unwrap()
}

fn record() -> Record {
    let types: Vec<Arc<InstanceType>> = default_instance_types().into_iter().map(Arc::new).collect();
    let requirements = LabelRequirements::of_claim(&claim(), &ProviderLabels::default()).unwrap();
    let options = launch_options(&types, &requirements, &Default::default(), |_| false);
    let token = Uid::from("uid-1");
    new_record(&claim(), &token, options.first().unwrap(), &requirements, Timestamp(5), Timestamp(7)).unwrap()
}

#[test]
fn a_node_is_labelled_like_its_claim_and_its_machine() {
    let record = record();
    let node = to_node(&record, "kube-system", Kubelet::Kwok);
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [
        ("karpenter.sh/nodepool", "general"),
        ("team", "a"),
        ("example.com/tier", "web"),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("topology.kubernetes.io/zone", "test-zone-b"),
        ("node.kubernetes.io/instance-type", "s-4x-amd64-linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("karpenter.kwok.sh/instance-cpu", "4"),
        ("karpenter.kwok.sh/instance-memory", "16Gi"),
        ("karpenter.kwok.sh/instance-family", "s"),
        ("karpenter.kwok.sh/instance-size", "4"),
        ("kwok.x-k8s.io/node", "fake"),
        ("kwok-partition", "a"),
        ("eks-node-viewer/instance-price", "0.117180"),
        ("kubernetes.io/hostname", &*record.node_name),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
}

#[test]
fn a_node_has_the_instance_types_capacity_not_the_claims_requests() {
    let status = to_node(&record(), "kube-system", Kubelet::Kwok).status.unwrap();
    let amount =
        |list: &Option<BTreeMap<String, ApiQuantity>>, resource: &str| list.as_ref().unwrap()[resource].0.clone();
    assert_eq!(amount(&status.capacity, "cpu"), "4");
    assert_eq!(amount(&status.allocatable, "cpu"), "3900m");
    assert_eq!(amount(&status.allocatable, "memory"), "16374Mi");
    assert_eq!(amount(&status.capacity, "pods"), "64");
}

#[test]
fn a_node_declares_in_order_what_its_kubelet_knows_of_devices() {
    let declared = to_node(&record(), "kube-system", Kubelet::Kwok).status.unwrap().declared_features.unwrap();
    assert_eq!(declared, ["DRANodeAllocatableResources", "DRAOptionalNodeOperations"]);
    assert!(declared.is_sorted());
}

#[test]
fn a_node_registers_with_all_taints_once_and_unregistered() {
    let spec = to_node(&record(), "kube-system", Kubelet::Kwok).spec.unwrap();
    assert!(spec.provider_id.unwrap().starts_with("kwok://general-x7k2p-"));
    let taints: Vec<_> = spec
        .taints
        .unwrap()
        .into_iter()
        .map(|taint| format!("{}={}:{}", taint.key, taint.value.unwrap_or_default(), taint.effect))
        .collect();
    let expected =
        ["karpenter.sh/unregistered=:NoExecute", "example.com/own=1:NoSchedule", "example.com/start=:NoExecute"];
    assert_eq!(taints, expected);
}

#[test]
fn only_a_node_with_a_kubelet_carries_kwoks_annotation() {
    let annotation = |kubelet| {
        let annotations = to_node(&record(), "kube-system", kubelet).metadata.annotations.unwrap();
        assert_eq!(annotations["example.com/note"], "n");
        assert_eq!(annotations.get("dovetail.sh/planned-pods"), None);
        annotations.get("kwok.x-k8s.io/node").cloned()
    };
    let record_name = names::KWOK_INSTANCE_RECORD;
    let named = to_node(&record(), "kube-system", Kubelet::Kwok).metadata.annotations.unwrap()[record_name].clone();
    assert_eq!(named, format!("kube-system/{}", record().config_map_name()));
    assert_eq!(annotation(Kubelet::Kwok).as_deref(), Some("fake"));
    assert_eq!(annotation(Kubelet::Absent), None);
}

#[test]
fn prices_are_written_in_dollars_with_six_places() {
    let cases = [
        (0, "0.000000"),
        (27_147_484, "0.027147"),
        (499, "0.000000"),
        (500, "0.000001"),
        (12_999_999_999, "13.000000"),
    ];
    for (nano, expected) in cases {
        assert_eq!(dollars(PriceNanoUsdPerHour(nano)), expected);
    }
}
