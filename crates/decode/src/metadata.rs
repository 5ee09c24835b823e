//! `metadata`, and what wraps the reading of each object.

use std::sync::Arc;

use model::pod::Owner;
use model::{NamespacedName, Timestamp, Uid};
use serde_json::Value;

use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::limits;
use crate::manifests::object_ref;

/// Checks the size of an object, reads it, and puts its name on whatever goes wrong.
pub(crate) fn decode_object<T>(
    object: &Value,
    kind: &str,
    decode: impl FnOnce(&Field<'_, '_>) -> Result<T, Problem>,
) -> Result<T, ObjectError> {
    limits::check(object)
        .and_then(|()| decode(&Field::root(object)))
        .map_err(|problem| ObjectError { object: object_ref(object, kind), problem })
}

/// The name of an object of a cluster-wide kind, without which it is none.
///
/// # Errors
/// If there is no name, or the object is too large.
pub fn object_name(object: &Value, kind: &'static str) -> Result<String, ObjectError> {
    decode_object(object, kind, |root| Ok(root.field("metadata")?.field("name")?.required_str()?.to_owned()))
}

/// The parts of `metadata` that all kinds share.
pub(crate) struct Metadata {
    pub(crate) name: NamespacedName,
    pub(crate) uid: Uid,
    pub(crate) created_at: Timestamp,
    pub(crate) deletion_timestamp: Option<Timestamp>,
}

impl Metadata {
    pub(crate) fn decode(metadata: &Field<'_, '_>) -> Result<Self, Problem> {
        let name = metadata.field("name")?.required_str()?;
        Ok(Self {
            name: NamespacedName::new(metadata.field("namespace")?.str_or_empty()?, name),
            uid: Uid::from(metadata.field("uid")?.str_or_empty()?),
            created_at: metadata.field("creationTimestamp")?.timestamp()?.unwrap_or_default(),
            deletion_timestamp: metadata.field("deletionTimestamp")?.timestamp()?,
        })
    }
}

/// The managing controller, or else the first owner.
pub(crate) fn owner(metadata: &Field<'_, '_>) -> Result<Option<Owner>, Problem> {
    let mut first = None;
    for reference in metadata.field("ownerReferences")?.items()? {
        let owner = Owner {
            api_version: Arc::from(reference.field("apiVersion")?.str_or_empty()?),
            kind: Arc::from(reference.field("kind")?.str_or_empty()?),
            name: Arc::from(reference.field("name")?.str_or_empty()?),
            uid: Uid::from(reference.field("uid")?.str_or_empty()?),
            controller: reference.field("controller")?.bool()?,
        };
        if owner.controller {
            return Ok(Some(owner));
        }
        first.get_or_insert(owner);
    }
    Ok(first)
}
