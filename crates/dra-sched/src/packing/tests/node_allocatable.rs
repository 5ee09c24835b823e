//! KEP-5517: what devices cost of the node, in both shapes, and who may share such a claim.

use std::sync::Arc;

use model::{Budget, IdSet};
use serde_json::{Value, json};

use crate::fixture::{STEPS, builder_for, exactly, local, n1};
use crate::inventory::{ClaimUse, InventoryBuilder, Reservation};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::packing::Offer;
use crate::verdict::Refusal;
use dra_types::ResourceClaim;
use dra_types::compat::{Compat, Gate, Gates, KubernetesMinor};

fn all(kubernetes: KubernetesMinor) -> Compat {
    Compat::with_gates(kubernetes, Gates::all(kubernetes))
}

/// A node with two devices that have these further fields.
fn node(compat: Compat, fields: &Value) -> InventoryBuilder {
    let mut builder = builder_for(compat, &["cpu"]);
    let mut device = fields.clone();
    let mut devices = Vec::new();
    for name in ["d0", "d1"] {
        device["name"] = name.into();
        devices.push(device.clone());
    }
    builder.slice(local("cpu", &devices.into()));
    builder
}

fn existing(name: &str, count: usize, amount: Option<&str>) -> Arc<ResourceClaim> {
    let mut request = exactly("r", "cpu", count);
    if let Some(amount) = amount {
        request["exactly"]["capacity"] = json!({"requests": {"cores": amount}});
    }
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}}});
    Arc::new(ResourceClaim::from_json(&object).unwrap())
}

fn ask(builder: InventoryBuilder, claims: &[ClaimUse], copies: u32) -> Offer {
    let inventory = builder.build();
    let cluster = ClusterLedger::new(&inventory);
    let bin = BinLedger::node(n1());
    crate::Copies { claims, copies }.try_add(&inventory, &bin, &IdSet::default(), &cluster, &mut Budget::new(STEPS))
}

/// `resource=units` of what one pod with one claim pays, or the reason.
fn cost(compat: Compat, fields: &Value, amount: Option<&str>, containers: u32) -> Result<Vec<String>, String> {
    let mut builder = node(compat, fields);
    let claim = builder.claim(existing("c", 1, amount));
    let offer = ask(builder, &[ClaimUse::Named { claim, containers, reservation: Reservation::NewPod }], 1);
    match (offer.alternatives.first(), offer.refused.first()) {
        (Some(alternative), _) => {
            let shown = |(name, nano): (&Arc<str>, &i128)| format!("{name}={}m", nano / 1_000_000);
            Ok(alternative.demand(None).0.iter().map(shown).collect())
        }
        (None, Some(refused)) => Err(refused.refusal.to_string()),
        (None, None) => panic!("{offer:?}"),
    }
}

fn shared(fields: Value) -> Value {
    let mut fields = fields;
    fields["allowMultipleAllocations"] = true.into();
    fields["capacity"] = json!({"cores": {"value": "8"}});
    fields
}

#[test]
fn both_shapes_say_what_a_device_hands_out() {
    let old = shared(json!({"nodeAllocatableResourceMappings":
        {"cpu": {"capacityKey": "cores", "allocationMultiplier": "500m"}}}));
    assert_eq!(cost(all(KubernetesMinor::V1_36), &old, Some("3"), 1), Ok(vec!["cpu=1500m".into()]));
    let fixed = json!({"nodeAllocatableResourceMappings": {"memory": {"allocationMultiplier": "2"}}});
    assert_eq!(cost(all(KubernetesMinor::V1_36), &fixed, None, 1), Ok(vec!["memory=2000m".into()]));
    let new = shared(json!({"nodeAllocatableResources":
        {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "2"}, "overhead": {"perPod": "1"}}}}));
    assert_eq!(cost(all(KubernetesMinor::V1_37), &new, Some("3"), 1), Ok(vec!["cpu=7000m".into()]));
    let device = json!({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}}});
    assert_eq!(cost(all(KubernetesMinor::V1_37), &device, None, 1), Ok(vec!["cpu=4000m".into()]));
}

