//! The commands that are under way, read from one state of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::conditions::node_claim::{DEVICES_PUBLISHED, DISRUPTION_REASON, INITIALIZED};
use api::{NodeClaim, taints};
use cluster::node_claim::command::{Error, Note};
use model::{NodeClaimName, NodePoolName, Timestamp};
use scheduling::snapshot::fleet::Reason;
use scheduling::snapshot::pending::will_be_replaced;

use super::progress::{Going, Readiness, Replacement, Shown};
use crate::world::assignments::Assignments;
use crate::world::preconditions::{held_pod, pods_of_machine};
use crate::world::store::{State, Stored};
use crate::world::{claim, machine_devices, node_facts};

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
        let is_eventual = note.reason == Reason::Drifted && claim.spec.termination_grace_period.is_some();
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
            readiness: readiness(claim),
            is_used: pods_of_machine(self.state, claim).next().is_some()
                || !self.assignments.pods_of(&name).is_empty(),
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

fn readiness(claim: &NodeClaim) -> Readiness {
    if machine_devices::are_given_up(claim) {
        Readiness::WithoutDevices
    } else if claim::is(claim, INITIALIZED)
        && (!machine_devices::are_expected(claim) || claim::is(claim, DEVICES_PUBLISHED))
    {
        Readiness::Ready
    } else {
        Readiness::Coming
    }
}
