//! Karpenter 1.15's rules of consolidation, written down a second time: `pkg/controllers/disruption/emptiness.go`,
//! `multinodeconsolidation.go`, `singlenodeconsolidation.go` and `consolidation.go`; and its scheduling of the pods
//! that move (`pkg/controllers/provisioning/scheduling`), for pods that have nothing but requests and a zone.
//!
//! One command at a time: empty machines all at once, else the longest prefix of machines by price for each disruption
//! that one machine at most can take the place of (found by halving, which takes for granted that shorter ones do),
//! else the first single machine. Nothing else is looked at until the command has been validated fifteen seconds later.
//! Any saving pays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use model::{PriceNanoUsdPerHour, ResourceId, ResourceVec, Timestamp, ValueId};
use scheduling::catalogue::{Catalogue, OfferingId, TypeId};

use super::{Decision, Destination, Look, PROPOSED_FOR};
use crate::market::Wanted;
use crate::world::{BUDGET_PERCENT, MachineKey, PodKey, SimulatedPod, World};

/// Machines of the longest prefix that is tried.
const LONGEST_PREFIX: usize = 100;

/// What was decided and is not validated yet.
#[derive(Debug, Default)]
pub struct Karpenter {
    decided: Option<(Decision, Timestamp)>,
    /// Where pods of machines that go already are to run; the machines are still there.
    under_way: Vec<Decision>,
}

impl Karpenter {
    pub(super) fn look(&mut self, world: &mut World, now: Timestamp) -> Result<Look> {
        let catalogue = world.catalogue(now)?;
        self.under_way.retain(|decision| decision.going.iter().any(|machine| world.machines.contains_key(machine)));
        let mut look = Look::default();
        match self.decided.take() {
            Some((decision, at)) if at > now => {
                look.again = Some(at);
                self.decided = Some((decision, at));
            }
            Some((decision, _)) => {
                // Whether it is validated or not, the next round begins at once.
                look.again = Some(Timestamp(now.0 + 1000));
                let round = Round { world, catalogue: &catalogue, under_way: &self.under_way };
                if round.still_holds(&decision) {
                    self.under_way.push(decision.clone());
                    look.due.push(decision);
                }
            }
            None => {
                let round = Round { world, catalogue: &catalogue, under_way: &self.under_way };
                if let Some(decision) = round.decide() {
                    let at = now.saturating_add(PROPOSED_FOR);
                    look.again = Some(at);
                    self.decided = Some((decision, at));
                }
            }
        }
        look.is_proposing = self.decided.is_some();
        Ok(look)
    }
}

/// One pass over the cluster.
struct Round<'a> {
    world: &'a World,
    catalogue: &'a Arc<Catalogue>,
    under_way: &'a [Decision],
}

/// A machine that may go.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    machine: MachineKey,
    price: i64,
    pods: usize,
}

/// A NodeClaim that is filled; its types become fewer with each pod.
#[derive(Debug)]
struct Claim {
    pods: Vec<PodKey>,
    requests: ResourceVec,
    zones: BTreeSet<ValueId>,
    types: Vec<TypeId>,
}

/// Where pods go that find room, and claims for the others.
type Places = (Vec<(PodKey, Destination)>, Vec<Claim>);

