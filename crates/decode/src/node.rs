//! Nodes, and the CSI drivers on them.

use std::sync::Arc;

use model::node::{ConditionStatus, NodeAnnotations, NodeCondition};
use model::pod::DoNotDisrupt;
use model::volume::CsiNodeDriver;
use model::{Labels, Node, NodeName, ProviderId, Taint};
use serde_json::Value;

use crate::context::Context;
use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object};
use crate::pod::Annotations;
use crate::resource_list::ResourceList;

/// Reads a Node. Its CSI drivers are in another object, [`csi_node`].
pub fn node(object: &Value, context: &mut Context<'_>) -> Result<Node, ObjectError> {
    decode_object(object, "Node", |root| decode(root, context))
}

fn decode(root: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Node, Problem> {
    let metadata = root.field("metadata")?;
    let Metadata { name, uid, created_at, deletion_timestamp } = Metadata::decode(&metadata)?;
    let (spec, status) = (root.field("spec")?, root.field("status")?);
    let conditions = conditions(&status)?;
    let capacity = resources(&status.field("capacity")?, context)?;
    let allocatable = status.field("allocatable")?;
    // The API server defaults what can be allocated to what is there.
    let allocatable = if allocatable.is_absent() { capacity.clone() } else { resources(&allocatable, context)? };
    // Durations mean nothing on a node, unlike on a pod.
    let do_not_disrupt = match Annotations::decode(&metadata)?.do_not_disrupt {
        DoNotDisrupt::Always => DoNotDisrupt::Always,
        DoNotDisrupt::Never | DoNotDisrupt::For(_) | DoNotDisrupt::Invalid => DoNotDisrupt::Never,
    };
    Ok(Node {
        name: NodeName::from(name.name),
        uid,
        provider_id: spec.field("providerID")?.str()?.filter(|id| !id.is_empty()).map(ProviderId::from),
        labels: labels(&metadata.field("labels")?, context)?,
        annotations: NodeAnnotations { do_not_disrupt },
        taints: taints(&spec.field("taints")?, context)?,
        unschedulable: spec.field("unschedulable")?.bool()?,
        capacity,
        allocatable,
        ready: conditions
            .iter()
            .any(|condition| &*condition.condition_type == "Ready" && condition.status == ConditionStatus::True),
        conditions,
        created_at,
        deletion_timestamp,
        csi_drivers: None,
    })
}

fn resources(list: &Field<'_, '_>, context: &mut Context<'_>) -> Result<model::ResourceVec, Problem> {
    ResourceList::decode(list)?.to_vec(list, context.interner)
}

/// Labels of a node, each under the key that it has there.
pub(crate) fn labels(map: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Labels, Problem> {
    let mut labels = Labels::new();
    for (key, value) in map.string_map()? {
        labels.insert(context.interner.key(key), context.interner.value(value));
    }
    Ok(labels)
}

/// A list of taints.
pub(crate) fn taints(list: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Vec<Taint>, Problem> {
    let taint = |item: Field<'_, '_>| {
        Ok(Taint {
            key: context.interner.key(item.field("key")?.required_str()?),
            value: context.interner.value(item.field("value")?.str_or_empty()?),
            effect: item.field("effect")?.name_of()?,
        })
    };
    list.items()?.map(taint).collect()
}

fn conditions(status: &Field<'_, '_>) -> Result<Vec<NodeCondition>, Problem> {
    let mut conditions = Vec::new();
    for item in status.field("conditions")?.items()? {
        conditions.push(NodeCondition {
            condition_type: Arc::from(item.field("type")?.str_or_empty()?),
            status: condition_status(&item.field("status")?)?,
            last_transition: item.field("lastTransitionTime")?.timestamp()?.unwrap_or_default(),
        });
    }
    conditions.sort_by(|a, b| a.condition_type.cmp(&b.condition_type));
    Ok(conditions)
}

pub(crate) fn condition_status(status: &Field<'_, '_>) -> Result<ConditionStatus, Problem> {
    match status.str_or_empty()? {
        "True" => Ok(ConditionStatus::True),
        "False" => Ok(ConditionStatus::False),
        "" | "Unknown" => Ok(ConditionStatus::Unknown),
        _ => Err(status.unknown("condition status")),
    }
}

/// Reads a CSINode: the node it is about, and the drivers on it sorted by name.
pub fn csi_node(object: &Value) -> Result<(NodeName, Vec<CsiNodeDriver>), ObjectError> {
    decode_object(object, "CSINode", |root| {
        let metadata = Metadata::decode(&root.field("metadata")?)?;
        let spec = root.field("spec")?;
        let mut drivers = Vec::new();
        for item in spec.field("drivers")?.items()? {
            let allocatable = item.field("allocatable")?;
            let count = allocatable.field("count")?.int(0, i64::from(i32::MAX))?;
            drivers.push(CsiNodeDriver {
                name: Arc::from(item.field("name")?.required_str()?),
                attachable_volumes: count.and_then(|count| u32::try_from(count).ok()),
            });
        }
        drivers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((NodeName::from(metadata.name.name), drivers))
    })
}

#[cfg(test)]
mod tests;
