//! Which pods of a plan pay for their devices with the machine's own resources (KEP-5517).

use std::sync::Arc;

use model::IdVec;

use crate::devices::DeviceCost;
use crate::plan::device_cost::PodDeviceCosts;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::snapshot::PodId;

/// Deals what copies of classes cost to the pods that they became.
pub(crate) struct DeviceCosts {
    class_of: IdVec<PodId, Option<ClassId>>,
}

impl DeviceCosts {
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        Self { class_of: if problem.devices.is_some() { problem.class_of_pods() } else { IdVec::new() } }
    }

    /// For the pods of one place, of which so many copies of each class cost so much, in the order of placing.
    pub(crate) fn dealt<'c>(
        &self,
        pods: &[PodId],
        costs: impl Iterator<Item = (ClassId, u32, Option<&'c Arc<[DeviceCost]>>)>,
    ) -> Vec<PodDeviceCosts> {
        let mut left: Vec<_> = costs.collect();
        if left.iter().all(|(.., costs)| costs.is_none()) {
            return Vec::new();
        }
        let dealt = pods.iter().filter_map(|&pod| {
            let class = self.class_of.try_get(pod).copied().flatten()?;
            let (_, copies, costs) = left.iter_mut().find(|(of, copies, _)| *of == class && *copies > 0)?;
            *copies -= 1;
            Some(PodDeviceCosts { pod, costs: Arc::clone((*costs)?) })
        });
        dealt.collect()
    }
}
