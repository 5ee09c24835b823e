//! Requirements on node labels, as NodePools, NodeClaims and NodeOverlays write them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

open_enum! {
    /// How a requirement relates its key to its values.
    pub enum Operator {
        /// The label has one of the values.
        In,
        /// The label is absent or has none of the values.
        NotIn,
        /// The label is present.
        Exists,
        /// The label is absent.
        DoesNotExist,
        /// The label is an integer above the value.
        Gt,
        /// The label is an integer below the value.
        Lt,
        /// The label is an integer not below the value.
        Gte,
        /// The label is an integer not above the value.
        Lte,
    }
}

/// A requirement on one label of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// At least one value for In and NotIn; one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// A requirement on one label of a node, with the flexibility that must be left to the launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorRequirementWithMinValues {
    /// The label's key.
    pub key: String,
    /// How the label's value relates to `values`.
    pub operator: Operator,
    /// At least one value for In; one integer for Gt, Lt, Gte and Lte; none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Alpha. How many different values of this label the instance types must still have between them when a machine
    /// is launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i64>,
}
