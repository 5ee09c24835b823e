//! Reading JSON with the path at hand: every problem names its field, and no unknown field goes unnoticed.
//!
//! A [`Reader`] is a value with the way to it. Absent and `null` are the same, as in Go. Nothing recurses over the
//! input here; the depth is that of the types.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::{Quantity, Timestamp, quantity, time};
use serde_json::{Map, Value};

use super::spelling::did_you_mean;

/// Entries of one list or map; far beyond any limit of the API.
const MAX_ENTRIES: usize = 10_000;

/// Something is wrong with a field of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// The path of the field: `spec.devices[3].attributes[model].string`.
    pub field: Arc<str>,
    /// What is wrong.
    pub reason: Reason,
}

impl FieldError {
    pub(crate) fn new(field: impl fmt::Display, reason: Reason) -> Self {
        Self { field: field.to_string().into(), reason }
    }
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Another JSON type was found.
    #[error("must be {expected}, but is {found}")]
    WrongType {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// No such field is known.
    #[error("is not a known field")]
    Unknown,
    /// A value is needed.
    #[error("is required")]
    Required,
    /// A quantity that cannot be read or does not fit.
    #[error("{0}")]
    Quantity(quantity::Error),
    /// A timestamp that cannot be read.
    #[error("{0}")]
    Time(time::Error),
    /// No such version of this kind is read.
    #[error("{found:?} is not a version of {kind} that is served")]
    NotServed {
        /// The kind.
        kind: &'static str,
        /// The version found.
        found: String,
    },
    /// Another kind was expected.
    #[error("must be {expected}, but is {found:?}")]
    WrongKind {
        /// The kind expected.
        expected: &'static str,
        /// The kind found.
        found: String,
    },
    /// Too many entries.
    #[error("has {found} entries, at most {limit} are allowed")]
    TooMany {
        /// The most that are allowed.
        limit: usize,
        /// How many there are.
        found: usize,
    },
    /// A text that is too long.
    #[error("is longer than {limit} bytes")]
    TooLong {
        /// The most bytes allowed.
        limit: usize,
    },
    /// A key that is there twice.
    #[error("{0:?} appears more than once")]
    Duplicate(String),
    /// A rule about the value is broken.
    #[error("{0}")]
    Invalid(String),
}

/// A served version of the API group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApiVersion {
    /// `resource.k8s.io/v1alpha3`: DeviceTaintRule only.
    V1Alpha3,
    /// `resource.k8s.io/v1beta1`: devices under `basic`, flat requests.
    V1Beta1,
    /// `resource.k8s.io/v1beta2`.
    V1Beta2,
    /// `resource.k8s.io/v1`.
    V1,
}

impl ApiVersion {
    /// Reads `apiVersion`; None for a version or group that is not read.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "resource.k8s.io/v1" => Some(Self::V1),
            "resource.k8s.io/v1beta2" => Some(Self::V1Beta2),
            "resource.k8s.io/v1beta1" => Some(Self::V1Beta1),
            "resource.k8s.io/v1alpha3" => Some(Self::V1Alpha3),
            _ => None,
        }
    }
}

/// The unknown fields met so far.
#[derive(Default)]
pub(crate) struct Unknown(RefCell<Vec<Arc<str>>>);

impl Unknown {
    fn note(&self, path: impl fmt::Display) {
        self.0.borrow_mut().push(path.to_string().into());
    }

    /// The paths, sorted.
    pub(crate) fn into_paths(self) -> Vec<Arc<str>> {
        let mut paths = self.0.into_inner();
        paths.sort_unstable();
        paths
    }
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// A value, or its absence, and the path to it.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    value: Option<&'a Value>,
    parent: Option<&'a Reader<'a>>,
    segment: Segment<'a>,
    unknown: &'a Unknown,
}

impl fmt::Display for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.segment {
            Segment::Root => Ok(()),
            Segment::Field(name) if self.parent.is_some_and(|parent| matches!(parent.segment, Segment::Root)) => {
                f.write_str(name)
            }
            Segment::Field(name) => write!(f, ".{name}"),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}

type Read<T> = Result<T, FieldError>;

impl<'a> Reader<'a> {
    /// Starts at an object.
    pub(crate) fn root(value: &'a Value, unknown: &'a Unknown) -> Self {
        Self { value: Some(value), parent: None, segment: Segment::Root, unknown }
    }

    /// An error about this field.
    pub(crate) fn error(&self, reason: Reason) -> FieldError {
        FieldError::new(self, reason)
    }

