//! When a Node counts as broken, and what to do then: a provider's repair policies, their validation and matching.
//!
//! The rules are Karpenter 1.15's. A policy names a condition type and status; its regular expression, searched for
//! anywhere in the condition's reason, narrows it. Exactly one policy of the whole set has no expression: it is the
//! fallback for every (type, status) pair of the set whose reason nothing else matches.

use std::collections::BTreeSet;
use std::fmt;

use model::DurationMs;
use regex::{Regex, RegexBuilder};
use thiserror::Error as ThisError;

/// The largest program a reason's regular expression may compile to, in bytes.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// The status of a Node's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows.
    Unknown,
}

impl ConditionStatus {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// The status of that spelling, if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|status| status.as_str() == text)
    }
}

/// What to do with a broken Node. Ordered by how much it disrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepairAction {
    /// Drain it, reboot the machine, let it come back.
    RebootNode,
    /// Put another machine in its place.
    ReplaceNode,
}

/// One rule for broken Nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairPolicy {
    /// The Node's condition.
    pub condition_type: String,
    /// The condition's status that means trouble.
    pub condition_status: ConditionStatus,
    /// Searched for in the condition's reason. Empty: the fallback.
    pub reason_regex: String,
    /// How long the trouble may last before anything is done.
    pub toleration: DurationMs,
    /// How long draining may take. `None`: what the NodeClaim says.
    pub termination_grace_period: Option<DurationMs>,
    /// 0 to 100; higher goes first.
    pub priority: i32,
    /// What to do.
    pub action: RepairAction,
}

/// Why a set of policies cannot be used. `index` is the policy's place in the set.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Invalid {
    /// A policy without a condition type.
    #[error("repair policy {index}: condition type is empty")]
    ConditionTypeEmpty {
        /// Its place.
        index: usize,
    },
    /// A negative duration.
    #[error("repair policy {index} ({condition_type}): {field} is negative")]
    NegativeDuration {
        /// Its place.
        index: usize,
        /// Its condition type.
        condition_type: String,
        /// Which duration.
        field: &'static str,
    },
    /// A priority outside 0 to 100.
    #[error("repair policy {index} ({condition_type}): priority {priority} is not between 0 and 100")]
    PriorityOutOfRange {
        /// Its place.
        index: usize,
        /// Its condition type.
        condition_type: String,
        /// The priority.
        priority: i32,
    },
    /// A regular expression that cannot be compiled.
    #[error("repair policy {index} ({condition_type}): reason regex {regex:?}: {message}")]
    Regex {
        /// Its place.
        index: usize,
        /// Its condition type.
        condition_type: String,
        /// The expression.
        regex: String,
        /// What is wrong with it.
        message: String,
    },
    /// Not exactly one policy without an expression.
    #[error("repair policies need exactly one fallback (an empty reason regex), got {count}")]
    FallbackCount {
        /// How many there are.
        count: usize,
    },
    /// A fallback that does not replace.
    #[error("repair policy {index} ({condition_type}): the fallback must replace the node")]
    FallbackMustReplace {
        /// Its place.
        index: usize,
        /// Its condition type.
        condition_type: String,
    },
}

/// Everything that is wrong with a set of policies. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPolicies(pub Vec<Invalid>);

impl fmt::Display for InvalidPolicies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            reason.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidPolicies {}

/// A valid set of policies, ready to be matched.
#[derive(Debug, Clone)]
pub struct RepairPolicies {
    /// With its expression; `None` for the fallback.
    policies: Vec<(RepairPolicy, Option<Regex>)>,
}

