//! A device: attributes, capacity, counters it draws, taints, and what it costs the node.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::{NodeName, Quantity};
use serde_json::Value;

use super::json::{ApiVersion, FieldError, Reader, Reason, Unknown};
use super::names::{CounterName, CounterSetName, DeviceName, QualifiedName};
use super::node_allocatable::NodeAllocatableResources;
use super::node_selector::NodeSelector;
use super::slice::NodeScope;
use super::taint::DeviceTaint;

/// A device of a slice or of a slice template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name inside of the pool.
    pub name: DeviceName,
    /// Its attributes. A key without domain belongs to the driver's.
    pub attributes: BTreeMap<QualifiedName, AttributeValue>,
    /// Its capacity. A key without domain belongs to the driver's.
    pub capacity: BTreeMap<QualifiedName, DeviceCapacity>,
    /// What it draws from the pool's counters while allocated.
    pub consumes_counters: Vec<CounterConsumption>,
    /// Where it can be used; only in slices of [`NodeScope::PerDevice`].
    pub node_scope: Option<NodeScope>,
    /// Its taints, those of rules not included.
    pub taints: Vec<DeviceTaint>,
    /// Whether an allocation pins the claim to the chosen node.
    pub binds_to_node: bool,
    /// Conditions that binding waits for.
    pub binding_conditions: Vec<Arc<str>>,
    /// Conditions that make binding fail.
    pub binding_failure_conditions: Vec<Arc<str>>,
    /// Whether it can be allocated more than once. None is false, except that CEL cannot tell.
    pub allow_multiple_allocations: bool,
    /// What it hands out of the node's own resources, or costs of them.
    pub node_allocatable: NodeAllocatableResources,
}

/// The value of an attribute.
///
/// Lists need the gate DRAListTypeAttributes; without it upstream cannot read such a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttributeValue {
    /// `int`
    Int(i64),
    /// `bool`
    Bool(bool),
    /// `string`
    String(Arc<str>),
    /// `version`, as written; not checked here.
    Version(Arc<str>),
    /// `ints`
    Ints(Arc<[i64]>),
    /// `bools`
    Bools(Arc<[bool]>),
    /// `strings`
    Strings(Arc<[Arc<str>]>),
    /// `versions`
    Versions(Arc<[Arc<str>]>),
    /// No value, or one of a kind that is not known. Selectors cannot be evaluated on such a device.
    Unset,
    /// The device will have a value that nobody knows before its machine is there: a template's attribute that is bound
    /// to a group. Selectors see that it is there, and fail where they read it.
    AfterLaunch,
}

/// As in CEL: texts quoted, lists in brackets.
impl fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T>(f: &mut fmt::Formatter<'_>, values: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
            write!(f, "[{}]", values.iter().map(show).collect::<Vec<_>>().join(", "))
        }
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(text) => write!(f, "\"{text}\""),
            Self::Version(text) => f.write_str(text),
            Self::Ints(values) => list(f, values, ToString::to_string),
            Self::Bools(values) => list(f, values, ToString::to_string),
            Self::Strings(values) => list(f, values, |text| format!("\"{text}\"")),
            Self::Versions(values) => list(f, values, ToString::to_string),
            Self::Unset => f.write_str("nothing that can be read"),
            Self::AfterLaunch => f.write_str("a value that is known after launch"),
        }
    }
}

/// An amount of a capacity that a device has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCapacity {
    /// How much there is.
    pub value: Quantity,
    /// How requests for a part of it are rounded and bounded.
    pub request_policy: Option<Box<RequestPolicy>>,
}

/// How requests for a part of a capacity are rounded and bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPolicy {
    /// What a request without amount gets.
    pub default: Option<Quantity>,
    /// The only amounts that can be given, ascending; empty for none.
    pub valid_values: Vec<Quantity>,
    /// A range of amounts.
    pub valid_range: Option<CapacityRange>,
}

/// A range of amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityRange {
    /// The least; required by the API.
    pub min: Option<Quantity>,
    /// The most; None for the capacity's value.
    pub max: Option<Quantity>,
    /// Amounts are `min` plus a multiple of it.
    pub step: Option<Quantity>,
}

/// What a device draws from one counter set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterConsumption {
    /// The set.
    pub counter_set: CounterSetName,
    /// How much of each counter.
    pub counters: BTreeMap<CounterName, Quantity>,
    /// KEP-5963: devices drawing from one set must have a group in common.
    pub compatibility_groups: Vec<Arc<str>>,
}

const DEVICE_FIELDS: &[&str] = &[
    "allNodes",
    "allowMultipleAllocations",
    "attributes",
    "bindingConditions",
    "bindingFailureConditions",
    "bindsToNode",
    "capacity",
    "consumesCounters",
    "name",
    "nodeAllocatableResourceMappings",
    "nodeAllocatableResources",
    "nodeName",
    "nodeSelector",
    "taints",
];

impl Device {
    /// Reads a device by itself, in the shape of v1: of a slice template, or of a test.
    ///
    /// # Errors
    /// A value of the wrong type or an unknown field; the error names the field.
    pub fn from_json(object: &Value) -> Result<Self, FieldError> {
        let unknown = Unknown::default();
        let device = Self::read(&Reader::root(object, &unknown), ApiVersion::V1)?;
        match unknown.into_paths().into_iter().next() {
            Some(field) => Err(FieldError { field, reason: Reason::Unknown }),
            None => Ok(device),
        }
    }

