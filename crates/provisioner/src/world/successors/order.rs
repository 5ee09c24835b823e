//! In which order pods go that move, over all machines that are drained.
//!
//! * Larger ones first ([`room`](super::room)): small ones fill what is left, where large ones that come last find it
//!   in pieces, and a machine is launched for them.
//! * Pods that rules spread over zones, or couple over other domains, one domain at a time. They come back where their
//!   predecessors were (`scheduling::simulation::homes`), but kube-scheduler binds each by what runs at that moment:
//!   where several zones lose pods of one controller at a time, it lets a successor only into the zone that has lost
//!   most, and there it takes the room that was planned for another. The next domain's turn comes once all that have
//!   left are bound again.
//!
//! One waits for the other: while large pods go zone by zone small ones stay in all zones, whose room they would take
//! before it is the turn of the last.
//!
//! Differs: `larger-first`. Karpenter evicts pods of each node as its turn comes, whatever goes on other nodes.
//!
//! Differs: `one-domain-at-a-time`. Karpenter evicts from all domains at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{DurationMs, KeyId, NodeClaimName, Pod, ResourceVec, Timestamp, Uid, ValueId};
use scheduling::snapshot::coupling::coupled_over;

use super::room::{Room, Size};
use super::{Expected, Inner};
use crate::world::store::State;

/// Longest that a pod stays for others once its node is drained.
const LONGEST: DurationMs = DurationMs::from_seconds(120);
/// How long one is waited for that may go: pods that may not be evicted, and workloads that were scaled down meanwhile,
/// keep others no longer.
const WAITED_FOR: DurationMs = DurationMs::from_seconds(20);
/// How long one is waited for that has come and is not bound: whom a spread lets in only once others have left would
/// keep these.
const BOUND_WITHIN: DurationMs = DurationMs::from_seconds(3);
/// How long one is waited for whose node is not drained yet.
const DRAINED_WITHIN: DurationMs = DurationMs::from_seconds(5);
/// For how long it is known what goes first: it is asked for each pod that could leave, again and again.
const KNOWN_FOR: DurationMs = DurationMs(200);

/// A successor that has come and is not bound yet.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) predecessor: Arc<Pod>,
    pub(super) place: NodeClaimName,
    pub(super) since: Timestamp,
}

/// Labels with their values on a node, if it has them.
type Domains = BTreeMap<KeyId, Option<ValueId>>;

/// Who goes first.
#[derive(Debug, Default)]
pub(super) struct Order {
    ahead: Option<Ahead>,
    /// By controller, from where pods go. Those that were over when it was last looked ahead are forgotten.
    turns: BTreeMap<Uid, Domains>,
}

/// What is still to come.
#[derive(Debug)]
struct Ahead {
    /// When that was looked up.
    at: Timestamp,
    /// What is free at the places.
    room: Room,
    /// Of the largest pod that is to find its place.
    largest: Size,
}

impl Expected {
    /// Whether it is still waited for.
    fn is_to_come(&self, now: Timestamp) -> bool {
        match (self.let_go_at, self.drained_at) {
            (Some(at), _) => now.since(at) < WAITED_FOR,
            (None, Some(at)) => now.since(at) < LONGEST,
            (None, None) => now.since(self.since) < DRAINED_WITHIN,
        }
    }
}

impl Arrival {
    fn is_of(&self, owner: &Uid) -> bool {
        self.predecessor.owner.as_ref().is_some_and(|it| it.uid == *owner)
    }

    fn is_to_be_bound(&self, now: Timestamp) -> bool {
        now.since(self.since) < BOUND_WITHIN
    }
}

