//! Attribute values as constraints compare them: numbers, equal if and only if the values are equal.
//!
//! A template's attribute may be bound to a *group*: unknown until launch, but equal within the group on one machine. A
//! group is a value, but nothing is known about how it compares with other values: for matchAttribute it only equals
//! itself, and for distinctAttribute it differs only from groups that were declared distinct.

use std::borrow::Cow;
use std::sync::Arc;

use model::IdVec;
use model::collections::NameMap;
use smallvec::{SmallVec, smallvec};

use super::device::{DeviceEntry, Shape};
use super::ids::{AttributeIndex, DeviceShape};
use dra_types::{AttributeValue, QualifiedName};

/// A value; equal values of equal kind have equal ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(u32);

/// The text for a value that no machine has published yet begins with this.
pub(crate) const UNKNOWN_VALUE: &str = "unknown until launch";

const GROUP: u32 = 1 << 31;
const DISTINCT: u32 = 1 << 30;

impl ValueId {
    /// The value that all devices of a group share.
    pub(crate) fn group(group: u32) -> Self {
        Self(GROUP | group)
    }

    fn is_group(self) -> bool {
        self.0 & GROUP != 0
    }

    /// Whether two values certainly differ.
    pub(crate) fn surely_differs(self, other: Self) -> bool {
        match (self.is_group(), other.is_group()) {
            (false, false) => self != other,
            (true, true) => self != other && self.0 & other.0 & DISTINCT != 0,
            (true, false) | (false, true) => false,
        }
    }
}

/// The number of a group; groups that were declared distinct differ from each other.
pub(crate) fn group_number(index: u32, distinct: bool) -> u32 {
    (index & (DISTINCT - 1)) | if distinct { DISTINCT } else { 0 }
}

/// The value of a device under an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Held {
    /// Nothing.
    Missing,
    /// A value of unknown kind, or a list without the gate for lists. It can be the first of a matching set, and
    /// matches nothing.
    Opaque,
    /// One value, or the set of a list's. Sorted.
    Values(SmallVec<[ValueId; 1]>),
    /// The attribute is derived and its expression fails: the pod fails when the search reads it.
    Failed,
}

/// The number of a group without what was declared of it.
pub(crate) fn group_index(group: u32) -> u32 {
    group & (DISTINCT - 1)
}

/// A group as a machine sees it. Groups of another machine are moved by `offset`, so that they differ from this
/// machine's.
fn group_seen(group: u32, offset: Option<u32>) -> u32 {
    offset.map_or(group, |offset| group_index(group_index(group) + offset))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    Bool(bool),
    Text(Arc<str>),
    Version(Arc<str>),
}

/// Gives numbers to values.
#[derive(Debug)]
pub(crate) struct ValueTable {
    lists: bool,
    ids: Arc<NameMap<Key, ValueId>>,
    /// Values that came after those in `ids`.
    more: NameMap<Key, ValueId>,
}

impl ValueTable {
    pub(crate) fn new(lists: bool) -> Self {
        Self { lists, ids: Arc::default(), more: NameMap::default() }
    }

    /// Fixes the numbers given so far, so that tables which continue them are cheap.
    pub(crate) fn fix(&mut self) {
        let more = std::mem::take(&mut self.more);
        Arc::make_mut(&mut self.ids).extend(more);
    }

    /// A table that knows the fixed numbers and gives further ones of its own.
    pub(crate) fn continued(&self) -> Self {
        Self { lists: self.lists, ids: Arc::clone(&self.ids), more: NameMap::default() }
    }

    fn id(&mut self, key: Key) -> ValueId {
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let next = self.ids.len() + self.more.len();
        let next = ValueId(u32::try_from(next).unwrap_or(u32::MAX) & (DISTINCT - 1));
        *self.more.entry(key).or_insert(next)
    }

