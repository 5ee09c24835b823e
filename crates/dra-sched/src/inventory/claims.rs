//! What can be said about claims before any search for devices.

use std::collections::BTreeSet;

use model::{NodeName, Uid, collections::FastSet};

use super::Inventory;
use crate::compile::claims::{Alternative, Request};
use crate::compile::ids::{ClaimClassId, ClaimId, DeviceKey, DeviceShape, GroupId};
use crate::compile::selectors::Judgement;
use dra_types::{Allocation, Consumer, KubernetesMinor, RequestKind};

/// One claim of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimUse {
    /// Made from a template: a new claim for each copy of the pod.
    Fresh {
        /// Its class.
        class: ClaimClassId,
        /// Containers of the pod, init containers included, that refer to it.
        containers: u32,
    },
    /// The claim for the extended resources of a pod (KEP-5004), which no container refers to.
    Extended {
        /// Its class.
        class: ClaimClassId,
    },
    /// A claim that exists, shared by all pods that name it.
    Named {
        /// The claim.
        claim: ClaimId,
        /// Containers of the pod, init containers included, that refer to it.
        containers: u32,
        /// For whom it is reserved when the pod is bound.
        reservation: Reservation,
    },
}

/// How a pod that is bound stands to `status.reservedFor` of a claim that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reservation<Group = GroupId> {
    /// The pod itself is a consumer already.
    OfPod,
    /// The pod's PodGroup is a consumer already.
    OfGroup,
    /// The pod becomes a consumer.
    NewPod,
    /// The pod's PodGroup becomes one, once for all its pods.
    NewGroup(Group),
}

impl<Group> Reservation<Group> {
    /// Whether the scheduler of this release takes the pod for a consumer. Before 1.37 a pod whose PodGroup is one is
    /// one of several users.
    pub fn is_consumer(&self, release: KubernetesMinor) -> bool {
        match self {
            Self::OfPod => true,
            Self::OfGroup => release >= KubernetesMinor::V1_37,
            Self::NewPod | Self::NewGroup(_) => false,
        }
    }
}

impl ClaimUse {
    /// The class of the claim.
    pub(crate) fn class(self, inventory: &Inventory) -> ClaimClassId {
        match self {
            Self::Fresh { class, .. } | Self::Extended { class } => class,
            Self::Named { claim, .. } => inventory.claims[claim].class,
        }
    }
}

impl Inventory {
    /// The name of a claim in refusals: that of the first claim with an equal spec.
    pub fn claim_name(&self, what: ClaimUse) -> &str {
        &self.claim_classes[what.class(self)].name
    }

    /// A claim's allocation in the cluster.
    pub fn allocation(&self, claim: ClaimId) -> Option<&Allocation> {
        self.claims[claim].object.allocation.as_ref()
    }

    /// Whether a claim is allocated, and stays so wherever its pods go.
    pub fn stays_allocated(&self, claim: ClaimId) -> bool {
        self.claims[claim].object.allocation.is_some() && !self.claims[claim].is_idle
    }

    /// Those of some claims that are allocated and that nobody uses.
    pub fn idle<'c>(&self, claims: &'c [ClaimUse]) -> impl Iterator<Item = ClaimId> + use<'c, '_> {
        claims.iter().filter_map(move |claim| match *claim {
            ClaimUse::Named { claim, .. } => self.claims[claim].is_idle.then_some(claim),
            ClaimUse::Fresh { .. } | ClaimUse::Extended { .. } => None,
        })
    }

    /// Whether all devices that a claim has are of single nodes: no other node can tell whether they are free.
    pub(crate) fn holds_only_local_devices(&self, claim: ClaimId) -> bool {
        let held: FastSet<DeviceKey> = self.claims[claim].held.iter().copied().collect();
        let mut shared = self.shared.iter().flat_map(|slice| self.devices_of(*slice));
        !shared.any(|device| held.contains(&self.devices[device].key))
    }

    /// Whether claims of a class may take more devices if there are more: by a better alternative, or because they ask
    /// for all.
    pub fn takes_more_of_more(&self, class: ClaimClassId) -> bool {
        let is_for_all = |request: &Request| request.alternatives.iter().any(|alternative| alternative.count.is_none());
        self.has_alternatives(class) || self.claim_classes[class].requests.iter().any(is_for_all)
    }

    /// Whether a claim class has firstAvailable requests, so that the packer can ask for better alternatives.
    pub fn has_alternatives(&self, class: ClaimClassId) -> bool {
        let requests = &self.claim_classes[class].spec.requests;
        requests.iter().any(|request| matches!(request.kind, RequestKind::FirstAvailable(_)))
    }

    /// Whether a pod's claims take the first devices that match, and nothing else decides which. Then additional
    /// devices never leave other claims fewer.
    pub fn takes_first_that_match(&self, claims: &[ClaimUse]) -> bool {
        let classes = claims.iter().map(|claim| &self.claim_classes[claim.class(self)]);
        let mut requests = 0;
        let are_plain = classes.into_iter().all(|class| {
            requests += class.requests.len();
            let is_exact = |request: &Request| {
                request.alternatives.len() == 1 && request.alternatives.iter().all(|it| it.count.is_some())
            };
            class.spec.constraints.is_empty() && class.requests.iter().all(is_exact)
        });
        are_plain && requests <= 1
    }

    /// Whether no selector rejects devices of the shape. A selector that fails counts as not rejecting: whether it is
    /// evaluated at all depends on what others have taken.
    pub(crate) fn could_take(&self, alternative: &Alternative, shape: DeviceShape) -> bool {
        let selectors = alternative.class_selectors.iter().chain(&alternative.selectors);
        let judge = |selector| self.selectors.judge(selector, shape, &self.shapes[shape]);
        selectors.copied().all(|selector| judge(selector) != Judgement::No)
    }

    /// Allocated claims that are reserved only for some of these pods and only hold devices of this node. Claims that
    /// are reserved for a PodGroup are left out, since more of its pods may come; and so are claims with a device that
    /// other nodes see too.
    pub fn held_alone(&self, pods: &BTreeSet<&Uid>, node: &NodeName) -> Vec<ClaimId> {
        let Some(local) = self.local.get(node) else { return Vec::new() };
        let devices = local.slices.iter().flat_map(|slice| self.devices_of(*slice));
        let keys: FastSet<DeviceKey> = devices.map(|device| self.devices[device].key).collect();
        let leaves = |consumer: &Consumer| consumer.is_pod() && pods.contains(&consumer.uid);
        let is_held_alone = |claim: &ClaimId| {
            let claim = &self.claims[*claim];
            let mut held = claim.results().filter(|(result, _)| !result.admin_access);
            claim.object.reserved_for.iter().all(leaves) && held.all(|(_, key)| keys.contains(&key))
        };
        let claims = pods.iter().filter_map(|pod| self.of_first_consumer.get(*pod)).flatten();
        let mut claims: Vec<ClaimId> = claims.copied().filter(is_held_alone).collect();
        claims.sort_unstable();
        claims
    }
}
