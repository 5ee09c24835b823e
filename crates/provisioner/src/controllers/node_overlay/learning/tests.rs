use api::labels::ProviderLabels;
use cloudprovider::InstanceTypes;
use cloudprovider_kwok::catalogue::default_instance_types;
use model::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::world::overlays::Overlays;

const TYPE: &str = "m-8x-amd64-linux";
const GPU: &str = "gpu.example.com";

fn answer(pool: &str, class: &str) -> Answer {
    let types = default_instance_types().into_iter().filter(|it| it.name == *TYPE).map(Arc::new);
    let object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": pool},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": class}}}},
    });
    Answer {
        pool: Arc::new(serde_json::from_value(object).unwrap()),
        types: Ok(InstanceTypes { generation: 1, types: types.collect() }),
    }
}

fn machine(name: &str, pool: &str) -> Machine {
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {labels::NODEPOOL: pool, labels::INSTANCE_TYPE: TYPE}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
        "status": {"conditions": [{"type": "Initialized", "status": "True", "reason": "r", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    let node = json!({"metadata": {"name": name, "labels": {labels::INSTANCE_TYPE: TYPE}}});
    let claim = Arc::new(serde_json::from_value(claim).unwrap());
    Machine { claim, node: Arc::new(serde_json::from_value(node).unwrap()) }
}

fn slice(node: &str, devices: usize) -> Arc<ResourceSlice> {
    let devices: Vec<Value> = (0..devices)
        .map(|number| json!({"name": format!("gpu-{number}"), "attributes": {"model": {"string": "x1"}}}))
        .collect();
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
        "spec": {"driver": GPU, "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
    });
    Arc::new(ResourceSlice::from_json(&object).unwrap())
}

/// A person's overlay.
fn person(devices: usize) -> Arc<NodeOverlay> {
    let device = json!({"name": "gpu-{index}", "replicas": devices});
    let resources =
        json!({"resourceSliceTemplates": [{"metadata": {"name": "t"}, "spec": {"driver": GPU, "devices": [device]}}]});
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "mine", "generation": 1},
        "spec": {"requirements": [], "dynamicResources": resources},
    });
    Arc::new(serde_json::from_value(object).unwrap())
}

/// What is to be done: gaps by NodePools of the overlays that close them, and names of overlays to delete.
fn asked(
    objects: &[Arc<NodeOverlay>],
    answers: &[Answer],
    machines: &[Machine],
    slices: &[Arc<ResourceSlice>],
) -> Todo {
    let outcome = Overlays::default().evaluate(objects, answers, &ProviderLabels::default(), Timestamp(0));
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    todo(objects, answers, &outcome, machines, slices)
}

#[test]
fn a_generated_overlay_closes_the_gap_for_the_node_pools_of_its_class_and_for_no_other() {
    let answers = [answer("a", "one"), answer("b", "one"), answer("c", "two")];
    let (machines, slices) = ([machine("m", "a")], [slice("m", 2)]);
    let found = asked(&[], &answers, &machines, &slices);
    let [(gap, Ok(made))] = found.gaps.as_slice() else { panic!("{found:?}") };
    assert_eq!((gap.devices, gap.node_class.as_str()), (2, "K/one"));
    assert_eq!(made.spec.requirements[1].values, ["a", "b"]);

    let generated = [Arc::new(made.clone())];
    let again = asked(&generated, &answers, &machines, &slices);
    assert!(again.gaps.is_empty() && again.obsolete.is_empty(), "{again:?}");
    // Another class's machines are another matter.
    let other = asked(&generated, &answers, &[machine("n", "c")], &[slice("n", 4)]);
    let [(_, Ok(made))] = other.gaps.as_slice() else { panic!("{other:?}") };
    assert_eq!(made.spec.requirements[1].values, ["c"]);
    assert_ne!(made.metadata.name, generated[0].metadata.name);
}

#[test]
fn a_generated_overlay_steps_back_before_a_persons_and_is_obsolete_then() {
    let answers = [answer("a", "one")];
    let (machines, slices) = ([machine("m", "a")], [slice("m", 2)]);
    let made = asked(&[], &answers, &machines, &slices).gaps.remove(0).1.unwrap();
    let generated = Arc::new(made);
    let objects = [Arc::clone(&generated), person(8)];
    let found = asked(&objects, &answers, &machines, &slices);
    assert!(found.gaps.is_empty());
    assert_eq!(found.obsolete.iter().map(|it| it.key()).collect::<Vec<_>>(), [generated.key()]);
    // Where a provider does not answer, nobody knows.
    let silent = Answer { types: Err("gone".to_owned()), ..answer("b", "one") };
    let outcome = Overlays::default().evaluate(&objects, &answers, &ProviderLabels::default(), Timestamp(0));
    let answers = [answer("a", "one"), silent];
    assert!(todo(&objects, &answers, &outcome, &machines, &slices).obsolete.is_empty());
}

#[test]
fn nothing_is_learnt_where_a_person_describes_the_driver_or_the_machine_is_still_coming_up() {
    let answers = [answer("a", "one")];
    assert!(asked(&[person(8)], &answers, &[machine("m", "a")], &[slice("m", 2)]).gaps.is_empty());
    let mut coming = machine("m", "a");
    Arc::make_mut(&mut coming.claim).status = None;
    assert!(asked(&[], &answers, &[coming], &[slice("m", 2)]).gaps.is_empty());
    assert!(asked(&[], &answers, &[machine("m", "gone")], &[slice("m", 2)]).gaps.is_empty());
}
