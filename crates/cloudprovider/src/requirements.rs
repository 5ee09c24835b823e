//! What a NodeClaim asks of its machine's labels, on the level of strings.
//!
//! A provider decides with this which offering to launch. The planner has its own, interned algebra
//! ([`model::Requirements`]); both give the same answers, which a property test holds them to. Keys that a provider
//! does not set (a team's own labels) are not its business and never refuse an offering.

use std::collections::{BTreeMap, BTreeSet};

use api::labels::ProviderLabels;
use api::{NodeClaim, NodeSelectorRequirementWithMinValues, Operator};
use thiserror::Error as ThisError;

use crate::{InstanceType, Offering};

/// Why a NodeClaim's requirements cannot be understood. The API server refuses all of these.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// An operator that does not exist.
    #[error("requirement on {key:?}: unknown operator {operator:?}")]
    UnknownOperator {
        /// The label.
        key: String,
        /// The operator.
        operator: String,
    },
    /// `In` or `NotIn` without values.
    #[error("requirement on {key:?}: operator {operator} needs a value")]
    ValueMissing {
        /// The label.
        key: String,
        /// The operator.
        operator: Operator,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("requirement on {key:?}: operator {operator} takes no values, got {values:?}")]
    ValuesUnexpected {
        /// The label.
        key: String,
        /// The operator.
        operator: Operator,
        /// What stands there.
        values: Vec<String>,
    },
    /// A comparison with anything but one integer from 0 on.
    #[error("requirement on {key:?}: operator {operator} needs exactly one integer from 0 on, got {values:?}")]
    IntegerExpected {
        /// The label.
        key: String,
        /// The operator.
        operator: Operator,
        /// What stands there.
        values: Vec<String>,
    },
    /// A negative or hugely large `minValues`.
    #[error("requirement on {key:?}: minValues {min_values} is out of range")]
    MinValuesOutOfRange {
        /// The label.
        key: String,
        /// What stands there.
        min_values: i64,
    },
}

/// One condition on a label's value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    /// An integer in this range, both ends included. Wider than `i64`, so that "above the largest" is expressible.
    Between(i128, i128),
}

impl Condition {
    fn parse(requirement: &NodeSelectorRequirementWithMinValues, labels: &ProviderLabels) -> Result<Self, Error> {
        let key = || requirement.key.clone();
        let normalized_key = labels.normalize(&requirement.key);
        let values = || {
            let normalized = |value: &String| labels.normalize_value(normalized_key, value).to_owned();
            requirement.values.iter().map(normalized).collect::<BTreeSet<_>>()
        };
        let integer = || match requirement.values.as_slice() {
            [value] => value.parse::<i64>().ok().filter(|value| *value >= 0).map(i128::from),
            _ => None,
        };
        let bounded = |range: fn(i128) -> (i128, i128)| {
            let (from, to) = integer().map(range).ok_or_else(|| Error::IntegerExpected {
                key: key(),
                operator: requirement.operator.clone(),
                values: requirement.values.clone(),
            })?;
            Ok(Self::Between(from, to))
        };
        match &requirement.operator {
            Operator::In | Operator::NotIn if requirement.values.is_empty() => {
                Err(Error::ValueMissing { key: key(), operator: requirement.operator.clone() })
            }
            Operator::Exists | Operator::DoesNotExist if !requirement.values.is_empty() => {
                Err(Error::ValuesUnexpected {
                    key: key(),
                    operator: requirement.operator.clone(),
                    values: requirement.values.clone(),
                })
            }
            Operator::In => Ok(Self::In(values())),
            Operator::NotIn => Ok(Self::NotIn(values())),
            Operator::Exists => Ok(Self::Exists),
            Operator::DoesNotExist => Ok(Self::DoesNotExist),
            Operator::Gt => bounded(|value| (value + 1, i128::MAX)),
            Operator::Lt => bounded(|value| (i128::MIN, value - 1)),
            Operator::Gte => bounded(|value| (value, i128::MAX)),
            Operator::Lte => bounded(|value| (i128::MIN, value)),
            Operator::Unknown(operator) => Err(Error::UnknownOperator { key: key(), operator: operator.clone() }),
        }
    }

    /// Whether a machine whose label has this value (`None`: lacks the label) meets the condition.
    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(values), Some(value)) => values.contains(value),
            (Self::NotIn(values), Some(value)) => !values.contains(value),
            (Self::Exists, value) => value.is_some(),
            (Self::DoesNotExist, value) => value.is_none(),
            (Self::Between(from, to), Some(value)) => {
                value.parse::<i64>().is_ok_and(|value| (*from..=*to).contains(&i128::from(value)))
            }
            (Self::NotIn(_), None) => true,
            (Self::In(_) | Self::Between(..), None) => false,
        }
    }
}

