//! From text to objects: YAML and JSON, several documents a file, Lists, JSON lines.
//!
//! A document that cannot be read is an error with its origin and does not stop the others. Text is cut into documents
//! before it is parsed, as kubectl does, so that a syntax error ends with its own document. Aliases, nesting and size
//! are bounded: an alias bomb is an error after a fixed amount of work.
//!
//! Scalars are read by YAML 1.1's rules where Kubernetes' own tools do (`yes` is a boolean, `0644` is octal), and of a
//! key that occurs twice the last one counts, as with them.

use std::fmt;
use std::sync::Arc;

use model::NamespacedName;
use serde_json::Value;

use crate::error::{ObjectRef, Problem};
use crate::limits;

/// Bytes of one document beyond which it is not even parsed. A List of a whole cluster's pods is one document.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024 * 1024;

/// Levels of nesting of a YAML document. Its parser recurses, and a thread's stack may have 2 MiB.
const MAX_YAML_DEPTH: usize = 64;

/// Lists in lists.
const MAX_LIST_DEPTH: usize = 4;

/// Where an object was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The file, or `standard input`.
    pub source: Arc<str>,
    /// Which document of it, from 1.
    pub document: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.source, self.document)
    }
}

/// An object with a kind.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Where it was written.
    pub origin: Origin,
    /// Its API group; empty for the core group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// All of it.
    pub object: Value,
}

impl Manifest {
    /// An object that did not come from text. `None` if it has no kind or version.
    pub fn new(source: &str, document: usize, object: Value) -> Option<Self> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (kind, api_version) = (text("kind")?.to_owned(), text("apiVersion")?.to_owned());
        Some(Self::with_kind(Origin { source: source.into(), document }, kind, &api_version, object))
    }

    fn with_kind(origin: Origin, kind: String, api_version: &str, object: Value) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { origin, group: group.to_owned(), version: version.to_owned(), kind, object }
    }

    /// Which object it is.
    pub fn object_ref(&self) -> ObjectRef {
        object_ref(&self.object, &self.kind)
    }
}

/// Which object this is, as far as it can be told.
pub fn object_ref(object: &Value, kind: &str) -> ObjectRef {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = Some(text("/metadata/name")).filter(|name| !name.is_empty()).unwrap_or(text("/metadata/generateName"));
    let kind = Some(kind).filter(|kind| !kind.is_empty()).unwrap_or(text("/kind"));
    ObjectRef { kind: kind.into(), name: NamespacedName::new(text("/metadata/namespace"), name) }
}

/// A document that holds no object.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct DocumentError {
    /// Where it is.
    pub origin: Origin,
    /// Why.
    pub reason: DocumentReason,
}

/// Why a document holds no object.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DocumentReason {
    /// Neither YAML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// Valid, but without `apiVersion` and `kind`; values files and the like.
    #[error("is not a Kubernetes object: {0}")]
    NotAnObject(&'static str),
    /// Too large or too deep.
    #[error("{}{problem}", .object.as_ref().map(|object| format!("{object} ")).unwrap_or_default())]
    Limit {
        /// The object, if it could be read.
        object: Option<ObjectRef>,
        /// Which limit it breaks.
        problem: Problem,
    },
}

/// What a text holds.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects, in the order they were written.
    pub manifests: Vec<Manifest>,
    /// The documents that hold none.
    pub errors: Vec<DocumentError>,
}

/// Reads all documents of `text`.
pub fn parse(source: &str, text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { source: source.into(), parsed: Parsed::default() };
    let is_json = text.trim_start().starts_with(['{', '[']);
    if is_json && let Some(lines) = json_lines(text) {
        for (index, line) in lines {
            let value = serde_json::from_str(line).map_err(|error| error.to_string());
            reader.document(index, line.len(), || value);
        }
        return reader.parsed;
    }
    for (index, text) in documents(text).enumerate() {
        reader.document(index + 1, text.len(), || document(text));
    }
    reader.parsed
}

struct Reader {
    source: Arc<str>,
    parsed: Parsed,
}

impl Reader {
    fn document(&mut self, index: usize, len: usize, parse: impl FnOnce() -> Result<Value, String>) {
        let origin = Origin { source: Arc::clone(&self.source), document: index };
        if len > MAX_DOCUMENT_BYTES {
            let problem = limits::too_large(MAX_DOCUMENT_BYTES);
            return self.error(origin, DocumentReason::Limit { object: None, problem });
        }
        match parse() {
            Ok(Value::Null) => {}
            Ok(value) => self.value(&origin, value, None, 0),
            Err(syntax) => self.error(origin, DocumentReason::Syntax(syntax)),
        }
    }

