//! What is wrong with an object: which one, in which field, and why.
//!
//! One error stops one object, never its neighbours.

use std::fmt;
use std::sync::Arc;

use model::requirement::ExpressionError;
use model::taint::UnknownName;
use model::{NamespacedName, quantity};

/// Which object is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind; empty if even that could not be read.
    pub kind: Arc<str>,
    /// Its namespace and name.
    pub name: NamespacedName,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &*self.kind };
        if self.name.name.is_empty() { write!(f, "{kind} without a name") } else { write!(f, "{kind} {}", self.name) }
    }
}

/// What those say of an object who depend on it, and not that it does not exist.
pub fn unusable(object: &dyn fmt::Display) -> String {
    format!("{object} is in the input, but cannot be used")
}

/// An object that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {problem}")]
pub struct ObjectError {
    /// The object.
    pub object: ObjectRef,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A field that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: `spec.containers[0].resources.requests[cpu]`; empty for the object as a whole.
    pub field: String,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { write!(f, "{}", self.reason) } else { write!(f, "{}: {}", self.field, self.reason) }
    }
}

/// Why a field cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// Required, but absent or empty.
    #[error("is missing")]
    Missing,
    /// Another JSON type.
    #[error("is {found}, not {expected}")]
    WrongType {
        /// What the field holds.
        expected: &'static str,
        /// What it holds here.
        found: &'static str,
    },
    /// A number outside its range.
    #[error("{value} is not between {min} and {max}")]
    OutOfRange {
        /// The number.
        value: String,
        /// The least that is allowed.
        min: i64,
        /// The most that is allowed.
        max: i64,
    },
    /// No such value in a fixed vocabulary.
    #[error("unknown {what} {text:?}")]
    Unknown {
        /// What is being named.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// No quantity, or one beyond what any machine has.
    #[error(transparent)]
    Quantity(#[from] quantity::Error),
    /// Less than nothing.
    #[error("quantity {0:?} is negative")]
    NegativeQuantity(String),
    /// A sum of quantities that no machine has.
    #[error("total of {0} is out of range")]
    TotalOutOfRange(String),
    /// An expression of a selector or requirement that means nothing.
    #[error(transparent)]
    Expression(Box<ExpressionError>),
    /// A point in time or a duration that cannot be read.
    #[error("{0:?} is not a time")]
    Time(String),
    /// More entries than any sensible object has.
    #[error("has {count} entries, more than {limit}")]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// More bytes than the API server would store.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// A line feed, an escape or the like.
    #[error("has a control character")]
    ControlCharacter,
    /// Nested deeper than any API type.
    #[error("is nested deeper than {limit} levels")]
    TooDeep {
        /// How deep it may be.
        limit: usize,
    },
    /// Two fields that contradict each other, or a value that the API server would refuse.
    #[error("{0}")]
    Invalid(String),
}

impl From<ExpressionError> for Reason {
    fn from(error: ExpressionError) -> Self {
        Self::Expression(Box::new(error))
    }
}

impl From<UnknownName> for Reason {
    fn from(unknown: UnknownName) -> Self {
        Self::Unknown { what: unknown.what, text: unknown.text }
    }
}
