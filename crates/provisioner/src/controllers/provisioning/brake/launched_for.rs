//! The annotation on a NodeClaim that says for which classes of pods it was launched, and how many launches in a row
//! had been in vain for each before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::NodeClaim;
use api::annotations::LAUNCHED_FOR;
use api::conditions::node_claim::{INITIALIZED, REGISTERED};
use model::{Timestamp, Uid};
use scheduling::plan::{MachineId, Plan};
use scheduling::snapshot::{NodeId, Snapshot};

use super::Brake;
use crate::controllers::provisioning::pod_class::{PodClass, PodClasses};
use crate::runtime::conditions::{find, to_timestamp};
use crate::world::claim;
use crate::world::store::State;

/// Most classes that a NodeClaim names. What is beyond has as many others to be judged by.
const MOST: usize = 64;

/// The annotations of a plan's machines.
pub(in crate::controllers::provisioning) fn annotations(
    snapshot: &Snapshot,
    plan: &Plan,
    brake: &Brake,
) -> BTreeMap<MachineId, String> {
    let mut classes = PodClasses::new(&snapshot.interner);
    let mut annotations = BTreeMap::new();
    for (id, machine) in plan.machines.iter_enumerated() {
        let mut of_machine: Vec<PodClass> =
            machine.pods.iter().map(|&pod| classes.of(&snapshot.pods[pod].pod)).collect();
        of_machine.sort_unstable();
        of_machine.dedup();
        if !of_machine.is_empty() {
            annotations.insert(id, encode(of_machine.into_iter().map(|class| (class, brake.in_vain(class)))));
        }
    }
    annotations
}

fn encode(classes: impl Iterator<Item = (PodClass, u32)>) -> String {
    let entry = |(class, before): (PodClass, u32)| match before {
        0 => class.to_string(),
        before => format!("{class}:{before}"),
    };
    classes.take(MOST).map(entry).collect::<Vec<_>>().join(",")
}

/// What a text says that somebody may have changed: entries that cannot be read are left out.
fn decode(text: &str) -> Vec<(PodClass, u32)> {
    let entry = |entry: &str| {
        let (class, before) = entry.split_once(':').unwrap_or((entry, "0"));
        Some((class.trim().parse().ok()?, before.trim().parse().ok()?))
    };
    text.split(',').take(MOST).filter_map(entry).collect()
}

/// A machine that has come, and what it was launched for.
#[derive(Debug, Clone)]
pub(in crate::controllers::provisioning) struct Launched {
    pub(super) node: NodeId,
    pub(super) uid: Uid,
    pub(super) classes: Vec<(PodClass, u32)>,
    /// When it was initialized, or else registered.
    pub(super) came_at: Timestamp,
    pub(super) is_initialized: bool,
}

impl Launched {
    /// All machines with a Node that say what they were launched for, in the order of the snapshot's nodes.
    pub(in crate::controllers::provisioning) fn all(state: &State, snapshot: &Snapshot) -> Vec<Self> {
        let of_node = |(node, it): (NodeId, &Arc<scheduling::snapshot::Node>)| {
            let node_claim = state.node_claims.get(it.node_claim.as_ref()?)?;
            let classes = classes_of(node_claim);
            let initialized_at = initialized_at(node_claim);
            let came_at = initialized_at.or_else(|| true_since(node_claim, REGISTERED))?;
            let is_initialized = initialized_at.is_some();
            (!classes.is_empty()).then(|| Self { node, uid: claim::uid(node_claim), classes, came_at, is_initialized })
        };
        snapshot.nodes.iter_enumerated().filter_map(of_node).collect()
    }
}

fn classes_of(node_claim: &NodeClaim) -> Vec<(PodClass, u32)> {
    let annotations = node_claim.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(LAUNCHED_FOR)).map_or_else(Vec::new, |text| decode(text))
}

fn initialized_at(node_claim: &NodeClaim) -> Option<Timestamp> {
    true_since(node_claim, INITIALIZED)
}

fn true_since(node_claim: &NodeClaim, condition_type: &str) -> Option<Timestamp> {
    let condition = find(claim::conditions(node_claim), condition_type)?;
    (condition.status == api::conditions::TRUE).then(|| to_timestamp(&condition.last_transition_time))
}

/// The classes for which a machine is on its way that was launched after all launches in vain that are known.
pub(in crate::controllers::provisioning) fn being_tried(state: &State, brake: &Brake) -> BTreeSet<PodClass> {
    let on_their_way = state.node_claims.values().filter(|it| !claim::is_deleting(it) && initialized_at(it).is_none());
    let classes = on_their_way.flat_map(|it| classes_of(it));
    classes.filter(|&(class, before)| before >= brake.in_vain(class)).map(|(class, _)| class).collect()
}

/// Whether a machine is on its way, and not known to be in vain for pods of the class.
pub(in crate::controllers::provisioning) fn is_on_its_way(
    state: &State,
    node_claim: &str,
    class: PodClass,
    brake: &Brake,
) -> bool {
    let node_claim = state.node_claims.get(node_claim);
    node_claim.is_some_and(|it| {
        !claim::is_deleting(it) && initialized_at(it).is_none() && !brake.has_judged(&claim::uid(it), class)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_launches_in_vain_are_written_and_read_back() {
        let classes = [(PodClass::numbered(1), 0), (PodClass::numbered(0xabc), 3)];
        let text = encode(classes.into_iter());
        assert_eq!(text, "0000000000000001,0000000000000abc:3");
        assert_eq!(decode(&text), classes);
    }

    #[test]
    fn a_strange_text_yields_what_can_be_read_of_it_and_no_text_is_long() {
        assert_eq!(decode("x, 1:2 ,:,1:-1,zz:1"), [(PodClass::numbered(1), 2)]);
        assert_eq!(decode(&encode((0..1000).map(|number| (PodClass::numbered(number), 9)))).len(), MOST);
    }
}