    /// Takes an object, the items of a List, or those of a plain JSON array.
    fn value(&mut self, origin: &Origin, value: Value, parent: Option<(&str, &str)>, depth: usize) {
        let mut object = match value {
            Value::Object(object) => object,
            Value::Array(items) if depth < MAX_LIST_DEPTH => {
                items.into_iter().for_each(|item| self.value(origin, item, parent, depth + 1));
                return;
            }
            _ => return self.error(origin.clone(), DocumentReason::NotAnObject("it is not a map")),
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let kind = text("kind").or(parent.map(|(_, kind)| kind)).map(str::to_owned);
        let api_version = text("apiVersion").or(parent.map(|(api_version, _)| api_version)).map(str::to_owned);
        let Some(kind) = kind else { return self.error(origin.clone(), DocumentReason::NotAnObject("it has no kind")) };
        let Some(api_version) = api_version else {
            return self.error(origin.clone(), DocumentReason::NotAnObject("it has no apiVersion"));
        };
        if let Some(item_kind) = kind.strip_suffix("List")
            && depth < MAX_LIST_DEPTH
            && matches!(object.get("items"), Some(Value::Array(_) | Value::Null))
        {
            let Some(Value::Array(items)) = object.remove("items") else { return };
            let parent = (!item_kind.is_empty()).then_some((api_version.as_str(), item_kind));
            items.into_iter().for_each(|item| self.value(origin, item, parent, depth + 1));
            return;
        }
        let object = Value::Object(object);
        if let Err(problem) = limits::check(&object) {
            let object = Some(object_ref(&object, &kind));
            return self.error(origin.clone(), DocumentReason::Limit { object, problem });
        }
        self.parsed.manifests.push(Manifest::with_kind(origin.clone(), kind, &api_version, object));
    }

    fn error(&mut self, origin: Origin, reason: DocumentReason) {
        self.parsed.errors.push(DocumentError { origin, reason });
    }
}

/// The lines of a text that has one JSON value on its first line and is no YAML stream, with their numbers; `None` if
/// it is not written that way.
fn json_lines(text: &str) -> Option<impl Iterator<Item = (usize, &str)>> {
    let lines = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(|(i, line)| (i + 1, line));
    let (_, first) = lines().next()?;
    let is_value = first.len() <= MAX_DOCUMENT_BYTES && serde_json::from_str::<serde::de::IgnoredAny>(first).is_ok();
    (is_value && !text.lines().any(is_separator)).then(lines)
}

/// Cuts a stream at its `---` and `...` lines; documents of nothing but blanks and comments are left out.
fn documents(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            if is_separator(line) && offset > 0 {
                // A `---` line may carry the start of its document and so belongs to what follows it.
                let (document, following) = text.split_at(offset);
                rest = Some(following);
                return Some(document);
            }
            offset += line.len();
        }
        rest = None;
        Some(text)
    })
    .filter(|document| {
        document.lines().any(|line| {
            let line = line.strip_prefix("---").unwrap_or(line).trim();
            !line.is_empty() && !line.starts_with('#') && line != "..."
        })
    })
}

fn is_separator(line: &str) -> bool {
    let line = line.trim_end_matches(['\n', '\r']);
    ["---", "..."]
        .into_iter()
        .any(|marker| line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t'])))
}

/// Reads one document.
pub(crate) fn document(document: &str) -> Result<Value, String> {
    let body = document.strip_prefix("...").unwrap_or(document);
    if body.trim_start().starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str(body)
    {
        return Ok(value);
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 40_000_000,
            max_nodes: 20_000_000,
            max_total_scalar_bytes: MAX_DOCUMENT_BYTES,
            max_depth: MAX_YAML_DEPTH,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 200_000, max_replay_stack_depth: 16 },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let mut value = serde_saphyr::from_str_with_options(body, options).map_err(|error| error.to_string())?;
    write_whole_numbers_as_integers(&mut value);
    Ok(value)
}

/// `1e3` is a float to a YAML parser and 1000 to Go, which writes whole floats without a fraction.
fn write_whole_numbers_as_integers(value: &mut Value) {
    /// Below it every whole float is exact.
    const EXACT: f64 = 9e15;
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_as_integers),
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_as_integers),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() < EXACT) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests;