#[test]
fn overhead_is_paid_once_a_pod_and_once_a_container() {
    let device = json!({"nodeAllocatableResources":
        {"memory": {"overhead": {"perPod": "10", "perContainer": "3"}}}});
    for (containers, expected) in [(0, "memory=10000m"), (1, "memory=13000m"), (3, "memory=19000m")] {
        assert_eq!(cost(all(KubernetesMinor::V1_37), &device, None, containers), Ok(vec![expected.into()]));
    }
}

#[test]
fn a_capacity_that_is_given_out_whole_is_an_error() {
    let whole = json!({"capacity": {"cores": {"value": "8"}},
        "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "1"}}}});
    let error =
        "claim c: device cpu/n1/d0 hands out cpu by its capacity cores, of which the allocation takes no amount";
    assert_eq!(cost(all(KubernetesMinor::V1_37), &whole, None, 1), Err(error.to_owned()));
    // The error comes first: it ends the pod's attempt on all nodes, and in 1.36 a claim that no container uses does
    // not.
    let of_1_36 = json!({"capacity": {"cores": {"value": "8"}},
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}});
    assert_eq!(cost(all(KubernetesMinor::V1_36), &of_1_36, None, 0), Err(error.to_owned()));
}

#[test]
fn without_the_gate_devices_cost_nothing() {
    let device = json!({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}}});
    let all = all(KubernetesMinor::V1_37);
    let off = Compat::with_gates(all.kubernetes, all.gates.with(Gate::NodeAllocatableResources, false));
    assert_eq!(cost(off, &device, None, 0), Ok(Vec::new()));
}

#[test]
fn a_claim_that_hands_out_node_resources_belongs_to_one_pod() {
    let device = json!({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}}});
    let mut builder = node(all(KubernetesMinor::V1_37), &device);
    let claim = builder.claim(existing("c", 1, None));
    let named = ClaimUse::Named { claim, containers: 1, reservation: Reservation::NewPod };
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let mut bin = BinLedger::node(n1());
    let ask = |cluster: &ClusterLedger, bin: &BinLedger, copies| {
        crate::Copies { claims: &[named], copies }.try_add(
            &inventory,
            bin,
            &IdSet::default(),
            cluster,
            &mut Budget::new(STEPS),
        )
    };
    let offer = ask(&cluster, &bin, 3);
    assert_eq!(offer.alternatives[0].copies, 1);
    assert_eq!(offer.refused[0].refusal, Refusal::Shared { claim: "c".into() });
    offer.alternatives[0].commit(&inventory, &mut bin, &mut cluster);
    assert!(ask(&cluster, &bin, 1).alternatives.is_empty());
}