impl Inner {
    pub(super) fn waits_for_others(&mut self, pod: &Pod, state: &State, now: Timestamp) -> bool {
        let Some(owner) = pod.owner.as_ref().map(|owner| &owner.uid) else { return false };
        let Some(own) = self.expected_of(owner, pod) else { return false };
        if own.let_go_at.is_some() {
            return false;
        }
        let drained_at = own.drained_at.get_or_insert(now);
        // A clock that was set back lets nobody wait longer.
        *drained_at = (*drained_at).min(now);
        let is_over = now.since(*drained_at) >= LONGEST;
        let is_known = |ahead: &Ahead| (DurationMs(0)..KNOWN_FOR).contains(&now.since(ahead.at));
        if !self.order.ahead.as_ref().is_some_and(is_known) {
            self.look_ahead(state, now);
        }
        let waits = !is_over && (self.is_larger_to_come(pod) || self.is_turn_of_others(owner, pod, state));
        if !waits && let Some(own) = self.expected_of(owner, pod) {
            own.let_go_at = Some(now);
        }
        waits
    }

    fn expected_of(&mut self, owner: &Uid, pod: &Pod) -> Option<&mut Expected> {
        self.expected.get_mut(owner)?.iter_mut().find(|it| it.predecessor.uid == pod.uid)
    }

    fn is_larger_to_come(&self, pod: &Pod) -> bool {
        let ahead = self.order.ahead.as_ref();
        ahead.is_some_and(|ahead| ahead.largest.is_larger_than(ahead.room.size(&pod.shape.requests)))
    }

    /// Whether pods of its controller are under way in another domain; if not, it is the turn of the pod's.
    fn is_turn_of_others(&mut self, owner: &Uid, pod: &Pod, state: &State) -> bool {
        let own = domains(pod, state);
        if own.is_empty() {
            return false;
        }
        if self.order.turns.get(owner).is_some_and(|turn| are_apart(turn, &own)) {
            return true;
        }
        self.order.turns.insert(owner.clone(), own);
        false
    }

    fn look_ahead(&mut self, state: &State, now: Timestamp) {
        let places = self.begun_places().chain(self.expected.values().flatten().map(|it| &it.place)).collect();
        let room = Room::of(state, &places);
        let largest = self.still_to_come(now).map(|requests| room.size(requests)).max().unwrap_or_default();
        let mut turns = std::mem::take(&mut self.order.turns);
        turns.retain(|owner, turn| self.is_under_way(owner, turn, state, now));
        self.order = Order { ahead: Some(Ahead { at: now, room, largest }), turns };
    }

    /// What pods request whose successors have not found their places.
    fn still_to_come(&self, now: Timestamp) -> impl Iterator<Item = &ResourceVec> {
        let begun = self.begun.values().filter(move |begun| now.since(begun.since) < DRAINED_WITHIN);
        let begun = begun.flat_map(|begun| &begun.moves).map(|(pod, _)| pod);
        let expected = self.expected.values().flatten().filter(move |it| it.is_to_come(now));
        let coming = self.coming.values().filter(move |it| it.is_to_be_bound(now));
        let pods = begun.chain(expected.map(|it| &it.predecessor)).chain(coming.map(|it| &it.predecessor));
        pods.map(|pod| &pod.shape.requests)
    }

    /// Whether pods of the controller are still to go from these domains, or have gone and are not bound again.
    fn is_under_way(&self, owner: &Uid, turn: &Domains, state: &State, now: Timestamp) -> bool {
        let mut of_owner = self.expected.get(owner).into_iter().flatten().filter(|it| it.is_to_come(now));
        of_owner.any(|it| it.left.is_some() || !are_apart(turn, &domains(&it.predecessor, state)))
            || self.coming.values().any(|it| it.is_of(owner) && it.is_to_be_bound(now))
    }
}

/// The domains in which a pod is and over which its own rules couple it with others.
fn domains(pod: &Pod, state: &State) -> Domains {
    let node = pod.node_name.as_ref().and_then(|name| state.nodes.get(name));
    let Some(node) = node else { return Domains::new() };
    coupled_over(&pod.shape, &state.interner).map(|key| (key, node.model.labels.get(key))).collect()
}

fn are_apart(one: &Domains, other: &Domains) -> bool {
    one.iter().any(|(key, value)| other.get(key).is_some_and(|there| there != value))
}

#[cfg(test)]
mod tests;
