//! Derived attributes (KEP-6080): values that a request computes from a device for the constraints that cover it.
//!
//! A value depends only on the expression and the device's shape, so it is computed once, when a search first reads it,
//! like a selector's verdict. In each search values are numbered beside those that devices publish ([`Values`]), in the
//! order of reading, so nothing depends on other searches or threads.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use model::collections::{FastMap, NameMap};
use model::{Id, IdVec, define_id};

use super::attributes::{Held, ValueTable};
use super::device::Shape;
use super::ids::DeviceShape;
use dra_types::{AttributeValue, compat::Compat};
use k8s_cel::DerivedExpression;

define_id! {
    /// A distinct expression of a derived attribute.
    pub(crate) struct DerivedId;
}

type Outcome = Result<AttributeValue, Arc<str>>;

#[derive(Debug)]
struct Entry {
    /// Upstream compiles an expression when it tries the first device, so a text that does not compile is an error only
    /// then.
    compiled: Result<DerivedExpression, Arc<str>>,
    outcomes: Box<[OnceLock<Outcome>]>,
}

/// All expressions of derived attributes.
#[derive(Debug)]
pub(crate) struct DerivedTable {
    compat: Compat,
    ids: NameMap<Arc<str>, DerivedId>,
    entries: IdVec<DerivedId, Entry>,
}

impl DerivedTable {
    pub(crate) fn new(compat: Compat) -> Self {
        Self { compat, ids: NameMap::default(), entries: IdVec::new() }
    }

    /// The number of a text.
    pub(crate) fn intern(&mut self, text: &Arc<str>) -> DerivedId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let compiled = DerivedExpression::compile(text, &self.compat)
            .map_err(|error| Arc::from(format!("CEL compile error: {error}")));
        let id = self.entries.push(Entry { compiled, outcomes: Box::default() });
        self.ids.insert(Arc::clone(text), id);
        id
    }

    /// Makes room for so many shapes; no expression or shape is added afterwards.
    pub(crate) fn set_shapes(&mut self, shapes: usize) {
        for entry in self.entries.iter_mut() {
            entry.outcomes = (0..shapes).map(|_| OnceLock::new()).collect();
        }
    }

    /// The value on devices of a shape, or why there is none.
    pub(crate) fn value(&self, id: DerivedId, shape: DeviceShape, content: &Shape) -> Outcome {
        let entry = &self.entries[id];
        let evaluate = || {
            let expression = entry.compiled.as_ref().map_err(Arc::clone)?;
            let error = |error: k8s_cel::EvalError| Arc::from(format!("CEL runtime error: {error}"));
            expression.evaluate(content.view(&self.compat)).map_err(error)
        };
        entry.outcomes.get(shape.index()).map_or_else(evaluate, |outcome| outcome.get_or_init(evaluate).clone())
    }
}

/// Derived values as constraints compare them, for one search.
#[derive(Debug)]
pub(crate) struct Values<'a> {
    table: &'a DerivedTable,
    published: &'a ValueTable,
    /// None until a value is asked for.
    numbers: RefCell<Option<Numbers>>,
}

#[derive(Debug)]
struct Numbers {
    values: ValueTable,
    known: FastMap<(DerivedId, DeviceShape), Held>,
}

impl<'a> Values<'a> {
    /// `published` has numbered the values of attributes.
    pub(crate) fn new(table: &'a DerivedTable, published: &'a ValueTable) -> Self {
        Self { table, published, numbers: RefCell::new(None) }
    }

    /// What devices of a shape hold; [`Held::Failed`] if the expression fails on them.
    pub(crate) fn held(&self, id: DerivedId, shape: DeviceShape, content: &Shape) -> Held {
        let mut numbers = self.numbers.borrow_mut();
        let begin = || Numbers { values: self.published.continued(), known: FastMap::default() };
        let Numbers { values, known } = numbers.get_or_insert_with(begin);
        let read = || match self.table.value(id, shape, content) {
            Ok(value) => values.read(&value),
            Err(_) => Held::Failed,
        };
        known.entry((id, shape)).or_insert_with(read).clone()
    }
}
