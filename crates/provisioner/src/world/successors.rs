//! Pods that will come in the place of others: a disruption command has planned where those go that it evicts, and
//! their controllers make new ones, which know nothing of that.
//!
//! A new pod of the same controller that asks for the same takes over the place of the first that has begun to leave:
//! what rules between pods let come there now is what has left. It waits for that machine then as if a plan had put it
//! there, so the hand-over lets it in and no other plan gives its room away. Until then planners know the places as
//! well: a pod that is still there will go to its place, and one that is gone counts as running there until its
//! successor comes. All of this is a wish, and forgotten after a while.
//!
//! kube-scheduler does not know it, and binds a successor to any open node with room as soon as it is there. So the
//! machines of these places are closed to all others until their pods are there ([`hold`](crate::world::hold)). And it
//! matters in which order pods go, over all machines that are drained ([`order`]).
//!
//! Differs: `successors-places`. Karpenter's provisioning takes the room of replacements for free once the pods that
//! they were launched for have begun to go.

mod crowds;
mod order;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::collections::{NameMap, NameSet};
use model::{DurationMs, NodeClaimName, Pod, PriceNanoUsdPerHour, Timestamp, Uid};
use parking_lot::Mutex;

use self::crowds::Crowds;
use self::order::{Arrival, Order};
use crate::runtime::clock::Clock;
use crate::world::assignments::Assignments;
use crate::world::displacement::Displacement;
use crate::world::store::{ClusterStore, State};

/// How long successors are waited for: a drain may take long.
const EXPECTED_FOR: DurationMs = DurationMs::from_seconds(30 * 60);
/// How long once the pod is gone: controllers make the next one at once, but for Jobs, which wait for ten seconds and
/// longer after each time. A workload that was scaled down meanwhile makes none.
const KEPT_FOR: DurationMs = DurationMs::from_seconds(60);
/// How long ago a command that began lately began at most.
const BEGUN_LATELY: DurationMs = DurationMs::from_seconds(20);
/// Most pods whose successors are waited for.
const MOST: usize = 50_000;

/// A pod and the NodeClaim of the machine where its successor has a place.
pub(crate) type Move = (Arc<Pod>, NodeClaimName);

/// Successors that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Of commands that have begun, by their ids: pods that move to nodes that are there. What their replacements were
    /// planned for is on these.
    begun: BTreeMap<String, Begun>,
    /// By their controller, in the order in which they were planned.
    expected: BTreeMap<Uid, Vec<Expected>>,
    /// Successors that have come and are not bound yet.
    coming: BTreeMap<Uid, Arrival>,
    order: Order,
    /// Machines to which none of them is to come.
    shunned: BTreeSet<NodeClaimName>,
    /// How many have left.
    left: u64,
    displacement: Displacement,
}

#[derive(Debug)]
struct Begun {
    moves: Vec<Move>,
    since: Timestamp,
}

#[derive(Debug)]
struct Expected {
    predecessor: Arc<Pod>,
    place: NodeClaimName,
    since: Timestamp,
    /// When it would have been its turn first on its own machine.
    drained_at: Option<Timestamp>,
    /// When it was its turn over all machines.
    let_go_at: Option<Timestamp>,
    until: Timestamp,
    /// The how-manyeth of all that left its predecessor was, if it is gone or being deleted.
    left: Option<u64>,
    /// Whether the predecessor is gone.
    is_open: bool,
}

/// What planners are to know of places that were planned for pods which move.
#[derive(Debug, Clone, Default)]
pub(crate) struct Succession {
    /// Where pods go that are there.
    pub(crate) places: NameMap<Uid, NodeClaimName>,
    /// Pods that are gone, and where their successors will be.
    pub(crate) kept: Vec<Move>,
}

impl Successors {
    /// Remembers where pods go by a command that has begun.
    pub(crate) fn begin(&self, command: &str, moves: Vec<Move>, now: Timestamp) {
        self.inner.lock().begun.insert(command.to_owned(), Begun { moves, since: now });
    }

    /// Forgets commands that are not there any more: they were rolled back.
    pub(crate) fn keep_only(&self, commands: &BTreeSet<&str>) {
        self.inner.lock().begun.retain(|id, _| commands.contains(id.as_str()));
    }

