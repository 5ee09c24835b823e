//! Attributes that requests derive from devices for constraints (KEP-6080): each is used by a constraint, and all
//! together are cheap enough to compute.

use super::{Compile, Problems};
use crate::claim::{Constraint, ConstraintKind, DerivedAttribute};
use crate::json::Reason;

const MAX_DERIVED_ATTRIBUTES: usize = 32;
/// What the expressions of a claim may cost together, and one of them alone: `DeviceClaimDerivedAttributeCELMaxCost`.
const MAX_COST: u64 = 1_000_000;

/// The check of one claim's requests.
pub(super) struct Check<'a> {
    constraints: &'a [Constraint],
    pub(super) compile: Compile<'a>,
    /// Of the expressions so far.
    cost: u64,
}

impl<'a> Check<'a> {
    pub(super) fn new(constraints: &'a [Constraint], compile: Compile<'a>) -> Self {
        Self { constraints, compile, cost: 0 }
    }

    /// Checks those of one request, or of an alternative under its full name.
    pub(super) fn request(
        &mut self,
        problems: &mut Problems,
        field: &str,
        request: &str,
        attributes: &[DerivedAttribute],
    ) {
        if !self.compile.derives_attributes() {
            return;
        }
        problems.at_most(field, attributes.len(), MAX_DERIVED_ATTRIBUTES);
        let names: Vec<String> = attributes.iter().map(|attribute| attribute.name.to_string()).collect();
        problems.unique(field, names.iter().map(String::as_str));
        for (index, (attribute, text)) in attributes.iter().zip(&names).enumerate() {
            let at = format!("{field}[{index}]");
            if text.is_empty() {
                problems.add(&format!("{at}.name"), Reason::Required);
            } else {
                problems.fully_qualified_name(&format!("{at}.name"), &attribute.name);
                if !self.is_used(attribute, request) {
                    problems.invalid(&format!("{at}.name"), "is not in a constraint that covers the request");
                }
            }
            self.expression(problems, &format!("{at}.expression"), &attribute.expression);
        }
    }

    fn expression(&mut self, problems: &mut Problems, field: &str, text: &str) {
        if text.is_empty() {
            problems.add(field, Reason::Required);
            return;
        }
        match self.compile.derived_attribute(text) {
            Ok(cost) => {
                self.cost = self.cost.saturating_add(cost);
                if cost > MAX_COST {
                    problems.invalid(field, "is too complex: it may cost more than an evaluation can");
                }
            }
            Err(error) => problems.invalid(field, &error),
        }
    }

    fn is_used(&self, attribute: &DerivedAttribute, request: &str) -> bool {
        let parent = request.split_once('/').map(|(parent, _)| parent);
        self.constraints.iter().any(|constraint| {
            let is_it = match &constraint.kind {
                ConstraintKind::MatchAttribute(name) | ConstraintKind::DistinctAttribute(name) => {
                    *name == attribute.name
                }
                ConstraintKind::Other => false,
            };
            let covers = |name: &str| name == request || Some(name) == parent;
            is_it && (constraint.requests.is_empty() || constraint.requests.iter().any(|name| covers(name.as_str())))
        })
    }

    /// Looks at all together.
    pub(super) fn finish(self, problems: &mut Problems, field: &str) {
        if self.cost > MAX_COST {
            problems.invalid(field, "is too complex: its derived attributes together may cost more than one can");
        }
    }
}
