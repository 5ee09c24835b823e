//! Pods whose resources change in place (KEP-1287).

use crate::resources::ResourceVec;

/// The sums over a pod's containers by what its kubelet says of them, as `PodRequests` in
/// `k8s.io/component-helpers/resource` makes them from 1.37 on: resources of the whole pod take the place of a sum, and
/// its overhead is in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resizing {
    /// What the pod asks for, unless its node can never give that.
    pub asked: Option<ResourceVec>,
    /// What has been set aside for it.
    pub allocated: ResourceVec,
    /// What is in force.
    pub in_force: ResourceVec,
    /// Whether what devices cost of the node is in `allocated`. It is always in `in_force`.
    pub allocated_has_devices: bool,
}

impl Resizing {
    /// What the pod takes of its node, what its devices cost there included.
    ///
    /// Before 1.37 the largest amounts of each container are summed; from then on, the largest of these sums counts.
    pub fn requests(&self, device_costs: &ResourceVec) -> ResourceVec {
        let less_devices = |sum: &ResourceVec| {
            let mut sum = sum.clone();
            sum.saturating_sub_assign(device_costs);
            sum
        };
        let mut most = self.asked.clone().unwrap_or_default();
        most.max_assign(&if self.allocated_has_devices {
            less_devices(&self.allocated)
        } else {
            self.allocated.clone()
        });
        most.max_assign(&less_devices(&self.in_force));
        most.saturating_add_assign(device_costs);
        most
    }
}

#[cfg(test)]
mod tests {
    use super::Resizing;
    use crate::{ResourceId, ResourceVec};

    #[test]
    fn the_largest_sum_counts_and_devices_once() {
        let cpu = |amount: i64| {
            let mut vec = ResourceVec::new();
            vec.set(ResourceId::CPU, amount);
            vec
        };
        for (asked, allocated, in_force, allocated_has_devices, devices, expected) in [
            (Some(2), 1, 1, false, 0, 2),
            (Some(1), 3, 2, false, 0, 3),
            (Some(1), 2, 3, false, 0, 3),
            // What the node can never give does not count.
            (None, 1, 2, false, 0, 2),
            // The kubelet's cgroups hold what devices cost.
            (Some(2), 2, 6, false, 4, 6),
            (Some(2), 6, 6, true, 4, 6),
            (Some(2), 7, 6, true, 4, 7),
            (Some(2), 2, 1, false, 4, 6),
            (None, 2, 1, false, 4, 6),
        ] {
            let asked = asked.map(cpu);
            let resizing =
                Resizing { asked, allocated: cpu(allocated), in_force: cpu(in_force), allocated_has_devices };
            assert_eq!(resizing.requests(&cpu(devices)).get(ResourceId::CPU), expected, "{resizing:?}, {devices}");
        }
    }
}
