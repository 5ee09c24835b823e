//! A NodePool's rules for voluntary disruption.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NillableDuration, open_enum::open_enum};

/// Default of `consolidateAfter`.
pub const CONSOLIDATE_AFTER: &str = "0s";
/// Default of `consolidationPolicy`.
pub const CONSOLIDATION_POLICY: &str = "WhenEmptyOrUnderutilized";
/// Default of a budget's `nodes`, and of the one budget where none is given.
pub const BUDGET_NODES: &str = "10%";

open_enum! {
    /// Which nodes consolidation may take.
    pub enum ConsolidationPolicy {
        /// Only nodes without pods that would have to move.
        WhenEmpty,
        /// Any node that can be removed or replaced by something cheaper.
        WhenEmptyOrUnderutilized,
        /// As WhenEmptyOrUnderutilized, but only where the saving outweighs the disruption.
        Balanced,
    }
}

open_enum! {
    /// Why a node is disrupted voluntarily.
    pub enum DisruptionReason {
        /// Its pods fit on less.
        Underutilized,
        /// It has no pods that would have to move.
        Empty,
        /// It is not what its NodePool or node class asks for any more.
        Drifted,
        /// It is broken and its provider says how to repair it.
        Unhealthy,
    }
}

/// When and how fast nodes may be disrupted voluntarily.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// How long after the last pod came to or left a node it may be consolidated; `Never` turns consolidation off.
    #[serde(default = "default_consolidate_after")]
    pub consolidate_after: NillableDuration,
    /// Which nodes may be consolidated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation_policy: Option<ConsolidationPolicy>,
    /// Limits on how many nodes may be disrupted at once; the strictest of those active counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Vec<Budget>>,
}

/// A limit on how many nodes may be disrupted at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// The reasons that the budget is for; all where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// How many of the NodePool's nodes: a number, or a percentage that is rounded up.
    #[serde(default = "default_nodes")]
    pub nodes: String,
    /// When the budget begins to be active, in cron's syntax and UTC; always active where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long the budget stays active each time; hours and minutes. Needed with a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<crate::DurationString>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self { consolidate_after: default_consolidate_after(), consolidation_policy: None, budgets: None }
    }
}

pub(crate) fn default_consolidate_after() -> NillableDuration {
    NillableDuration(CONSOLIDATE_AFTER.to_owned())
}

pub(crate) fn default_nodes() -> String {
    BUDGET_NODES.to_owned()
}
