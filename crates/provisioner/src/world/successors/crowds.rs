//! Which of several places a successor takes whose rules spread it.
//!
//! Pods of one controller that ask for the same are alike, and so are their places. A plan takes all of them away at
//! once. kube-scheduler looks at each by itself, and lets it only into the domains that have fewest like it at that
//! moment, of pods that are still to leave too. After a scale-down, which leaves zones as they happen to be, these are
//! seldom those into which the plan has moved its predecessor. So a successor takes a place where fewest are.

use std::collections::BTreeMap;

use model::{KeyId, NodeClaimName, Pod, Uid, ValueId};

use super::order::Arrival;
use crate::world::claim;
use crate::world::store::State;

/// How many pods a spread counts in each domain.
struct Crowd {
    key: KeyId,
    by_domain: BTreeMap<ValueId, u32>,
}

/// How crowded domains are for a pod.
pub(super) struct Crowds<'s> {
    state: &'s State,
    crowds: Vec<Crowd>,
}

impl<'s> Crowds<'s> {
    /// By the spreads that a pod must keep, but over hosts; `None` if it has none. Who has a place counts there.
    pub(super) fn of(pod: &Pod, state: &'s State, coming: &BTreeMap<Uid, Arrival>) -> Option<Self> {
        let names = &state.interner;
        let hostname = names.find_key(api::labels::HOSTNAME);
        let spreads = pod.shape.hard_spread().filter(|spread| Some(spread.topology_key) != hostname);
        let crowds: Vec<Crowd> = spreads
            .map(|spread| {
                let key = spread.topology_key;
                let mut by_domain = BTreeMap::new();
                let mut add = |pod: &Pod, domain: Option<ValueId>| {
                    // One that leaves is counted no more.
                    let is_there = pod.deletion_timestamp.is_none() && !pod.phase.is_terminal();
                    if let Some(domain) = domain.filter(|_| is_there && spread.counts(pod, names)) {
                        *by_domain.entry(domain).or_default() += 1;
                    }
                };
                for there in state.pods.values() {
                    let node = there.node_name.as_ref().and_then(|name| state.nodes.get(name));
                    add(there, node.and_then(|node| node.model.labels.get(key)));
                }
                for (uid, arrival) in coming {
                    let Some(pod) = state.pod_by_uid(uid).filter(|pod| pod.node_name.is_none()) else { continue };
                    add(pod, domain_of(state, &arrival.place, key));
                }
                Crowd { key, by_domain }
            })
            .collect();
        (!crowds.is_empty()).then_some(Self { state, crowds })
    }

    /// How many there are in the domains of a place.
    pub(super) fn at(&self, place: &NodeClaimName) -> u32 {
        let there = |crowd: &Crowd| {
            let domain = domain_of(self.state, place, crowd.key)?;
            crowd.by_domain.get(&domain).copied()
        };
        self.crowds.iter().filter_map(there).sum()
    }
}

fn domain_of(state: &State, place: &NodeClaimName, key: KeyId) -> Option<ValueId> {
    claim::node(state, state.node_claims.get(place)?)?.model.labels.get(key)
}
