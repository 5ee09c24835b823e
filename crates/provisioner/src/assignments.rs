//! Which pods a machine was launched for.
//!
//! Known from the moment a NodeClaim is created until each pod is bound or gone, or the NodeClaim is. The hand-over
//! nominates by it, and the next plan takes pods that already wait for a machine as placed there. It lives in memory; a
//! bounded annotation on the NodeClaim brings it back after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NodeClaimName, Uid};
use parking_lot::RwLock;

/// Planned pods by NodeClaim. See the [module](self).
#[derive(Debug, Default)]
pub struct Assignments {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_claim: BTreeMap<NodeClaimName, Arc<[Uid]>>,
    by_pod: BTreeMap<Uid, NodeClaimName>,
}

impl Assignments {
    /// Remembers the pods of a NodeClaim, in place of those it had. A pod that was planned elsewhere moves here.
    pub fn assign(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        let mut inner = self.inner.write();
        inner.remove_claim(claim);
        let mut assigned = Vec::new();
        for pod in pods {
            inner.remove_pod(&pod);
            inner.by_pod.insert(pod.clone(), claim.clone());
            assigned.push(pod);
        }
        inner.by_claim.insert(claim.clone(), assigned.into());
    }

    /// Adds pods to a NodeClaim that has some already: a later plan found room there.
    pub fn extend(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        let known = self.pods_of(claim);
        let mut all: Vec<Uid> = known.to_vec();
        all.extend(pods.into_iter().filter(|pod| !known.contains(pod)));
        self.assign(claim, all);
    }

    /// Forgets a NodeClaim.
    pub fn forget_claim(&self, claim: &NodeClaimName) {
        self.inner.write().remove_claim(claim);
    }

    /// Forgets a pod: it is bound, gone, or planned anew.
    pub fn forget_pod(&self, pod: &Uid) {
        self.inner.write().remove_pod(pod);
    }

    /// The pods that a NodeClaim was created for and that are not bound yet, in the plan's order.
    pub fn pods_of(&self, claim: &str) -> Arc<[Uid]> {
        self.inner.read().by_claim.get(claim).cloned().unwrap_or_default()
    }

    /// The NodeClaim that a pod waits for.
    pub fn claim_of(&self, pod: &Uid) -> Option<NodeClaimName> {
        self.inner.read().by_pod.get(pod).cloned()
    }

    /// Whether anything was ever remembered for that NodeClaim.
    pub fn knows(&self, claim: &str) -> bool {
        self.inner.read().by_claim.contains_key(claim)
    }
}

impl Inner {
    fn remove_claim(&mut self, claim: &NodeClaimName) {
        for pod in self.by_claim.remove(claim).iter().flat_map(|pods| pods.iter()) {
            self.by_pod.remove(pod);
        }
    }

    fn remove_pod(&mut self, pod: &Uid) {
        let Some(claim) = self.by_pod.remove(pod) else { return };
        if let Some(pods) = self.by_claim.get_mut(&claim) {
            *pods = pods.iter().filter(|other| *other != pod).cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uids(names: &[&str]) -> Vec<Uid> {
        names.iter().map(|name| Uid::from(*name)).collect()
    }

    #[test]
    fn a_pod_waits_for_one_machine_at_a_time() {
        let assignments = Assignments::default();
        assignments.assign(&"a".into(), uids(&["1", "2"]));
        assignments.assign(&"b".into(), uids(&["2", "3"]));
        assert_eq!(*assignments.pods_of("a"), *uids(&["1"]));
        assert_eq!(*assignments.pods_of("b"), *uids(&["2", "3"]));
        assert_eq!(assignments.claim_of(&"2".into()), Some("b".into()));
    }

    #[test]
    fn forgetting_a_claim_forgets_its_pods_and_no_others() {
        let assignments = Assignments::default();
        assignments.assign(&"a".into(), uids(&["1"]));
        assignments.assign(&"b".into(), uids(&["2"]));
        assignments.extend(&"b".into(), uids(&["2", "4"]));
        assignments.forget_claim(&"a".into());
        assignments.forget_pod(&"2".into());
        assert_eq!(assignments.claim_of(&"1".into()), None);
        assert!(!assignments.knows("a"));
        assert_eq!(*assignments.pods_of("b"), *uids(&["4"]));
    }
}
