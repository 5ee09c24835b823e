//! Requirements of NodePools and NodeClaims.

use std::collections::BTreeMap;

use api::labels::ProviderLabels;
use api::{NodeSelectorRequirementWithMinValues, Operator as ApiOperator};
use model::requirement::ExpressionError;
use model::{Interner, Operator, Requirement, Requirements, ValueSet};

use crate::context::Context;
use crate::error::{Problem, Reason};

/// The conjunction of a list of requirements; `field` is where the list stands.
pub fn requirements(
    list: &[NodeSelectorRequirementWithMinValues],
    field: &str,
    context: &mut Context<'_>,
) -> Result<Requirements, Problem> {
    let mut all = Requirements::new();
    for (index, item) in list.iter().enumerate() {
        let requirement =
            requirement(item, context).map_err(|reason| Problem { field: format!("{field}[{index}]"), reason })?;
        all.insert_intersect(requirement, context.interner);
    }
    Ok(all)
}

fn requirement(item: &NodeSelectorRequirementWithMinValues, context: &mut Context<'_>) -> Result<Requirement, Reason> {
    let key = item.key.as_str();
    if key.is_empty() {
        return Err(Reason::Missing);
    }
    let operator = operator(&item.operator)?;
    let values: Vec<_> = item.values.iter().map(|value| context.value(key, value)).collect();
    let values = match operator {
        // Karpenter's CRD lets NotIn without values pass, and Karpenter reads it like Exists.
        Operator::NotIn if values.is_empty() => ValueSet::exists(),
        _ => ValueSet::of(operator, &values, context.interner).map_err(|problem| ExpressionError::Values {
            key: key.to_owned(),
            operator,
            problem,
        })?,
    };
    let min_values = match item.min_values {
        None => None,
        Some(min_values) => {
            Some(u32::try_from(min_values).ok().filter(|&min_values| min_values >= 1).ok_or(Reason::OutOfRange {
                value: min_values.to_string(),
                min: 1,
                max: i64::from(u32::MAX),
            })?)
        }
    };
    Ok(Requirement { key: context.key(key), values, min_values })
}

fn operator(operator: &ApiOperator) -> Result<Operator, Reason> {
    Ok(match operator {
        ApiOperator::In => Operator::In,
        ApiOperator::NotIn => Operator::NotIn,
        ApiOperator::Exists => Operator::Exists,
        ApiOperator::DoesNotExist => Operator::DoesNotExist,
        ApiOperator::Gt => Operator::Gt,
        ApiOperator::Lt => Operator::Lt,
        ApiOperator::Gte => Operator::Gte,
        ApiOperator::Lte => Operator::Lte,
        ApiOperator::Unknown(text) => return Err(Reason::Unknown { what: "operator", text: text.clone() }),
    })
}

/// The labels that a machine has to be given so that it meets `list`, where its provider says `provided` of it: for
/// each key that has to have a value, the provider's if that will do, else [`ValueSet::any_value`]. Keys that are
/// well-known or restricted are the provider's alone. None at all if the list makes no sense, which admission refuses.
pub fn labels_to_give(
    list: &[NodeSelectorRequirementWithMinValues],
    provided: &BTreeMap<String, String>,
    rules: &ProviderLabels,
) -> BTreeMap<String, String> {
    let mut interner = Interner::new();
    let mut context = Context::with_labels(&mut interner, rules);
    let Ok(all) = requirements(list, "spec.requirements", &mut context) else { return BTreeMap::new() };
    let provided = labels(provided, &mut context);
    let value = |requirement: &Requirement| {
        let key = interner.key_name(requirement.key);
        if rules.is_well_known(key) || rules.is_restricted(key) {
            return None;
        }
        let of_provider = provided.get(requirement.key).and_then(|known| known.values.single_value());
        let value = match of_provider.filter(|value| requirement.values.contains(Some(*value), &interner)) {
            Some(value) => interner.value_arc(value),
            None => requirement.values.any_value(&interner)?,
        };
        Some((key.to_owned(), value.to_string()))
    };
    all.iter_by_name(&interner).filter_map(value).collect()
}

/// Labels as requirements for exactly their values.
pub fn labels<'a>(
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
    context: &mut Context<'_>,
) -> Requirements {
    let mut all = Requirements::new();
    for (key, value) in labels {
        all.insert_intersect(exactly(key, value, context), context.interner);
    }
    all
}

/// The requirement that `key` has exactly this value.
pub fn exactly(key: &str, value: &str, context: &mut Context<'_>) -> Requirement {
    let (id, value) = (context.key(key), context.value(key, value));
    Requirement::new(id, ValueSet::one(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn given(list: Value, provided: &[(&str, &str)]) -> Vec<String> {
        let list: Vec<NodeSelectorRequirementWithMinValues> = serde_json::from_value(list).unwrap();
        let provided = provided.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let given = labels_to_give(&list, &provided, &ProviderLabels::default());
        given.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    #[test]
    fn every_key_that_must_have_a_value_gets_one_and_the_same_each_time() {
        let list = json!([
            {"key": "team", "operator": "In", "values": ["b", "a"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "rank", "operator": "Gt", "values": ["4"]},
            {"key": "rank", "operator": "NotIn", "values": ["5"]},
            {"key": "gone", "operator": "DoesNotExist"},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z1", "z2"]},
            {"key": "karpenter.sh/own", "operator": "Exists"},
        ]);
        assert_eq!(given(list, &[]), ["rank=6", "team=a", "tier=0"]);
    }

    #[test]
    fn what_the_provider_says_stands_where_it_will_do() {
        let list = || json!([{"key": "team", "operator": "In", "values": ["a", "b"]}]);
        assert_eq!(given(list(), &[("team", "b"), ("other", "x")]), ["team=b"]);
        assert_eq!(given(list(), &[("team", "c")]), ["team=a"]);
    }

    #[test]
    fn what_makes_no_sense_gives_nothing() {
        assert_eq!(given(json!([{"key": "team", "operator": "Gt", "values": ["x"]}]), &[]), [""; 0]);
    }
}
