//! How many devices nodes have left, by number: counting takes less time than a search that finds out.

use std::rc::Rc;

use model::collections::FastMap;

use super::DeviceState;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::devices::DeviceCounts;
use crate::simulation::compile::problem::Problem;
use crate::snapshot::NodeId;

/// By node: of which version its devices were counted, and how many it has left of each set.
pub(super) type LeftOfNodes = FastMap<NodeId, (u64, Rc<[i64]>)>;

impl DeviceState {
    /// No more copies than these are served by the number of devices that a node has left.
    pub(crate) fn possible_copies(&self, problem: &Problem<'_>, node: NodeId, class: ClassId) -> u32 {
        let (Some(of_problem), Some(of_class)) = (&problem.devices, &problem.classes[class].devices) else {
            return u32::MAX;
        };
        let counts = of_problem.counts(&problem.classes);
        let taken = counts.taken(of_class.demand);
        if taken.iter().all(|amount| *amount == 0) {
            return u32::MAX;
        }
        DeviceCounts::times(taken, &self.left(counts, node))
    }

    /// By set: what a node has left. It is counted anew after a change there.
    fn left(&self, counts: DeviceCounts<'_>, node: NodeId) -> Rc<[i64]> {
        let version = self.of_nodes.get(&node).copied().unwrap_or(0);
        if let Some((at, left)) = self.left.borrow().get(&node)
            && *at == version
        {
            return Rc::clone(left);
        }
        let left: Rc<[i64]> = counts.on_node(node, Some(&self.cluster)).into();
        self.left.borrow_mut().insert(node, (version, Rc::clone(&left)));
        left
    }
}
