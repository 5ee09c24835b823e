//! The reference to a provider's node class.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names the object that holds the cloud provider's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassReference {
    /// API group of the node class.
    pub group: String,
    /// Kind of the node class.
    pub kind: String,
    /// Name of the node class.
    pub name: String,
}