    pub(crate) fn read(&mut self, value: &AttributeValue) -> Held {
        let list = |ids: SmallVec<[ValueId; 1]>| {
            let mut ids = ids;
            ids.sort_unstable();
            ids.dedup();
            if ids.is_empty() { Held::Opaque } else { Held::Values(ids) }
        };
        match value {
            AttributeValue::Int(value) => Held::Values(smallvec![self.id(Key::Int(*value))]),
            AttributeValue::Bool(value) => Held::Values(smallvec![self.id(Key::Bool(*value))]),
            AttributeValue::String(value) => Held::Values(smallvec![self.id(Key::Text(Arc::clone(value)))]),
            AttributeValue::Version(value) => Held::Values(smallvec![self.id(Key::Version(Arc::clone(value)))]),
            AttributeValue::Ints(_)
            | AttributeValue::Bools(_)
            | AttributeValue::Strings(_)
            | AttributeValue::Versions(_)
                if !self.lists =>
            {
                Held::Opaque
            }
            AttributeValue::Ints(values) => list(values.iter().map(|value| self.id(Key::Int(*value))).collect()),
            AttributeValue::Bools(values) => list(values.iter().map(|value| self.id(Key::Bool(*value))).collect()),
            AttributeValue::Strings(values) => {
                list(values.iter().map(|value| self.id(Key::Text(Arc::clone(value)))).collect())
            }
            AttributeValue::Versions(values) => {
                list(values.iter().map(|value| self.id(Key::Version(Arc::clone(value)))).collect())
            }
            // Bound attributes are handled by the caller.
            AttributeValue::Unset | AttributeValue::AfterLaunch => Held::Opaque,
        }
    }
}

/// What every device shape has under one attribute.
#[derive(Debug)]
pub(crate) struct AttributeColumn {
    pub(crate) name: QualifiedName,
    held: IdVec<DeviceShape, Held>,
}

impl AttributeColumn {
    pub(crate) fn new(name: QualifiedName, shapes: &IdVec<DeviceShape, Shape>, values: &mut ValueTable) -> Self {
        let held = shapes.map(|shape| match lookup(&name, shape) {
            Some(value) => values.read(value),
            None => Held::Missing,
        });
        Self { name, held }
    }
}

/// The value of a device under an attribute.
pub(crate) fn held<'c>(
    columns: &'c IdVec<AttributeIndex, AttributeColumn>,
    attribute: AttributeIndex,
    device: &DeviceEntry,
    group_offset: Option<u32>,
) -> Cow<'c, Held> {
    match device.bound.iter().find(|(bound, _)| *bound == attribute) {
        Some((_, group)) => Cow::Owned(Held::Values(smallvec![ValueId::group(group_seen(*group, group_offset))])),
        None => Cow::Borrowed(&columns[attribute].held[device.shape]),
    }
}

/// The value of a device under an attribute, as text for people.
pub(crate) fn text(
    name: &QualifiedName,
    shape: &Shape,
    device: &DeviceEntry,
    attribute: AttributeIndex,
    group_offset: Option<u32>,
) -> String {
    match device.bound.iter().find(|(bound, _)| *bound == attribute) {
        Some((_, group)) => {
            format!("{UNKNOWN_VALUE}, group {}", group_index(group_seen(*group, group_offset)))
        }
        None => lookup(name, shape).map_or_else(|| "none".to_owned(), ToString::to_string),
    }
}

/// Looks up the full name first, then the name without domain if the domain is the driver's.
fn lookup<'s>(name: &QualifiedName, shape: &'s Shape) -> Option<&'s AttributeValue> {
    let attributes = &shape.device().attributes;
    if let Some(value) = attributes.get(name) {
        return Some(value);
    }
    let domain = name.domain()?;
    if shape.driver != *domain {
        return None;
    }
    attributes.get(name.id())
}

/// Finds or adds an attribute that a constraint compares.
pub(crate) fn intern(names: &mut IdVec<AttributeIndex, QualifiedName>, name: &QualifiedName) -> AttributeIndex {
    let known = names.iter_enumerated().find(|(_, known)| *known == name).map(|(index, _)| index);
    known.unwrap_or_else(|| names.push(name.clone()))
}
