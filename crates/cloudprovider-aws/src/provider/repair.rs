//! When a Node of EC2 counts as broken: what the kubelet tells, and what EKS' node monitoring agent does.
//! `RepairPolicies` of karpenter-provider-aws 1.15.

use cloudprovider::{ConditionStatus, RepairAction, RepairPolicy};
use model::DurationMs;

const MINUTE: i64 = 60;

/// The policies. The first is the one that counts where no reason fits.
pub(super) fn policies() -> Vec<RepairPolicy> {
    let policy = |condition_type: &str, condition_status, reason_regex: &str, minutes: i64| RepairPolicy {
        condition_type: condition_type.to_owned(),
        condition_status,
        reason_regex: reason_regex.to_owned(),
        toleration: DurationMs::from_seconds(minutes * MINUTE),
        termination_grace_period: None,
        priority: 0,
        action: RepairAction::ReplaceNode,
    };
    vec![
        policy("Ready", ConditionStatus::False, "", 30),
        policy("Ready", ConditionStatus::Unknown, ".*", 30),
        // A GPU that has failed keeps a dear machine from working.
        policy("AcceleratedHardwareReady", ConditionStatus::False, ".*", 10),
        policy("StorageReady", ConditionStatus::False, ".*", 30),
        policy("NetworkingReady", ConditionStatus::False, ".*", 30),
        policy("KernelReady", ConditionStatus::False, ".*", 30),
        policy("ContainerRuntimeReady", ConditionStatus::False, ".*", 30),
    ]
}

#[cfg(test)]
mod tests {
    use cloudprovider::RepairPolicies;

    use super::*;

    #[test]
    fn the_policies_are_valid_and_a_broken_gpu_is_repaired_sooner_than_anything_else() {
        let policies = policies();
        RepairPolicies::new(&policies).unwrap();
        let soonest = policies.iter().min_by_key(|policy| policy.toleration).unwrap();
        assert_eq!(soonest.condition_type, "AcceleratedHardwareReady");
    }
}
