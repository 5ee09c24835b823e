//! Defects of released allocators that a plan has to follow, one switch each.
//!
//! A plan is right if kube-scheduler then does the same, so a defect of the cluster's release is reproduced.
//! [`Compat::fixed`] has none of them. Every switch is a deliberate difference of `Compat::fixed()`: its name is the
//! key of a row in `docs/compatibility.md`, which `cargo xtask test --stage differs` checks.
//!
//! Sources: `k8s.io/dynamic-resource-allocation/structured` v0.36.3 and v0.37.2, compared by running them
//! (`test/oracle/allocator`).

use dra_types::compat::{Compat, Edition, Gate, KubernetesMinor};

/// Switches for behaviours that releases differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Quirks {
    /// distinctAttribute remembers one value per request: the devices of one request are compared only with the one
    /// picked just before. Up to 1.36 (kubernetes#140438).
    pub(crate) distinct_forgets_devices_of_its_request: bool,
    /// kube-scheduler does not tell its allocator of the gate for lists, so that constraints do not know what to do
    /// with them; `includes` works. In 1.36, seen on the real scheduler.
    pub(crate) constraints_do_not_see_lists: bool,
    /// Free and drawn counters are kept by pool name, so that two drivers whose pools have one name share them. Up to
    /// 1.36 (kubernetes#140434).
    pub(crate) counters_are_keyed_by_pool_name: bool,
    /// "All" leaves out devices whose capacity is used up at the moment; later releases keep them, so that the request
    /// fails. Up to 1.36.
    pub(crate) all_leaves_out_full_devices: bool,
    /// A capacity that cannot be computed (negative, beyond 64 bits) skips the device instead of failing the pod. Up to
    /// 1.36.
    pub(crate) bad_capacity_skips_device: bool,
    /// A configuration of the claim is copied once for each subrequest that it names, and is never widened to "all
    /// requests". Up to 1.36.
    pub(crate) config_is_repeated: bool,
    /// Slices with shared counters belong to every node, whatever their node selection says. Up to 1.36.
    pub(crate) counter_slices_reach_all_nodes: bool,
    /// Shares that take no capacity are not seen when counters are drawn, so that the next share draws them again. Up
    /// to 1.36 (kubernetes#140433).
    pub(crate) bare_shares_draw_counters_again: bool,
    /// A DeviceTaintRule without selector taints every device; it is documented to taint none. Up to 1.36.
    pub(crate) rule_without_selector_taints_all: bool,
    /// A device that allows several allocations and has shares may still be given out whole once its driver withdrew
    /// the permission, as far as capacity allows. In all releases so far (kubernetes#140798).
    pub(crate) shared_device_can_become_dedicated: bool,
    /// A pod pays for the node's resources only of claims that are allocated for it in this attempt, not of claims that
    /// were allocated before. In 1.36, whose scheduler only looks at new allocations.
    pub(crate) allocated_claims_cost_nothing: bool,
    /// A claim that hands out the node's resources must be used by a container. In 1.36; later it is charged once to
    /// the pod.
    pub(crate) claims_that_hand_out_must_be_used: bool,
    /// What devices of extended resources cost of the node is charged to the claim that the scheduler has in memory.
    /// The API server refuses the pod's status with that name, and the pod is never bound. In 1.37, seen on the real
    /// server.
    pub(crate) costs_of_extended_resources_are_not_written: bool,
    /// Picks with adminAccess draw counters. In all releases so far (kubernetes#140729).
    pub(crate) admin_access_draws_counters: bool,
    /// `skipNodeOperations` of a slice has no effect. Releases before 1.37 do not know the field; in 1.37 only the
    /// experimental variant of the allocator reads it, which is taken when one of [`EXPERIMENTAL`] is on, so that with
    /// default gates devices go to nodes that cannot skip what their driver cannot do.
    pub(crate) node_operations_are_not_checked: bool,
}

/// Gates for which 1.37 takes the experimental variant of its allocator; with none of them it takes the incubating one.
const EXPERIMENTAL: [Gate; 4] =
    [Gate::ListTypeAttributes, Gate::DerivedAttributes, Gate::DeviceCompatibilityGroups, Gate::OptionalNodeOperations];

impl Quirks {
    /// Whether constraints compare lists.
    pub(crate) fn constraints_see_lists(self, compat: &Compat) -> bool {
        compat.is_on(Gate::ListTypeAttributes) && !self.constraints_do_not_see_lists
    }

    pub(crate) fn of(compat: &Compat) -> Self {
        let up_to_1_36 = compat.kubernetes <= KubernetesMinor::V1_36;
        let before_1_37 = match compat.edition() {
            Edition::Fixed => return Self::default(),
            Edition::Release => up_to_1_36,
            Edition::Alpha => true,
        };
        let released = compat.edition() == Edition::Release;
        let experimental = EXPERIMENTAL.iter().any(|gate| compat.is_on(*gate));
        Self {
            distinct_forgets_devices_of_its_request: up_to_1_36,
            constraints_do_not_see_lists: up_to_1_36,
            counters_are_keyed_by_pool_name: up_to_1_36,
            all_leaves_out_full_devices: before_1_37,
            bad_capacity_skips_device: up_to_1_36,
            config_is_repeated: up_to_1_36,
            counter_slices_reach_all_nodes: up_to_1_36,
            bare_shares_draw_counters_again: up_to_1_36,
            rule_without_selector_taints_all: up_to_1_36,
            shared_device_can_become_dedicated: true,
            allocated_claims_cost_nothing: up_to_1_36,
            claims_that_hand_out_must_be_used: up_to_1_36,
            costs_of_extended_resources_are_not_written: !up_to_1_36,
            admin_access_draws_counters: true,
            node_operations_are_not_checked: up_to_1_36 || released && !experimental,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fixture::{ask, builder_for, claim, devices, exactly, local, names};
    use dra_types::{Compat, Gates, KubernetesMinor};

    #[test]
    fn constraints_of_1_36_make_nothing_of_lists_and_those_of_1_37_compare_them() {
        let pair = |release: KubernetesMinor, constraint: &str| {
            let mut builder = builder_for(Compat::with_gates(release, Gates::all(release)), &["gpu"]);
            let values = [json!({"ints": [0, 1]}), json!({"int": 1}), json!({"ints": [2]})];
            builder.slice(local("gpu", &devices(3, |index| json!({"attributes": {"numa": values[index]}}))));
            let spec = json!({"requests": [exactly("r", "gpu", 2)], "constraints": [{constraint: "gpu/numa"}]});
            let class = claim(&mut builder, "c", &spec);
            names(&ask(&builder.build(), &[class]).0)
        };
        assert!(pair(KubernetesMinor::V1_36, "matchAttribute").is_empty());
        assert_eq!(pair(KubernetesMinor::V1_37, "matchAttribute"), ["d00", "d01"]);
        assert_eq!(pair(KubernetesMinor::V1_36, "distinctAttribute"), ["d00", "d01"]);
        assert_eq!(pair(KubernetesMinor::V1_37, "distinctAttribute"), ["d00", "d02"]);
    }
}
