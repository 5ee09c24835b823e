//! In which order the machines of commands are deleted.
//!
//! Pods that rules spread over zones, or couple over other domains, come back where their predecessors were
//! (`scheduling::simulation::homes`). But kube-scheduler binds each of them by what runs at that moment: if several
//! zones lose pods of one controller at a time, it lets a successor only into the zone that has lost most, where it
//! takes the room that was planned for another. So machines with pods of one controller go one domain at a time: the
//! next domain's turn comes once all that have left are bound again, or after a while, since a drain may take long.
//!
//! Differs: `one-domain-at-a-time`. Karpenter deletes all machines of a command at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::NodeClaim;
use model::{DurationMs, KeyId, Pod, Timestamp, Uid, ValueId};
use scheduling::snapshot::coupling::coupled_over;

use crate::world::assignments::Assignments;
use crate::world::claim;
use crate::world::store::State;
use crate::world::successors::Successors;

/// How long machines wait for their turn after the last of their command.
const LONGEST: DurationMs = DurationMs::from_seconds(60);

/// Since when commands wait for the turn of their next machine, by their ids.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<String, Timestamp>);

impl Turns {
    /// Forgets commands that are not there any more.
    pub(crate) fn keep_only(&mut self, commands: &BTreeSet<&str>) {
        self.0.retain(|id, _| commands.contains(id.as_str()));
    }

    /// Whether the command deletes its first machine now.
    pub(crate) fn begins(&mut self, command: &str, now: Timestamp) -> bool {
        let is_new = !self.0.contains_key(command);
        // A clock that was set back lets nobody wait longer.
        let since = self.0.entry(command.to_owned()).or_insert(now);
        *since = (*since).min(now);
        is_new
    }

    /// Whether the command has waited long enough.
    pub(crate) fn is_over(&self, command: &str, now: Timestamp) -> bool {
        self.0.get(command).is_none_or(|since| now.since(*since) >= LONGEST)
    }

    /// Notes that a machine of the command was deleted.
    pub(crate) fn went(&mut self, command: &str, now: Timestamp) {
        self.0.insert(command.to_owned(), now);
    }
}

/// A label with its value on a node, if it has one.
type Domain = (KeyId, Option<ValueId>);

/// By controller, where pods are that leave and have not come back.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// The domains of those that are still to be evicted.
    from: BTreeMap<Uid, BTreeSet<Domain>>,
    /// Those of which some are gone and have not been bound again.
    unbound: BTreeSet<Uid>,
}

impl Leaving {
    /// As the store shows it.
    pub(crate) fn now(state: &State, successors: &Successors, assignments: &Assignments, now: Timestamp) -> Self {
        let planned = assignments.claims_by_pod();
        let waits = |pod: &&Arc<Pod>| pod.deletion_timestamp.is_none() && planned.contains_key(&pod.uid);
        let unbound = state.unbound_pods().filter(waits).filter_map(|pod| Some(pod.owner.as_ref()?.uid.clone()));
        let mut leaving = Self { from: BTreeMap::new(), unbound: unbound.chain(successors.awaited(now)).collect() };
        for claim in state.node_claims.values().filter(|claim| claim::is_deleting(claim)) {
            leaving.add(state, claim);
        }
        leaving
    }

    /// Whether no pod of the machine waits for others of its controller to come back in another domain.
    pub(crate) fn let_go(&self, state: &State, machine: &NodeClaim) -> bool {
        coupled(state, machine).iter().all(|(owner, (key, value))| {
            let is_other = |(other, elsewhere): &Domain| other == key && elsewhere != value;
            !self.unbound.contains(owner) && !self.from.get(owner).is_some_and(|from| from.iter().any(is_other))
        })
    }

    /// Notes that the pods of a machine leave.
    pub(crate) fn add(&mut self, state: &State, machine: &NodeClaim) {
        for (owner, domain) in coupled(state, machine) {
            self.from.entry(owner).or_default().insert(domain);
        }
    }
}

