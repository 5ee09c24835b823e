//! Condition types and reasons, by kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// `True`, as a condition's status.
pub const TRUE: &str = "True";
/// `False`, as a condition's status.
pub const FALSE: &str = "False";
/// `Unknown`, as a condition's status.
pub const UNKNOWN: &str = "Unknown";

/// The condition that sums up those it depends on; on every kind but CapacityBuffer.
pub const READY: &str = "Ready";

/// Reason of a `Ready` that is not true: the conditions it depends on say no, or do not know.
pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
/// Reason of a `Ready` of which nobody knows yet.
const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";
/// Reason of a condition that nobody has looked into yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], condition_type: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == condition_type)
}

/// Whether the condition of that type is there and true.
pub fn is_true(conditions: &[Condition], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(|condition| condition.status == TRUE)
}

/// Whether the condition of that type is there and false.
pub fn is_false(conditions: &[Condition], condition_type: &str) -> bool {
    find(conditions, condition_type).is_some_and(|condition| condition.status == FALSE)
}

/// Status, reason and message of a `Ready` that depends on these conditions, by the rule of `awslabs/operatorpkg`: true
/// if all are true for the object's present generation, false as soon as one is false for it, unknown otherwise. The
/// message names those that are not true, in the order given.
pub fn ready<'a>(
    dependents: impl IntoIterator<Item = &'a Condition>,
    generation: i64,
) -> (&'static str, &'static str, String) {
    let is_current = |condition: &Condition| condition.observed_generation == Some(generation);
    let is_missing = |condition: &&Condition| condition.status != TRUE || !is_current(condition);
    let missing: Vec<&Condition> = dependents.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        return (TRUE, READY, String::new());
    }
    let refused = missing.iter().any(|condition| condition.status == FALSE && is_current(condition));
    let (status, reason) = if refused { (FALSE, UNHEALTHY_DEPENDENTS) } else { (UNKNOWN, RECONCILING_DEPENDENTS) };
    let named: Vec<String> =
        missing.iter().map(|condition| format!("{}={}", condition.type_, condition.status)).collect();
    (status, reason, named.join(", "))
}

/// Conditions of NodePools.
pub mod node_pool {
    /// The NodePool passes the checks that the CRD cannot make.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The node class exists and is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Machines launched lately became nodes.
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";

    /// Machines launched lately took in pods that they were launched for. Absent on a NodePool that never had one in
    /// vain.
    pub const LAUNCHES_EFFECTIVE: &str = "LaunchesEffective";

    /// The conditions that `Ready` sums up.
    pub const READY_DEPENDS_ON: [&str; 2] = [VALIDATION_SUCCEEDED, NODE_CLASS_READY];

    /// Reason of [`LAUNCHES_EFFECTIVE`] that is false.
    pub const PODS_STILL_WAIT: &str = "PodsStillWait";
    /// Reason of [`VALIDATION_SUCCEEDED`] that is false.
    pub const NODE_POOL_VALIDATION_FAILED: &str = "NodePoolValidationFailed";
    /// Reason of [`NODE_CLASS_READY`] that is false.
    pub const NODE_CLASS_NOT_FOUND: &str = "NodeClassNotFound";
    /// Reason of [`NODE_CLASS_READY`] that is false.
    pub const NODE_CLASS_TERMINATING: &str = "NodeClassTerminating";
    /// Reason of [`NODE_CLASS_READY`] that is false.
    pub const NODE_CLASS_READINESS_UNKNOWN: &str = "NodeClassReadinessUnknown";
    /// Reason of [`NODE_REGISTRATION_HEALTHY`] that is false.
    pub const REGISTRATION_FAILED: &str = "RegistrationFailed";
}

