//! Pods and pod templates.
//!
//! Everything in a pod that decides where it may go becomes part of its shape. A field of `spec` that this program has
//! never heard of may decide that too; such a pod is not misread but carries the field as an unsupported construct.

mod affinity;
mod bound;
mod plugins;
mod ports;
mod requests;
pub(crate) mod spread;
mod tolerations;
mod volumes;

#[cfg(test)]
mod tests;

use api::annotations;
use model::pod::{DoNotDisrupt, PodPhase, PodShape, PreemptionPolicy, SchedulingGroup, SchedulingState};
use model::{DurationMs, Interner, NamespacedName, NodeName, Pod, ResourceClaimName, ResourceVec, Unsupported};
use serde_json::Value;

use crate::context::Context;
use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object, owner};
use crate::reads;
use model::pod::DEFAULT_SCHEDULER;

pub(crate) use tolerations::any_value as tolerate_any_value;

/// The label by which the DaemonSet controller says which template it made a pod from.
pub const TEMPLATE_GENERATION: &str = "pod-template-generation";

/// Reads a Pod. One that is bound to a node is read as far as it can be, because it holds room there: of it only the
/// name has to be readable.
pub fn pod(object: &Value, context: &mut Context<'_>) -> Result<Pod, ObjectError> {
    match decode_object(object, "Pod", |root| decode(root, context)) {
        Err(error) if bound::is_bound(object) => bound::read(object, error, context),
        strict => strict,
    }
}

