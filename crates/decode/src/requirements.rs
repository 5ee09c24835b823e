//! Requirements of NodePools and NodeClaims.

use api::{NodeSelectorRequirementWithMinValues, Operator as ApiOperator};
use model::requirement::ExpressionError;
use model::{Operator, Requirement, Requirements, ValueSet};

use crate::context::Context;
use crate::error::{Problem, Reason};

/// The conjunction of a list of requirements; `field` is where the list stands.
pub(crate) fn requirements(
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

/// Labels as requirements for exactly their values.
pub(crate) fn labels<'a>(
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
pub(crate) fn exactly(key: &str, value: &str, context: &mut Context<'_>) -> Requirement {
    let (id, value) = (context.key(key), context.value(key, value));
    Requirement::new(id, ValueSet::one(value))
}
