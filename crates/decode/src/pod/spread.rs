//! `spec.topologySpreadConstraints`.

use model::pod::{NodeInclusionPolicy, SpreadSource, TopologySpreadConstraint, WhenUnsatisfiable};

use crate::context::Context;
use crate::error::Problem;
use crate::field::Field;
use crate::selector::label_selector;

/// The fields of a constraint.
pub(crate) const FIELDS: [&str; 8] = [
    "labelSelector",
    "matchLabelKeys",
    "maxSkew",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "topologyKey",
    "whenUnsatisfiable",
];

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
    item.only(&FIELDS)?;
    let keys = item.field("matchLabelKeys")?;
    Ok(TopologySpreadConstraint {
        max_skew: max_skew(item)?,
        topology_key: context.interner.key(item.field("topologyKey")?.required_str()?),
        when_unsatisfiable: when_unsatisfiable(item)?,
        selector: label_selector(&item.field("labelSelector")?, context)?,
        namespace: namespace.into(),
        min_domains: min_domains(item)?,
        node_affinity_policy: inclusion(&item.field("nodeAffinityPolicy")?, NodeInclusionPolicy::Honor)?,
        node_taints_policy: inclusion(&item.field("nodeTaintsPolicy")?, NodeInclusionPolicy::Ignore)?,
        match_label_keys: keys.strings()?.into_iter().map(|key| context.interner.key(key)).collect(),
        source: SpreadSource::Pod,
    })
}

pub(crate) fn max_skew(item: &Field<'_, '_>) -> Result<u32, Problem> {
    let max_skew = item.field("maxSkew")?;
    positive(&max_skew)?.ok_or_else(|| max_skew.problem(crate::error::Reason::Missing))
}

pub(crate) fn min_domains(item: &Field<'_, '_>) -> Result<Option<u32>, Problem> {
    positive(&item.field("minDomains")?)
}

fn positive(field: &Field<'_, '_>) -> Result<Option<u32>, Problem> {
    Ok(field.int(1, i64::from(i32::MAX))?.and_then(|int| u32::try_from(int).ok()))
}

pub(crate) fn when_unsatisfiable(item: &Field<'_, '_>) -> Result<WhenUnsatisfiable, Problem> {
    let when = item.field("whenUnsatisfiable")?;
    match when.required_str()? {
        "DoNotSchedule" => Ok(WhenUnsatisfiable::DoNotSchedule),
        "ScheduleAnyway" => Ok(WhenUnsatisfiable::ScheduleAnyway),
        _ => Err(when.unknown("action")),
    }
}

pub(crate) fn inclusion(policy: &Field<'_, '_>, default: NodeInclusionPolicy) -> Result<NodeInclusionPolicy, Problem> {
    match policy.str_or_empty()? {
        "" => Ok(default),
        "Honor" => Ok(NodeInclusionPolicy::Honor),
        "Ignore" => Ok(NodeInclusionPolicy::Ignore),
        _ => Err(policy.unknown("node inclusion policy")),
    }
}