fn decode(root: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Pod, Problem> {
    let metadata = root.field("metadata")?;
    let Metadata { name, uid, created_at, deletion_timestamp } = Metadata::decode(&metadata)?;
    let spec = root.field("spec")?;
    let status = root.field("status")?;
    let owner = owner(&metadata)?;
    let annotations = Annotations::decode(&metadata)?;
    let node_name = non_empty(&spec.field("nodeName")?)?.map(NodeName::from);
    let shape = shape(&name.namespace, &metadata, &spec, &status, context)?;
    Ok(Pod {
        labels: metadata.field("labels")?.labels(context.interner)?,
        uid,
        created_at,
        started_at: status.field("startTime")?.timestamp()?,
        deletion_timestamp,
        priority: spec.field("priority")?.int32()?.unwrap_or(0),
        preemption_policy: preemption_policy(&spec.field("preemptionPolicy")?)?,
        is_daemon: owner.as_ref().is_some_and(|owner| &*owner.kind == "DaemonSet"),
        template_generation: template_generation(&metadata)?,
        is_mirror: annotations.is_mirror || owner.as_ref().is_some_and(|owner| &*owner.kind == "Node"),
        owner,
        scheduling: scheduling_state(&spec, &status, node_name.is_some())?,
        node_name,
        nominated_node_name: non_empty(&status.field("nominatedNodeName")?)?.map(NodeName::from),
        phase: phase(&status.field("phase")?)?,
        is_unready: is_unready(&status)?,
        scheduler_name: non_empty(&spec.field("schedulerName")?)?.unwrap_or(DEFAULT_SCHEDULER).into(),
        do_not_disrupt: annotations.do_not_disrupt,
        disruption_cost: annotations.disruption_cost,
        deletion_cost: annotations.deletion_cost,
        termination_grace_period_s: spec.field("terminationGracePeriodSeconds")?.int(0, i64::MAX)?,
        resource_claim_names: resource_claim_names(&spec, &status)?,
        may_enter: tolerations::held_machines(&spec.field("tolerations")?)?,
        kubelet_plugins: plugins::decode(&spec.field("volumes")?)?,
        resizing: requests::resizing(&spec, &status, context.interner)?,
        unreadable: None,
        shape: context.interner.shape(shape),
        name,
    })
}

/// Which of its DaemonSet's templates a pod was made from.
fn template_generation(metadata: &Field<'_, '_>) -> Result<Option<i64>, Problem> {
    let labels = metadata.field("labels")?;
    Ok(labels.field(TEMPLATE_GENERATION)?.str()?.and_then(|text| text.parse().ok()))
}

/// Reads what decides where pods of this spec may go.
pub(crate) fn shape(
    namespace: &str,
    metadata: &Field<'_, '_>,
    spec: &Field<'_, '_>,
    status: &Field<'_, '_>,
    context: &mut Context<'_>,
) -> Result<PodShape, Problem> {
    let containers = spec.field("containers")?;
    if containers.items()?.next().is_none() {
        return Err(containers.problem(crate::error::Reason::Missing));
    }
    let labels = metadata.field("labels")?.labels(context.interner)?;
    let affinity = spec.field("affinity")?;
    affinity.only(&["nodeAffinity", "podAffinity", "podAntiAffinity"])?;
    let node_affinity = affinity.field("nodeAffinity")?;
    let mut unsupported = unknown_fields(spec);
    Ok(PodShape {
        requests: requests::decode(spec, status, context.interner)?,
        node_selector: crate::selector::node_labels(&spec.field("nodeSelector")?, context)?,
        required_node_affinity: affinity::required_node_affinity(&node_affinity, context)?,
        preferred_node_affinity: affinity::preferred_node_affinity(&node_affinity, context)?,
        tolerations: tolerations::decode(&spec.field("tolerations")?, context)?,
        avoids_soft_taints: false,
        topology_spread: spread::decode(&spec.field("topologySpreadConstraints")?, namespace, context)?,
        pod_affinity: affinity::pod_affinity(&affinity.field("podAffinity")?, namespace, &labels, context)?,
        pod_anti_affinity: affinity::pod_affinity(&affinity.field("podAntiAffinity")?, namespace, &labels, context)?,
        host_ports: ports::decode(spec)?,
        volumes: volumes::decode(&spec.field("volumes")?, namespace, &mut unsupported)?,
        resource_claims: volumes::resource_claims(&spec.field("resourceClaims")?, namespace)?,
        scheduling_group: scheduling_group(&spec.field("schedulingGroup")?, namespace, &mut unsupported)?,
        unsupported,
    })
}

/// What a pod of this spec asks for that nobody runs yet.
pub(crate) fn template_requests(spec: &Field<'_, '_>, names: &mut Interner) -> Result<ResourceVec, Problem> {
    let nothing = Value::Null;
    requests::decode(spec, &Field::root(&nothing), names)
}

fn unknown_fields(spec: &Field<'_, '_>) -> Vec<Unsupported> {
    let Some(Value::Object(entries)) = spec.value() else { return Vec::new() };
    let mut unknown: Vec<_> = entries
        .iter()
        .filter(|(key, value)| !value.is_null() && !reads::POD_SPEC.knows(key))
        .map(|(key, _)| Unsupported::new(format!("spec.{key}")))
        .collect();
    unknown.sort();
    unknown
}

fn scheduling_group(
    group: &Field<'_, '_>,
    namespace: &str,
    unsupported: &mut Vec<Unsupported>,
) -> Result<Option<SchedulingGroup>, Problem> {
    if group.is_absent() {
        return Ok(None);
    }
    match non_empty(&group.field("podGroupName")?)? {
        Some(name) => Ok(Some(SchedulingGroup { pod_group: NamespacedName::new(namespace, name) })),
        None => {
            unsupported.push(Unsupported::new("spec.schedulingGroup without podGroupName"));
            Ok(None)
        }
    }
}

fn scheduling_state(spec: &Field<'_, '_>, status: &Field<'_, '_>, is_bound: bool) -> Result<SchedulingState, Problem> {
    if is_bound {
        return Ok(SchedulingState::Scheduled);
    }
    if spec.field("schedulingGates")?.items()?.next().is_some() {
        return Ok(SchedulingState::Gated);
    }
    for condition in status.field("conditions")?.items()? {
        if condition.field("type")?.str()? != Some("PodScheduled") {
            continue;
        }
        return Ok(match condition.field("reason")?.str_or_empty()? {
            "Unschedulable" => SchedulingState::Unschedulable,
            // Of a group that has no place, what looks for claims to give up fails where there is no node yet (1.37),
            // and the error takes the place of the verdict. Messages are not kept, so other errors count too.
            "SchedulerError" if !spec.field("schedulingGroup")?.is_absent() => SchedulingState::Unschedulable,
            "SchedulingGated" => SchedulingState::Gated,
            _ => SchedulingState::NotTried,
        });
    }
    Ok(SchedulingState::NotTried)
}

fn is_unready(status: &Field<'_, '_>) -> Result<bool, Problem> {
    for condition in status.field("conditions")?.items()? {
        if condition.field("type")?.str()? == Some("Ready") {
            return Ok(condition.field("status")?.str()? == Some("False"));
        }
    }
    Ok(false)
}

fn phase(phase: &Field<'_, '_>) -> Result<PodPhase, Problem> {
    Ok(match phase.str_or_empty()? {
        "" | "Pending" => PodPhase::Pending,
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        "Unknown" => PodPhase::Unknown,
        _ => return Err(phase.unknown("pod phase")),
    })
}

fn preemption_policy(policy: &Field<'_, '_>) -> Result<PreemptionPolicy, Problem> {
    match policy.str_or_empty()? {
        "" | "PreemptLowerPriority" => Ok(PreemptionPolicy::PreemptLowerPriority),
        "Never" => Ok(PreemptionPolicy::Never),
        _ => Err(policy.unknown("preemption policy")),
    }
}

/// The claims behind the entries of `spec.resourceClaims`: named there, or in the status once they were generated.
fn resource_claim_names(
    spec: &Field<'_, '_>,
    status: &Field<'_, '_>,
) -> Result<Vec<(ResourceClaimName, ResourceClaimName)>, Problem> {
    let mut names = Vec::new();
    for list in [spec.field("resourceClaims")?, status.field("resourceClaimStatuses")?] {
        for entry in list.items()? {
            if let Some(claim) = non_empty(&entry.field("resourceClaimName")?)? {
                let entry = entry.field("name")?.str_or_empty()?;
                names.push((ResourceClaimName::from(entry), ResourceClaimName::from(claim)));
            }
        }
    }
    Ok(names)
}

/// The annotations of pods and nodes that matter. One that cannot be read counts as not there: annotations are free
/// text, and refusing the object over one would be worse than what Karpenter does, which is to log it.
pub(crate) struct Annotations {
    pub(crate) do_not_disrupt: DoNotDisrupt,
    pub(crate) disruption_cost: Option<i32>,
    pub(crate) deletion_cost: Option<i32>,
    is_mirror: bool,
}

impl Annotations {
    pub(crate) fn decode(metadata: &Field<'_, '_>) -> Result<Self, Problem> {
        let mut decoded =
            Self { do_not_disrupt: DoNotDisrupt::Never, disruption_cost: None, deletion_cost: None, is_mirror: false };
        for (key, value) in metadata.field("annotations")?.string_map()? {
            match key {
                annotations::DO_NOT_DISRUPT => decoded.do_not_disrupt = do_not_disrupt(value),
                annotations::DISRUPTION_COST => decoded.disruption_cost = value.parse().ok(),
                annotations::POD_DELETION_COST => decoded.deletion_cost = value.parse().ok(),
                reads::MIRROR => decoded.is_mirror = true,
                _ => {}
            }
        }
        Ok(decoded)
    }
}

/// Differs: `do-not-disrupt-false`. Karpenter complains of `"false"` as of any other word.
fn do_not_disrupt(value: &str) -> DoNotDisrupt {
    match value {
        annotations::TRUE => DoNotDisrupt::Always,
        "" | "false" => DoNotDisrupt::Never,
        _ => match DurationMs::parse(value) {
            Ok(span) if span > DurationMs::ZERO => DoNotDisrupt::For(span),
            Ok(_) | Err(_) => DoNotDisrupt::Invalid,
        },
    }
}

fn non_empty<'v>(field: &Field<'v, '_>) -> Result<Option<&'v str>, Problem> {
    Ok(field.str()?.filter(|text| !text.is_empty()))
}