impl RepairPolicies {
    /// Checks the whole set and compiles it. An empty set is valid and matches nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it, not only the first.
    pub fn new(policies: &[RepairPolicy]) -> Result<Self, InvalidPolicies> {
        let mut invalid = Vec::new();
        let mut fallbacks = 0;
        let mut compiled = Vec::with_capacity(policies.len());
        for (index, policy) in policies.iter().enumerate() {
            invalid.extend(check(index, policy));
            if policy.reason_regex.is_empty() {
                fallbacks += 1;
                compiled.push((policy.clone(), None));
                continue;
            }
            match RegexBuilder::new(&policy.reason_regex).size_limit(REGEX_SIZE_LIMIT).build() {
                Ok(regex) => compiled.push((policy.clone(), Some(regex))),
                Err(error) => invalid.push(Invalid::Regex {
                    index,
                    condition_type: policy.condition_type.clone(),
                    regex: policy.reason_regex.clone(),
                    message: error.to_string(),
                }),
            }
        }
        if !policies.is_empty() && fallbacks != 1 {
            invalid.push(Invalid::FallbackCount { count: fallbacks });
        }
        if invalid.is_empty() { Ok(Self { policies: compiled }) } else { Err(InvalidPolicies(invalid)) }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether any policy names this type and status, whatever its expression.
    pub fn names(&self, condition_type: &str, status: ConditionStatus) -> bool {
        self.policies
            .iter()
            .any(|(policy, _)| policy.condition_type == condition_type && policy.condition_status == status)
    }

    /// How many different priorities of the set are below this one.
    pub fn rank(&self, priority: i32) -> usize {
        let below = self.policies.iter().map(|(policy, _)| policy.priority).filter(|other| *other < priority);
        below.collect::<BTreeSet<_>>().len()
    }

    /// The policies that a Node's condition calls for, in the set's order: those whose expression is found in the
    /// reason, or else the fallback if any policy names this type and status.
    pub fn matching(&self, condition_type: &str, status: ConditionStatus, reason: &str) -> Vec<&RepairPolicy> {
        let names_pair =
            |policy: &RepairPolicy| policy.condition_type == condition_type && policy.condition_status == status;
        let specific: Vec<_> = self
            .policies
            .iter()
            .filter(|(policy, regex)| names_pair(policy) && regex.as_ref().is_some_and(|regex| regex.is_match(reason)))
            .map(|(policy, _)| policy)
            .collect();
        if !specific.is_empty() || !self.names(condition_type, status) {
            return specific;
        }
        self.policies.iter().filter(|(_, regex)| regex.is_none()).map(|(policy, _)| policy).collect()
    }
}

/// What is wrong with one policy, its expression excepted.
fn check(index: usize, policy: &RepairPolicy) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    let condition_type = || policy.condition_type.clone();
    if policy.condition_type.is_empty() {
        invalid.push(Invalid::ConditionTypeEmpty { index });
    }
    let durations =
        [("toleration", Some(policy.toleration)), ("termination grace period", policy.termination_grace_period)];
    for (field, duration) in durations {
        if duration.is_some_and(|duration| duration < DurationMs::ZERO) {
            invalid.push(Invalid::NegativeDuration { index, condition_type: condition_type(), field });
        }
    }
    if !(0..=100).contains(&policy.priority) {
        invalid.push(Invalid::PriorityOutOfRange {
            index,
            condition_type: condition_type(),
            priority: policy.priority,
        });
    }
    if policy.reason_regex.is_empty() && policy.action != RepairAction::ReplaceNode {
        invalid.push(Invalid::FallbackMustReplace { index, condition_type: condition_type() });
    }
    invalid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(condition_type: &str, reason_regex: &str) -> RepairPolicy {
        RepairPolicy {
            condition_type: condition_type.to_owned(),
            condition_status: ConditionStatus::False,
            reason_regex: reason_regex.to_owned(),
            toleration: DurationMs::from_seconds(60),
            termination_grace_period: None,
            priority: 0,
            action: RepairAction::ReplaceNode,
        }
    }

    fn invalid(policies: &[RepairPolicy]) -> Vec<Invalid> {
        RepairPolicies::new(policies).unwrap_err().0
    }

    #[test]
    fn everything_wrong_with_a_set_is_told_at_once() {
        let broken = RepairPolicy {
            condition_type: String::new(),
            priority: 101,
            toleration: DurationMs::from_seconds(-1),
            termination_grace_period: Some(DurationMs::from_seconds(-1)),
            ..policy("", "(")
        };
        let found = invalid(&[broken, policy("Ready", ".*")]);
        assert_eq!(found.len(), 6, "{found:?}");
        assert!(matches!(found.last(), Some(Invalid::FallbackCount { count: 0 })));
    }

    #[test]
    fn exactly_one_policy_is_the_fallback_and_it_replaces() {
        assert_eq!(invalid(&[policy("A", ""), policy("B", "")]), [Invalid::FallbackCount { count: 2 }]);
        let reboots = RepairPolicy { action: RepairAction::RebootNode, ..policy("A", "") };
        assert_eq!(invalid(&[reboots]), [Invalid::FallbackMustReplace { index: 0, condition_type: "A".to_owned() }]);
        assert!(RepairPolicies::new(&[]).is_ok());
    }

    #[test]
    fn the_fallback_serves_every_pair_of_the_set_whose_reason_nothing_else_matches() {
        let set = RepairPolicies::new(&[policy("A", ""), policy("B", "Xid"), policy("B", "^Xid4")]).unwrap();
        let matching = |condition_type, status, reason| -> Vec<(String, String)> {
            set.matching(condition_type, status, reason)
                .into_iter()
                .map(|policy| (policy.condition_type.clone(), policy.reason_regex.clone()))
                .collect()
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(matching("B", ConditionStatus::False, "GpuXid4"), [pair("B", "Xid")]);
        assert_eq!(matching("B", ConditionStatus::False, "Xid48"), [pair("B", "Xid"), pair("B", "^Xid4")]);
        assert_eq!(matching("B", ConditionStatus::False, "other"), [pair("A", "")]);
        assert_eq!(matching("B", ConditionStatus::True, "Xid48"), []);
        assert_eq!(matching("C", ConditionStatus::False, "Xid48"), []);
        assert!(set.names("B", ConditionStatus::False) && !set.names("B", ConditionStatus::True));
    }

    #[test]
    fn a_rank_counts_the_different_priorities_below() {
        let of = |priority, regex| RepairPolicy { priority, ..policy("A", regex) };
        let set = RepairPolicies::new(&[of(5, ""), of(90, "x"), of(5, "y"), of(20, "z")]).unwrap();
        assert_eq!([5, 20, 90].map(|priority| set.rank(priority)), [0, 1, 2]);
    }
}
