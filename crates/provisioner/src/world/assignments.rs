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
    /// Of pods whose NodeClaims are being created, which share one.
    promised: Arc<NameMap<Uid, usize>>,
    /// Of the pods that are to be bound after others; see [`scheduling::Plan::later`].
    stages: Arc<NameMap<Uid, u32>>,
}

/// What each pod waits for that a plan has a machine for.
#[derive(Debug, Clone, Default)]
pub struct AwaitedByPod {
    /// The NodeClaim.
    pub claims: Arc<NameMap<Uid, NodeClaimName>>,
    /// The number of a machine whose NodeClaim is being created, until that is known.
    pub promised: Arc<NameMap<Uid, usize>>,
}

/// While it lives, pods are known to get a NodeClaim soon.
#[derive(Debug)]
pub struct Promise<'a>(&'a Assignments);

impl Promise<'_> {
    /// Takes back what was told of the other machines.
    pub fn retain(&self, is_created: impl Fn(usize) -> bool) {
        let mut inner = self.0.inner.write();
        if inner.promised.values().any(|machine| !is_created(*machine)) {
            Arc::make_mut(&mut inner.promised).retain(|_, machine| is_created(*machine));
        }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.0.inner.write().promised = Arc::default();
    }
}

impl Assignments {
    /// Tells that NodeClaims are being created, for the pods of one machine each. There is one plan at a time.
    ///
    /// NodeClaims come one after the other, and the first machine may be there before the last of them.
    pub fn promise(&self, machines: impl IntoIterator<Item = Vec<Uid>>) -> Promise<'_> {
        let machines = machines.into_iter().enumerate();
        let promised = machines.flat_map(|(machine, pods)| pods.into_iter().map(move |pod| (pod, machine)));
        self.inner.write().promised = Arc::new(promised.collect());
        Promise(self)
    }

    /// Remembers the NodeClaim of a promised machine, for those of `pods` that still wait for it, and for those that
    /// took the place of others.
    pub fn keep_promise(&self, machine: usize, claim: &NodeClaimName, pods: &[Uid]) {
        let mut inner = self.inner.write();
        let known = inner.by_claim.get(claim).cloned().unwrap_or_default();
        let mut others: Vec<&Uid> = inner.promised.keys().chain(known.iter()).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|pod| !pods.contains(pod));
        let waits = |pod: &&Uid| inner.promised.get(*pod) == Some(&machine) || inner.by_pod.get(*pod) == Some(claim);
        let waiting: Vec<Uid> = pods.iter().chain(others).filter(waits).cloned().collect();
        inner.assign(claim, waiting);
    }

    /// Gives what a bound pod waited for, its stage too, to the one whose place it took; once, whoever notices it.
    pub fn exchange(&self, bound: &Uid, left_over: &Uid) {
        let mut inner = self.inner.write();
        let stage = inner.stages.get(bound).copied().unwrap_or(0);
        if let Some(claim) = inner.by_pod.get(bound).cloned() {
            inner.remove_pod(bound);
            inner.extend(&claim, [left_over.clone()]);
        } else if let Some(machine) = inner.promised.get(bound).copied() {
            inner.remove_pod(left_over);
            let promised = Arc::make_mut(&mut inner.promised);
            promised.remove(bound);
            promised.insert(left_over.clone(), machine);
        } else {
            return;
        }
        inner.set_stage(left_over, stage);
    }

    /// Whether a plan has a machine for the pod, be its NodeClaim there or still being created.
    pub fn is_planned(&self, pod: &Uid) -> bool {
        let inner = self.inner.read();
        inner.by_pod.contains_key(pod) || inner.promised.contains_key(pod)
    }

    /// What pods wait for, all seen in one moment.
    pub fn awaited_by_pod(&self) -> AwaitedByPod {
        let inner = self.inner.read();
        AwaitedByPod { claims: Arc::clone(&inner.by_pod), promised: Arc::clone(&inner.promised) }
    }

    /// Remembers the pods of a NodeClaim, in place of those it had. A pod that was planned elsewhere moves here.
    pub fn assign(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        self.inner.write().assign(claim, pods);
    }

    /// Adds pods to a NodeClaim that has some already: a later plan found room there. Each comes with what it waited
    /// for when that plan was begun; one that waits for something else by now took the place of another, and keeps it.
    pub fn extend(&self, claim: &NodeClaimName, pods: impl IntoIterator<Item = (Uid, Option<NodeClaimName>)>) {
        let mut inner = self.inner.write();
        let has_stayed = |(pod, before): &(Uid, Option<NodeClaimName>)| {
            inner.by_pod.get(pod) == before.as_ref() && !inner.promised.contains_key(pod)
        };
        let pods: Vec<Uid> = pods.into_iter().filter(has_stayed).map(|(pod, _)| pod).collect();
        inner.extend(claim, pods);
    }

    /// Remembers after whom a plan wants its pods bound, 0 being first, before they are assigned: a pod that comes
    /// later must not be let in between the two.
    pub fn set_stages(&self, stages: impl IntoIterator<Item = (Uid, u32)>) {
        let mut inner = self.inner.write();
        for (pod, stage) in stages {
            inner.set_stage(&pod, stage);
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
        if inner.promised.contains_key(pod) {
            Arc::make_mut(&mut inner.promised).remove(pod);
        }
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
    /// A plan takes this before it takes the store's state: a pod is forgotten as soon as the store shows it bound, and
    /// one that waits in an older state would look as if nobody had planned for it.
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

    fn extend(&mut self, claim: &NodeClaimName, pods: impl IntoIterator<Item = Uid>) {
        let mut all: Vec<Uid> = self.by_claim.get(claim).map(|known| known.to_vec()).unwrap_or_default();
        for pod in pods {
            if self.by_pod.get(&pod) != Some(claim) {
                all.push(pod);
            }
        }
        self.assign(claim, all);
    }

    fn set_stage(&mut self, pod: &Uid, stage: u32) {
        if self.stages.get(pod).copied().unwrap_or(0) == stage {
            return;
        }
        let known = Arc::make_mut(&mut self.stages);
        match stage {
            0 => drop(known.remove(pod)),
            stage => drop(known.insert(pod.clone(), stage)),
        }
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
    fn who_takes_a_place_leaves_what_it_waited_for_to_the_other() {
        let assignments = Assignments::default();
        let promise = assignments.promise([uids(&["1", "2"]), uids(&["3", "4"])]);
        assignments.set_stages([("4".into(), 2)]);
        assignments.keep_promise(0, &"a".into(), &uids(&["1", "2"]));
        // 4 is bound on the first machine before the second has its NodeClaim.
        assignments.exchange(&"4".into(), &"2".into());
        assignments.forget_pod(&"4".into());
        assert_eq!(*assignments.pods_of("a"), *uids(&["1"]));
        assert_eq!(assignments.awaited_by_pod().promised.get(&Uid::from("2")), Some(&1));
        // The watch shows the NodeClaim before its creator knows of it, and 3 is bound on the first machine too.
        assignments.restore(&"b".into(), uids(&["3"]));
        assignments.exchange(&"3".into(), &"1".into());
        assignments.forget_pod(&"3".into());
        assignments.keep_promise(1, &"b".into(), &uids(&["3", "4"]));
        drop(promise);
        assert_eq!(*assignments.pods_of("b"), *uids(&["1", "2"]));
        assert!(assignments.pods_of("a").is_empty());
        assert_eq!(assignments.stages().get(&Uid::from("2")), Some(&2), "the stage of 4");
    }

    #[test]
    fn a_plan_that_was_long_in_the_making_moves_no_pod_back_that_took_anothers_place() {
        let assignments = Assignments::default();
        assignments.assign(&"a".into(), uids(&["1", "2"]));
        assignments.assign(&"b".into(), uids(&["3"]));
        let on_a = uids(&["1", "2"]).into_iter().map(|pod| (pod, Some(NodeClaimName::from("a"))));
        // While the plan is made 3 is bound on the first machine, so 2 waits for the second.
        assignments.exchange(&"3".into(), &"2".into());
        assignments.forget_pod(&"3".into());
        assignments.extend(&"a".into(), on_a);
        assert_eq!(*assignments.pods_of("a"), *uids(&["1"]));
        assert_eq!(*assignments.pods_of("b"), *uids(&["2"]));
        assignments.extend(&"a".into(), [("4".into(), None)]);
        assert_eq!(*assignments.pods_of("a"), *uids(&["1", "4"]));
    }

    #[test]
    fn pods_that_are_bound_before_their_nodeclaim_is_created_do_not_wait_for_it() {
        let assignments = Assignments::default();
        let _promise = assignments.promise([uids(&["1", "2"])]);
        assignments.forget_pod(&"1".into());
        assignments.keep_promise(0, &"a".into(), &uids(&["1", "2"]));
        assert_eq!(*assignments.pods_of("a"), *uids(&["2"]));
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
        let before = [Some("b".into()), None];
        assignments.extend(&"b".into(), uids(&["2", "4"]).into_iter().zip(before));
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
        assignments.extend(&"a".into(), [("4".into(), None)]);
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
    fn a_promise_ends_with_the_creation_of_nodeclaims() {
        let assignments = Assignments::default();
        let promise = assignments.promise([uids(&["1", "2"]), uids(&["3"])]);
        assignments.assign(&"a".into(), uids(&["3"]));
        let awaited = assignments.awaited_by_pod();
        let promised = |pod: &str| awaited.promised.get(&Uid::from(pod)).copied();
        assert_eq!([promised("1"), promised("2"), promised("3"), promised("4")], [Some(0), Some(0), Some(1), None]);
        assert_eq!(awaited.claims.get(&Uid::from("3")), Some(&"a".into()));
        drop(promise);
        assert!(assignments.awaited_by_pod().promised.is_empty());
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