    /// Waits for the successors of the pods of a command, which are evicted from now on; `others` are those that go to
    /// its replacements. A pod without a controller has none. Says where the successors will be.
    pub(crate) fn expect(
        &self,
        command: &str,
        others: impl IntoIterator<Item = Move>,
        now: Timestamp,
    ) -> BTreeSet<NodeClaimName> {
        let mut inner = self.inner.lock();
        let moves = inner.begun.remove(command).map(|begun| begun.moves).unwrap_or_default();
        let Inner { expected, displacement, .. } = &mut *inner;
        expected.retain(|_, of_owner| {
            of_owner.retain(|it| it.until > now);
            !of_owner.is_empty()
        });
        let mut count: usize = expected.values().map(Vec::len).sum();
        let before = count;
        let mut places = BTreeSet::new();
        for (predecessor, place) in others.into_iter().chain(moves) {
            let Some(owner) = predecessor.owner.as_ref().map(|owner| owner.uid.clone()) else { continue };
            if count == MOST {
                break;
            }
            let of_owner = expected.entry(owner).or_default();
            // A deletion that failed is tried again.
            if of_owner.iter().any(|it| it.predecessor.uid == predecessor.uid) {
                continue;
            }
            count += 1;
            places.insert(place.clone());
            let until = now.saturating_add(EXPECTED_FOR);
            of_owner.push(Expected {
                predecessor,
                place,
                since: now,
                drained_at: None,
                let_go_at: None,
                until,
                left: None,
                is_open: false,
            });
        }
        displacement.evicts(count - before, now);
        places
    }

    /// Notes that a pod has begun to leave, and since when it is gone.
    fn leaves(&self, pod: &Pod, gone: Option<Timestamp>) {
        let Some(owner) = &pod.owner else { return };
        let mut inner = self.inner.lock();
        let Inner { expected, left, .. } = &mut *inner;
        let of_owner = expected.get_mut(&owner.uid).into_iter().flatten();
        for it in of_owner.filter(|it| it.predecessor.uid == pod.uid) {
            it.left.get_or_insert_with(|| {
                *left += 1;
                *left
            });
            if let Some(gone) = gone {
                it.is_open = true;
                it.until = it.until.min(gone.saturating_add(KEPT_FOR));
            }
        }
    }

    /// The place of a new pod, if it is a successor. Each place is given once.
    fn take(&self, pod: &Pod, state: &State, now: Timestamp) -> Option<NodeClaimName> {
        let owner = &pod.owner.as_ref()?.uid;
        let mut inner = self.inner.lock();
        let Inner { expected: all, coming, displacement, .. } = &mut *inner;
        let of_owner = all.get_mut(owner)?;
        if of_owner.iter().any(|it| it.predecessor.uid == pod.uid) {
            return None;
        }
        let takes_over = |it: &Expected| {
            let before = &it.predecessor;
            // Labels are left out: a bound pod has some of its node's.
            it.until > now
                && before.name.namespace == pod.name.namespace
                && before.priority == pod.priority
                && before.scheduler_name == pod.scheduler_name
                && before.shape == pod.shape
        };
        let could = || of_owner.iter().enumerate().filter(|(_, it)| takes_over(it));
        let (position, _) = could().min_by_key(|(_, it)| it.left.unwrap_or(u64::MAX))?;
        // Who is succeeded is one thing, and which place is taken another: those of all that are alike are as good.
        let crowds = Crowds::of(pod, state, coming);
        let by_crowd = crowds.and_then(|crowds| {
            could().min_by_key(|(index, it)| (crowds.at(&it.place), *index != position)).map(|(index, _)| index)
        });
        let own = of_owner.get(position)?.place.clone();
        let place = std::mem::replace(&mut of_owner.get_mut(by_crowd.unwrap_or(position))?.place, own);
        let taken = of_owner.remove(position);
        if of_owner.is_empty() {
            all.remove(owner);
        }
        displacement.places(&pod.uid, now);
        if coming.len() < MOST {
            let arrival = Arrival { predecessor: taken.predecessor, place: place.clone(), since: now };
            coming.insert(pod.uid.clone(), arrival);
        }
        Some(place)
    }

