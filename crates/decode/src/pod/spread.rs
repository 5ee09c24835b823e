//! `spec.topologySpreadConstraints`.

use model::pod::{NodeInclusionPolicy, TopologySpreadConstraint, WhenUnsatisfiable};

use crate::context::Context;
use crate::error::Problem;
use crate::field::Field;
use crate::selector::label_selector;

pub(super) fn decode(
    list: &Field<'_, '_>,
    namespace: &str,
    context: &mut Context<'_>,
) -> Result<Vec<TopologySpreadConstraint>, Problem> {
    list.items()?.map(|item| constraint(&item, namespace, context)).collect()
}

fn constraint(
    item: &Field<'_, '_>,
    namespace: &str,
    context: &mut Context<'_>,
) -> Result<TopologySpreadConstraint, Problem> {
    item.only(&[
        "labelSelector",
        "matchLabelKeys",
        "maxSkew",
        "minDomains",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "topologyKey",
        "whenUnsatisfiable",
    ])?;
    let positive = |field: Field<'_, '_>| -> Result<Option<u32>, Problem> {
        Ok(field.int(1, i64::from(i32::MAX))?.and_then(|int| u32::try_from(int).ok()))
    };
    let max_skew = item.field("maxSkew")?;
    let when = item.field("whenUnsatisfiable")?;
    let keys = item.field("matchLabelKeys")?;
    Ok(TopologySpreadConstraint {
        max_skew: positive(max_skew)?.ok_or_else(|| max_skew.problem(crate::error::Reason::Missing))?,
        topology_key: context.interner.key(item.field("topologyKey")?.required_str()?),
        when_unsatisfiable: match when.required_str()? {
            "DoNotSchedule" => WhenUnsatisfiable::DoNotSchedule,
            "ScheduleAnyway" => WhenUnsatisfiable::ScheduleAnyway,
            _ => return Err(when.unknown("action")),
        },
        selector: label_selector(&item.field("labelSelector")?, context)?,
        namespace: namespace.into(),
        min_domains: positive(item.field("minDomains")?)?,
        node_affinity_policy: inclusion(&item.field("nodeAffinityPolicy")?, NodeInclusionPolicy::Honor)?,
        node_taints_policy: inclusion(&item.field("nodeTaintsPolicy")?, NodeInclusionPolicy::Ignore)?,
        match_label_keys: keys.strings()?.into_iter().map(|key| context.interner.key(key)).collect(),
    })
}

fn inclusion(policy: &Field<'_, '_>, default: NodeInclusionPolicy) -> Result<NodeInclusionPolicy, Problem> {
    match policy.str_or_empty()? {
        "" => Ok(default),
        "Honor" => Ok(NodeInclusionPolicy::Honor),
        "Ignore" => Ok(NodeInclusionPolicy::Ignore),
        _ => Err(policy.unknown("node inclusion policy")),
    }
}
