//! Typed access to raw JSON that knows where it is.
//!
//! Objects are read as JSON and not through generated structs: a struct drops what it does not know, and what it does
//! not know may change an answer. A [`Field`] is a value and the path to it; the path is a list of borrowed steps, and
//! becomes text only when there is something to complain about. `null` counts as absent, as in Go.

use std::fmt::Write as _;
use std::str::FromStr;

use model::taint::UnknownName;
use model::{Interner, Labels, Quantity, Timestamp};
use serde_json::Value;

use crate::error::{Problem, Reason};
use crate::limits::MAX_ENTRIES;

/// A place in an object, and what is there.
#[derive(Clone, Copy)]
pub(crate) struct Field<'v, 'p> {
    value: Option<&'v Value>,
    step: Step<'p>,
    parent: Option<&'p Field<'v, 'p>>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Key(&'p str),
    /// A key that is data, not a field of the API: a label, a resource.
    Entry(&'p str),
    Index(usize),
}

impl<'v> Field<'v, '_> {
    /// The object itself.
    pub(crate) fn root(object: &'v Value) -> Self {
        Field { value: Some(object), step: Step::Root, parent: None }
    }

    /// The value, unless absent.
    pub(crate) fn value(&self) -> Option<&'v Value> {
        self.value.filter(|value| !value.is_null())
    }

    /// Whether nothing is there.
    pub(crate) fn is_absent(&self) -> bool {
        self.value().is_none()
    }

    /// A complaint about this field.
    pub(crate) fn problem(&self, reason: impl Into<Reason>) -> Problem {
        Problem { field: self.path(), reason: reason.into() }
    }

    /// A complaint about the text of this field.
    pub(crate) fn unknown(&self, what: &'static str) -> Problem {
        let text = self.value().and_then(Value::as_str).unwrap_or_default().to_owned();
        self.problem(Reason::Unknown { what, text })
    }

    /// A complaint in words.
    pub(crate) fn invalid(&self, why: impl Into<String>) -> Problem {
        self.problem(Reason::Invalid(why.into()))
    }

    fn path(&self) -> String {
        let mut path = self.parent.map(Field::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Key(key) => {
                let dot = if path.is_empty() { "" } else { "." };
                let _ = write!(path, "{dot}{key}");
            }
            Step::Entry(key) => {
                let _ = write!(path, "[{}]", shortened(key));
            }
            Step::Index(index) => {
                let _ = write!(path, "[{index}]");
            }
        }
        path
    }

    fn wrong_type(&self, expected: &'static str) -> Problem {
        let found = match self.value {
            None | Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "a boolean",
            Some(Value::Number(_)) => "a number",
            Some(Value::String(_)) => "a string",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_)) => "an object",
        };
        self.problem(Reason::WrongType { expected, found })
    }

    /// A text.
    pub(crate) fn str(&self) -> Result<Option<&'v str>, Problem> {
        match self.value() {
            None => Ok(None),
            Some(Value::String(text)) if has_control_character(text) => Err(self.problem(Reason::ControlCharacter)),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong_type("a string")),
        }
    }

    /// A text; absent is empty.
    pub(crate) fn str_or_empty(&self) -> Result<&'v str, Problem> {
        Ok(self.str()?.unwrap_or_default())
    }

    /// A text that must be there and not be empty.
    pub(crate) fn required_str(&self) -> Result<&'v str, Problem> {
        self.str()?.filter(|text| !text.is_empty()).ok_or_else(|| self.problem(Reason::Missing))
    }

    /// A text that is parsed into a fixed vocabulary.
    pub(crate) fn name_of<T: FromStr<Err = UnknownName>>(&self) -> Result<T, Problem> {
        self.str_or_empty()?.parse().map_err(|unknown: UnknownName| self.problem(unknown))
    }

    /// A boolean; absent is false.
    pub(crate) fn bool(&self) -> Result<bool, Problem> {
        match self.value() {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong_type("a boolean")),
        }
    }

    /// An integer between `min` and `max`.
    pub(crate) fn int(&self, min: i64, max: i64) -> Result<Option<i64>, Problem> {
        let Some(value) = self.value() else { return Ok(None) };
        let Value::Number(number) = value else { return Err(self.wrong_type("an integer")) };
        match number.as_i64().filter(|int| (min..=max).contains(int)) {
            Some(int) => Ok(Some(int)),
            None => Err(self.problem(Reason::OutOfRange { value: number.to_string(), min, max })),
        }
    }

    /// An `int32`.
    pub(crate) fn int32(&self) -> Result<Option<i32>, Problem> {
        let int = self.int(i64::from(i32::MIN), i64::from(i32::MAX))?;
        Ok(int.and_then(|int| i32::try_from(int).ok()))
    }

    /// A quantity of at least zero, written as text or as a number.
    pub(crate) fn quantity(&self) -> Result<Option<Quantity>, Problem> {
        let (text, owned);
        match self.value() {
            None => return Ok(None),
            Some(Value::String(string)) => text = string.as_str(),
            Some(Value::Number(number)) => {
                owned = number.to_string();
                text = &owned;
            }
            Some(_) => return Err(self.wrong_type("a quantity")),
        }
        let quantity = Quantity::parse(text).map_err(|error| self.problem(error))?;
        if quantity.sign() < 0 {
            return Err(self.problem(Reason::NegativeQuantity(text.to_owned())));
        }
        Ok(Some(quantity))
    }

    /// A point in time, as RFC 3339.
    pub(crate) fn timestamp(&self) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.str()? else { return Ok(None) };
        Timestamp::parse(text).map(Some).map_err(|_| self.problem(Reason::Time(text.to_owned())))
    }

    fn check_count(&self, count: usize) -> Result<(), Problem> {
        if count <= MAX_ENTRIES {
            return Ok(());
        }
        Err(self.problem(Reason::TooMany { count, limit: MAX_ENTRIES }))
    }
}

