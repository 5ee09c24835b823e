//! Requirements on labels: what pods ask of nodes, what NodePools and instance types offer.
//!
//! A [`ValueSet`] is an exact set over "all label values, and the key being absent"; a [`Requirement`] puts one on a
//! key; [`Requirements`] is a conjunction with each key at most once. Because the sets are exact, intersecting never
//! loses anything, and "may this be placed there" and "do these labels match" follow kube-scheduler for every
//! combination of operators.
//!
//! Differs: `empty-requirement`, `bounds-and-exclusions`. Karpenter stores an empty intersection as DoesNotExist, an
//! absent key as Exists, and drops exclusions next to bounds when it writes a NodeClaim; here the three are distinct
//! and kept.

mod compatible;
mod operator;
mod set;
mod value_set;

pub use compatible::{Incompatible, IncompatibleKind};
pub use operator::{ExpressionError, Operator, UnknownOperator, ValuesError};
pub use set::{Iter, Requirement, Requirements};
pub use value_set::{Expression, ValueSet, Values};

#[cfg(test)]
mod tests;
