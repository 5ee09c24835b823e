//! Consumers that claims get from a plan, besides those in their status.
//!
//! `status.reservedFor` has at most [`MAX_CONSUMERS`] entries, and kube-scheduler binds no pod that would be one more.
//! A PodGroup is one entry for all its pods.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterLedger, Undo};
use crate::compile::ids::{ClaimId, GroupId};
use crate::faults::MAX_CONSUMERS;
use crate::inventory::{ClaimUse, Inventory, Reservation};

/// Consumers that a plan adds to a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Consumers {
    pods: u32,
    groups: BTreeSet<GroupId>,
}

impl Consumers {
    fn len(&self) -> u32 {
        self.pods.saturating_add(u32::try_from(self.groups.len()).unwrap_or(u32::MAX))
    }

    fn add(&mut self, joining: Joining, copies: u32) {
        match joining {
            Joining::Pod(_) => self.pods = self.pods.saturating_add(copies),
            Joining::Group(_, group) if copies > 0 => {
                self.groups.insert(group);
            }
            Joining::Group(..) => {}
        }
    }
}

/// A claim that a pod needs to be a consumer of, itself or with its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Joining {
    Pod(ClaimId),
    Group(ClaimId, GroupId),
}

impl Joining {
    fn claim(self) -> ClaimId {
        let (Self::Pod(claim) | Self::Group(claim, _)) = self;
        claim
    }
}

impl ClusterLedger {
    /// Claims that get a consumer with a pod that is bound; one that several entries name gets one.
    pub(crate) fn joining(&self, inventory: &Inventory, claims: &[ClaimUse]) -> BTreeSet<Joining> {
        let joining = claims.iter().filter_map(|claim| match *claim {
            ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } => None,
            ClaimUse::Named { claim, reservation, .. } => match reservation {
                Reservation::NewPod => Some(Joining::Pod(claim)),
                Reservation::NewGroup(group) => Some(Joining::Group(claim, group)),
                // Whoever leaves a claim together with all its consumers comes back as a new pod, and who keeps an idle
                // claim for itself uses it from now on.
                Reservation::OfPod => {
                    let is_new = self.consumers_of(inventory, claim) == 0 || inventory.claims[claim].is_idle;
                    is_new.then_some(Joining::Pod(claim))
                }
                Reservation::OfGroup => None,
            },
        });
        joining.collect()
    }

    /// How many more copies of a pod can have a claim.
    pub(crate) fn room_for(&self, inventory: &Inventory, joining: Joining) -> u32 {
        let claim = joining.claim();
        let planned = self.consumers.get(&claim);
        let taken = self.consumers_of(inventory, claim).saturating_add(planned.map_or(0, Consumers::len));
        let room = MAX_CONSUMERS.saturating_sub(taken);
        match joining {
            Joining::Pod(_) => room,
            Joining::Group(_, group) => {
                let is_in = planned.is_some_and(|planned| planned.groups.contains(&group));
                if is_in || room > 0 { u32::MAX } else { 0 }
            }
        }
    }

    /// Whether copies of pods, given by their claims, are together more consumers of a claim than it can have, beside
    /// those that it has. Then no arrangement serves them, whatever devices there are. A false answer proves nothing.
    pub fn are_too_many_consumers<'c>(
        &self,
        inventory: &Inventory,
        pods: impl Iterator<Item = (&'c [ClaimUse], u32)>,
    ) -> bool {
        let mut by_claim: BTreeMap<ClaimId, Consumers> = BTreeMap::new();
        for (claims, copies) in pods {
            for joining in self.joining(inventory, claims) {
                let planned = || self.consumers.get(&joining.claim()).cloned().unwrap_or_default();
                by_claim.entry(joining.claim()).or_insert_with(planned).add(joining, copies);
            }
        }
        let total = |(claim, planned): (&ClaimId, &Consumers)| {
            self.consumers_of(inventory, *claim).saturating_add(planned.len())
        };
        by_claim.iter().map(total).any(|total| total > MAX_CONSUMERS)
    }

    /// Counts copies of a pod, or their group, among the consumers of a claim.
    pub(crate) fn join(&mut self, joining: Joining, copies: u32) {
        let claim = joining.claim();
        let before = self.consumers.get(&claim).cloned();
        self.consumers.entry(claim).or_default().add(joining, copies);
        self.record(|| Undo::Consumers(claim, before));
    }

    /// Whether an allocation is for nobody: a pod that cannot go where it is takes it back.
    pub(crate) fn is_idle(&self, inventory: &Inventory, claim: ClaimId) -> bool {
        let is_used = self.consumers.get(&claim).is_some_and(|planned| planned.len() > 0);
        inventory.claims[claim].is_idle && !is_used && !self.released.contains(&claim)
    }

    fn consumers_of(&self, inventory: &Inventory, claim: ClaimId) -> u32 {
        let consumers = inventory.claims[claim].object.reserved_for.len();
        if self.released.contains(&claim) { 0 } else { u32::try_from(consumers).unwrap_or(u32::MAX) }
    }
}
