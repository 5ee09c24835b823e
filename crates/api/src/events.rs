//! Reasons of the events that we record.

/// A node or NodePool cannot be disrupted now.
pub const DISRUPTION_BLOCKED: &str = "DisruptionBlocked";
/// Replacements are being launched.
pub const DISRUPTION_LAUNCHING: &str = "DisruptionLaunching";
/// A disrupted node is being deleted.
pub const DISRUPTION_TERMINATING: &str = "DisruptionTerminating";
/// Replacements are not ready yet.
pub const DISRUPTION_WAITING_READINESS: &str = "DisruptionWaitingReadiness";
/// A node cannot be consolidated.
pub const UNCONSOLIDATABLE: &str = "Unconsolidatable";
/// A node may be consolidated.
pub const CONSOLIDATION_CANDIDATE: &str = "ConsolidationCandidate";
/// A consolidation is not worth its disruption.
pub const CONSOLIDATION_REJECTED: &str = "ConsolidationRejected";
/// A consolidation is worth its disruption.
pub const CONSOLIDATION_APPROVED: &str = "ConsolidationApproved";
/// A pod has no place, and none can be made for it.
pub const FAILED_SCHEDULING: &str = "FailedScheduling";
/// A NodePool has no instance type that meets its requirements.
pub const NO_COMPATIBLE_INSTANCE_TYPES: &str = "NoCompatibleInstanceTypes";
/// A machine did not take in the pods that it was launched for.
pub const LAUNCH_IN_VAIN: &str = "LaunchInVain";
/// A pod on a node cannot be read.
pub const UNREADABLE_POD: &str = "UnreadablePod";
/// A pod has a planned place.
pub const NOMINATED: &str = "Nominated";
/// An unhealthy node is not repaired now.
pub const NODE_REPAIR_BLOCKED: &str = "NodeRepairBlocked";
/// A pod's node is being disrupted.
pub const DISRUPTED: &str = "Disrupted";
/// A pod was evicted.
pub const EVICTED: &str = "Evicted";
/// Draining a node made no progress.
pub const FAILED_DRAINING: &str = "FailedDraining";
/// A node's pods will be removed by force at a given time.
pub const TERMINATION_GRACE_PERIOD_EXPIRING: &str = "TerminationGracePeriodExpiring";
/// A machine could not be terminated.
pub const FAILED_TERMINATION: &str = "FailedTermination";
/// Node and NodeClaim do not agree.
pub const FAILED_CONSISTENCY_CHECK: &str = "FailedConsistencyCheck";
/// The provider has no room for a machine.
pub const INSUFFICIENT_CAPACITY_ERROR: &str = "InsufficientCapacityError";
/// A Node registered without the taint that its kubelet must set.
pub const UNREGISTERED_TAINT_MISSING: &str = "UnregisteredTaintMissing";
/// A node class is not ready.
pub const NODE_CLASS_NOT_READY: &str = "NodeClassNotReady";
/// A static NodePool has fewer nodes than it wants, and its limit allows no more.
pub const NODE_LIMIT_REACHED: &str = "NodeLimitReached";
/// A node goes because its static NodePool has more than it wants.
pub const SURPLUS_NODE: &str = "SurplusNode";
/// Pods of a DRA driver stay on a draining node while its claims are in use there.
pub const AWAITING_CLAIM_RELEASE: &str = "AwaitingClaimRelease";
/// A drained node still has volumes.
pub const AWAITING_VOLUME_DETACHMENT: &str = "AwaitingVolumeDetachment";
/// A pod's do-not-disrupt annotation cannot be read.
pub const INVALID_DO_NOT_DISRUPT_ANNOTATION: &str = "InvalidDoNotDisruptAnnotation";
/// A pod keeps its node until a given time.
pub const DO_NOT_DISRUPT_UNTIL: &str = "DoNotDisruptUntil";
/// A pod no longer keeps its node.
pub const DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED: &str = "DoNotDisruptGracePeriodElapsed";
/// A rebooted machine came up.
pub const REBOOT_OBSERVED: &str = "RebootObserved";
/// A reboot did not help, or did not happen.
pub const REBOOT_FAILED: &str = "RebootFailed";
/// A machine's DRA drivers have not published in time.
pub const DEVICES_NOT_PUBLISHED: &str = "DevicesNotPublished";
/// A machine's DRA driver has published devices that no template describes.
pub const DEVICES_NOT_DESCRIBED: &str = "DevicesNotDescribed";
/// A machine's DRA drivers have published something else than templates said.
pub const DEVICES_DIFFER: &str = "DevicesDiffer";
