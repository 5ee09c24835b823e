//! Pods that have their place before we know which devices they have.
//!
//! kube-scheduler says where a pod will go, then writes its claims' allocations, then binds it; and pods, claims and
//! slices are watched apart. A pod that is bound or about to be while its claim still has no allocation in the store
//! would leave its devices free for others in the plan. So would one whose devices are of a pool that the store does
//! not have yet: until then templates say what is there. So a plan waits until claims and slices have come too, for
//! [`LIMIT`] at most and once for each pod: a pod that was bound by other means may never get its devices, a nomination
//! may wait for other pods to go, and a driver may have withdrawn its pool. What nominated pods will get is planned for
//! then (`scheduling::devices`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dra_types::{DeviceId, Pod as DevicePod};
use model::{NamespacedName, Pod, Uid};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::world::store::{ClusterStore, State};

/// How long a plan waits for allocations.
const LIMIT: Duration = Duration::from_secs(1);
/// How soon the store is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What was waited for in vain; bounded by the pods that are there.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    given_up: Mutex<BTreeSet<Uid>>,
}

impl Allocations {
    /// A state in which the allocations of bound pods are known, or the newest after [`LIMIT`].
    pub(crate) async fn settled(&self, store: &ClusterStore) -> State {
        let until = Instant::now() + LIMIT;
        loop {
            let state = store.snapshot();
            let missing = missing(&state);
            let has_time = Instant::now() < until;
            {
                let mut given_up = self.given_up.lock();
                if !has_time || missing.is_subset(&given_up) {
                    *given_up = missing;
                    return state;
                }
            }
            drop(state);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// Pods with a place of which a claim has no allocation, or one from a pool that is not there.
fn missing(state: &State) -> BTreeSet<Uid> {
    let has_place = |pod: &Pod| {
        let nominated = || pod.nominated_node_name.as_ref().is_some_and(|node| state.nodes.contains(node));
        (pod.node_name.is_some() || nominated()) && !pod.phase.is_terminal() && pod.deletion_timestamp.is_none()
    };
    let mut with_place = state.device_pods.iter().filter_map(|(uid, devices)| {
        let pod = state.pod_by_uid(uid).filter(|pod| has_place(pod))?;
        Some((uid, pod, devices))
    });
    let Some(first) = with_place.next() else { return BTreeSet::new() };
    let pools: BTreeSet<(&str, &str)> =
        state.resource_slices.values().map(|slice| (slice.driver.as_str(), slice.pool.name.as_str())).collect();
    let is_known = |device: &DeviceId| pools.contains(&(device.driver.as_str(), device.pool.as_str()));
    let lacks_something = |claim: NamespacedName| {
        let claim = state.resource_claims.get(&claim);
        let Some(allocation) = claim.and_then(|claim| claim.allocation.as_ref()) else { return true };
        !allocation.results.iter().all(|result| is_known(&result.device))
    };
    let all = std::iter::once(first).chain(with_place);
    let missing = all.filter(|(_, pod, devices)| claims(pod, devices).any(lacks_something));
    missing.map(|(uid, ..)| uid.clone()).collect()
}

/// The claims that a pod has, by name.
fn claims<'a>(pod: &'a Pod, devices: &'a DevicePod) -> impl Iterator<Item = NamespacedName> + 'a {
    let names = pod.resource_claim_names.iter().map(|(_, claim)| claim.as_str());
    let names = names.chain(devices.extended_resource_claim.as_deref());
    names.map(|name| NamespacedName::new(Arc::clone(&pod.name.namespace), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_types::{ResourceClaim, ResourceSlice};
    use serde_json::{Value, json};

    /// A pod `p` with the claims `own`, which is made for it, and `shared`.
    fn pod(place: &Value) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1" },
            "spec": {
                "containers": [{ "name": "c" }],
                "resourceClaims": [
                    { "name": "own", "resourceClaimTemplateName": "t" },
                    { "name": "shared", "resourceClaimName": "shared" },
                ],
            },
            "status": { "resourceClaimStatuses": [{ "name": "own", "resourceClaimName": "p-own" }] },
        });
        pod["spec"]["nodeName"] = place["bound"].clone();
        pod["status"]["nominatedNodeName"] = place["nominated"].clone();
        pod
    }

    fn claim(name: &str, pool: Option<&str>) -> Value {
        let mut claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": { "name": name, "namespace": "n", "resourceVersion": "1" },
            "spec": { "devices": { "requests": [{ "name": "r", "exactly": { "deviceClassName": "gpu" } }] } },
        });
        if let Some(pool) = pool {
            let result = json!({ "request": "r", "driver": "gpu", "pool": pool, "device": "d0" });
            claim["status"] = json!({ "allocation": { "devices": { "results": [result] } } });
        }
        claim
    }