/// Conditions of NodeClaims.
pub mod node_claim {
    /// The provider has created the machine.
    pub const LAUNCHED: &str = "Launched";
    /// The machine's Node exists and has the NodeClaim's labels and taints.
    pub const REGISTERED: &str = "Registered";
    /// The Node is ready, has its resources, and lost the taints that it started with.
    pub const INITIALIZED: &str = "Initialized";
    /// No pod came or went for the NodePool's `consolidateAfter`. Removed when not true.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// The machine is not what its NodePool or node class asks for any more. Removed when not true.
    pub const DRIFTED: &str = "Drifted";
    /// The Node's pods are gone.
    pub const DRAINED: &str = "Drained";
    /// The claims of DRA drivers that run on the Node are not used there any more. Absent while none of their pods was
    /// kept back for it.
    pub const CLAIMS_RELEASED: &str = "ClaimsReleased";
    /// The Node's volumes are detached.
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// The provider was asked to terminate the machine.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// Node and NodeClaim agree.
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// A disruption command owns the NodeClaim; the reason says why it is disrupted. Removed when rolled back.
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// The machine is being rebooted.
    pub const REBOOTING: &str = "Rebooting";
    /// The DRA drivers that were expected to have published complete pools.
    pub const DEVICES_PUBLISHED: &str = "DevicesPublished";
    /// What drivers have published is what templates said.
    pub const DEVICES_AS_DESCRIBED: &str = "DevicesAsDescribed";
    /// All pods on the Node can be read. Absent while none was unreadable.
    pub const PODS_READABLE: &str = "PodsReadable";

    /// Reason of [`PODS_READABLE`] that is false.
    pub const UNREADABLE_PODS: &str = "UnreadablePods";
    /// The conditions that `Ready` sums up.
    pub const READY_DEPENDS_ON: [&str; 3] = [LAUNCHED, REGISTERED, INITIALIZED];

    /// Reason of [`DEVICES_PUBLISHED`] that is unknown.
    pub const DEVICES_NOT_PUBLISHED: &str = "DevicesNotPublished";
    /// Reason of [`DEVICES_PUBLISHED`] that is unknown: a driver had published and is being replaced.
    pub const UPGRADING: &str = "Upgrading";
    /// Reason of [`DEVICES_PUBLISHED`] that is false: a driver had published and did not come back.
    pub const WITHDRAWN: &str = "Withdrawn";
    /// Reason of [`DEVICES_PUBLISHED`] that is false: nobody waits any longer.
    pub const TIMEOUT: &str = "Timeout";
    /// Reason of [`DEVICES_AS_DESCRIBED`] that is false.
    pub const MISMATCH: &str = "Mismatch";
    /// Reason of [`LAUNCHED`] that is unknown, unless the provider names its own.
    pub const LAUNCH_FAILED: &str = "LaunchFailed";
    /// Reason of [`REGISTERED`] or [`INITIALIZED`] that is unknown.
    pub const NODE_NOT_FOUND: &str = "NodeNotFound";
    /// Reason of [`REGISTERED`] that is false.
    pub const MULTIPLE_NODES_FOUND: &str = "MultipleNodesFound";
    /// Reason of [`REGISTERED`] that is unknown: a provider's hook has not finished.
    pub const REGISTRATION_HOOK_PENDING: &str = "RegistrationHookPending";
    /// Reason of [`INITIALIZED`] that is unknown.
    pub const NODE_NOT_READY: &str = "NodeNotReady";
    /// Reason of [`INITIALIZED`] that is unknown.
    pub const STARTUP_TAINTS_EXIST: &str = "StartupTaintsExist";
    /// Reason of [`INITIALIZED`] that is unknown.
    pub const KNOWN_EPHEMERAL_TAINTS_EXIST: &str = "KnownEphemeralTaintsExist";
    /// Reason of [`INITIALIZED`] that is unknown.
    pub const RESOURCE_NOT_REGISTERED: &str = "ResourceNotRegistered";
    /// Reason of [`INITIALIZED`] that is unknown.
    pub const DRA_DRIVER_POOLS_NOT_PUBLISHED: &str = "DRADriverPoolsNotPublished";
    /// Reason of [`DRAINED`] that is unknown.
    pub const DRAINING: &str = "Draining";
    /// Reason of [`DRAINED`] that is unknown: the machines that take its pods are not ready yet.
    pub const AWAITING_REPLACEMENTS: &str = "AwaitingReplacements";
    /// Reason of [`CLAIMS_RELEASED`] that is unknown.
    pub const AWAITING_CLAIM_RELEASE: &str = "AwaitingClaimRelease";
    /// Reason of [`VOLUMES_DETACHED`] that is unknown.
    pub const AWAITING_VOLUME_DETACHMENT: &str = "AwaitingVolumeDetachment";
    /// Reason of [`VOLUMES_DETACHED`] or [`CLAIMS_RELEASED`] that is false.
    pub const TERMINATION_GRACE_PERIOD_ELAPSED: &str = "TerminationGracePeriodElapsed";
    /// Reason of [`CONSISTENT_STATE_FOUND`] that is false.
    pub const CONSISTENCY_CHECK_FAILED: &str = "ConsistencyCheckFailed";
    /// Reason of [`DRIFTED`]: the NodePool's template changed.
    pub const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
    /// Reason of [`DRIFTED`]: the machine's labels do not meet the NodePool's requirements.
    pub const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
    /// Reason of [`DRIFTED`]: the provider does not offer the instance type any more.
    pub const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";
    /// Reason of [`REBOOTING`] that is true.
    pub const REBOOT_REQUESTED: &str = "RebootRequested";
    /// Reason of [`REBOOTING`] that is true.
    pub const REBOOT_ISSUED: &str = "RebootIssued";
    /// Reason of [`REBOOTING`] that is false.
    pub const REBOOT_SUCCEEDED: &str = "RebootSucceeded";
    /// Reason of [`REBOOTING`] that is false.
    pub const REBOOT_FAILED: &str = "RebootFailed";
}

