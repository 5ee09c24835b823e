//! Pods that are bound before we know which devices they have.
//!
//! kube-scheduler writes a claim's allocation before it binds the pod, but pods and claims are watched apart. A pod that is
//! bound while its claim still has none in the store would leave its devices free for others in the plan. So a plan waits
//! until the claims have come too, for [`LIMIT`] at most and once for each pod: a pod that was bound by other means may never
//! get its devices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dra_sched::types::Pod as DevicePod;
use model::{NamespacedName, Pod, Uid};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::{ClusterStore, State};

/// How long a plan waits for allocations.
const LIMIT: Duration = Duration::from_secs(1);
/// How soon the store is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What was waited for in vain; bounded by the pods that are there.
#[derive(Debug, Default)]
pub struct Allocations {
    given_up: Mutex<BTreeSet<Uid>>,
}

impl Allocations {
    /// A state in which the allocations of bound pods are known, or the newest after [`LIMIT`].
    pub async fn settled(&self, store: &ClusterStore) -> State {
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

/// Bound pods of which a claim has no allocation.
fn missing(state: &State) -> BTreeSet<Uid> {
    let is_bound = |pod: &Pod| pod.node_name.is_some() && !pod.phase.is_terminal() && pod.deletion_timestamp.is_none();
    let has_none = |claim: NamespacedName| {
        let claim = state.resource_claims.get(&claim);
        claim.is_none_or(|claim| claim.allocation.is_none())
    };
    let lacks_one = |(uid, devices): &(&Uid, &Arc<DevicePod>)| {
        let pod = state.pod_by_uid(uid).filter(|pod| is_bound(pod));
        pod.is_some_and(|pod| claims(pod, devices).any(has_none))
    };
    state.device_pods.iter().filter(lacks_one).map(|(uid, _)| uid.clone()).collect()
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
    use serde_json::json;

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
