//! DaemonSets, PodDisruptionBudgets and PodGroups.

use std::sync::Arc;

use api::{labels, taints};
use model::workload::{DaemonSet, PodDisruptionBudget, PodGroup, PodTemplate, UnhealthyPodEvictionPolicy};
use model::{KeyId, TaintEffect, Unsupported};
use serde_json::Value;

use crate::context::Context;
use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object};
use crate::pod;
use crate::selector::label_selector;

/// Taints that the DaemonSet controller makes every daemon tolerate, whatever their value.
const DAEMON_TOLERATIONS: [(&str, TaintEffect); 6] = [
    (taints::NOT_READY, TaintEffect::NoExecute),
    (taints::UNREACHABLE, TaintEffect::NoExecute),
    ("node.kubernetes.io/disk-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/memory-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/pid-pressure", TaintEffect::NoSchedule),
    ("node.kubernetes.io/unschedulable", TaintEffect::NoSchedule),
];

/// The annotation of a DaemonSet that numbers its templates. Its pods have the number as [`pod::TEMPLATE_GENERATION`].
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// And those on the host's network.
const HOST_NETWORK_TOLERATION: (&str, TaintEffect) =
    ("node.kubernetes.io/network-unavailable", TaintEffect::NoSchedule);

/// Reads a DaemonSet. Its pods tolerate what the DaemonSet controller adds.
///
/// Differs: `daemon-template`. Karpenter takes the template as it is, or a pod that runs already; here only the
/// requests of one that runs count ([`crate::snapshot()`]).
pub fn daemon_set(object: &Value, context: &mut Context<'_>) -> Result<DaemonSet, ObjectError> {
    decode_object(object, "DaemonSet", |root| {
        let metadata = Metadata::decode(&root.field("metadata")?)?;
        let spec = root.field("spec")?;
        let mut template = pod_template(&spec.field("template")?, &metadata.name.namespace, context)?;
        let template_field = spec.field("template")?;
        let pod_spec = template_field.field("spec")?;
        let host_network = pod_spec.field("hostNetwork")?.bool()?.then_some(HOST_NETWORK_TOLERATION);
        let shape = Arc::make_mut(&mut template.shape);
        for (key, effect) in DAEMON_TOLERATIONS.into_iter().chain(host_network) {
            shape.tolerations.push(pod::tolerate_any_value(key, effect, context));
        }
        Ok(DaemonSet {
            name: metadata.name,
            uid: metadata.uid,
            template,
            template_generation: template_generation(&root.field("metadata")?)?,
        })
    })
}