/// Conditions of NodeOverlays.
pub mod node_overlay {
    /// The overlay is valid and conflicts with no other.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The machines that the overlay describes have published what it says. Removed while there is none.
    pub const DEVICES_AS_DESCRIBED: &str = "DevicesAsDescribed";
    /// Pods of the DaemonSets of the overlay's drivers can run on the machines that it describes. Removed while the
    /// overlay names no DaemonSet or describes no machine.
    pub const DRIVERS_CAN_RUN: &str = "DriversCanRun";

    /// The conditions that `Ready` sums up.
    pub const READY_DEPENDS_ON: [&str; 1] = [VALIDATION_SUCCEEDED];

    /// Reason of [`DRIVERS_CAN_RUN`] that is false.
    pub const NO_DAEMON_SET_POD: &str = "NoDaemonSetPod";

    /// Reason of [`DEVICES_AS_DESCRIBED`] that is false.
    pub const MISMATCH: &str = "Mismatch";

    /// Reason of [`VALIDATION_SUCCEEDED`] that is false: the overlay breaks a rule.
    pub const RUNTIME_VALIDATION: &str = "RuntimeValidation";
    /// Reason of [`VALIDATION_SUCCEEDED`] that is false: another overlay corrects the same thing with equal weight.
    pub const CONFLICT: &str = "Conflict";
}

/// Conditions of CapacityBuffers.
pub mod capacity_buffer {
    /// The buffer's pod template and count are known.
    pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
    /// The buffer's room is there, or is being made.
    pub const PROVISIONING: &str = "Provisioning";
    /// A quota keeps the buffer smaller than asked for. Declared by the API; Karpenter never sets it.
    pub const LIMITED_BY_QUOTAS: &str = "LimitedByQuotas";

    /// Reason of [`READY_FOR_PROVISIONING`] that is true.
    pub const RESOLVED: &str = "Resolved";
    /// Reason of [`READY_FOR_PROVISIONING`] that is false.
    pub const SCALABLE_REF_NOT_FOUND: &str = "ScalableRefNotFound";
    /// Reason of [`READY_FOR_PROVISIONING`] that is false.
    pub const POD_TEMPLATE_NOT_FOUND: &str = "PodTemplateNotFound";
    /// Reason of [`READY_FOR_PROVISIONING`] that is false.
    pub const RESOLUTION_FAILED: &str = "ResolutionFailed";
    /// Reason of [`PROVISIONING`] that is true.
    pub const FITS_EXISTING_CAPACITY: &str = "FitsExistingCapacity";
    /// Reason of [`PROVISIONING`] that is false.
    pub const REQUIRES_NEW_CAPACITY: &str = "RequiresNewCapacity";
    /// Reason of [`PROVISIONING`] that is false: no room is asked for.
    pub const BUFFER_EMPTY: &str = "BufferEmpty";
    /// Reason of [`PROVISIONING`] that is false: the buffer is not understood.
    pub const NOT_READY_FOR_PROVISIONING: &str = "NotReadyForProvisioning";
}

/// Conditions that Kubernetes sets on Nodes.
pub mod node {
    /// The kubelet is healthy and takes pods.
    pub const READY: &str = "Ready";
}
