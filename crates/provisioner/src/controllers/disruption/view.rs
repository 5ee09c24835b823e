//! The commands that are under way, read from one state of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::conditions::node_claim::DISRUPTION_REASON;
use api::{NodeClaim, taints};
use cluster::node_claim::command::{Error, Note};
use model::{NodeClaimName, NodePoolName, Timestamp};
use scheduling::snapshot::pending::will_be_replaced;

use super::progress::{Going, Replacement, Shown};
use crate::world::assignments::Assignments;
use crate::world::preconditions::{held_pod, pods_of_machine};
use crate::world::store::{State, Stored};
use crate::world::{claim, node_facts, replacement};

/// All that notes tell.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// By id.
    pub shown: Vec<Shown>,
    /// NodeClaims whose notes cannot be read, or tell something else than others of their id.
    pub broken: Vec<(NodeClaimName, Error)>,
}

/// Whether any NodeClaim takes part in a command. Deleted ones go their way without it.
pub(crate) fn are_any(state: &State) -> bool {
    state.node_claims.values().any(|claim| !claim::is_deleting(claim) && Note::of(claim).is_some())
}

/// Reads all notes.
pub(crate) fn commands(state: &State, assignments: &Assignments, now: Timestamp) -> Commands {
    let mut commands = Commands::default();
    let mut members: BTreeMap<String, (Note, Vec<&Arc<NodeClaim>>)> = BTreeMap::new();
    for claim in state.node_claims.values() {
        match Note::of(claim) {
            None => {}
            // It goes whatever its note says.
            Some(Err(_)) if claim::is_deleting(claim) => {}
            Some(Err(error)) => commands.broken.push((claim.key(), error)),
            Some(Ok(note)) => {
                let (known, claims) = members.entry(note.id.clone()).or_insert_with(|| (note.clone(), Vec::new()));
                if *known == note {
                    claims.push(claim);
                } else {
                    let reason = "another nodeclaim's note of that id says otherwise".to_owned();
                    commands.broken.push((claim.key(), Error::Field { field: "id", reason }));
                }
            }
        }
    }
    let look = Look { state, assignments, now };
    commands.shown.extend(members.into_values().map(|(note, claims)| look.shown(note, &claims)));
    commands
}

struct Look<'a> {
    state: &'a State,
    assignments: &'a Assignments,
    now: Timestamp,
}

impl Look<'_> {
    fn shown(&self, note: Note, members: &[&Arc<NodeClaim>]) -> Shown {
        let named = note.going.iter().filter_map(|name| self.state.node_claims.get(name));
        let going: Vec<Going> = named.map(|claim| self.going(&note, claim)).collect();
        let is_replacement = |claim: &&&Arc<NodeClaim>| !note.going.contains(&claim.key());
        let replacements = members.iter().filter(is_replacement).map(|claim| self.replacement(claim)).collect();
        let lost_pool = members.iter().find_map(|claim| self.lost_pool(claim));
        Shown { note, going, replacements, lost_pool }
    }

    fn going(&self, note: &Note, claim: &NodeClaim) -> Going {
        let nodes = claim::provider_id(claim).into_iter().flat_map(|id| self.state.nodes_of_machine(id));
        let disrupted = taints::disrupted();
        // The grace period ends what holds pods.
        let is_bounded = claim.spec.termination_grace_period.is_some() || note.drain_bounds.contains_key(&claim.key());
        let is_eventual = note.reason.is_eventual() && is_bounded;
        let held_by = if is_eventual { None } else { held_pod(self.state, claim, self.now) };
        Going {
            name: claim.key(),
            has_note: Note::of(claim).is_some_and(|it| it.as_ref() == Ok(note)),
            is_deleting: claim::is_deleting(claim),
            is_marked: claim::is(claim, DISRUPTION_REASON),
            is_tainted: nodes.into_iter().all(|node| node_facts::has_taint(&node.object, &disrupted)),
            pods: pods_of_machine(self.state, claim).filter(|pod| will_be_replaced(pod)).count(),
            held_by: held_by.map(|pod| pod.name.clone()),
        }
    }

    fn replacement(&self, claim: &NodeClaim) -> Replacement {
        let name = claim.key();
        Replacement {
            is_deleting: claim::is_deleting(claim),
            readiness: replacement::readiness(claim),
            is_used: pods_of_machine(self.state, claim).next().is_some() || !self.assignments.pods_of(&name).is_empty(),
            name,
        }
    }

    fn lost_pool(&self, claim: &NodeClaim) -> Option<NodePoolName> {
        let name = claim::node_pool(claim);
        let pool = self.state.node_pools.get(name);
        let is_lost = pool.is_none_or(|pool| pool.metadata.deletion_timestamp.is_some());
        is_lost.then(|| name.into())
    }
}

