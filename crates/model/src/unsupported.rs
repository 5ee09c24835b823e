//! Constructs that the planner knows by name and refuses.

use std::fmt;
use std::sync::Arc;

/// A construct of an object that would change the plan and that the planner cannot take into account. An object that
/// has one is refused and the construct is named; it is never ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unsupported {
    /// What it is, as a field path or a short phrase: `spec.topologySpreadConstraints`.
    pub construct: Arc<str>,
}

impl Unsupported {
    /// Names a construct.
    pub fn new(construct: impl Into<Arc<str>>) -> Self {
        Self { construct: construct.into() }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not supported", self.construct)
    }
}