impl<'v, 'p> Field<'v, 'p> {
    /// The field `key` of this object; absent if the object is.
    pub(crate) fn field<'c>(&'c self, key: &'c str) -> Result<Field<'v, 'c>, Problem> {
        let value = match self.value() {
            None => None,
            Some(Value::Object(entries)) => entries.get(key),
            Some(_) => return Err(self.wrong_type("an object")),
        };
        Ok(Field { value, step: Step::Key(key), parent: Some(self) })
    }

    /// The items of this list; absent is empty.
    pub(crate) fn items<'c>(&'c self) -> Result<impl Iterator<Item = Field<'v, 'c>>, Problem> {
        let items = match self.value() {
            None => &[],
            Some(Value::Array(items)) => items.as_slice(),
            Some(_) => return Err(self.wrong_type("a list")),
        };
        self.check_count(items.len())?;
        let item = |(index, value)| Field { value: Some(value), step: Step::Index(index), parent: Some(self) };
        Ok(items.iter().enumerate().map(item))
    }

    /// The entries of this map from text to anything, sorted by key; absent is empty.
    pub(crate) fn entries<'c>(&'c self) -> Result<impl Iterator<Item = (&'v str, Field<'v, 'c>)>, Problem>
    where
        'v: 'c,
    {
        let entries = match self.value() {
            None => None,
            Some(Value::Object(entries)) => Some(entries),
            Some(_) => return Err(self.wrong_type("an object")),
        };
        self.check_count(entries.map_or(0, serde_json::Map::len))?;
        if entries.into_iter().flat_map(|entries| entries.keys()).any(|key| has_control_character(key)) {
            return Err(self.problem(Reason::ControlCharacter));
        }
        let entry = |(key, value): (&'v String, &'v Value)| {
            (key.as_str(), Field { value: Some(value), step: Step::Entry(key), parent: Some(self) })
        };
        Ok(entries.into_iter().flatten().map(entry))
    }

    /// A list of texts.
    pub(crate) fn strings(&self) -> Result<Vec<&'v str>, Problem> {
        self.items()?.map(|item| item.str_or_empty()).collect()
    }

    /// A map from text to text.
    pub(crate) fn string_map(&self) -> Result<Vec<(&'v str, &'v str)>, Problem> {
        self.entries()?.map(|(key, value)| Ok((key, value.str_or_empty()?))).collect()
    }

    /// Labels.
    pub(crate) fn labels(&self, interner: &mut Interner) -> Result<Labels, Problem> {
        Ok(Labels::intern(self.string_map()?, interner))
    }
}

/// Whether a text has a character that nobody sees and a terminal obeys. The API server lets none into names, labels
/// and whatever else is planned by; in manifests they are there to fake what is printed of them.
fn has_control_character(text: &str) -> bool {
    // The second byte of those above ASCII follows 0xc2 in UTF-8.
    let is_suspect = |byte: u8| byte < 0x20 || byte == 0x7f || byte == 0xc2;
    text.bytes().any(is_suspect) && text.contains(char::is_control)
}

/// The start of a text that came from outside, short enough for a message.
fn shortened(text: &str) -> String {
    const LIMIT: usize = 80;
    match text.char_indices().nth(LIMIT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}
