//! Kinds whose Rust type is `api`'s: JSON becomes the type, and nothing else is read into it.

use api::NodePool;
use serde_json::Value;

use crate::error::{ObjectError, Problem, Reason};
use crate::limits;
use crate::manifests::object_ref;

/// Reads a NodePool's JSON into its API type. Rules of the CRD are checked by `api`; here is only what keeps JSON from
/// being a NodePool at all.
pub fn node_pool_object(object: &Value) -> Result<NodePool, ObjectError> {
    typed(object, "NodePool")
}

/// Reads a NodeClaim's JSON into its API type.
pub fn node_claim_object(object: &Value) -> Result<api::NodeClaim, ObjectError> {
    typed(object, "NodeClaim")
}

/// Reads a NodeOverlay's JSON into its API type.
pub fn node_overlay_object(object: &Value) -> Result<api::NodeOverlay, ObjectError> {
    typed(object, "NodeOverlay")
}

/// Reads a CapacityBuffer's JSON into its API type.
pub fn capacity_buffer_object(object: &Value) -> Result<api::CapacityBuffer, ObjectError> {
    typed(object, "CapacityBuffer")
}

fn typed<T: serde::de::DeserializeOwned>(object: &Value, kind: &str) -> Result<T, ObjectError> {
    limits::check(object)
        .and_then(|()| {
            T::deserialize(object)
                .map_err(|error| Problem { field: String::new(), reason: Reason::Invalid(error.to_string()) })
        })
        .map_err(|problem| ObjectError { object: object_ref(object, kind), problem })
}
