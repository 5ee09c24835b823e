//! Where a kind is found, and how one of its objects is read.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use decode::api_resources::Resource;
use decode::devices::Admitted;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::super::ClusterStore;
use super::super::kinds::Kept;
use super::super::object::Stored;
use super::super::raw::RawObject;

pub(super) type Decode<T> = Box<dyn Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send>;
pub(super) type KeyOf<T> = Box<dyn Fn(&RawObject) -> <T as Kept>::Key + Send>;
pub(super) type Owns<T> = Box<dyn Fn(&<T as Kept>::Key) -> bool + Send>;

/// Where a kind is found, and how one of its objects is read.
pub(super) struct Source<T: Stored> {
    pub(super) resource: ApiResource,
    pub(super) fields: Option<&'static str>,
    pub(super) decode: Decode<T>,
    pub(super) key: KeyOf<T>,
    /// Which rows of the kind's table come from here.
    pub(super) owns: Owns<T>,
    /// How many lists the kind's table is filled by, of those not read yet.
    pub(super) pending: Arc<AtomicUsize>,
    /// Whether no other list fills the table.
    pub(super) is_alone: bool,
    /// Whether the API server may not serve the kind at all.
    pub(super) optional: bool,
    /// What else is noted of an object, before it is stored.
    pub(super) note: fn(&ClusterStore, &RawObject),
}

impl<T: Stored> Source<T> {
    pub(super) fn new(
        resource: ApiResource,
        decode: impl Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send + 'static,
        key: impl Fn(&RawObject) -> T::Key + Send + 'static,
    ) -> Self {
        Self {
            resource,
            fields: None,
            decode: Box::new(decode),
            key: Box::new(key),
            owns: Box::new(|_| true),
            pending: Arc::new(AtomicUsize::new(1)),
            is_alone: true,
            optional: false,
            note: |_, _| {},
        }
    }

    /// `apps/v1/daemonsets`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.resource.api_version, self.resource.plural)
    }
}

/// A kind of `resource.k8s.io`, which old API servers do not serve.
pub(super) fn device_source<T: Stored>(
    resource: ApiResource,
    decode: impl Fn(&Value, Admitted<'_>) -> Result<T, decode::ObjectError> + Send + 'static,
    key: impl Fn(&RawObject) -> T::Key + Send + 'static,
) -> Source<T> {
    let from_json = move |raw: &RawObject, _: &mut decode::Context<'_>| {
        decode(&raw.json, Admitted::ByServer).map_err(|error| error.to_string())
    };
    Source { optional: true, ..Source::new(resource, from_json, key) }
}

/// A kind in the version that is preferred.
pub(super) fn resource(of: &Resource) -> ApiResource {
    resource_in(of.versions.first().copied().unwrap_or_default(), of)
}

/// A kind in one of its versions.
pub(super) fn resource_in(version: &str, of: &Resource) -> ApiResource {
    api_resource(of.group, version, of.kind, of.plural)
}

pub(super) fn api_resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// A decoder of whole objects as one of raw objects.
pub(super) fn from_json<T>(
    decode: impl Fn(&Value, &mut decode::Context<'_>) -> Result<T, decode::ObjectError> + Send + 'static,
) -> impl Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send + 'static {
    move |raw, context| decode(&raw.json, context).map_err(|error| error.to_string())
}
