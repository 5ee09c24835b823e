//! The worst case of an expression, from its types and the greatest sizes that the API allows.

mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::size::Range;
use crate::ast::{Comprehension, Expr, ExprKind, Literal};
use crate::checker::Checked;
use crate::types::Type;

/// The longest domain and driver name.
const MAX_DOMAIN: u64 = 63;
/// The longest id of an attribute.
const MAX_ID: u64 = 32;
/// Attributes and capacities of one device.
const MAX_ATTRIBUTES: u64 = 32;
/// The longest attribute value; with lists also more than the most values.
const MAX_VALUE: u64 = 64;

/// A way from a variable to a part of it.
type Path = Vec<Arc<str>>;

/// Sizes of a container's keys and values.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

#[derive(Clone)]
struct Local {
    name: Arc<str>,
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

struct Coster<'a> {
    checked: &'a Checked,
    paths: BTreeMap<u32, Path>,
    sizes: BTreeMap<u32, Range>,
    entries: BTreeMap<u32, Entries>,
    locals: Vec<Local>,
}

/// The greatest cost of an evaluation; `u64::MAX` if it has no bound.
pub(crate) fn estimate(checked: &Checked) -> u64 {
    let mut coster = Coster {
        checked,
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
        locals: Vec::new(),
    };
    coster.cost(&checked.expr).max
}

const ONE: Range = Range::exactly(1);
const NOTHING: Range = Range::exactly(0);

