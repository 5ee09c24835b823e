//! Which offerings of a pool have which shape for the engine.

use dra_sched::ShapeId;
use model::{IdSet, IdVec, collections::FastMap};

use crate::catalogue::OfferingId;
use crate::devices::Devices;
use crate::simulation::compile::pools::PoolTable;

/// The shapes of one pool; empty while no pod wants a device.
#[derive(Debug, Default)]
pub(crate) struct ShapesOfPool {
    pub(crate) by_shape: Vec<(ShapeId, IdSet<OfferingId>)>,
    /// The shape of each offering.
    of_offering: IdVec<OfferingId, Option<ShapeId>>,
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
        let mut position: FastMap<ShapeId, usize> = FastMap::default();
        shapes.of_offering = IdVec::filled(None, table.catalogue.offerings.len());
        for (id, offering) in table.catalogue.offerings.iter_enumerated() {
            let Some(shape) = devices.shape(table.id, offering.instance_type) else { continue };
            shapes.of_offering[id] = Some(shape);
            let position = *position.entry(shape).or_insert_with(|| {
                shapes.by_shape.push((shape, IdSet::default()));
                shapes.by_shape.len() - 1
            });
            if let Some((_, offerings)) = shapes.by_shape.get_mut(position) {
                offerings.insert(id);
            }
            if table.members.contains(id) {
                shapes.all.insert(shape);
            }
        }
        shapes
    }

    pub(crate) fn shape_of(&self, offering: OfferingId) -> Option<ShapeId> {
        self.of_offering.try_get(offering).copied().flatten()
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

    /// Of these shapes, those that some of the offerings have.
    pub(crate) fn among(&self, shapes: &IdSet<ShapeId>, offerings: &IdSet<OfferingId>) -> IdSet<ShapeId> {
        let those = self.by_shape.iter().filter(|(shape, of)| shapes.contains(*shape) && of.intersects(offerings));
        those.map(|(shape, _)| *shape).collect()
    }

    /// The shapes of some offerings.
    pub(crate) fn shapes(&self, offerings: &IdSet<OfferingId>) -> IdSet<ShapeId> {
        self.by_shape.iter().filter(|(_, of)| of.intersects(offerings)).map(|(shape, _)| *shape).collect()
    }
}