    /// Keeps the successors away from machines that are about to go themselves, in place of those that were told
    /// before. Says from which: from none where these are more than the pods that are to come, since each of these
    /// costs another command at most.
    pub(crate) fn shun(&self, about_to_go: BTreeSet<NodeClaimName>) -> BTreeSet<NodeClaimName> {
        let mut inner = self.inner.lock();
        let expected: usize = inner.expected.values().map(Vec::len).sum();
        inner.shunned = if about_to_go.len() <= expected { about_to_go } else { BTreeSet::new() };
        inner.shunned.clone()
    }

    /// A successor was bound, or is gone.
    fn has_come(&self, pod: &Uid) {
        self.inner.lock().coming.remove(pod);
    }

    /// Whether a pod that moves stays for now, since it is the turn of others that move as well, on whatever machines
    /// they are. Nobody waits for long.
    pub(crate) fn waits_for_others(&self, pod: &Pod, state: &State, now: Timestamp) -> bool {
        self.inner.lock().waits_for_others(pod, state, now)
    }

    /// Notes that a machine was launched for pods that wait.
    pub(crate) fn launched<'p>(&self, price: PriceNanoUsdPerHour, pods: impl Iterator<Item = &'p Uid>, now: Timestamp) {
        self.inner.lock().displacement.launches(price, pods, now);
    }

    /// What has been launched lately for successors that did not come to their places, for each pod that was evicted.
    pub(crate) fn displacement_price(&self, now: Timestamp) -> PriceNanoUsdPerHour {
        self.inner.lock().displacement.price(now)
    }

    /// Whether the command began a short time ago, and none of its pods have been asked to leave.
    pub(crate) fn has_begun_lately(&self, command: &str, now: Timestamp) -> bool {
        let inner = self.inner.lock();
        inner.begun.get(command).is_some_and(|begun| (DurationMs(0)..BEGUN_LATELY).contains(&now.since(begun.since)))
    }

    /// The machines that are there and to which pods of commands go that have begun and drain nothing yet.
    pub(crate) fn places_of_begun(&self) -> BTreeSet<NodeClaimName> {
        self.inner.lock().begun_places().cloned().collect()
    }

    /// The machines that are to be closed, since successors that have not come have a place there, or are to go past.
    pub(crate) fn closed_for(&self, now: Timestamp) -> NameSet<NodeClaimName> {
        let inner = self.inner.lock();
        let mut expected = inner.expected.values().flatten().filter(|it| it.until > now).map(|it| &it.place).peekable();
        let shunned = expected.peek().is_some().then_some(&inner.shunned);
        inner.begun_places().chain(expected).chain(shunned.into_iter().flatten()).cloned().collect()
    }

    /// What planners are to know now.
    ///
    /// To be asked after the state of the store was taken: a successor that has come by then and is not in the state
    /// leaves its place to whoever is planned first, and one that is in it would have to find another beside it.
    pub(crate) fn now(&self, now: Timestamp) -> Succession {
        let inner = self.inner.lock();
        let mut succession = Succession::default();
        for (pod, place) in inner.begun.values().flat_map(|begun| &begun.moves) {
            succession.places.insert(pod.uid.clone(), place.clone());
        }
        for it in inner.expected.values().flatten().filter(|it| it.until > now) {
            match it.is_open {
                true => succession.kept.push((Arc::clone(&it.predecessor), it.place.clone())),
                false => drop(succession.places.insert(it.predecessor.uid.clone(), it.place.clone())),
            }
        }
        succession
    }
}

impl Inner {
    /// Where pods go of commands that have begun and drain nothing yet.
    fn begun_places(&self) -> impl Iterator<Item = &NodeClaimName> {
        self.begun.values().flat_map(|begun| &begun.moves).map(|(_, place)| place)
    }
}