/// Everything that is asked of one label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KeyRequirement {
    conditions: Vec<Condition>,
    min_values: Option<u32>,
}

/// Requirements by label; several on one label must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelRequirements {
    by_key: BTreeMap<String, KeyRequirement>,
}

impl LabelRequirements {
    /// Reads requirements; label keys and values are normalized.
    ///
    /// # Errors
    /// The first requirement that makes no sense.
    pub fn parse(
        requirements: &[NodeSelectorRequirementWithMinValues],
        labels: &ProviderLabels,
    ) -> Result<Self, Error> {
        let mut by_key = BTreeMap::<String, KeyRequirement>::new();
        for requirement in requirements {
            let condition = Condition::parse(requirement, labels)?;
            let min_values = match requirement.min_values {
                None => None,
                Some(min_values) => Some(
                    u32::try_from(min_values)
                        .map_err(|_| Error::MinValuesOutOfRange { key: requirement.key.clone(), min_values })?,
                ),
            };
            let of_key = by_key.entry(labels.normalize(&requirement.key).to_owned()).or_default();
            of_key.conditions.push(condition);
            of_key.min_values = of_key.min_values.max(min_values);
        }
        Ok(Self { by_key })
    }

    /// Reads a NodeClaim's `spec.requirements`.
    ///
    /// # Errors
    /// The first requirement that makes no sense.
    pub fn of_claim(claim: &NodeClaim, labels: &ProviderLabels) -> Result<Self, Error> {
        Self::parse(&claim.spec.requirements, labels)
    }

    /// The labels something is asked of, by key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.by_key.keys().map(String::as_str)
    }

    /// The labels something is asked of, and how many values each must keep, by key.
    pub fn min_values(&self) -> impl Iterator<Item = (&str, u32)> {
        self.by_key.iter().filter_map(|(key, requirement)| Some((key.as_str(), requirement.min_values?)))
    }

    /// Whether a machine whose label `key` has this value (`None`: lacks the label) meets what is asked of that label.
    pub fn allow_value(&self, key: &str, value: Option<&str>) -> bool {
        self.by_key
            .get(key)
            .is_none_or(|requirement| requirement.conditions.iter().all(|condition| condition.holds(value)))
    }

    /// Whether a machine of that type from that offering can meet everything that is asked of labels the provider sets.
    pub fn allow(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        self.allow_offering(offering)
            && self.by_key.keys().all(|key| offering.label(key).is_some() || self.allow_type_label(instance_type, key))
    }

    /// [`Self::allow`] for all offerings of a type, with what they share decided once.
    pub fn allowed_offerings<'a>(&'a self, instance_type: &'a InstanceType) -> impl Iterator<Item = &'a Offering> {
        let (of_offerings, of_type): (Vec<_>, Vec<_>) = self
            .by_key
            .keys()
            .partition(|key| instance_type.offerings.iter().any(|offering| offering.label(key).is_some()));
        let is_possible = of_type.iter().all(|key| self.allow_type_label(instance_type, key));
        let offerings = if is_possible { instance_type.offerings.as_slice() } else { &[] };
        offerings.iter().filter(move |offering| {
            of_offerings.iter().all(|key| match offering.label(key) {
                Some(value) => self.allow_value(key, Some(value)),
                None => self.allow_type_label(instance_type, key),
            })
        })
    }

    /// Whether the labels that the offering decides meet what is asked of them.
    pub fn allow_offering(&self, offering: &Offering) -> bool {
        offering.all_labels().all(|(key, value)| self.allow_value(key, Some(value)))
    }

    /// Whether some value that the type leaves possible for a label meets what is asked of it.
    fn allow_type_label(&self, instance_type: &InstanceType, key: &str) -> bool {
        match instance_type.requirements.get(key) {
            None => true,
            Some(values) if values.is_empty() => self.allow_value(key, None),
            Some(values) => values.iter().any(|value| self.allow_value(key, Some(value))),
        }
    }

    /// The labels of a machine of that type launched from that offering. Where the type leaves a label open and the
    /// offering does not settle it, the first allowed value in byte order is taken.
    pub fn resolve_labels(&self, instance_type: &InstanceType, offering: &Offering) -> BTreeMap<String, String> {
        let mut labels: BTreeMap<String, String> = instance_type
            .requirements
            .iter()
            .filter_map(|(key, values)| {
                let value = values.iter().find(|value| self.allow_value(key, Some(value)))?;
                Some((key.clone(), value.clone()))
            })
            .collect();
        labels.extend(offering.all_labels().map(|(key, value)| (key.to_owned(), value.to_owned())));
        labels
    }
}

#[cfg(test)]
mod tests;