    fn slice(pool: &str) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": { "name": pool, "resourceVersion": "1" },
            "spec": { "driver": "gpu", "allNodes": true, "devices": [{ "name": "d0" }],
                "pool": { "name": pool, "generation": 1, "resourceSliceCount": 1 } },
        })
    }

    fn node() -> Value {
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "n1", "resourceVersion": "1" } })
    }

    /// Whether a plan waits for the pod's devices when these objects have come.
    fn waits(objects: &[Value]) -> bool {
        let store = ClusterStore::new();
        for object in objects {
            let shown = object.clone();
            match object["kind"].as_str().unwrap() {
                "Pod" => {
                    store.note_devices(&"u".into(), decode::devices::pod_devices(object).unwrap());
                    store.show_pod(shown);
                }
                "Node" => store.show_node(shown),
                "ResourceClaim" => assert!(store.apply_json(shown, |json, _| ResourceClaim::from_json(json))),
                "ResourceSlice" => assert!(store.apply_json(shown, |json, _| ResourceSlice::from_json(json))),
                other => unreachable!("no test applies a {other}"),
            }
        }
        missing(&store.snapshot()) == BTreeSet::from([Uid::from("u")])
    }

    #[test]
    fn a_plan_waits_until_all_is_there_that_belongs_to_a_pod_with_a_place_in_whichever_order_it_comes() {
        for place in [json!({ "bound": "n1" }), json!({ "nominated": "n1" })] {
            let of_pod = [node(), pod(&place)];
            let devices = [claim("p-own", Some("a")), claim("shared", Some("b")), slice("a"), slice("b")];
            for seen in 0..1 << devices.len() {
                let there = devices.iter().enumerate().filter(|(index, _)| seen & (1 << index) != 0);
                let objects: Vec<Value> = of_pod.iter().chain(there.map(|(_, object)| object)).cloned().collect();
                assert_eq!(waits(&objects), objects.len() < 6, "{place}: {objects:?}");
            }
            let not_allocated = [claim("p-own", None), claim("shared", Some("b")), slice("a"), slice("b")];
            assert!(waits(&[of_pod.to_vec(), not_allocated.to_vec()].concat()));
        }
    }

    #[test]
    fn a_plan_does_not_wait_for_the_devices_of_pods_without_a_place() {
        assert!(!waits(&[node(), pod(&json!({}))]));
        assert!(!waits(&[pod(&json!({ "nominated": "n1" }))]), "a node that is not there");
    }

    #[test]
    fn a_pod_has_the_claims_that_it_names_that_were_made_for_it_and_for_its_extended_resources() {
        let pod = json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u" },
            "spec": {
                "containers": [{ "name": "c" }],
                "resourceClaims": [
                    { "name": "named", "resourceClaimName": "shared" },
                    { "name": "made", "resourceClaimTemplateName": "t" },
                    { "name": "not-made-yet", "resourceClaimTemplateName": "t" },
                    { "name": "not-needed", "resourceClaimTemplateName": "t" },
                ],
            },
            "status": {
                "resourceClaimStatuses": [
                    { "name": "made", "resourceClaimName": "p-made" },
                    { "name": "not-needed" },
                ],
                "extendedResourceClaimStatus": { "resourceClaimName": "p-extended", "requestMappings": [] },
            },
        });
        let devices = DevicePod::from_json(&pod).unwrap();
        let pod = decode::pod(&pod, &mut decode::Context::new(&mut model::Interner::new())).unwrap();
        let names: Vec<String> = claims(&pod, &devices).map(|claim| claim.to_string()).collect();
        assert_eq!(names, ["n/shared", "n/p-made", "n/p-extended"]);
    }
}
