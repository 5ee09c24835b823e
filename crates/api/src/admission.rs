//! Admission without an API server: what the CRDs accept, what they refuse and why.
//!
//! Offline commands read manifests that no API server has seen. This module does to an object of ours what a
//! kube-apiserver 1.36 does: it drops nulls and unknown fields, fills in defaults, checks the schema, the uniqueness of
//! lists, and the CEL rules, on updates against the old object, where what did not change is not held against it
//! (ratcheting). Errors name fields and read as the server's do.
//!
//! Left out: what needs a cluster (does the namespace exist, is the name taken, conflicts of versions), cost limits of
//! CEL, and schema keywords that our CRDs do not use; [`Admission::new`] refuses those by name.

mod lists;
mod metadata;
mod node;
mod pattern;
mod prepare;
mod rules;
mod structure;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceScale,
};
use serde_json::Value;

use self::node::Node;
use crate::json;

/// The compiled CRDs.
#[derive(Debug)]
pub struct Admission {
    kinds: BTreeMap<(String, String), Kind>,
    rules: rules::Evaluator,
}

#[derive(Debug)]
struct Kind {
    namespaced: bool,
    has_status: bool,
    scale: Option<CustomResourceSubresourceScale>,
    schema: Node,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// It is created. Its status is dropped where the kind has a status subresource.
    Create,
    /// It stands in a file or a dump as it stood in a cluster, and all of it counts, status included.
    Restore,
    /// It replaces `old`; a change of status is dropped where the kind has a status subresource.
    Update {
        /// The object before.
        old: &'a Value,
    },
    /// Its status replaces that of `old`.
    UpdateStatus {
        /// The object before.
        old: &'a Value,
    },
    /// It is an `autoscaling/v1` Scale, whose replicas replace those of `old`.
    UpdateScale {
        /// The object before.
        old: &'a Value,
    },
}

/// Why an object is refused, one field at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field, such as `spec.requirements[0].key`; empty for the object itself.
    pub path: String,
    /// What kind of mistake it is.
    pub kind: FieldErrorKind,
    /// What is wrong.
    pub message: String,
}

/// Kinds of mistakes, as the API server tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// A required field is missing.
    Required,
    /// A value is none of those allowed.
    NotSupported,
    /// A value breaks a rule.
    Invalid,
    /// A value has the wrong type.
    TypeInvalid,
    /// A text is too long.
    TooLong,
    /// A list or map has too many entries.
    TooMany,
    /// An entry is there twice.
    Duplicate,
}

impl FieldError {
    fn new(path: &str, kind: FieldErrorKind, message: impl Into<String>) -> Self {
        Self { path: path.trim_start_matches('.').to_owned(), kind, message: message.into() }
    }

