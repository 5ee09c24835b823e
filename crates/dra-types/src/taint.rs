//! Taints of devices, the tolerations of requests, and rules that add taints.

use std::sync::Arc;

use model::{Timestamp, Unsupported};
use serde_json::Value;

use super::json::{ApiVersion, FieldError, Reader, Unknown, api_version};
use super::meta::ObjectMeta;
use super::names::{DeviceName, DriverName, PoolName};
use super::slice::split_unknown;

/// What a taint does. Upstream ignores effects that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TaintEffect {
    /// Nothing; it informs.
    None,
    /// Keeps the device from being allocated.
    NoSchedule,
    /// Keeps the device from being allocated and ends pods that use it.
    NoExecute,
    /// An effect that is not known, or, in a toleration, empty for all.
    Other(Arc<str>),
}

impl From<&str> for TaintEffect {
    fn from(text: &str) -> Self {
        match text {
            "None" => Self::None,
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(other.into()),
        }
    }
}

impl TaintEffect {
    /// Kubernetes' spelling.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "None",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(text) => text,
        }
    }
}

/// A taint of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceTaint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value; empty if it has none.
    pub value: Arc<str>,
    /// What it does.
    pub effect: TaintEffect,
    /// Since when.
    pub time_added: Option<Timestamp>,
}

/// How a toleration's value is compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TolerationOperator {
    /// Values must be equal; the default.
    Equal,
    /// The value does not matter.
    Exists,
    /// Not known: tolerates nothing.
    Other(Arc<str>),
}

impl TolerationOperator {
    /// Kubernetes' spelling.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Equal => "Equal",
            Self::Exists => "Exists",
            Self::Other(text) => text,
        }
    }
}

/// A toleration of a request, or the copy of it in a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceToleration {
    /// The key; None tolerates all keys (with [`TolerationOperator::Exists`]).
    pub key: Option<Arc<str>>,
    /// How the value compares.
    pub operator: TolerationOperator,
    /// The value.
    pub value: Arc<str>,
    /// The effect; None tolerates all effects.
    pub effect: Option<TaintEffect>,
    /// How long a NoExecute taint is tolerated; None is forever.
    pub toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// Whether a taint is tolerated, by upstream's rule: an empty key or effect matches all.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let effect_matches = self.effect.as_ref().is_none_or(|effect| *effect == taint.effect);
        let key_matches = self.key.as_ref().is_none_or(|key| *key == taint.key);
        effect_matches
            && key_matches
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Other(_) => false,
            }
    }

    pub(crate) fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["effect", "key", "operator", "tolerationSeconds", "value"])?;
        let non_empty = |text: &&str| !text.is_empty();
        Ok(Self {
            key: reader.field("key").text()?.filter(non_empty).map(Arc::from),
            operator: match reader.field("operator").text()?.unwrap_or_default() {
                "" | "Equal" => TolerationOperator::Equal,
                "Exists" => TolerationOperator::Exists,
                other => TolerationOperator::Other(other.into()),
            },
            value: reader.field("value").string()?,
            effect: reader.field("effect").text()?.filter(non_empty).map(TaintEffect::from),
            toleration_seconds: reader.field("tolerationSeconds").integer()?,
        })
    }
}

impl DeviceTaint {
    pub(crate) fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["effect", "key", "timeAdded", "value"])?;
        Ok(Self {
            key: reader.field("key").string()?,
            value: reader.field("value").string()?,
            effect: reader.field("effect").string()?,
            time_added: reader.field("timeAdded").time()?,
        })
    }
}

/// Which devices a rule taints. None of a field matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceTaintSelector {
    /// Only devices of this driver.
    pub driver: Option<DriverName>,
    /// Only devices of this pool (of any driver unless that is given too).
    pub pool: Option<PoolName>,
    /// Only devices of this name.
    pub device: Option<DeviceName>,
}

impl DeviceTaintSelector {
    /// Whether a device is selected.
    pub fn matches(&self, driver: &DriverName, pool: &PoolName, device: &DeviceName) -> bool {
        self.driver.as_ref().is_none_or(|wanted| wanted == driver)
            && self.pool.as_ref().is_none_or(|wanted| wanted == pool)
            && self.device.as_ref().is_none_or(|wanted| wanted == device)
    }
}

/// A rule that adds a taint to devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTaintRule {
    /// Who it is.
    pub meta: ObjectMeta,
    /// Which devices; None selects nothing.
    pub selector: Option<DeviceTaintSelector>,
    /// The taint.
    pub taint: DeviceTaint,
    /// Fields that could change an answer and are not understood; a rule with any must not be applied silently.
    pub unsupported: Vec<Unsupported>,
    /// Other fields that are not known.
    pub unknown_fields: Vec<Arc<str>>,
}

impl DeviceTaintRule {
    /// Versions that are read.
    pub const VERSIONS: &'static [ApiVersion] = &[ApiVersion::V1, ApiVersion::V1Beta2, ApiVersion::V1Alpha3];

    /// Reads a rule. `deviceClassName` and CEL selectors of old v1alpha3 rules, which narrowed what is tainted, are
    /// [`Unsupported`].
    ///
    /// # Errors
    /// A value of the wrong type, another kind, or a version that is not served; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let root = Reader::root(object, &unknown);
        api_version(&root, "DeviceTaintRule", Self::VERSIONS)?;
        root.object(&["apiVersion", "kind", "metadata", "spec", "status"])?;
        let spec = root.field("spec");
        spec.object(&["deviceSelector", "taint"])?;
        let selector = spec.field("deviceSelector");
        selector.object(&["device", "driver", "pool"])?;
        let taint = spec.field("taint");
        if !taint.is_present() {
            return Err(taint.error(super::json::Reason::Required));
        }
        let (meta, taint) = (ObjectMeta::read(&root)?, DeviceTaint::read(&taint)?);
        let selector = if selector.is_present() {
            Some(DeviceTaintSelector {
                driver: selector.field("driver").optional_string()?,
                pool: selector.field("pool").optional_string()?,
                device: selector.field("device").optional_string()?,
            })
        } else {
            None
        };
        let (unsupported, unknown_fields) = split_unknown(unknown);
        Ok(Self { meta, selector, taint, unsupported, unknown_fields })
    }
}
