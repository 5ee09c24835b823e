//! Label selectors and node selectors.

use std::sync::Arc;

use model::pod::{NodeSelectorTerm, UnusableTerm};
use model::requirement::{UnknownOperator, ValuesError};
use model::{LabelSelector, Operator, Requirement, Requirements, ValueSet};

use crate::context::Context;
use crate::error::{Problem, Reason};
use crate::field::Field;

const MAX_LABEL_VALUE_LEN: usize = 63;

/// A `metav1.LabelSelector` on labels of anything but nodes.
pub(crate) fn label_selector(selector: &Field<'_, '_>, context: &mut Context<'_>) -> Result<LabelSelector, Problem> {
    if selector.is_absent() {
        return Ok(LabelSelector::Nothing);
    }
    selector.only(&["matchLabels", "matchExpressions"])?;
    let mut requirements = Requirements::new();
    for (key, value) in selector.field("matchLabels")?.string_map()? {
        let (key, value) = (context.interner.key(key), context.interner.value(value));
        requirements.insert_intersect(Requirement::new(key, ValueSet::one(value)), context.interner);
    }
    for expression in selector.field("matchExpressions")?.items()? {
        let key = expression.field("key")?;
        let key = key.required_str()?;
        let operator = operator(&expression, |operator| !operator.is_numeric())?;
        let values = expression.field("values")?;
        let values = values.strings()?;
        let requirement =
            Requirement::parse(key, operator, values, context.interner).map_err(|error| expression.problem(error))?;
        requirements.insert_intersect(requirement, context.interner);
    }
    Ok(LabelSelector::Matching(requirements))
}

/// A map of labels that a node must have.
pub(crate) fn node_labels(map: &Field<'_, '_>, context: &mut Context<'_>) -> Result<Requirements, Problem> {
    let mut requirements = Requirements::new();
    for (key, value) in map.entries()? {
        let text = value.str_or_empty()?;
        if !is_label_value(text) {
            return Err(value.invalid(format!("{text:?} is not a label value")));
        }
        let (key, text) = (context.interner.key(key), context.interner.value(text));
        requirements.insert_intersect(Requirement::new(key, ValueSet::one(text)), context.interner);
    }
    Ok(requirements)
}

/// The alternatives of a `core/v1` NodeSelector. One that is present always gives at least one term; a term that can
/// match no node says so.
pub(crate) fn node_selector(
    selector: &Field<'_, '_>,
    context: &mut Context<'_>,
) -> Result<Vec<NodeSelectorTerm>, Problem> {
    if selector.is_absent() {
        return Ok(Vec::new());
    }
    selector.only(&["nodeSelectorTerms"])?;
    let terms = selector.field("nodeSelectorTerms")?;
    let mut terms: Vec<_> = terms.items()?.map(|term| node_selector_term(&term, context)).collect::<Result<_, _>>()?;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::unusable(UnusableTerm::Empty));
    }
    Ok(terms)
}

/// One alternative of a node selector.
///
/// What the API server would refuse is an error. A comparison with something that is no integer passes the API server
/// and then matches nothing in kube-scheduler, without touching the other alternatives; it is read the same way.
pub(crate) fn node_selector_term(term: &Field<'_, '_>, context: &mut Context<'_>) -> Result<NodeSelectorTerm, Problem> {
    term.only(&["matchExpressions", "matchFields"])?;
    let mut decoded = NodeSelectorTerm::default();
    let mut is_empty = true;
    for expression in term.field("matchExpressions")?.items()? {
        is_empty = false;
        let key = expression.field("key")?;
        let key = key.required_str()?;
        let operator = operator(&expression, |operator| !matches!(operator, Operator::Gte | Operator::Lte))?;
        let values = expression.field("values")?;
        let values = values.strings()?;
        let ids: Vec<_> = values.iter().map(|value| context.interner.value(value)).collect();
        match ValueSet::of(operator, &ids, context.interner) {
            Ok(values) => {
                let requirement = Requirement::new(context.interner.key(key), values);
                decoded.expressions.insert_intersect(requirement, context.interner);
            }
            Err(problem @ ValuesError::NotAnInteger { .. }) => {
                let why = format!("key {key:?}: operator {operator} {problem}");
                decoded.unusable = Some(UnusableTerm::Invalid(Arc::from(why)));
            }
            Err(problem) => {
                let key = key.to_owned();
                return Err(expression.problem(model::requirement::ExpressionError::Values { key, operator, problem }));
            }
        }
    }
    for expression in term.field("matchFields")?.items()? {
        is_empty = false;
        let names = field_expression(&expression, context)?;
        decoded.node_name = Some(match decoded.node_name.take() {
            None => names,
            Some(others) => others.intersect(&names, context.interner),
        });
    }
    if is_empty {
        decoded.unusable = Some(UnusableTerm::Empty);
    }
    Ok(decoded)
}

/// An expression on a node's fields: there is one field, two operators, and each takes one value.
fn field_expression(expression: &Field<'_, '_>, context: &mut Context<'_>) -> Result<ValueSet, Problem> {
    let key = expression.field("key")?;
    if key.required_str()? != "metadata.name" {
        return Err(key.unknown("node field"));
    }
    let operator = operator(expression, |operator| matches!(operator, Operator::In | Operator::NotIn))?;
    let values = expression.field("values")?;
    let names = values.strings()?;
    let [name] = names.as_slice() else {
        return Err(values.invalid("must have exactly one element"));
    };
    let name = context.interner.value(name);
    ValueSet::of(operator, &[name], context.interner).map_err(|problem| {
        let key = "metadata.name".to_owned();
        expression.problem(model::requirement::ExpressionError::Values { key, operator, problem })
    })
}

/// The operator of an expression, if it is one of those allowed there.
pub(crate) fn operator(
    expression: &Field<'_, '_>,
    allowed: impl FnOnce(Operator) -> bool,
) -> Result<Operator, Problem> {
    let operator = expression.field("operator")?;
    match operator.str_or_empty()?.parse() {
        Ok(known) if allowed(known) => Ok(known),
        Ok(_) | Err(UnknownOperator(_)) => Err(operator.unknown("operator")),
    }
}

/// Whether a text can be the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= MAX_LABEL_VALUE_LEN
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

impl Field<'_, '_> {
    /// Refuses fields of this object that are not listed: here each of them can change which objects are meant.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        let serde_json::Value::Object(entries) = self.value().unwrap_or(&serde_json::Value::Null) else {
            return Ok(());
        };
        match entries.iter().find(|(key, value)| !value.is_null() && !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(self.problem(Reason::Unknown { what: "field", text: key.clone() })),
        }
    }
}