    /// Whether CEL rules make no sense any more.
    fn blocks_rules(&self) -> bool {
        match self.kind {
            FieldErrorKind::Required
            | FieldErrorKind::NotSupported
            | FieldErrorKind::TypeInvalid
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany => true,
            FieldErrorKind::Invalid | FieldErrorKind::Duplicate => false,
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}

impl std::error::Error for FieldError {}

/// A CRD that this module cannot apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CustomResourceDefinition {crd}: {path}: {reason}")]
pub struct UnsupportedSchema {
    crd: String,
    path: String,
    reason: String,
}

impl Admission {
    /// Compiles the CRDs, as a rule [`crate::crd::crds`].
    pub fn new(crds: &[CustomResourceDefinition]) -> Result<Self, UnsupportedSchema> {
        let mut kinds = BTreeMap::new();
        for crd in crds {
            for version in crd.spec.versions.iter().filter(|version| version.served) {
                let api_version = format!("{}/{}", crd.spec.group, version.name);
                let Some(root) = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()) else {
                    continue;
                };
                let schema = Node::compile(root, "").map_err(|(path, reason)| UnsupportedSchema {
                    crd: crd.metadata.name.clone().unwrap_or_default(),
                    path,
                    reason,
                })?;
                let subresources = version.subresources.clone().unwrap_or_default();
                let kind = Kind {
                    namespaced: crd.spec.scope == "Namespaced",
                    has_status: subresources.status.is_some(),
                    scale: subresources.scale,
                    schema,
                };
                kinds.insert((api_version, crd.spec.names.kind.clone()), kind);
            }
        }
        Ok(Self { kinds, rules: rules::Evaluator::new() })
    }

    /// Whether there is a CRD for objects of this version and kind.
    pub fn serves(&self, api_version: &str, kind: &str) -> bool {
        self.kinds.contains_key(&(api_version.to_owned(), kind.to_owned()))
    }

    /// The object as it would be stored, or every reason why it would not be.
    ///
    /// For a subresource the result is the whole object, with what the subresource changed.
    pub fn admit(&self, object: &Value, operation: Operation<'_>) -> Result<Value, Vec<FieldError>> {
        let mut admitted = self.admit_as_written(object, operation)?;
        // `2.0` was taken for an integer, and is stored as one.
        json::write_whole_numbers_without_fraction(&mut admitted);
        Ok(admitted)
    }

    fn admit_as_written(&self, object: &Value, operation: Operation<'_>) -> Result<Value, Vec<FieldError>> {
        match operation {
            Operation::Create => {
                let kind = self.kind_of(object)?;
                let mut object = kind.read(object);
                if kind.has_status {
                    prepare::remove_status(&mut object);
                }
                self.check(kind, &object, None, true)?;
                // A reader of the object sees defaults where the status was.
                Ok(kind.read(&object))
            }
            Operation::Restore => {
                let kind = self.kind_of(object)?;
                let object = kind.read(object);
                self.check(kind, &object, None, true)?;
                Ok(object)
            }
            Operation::Update { old } => {
                let kind = self.kind_of(object)?;
                let (mut object, old) = (kind.read(object), kind.read(old));
                if kind.has_status {
                    prepare::take_status_from(&mut object, &old);
                }
                self.check(kind, &object, Some(&old), true)?;
                Ok(object)
            }
            Operation::UpdateStatus { old } => {
                let kind = self.kind_of(object)?;
                let (object, old) = (kind.read(object), kind.read(old));
                let mut next = old.clone();
                prepare::take_status_from(&mut next, &object);
                self.check(kind, &next, Some(&old), false)?;
                Ok(next)
            }
            Operation::UpdateScale { old } => self.admit_scale(object, old),
        }
    }

    fn admit_scale(&self, scale: &Value, old: &Value) -> Result<Value, Vec<FieldError>> {
        let kind = self.kind_of(old)?;
        let old = kind.read(old);
        let path = kind.scale.as_ref().map(|scale| scale.spec_replicas_path.as_str());
        let Some(path) = path else {
            return Err(vec![FieldError::new("", FieldErrorKind::Invalid, "the kind has no scale subresource")]);
        };
        let spec = scale.get("spec").filter(|spec| !spec.is_null());
        if spec.is_some_and(|spec| !spec.is_object()) {
            return Err(vec![FieldError::new("spec", FieldErrorKind::TypeInvalid, "Invalid value: must be an object")]);
        }
        let replicas = spec.and_then(|spec| spec.get("replicas")).filter(|replicas| !replicas.is_null());
        let replicas = replicas.cloned().unwrap_or(Value::from(0));
        structure::scale_replicas(&replicas, "spec.replicas").map_err(|error| vec![error])?;
        let mut next = old.clone();
        prepare::set(&mut next, path, replicas);
        self.check(kind, &next, Some(&old), true)?;
        Ok(next)
    }

    fn kind_of(&self, object: &Value) -> Result<&Kind, Vec<FieldError>> {
        let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let message = format!("no CRD serves apiVersion {api_version:?} and kind {kind:?}");
        self.kinds
            .get(&(api_version, kind))
            .ok_or_else(|| vec![FieldError::new("kind", FieldErrorKind::NotSupported, message)])
    }

    /// Checks an object that was read; `whole` is false where only its status is new.
    fn check(&self, kind: &Kind, object: &Value, old: Option<&Value>, whole: bool) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        if whole {
            metadata::check(object, &mut errors);
            structure::check(&kind.schema, object, old, &mut errors);
        } else {
            structure::check_field(&kind.schema, "status", object, old, &mut errors);
        }
        if let Some(scale) = &kind.scale {
            if whole {
                structure::check_scale_path(object, &scale.spec_replicas_path, &mut errors);
            }
            structure::check_scale_path(object, &scale.status_replicas_path, &mut errors);
        }
        lists::check(&kind.schema, object, old, &mut errors);
        if errors.iter().any(FieldError::blocks_rules) {
            errors.push(FieldError::new(
                "",
                FieldErrorKind::Invalid,
                "some validation rules were not checked because the object was invalid; correct the existing errors to \
                 complete validation",
            ));
        } else {
            self.rules.check(&kind.schema, object, old, &mut errors);
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl Kind {
    /// The object as the API server's decoder hands it on.
    fn read(&self, object: &Value) -> Value {
        let mut object = object.clone();
        prepare::prepare(&self.schema, &mut object);
        if !self.namespaced {
            prepare::remove_namespace(&mut object);
        }
        object
    }
}

#[cfg(test)]
mod tests;
