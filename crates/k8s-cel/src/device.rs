//! A device as expressions see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::EvalError;
use super::functions::amount::Amount;
use super::value::{Map, Value};
use dra_types::{AttributeValue, Compat, Device, DriverName, Gate, KubernetesMinor, QualifiedName, SemanticVersion};

/// What selectors can see of a device, built once and shared by all evaluations.
///
/// Two devices with equal driver, attributes, capacity and `allowMultipleAllocations` give equal verdicts.
#[derive(Debug, Clone)]
pub struct DeviceView {
    /// The value of `device`, or why there is none: then every selector fails with it.
    pub(crate) device: Result<Value, EvalError>,
}

impl DeviceView {
    /// Makes the view that a release and its gates give.
    ///
    /// An attribute without a value that can be read does not fail here but in every evaluation, as upstream does.
    pub fn new(driver: &DriverName, device: &Device, compat: &Compat) -> Self {
        Self { device: view(driver, device, reads_lists(compat)) }
    }
}

/// From 1.37 on lists are read whether the gate is on or not.
pub(crate) fn reads_lists(compat: &Compat) -> bool {
    compat.is_on(Gate::ListTypeAttributes) || compat.kubernetes >= KubernetesMinor::V1_37
}

fn view(driver: &DriverName, device: &Device, lists: bool) -> Result<Value, EvalError> {
    let mut attributes = Domains::default();
    for (name, value) in &device.attributes {
        attributes.insert(name, driver, attribute(name, value, lists)?);
    }
    let mut capacity = Domains::default();
    for (name, of) in &device.capacity {
        capacity.insert(name, driver, Value::Quantity(Amount::published(of.value)));
    }
    let fields = [
        ("driver", Value::string(driver.as_str())),
        ("allowMultipleAllocations", Value::Bool(device.allow_multiple_allocations)),
        ("attributes", attributes.into_value()),
        ("capacity", capacity.into_value()),
    ];
    let fields = fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect();
    Ok(Value::Map(Arc::new(Map::text(fields))))
}

/// Values by domain and id.
#[derive(Default)]
struct Domains(BTreeMap<Arc<str>, BTreeMap<Arc<str>, Value>>);

impl Domains {
    fn insert(&mut self, name: &QualifiedName, driver: &DriverName, value: Value) {
        let (domain, id) = name.resolve(driver);
        self.0.entry(domain.into()).or_default().insert(id.into(), value);
    }

    fn into_value(self) -> Value {
        let inner = |(domain, ids)| (domain, Value::Map(Arc::new(Map::text(ids))));
        let entries = self.0.into_iter().map(inner).collect();
        Value::Map(Arc::new(Map::Text { entries, empty_by_default: true }))
    }
}

fn version(text: &str) -> Result<Value, String> {
    match SemanticVersion::parse(text) {
        Ok(version) => Ok(Value::Semver(Arc::new(version))),
        Err(error) => Err(format!("parse semantic version: {error}")),
    }
}

/// The value of an attribute.
pub(crate) fn attribute(name: &QualifiedName, value: &AttributeValue, lists: bool) -> Result<Value, EvalError> {
    read(value, lists).map_err(|reason| EvalError::Attribute { attribute: name.as_str().into(), reason: reason.into() })
}

fn read(value: &AttributeValue, lists: bool) -> Result<Value, String> {
    let list = |values: Vec<Value>| Ok(Value::list(values));
    match value {
        AttributeValue::Int(value) => Ok(Value::Int(*value)),
        AttributeValue::Bool(value) => Ok(Value::Bool(*value)),
        AttributeValue::String(text) => Ok(Value::String(text.clone())),
        AttributeValue::AfterLaunch => Ok(Value::AfterLaunch),
        AttributeValue::Version(text) => version(text),
        AttributeValue::Ints(values) if lists => list(values.iter().map(|value| Value::Int(*value)).collect()),
        AttributeValue::Bools(values) if lists => list(values.iter().map(|value| Value::Bool(*value)).collect()),
        AttributeValue::Strings(values) if lists => list(values.iter().cloned().map(Value::String).collect()),
        AttributeValue::Versions(values) if lists => {
            values.iter().map(|text| version(text)).collect::<Result<_, _>>().map(Value::list)
        }
        AttributeValue::Ints(_)
        | AttributeValue::Bools(_)
        | AttributeValue::Strings(_)
        | AttributeValue::Versions(_)
        | AttributeValue::Unset => Err("unsupported attribute value".to_owned()),
    }
}
