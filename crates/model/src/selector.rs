//! Label selectors (`metav1.LabelSelector`).

use std::fmt;

use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;
use crate::requirement::{ExpressionError, Operator, Requirement, Requirements, ValueSet};

/// Which objects are meant, by their labels.
///
/// An absent selector selects nothing, an empty one everything; both are in the type, so nobody has to remember which
/// is which.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum LabelSelector {
    /// The field was absent.
    #[default]
    Nothing,
    /// All of these must hold; without any, every object matches.
    Matching(Requirements),
}

impl LabelSelector {
    /// Matches every object.
    pub const EVERYTHING: Self = Self::Matching(Requirements::new());

    /// Builds a selector that is present: `match_labels` and `match_expressions` must all hold.
    ///
    /// Operators other than In, NotIn, Exists and DoesNotExist are errors.
    pub fn new<'a>(
        match_labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        match_expressions: impl IntoIterator<Item = (&'a str, Operator, &'a [String])>,
        interner: &mut Interner,
    ) -> Result<Self, ExpressionError> {
        let mut requirements = Requirements::new();
        for (key, value) in match_labels {
            let (key, value) = (interner.key(key), interner.value(value));
            requirements.insert_intersect(Requirement::new(key, ValueSet::one(value)), interner);
        }
        for (key, operator, values) in match_expressions {
            if operator.is_numeric() {
                return Err(ExpressionError::UnknownOperator { key: key.to_owned(), operator: operator.to_string() });
            }
            let requirement = Requirement::parse(key, operator, values.iter().map(String::as_str), interner)?;
            requirements.insert_intersect(requirement, interner);
        }
        Ok(Self::Matching(requirements))
    }

    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Labels, interner: &Interner) -> bool {
        match self {
            Self::Nothing => false,
            Self::Matching(requirements) => requirements.matches_labels(labels, interner),
        }
    }

    /// Prints which objects are meant, as the end of a sentence about `what`: `pods with app In [web]`, `all pods`, `no
    /// pods`.
    pub fn display<'a>(&'a self, what: &'a str, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| match self {
            Self::Nothing => write!(f, "no {what}"),
            Self::Matching(requirements) if requirements.is_empty() => write!(f, "all {what}"),
            Self::Matching(requirements) => write!(f, "{what} with {}", requirements.display(interner)),
        })
    }

    /// Narrows a selector that is present to objects with `value` at `key`, as `matchLabelKeys` does.
    pub fn and_label(&mut self, key: KeyId, value: ValueId, interner: &Interner) {
        match self {
            Self::Nothing => {}
            Self::Matching(requirements) => {
                requirements.insert_intersect(Requirement::new(key, ValueSet::one(value)), interner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
