//! Taints and tolerations, by the rules of `k8s.io/api/core/v1` 1.36 with comparison operators enabled.

use std::fmt;
use std::str::FromStr;

use crate::intern::{Interner, KeyId, ValueId};

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods stay away.
    NoSchedule,
    /// New pods stay away if there is another place.
    PreferNoSchedule,
    /// New pods stay away and running ones leave.
    NoExecute,
}

/// How a toleration compares values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TolerationOperator {
    /// The values are the same. Also what an empty operator means.
    #[default]
    Equal,
    /// Any value.
    Exists,
    /// The taint's value is less than the toleration's, as integers.
    Lt,
    /// The taint's value is greater than the toleration's, as integers.
    Gt,
}

/// A text that is no effect or operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {text:?}")]
pub struct UnknownName {
    /// "taint effect" or "toleration operator".
    pub what: &'static str,
    /// The text.
    pub text: String,
}

/// A mark of a node that keeps pods away which do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taint {
    /// The key.
    pub key: KeyId,
    /// The value; [`ValueId::EMPTY`] if there is none.
    pub value: ValueId,
    /// The effect.
    pub effect: TaintEffect,
}

/// What a pod puts up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Toleration {
    /// The taint's key; `None` for any.
    pub key: Option<KeyId>,
    /// How values are compared.
    pub operator: TolerationOperator,
    /// The value to compare with; [`ValueId::EMPTY`] if there is none.
    pub value: ValueId,
    /// The taint's effect; `None` for any.
    pub effect: Option<TaintEffect>,
    /// How long a running pod stays under a NoExecute taint; `None` for ever. Does not matter for placement.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Tolerates everything.
    pub const EVERYTHING: Self = Self {
        key: None,
        operator: TolerationOperator::Exists,
        value: ValueId::EMPTY,
        effect: None,
        toleration_seconds: None,
    };

    /// Whether a pod with this toleration puts up with `taint`.
    pub fn tolerates(&self, taint: &Taint, interner: &Interner) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) || self.key.is_some_and(|key| key != taint.key) {
            return false;
        }
        let compare = |holds: fn(&i64, &i64) -> bool| match (
            canonical_int(taint.value, interner),
            canonical_int(self.value, interner),
        ) {
            (Some(taint), Some(toleration)) => holds(&taint, &toleration),
            _ => false,
        };
        match self.operator {
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Exists => true,
            TolerationOperator::Lt => compare(i64::lt),
            TolerationOperator::Gt => compare(i64::gt),
        }
    }
}

impl Taint {
    /// Whether one of the tolerations puts up with this taint.
    pub fn is_tolerated_by(&self, tolerations: &[Toleration], interner: &Interner) -> bool {
        tolerations.iter().any(|toleration| toleration.tolerates(self, interner))
    }

    /// Whether the taint keeps a pod away for good: PreferNoSchedule only asks.
    pub fn is_hard(&self) -> bool {
        match self.effect {
            TaintEffect::NoSchedule | TaintEffect::NoExecute => true,
            TaintEffect::PreferNoSchedule => false,
        }
    }

    /// Prints `key=value:effect`, or `key:effect` without a value.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            f.write_str(interner.key_name(self.key))?;
            if self.value != ValueId::EMPTY {
                write!(f, "={}", interner.value_name(self.value))?;
            }
            write!(f, ":{}", self.effect)
        })
    }
}

/// The first of `taints` that keeps a pod with these tolerations away for good (NoSchedule or NoExecute).
pub fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    interner: &Interner,
) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.is_hard() && !taint.is_tolerated_by(tolerations, interner))
}

/// The value if it is an integer written the one canonical way: no plus sign, no leading zero, no "-0".
fn canonical_int(value: ValueId, interner: &Interner) -> Option<i64> {
    let int = interner.value_int(value)?;
    let digits = interner.value_name(value);
    let magnitude = digits.strip_prefix('-').unwrap_or(digits);
    let canonical = digits == "0" || magnitude.starts_with(|first: char| matches!(first, '1'..='9'));
    canonical.then_some(int)
}

impl FromStr for TaintEffect {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "NoSchedule" => Ok(Self::NoSchedule),
            "PreferNoSchedule" => Ok(Self::PreferNoSchedule),
            "NoExecute" => Ok(Self::NoExecute),
            _ => Err(UnknownName { what: "taint effect", text: text.to_owned() }),
        }
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}

impl FromStr for TolerationOperator {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "" | "Equal" => Ok(Self::Equal),
            "Exists" => Ok(Self::Exists),
            "Lt" => Ok(Self::Lt),
            "Gt" => Ok(Self::Gt),
            _ => Err(UnknownName { what: "toleration operator", text: text.to_owned() }),
        }
    }
}

impl fmt::Display for TolerationOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Equal => "Equal",
            Self::Exists => "Exists",
            Self::Lt => "Lt",
            Self::Gt => "Gt",
        })
    }
}

#[cfg(test)]
mod tests;
