//! One entry of a template's lists, written out.

use api::resource_slice_template as templates;
use dra_types::{CounterSet, Device};
use serde_json::{Map, Value, json};

use super::error::Reason;
use super::{INDEX, MAX_DEVICES};

/// What a DeviceTemplate has that a device has not.
const NOT_OF_A_DEVICE: [&str; 4] = ["replicas", "replicasFromLabel", "nodeSelector", "allNodes"];

/// How many replicas; `None` if it is one without number.
pub(super) fn replicas(
    replicas: Option<i64>,
    from_label: Option<&str>,
    label: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<usize>, Reason> {
    let count = |count: i64| usize::try_from(count).ok().filter(|count| *count <= MAX_DEVICES);
    match (replicas, from_label) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Reason::TwoCounts),
        (Some(replicas), None) => count(replicas).map(Some).ok_or(Reason::Count(replicas)),
        (None, Some(key)) => {
            let value = label(key).ok_or_else(|| Reason::LabelMissing(key.to_owned()))?;
            let number = value.parse().ok().and_then(count);
            number.map(Some).ok_or_else(|| Reason::LabelIsNoCount { key: key.to_owned(), value })
        }
    }
}

/// One device, as the allocator takes it, without node selection.
pub fn write(template: &templates::DeviceTemplate, index: Option<usize>) -> Result<Device, Reason> {
    let json = Entry::new(template).json(index)?;
    Device::from_json(&json).map_err(Reason::Field)
}

/// An entry of a list of devices as the API has it, without numbers and without node selection.
#[derive(Debug)]
pub(super) struct Entry {
    whole: Value,
    /// Its fields and attributes that depend on the number, with a name. All else is read once for all replicas.
    numbered: Value,
}

impl Entry {
    pub(super) fn new(template: &templates::DeviceTemplate) -> Self {
        // Plain data with string keys.
        let mut whole = serde_json::to_value(template).unwrap_or_default();
        if let Some(fields) = whole.as_object_mut() {
            fields.retain(|name, _| !NOT_OF_A_DEVICE.contains(&name.as_str()));
        }
        let mut numbered = Map::new();
        numbered.extend(whole.get("name").map(|name| ("name".to_owned(), name.clone())));
        let is_numbered = |value: &Value| value.to_string().contains(INDEX);
        let attributes = whole.get("attributes").and_then(Value::as_object).into_iter().flatten();
        let attributes: Map<String, Value> = attributes
            .filter(|(_, value)| is_numbered(value))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !attributes.is_empty() {
            numbered.insert("attributes".to_owned(), attributes.into());
        }
        if let Some(draws) = whole.get("consumesCounters").filter(|draws| is_numbered(draws)) {
            numbered.insert("consumesCounters".to_owned(), draws.clone());
        }
        Self { whole, numbered: numbered.into() }
    }

    /// A replica as the API has it.
    pub(super) fn json(&self, index: Option<usize>) -> Result<Value, Reason> {
        with_number(&self.whole, index)
    }

    /// A replica, given another one.
    pub(super) fn device(&self, other: Option<&Device>, index: Option<usize>) -> Result<Device, Reason> {
        let Some(other) = other else { return Device::from_json(&self.json(index)?).map_err(Reason::Field) };
        let own = Device::from_json(&with_number(&self.numbered, index)?).map_err(Reason::Field)?;
        let mut device = other.clone();
        device.name = own.name;
        device.attributes.extend(own.attributes);
        if !own.consumes_counters.is_empty() {
            device.consumes_counters = own.consumes_counters;
        }
        Ok(device)
    }
}

fn with_number(entry: &Value, index: Option<usize>) -> Result<Value, Reason> {
    let mut json = entry.clone();
    if let Some(fields) = json.as_object_mut() {
        number(fields.get_mut("name"), index);
        for attribute in
            fields.get_mut("attributes").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
        {
            number_attribute(attribute, index)?;
        }
        for draw in fields.get_mut("consumesCounters").and_then(Value::as_array_mut).into_iter().flatten() {
            number(draw.get_mut("counterSet"), index);
        }
    }
    Ok(json)
}

/// A set of counters, or one for each replica.
pub fn write_counter_set(
    template: &templates::CounterSet,
    label: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(CounterSet, Value)>, Reason> {
    let count = replicas(template.replicas, template.replicas_from_label.as_deref(), label)?;
    if count.is_some() != template.name.contains(INDEX) {
        return Err(if count.is_some() { Reason::NoIndex } else { Reason::IndexWithoutReplicas });
    }
    let written = (0..count.unwrap_or(1)).map(|index| {
        let mut json = json!({ "name": template.name, "counters": template.counters });
        number(json.get_mut("name"), count.map(|_| index));
        let set = CounterSet::from_json(&json).map_err(Reason::Field)?;
        Ok((set, json))
    });
    written.collect()
}

/// Replaces the mark in a text.
fn number(text: Option<&mut Value>, index: Option<usize>) {
    if let (Some(Value::String(text)), Some(index)) = (text, index)
        && text.contains(INDEX)
    {
        *text = text.replace(INDEX, &index.to_string());
    }
}

fn number_attribute(attribute: &mut Value, index: Option<usize>) -> Result<(), Reason> {
    number(attribute.get_mut("string"), index);
    for text in attribute.get_mut("strings").and_then(Value::as_array_mut).into_iter().flatten() {
        number(Some(text), index);
    }
    if let Some(value) = attribute.get_mut("int") {
        number_integer(value, index)?;
    }
    for value in attribute.get_mut("ints").and_then(Value::as_array_mut).into_iter().flatten() {
        number_integer(value, index)?;
    }
    Ok(())
}

/// Makes an integer of a text such as `{index}`.
fn number_integer(value: &mut Value, index: Option<usize>) -> Result<(), Reason> {
    number(Some(value), index);
    if let Value::String(text) = value {
        let integer: i64 = text.parse().map_err(|_| Reason::NoInteger(text.clone()))?;
        *value = json!(integer);
    }
    Ok(())
}
