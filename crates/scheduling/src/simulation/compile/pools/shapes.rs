//! Which offerings of a pool have which shape for the engine.

use dra_sched::ShapeId;
use model::IdSet;

use crate::catalogue::OfferingId;
use crate::devices::Devices;
use crate::simulation::compile::pools::PoolTable;

/// The shapes of one pool; empty while no pod wants a device.
#[derive(Debug, Default)]
pub(crate) struct ShapesOfPool {
    pub(crate) by_shape: Vec<(ShapeId, IdSet<OfferingId>)>,
    pub(crate) all: IdSet<ShapeId>,
}

impl ShapesOfPool {
    /// The shapes, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ShapeId> {
        self.by_shape.iter().map(|(shape, _)| *shape)
    }

    pub(crate) fn new(table: &PoolTable<'_>, devices: Option<&Devices>) -> Self {
        let mut shapes = Self::default();
        let Some(devices) = devices else { return shapes };
        for (id, offering) in table.catalogue.offerings.iter_enumerated() {
            let Some(shape) = devices.shape(table.id, offering.instance_type) else { continue };
            match shapes.by_shape.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, offerings)) => drop(offerings.insert(id)),
                None => shapes.by_shape.push((shape, [id].into_iter().collect())),
            }
            if table.members.contains(id) {
                shapes.all.insert(shape);
            }
        }
        shapes
    }

    pub(crate) fn shape_of(&self, offering: OfferingId) -> Option<ShapeId> {
        self.by_shape.iter().find(|(_, offerings)| offerings.contains(offering)).map(|(shape, _)| *shape)
    }

    pub(crate) fn offerings(&self, shapes: &IdSet<ShapeId>) -> IdSet<OfferingId> {
        let mut all = IdSet::default();
        for (_, offerings) in self.by_shape.iter().filter(|(shape, _)| shapes.contains(*shape)) {
            all.union_with(offerings);
        }
        all
    }

    /// Leaves only offerings of one shape.
    pub(crate) fn keep(&self, offerings: &mut IdSet<OfferingId>, shape: ShapeId) {
        offerings.intersect_with(&self.offerings(&[shape].into_iter().collect()));
    }

    /// The shapes of some offerings.
    pub(crate) fn shapes(&self, offerings: &IdSet<OfferingId>) -> IdSet<ShapeId> {
        self.by_shape.iter().filter(|(_, of)| of.intersects(offerings)).map(|(shape, _)| *shape).collect()
    }
}