impl Round<'_> {
    fn candidates(&self) -> Vec<Candidate> {
        let machines = self.world.machines.iter();
        let may_go = machines.filter(|(key, machine)| {
            machine.is_quiet && machine.ready_at.is_some() && !machine.is_going && !self.world.is_nominated(**key)
        });
        let candidates = may_go.map(|(&machine, _)| Candidate {
            machine,
            price: self.world.price_of(machine),
            pods: self.world.pods_on(machine).count(),
        });
        candidates.collect()
    }

    /// How many more machines the budget lets go.
    fn left(&self) -> usize {
        let ready = self.world.machines.values().filter(|machine| machine.ready_at.is_some()).count();
        let going = self.world.machines.values().filter(|machine| machine.is_going).count();
        (ready * BUDGET_PERCENT).div_ceil(100).saturating_sub(going)
    }

    fn decide(&self) -> Option<Decision> {
        let left = self.left();
        let (empty, mut used): (Vec<Candidate>, Vec<Candidate>) =
            self.candidates().into_iter().partition(|candidate| candidate.pods == 0);
        if left == 0 {
            return None;
        }
        if !empty.is_empty() {
            let going = empty.iter().take(left).map(|candidate| candidate.machine).collect();
            return Some(Decision { going, launches: Vec::new(), moves: Vec::new(), evictions_nano_usd: 0 });
        }
        // By price for each disruption; a machine itself costs one.
        used.sort_by_key(|candidate| {
            let ratio = i128::from(candidate.price) * 1_000_000 / (1 + candidate.pods as i128);
            (std::cmp::Reverse(ratio), candidate.machine)
        });
        let of_budget = used.get(..left.min(used.len()).min(LONGEST_PREFIX)).unwrap_or_default();
        self.longest_prefix(of_budget).or_else(|| used.iter().find_map(|candidate| self.compute(&[*candidate])))
    }

    fn longest_prefix(&self, candidates: &[Candidate]) -> Option<Decision> {
        let (mut least, mut most, mut found) = (2, candidates.len(), None);
        while least <= most {
            let middle = usize::midpoint(least, most);
            match self.compute(candidates.get(..middle)?) {
                Some(decision) => {
                    found = Some(decision);
                    least = middle + 1;
                }
                None => most = middle - 1,
            }
        }
        found
    }

    /// A decision for these, if one machine at most takes their place and costs less.
    fn compute(&self, set: &[Candidate]) -> Option<Decision> {
        let mut going: Vec<MachineKey> = set.iter().map(|candidate| candidate.machine).collect();
        going.sort_unstable();
        let (mut moves, claims) = self.simulate(&going)?;
        let mut decision = Decision { going, launches: Vec::new(), moves: Vec::new(), evictions_nano_usd: 0 };
        match claims.as_slice() {
            [] => {}
            [claim] => {
                decision.launches.push(self.cheaper(claim, set)?);
                moves.extend(claim.pods.iter().map(|pod| (*pod, Destination::Launched(0))));
            }
            [_, _, ..] => return None,
        }
        decision.moves = moves;
        Some(decision)
    }

    /// The claim's types of which the dearest offering costs less than all of these together; if there are several, and
    /// one of their types is among those, only what costs less than that.
    fn cheaper(&self, claim: &Claim, set: &[Candidate]) -> Option<Wanted> {
        let price = |of_type: &TypeId| {
            let offerings = self.offerings(*of_type, claim).map(|id| self.catalogue.offerings[id].price);
            offerings.max()
        };
        let mut limit: i64 = set.iter().map(|candidate| candidate.price).sum();
        let is_cheaper =
            |of_type: &TypeId, limit: i64| price(of_type).is_some_and(|price| price < PriceNanoUsdPerHour(limit));
        let name = |of_type: &TypeId| self.catalogue.types[*of_type].name.clone();
        if set.len() > 1 {
            let options: BTreeSet<_> = claim.types.iter().filter(|it| is_cheaper(it, limit)).map(name).collect();
            let alike = set.iter().filter(|candidate| {
                let machine = self.world.machines.get(&candidate.machine);
                machine.is_some_and(|machine| options.contains(&self.world.market.offering(machine.bought).0.name))
            });
            limit = alike.map(|candidate| candidate.price).min().unwrap_or(limit);
        }
        let types: Vec<_> = claim.types.iter().filter(|it| is_cheaper(it, limit)).map(name).collect();
        let zones = claim.zones.iter().map(|zone| Arc::from(self.world.value_name(*zone))).collect();
        (!types.is_empty()).then_some(Wanted { types, zones })
    }

    /// Where the pods of these go: into free room of machines that are ready and quiet, the largest pods first and each
    /// into the first that has room, then into claims. `None` if one has no place.
    fn simulate(&self, going: &[MachineKey]) -> Option<Places> {
        let mut rooms = self.rooms(going);
        let mut pods: Vec<(PodKey, &SimulatedPod)> =
            going.iter().flat_map(|machine| self.world.pods_on(*machine)).collect();
        pods.sort_by_key(|(key, pod)| {
            let requests = &pod.pod.shape.requests;
            (std::cmp::Reverse((requests.get(ResourceId::CPU), requests.get(ResourceId::MEMORY))), *key)
        });
        let mut moves = Vec::new();
        let mut claims: Vec<Claim> = Vec::new();
        for (key, pod) in pods {
            let requests = &pod.pod.shape.requests;
            let zone = self.world.zone_of(pod.workload);
            let room = rooms.iter_mut().find(|(machine, room)| {
                let is_in_zone = |zone| self.world.machines.get(machine).is_some_and(|it| it.zone == zone);
                zone.is_none_or(is_in_zone) && requests.fits_in(room)
            });
            if let Some((machine, room)) = room {
                room.saturating_sub_assign(requests);
                moves.push((key, Destination::Machine(*machine)));
                continue;
            }
            // Those with few pods first.
            claims.sort_by_key(|claim| claim.pods.len());
            if claims.iter_mut().any(|claim| self.add(claim, key, pod)) {
                continue;
            }
            let mut claim = Claim {
                pods: Vec::new(),
                requests: ResourceVec::new(),
                zones: self.catalogue.offerings.iter().map(|offering| offering.zone).collect(),
                types: self.catalogue.types.ids().collect(),
            };
            if !self.add(&mut claim, key, pod) {
                return None;
            }
            claims.push(claim);
        }
        Some((moves, claims))
    }

    /// What is free, by machine; what commands under way have planned is gone.
    fn rooms(&self, going: &[MachineKey]) -> BTreeMap<MachineKey, ResourceVec> {
        let machines = self.world.machines.iter();
        let open = machines.filter(|(key, machine)| machine.is_quiet && !machine.is_going && !going.contains(key));
        let mut rooms: BTreeMap<MachineKey, ResourceVec> =
            open.map(|(key, machine)| (*key, machine.free.clone())).collect();
        for (pod, to) in self.under_way.iter().flat_map(|decision| &decision.moves) {
            if let Destination::Machine(machine) = to
                && let (Some(pod), Some(room)) = (self.world.pods.get(pod), rooms.get_mut(machine))
            {
                room.saturating_sub_assign(&pod.pod.shape.requests);
            }
        }
        rooms
    }

    /// The claim's offerings of a type that can be had.
    fn offerings<'c>(&'c self, of_type: TypeId, claim: &'c Claim) -> impl Iterator<Item = OfferingId> + 'c {
        self.catalogue.offerings_of(of_type).filter(|id| {
            let offering = &self.catalogue.offerings[*id];
            offering.launchable() && claim.zones.contains(&offering.zone)
        })
    }

    /// Adds a pod if some type holds it beside the others.
    fn add(&self, claim: &mut Claim, key: PodKey, pod: &SimulatedPod) -> bool {
        let mut requests = claim.requests.clone();
        requests.saturating_add_assign(&pod.pod.shape.requests);
        let zones: BTreeSet<ValueId> = match self.world.zone_of(pod.workload) {
            Some(zone) => claim.zones.intersection(&[zone].into()).copied().collect(),
            None => claim.zones.clone(),
        };
        let mut with_pod = Claim { pods: claim.pods.clone(), requests, zones, types: Vec::new() };
        let holds = |of_type: &TypeId| {
            self.offerings(*of_type, &with_pod)
                .any(|id| with_pod.requests.fits_in(&self.catalogue.offerings[id].allocatable))
        };
        let types: Vec<TypeId> = claim.types.iter().copied().filter(holds).collect();
        if types.is_empty() {
            return false;
        }
        with_pod.types = types;
        with_pod.pods.push(key);
        *claim = with_pod;
        true
    }

    /// Whether the same would be decided for the machines now: as many replacements, and no type that would not do.
    fn still_holds(&self, decision: &Decision) -> bool {
        let candidates = self.candidates();
        let of = |machine: &MachineKey| candidates.iter().find(|candidate| candidate.machine == *machine).copied();
        let set: Option<Vec<Candidate>> = decision.going.iter().map(of).collect();
        let Some(set) = set.filter(|set| set.len() <= self.left()) else { return false };
        if set.iter().all(|candidate| candidate.pods == 0) {
            return decision.moves.is_empty();
        }
        let Some(again) = self.compute(&set) else { return false };
        let is_subset = decision
            .launches
            .iter()
            .zip(&again.launches)
            .all(|(before, now)| before.types.iter().all(|of_type| now.types.contains(of_type)));
        again.launches.len() == decision.launches.len() && is_subset
    }
}