    fn wrong_type(&self, expected: &'static str) -> FieldError {
        let found = match self.value {
            None | Some(Value::Null) => "absent",
            Some(Value::Bool(_)) => "a boolean",
            Some(Value::Number(_)) => "a number",
            Some(Value::String(_)) => "a string",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_)) => "an object",
        };
        self.error(Reason::WrongType { expected, found })
    }

    pub(crate) fn present(&self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    pub(crate) fn is_present(&self) -> bool {
        self.present().is_some()
    }

    fn entries(&self) -> Read<Option<&'a Map<String, Value>>> {
        match self.present() {
            None => Ok(None),
            Some(Value::Object(entries)) if entries.len() > MAX_ENTRIES => {
                Err(self.error(Reason::TooMany { limit: MAX_ENTRIES, found: entries.len() }))
            }
            Some(Value::Object(entries)) => Ok(Some(entries)),
            Some(_) => Err(self.wrong_type("an object")),
        }
    }

    /// Checks that this is an object, or absent, and notes each field that is not in `known`.
    pub(crate) fn object(&self, known: &[&str]) -> Read<()> {
        if let Some(entries) = self.entries()? {
            for name in entries.keys().filter(|name| !known.contains(&name.as_str())) {
                let field = Reader { value: None, parent: Some(self), segment: Segment::Field(name), ..*self };
                match did_you_mean(name, known.iter().copied()) {
                    Some(meant) => self.unknown.note(format_args!("{field} (did you mean {meant}?)")),
                    None => self.unknown.note(field),
                }
            }
        }
        Ok(())
    }

    /// An object breaks the rule that one of its fields must be set; names what was probably meant by those it has.
    pub(crate) fn unset(&self, known: &[&str], rule: &str) -> FieldError {
        let names = self.value.and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let meant = |name: &String| did_you_mean(name, known.iter().copied()).map(|meant| format!("{meant} by {name}"));
        let meant: Vec<String> = names.filter(|name| !known.contains(&name.as_str())).filter_map(meant).collect();
        self.error(Reason::Invalid(match meant.as_slice() {
            [] => rule.into(),
            meant => format!("{rule} (did you mean {}?)", meant.join(", ")),
        }))
    }

    /// A field of this object. Whether this is an object is checked by [`Self::object`].
    pub(crate) fn field<'p>(&'p self, name: &'p str) -> Reader<'p> {
        let value = self.value.and_then(Value::as_object).and_then(|entries| entries.get(name));
        Reader { value, parent: Some(self), segment: Segment::Field(name), unknown: self.unknown }
    }

    pub(crate) fn text(&self) -> Read<Option<&'a str>> {
        match self.present() {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong_type("a string")),
        }
    }

    /// A string; empty if absent, as in Go.
    pub(crate) fn string<T: From<&'a str>>(&self) -> Read<T> {
        Ok(T::from(self.text()?.unwrap_or_default()))
    }

    /// A string that may be absent; empty is present.
    pub(crate) fn optional_string<T: From<&'a str>>(&self) -> Read<Option<T>> {
        Ok(self.text()?.map(T::from))
    }

    pub(crate) fn boolean(&self) -> Read<Option<bool>> {
        match self.present() {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong_type("a boolean")),
        }
    }

    pub(crate) fn integer(&self) -> Read<Option<i64>> {
        match self.present() {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| self.wrong_type("an integer of 64 bits")),
        }
    }

    pub(crate) fn quantity(&self) -> Read<Option<Quantity>> {
        let text = match self.present() {
            None => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(self.wrong_type("a quantity")),
        };
        Quantity::parse(&text).map(Some).map_err(|error| self.error(Reason::Quantity(error)))
    }

    pub(crate) fn time(&self) -> Read<Option<Timestamp>> {
        let parse = |text| Timestamp::parse(text).map_err(|error| self.error(Reason::Time(error)));
        self.text()?.map(parse).transpose()
    }

    /// A list; empty if absent.
    pub(crate) fn list<T>(&self, mut read: impl FnMut(&Reader<'_>) -> Read<T>) -> Read<Vec<T>> {
        let items = match self.present() {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() > MAX_ENTRIES => {
                return Err(self.error(Reason::TooMany { limit: MAX_ENTRIES, found: items.len() }));
            }
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.wrong_type("a list")),
        };
        let item = |(index, value)| {
            read(&Reader { value: Some(value), parent: Some(self), segment: Segment::Index(index), ..*self })
        };
        items.iter().enumerate().map(item).collect()
    }

    /// A list of strings; empty if absent.
    pub(crate) fn strings<T: for<'s> From<&'s str>>(&self) -> Read<Vec<T>> {
        self.list(|item| item.string())
    }

    /// A map; empty if absent.
    pub(crate) fn map<K: Ord + for<'s> From<&'s str>, T>(
        &self,
        mut read: impl FnMut(&Reader<'_>) -> Read<T>,
    ) -> Read<BTreeMap<K, T>> {
        let Some(entries) = self.entries()? else { return Ok(BTreeMap::new()) };
        let mut map = BTreeMap::new();
        for (key, value) in entries {
            let reader = Reader { value: Some(value), parent: Some(self), segment: Segment::Key(key), ..*self };
            map.insert(K::from(key), read(&reader)?);
        }
        Ok(map)
    }
}

/// Checks kind and version of an object, and says which version it is.
pub(crate) fn api_version(
    root: &Reader<'_>,
    kind: &'static str,
    served: &[ApiVersion],
) -> Result<ApiVersion, FieldError> {
    let found = root.field("kind");
    let found_kind: String = found.string()?;
    if found_kind != kind {
        return Err(found.error(Reason::WrongKind { expected: kind, found: found_kind }));
    }
    let field = root.field("apiVersion");
    let text: String = field.string()?;
    ApiVersion::parse(&text)
        .filter(|version| served.contains(version))
        .ok_or_else(|| field.error(Reason::NotServed { kind, found: text }))
}
