//! What a pod takes of a machine or node, with what its devices cost of it (KEP-5517).

use std::borrow::Cow;
use std::sync::Arc;

use model::ResourceVec;

use crate::catalogue::OfferingId;
use crate::devices::DeviceCost;
use crate::plan::device_cost::Wanted;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, Spot};
use crate::snapshot::NodeId;

/// What a copy of a class takes.
pub(super) struct Footprint<'a> {
    /// All of it.
    total: Cow<'a, ResourceVec>,
    /// What of it its devices cost, and how that is made up.
    devices: OfDevices,
}

/// What the devices of a copy cost of its place.
#[derive(Debug, Clone, Default)]
pub(super) struct OfDevices {
    extra: ResourceVec,
    costs: Option<Arc<[DeviceCost]>>,
}

impl<'a> Footprint<'a> {
    pub(super) fn new(requests: Cow<'a, ResourceVec>, devices: OfDevices) -> Self {
        let mut total = requests;
        if !devices.extra.is_zero() {
            total.to_mut().saturating_add_assign(&devices.extra);
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
        let devices = ways.as_ref().and_then(|ways| {
            let (way, shape) = (ways.at(offering)?, table.shapes.shape_of(offering));
            Some(OfDevices { extra: way.extra(shape).cloned().unwrap_or_default(), costs: way.costs(shape).cloned() })
        });
        Self::new(problem.requests_alone(class, variant), devices.unwrap_or_default())
    }

    /// On a node, by the first way that gives it its devices there.
    pub(super) fn on_node(packing: &'a Packing<'_>, class: ClassId, node: NodeId) -> Self {
        let problem = packing.problem;
        let request =
            DeviceRequest { spot: Spot::Node(node), class, variant: problem.variant_on(class, node), copies: 1 };
        let wants_devices = problem.classes[class].devices.is_some();
        let ways = wants_devices.then(|| packing.ways(request).so_far()).flatten();
        let devices = ways.and_then(|ways| {
            let way = ways.ways.first()?;
            Some(OfDevices { extra: way.extra_on_node(), costs: way.costs(None).cloned() })
        });
        Self::new(packing.requests_on(node, class), devices.unwrap_or_default())
    }

    /// What devices cost of it.
    pub(super) fn into_devices(self) -> OfDevices {
        self.devices
    }

    pub(super) fn fits_in(&self, there: &ResourceVec) -> bool {
        self.total.fits_in(there)
    }

    /// Resources of which it takes more than is there, and how much it takes.
    pub(super) fn exceeding<'s>(&'s self, there: &'s ResourceVec) -> impl Iterator<Item = Wanted> + 's {
        self.total.exceeding(there).map(|resource| Wanted {
            resource,
            amount: self.total.get(resource),
            costs: self.devices.costs.clone().filter(|_| self.devices.extra.get(resource) > 0),
        })
    }
}
