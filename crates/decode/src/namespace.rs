//! Namespaces: their labels decide whom a `namespaceSelector` means.

use std::sync::Arc;

use model::Labels;
use serde_json::Value;

use crate::context::Context;
use crate::error::ObjectError;
use crate::metadata::{Metadata, decode_object};

/// Reads a Namespace: its name and its labels.
///
/// # Errors
/// If a field has another type than the API gives it; the error names it.
pub fn namespace(object: &Value, context: &mut Context<'_>) -> Result<(Arc<str>, Labels), ObjectError> {
    decode_object(object, "Namespace", |root| {
        let metadata = root.field("metadata")?;
        let labels = metadata.field("labels")?.labels(context.interner)?;
        Ok((Metadata::decode(&metadata)?.name.name, labels))
    })
}
