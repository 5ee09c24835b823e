//! What daemons take of planned machines before any planned pod comes.

use std::sync::Arc;

use model::collections::FastMap;

use super::Usage;
use crate::compile::ids::ShapeId;

/// Devices that are taken of each new machine, by shape.
#[derive(Debug, Clone, Default)]
pub struct MachineOverhead {
    by_shape: FastMap<ShapeId, Arc<Usage>>,
}

impl MachineOverhead {
    pub(super) fn of(&self, shape: ShapeId) -> Usage {
        self.by_shape.get(&shape).map(|usage| Usage::clone(usage)).unwrap_or_default()
    }

    /// Takes more of each machine of a shape.
    pub(crate) fn add(&mut self, shape: ShapeId, usage: &Usage) {
        Arc::make_mut(self.by_shape.entry(shape).or_default()).add(usage);
    }
}
