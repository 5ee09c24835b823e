//! Pods that are bound while a plan is made.

use model::Id;
use scheduling::plan::MachineId;

use super::super::commit::{Notes, Planned, assign};
use super::super::round::Launches;
use super::*;
use crate::world::overlays::Outcome;

/// An open machine with room for one of the pods.
fn show_machine(store: &ClusterStore, name: &str) {
    let provider_id = format!("p://{name}");
    store.show_node_claim(json!({
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "general"}},
        "status": {"providerID": provider_id, "nodeName": name},
    }));
    store.show_node(json!({
        "metadata": {"name": name, "labels": {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}},
        "spec": {"providerID": provider_id},
        "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    }));
}

fn bound(name: &str, node: &str) -> Value {
    pod(name, |pod| {
        pod["metadata"]["resourceVersion"] = json!("2");
        pod["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "a"});
        pod["spec"]["nodeName"] = json!(node);
    })
}

/// Two open machines have room for one pod each, and the third pod gets a machine. While that plan is made, the second
/// pod takes the place of the first, and the third that of the second: what remains for the first is the third's.
#[test]
fn who_lost_its_place_while_the_plan_was_made_gets_that_of_the_pod_that_took_it() {
    let names = ["a", "b", "c"];
    let store = store(names.map(|name| pod(name, |_| {})));
    ["m", "n"].iter().for_each(|name| show_machine(&store, name));
    let (snapshot, plan, _) = planned(&store);
    let place_of = |machine: usize| snapshot.pods[plan.existing[machine].pods[0]].pod.name.name.to_string();
    let on_machine = &plan.machines[MachineId::from_index(0)].pods;
    assert_eq!((plan.existing.len(), plan.machines.len(), on_machine.len()), (2, 1, 1), "{plan:#?}");
    let (first, second) = (place_of(0), place_of(1));
    let third = snapshot.pods[on_machine[0]].pod.name.name.to_string();
    let node_of = |machine: usize| snapshot.nodes[plan.existing[machine].node].name.clone().unwrap();
    store.show_pod(bound(&second, &node_of(0)));
    store.show_pod(bound(&third, &node_of(1)));

    let assignments = Assignments::default();
    let (overlays, launches) = (Outcome::default(), Launches::default());
    let notes = Notes { overlays: &overlays, launches: &launches };
    let promise = assign(&store.read(), &assignments, Planned { snapshot: &snapshot, plan: &plan, pools: &[], notes });
    let promised: Vec<(Uid, usize)> =
        assignments.awaited_by_pod().promised.iter().map(|(pod, machine)| (pod.clone(), *machine)).collect();
    assert_eq!(promised, [(Uid::from(format!("uid-{first}")), 0)]);
    assert_eq!(assignments.awaited(), [], "nobody waits for the machines that are full");
    promise.retain(|_| false);
    assert!(assignments.awaited_by_pod().promised.is_empty(), "the machine is not created");
}
