//! The parts of `metadata` that matter: identity, owner, and the annotations that tie a claim to a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NamespacedName, Timestamp, Uid};

use super::json::{FieldError, Reader};

const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

const OWNER_FIELDS: &[&str] = &["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];

/// Who an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Namespace and name; the namespace is empty for kinds of cluster scope.
    pub name: NamespacedName,
    /// `metadata.uid`; empty in manifests.
    pub uid: Uid,
    /// When it was created; None in manifests.
    pub created_at: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Its annotations.
    pub annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// Its owners, in order.
    pub owners: Vec<OwnerReference>,
}

/// An owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerReference {
    /// `apiVersion` of the owner.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Uid,
    /// Whether it is the managing controller.
    pub controller: bool,
}

impl ObjectMeta {
    pub(crate) fn read(root: &Reader<'_>) -> Result<Self, FieldError> {
        let meta = root.field("metadata");
        meta.object(FIELDS)?;
        let owner = |owner: &Reader<'_>| {
            owner.object(OWNER_FIELDS)?;
            Ok(OwnerReference {
                api_version: owner.field("apiVersion").string()?,
                kind: owner.field("kind").string()?,
                name: owner.field("name").string()?,
                uid: owner.field("uid").string()?,
                controller: owner.field("controller").boolean()?.unwrap_or(false),
            })
        };
        Ok(Self {
            name: NamespacedName { namespace: meta.field("namespace").string()?, name: meta.field("name").string()? },
            uid: meta.field("uid").string()?,
            created_at: meta.field("creationTimestamp").time()?,
            deletion_timestamp: meta.field("deletionTimestamp").time()?,
            labels: meta.field("labels").map(|value| value.string())?,
            annotations: meta.field("annotations").map(|value| value.string())?,
            owners: meta.field("ownerReferences").list(owner)?,
        })
    }
}

/// Whether it is a label of a DNS name, of whatever length.
pub(crate) fn is_label(name: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}