#[cfg(test)]
mod tests {
    use model::DurationMs;
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::disruption::progress::{self, Step, Why};
    use crate::controllers::disruption::writes::{self, Write};
    use crate::world::replacement::Readiness;
    use crate::world::store::ClusterStore;
    use crate::world::store::test_objects::{condition, merge};

    const NOTE: &str =
        r#"{"id":"1","reason":"Drifted","nodeClaims":["a","b"],"replacements":1,"deadline":"2026-11-25T21:10:00Z"}"#;

    fn claim(store: &ClusterStore, name: &str, note: Option<&str>, conditions: &[(&str, &str)], change: Value) {
        let condition = |(kind, status): &(&str, &str)| condition(kind, status, "2026-11-25T21:00:00Z");
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        let mut metadata = json!({"name": name, "labels": {"karpenter.sh/nodepool": "general"}});
        if let Some(note) = note {
            metadata["annotations"] = json!({"dovetail.sh/disruption-command": note});
        }
        merge(&mut metadata, change);
        store.show_node_claim(json!({
            "metadata": metadata, "status": {"providerID": format!("id-{name}"), "conditions": conditions},
        }));
    }

    fn node(store: &ClusterStore, of_claim: &str, taints: &Value) {
        store.show_node(json!({
            "metadata": {"name": format!("node-{of_claim}")},
            "spec": {"providerID": format!("id-{of_claim}"), "taints": taints},
        }));
    }