/// Gives new pods the places of those they succeed, from now on.
pub(crate) fn subscribe(
    store: &ClusterStore,
    successors: &Arc<Successors>,
    assignments: &Arc<Assignments>,
    clock: &Arc<dyn Clock>,
) {
    let (successors, assignments, clock) = (Arc::clone(successors), Arc::clone(assignments), Arc::clone(clock));
    store.on::<Pod>(move |delta, state| {
        let (before, after) = (delta.before, delta.after);
        // A pod of a StatefulSet has the name of the one before.
        if before.map(|pod| &pod.uid) == after.map(|pod| &pod.uid) {
            let is_bound = |pod: &Arc<Pod>| pod.node_name.is_some();
            if let Some(bound) = after.filter(|pod| is_bound(pod) && !before.is_some_and(is_bound)) {
                successors.has_come(&bound.uid);
            }
            let is_leaving = |pod: &Arc<Pod>| pod.deletion_timestamp.is_some();
            if let Some(leaving) = after.filter(|pod| is_leaving(pod) && !before.is_some_and(is_leaving)) {
                successors.leaves(leaving, None);
            }
            return;
        }
        if let Some(gone) = before {
            successors.leaves(gone, Some(clock.now()));
            successors.has_come(&gone.uid);
        }
        let Some(pod) = after.filter(|pod| pod.node_name.is_none()) else { return };
        if let Some(place) = successors.take(pod, state, clock.now())
            && state.node_claims.get(&place).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        {
            assignments.extend(&place, [(pod.uid.clone(), None)]);
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, owner: &str, cpu: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Arc::new(decode::pod(&pod, &mut decode::Context::new(&mut model::Interner::new())).unwrap())
    }

    #[test]
    fn a_new_pod_of_the_same_controller_and_shape_takes_a_place_and_each_is_given_once() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        let planned = [(pod("a", "web", "1"), "m1".into()), (pod("b", "web", "1"), "m2".into())];
        successors.expect("c", planned.clone(), now);
        successors.expect("c", planned, now);
        assert_eq!(successors.take(&pod("c", "db", "1"), &State::default(), now), None, "of another controller");
        assert_eq!(successors.take(&pod("d", "web", "2"), &State::default(), now), None, "asks for something else");
        assert_eq!(successors.take(&pod("a", "web", "1"), &State::default(), now), None, "that is the one that goes");
        assert_eq!(successors.take(&pod("e", "web", "1"), &State::default(), now), Some("m1".into()));
        assert_eq!(successors.take(&pod("f", "web", "1"), &State::default(), now), Some("m2".into()));
        assert_eq!(successors.take(&pod("g", "web", "1"), &State::default(), now), None);
    }

    #[test]
    fn places_are_told_until_the_last_successor_has_come() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        successors.begin("c", vec![(pod("a", "web", "1"), "m1".into())], now);
        let others = || [pod("b", "web", "1"), pod("c", "db", "1")].map(|pod| (pod, NodeClaimName::from("m2")));
        let mut alone = Pod::clone(&pod("alone", "web", "1"));
        alone.owner = None;
        let of_nobody = (Arc::new(alone), "m3".into());
        assert!(successors.has_begun_lately("c", now));
        assert!(!successors.has_begun_lately("c", now.saturating_add(BEGUN_LATELY)));
        assert_eq!(successors.places_of_begun(), ["m1".into()].into());
        assert_eq!(successors.closed_for(now).len(), 1);
        let places = successors.expect("c", others().into_iter().chain([of_nobody]), now);
        assert_eq!(places, ["m1", "m2"].map(Into::into).into());
        assert!(!successors.has_begun_lately("c", now));
        assert_eq!(successors.expect("c", others(), now), BTreeSet::new(), "they are known");
        let closed = |at: Timestamp| BTreeSet::from_iter(successors.closed_for(at));
        assert_eq!(closed(now), ["m1", "m2"].map(Into::into).into());
        let shun =
            |machines: &[&str]| successors.shun(machines.iter().map(|name| NodeClaimName::from(*name)).collect());
        assert_eq!(shun(&["a", "b", "d", "e"]), BTreeSet::new(), "more than the three pods that are to come");
        assert_eq!(closed(now), ["m1", "m2"].map(Into::into).into());
        assert_eq!(shun(&["a", "b"]), ["a", "b"].map(Into::into).into());
        assert_eq!(closed(now), ["a", "b", "m1", "m2"].map(Into::into).into());
        assert_eq!(shun(&["b"]), ["b"].map(Into::into).into());
        for name in ["d", "e"] {
            assert!(successors.take(&pod(name, "web", "1"), &State::default(), now).is_some());
        }
        assert_eq!(closed(now), ["b", "m2"].map(Into::into).into(), "that of the other controller");
        assert_eq!(closed(now.saturating_add(EXPECTED_FOR)), BTreeSet::new());
    }

    #[test]
    fn the_first_that_left_is_succeeded_first() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        let planned = ["a", "b", "c", "d"].map(|name| (pod(name, "web", "1"), format!("place of {name}").into()));
        successors.expect("c", planned, now);
        successors.leaves(&pod("c", "web", "1"), None);
        successors.leaves(&pod("b", "web", "1"), None);
        // It goes before the other is gone.
        successors.leaves(&pod("b", "web", "1"), Some(now));
        let next = || successors.take(&pod("new", "web", "1"), &State::default(), now);
        assert_eq!(next(), Some("place of c".into()));
        assert_eq!(next(), Some("place of b".into()));
        assert_eq!(next(), Some("place of a".into()), "none has left, so any will do");
    }

    #[test]
    fn what_is_launched_for_a_successor_that_had_a_place_counts_for_all_that_were_evicted() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        let planned = |index: usize| (pod(&format!("old-{index}"), "web", "1"), "m".into());
        let moves: Vec<Move> = (0..30).map(planned).collect();
        successors.expect("c", moves.clone(), now);
        // The next machine of the command.
        successors.expect("c", moves, now);
        let (placed, other) = (pod("placed", "web", "1"), pod("other", "db", "1"));
        assert!(
            successors.take(&placed, &State::default(), now).is_some()
                && successors.take(&other, &State::default(), now).is_none()
        );
        let launched = |pod: &Pod| successors.launched(PriceNanoUsdPerHour(600), [&pod.uid].into_iter(), now);
        launched(&other);
        assert_eq!(successors.displacement_price(now).0, 0);
        launched(&placed);
        assert_eq!(successors.displacement_price(now).0, 20);
    }

    #[test]
    fn a_place_is_not_kept_for_ever() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        successors.expect("c", [(pod("a", "web", "1"), "m1".into())], now);
        let later = now.saturating_add(EXPECTED_FOR);
        assert_eq!(successors.take(&pod("b", "web", "1"), &State::default(), later), None);
        successors.expect("d", [], later);
        assert!(successors.inner.lock().expected.is_empty());
    }

    #[test]
    fn planners_know_where_pods_go_and_keep_the_places_of_those_that_are_gone_for_a_while() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        let told = |at: Timestamp| {
            let Succession { places, kept } = successors.now(at);
            let mut told: Vec<String> = places.iter().map(|(pod, place)| format!("{pod} to {place}")).collect();
            told.extend(kept.iter().map(|(pod, place)| format!("{} counts on {place}", pod.uid)));
            told.sort();
            told
        };
        successors.begin("c", vec![(pod("a", "web", "1"), "m1".into())], now);
        successors.begin("d", vec![(pod("x", "web", "1"), "m1".into())], now);
        assert_eq!(told(now), ["a to m1", "x to m1"]);
        successors.keep_only(&BTreeSet::from(["c"]));
        assert_eq!(told(now), ["a to m1"], "the other command was rolled back");
        successors.expect("c", [(pod("b", "web", "1"), "m2".into())], now);
        assert_eq!(told(now), ["a to m1", "b to m2"], "they are being evicted");
        successors.leaves(&pod("a", "web", "1"), Some(now));
        assert_eq!(told(now), ["a counts on m1", "b to m2"]);
        assert_eq!(told(now.saturating_add(KEPT_FOR)), ["b to m2"], "no successor came");
        successors.leaves(&pod("b", "web", "1"), Some(now));
        assert_eq!(successors.take(&pod("c", "web", "1"), &State::default(), now), Some("m1".into()));
        assert_eq!(told(now), ["b counts on m2"], "another has come for it");
    }
}