#[test]
fn a_claim_that_no_container_uses_is_refused_by_1_36_and_charged_once_by_1_37() {
    let old = json!({"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}});
    let unused = cost(all(KubernetesMinor::V1_36), &old, None, 0).unwrap_err();
    assert_eq!(unused, "claim c hands out resources of the node, but no container of the pod uses it");
    let new = json!({"nodeAllocatableResources":
        {"cpu": {"mapping": {"deviceMultiplier": "4"}, "overhead": {"perPod": "1", "perContainer": "2"}}}});
    assert_eq!(cost(all(KubernetesMinor::V1_37), &new, None, 0), Ok(vec!["cpu=5000m".into()]));
}

#[test]
fn a_shape_counts_in_its_release_only() {
    let both = json!({
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "3"}},
        "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}},
    });
    assert_eq!(cost(all(KubernetesMinor::V1_36), &both, None, 1), Ok(vec!["cpu=3000m".into()]));
    assert_eq!(cost(all(KubernetesMinor::V1_37), &both, None, 1), Ok(vec!["cpu=4000m".into()]));
    let old = json!({"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "3"}}});
    assert_eq!(cost(all(KubernetesMinor::V1_37), &old, None, 1), Ok(Vec::new()));
}

#[test]
fn extended_resources_whose_devices_cost_something_are_refused_by_both_releases() {
    let old = json!({"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}});
    let mapped = json!({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}}});
    let costly = json!({"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "10"}}}});
    let free = json!({});
    for (release, device, code) in [
        (KubernetesMinor::V1_36, &old, Some("ClaimNotUsed")),
        (KubernetesMinor::V1_37, &mapped, Some("CostsNotRecorded")),
        (KubernetesMinor::V1_37, &costly, Some("CostsNotRecorded")),
        (KubernetesMinor::V1_37, &free, None),
    ] {
        let mut builder = node(all(release), device);
        let class = builder.claim_class("<extended>", &existing("c", 1, None).spec.clone().into(), None);
        let inventory = builder.build();
        let offer = crate::Copies { claims: &[ClaimUse::Extended { class }], copies: 1 }.try_add(
            &inventory,
            &BinLedger::node(n1()),
            &IdSet::default(),
            &ClusterLedger::new(&inventory),
            &mut Budget::new(STEPS),
        );
        let refused = offer
            .refused
            .first()
            .map(|refused| crate::explain::Explanation::of(&inventory, &refused.refusal, &|_| None).code);
        assert_eq!(refused, code, "{release} {device}");
    }
}

#[test]
fn a_claim_costs_each_of_its_containers_what_it_hands_out_and_costs_once() {
    let device = json!({"nodeAllocatableResources": {
        "cpu": {"mapping": {"deviceMultiplier": "4"}}, "memory": {"overhead": {"perPod": "10", "perContainer": "3"}}}});
    let mut builder = node(all(KubernetesMinor::V1_37), &device);
    let (first, second) = (builder.claim(existing("a", 1, None)), builder.claim(existing("b", 1, None)));
    let named = |claim, containers| ClaimUse::Named { claim, containers, reservation: Reservation::NewPod };
    let offer = ask(builder, &[named(first, 0), named(second, 2)], 1);
    let alternative = &offer.alternatives[0];
    let nano = |amounts: &[(&str, i128)]| {
        crate::NodeDemand(amounts.iter().map(|(name, units)| (Arc::from(*name), units * 1_000_000_000)).collect())
    };
    assert_eq!(alternative.demand(None), nano(&[("cpu", 8), ("memory", 26)]));
    let of_container = nano(&[("cpu", 4), ("memory", 13)]);
    let one = |units: i128| {
        let amount = units * 1_000_000_000;
        crate::CostOfDevices { devices: 1, amount, each: Some(amount) }
    };
    let share = |place, memory| {
        let of_pod = [(Arc::from("cpu"), one(4)), (Arc::from("memory"), one(memory))].into();
        crate::ClaimShare { place, of_pod, of_container: of_container.clone() }
    };
    assert_eq!(alternative.shares(None), [share(0, 10), share(1, 16)]);
}

#[test]
fn a_claim_that_only_costs_is_shared_and_each_pod_pays() {
    let device = json!({"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "10"}}}});
    let mut builder = node(all(KubernetesMinor::V1_37), &device);
    let claim = builder.claim(existing("c", 1, None));
    let offer = ask(builder, &[ClaimUse::Named { claim, containers: 1, reservation: Reservation::NewPod }], 3);
    assert_eq!(offer.alternatives[0].copies, 3);
    let memory: Arc<str> = "memory".into();
    assert_eq!(offer.alternatives[0].demand(None).0[&memory], 10_000_000_000);
}

#[test]
fn a_claim_in_the_cluster_is_for_the_pod_that_has_it_and_no_other_who_pays_but_in_1_36() {
    let old = json!({"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}});
    let new = json!({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "4"}}}});
    for (release, device, reserved, expected) in [
        (KubernetesMinor::V1_37, &new, true, Some(Some(4_000_000_000))),
        (KubernetesMinor::V1_37, &new, false, None),
        (KubernetesMinor::V1_36, &old, true, Some(None)),
        (KubernetesMinor::V1_36, &old, false, None),
    ] {
        let mut builder = node(all(release), device);
        let mut held = (*existing("c", 1, None)).clone();
        let status = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": {"devices": {"requests": []}},
            "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}], "allocation": {"devices":
                {"results": [{"request": "r", "driver": "cpu", "pool": "n1", "device": "d0"}]}}}});
        let status = ResourceClaim::from_json(&status).unwrap();
        (held.allocation, held.reserved_for) = (status.allocation, status.reserved_for);
        let claim = builder.claim(Arc::new(held));
        let reservation = if reserved { Reservation::OfPod } else { Reservation::NewPod };
        let offer = ask(builder, &[ClaimUse::Named { claim, containers: 1, reservation }], 1);
        let cpu = |alternative: &crate::Alternative| alternative.demand(None).0.get("cpu").copied();
        assert_eq!(offer.alternatives.first().map(cpu), expected, "{release}, reserved {reserved}: {offer:?}");
    }
}
