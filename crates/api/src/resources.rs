//! Resource names, and quantities as the API writes them.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// Resource name to quantity.
pub type ResourceList = BTreeMap<String, QuantityString>;

/// A quantity as it was written; an integer became its decimal digits. Its meaning is `model`'s to find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct QuantityString(pub String);

/// What a quantity looks like; not every text that does is one that Kubernetes can parse.
pub const QUANTITY_PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

impl QuantityString {
    /// The quantity as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for QuantityString {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for QuantityString {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<k8s_openapi::apimachinery::pkg::api::resource::Quantity> for QuantityString {
    fn from(quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Self {
        Self(quantity.0)
    }
}

impl fmt::Display for QuantityString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for QuantityString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = QuantityString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a string or an integer")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<QuantityString, E> {
                Ok(QuantityString(text.to_owned()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<QuantityString, E> {
                Ok(QuantityString(text))
            }

            fn visit_i64<E: de::Error>(self, integer: i64) -> Result<QuantityString, E> {
                Ok(QuantityString(integer.to_string()))
            }

            fn visit_u64<E: de::Error>(self, integer: u64) -> Result<QuantityString, E> {
                Ok(QuantityString(integer.to_string()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for QuantityString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY_PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

/// `cpu`.
pub const CPU: &str = "cpu";
/// `memory`.
pub const MEMORY: &str = "memory";
/// `ephemeral-storage`.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// `pods`.
pub const PODS: &str = "pods";
/// In a NodePool's limits and status only: the number of its nodes.
pub const NODES: &str = "nodes";

/// Resources that Kubernetes itself knows; a NodeOverlay may not add to them.
pub const WELL_KNOWN: [&str; 4] = [CPU, MEMORY, EPHEMERAL_STORAGE, PODS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_kept_as_written_and_integers_become_digits() {
        let list: ResourceList = serde_json::from_str(r#"{"cpu": 10, "memory": "1.50Gi", "pods": -3}"#).unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"{"cpu":"10","memory":"1.50Gi","pods":"-3"}"#);
        assert!(serde_json::from_str::<ResourceList>(r#"{"cpu": 1.5}"#).is_err());
        assert!(serde_json::from_str::<ResourceList>(r#"{"cpu": true}"#).is_err());
    }
}
