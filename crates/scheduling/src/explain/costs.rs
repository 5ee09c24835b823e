//! What a pod takes of a machine or node, with what its devices cost of it (KEP-5517).

use std::borrow::Cow;

use model::{ResourceId, ResourceVec};

use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, Spot};
use crate::snapshot::NodeId;

/// What a copy of a class takes.
pub(super) struct Footprint<'a> {
    /// All of it.
    total: Cow<'a, ResourceVec>,
    /// What its devices cost.
    devices: ResourceVec,
}

impl<'a> Footprint<'a> {
    fn new(requests: Cow<'a, ResourceVec>, devices: ResourceVec) -> Self {
        let mut total = requests;
        if !devices.is_zero() {
            total.to_mut().saturating_add_assign(&devices);
        }
        Self { total, devices }
    }

    /// On a machine from an offering, by the way that gives it most copies.
    pub(super) fn on_machine(
        packing: &'a Packing<'_>,
        (rank, table): (PoolRank, &PoolTable<'_>),
        class: ClassId,
        offering: OfferingId,
    ) -> Self {
        let problem = packing.problem;
        let variant = problem.variant_at(class, &table.catalogue.offerings[offering].allocatable);
        let request = DeviceRequest { spot: Spot::New(rank), class, variant, copies: 1 };
        let wants_devices = problem.classes[class].devices.is_some();
        let ways = wants_devices.then(|| packing.ways(request).so_far()).flatten();
        let devices = ways.as_ref().and_then(|ways| ways.at(table, offering)?.1.cloned());
        Self::new(problem.requests_alone(class, variant), devices.unwrap_or_default())
    }

    /// On a node, by the first way that gives it its devices there.
    pub(super) fn on_node(packing: &'a Packing<'_>, class: ClassId, node: NodeId) -> Self {
        let problem = packing.problem;
        let request =
            DeviceRequest { spot: Spot::Node(node), class, variant: problem.variant_on(class, node), copies: 1 };
        let wants_devices = problem.classes[class].devices.is_some();
        let ways = wants_devices.then(|| packing.ways(request).so_far()).flatten();
        let devices = ways.and_then(|ways| ways.ways.first().map(|way| way.extra_on_node()));
        Self::new(packing.requests_on(node, class), devices.unwrap_or_default())
    }

    pub(super) fn fits_in(&self, there: &ResourceVec) -> bool {
        self.total.fits_in(there)
    }

    /// Resources of which it takes more than is there: all of it, and what devices cost.
    pub(super) fn exceeding<'s>(&'s self, there: &'s ResourceVec) -> impl Iterator<Item = (ResourceId, i64, i64)> + 's {
        let amounts = |resource| (resource, self.total.get(resource), self.devices.get(resource));
        self.total.exceeding(there).map(amounts)
    }
}
