//! Manifests as the planner's input, and plans as text.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use api::labels::ProviderLabels;
use cloudprovider_kwok::catalogue;
use cluster::offline::{self, Settings};
use cluster::snapshot::Cluster;
use model::{NodeClaimName, ResourceId, ResourceVec, Uid};
use scheduling::{Plan, Snapshot, plan::Machine, snapshot::PodId};
use serde_json::{Value, json};

/// Reads manifests; pods stay planned on machines that were created for them.
pub(crate) fn read(types: &str, text: &str, planned_on: &[(Uid, NodeClaimName)]) -> Snapshot {
    read_as(types, text, |cluster| cluster.planned_on.extend(planned_on.iter().cloned()))
}

/// Reads manifests, asked about as `change` says.
pub(crate) fn read_as(types: &str, text: &str, change: impl FnOnce(&mut Cluster)) -> Snapshot {
    let instance_types: Vec<_> = catalogue::parse(types).unwrap().instance_types.into_iter().map(Arc::new).collect();
    let labels = ProviderLabels::default();
    let parsed = decode::manifests::parse("random", text);
    let settings = Settings::new(&instance_types, &labels, &[("karpenter.kwok.sh", "KWOKNodeClass")]);
    let mut input = offline::read(parsed.manifests, parsed.errors, &settings);
    assert!(input.problems.is_empty(), "{}\n{types}\n{text}", input.problems[0]);
    change(&mut input.cluster);
    let (mut snapshot, errors) = cluster::snapshot(input.cluster, input.interner, &labels);
    snapshot.options.search_steps = 5_000;
    assert!(errors.is_empty(), "{}\n{text}", errors[0]);
    snapshot
}

/// The NodeClaim of a planned machine before its launch, or after a launch as planned.
pub(crate) fn node_claim(snapshot: &Snapshot, machine: &Machine, name: &str, is_launched: bool) -> Value {
    let pool = &snapshot.node_pools[machine.node_pool];
    let offering = &pool.catalogue.offerings[machine.launch.offering];
    let names = &snapshot.interner;
    let amounts = |amounts: &ResourceVec| -> BTreeMap<String, String> {
        let each = amounts.iter().map(|(resource, amount)| {
            let unit = if resource == ResourceId::CPU { "m" } else { "" };
            (names.resource_name(resource).to_owned(), format!("{amount}{unit}"))
        });
        each.collect()
    };
    let mut labels: BTreeMap<&str, &str> = BTreeMap::from([("karpenter.sh/nodepool", &*pool.name)]);
    labels.extend(machine.labels.iter().map(|(key, value)| (names.key_name(*key), &**value)));
    let mut status = json!({});
    if is_launched {
        for requirement in offering.requirements.iter() {
            if let Some(value) = requirement.values.single_value() {
                labels.insert(names.key_name(requirement.key), names.value_name(value));
            }
        }
        status = json!({"providerID": format!("id-{name}"), "capacity": amounts(&offering.capacity),
            "allocatable": amounts(&offering.allocatable)});
    }
    let types: Vec<&str> = machine.instance_types.iter().map(|&of| &*pool.catalogue.types[of].name).collect();
    let mut requirements = vec![json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types})];
    for requirement in machine.requirements.iter() {
        if let Some(values) = requirement.values.finite_values() {
            let values: Vec<&str> = values.iter().map(|&value| names.value_name(value)).collect();
            requirements.push(json!({"key": names.key_name(requirement.key), "operator": "In", "values": values}));
        }
    }
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels},
        "spec": {"nodeClassRef": class, "requirements": requirements,
            "resources": {"requests": amounts(&machine.requests)}},
        "status": status})
}

/// Machines, and nodes, with their pods, and who has none.
pub(crate) fn render(snapshot: &Snapshot, plan: &Plan) -> String {
    let mut text = String::new();
    let names = |pods: &[PodId]| pods.iter().map(|&pod| snapshot.pods[pod].pod.name.to_string()).collect::<Vec<_>>();
    for machine in &plan.machines {
        let pool = &snapshot.node_pools[machine.node_pool];
        let types: Vec<_> =
            machine.instance_types.iter().map(|&of| pool.catalogue.types[of].name.to_string()).collect();
        let requirements = machine.requirements.display(&snapshot.interner);
        let _ = writeln!(text, "{types:?} {requirements} {:?} {:?}", machine.devices, names(&machine.pods));
    }
    for placement in &plan.existing {
        let _ = writeln!(text, "{}: {:?}", snapshot.nodes[placement.node].display_name(), names(&placement.pods));
    }
    for refusal in &plan.refusals {
        let reasons: Vec<_> = refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect();
        let _ = writeln!(text, "{:?} {:?} {reasons:?}", names(&[refusal.pod]), refusal.verdict);
    }
    text
}