    pub(crate) fn read(reader: &Reader<'_>, version: ApiVersion) -> Result<Self, FieldError> {
        if version == ApiVersion::V1Beta1 {
            reader.object(&["basic", "name"])?;
            let basic = reader.field("basic");
            let known: Vec<&str> = DEVICE_FIELDS.iter().copied().filter(|name| *name != "name").collect();
            basic.object(&known)?;
            Self::read_fields(reader.field("name").string()?, &basic)
        } else {
            reader.object(DEVICE_FIELDS)?;
            Self::read_fields(reader.field("name").string()?, reader)
        }
    }

    fn read_fields(name: DeviceName, reader: &Reader<'_>) -> Result<Self, FieldError> {
        let capacity = reader.field("capacity").map(DeviceCapacity::read)?;
        Ok(Self {
            name,
            attributes: reader.field("attributes").map(AttributeValue::read)?,
            node_allocatable: NodeAllocatableResources::read(reader, &capacity)?,
            capacity,
            consumes_counters: reader.field("consumesCounters").list(CounterConsumption::read)?,
            node_scope: Self::read_node_scope(reader)?,
            taints: reader.field("taints").list(DeviceTaint::read)?,
            binds_to_node: reader.field("bindsToNode").boolean()?.unwrap_or(false),
            binding_conditions: reader.field("bindingConditions").strings()?,
            binding_failure_conditions: reader.field("bindingFailureConditions").strings()?,
            allow_multiple_allocations: reader.field("allowMultipleAllocations").boolean()?.unwrap_or(false),
        })
    }

    fn read_node_scope(reader: &Reader<'_>) -> Result<Option<NodeScope>, FieldError> {
        let node_name = reader.field("nodeName").text()?.filter(|name| !name.is_empty());
        let selector = NodeSelector::read(&reader.field("nodeSelector"))?;
        let all_nodes = reader.field("allNodes").boolean()?.unwrap_or(false);
        NodeScope::exactly_one(reader, node_name.map(NodeName::from), selector, all_nodes, false)
    }
}

impl AttributeValue {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["bool", "bools", "int", "ints", "string", "strings", "version", "versions"])?;
        let list = |name: &'static str| if reader.field(name).is_present() { Some(name) } else { None };
        let mut values = Vec::new();
        if let Some(name) = list("ints") {
            let read = |item: &Reader<'_>| {
                item.integer()?.ok_or_else(|| item.error(Reason::WrongType { expected: "an integer", found: "absent" }))
            };
            values.push(Self::Ints(reader.field(name).list(read)?.into()));
        }
        if let Some(name) = list("bools") {
            values.push(Self::Bools(reader.field(name).list(|item| Ok(item.boolean()?.unwrap_or(false)))?.into()));
        }
        if let Some(name) = list("strings") {
            values.push(Self::Strings(reader.field(name).strings()?.into()));
        }
        if let Some(name) = list("versions") {
            values.push(Self::Versions(reader.field(name).strings()?.into()));
        }
        values.extend(reader.field("int").integer()?.map(Self::Int));
        values.extend(reader.field("bool").boolean()?.map(Self::Bool));
        values.extend(reader.field("string").text()?.map(|text| Self::String(text.into())));
        values.extend(reader.field("version").text()?.map(|text| Self::Version(text.into())));
        let mut values = values.into_iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(Self::Unset),
            (Some(value), None) => Ok(value),
            (Some(_), Some(_)) => Err(reader.error(Reason::Invalid("exactly one value must be specified".to_owned()))),
        }
    }
}

impl DeviceCapacity {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["requestPolicy", "value"])?;
        let policy = reader.field("requestPolicy");
        Ok(Self {
            value: reader.field("value").quantity()?.unwrap_or_default(),
            request_policy: if policy.is_present() { Some(Box::new(RequestPolicy::read(&policy)?)) } else { None },
        })
    }
}

impl RequestPolicy {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["default", "validRange", "validValues"])?;
        let range = reader.field("validRange");
        range.object(&["max", "min", "step"])?;
        Ok(Self {
            default: reader.field("default").quantity()?,
            valid_values: reader.field("validValues").list(|item| Ok(item.quantity()?.unwrap_or_default()))?,
            valid_range: if range.is_present() {
                Some(CapacityRange {
                    min: range.field("min").quantity()?,
                    max: range.field("max").quantity()?,
                    step: range.field("step").quantity()?,
                })
            } else {
                None
            },
        })
    }
}

pub(super) fn read_counters(reader: &Reader<'_>) -> Result<BTreeMap<CounterName, Quantity>, FieldError> {
    reader.map(|counter| {
        counter.object(&["value"])?;
        Ok(counter.field("value").quantity()?.unwrap_or_default())
    })
}

impl CounterConsumption {
    fn read(reader: &Reader<'_>) -> Result<Self, FieldError> {
        reader.object(&["compatibilityGroups", "counterSet", "counters"])?;
        Ok(Self {
            counter_set: reader.field("counterSet").string()?,
            counters: read_counters(&reader.field("counters"))?,
            compatibility_groups: reader.field("compatibilityGroups").strings()?,
        })
    }
}
