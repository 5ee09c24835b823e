//! Numbered selectors and their verdicts about each device shape. A verdict is computed once, when a search first needs
//! it.
//!
//! Each selector has a column of atomics with its verdicts. What is stored does not depend on who asks first, so
//! answers do not depend on the number of threads.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use model::collections::NameMap;
use model::{Id, IdVec, define_id};

use super::device::Shape;
use super::ids::DeviceShape;
use dra_types::compat::Compat;
use k8s_cel::{Selector, SlotProgram, SlotRow, SlotTable};

define_id! {
    /// A distinct selector text.
    pub(crate) struct SelectorId;
}

/// What a selector says about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Yes,
    No,
    /// It does not compile, or failed while it was evaluated.
    Error,
}

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;
const ERROR: u8 = 3;

#[derive(Debug)]
struct Entry {
    text: Arc<str>,
    /// Upstream compiles a selector when it tries the first device, so a text that does not compile is an error only
    /// then.
    compiled: Result<Selector, Arc<str>>,
    /// The selector as a program, if it is a simple one.
    program: Option<SlotProgram>,
    judgements: Box<[AtomicU8]>,
}

/// All selectors of classes and claims.
#[derive(Debug)]
pub(crate) struct SelectorTable {
    compat: Compat,
    ids: NameMap<Arc<str>, SelectorId>,
    entries: IdVec<SelectorId, Entry>,
    slots: SlotTable,
    /// The slot values of devices of each shape; made when a program first reads them.
    rows: Box<[OnceLock<SlotRow>]>,
}

impl SelectorTable {
    pub(crate) fn new(compat: Compat) -> Self {
        let (entries, slots, rows) = (IdVec::new(), SlotTable::default(), Box::default());
        Self { compat, ids: NameMap::default(), entries, slots, rows }
    }

    /// The number of a text.
    pub(crate) fn intern(&mut self, text: &Arc<str>) -> SelectorId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let compiled = Selector::compile(text, &self.compat).map_err(|error| error.to_string().into());
        let program = compiled.as_ref().ok().and_then(|selector: &Selector| selector.lower(&mut self.slots));
        let id = self.entries.push(Entry { text: Arc::clone(text), compiled, program, judgements: Box::default() });
        self.ids.insert(Arc::clone(text), id);
        id
    }

    /// Makes room for so many shapes; no selector or shape is added afterwards.
    pub(crate) fn set_shapes(&mut self, shapes: usize) {
        for entry in self.entries.iter_mut() {
            entry.judgements = (0..shapes).map(|_| AtomicU8::new(UNKNOWN)).collect();
        }
        self.rows = (0..shapes).map(|_| OnceLock::new()).collect();
    }

    /// The selector's text.
    pub(crate) fn text(&self, selector: SelectorId) -> &Arc<str> {
        &self.entries[selector].text
    }

    /// What a selector says about the devices of a shape.
    pub(crate) fn judge(&self, selector: SelectorId, shape: DeviceShape, content: &Shape) -> Judgement {
        let entry = &self.entries[selector];
        let slot = entry.judgements.get(shape.index());
        match slot.map_or(UNKNOWN, |slot| slot.load(Ordering::Relaxed)) {
            YES => Judgement::Yes,
            NO => Judgement::No,
            ERROR => Judgement::Error,
            _ => {
                let outcome = self.by_program(entry, shape, content);
                let outcome = outcome.unwrap_or_else(|| evaluate(entry, content, &self.compat).map_err(|_| ()));
                let (code, judgement) = match outcome {
                    Ok(true) => (YES, Judgement::Yes),
                    Ok(false) => (NO, Judgement::No),
                    Err(()) => (ERROR, Judgement::Error),
                };
                if let Some(slot) = slot {
                    slot.store(code, Ordering::Relaxed);
                }
                judgement
            }
        }
    }

    /// The verdict of a selector's program, if it has one. An error is found again, with its text, by [`Self::error`].
    fn by_program(&self, entry: &Entry, shape: DeviceShape, content: &Shape) -> Option<Result<bool, ()>> {
        let program = entry.program.as_ref()?;
        let row = self.rows.get(shape.index())?;
        let row = row.get_or_init(|| self.slots.row(&content.driver, content.device(), &self.compat));
        Some(program.evaluate(row)?.outcome.map_err(|_| ()))
    }

    /// Why a selector fails on devices of a shape; empty if it does not.
    pub(crate) fn error(&self, selector: SelectorId, content: &Shape) -> Arc<str> {
        evaluate(&self.entries[selector], content, &self.compat).err().unwrap_or_default()
    }
}

fn evaluate(entry: &Entry, content: &Shape, compat: &Compat) -> Result<bool, Arc<str>> {
    let selector = entry.compiled.as_ref().map_err(|error| Arc::from(format!("CEL compile error: {error}")))?;
    let error = |error: k8s_cel::EvalError| Arc::from(format!("CEL runtime error: {error}"));
    selector.matches(content.view(compat)).map_err(error)
}
