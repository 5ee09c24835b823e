//! Annotation keys.

/// On a pod: `"true"`, or a Go duration counted from the pod's start, forbids voluntary disruption. On a node only
/// `"true"`.
pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// On a Node or NodeClaim, `"true"`: never repair it. Once registered, only the node's copy counts.
pub const DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";
/// On a pod: an `int32`, its weight in the cost of disrupting its node.
pub const DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";
/// On a pod: Kubernetes' own weight, read where [`DISRUPTION_COST`] is not in use.
pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// On NodePool and NodeClaim: hash of the parts of the NodePool's template whose change is static drift.
pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
/// On NodePool and NodeClaim: how [`NODEPOOL_HASH`] was made.
pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
/// The version of the hash that this program makes.
pub const NODEPOOL_HASH_VERSION_VALUE: &str = "v3";
/// On NodeClaim and Node: RFC 3339 time after which draining no longer waits for anything.
pub const NODECLAIM_TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// On a NodeClaim: `"true"` or `"false"`, whether minValues were relaxed to launch it.
pub const NODECLAIM_MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
/// On a NodeClaim: sorted, comma-separated DRA drivers that its planned pods have devices of. Its machine
/// waits for them.
pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
/// On a NodeClaim, `"true"`: a NodeOverlay changed a price among its instance types.
pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
/// On a NodeClaim, `"true"`: a NodeOverlay changed a capacity among its instance types.
pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
/// On a NodeClaim, while it reboots: the boot id before the reboot.
pub const REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
/// On a NodeClaim, while it reboots: Go duration that bounds the drain; absent is unbounded, zero is no drain.
pub const REBOOT_TERMINATION_GRACE_PERIOD: &str = "karpenter.sh/reboot-termination-grace-period";
/// On the virtual pods of a CapacityBuffer, which exist in memory only.
pub const CAPACITY_BUFFER_FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
/// On the virtual pods of a CapacityBuffer: its name.
pub const CAPACITY_BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
/// On the virtual pods of a CapacityBuffer: its namespace.
pub const CAPACITY_BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";

/// On a NodeClaim: uids of the pods that its machine was launched for, in the plan's order, separated by commas; those
/// that are to be bound after others have their stage behind a colon. Ours; Karpenter ignores it.
pub const PLANNED_PODS: &str = "dovetail.sh/planned-pods";
/// On a NodeClaim: numbers of the classes of pods that its machine was launched for, separated by commas; where
/// launches for a class had been in vain before, how many in a row behind a colon.
pub const LAUNCHED_FOR: &str = "dovetail.sh/launched-for";
/// On a NodeClaim: how many devices each DRA driver is to publish on its machine, as a JSON object. Written at launch.
pub const DEVICES: &str = "dovetail.sh/devices";
/// On a NodeClaim: the DRA drivers that took devices of its machine away and have not brought them back, separated by
/// commas. Written before the condition that tells of it, removed after the one that they are back.
pub const LOST_DRA_DRIVERS: &str = "dovetail.sh/lost-dra-drivers";
/// On a NodeClaim that takes part in a disruption command: what the command is. Ours; Karpenter keeps commands in
/// memory.
pub const DISRUPTION_COMMAND: &str = "dovetail.sh/disruption-command";
/// On a NodeClaim, written before it is deleted: when the cloud takes its machine back, RFC 3339. Until shortly before,
/// the drain waits for what takes its place. Ours; Karpenter drains at once.
pub const INTERRUPTION_TIME: &str = "dovetail.sh/interruption-time";
/// On a NodePool: what becomes of its machines that are past their time, `Forceful` or `Graceful`. Ours; Karpenter
/// deletes them.
pub const EXPIRATION_POLICY: &str = "dovetail.sh/expiration-policy";
/// On a NodeClaim: when its last reboots were asked for, RFC 3339, separated by commas. Ours; Karpenter keeps them in
/// memory.
pub const REBOOTS: &str = "dovetail.sh/reboots";
/// On a NodeClaim, while it reboots: when the provider was first asked, RFC 3339. Ours; Karpenter takes the time from a
/// condition that may have changed long before.
pub const REBOOT_ISSUED_AT: &str = "dovetail.sh/reboot-issued-at";
/// On a NodeOverlay that was generated: the driver, instance type, node class and Node that it was made from, in words.
pub const GENERATED_FROM: &str = "dovetail.sh/generated-from";

/// Value of an annotation that is a flag.
pub const TRUE: &str = "true";
/// Value of an annotation that is a flag.
pub const FALSE: &str = "false";

/// The uids in a value of [`PLANNED_PODS`], with what is said of their stages.
pub fn planned_pods(value: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    value.split(',').map(|entry| match entry.trim().split_once(':') {
        Some((uid, stage)) => (uid, Some(stage)),
        None => (entry.trim(), None),
    })
}