/// Which template a DaemonSet has, from an annotation that is deprecated and that every API server still writes.
fn template_generation(metadata: &Field<'_, '_>) -> Result<Option<i64>, Problem> {
    let annotations = metadata.field("annotations")?;
    let text = annotations.field(TEMPLATE_GENERATION)?.str()?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Reads the `template` of a workload in `namespace`.
pub(crate) fn pod_template(
    template: &Field<'_, '_>,
    namespace: &str,
    context: &mut Context<'_>,
) -> Result<PodTemplate, Problem> {
    let metadata = template.field("metadata")?;
    let spec = template.field("spec")?;
    let nothing = Value::Null;
    let no_status = Field::root(&nothing);
    Ok(PodTemplate {
        labels: metadata.field("labels")?.labels(context.interner)?,
        priority: spec.field("priority")?.int32()?,
        priority_class: spec.field("priorityClassName")?.str()?.filter(|name| !name.is_empty()).map(Arc::from),
        shape: Arc::new(pod::shape(namespace, &metadata, &spec, &no_status, context)?),
    })
}

/// Reads a PodDisruptionBudget.
pub fn pod_disruption_budget(object: &Value, context: &mut Context<'_>) -> Result<PodDisruptionBudget, ObjectError> {
    decode_object(object, "PodDisruptionBudget", |root| {
        let metadata = Metadata::decode(&root.field("metadata")?)?;
        let (spec, status) = (root.field("spec")?, root.field("status")?);
        let policy = spec.field("unhealthyPodEvictionPolicy")?;
        Ok(PodDisruptionBudget {
            name: metadata.name,
            selector: label_selector(&spec.field("selector")?, context)?,
            disruptions_allowed: status.field("disruptionsAllowed")?.int32()?.unwrap_or(0),
            never_allows_disruption: int_or_percent(&spec.field("maxUnavailable")?)? == Some(IntOrPercent::Int(0))
                || int_or_percent(&spec.field("maxUnavailable")?)? == Some(IntOrPercent::Percent(0))
                || int_or_percent(&spec.field("minAvailable")?)? == Some(IntOrPercent::Percent(100)),
            unhealthy_pod_eviction_policy: match policy.str_or_empty()? {
                "" | "IfHealthyBudget" => UnhealthyPodEvictionPolicy::IfHealthyBudget,
                "AlwaysAllow" => UnhealthyPodEvictionPolicy::AlwaysAllow,
                _ => return Err(policy.unknown("eviction policy")),
            },
        })
    })
}

#[derive(PartialEq)]
enum IntOrPercent {
    Int(i64),
    Percent(i64),
}

fn int_or_percent(field: &Field<'_, '_>) -> Result<Option<IntOrPercent>, Problem> {
    match field.value() {
        Some(Value::String(text)) => match text.strip_suffix('%').and_then(|number| number.parse().ok()) {
            Some(percent) if (0..=i64::from(i32::MAX)).contains(&percent) => Ok(Some(IntOrPercent::Percent(percent))),
            _ => Err(field.unknown("percentage")),
        },
        _ => Ok(field.int(0, i64::from(i32::MAX))?.map(IntOrPercent::Int)),
    }
}

/// Reads a PodGroup. Its claims are read by [`crate::devices::pod_group_claims`].
pub fn pod_group(object: &Value, context: &mut Context<'_>) -> Result<PodGroup, ObjectError> {
    decode_object(object, "PodGroup", |root| {
        let metadata = Metadata::decode(&root.field("metadata")?)?;
        let spec = root.field("spec")?;
        let policy = spec.field("schedulingPolicy")?;
        let gang = policy.field("gang")?;
        let min_count = gang.field("minCount")?;
        let count = min_count.int(1, i64::from(i32::MAX))?;
        if !gang.is_absent() && count.is_none() {
            return Err(min_count.problem(crate::error::Reason::Missing));
        }
        let mut unsupported = Vec::new();
        let (topology_key, fault) = topology_key(&spec.field("schedulingConstraints")?, context)?;
        unsupported.extend(fault);
        if !spec.field("parentCompositePodGroupName")?.is_absent() {
            unsupported.push(Unsupported::new("spec.parentCompositePodGroupName of a PodGroup"));
        }
        let min_count = count.and_then(|count| u32::try_from(count).ok());
        Ok(PodGroup { name: metadata.name, min_count, topology_key, unsupported })
    })
}

/// The label of which all pods of a group have to be at one value, or what of the constraints is not planned for.
fn topology_key(
    constraints: &Field<'_, '_>,
    context: &mut Context<'_>,
) -> Result<(Option<KeyId>, Option<Unsupported>), Problem> {
    let all = Unsupported::new("spec.schedulingConstraints of a PodGroup");
    let is_known = |field: &Field<'_, '_>, known: &str| -> Result<bool, Problem> {
        Ok(field.entries()?.all(|(key, entry)| key == known || entry.is_absent()))
    };
    if !is_known(constraints, "topology")? {
        return Ok((None, Some(all)));
    }
    let topology = constraints.field("topology")?;
    let mut keys = Vec::new();
    for constraint in topology.items()? {
        if !is_known(&constraint, "key")? {
            return Ok((None, Some(all)));
        }
        keys.push(constraint.field("key")?.required_str()?);
    }
    match keys.as_slice() {
        [] => Ok((None, None)),
        // A machine to come has no name yet.
        [labels::HOSTNAME] => {
            Ok((None, Some(Unsupported::new("spec.schedulingConstraints.topology by host of a PodGroup"))))
        }
        [key] => Ok((Some(context.interner.key(key)), None)),
        [_, _, ..] => Ok((None, Some(all))),
    }
}

#[cfg(test)]
mod tests;
