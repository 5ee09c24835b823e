//! What a plan tells of the pods of machines that go.

use std::collections::{BTreeMap, BTreeSet};

use super::commands::{machine, planned_with, runs_on_old};
use super::*;
use crate::controllers::provisioning::departing::departing;
use crate::world::successors::Succession;

#[test]
fn pods_that_leave_have_places_and_their_node_is_told_of_unless_a_machine_could_not_be_created() {
    let store = store([runs_on_old("runs"), runs_on_old("runs-too")]);
    machine(&store, "old", (true, true), "");
    machine(&store, "new", (true, false), "uid-runs");
    let (snapshot, plan) = planned_with(&store, &Succession::default());
    let launched: Vec<_> = plan.machines.iter_enumerated().map(|(id, _)| id).collect();
    let [launched] = launched[..] else { panic!("{launched:?}") };
    let (created, nothing) = (BTreeMap::from([(launched, "made".into())]), BTreeMap::new());
    let (runs, runs_too) = (("uid-runs", "new"), ("uid-runs-too", "made"));
    // What was created, what is held back, whether the node is told of, and the places of its pods.
    let cases = [
        (&created, BTreeSet::new(), true, vec![runs, runs_too]),
        (&nothing, BTreeSet::new(), false, vec![]),
        (&nothing, BTreeSet::from([launched]), true, vec![runs]),
    ];
    for (created, held_back, is_told, expected) in cases {
        let going = BTreeSet::from(["node-old".into()]);
        let told = departing((&snapshot, &plan), &held_back, created, going);
        let places: Vec<_> = told.places.iter().map(|(pod, claim)| (pod.as_str(), claim.as_str())).collect();
        assert_eq!((!told.nodes.is_empty(), places), (is_told, expected), "{created:?} {held_back:?}");
    }
}
