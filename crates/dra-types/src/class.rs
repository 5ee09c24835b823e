//! DeviceClasses.

use std::sync::Arc;

use model::Unsupported;
use serde_json::Value;

use super::claim::{Config, DeviceSelector};
use super::json::{ApiVersion, FieldError, Reader, Unknown, api_version};
use super::meta::ObjectMeta;
use super::slice::split_unknown;

/// A DeviceClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceClass {
    /// Who it is; `meta.name.name` is the class name.
    pub meta: ObjectMeta,
    /// All must match. None at all: every device of every driver matches.
    pub selectors: Vec<DeviceSelector>,
    /// Copied into results.
    pub config: Vec<Config>,
    /// The extended resource that the class serves, besides the implicit name.
    pub extended_resource_name: Option<Arc<str>>,
    /// Fields that could change an answer and are not understood; requests for the class must be refused.
    pub unsupported: Vec<Unsupported>,
    /// Other fields that are not known.
    pub unknown_fields: Vec<Arc<str>>,
}

impl DeviceClass {
    /// Versions that are read.
    pub const VERSIONS: &'static [ApiVersion] = &[ApiVersion::V1, ApiVersion::V1Beta2, ApiVersion::V1Beta1];

    /// Every class also serves the extended resource of this prefix and its name.
    pub const EXTENDED_RESOURCE_PREFIX: &'static str = "deviceclass.resource.kubernetes.io/";

    /// Reads a class of any served version.
    ///
    /// # Errors
    /// A value of the wrong type, another kind, or a version that is not served; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        api_version(&root, "DeviceClass", Self::VERSIONS)?;
        root.object(&["apiVersion", "kind", "metadata", "spec"])?;
        let spec = root.field("spec");
        spec.object(&["config", "extendedResourceName", "selectors"])?;
        let config = |config: &Reader<'_>| {
            config.object(&["opaque"])?;
            Config::read(config)
        };
        let mut class = Self {
            meta: ObjectMeta::read(&root)?,
            selectors: spec.field("selectors").list(DeviceSelector::read)?,
            config: spec.field("config").list(config)?,
            extended_resource_name: spec.field("extendedResourceName").optional_string()?,
            unsupported: Vec::new(),
            unknown_fields: Vec::new(),
        };
        (class.unsupported, class.unknown_fields) = split_unknown(unknown);
        Ok(class)
    }
}
