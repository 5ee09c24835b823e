//! What every object's metadata must look like.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use super::{FieldError, FieldErrorKind};
use crate::names::{is_dns_subdomain, label_value_error, qualified_name_error};

/// Sum of the lengths of all annotations' keys and values.
const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

/// Checks an object's metadata.
pub(super) fn check(object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = match object.get("metadata").map(ObjectMeta::deserialize) {
        Some(Ok(metadata)) => metadata,
        Some(Err(error)) => {
            let message = format!("Invalid value: {error}");
            return errors.push(FieldError::new("metadata", FieldErrorKind::TypeInvalid, message));
        }
        None => ObjectMeta::default(),
    };
    check_name(&metadata, errors);
    let mut invalid = |path: &str, value: &str, reason: String| {
        errors.push(FieldError::new(path, FieldErrorKind::Invalid, format!("Invalid value: {value:?}: {reason}")));
    };
    for (key, value) in metadata.labels.iter().flatten() {
        if let Some(reason) = qualified_name_error(key) {
            invalid("metadata.labels", key, reason);
        }
        if let Some(reason) = label_value_error(value) {
            invalid("metadata.labels", value, reason);
        }
    }
    for key in metadata.annotations.iter().flat_map(|annotations| annotations.keys()) {
        if let Some(reason) = qualified_name_error(&key.to_lowercase()) {
            invalid("metadata.annotations", key, reason);
        }
    }
    for finalizer in metadata.finalizers.iter().flatten() {
        if let Some(reason) = qualified_name_error(finalizer) {
            invalid("metadata.finalizers", finalizer, reason);
        }
    }
    let size: usize = metadata.annotations.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_ANNOTATIONS_SIZE {
        let message = format!("Too long: may not be more than {MAX_ANNOTATIONS_SIZE} bytes");
        errors.push(FieldError::new("metadata.annotations", FieldErrorKind::TooLong, message));
    }
}

fn check_name(metadata: &ObjectMeta, errors: &mut Vec<FieldError>) {
    let prefix = metadata.generate_name.as_deref().unwrap_or_default();
    // What the server appends makes a trailing dash harmless.
    if !prefix.is_empty() && !is_dns_subdomain(&format!("{}x", prefix)) {
        errors.push(not_a_subdomain("metadata.generateName", prefix));
    }
    match metadata.name.as_deref().unwrap_or_default() {
        "" if prefix.is_empty() => {
            let message = "Required value: name or generateName is required";
            errors.push(FieldError::new("metadata.name", FieldErrorKind::Required, message));
        }
        "" => {}
        name if !is_dns_subdomain(name) => errors.push(not_a_subdomain("metadata.name", name)),
        _ => {}
    }
}

fn not_a_subdomain(path: &str, name: &str) -> FieldError {
    let message = format!(
        "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
         or '.', must start and end with an alphanumeric character, and have no more than 253"
    );
    FieldError::new(path, FieldErrorKind::Invalid, message)
}