/// The controllers of a machine's pods that are still to be evicted and that rules couple, with the domains that these
/// are in.
fn coupled(state: &State, machine: &NodeClaim) -> BTreeSet<(Uid, Domain)> {
    let mut coupled = BTreeSet::new();
    for node in claim::provider_id(machine).into_iter().flat_map(|id| state.nodes_of_machine(id)) {
        for pod in state.pods_on_node(node.model.name.as_ref()) {
            let is_leaving = pod.deletion_timestamp.is_some() || pod.phase.is_terminal() || pod.is_daemon;
            let Some(owner) = pod.owner.as_ref().filter(|_| !is_leaving) else { continue };
            let keys = coupled_over(&pod.shape, &state.interner);
            coupled.extend(keys.map(|key| (owner.uid.clone(), (key, node.model.labels.get(key)))));
        }
    }
    coupled
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::world::store::watch::node_record;
    use crate::world::store::{ClusterStore, RawObject, Revision};

    /// A machine in a zone, with pods of these controllers.
    fn machine(store: &ClusterStore, name: &str, zone: &str, is_deleting: bool, owners: &[&str]) {
        let mut claim = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": format!("id-{name}")},
        });
        if is_deleting {
            claim["metadata"]["deletionTimestamp"] = "2026-11-25T21:10:00Z".into();
            claim["metadata"]["resourceVersion"] = "2".into();
        }
        let claim: NodeClaim = serde_json::from_value(claim).unwrap();
        let revision = Revision::of(&claim.metadata);
        store.apply(claim, revision);
        let node = RawObject::deserialize(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"providerID": format!("id-{name}")},
        }))
        .unwrap();
        store.apply_with(node.revision(), |names| node_record(&node, &mut decode::Context::new(names))).unwrap();
        for owner in owners {
            pod(store, &format!("{owner}-{name}"), owner, Some(name));
        }
    }

    /// A pod; one of `alone` is spread over nothing, the others over zones.
    fn pod(store: &ClusterStore, name: &str, owner: &str, node: Option<&str>) {
        let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]);
        let pod: Value = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences":
                [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]},
            "spec": {"nodeName": node, "containers": [{"name": "c"}],
                "topologySpreadConstraints": if owner == "alone" { json!([]) } else { spread }},
        });
        let raw = RawObject::deserialize(pod).unwrap();
        store.apply_with(raw.revision(), |names| decode::pod(&raw.json, &mut decode::Context::new(names))).unwrap();
    }

    fn claim(state: &State, name: &str) -> Arc<NodeClaim> {
        Arc::clone(state.node_claims.get(name).unwrap())
    }

    #[test]
    fn machines_of_one_zone_go_together_and_those_of_others_when_all_are_back() {
        let store = ClusterStore::new();
        machine(&store, "a1", "za", false, &["web"]);
        machine(&store, "a2", "za", false, &["web", "db"]);
        machine(&store, "b1", "zb", false, &["web", "alone"]);
        machine(&store, "b2", "zb", false, &["db"]);
        machine(&store, "b3", "zb", false, &["alone"]);
        let (successors, assignments) = (Successors::default(), Assignments::default());
        let now = Timestamp::from_seconds(0);
        let may_go = |leaving: &Leaving| -> Vec<&str> {
            let state = store.read();
            let names = ["a1", "a2", "b1", "b2", "b3"];
            names.into_iter().filter(|name| leaving.let_go(&state, &claim(&state, name))).collect()
        };
        let mut leaving = Leaving::now(&store.read(), &successors, &assignments, now);
        assert_eq!(may_go(&leaving), ["a1", "a2", "b1", "b2", "b3"]);
        leaving.add(&store.read(), &claim(&store.read(), "a1"));
        assert_eq!(may_go(&leaving), ["a1", "a2", "b2", "b3"]);
        leaving.add(&store.read(), &claim(&store.read(), "a2"));
        assert_eq!(may_go(&leaving), ["a1", "a2", "b3"]);
        // One that is being deleted, whoever did that.
        machine(&store, "b2", "zb", true, &["db"]);
        let leaving = Leaving::now(&store.read(), &successors, &assignments, now);
        assert_eq!(may_go(&leaving), ["a1", "b1", "b2", "b3"]);
        // Its pod is gone, and the next one waits for its place. Then nobody of that controller goes.
        store.forget::<Pod>(&model::NamespacedName::new("shop", "db-b2"));
        pod(&store, "new", "db", None);
        let waits = Leaving::now(&store.read(), &successors, &assignments, now);
        assert_eq!(may_go(&waits), ["a1", "a2", "b1", "b2", "b3"], "it waits for no machine of ours");
        assignments.extend(&"b1".into(), [("new".into(), None)]);
        let waits = Leaving::now(&store.read(), &successors, &assignments, now);
        assert_eq!(may_go(&waits), ["a1", "b1", "b2", "b3"]);
    }

    #[test]
    fn nobody_waits_for_longer_than_a_minute_after_the_last() {
        let mut turns = Turns::default();
        let at = |seconds: i64| Timestamp::from_seconds(1_000 + seconds);
        assert!(turns.begins("c", at(0)) && !turns.begins("c", at(1)));
        assert!(!turns.is_over("c", at(59)) && turns.is_over("c", at(60)));
        turns.went("c", at(50));
        assert!(!turns.is_over("c", at(109)) && turns.is_over("c", at(110)));
        // A clock that is set back by an hour.
        turns.begins("c", at(-3_600));
        assert!(turns.is_over("c", at(-3_540)));
        turns.keep_only(&BTreeSet::from(["d"]));
        assert!(turns.begins("c", at(0)));
    }
}
