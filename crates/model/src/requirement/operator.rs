//! Operators of requirement expressions, and what can be wrong with an expression.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How an expression restricts the value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the one given.
    Gt,
    /// The value is an integer less than the one given.
    Lt,
    /// The value is an integer, the one given or greater. Karpenter's own.
    Gte,
    /// The value is an integer, the one given or less. Karpenter's own.
    Lte,
}

/// A text that is not an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown operator {0:?}")]
pub struct UnknownOperator(pub String);

/// What is wrong with an expression's values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    /// In or NotIn without values.
    #[error("needs at least one value")]
    Missing,
    /// Exists or DoesNotExist with values.
    #[error("takes no value, got {count}")]
    Unexpected {
        /// How many there are.
        count: usize,
    },
    /// A comparison with none or several values.
    #[error("needs exactly one value, got {count}")]
    NotOne {
        /// How many there are.
        count: usize,
    },
    /// A comparison with something else than an integer that is at least zero. No label value is a negative integer,
    /// since it must begin with a letter or digit.
    #[error("needs a non-negative integer, got {value:?}")]
    NotAnInteger {
        /// The value.
        value: Arc<str>,
    },
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The operator is unknown, or not allowed here.
    #[error("key {key:?}: unknown operator {operator:?}")]
    UnknownOperator {
        /// The expression's key.
        key: String,
        /// Its operator.
        operator: String,
    },
    /// The values do not go with the operator.
    #[error("key {key:?}: operator {operator} {problem}")]
    Values {
        /// The expression's key.
        key: String,
        /// Its operator.
        operator: Operator,
        /// What is wrong.
        #[source]
        problem: ValuesError,
    },
}

impl Operator {
    /// Whether values are compared as integers: Gt, Lt, Gte, Lte.
    pub const fn is_numeric(self) -> bool {
        match self {
            Self::Gt | Self::Lt | Self::Gte | Self::Lte => true,
            Self::In | Self::NotIn | Self::Exists | Self::DoesNotExist => false,
        }
    }

    /// The operator in Kubernetes' spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }
}

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(text: &str) -> Result<Self, UnknownOperator> {
        Ok(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "Gte" => Self::Gte,
            "Lte" => Self::Lte,
            _ => return Err(UnknownOperator(text.to_owned())),
        })
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
