//! Which pods a machine was launched for.
//!
//! With it goes the order in which a plan wants its pods bound, where not every order will do.
//!
//! Known from the moment a NodeClaim is created until each pod is bound or gone, or the NodeClaim is. The hand-over
//! nominates by it, and the next plan takes pods that already wait for a machine as placed there. It lives in memory; a
//! bounded annotation on the NodeClaim brings it back after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::collections::NameMap;
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
    by_pod: Arc<NameMap<Uid, NodeClaimName>>,
    /// Of the pods that are to be bound after others; see [`scheduling::Plan::later`].
    stages: Arc<NameMap<Uid, u32>>,
}

impl Assignments {
    /// Remembers the pods of a NodeClaim, in place of those it had. A pod that was planned elsewhere moves here.
    pub fn assign(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        self.inner.write().assign(claim, pods);
    }

    /// Adds pods to a NodeClaim that has some already: a later plan found room there.
    pub fn extend(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        let mut inner = self.inner.write();
        let mut all: Vec<Uid> = inner.by_claim.get(claim).map(|known| known.to_vec()).unwrap_or_default();
        for pod in pods {
            if inner.by_pod.get(&pod) != Some(claim) {
                all.push(pod);
            }
        }
        inner.assign(claim, all);
    }

    /// Remembers after whom a plan wants its pods bound, 0 being first, before they are assigned: a pod that comes later must not
    /// be let in between the two.
    pub fn set_stages(&self, stages: impl IntoIterator<Item = (Uid, u32)>) {
        let mut inner = self.inner.write();
        for (pod, stage) in stages {
            if inner.stages.get(&pod).copied().unwrap_or(0) == stage {
                continue;
            }
            let known = Arc::make_mut(&mut inner.stages);
            match stage {
                0 => drop(known.remove(&pod)),
                stage => drop(known.insert(pod, stage)),
            }
        }
    }

    /// Brings back the stages of pods that wait for no NodeClaim yet: of the others they are known.
    pub fn restore_stages(&self, stages: impl IntoIterator<Item = (Uid, u32)>) {
        let mut inner = self.inner.write();
        for (pod, stage) in stages {
            if stage > 0 && !inner.by_pod.contains_key(&pod) && !inner.stages.contains_key(&pod) {
                Arc::make_mut(&mut inner.stages).insert(pod, stage);
            }
        }
    }

    /// The stages of all pods that are not in the first.
    pub fn stages(&self) -> Arc<NameMap<Uid, u32>> {
        Arc::clone(&self.inner.read().stages)
    }

    /// Brings back what was planned for a NodeClaim, unless it is known, but for pods that wait for another by now.
    ///
    /// One step: the plan that creates the NodeClaim may be remembering all its pods at the same moment.
    pub fn restore(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        let mut inner = self.inner.write();
        if inner.by_claim.contains_key(claim) {
            return;
        }
        let free: Vec<Uid> = pods.into_iter().filter(|pod| !inner.by_pod.contains_key(pod)).collect();
        if !free.is_empty() {
            inner.assign(claim, free);
        }
    }

    /// Forgets a NodeClaim.
    pub fn forget_claim(&self, claim: &NodeClaimName) {
        let mut inner = self.inner.write();
        for pod in inner.by_claim.get(claim).cloned().iter().flat_map(|pods| pods.iter()) {
            inner.remove_stage(pod);
        }
        inner.remove_claim(claim);
    }

    /// Forgets a pod: it is bound, gone, or planned anew.
    pub fn forget_pod(&self, pod: &Uid) {
        let mut inner = self.inner.write();
        inner.remove_stage(pod);
        inner.remove_pod(pod);
    }

    /// The pods that a NodeClaim was created for and that are not bound yet, in the plan's order.
    pub fn pods_of(&self, claim: &str) -> Arc<[Uid]> {
        self.inner.read().by_claim.get(claim).cloned().unwrap_or_default()
    }

    /// The NodeClaims that pods wait for, with those as in [`Self::pods_of`].
    pub fn awaited(&self) -> Vec<(NodeClaimName, Arc<[Uid]>)> {
        let inner = self.inner.read();
        let awaited = inner.by_claim.iter().filter(|(_, pods)| !pods.is_empty());
        awaited.map(|(claim, pods)| (claim.clone(), Arc::clone(pods))).collect()
    }

    /// The NodeClaim that a pod waits for.
    pub fn claim_of(&self, pod: &Uid) -> Option<NodeClaimName> {
        self.inner.read().by_pod.get(pod).cloned()
    }