    fn pod(store: &ClusterStore, name: &str, of_claim: &str, annotations: Value) {
        store.show_pod(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": format!("node-{of_claim}")}, "status": {"phase": "Running"},
        }));
    }

    fn pool(store: &ClusterStore) {
        pool_with(store, &json!({}));
    }

    fn pool_with(store: &ClusterStore, change: &Value) {
        let mut metadata = json!({"name": "general"});
        merge(&mut metadata, change.clone());
        store.show_node_pool(json!({"metadata": metadata}));
    }

    fn read(store: &ClusterStore) -> Commands {
        commands(&store.read(), &Assignments::default(), Timestamp::from_seconds(1))
    }

    fn taint() -> Value {
        json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}])
    }

    #[test]
    fn a_command_is_who_its_note_names_and_who_has_it_beside_them() {
        let store = ClusterStore::new();
        pool(&store);
        let marked = [("DisruptionReason", "True")];
        claim(&store, "a", Some(NOTE), &marked, json!({}));
        node(&store, "a", &taint());
        pod(&store, "p", "a", json!({}));
        pod(&store, "q", "a", json!({"karpenter.sh/do-not-disrupt": "true"}));
        claim(&store, "b", None, &[], json!({}));
        node(&store, "b", &json!([]));
        let devices = json!({"annotations": {
            "dovetail.sh/devices": "{\"gpu\":1}",
            "dovetail.sh/disruption-command": NOTE,
            "karpenter.sh/requested-dra-drivers": "gpu",
        }});
        claim(&store, "r", None, &[("Initialized", "True"), ("DevicesPublished", "True")], devices);
        claim(&store, "stranger", None, &marked, json!({}));
        let Commands { shown, broken } = read(&store);
        assert!(broken.is_empty(), "{broken:?}");
        let [shown] = shown.as_slice() else { panic!("{shown:#?}") };
        let going: Vec<_> = shown
            .going
            .iter()
            .map(|it| (it.name.as_str(), it.has_note, it.is_marked, it.is_tainted, it.pods, it.held_by.is_some()))
            .collect();
        assert_eq!(going, [("a", true, true, true, 2, true), ("b", false, false, false, 0, false)]);
        let replacements: Vec<_> =
            shown.replacements.iter().map(|it| (it.name.as_str(), it.readiness, it.is_used)).collect();
        assert_eq!(replacements, [("r", Readiness::Ready, false)]);
        assert_eq!(shown.lost_pool, None);
    }

    #[test]
    fn notes_that_cannot_be_read_or_contradict_others_are_named_and_those_that_go_anyway_are_not() {
        let store = ClusterStore::new();
        claim(&store, "a", Some(NOTE), &[], json!({}));
        claim(&store, "other", Some(&NOTE.replace("\"replacements\":1", "\"replacements\":2")), &[], json!({}));
        claim(&store, "unreadable", Some("yes"), &[], json!({}));
        let gone = json!({"deletionTimestamp": "2026-11-25T21:00:00Z"});
        claim(&store, "going", Some("yes"), &[], gone);
        let Commands { shown, broken } = read(&store);
        let broken: Vec<&str> = broken.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(broken, ["other", "unreadable"]);
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0].lost_pool.as_deref(), Some("general"), "its nodepool is not there");
        assert!(are_any(&store.read()));
    }

    /// A NodeClaim with its tainted Node that a note's command takes.
    fn taken(store: &ClusterStore, name: &str, note: &str) {
        claim(store, name, Some(note), &[("DisruptionReason", "True")], json!({}));
        node(store, name, &taint());
    }

    /// What comes next for each command, by id, and what is written for it.
    fn steps(store: &ClusterStore) -> Vec<(String, Step, Vec<Write>)> {
        let now = Timestamp::parse("2026-11-25T21:00:00Z").unwrap();
        let Commands { shown, broken } = commands(&store.read(), &Assignments::default(), now);
        assert!(broken.is_empty(), "{broken:?}");
        let step = |shown: &Shown| {
            let step = progress::next(shown, DurationMs::from_seconds(3_600), now);
            let writes = match &step {
                Step::Nothing | Step::Wait => Vec::new(),
                Step::Finish => writes::finish(shown),
                Step::Release => writes::release(shown),
                Step::RollBack(_) => writes::roll_back(shown),
            };
            (shown.note.id.clone(), step, writes)
        };
        shown.iter().map(step).collect()
    }

    #[test]
    fn a_node_that_notes_of_two_leaders_name_is_only_touched_by_the_command_whose_note_it_has() {
        let of_other = NOTE.replace("\"id\":\"1\"", "\"id\":\"2\"").replace("[\"a\",\"b\"]", "[\"b\",\"c\"]");
        // Whose note the node has that both name: who ends, whom it takes, and who is rolled back, of whom.
        let cases = [("1", NOTE, ["a", "b"], "2", "c"), ("2", of_other.as_str(), ["b", "c"], "1", "a")];
        for (winner, note_of_b, ends, loser, stays) in cases {
            let store = ClusterStore::new();
            pool(&store);
            for (name, note) in [("a", NOTE), ("b", note_of_b), ("c", &of_other)] {
                taken(&store, name, note);
            }
            for (name, note) in [("r1", NOTE), ("r2", &of_other)] {
                claim(&store, name, Some(note), &[("Initialized", "True")], json!({}));
            }
            let [b, stays] = ["b", stays].map(NodeClaimName::from);
            let [of_winner, of_loser] = [winner, loser].map(|id| NodeClaimName::from(format!("r{id}").as_str()));
            let deletions = ends.map(|name| Write::Delete(name.into()));
            let mut expected = vec![
                (winner.to_owned(), Step::Finish, [&deletions[..], &[Write::Forget(of_winner)]].concat()),
                (
                    loser.to_owned(),
                    Step::RollBack(Why::CutShort(b)),
                    vec![
                        Write::Discard(of_loser),
                        Write::Untaint(stays.clone()),
                        Write::Unmark(stays.clone()),
                        Write::Forget(stays),
                    ],
                ),
            ];
            expected.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(steps(&store), expected, "b has the note of {winner}");
        }
    }

    #[test]
    fn a_nodepool_that_is_deleted_in_mid_command_rolls_it_back_until_its_nodes_go() {
        let deleted = json!({"deletionTimestamp": "2026-11-25T21:00:00Z"});
        let gone = || Step::RollBack(Why::NodePoolGone("general".into()));
        // The NodePool, whether the replacement is ready, whether the nodes go already: what comes next.
        let cases = [
            (Some(json!({})), "Unknown", false, Step::Wait),
            (Some(json!({})), "True", false, Step::Finish),
            (Some(deleted.clone()), "Unknown", false, gone()),
            (Some(deleted.clone()), "True", false, gone()),
            (None, "Unknown", false, gone()),
            (None, "True", false, gone()),
            // Nothing is taken back that has happened.
            (Some(deleted.clone()), "Unknown", true, Step::Release),
            (None, "True", true, Step::Release),
        ];
        for (of_pool, initialized, is_going, expected) in cases {
            let store = ClusterStore::new();
            of_pool.iter().for_each(|change| pool_with(&store, change));
            for name in ["a", "b"] {
                let change = if is_going { deleted.clone() } else { json!({}) };
                claim(&store, name, Some(NOTE), &[("DisruptionReason", "True")], change);
                node(&store, name, &taint());
            }
            claim(&store, "r", Some(NOTE), &[("Initialized", initialized)], json!({}));
            let steps = steps(&store);
            let context = format!("{of_pool:?} {initialized} {is_going}: {steps:?}");
            let [(_, step, writes)] = steps.as_slice() else { panic!("{context}") };
            assert_eq!(*step, expected, "{context}");
            if expected == gone() {
                let all = ["a", "b"].map(NodeClaimName::from);
                let each = |write: fn(NodeClaimName) -> Write| all.iter().cloned().map(write);
                let wanted = std::iter::once(Write::Discard("r".into()));
                let wanted: Vec<Write> =
                    wanted.chain(each(Write::Untaint)).chain(each(Write::Unmark)).chain(each(Write::Forget)).collect();
                assert_eq!(*writes, wanted, "{context}");
            }
        }
    }
}