impl Coster<'_> {
    fn cost(&mut self, node: &Expr) -> Range {
        crate::with_stack(|| self.cost_within(node))
    }

    fn cost_within(&mut self, node: &Expr) -> Range {
        match &node.kind {
            ExprKind::Literal(_) => NOTHING,
            ExprKind::Ident(name) => {
                let path = self.local(name).map_or_else(|| self.global_path(name), |local| local.path.clone());
                self.paths.insert(node.id, path);
                ONE
            }
            ExprKind::Select { operand, test: true, .. } => self.cost(operand),
            ExprKind::Select { operand, field, test: false } => {
                let cost = self.cost(operand);
                let mut path = self.path(operand);
                path.push(field.clone());
                self.paths.insert(node.id, path);
                match self.checked.type_of(operand) {
                    Type::Map(..) | Type::Param(_) => cost.plus(ONE),
                    of if is_struct(of) => cost.plus(ONE),
                    _ => cost,
                }
            }
            ExprKind::Call { .. } => self.call(node),
            ExprKind::List(elements) => {
                let mut cost = Range::exactly(10);
                let mut size: Option<Range> = None;
                for (element, _) in elements {
                    cost = cost.plus(self.cost(element));
                    let of = self.size_or_unknown(element);
                    size = Some(size.map_or(of, |size| size.union(of)));
                }
                let value = size.unwrap_or(NOTHING);
                self.entries.insert(node.id, Entries { is_list: true, key: ONE, value });
                cost
            }
            ExprKind::Map(entries) => {
                let mut cost = Range::exactly(30);
                let mut sizes: Option<(Range, Range)> = None;
                for (key, value, _) in entries {
                    cost = cost.plus(self.cost(key)).plus(self.cost(value));
                    let of = (self.size_or_unknown(key), self.size_or_unknown(value));
                    sizes = Some(sizes.map_or(of, |(keys, values)| (keys.union(of.0), values.union(of.1))));
                }
                let (key, value) = sizes.unwrap_or((NOTHING, NOTHING));
                self.entries.insert(node.id, Entries { is_list: false, key, value });
                cost
            }
            ExprKind::Struct(_) => Range::exactly(40),
            ExprKind::Comprehension(fold) if fold.is_bind() => self.bind(node, fold),
            ExprKind::Comprehension(fold) => self.fold(node, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| *local.name == *name)
    }

    /// Where a variable of a macro has the name of `.name`, upstream does not know what the latter is.
    fn global_path(&self, name: &Arc<str>) -> Path {
        match name.strip_prefix('.') {
            Some(bare) if self.local(bare).is_none() => vec![bare.into()],
            _ => vec![name.clone()],
        }
    }

    fn path(&self, node: &Expr) -> Path {
        if let ExprKind::Ident(name) = &node.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&node.id).cloned().unwrap_or_default()
    }

    fn push_local(&mut self, name: &Arc<str>, path: Path, size: Option<Range>, entries: Option<Entries>) {
        self.locals.push(Local { name: name.clone(), path, size, entries });
    }

    fn push_variable(&mut self, name: &Arc<str>, value: &Expr) {
        let (path, size, entries) = (self.path(value), self.size(value), self.entries_of(value));
        self.push_local(name, path, size, entries);
    }

    /// A variable that goes over the keys or values of a range.
    fn push_iteration(&mut self, name: &Arc<str>, range: &Expr, key: bool) {
        let entries = self.entries_of(range);
        let mut path = self.path(range);
        let is_list = entries.map_or(matches!(self.checked.type_of(range), Type::List(_)), |entries| entries.is_list);
        path.push(match (is_list, key) {
            (true, true) => "@indices".into(),
            (true, false) => "@items".into(),
            (false, true) => "@keys".into(),
            (false, false) => "@values".into(),
        });
        let size = entries.map(|entries| if key { entries.key } else { entries.value });
        self.push_local(name, path, size, None);
    }

    /// Reproduces a defect of cel-go: both variables of a comprehension get their paths by appending to one slice, so
    /// where it has room left (lengths between powers of two) the second path overwrites the first.
    fn share_path(&mut self) {
        let Some((second, rest)) = self.locals.split_last_mut() else { return };
        let Some(first) = rest.last_mut() else { return };
        let range = second.path.len() - 1;
        if range > 0 && !range.is_power_of_two() {
            first.path.clone_from(&second.path);
        }
    }

    fn bind(&mut self, node: &Expr, fold: &Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_variable(&fold.accumulator, &fold.init);
        cost = cost.plus(self.cost(&fold.result));
        // Sizes of the result are looked up while the variable is gone, as upstream does.
        self.locals.pop();
        self.copy_sizes(node, &fold.result);
        cost
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn fold(&mut self, node: &Expr, fold: &Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_variable(&fold.accumulator, &fold.init);
        let iterations = match &fold.var2 {
            Some(var2) => {
                self.push_iteration(&fold.var, &fold.range, true);
                self.push_iteration(var2, &fold.range, false);
                self.share_path();
                2
            }
            None => {
                let is_list = self.entries_of(&fold.range).map_or_else(
                    || matches!(self.checked.type_of(&fold.range), Type::List(_)),
                    |entries| entries.is_list,
                );
                self.push_iteration(&fold.var, &fold.range, !is_list);
                1
            }
        };
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.locals.truncate(self.locals.len() - iterations);
        cost = cost.plus(self.cost(&fold.result));
        self.locals.pop();
        let count = self.size_or_unknown(&fold.range);
        cost = cost.plus(count.times(each));
        match &fold.init.kind {
            ExprKind::Literal(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(node.id, size);
                }
            }
            ExprKind::List(_) | ExprKind::Map(_) => {
                self.sizes.insert(node.id, count);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(node.id, entries);
                }
            }
            _ => {}
        }
        cost
    }

    fn size_or_unknown(&mut self, node: &Expr) -> Range {
        self.size(node).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, node: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&node.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(node) {
            return Some(Range::exactly(size));
        }
        let path = self.path(node);
        if let Some(size) = self.declared_size(&path) {
            self.sizes.insert(node.id, size);
            return Some(size);
        }
        if self.checked.type_of(node).is_scalar() {
            return Some(ONE);
        }
        match &node.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entries_of(&self, node: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&node.id) {
            return Some(*entries);
        }
        match &node.kind {
            ExprKind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    /// The greatest size of a part of `device`, as the API bounds it.
    fn declared_size(&self, path: &[Arc<str>]) -> Option<Range> {
        let (first, rest) = path.split_first()?;
        if &**first != "device" {
            return None;
        }
        let Some((field, rest)) = rest.split_first() else {
            // The object itself; its type has no size.
            return Some(NOTHING);
        };
        let is_attributes = match &**field {
            "driver" => return rest.is_empty().then_some(Range::up_to(MAX_DOMAIN)),
            "allowMultipleAllocations" => return rest.is_empty().then_some(ONE.union(NOTHING)),
            "attributes" => true,
            "capacity" => false,
            _ => return None,
        };
        let value = if is_attributes { Range::up_to(MAX_VALUE) } else { Range::up_to(0) };
        match rest {
            [] => Some(Range::up_to(MAX_ATTRIBUTES)),
            [outer] => match &**outer {
                "@keys" => Some(Range::up_to(MAX_DOMAIN)),
                "@items" | "@values" => Some(Range::up_to(MAX_ATTRIBUTES)),
                _ => None,
            },
            [outer, inner] if matches!(&**outer, "@items" | "@values") => match &**inner {
                "@keys" => Some(Range::up_to(MAX_ID)),
                "@items" | "@values" => Some(value),
                // A selection by name: upstream knows that all attributes have one size, but not of capacities.
                _ if is_attributes => Some(value),
                _ => None,
            },
            _ => None,
        }
    }
}

const fn is_struct(of: &Type) -> bool {
    matches!(of, Type::Device | Type::Quantity | Type::Semver | Type::Url | Type::Format | Type::Authorization(_))
}

fn literal_size(node: &Expr) -> Option<u64> {
    Some(match &node.kind {
        ExprKind::Literal(Literal::String(text)) => text.chars().count() as u64,
        ExprKind::Literal(Literal::Bytes(bytes)) => bytes.len() as u64,
        ExprKind::Literal(_) => 1,
        ExprKind::List(elements) => elements.len() as u64,
        ExprKind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}