    /// The NodeClaim that each pod waits for, as it is now.
    ///
    /// A plan takes this before it takes the store's state: a pod is forgotten as soon as the store shows it bound, and one
    /// that waits in an older state would look as if nobody had planned for it.
    pub fn claims_by_pod(&self) -> Arc<NameMap<Uid, NodeClaimName>> {
        Arc::clone(&self.inner.read().by_pod)
    }
}

impl Inner {
    fn assign(&mut self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        self.remove_claim(claim);
        let mut assigned = Vec::new();
        for pod in pods {
            self.remove_pod(&pod);
            Arc::make_mut(&mut self.by_pod).insert(pod.clone(), claim.clone());
            assigned.push(pod);
        }
        self.by_claim.insert(claim.clone(), assigned.into());
    }

    fn remove_claim(&mut self, claim: &NodeClaimName) {
        for pod in self.by_claim.remove(claim).iter().flat_map(|pods| pods.iter()) {
            Arc::make_mut(&mut self.by_pod).remove(pod);
        }
    }

    fn remove_stage(&mut self, pod: &Uid) {
        if self.stages.contains_key(pod) {
            Arc::make_mut(&mut self.stages).remove(pod);
        }
    }

    fn remove_pod(&mut self, pod: &Uid) {
        if !self.by_pod.contains_key(pod) {
            return;
        }
        let Some(claim) = Arc::make_mut(&mut self.by_pod).remove(pod) else { return };
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
    fn what_a_plan_remembers_is_not_cut_down_by_what_is_brought_back() {
        let assignments = Assignments::default();
        assignments.assign(&"a".into(), uids(&["1", "2", "3"]));
        assignments.restore(&"a".into(), uids(&["1"]));
        assert_eq!(*assignments.pods_of("a"), *uids(&["1", "2", "3"]));
        assignments.restore(&"b".into(), uids(&["3", "4"]));
        assert_eq!(*assignments.pods_of("b"), *uids(&["4"]), "3 waits for another machine");
        assignments.restore(&"c".into(), uids(&["1"]));
        assignments.assign(&"c".into(), uids(&["5"]));
        assert_eq!(*assignments.pods_of("c"), *uids(&["5"]));
    }

    #[test]
    fn restoring_and_planning_at_the_same_moment_loses_no_pod() {
        let pods: Vec<Uid> = (0..200).map(|index| Uid::from(index.to_string())).collect();
        for _ in 0..50 {
            let assignments = Assignments::default();
            std::thread::scope(|scope| {
                scope.spawn(|| assignments.restore(&"a".into(), pods.iter().cloned()));
                scope.spawn(|| assignments.assign(&"a".into(), pods.iter().cloned()));
            });
            assert_eq!(*assignments.pods_of("a"), *pods);
        }
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
        assert!(assignments.pods_of("a").is_empty());
        assert_eq!(assignments.awaited(), [("b".into(), uids(&["4"]).into())]);
    }

    #[test]
    fn a_pod_keeps_its_stage_until_it_is_forgotten() {
        let assignments = Assignments::default();
        assignments.set_stages([("1".into(), 0), ("2".into(), 1), ("3".into(), 2)]);
        assignments.assign(&"a".into(), uids(&["1", "2", "3"]));
        assignments.extend(&"a".into(), uids(&["4"]));
        let stages = || {
            let mut stages: Vec<_> =
                assignments.stages().iter().map(|(pod, stage)| (pod.to_string(), *stage)).collect();
            stages.sort();
            stages
        };
        assert_eq!(stages(), [("2".to_owned(), 1), ("3".to_owned(), 2)]);
        assignments.set_stages([("2".into(), 0)]);
        assert_eq!(stages(), [("3".to_owned(), 2)], "planned anew");
        assignments.restore_stages([("2".into(), 1), ("5".into(), 1)]);
        assert_eq!(stages(), [("3".to_owned(), 2), ("5".to_owned(), 1)], "2 waits by a plan of this process");
        assignments.forget_claim(&"a".into());
        assignments.forget_pod(&"5".into());
        assert!(stages().is_empty());
    }

    #[test]
    fn what_a_plan_took_before_stays_although_the_pod_is_bound_meanwhile() {
        let assignments = Assignments::default();
        assignments.assign(&"a".into(), uids(&["1", "2"]));
        let taken = assignments.claims_by_pod();
        assignments.forget_pod(&"1".into());
        assert_eq!(taken.get(&Uid::from("1")), Some(&"a".into()));
        assert_eq!(assignments.claims_by_pod().keys().collect::<Vec<_>>(), [&Uid::from("2")]);
    }
}
