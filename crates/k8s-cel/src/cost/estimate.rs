//! The worst case of an expression, from its types and the greatest sizes that the API allows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::size::Range;
use crate::ast::{Comprehension, Expr, ExprKind, Literal, op};
use crate::checker::Checked;
use crate::functions::format::MAX_PATTERN_SIZE;
use crate::library::Libraries;
use crate::types::Type;

/// The longest domain and driver name.
const MAX_DOMAIN: u64 = 63;
/// The longest id of an attribute.
const MAX_ID: u64 = 32;
/// Attributes and capacities of one device.
const MAX_ATTRIBUTES: u64 = 32;
/// The longest attribute value; with lists also more than the most values.
const MAX_VALUE: u64 = 64;
/// Values that `includes` looks at.
const MAX_LIST_VALUES: u64 = 48;

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

/// What a call costs, and how large its result is.
struct Estimate {
    cost: Range,
    size: Option<Range>,
}

impl Estimate {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self { cost, size: Some(size) }
    }
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

    fn call(&mut self, node: &Expr) -> Range {
        let ExprKind::Call { function, target, args } = &node.kind else { return NOTHING };
        if let ("dyn", [arg]) = (&**function, args.as_slice()) {
            let cost = self.cost(arg).plus(ONE);
            self.copy_sizes(node, arg);
            return cost;
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        for arg in args {
            // Upstream looks the sizes of arguments up as soon as their cost is known.
            self.size(arg);
        }
        let chosen: Vec<&'static str> = if &**function == op::OPTIONAL_SELECT {
            vec!["select_optional_field"]
        } else {
            self.checked.overloads_of(node).iter().map(|overload| overload.id).collect()
        };
        if chosen.is_empty() {
            return NOTHING;
        }
        let mut cost = target.as_ref().map_or(NOTHING, |target| self.cost(target));
        let mut call = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in chosen {
            let estimate = self.overload(node, (function, overload), target.as_deref(), args, &costs);
            call = call.union(estimate.cost);
            if let Some(of) = estimate.size {
                size = Some(size.map_or(of, |size| size.union(of)));
            }
            if let ("index_list" | "index_map", Some(container)) = (overload, args.first()) {
                size = self.entries_of(container).map(|entries| entries.value);
                let mut path = self.path(container);
                path.push(if overload == "index_list" { "@items".into() } else { "@values".into() });
                self.paths.insert(node.id, path);
            }
            if size.is_none() {
                size = self.size(node);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(node.id, size);
        }
        cost = cost.plus(call);
        cost
    }

    fn overload(
        &mut self,
        node: &Expr,
        (function, overload): (&str, &str),
        target: Option<&Expr>,
        args: &[Expr],
        costs: &[Range],
    ) -> Estimate {
        let sum = sum(costs);
        if let Some(estimate) = self.list_call(overload, target, args) {
            return Estimate { cost: estimate.cost.plus(sum), ..estimate };
        }
        if let Some(estimate) = self.kubernetes_call(function, overload, target, args) {
            return Estimate { cost: estimate.cost.plus(sum), ..estimate };
        }
        self.standard_call(node, overload, target, args, costs)
    }

    /// Extensions that have estimates of their own.
    fn list_call(&mut self, overload: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Estimate> {
        let list = |factor: f64, size: Range| Estimate::sized(size.by(factor).plus(Range::exactly(11)), size);
        Some(match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let size = self.size_or_unknown(target);
                let length = integer(end, size.max).wrapping_sub(integer(start, 0));
                list(1.0, Range::exactly(length))
            }
            ("lists_range", None, [count]) => list(1.0, Range::exactly(integer(count, u64::MAX))),
            ("list_reverse", Some(target), []) => list(1.0, self.size_or_unknown(target)),
            ("list_flatten", Some(target), []) => list(1.0, self.size_or_unknown(target)),
            #[allow(clippy::cast_precision_loss, reason = "upstream's arithmetic")]
            ("list_flatten_int", Some(target), [depth]) => {
                list(integer(depth, u64::MAX) as f64, self.size_or_unknown(target))
            }
            ("list_distinct", Some(target), []) => {
                let size = self.size_or_unknown(target);
                list(2.0, size.times(size))
            }
            (sort, Some(target), []) if sort.starts_with("list_") && sort.ends_with("_sort") => {
                let size = self.size_or_unknown(target);
                list(sort_factor(sort), size.times(size))
            }
            (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => {
                let size = self.size_or_unknown(keys);
                list(sort_factor(sort), size.times(size))
            }
            ("list_sets_contains_list" | "list_sets_intersects_list", None, [a, b]) => {
                Estimate::of(self.size_or_unknown(a).times(self.size_or_unknown(b)).by(1.0).plus(ONE))
            }
            ("list_sets_equivalent_list", None, [a, b]) => {
                Estimate::of(self.size_or_unknown(a).times(self.size_or_unknown(b)).by(2.0).plus(ONE))
            }
            _ => return None,
        })
    }

    fn kubernetes_call(
        &mut self,
        function: &str,
        overload: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Option<Estimate> {
        let one = || Some(Estimate::of(ONE));
        match (function, target, args) {
            ("includes", Some(target), _) if self.checked.libraries == Libraries::Since1_37 => {
                // The target may be a list whatever its type says.
                Some(Estimate::of(match self.checked.type_of(target) {
                    Type::List(_) | Type::Map(..) | Type::Optional(_) => self.walk(target),
                    _ => self.size_or_unknown(target),
                }))
            }
            ("includes", Some(_), _) => Some(Estimate::of(Range::up_to(MAX_LIST_VALUES))),
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                Some(Estimate::of(self.walk(target)))
            }
            ("url", _, [text]) => {
                let size = self.size_or_unknown(text);
                Some(Estimate::sized(size.by(0.1), size))
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.size_or_unknown(target);
                Some(Estimate::sized(size.by(0.1), size))
            }
            ("replace", Some(target), [old, new, ..]) => Some(self.replace(target, old, new)),
            ("split", Some(target), args) => {
                let size = self.size_or_unknown(target);
                let most =
                    args.get(1).and_then(literal_int).map_or(size.max, |limit| u64::from_ne_bytes(limit.to_ne_bytes()));
                Some(Estimate::sized(size.by(0.2), Range::up_to(most)))
            }
            ("join", Some(target), args) => Some(self.join(target, args.first())),
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.size_or_unknown(target);
                let cost = size.plus(ONE).by(0.1).times(self.size_or_unknown(pattern).by(0.25));
                Some(Estimate::sized(cost, Range::up_to(size.max)))
            }
            ("ip", ..) if overload == "cidr_ip" => one(),
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _, [text, ..]) => {
                Some(Estimate::of(self.size_or_unknown(text).by(0.1)))
            }
            ("ip.isCanonical", _, [text, ..]) => Some(Estimate::of(self.size_or_unknown(text).by(0.2))),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                let size = Range { min: 4, max: 16 };
                let mut cost = size.plus(size).by(0.1);
                if function == "containsCIDR" {
                    cost = cost.plus(size.by(0.1)).plus(ONE);
                }
                if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.plus(self.size_or_unknown(other).by(0.1));
                }
                Some(Estimate::of(cost))
            }
            #[allow(clippy::cast_precision_loss, reason = "a small constant")]
            ("validate", _, [text, ..]) => {
                Some(Estimate::of(self.size_or_unknown(text).by(0.1).by(MAX_PATTERN_SIZE as f64 * 0.25)))
            }
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery"
                | "serviceAccount"
                | "path"
                | "group"
                | "resource"
                | "subresource"
                | "namespace"
                | "name"
                | "allowed"
                | "reason"
                | "error"
                | "errored",
                ..,
            ) => one(),
            ("check", ..) => Some(Estimate::of(Range::exactly(350_000))),
            (op::EQUALS, _, [left, right]) => self.own_equality(left, right),
            _ => None,
        }
    }

    /// Kubernetes' own types compare at a price of their own.
    fn own_equality(&self, left: &Expr, right: &Expr) -> Option<Estimate> {
        let of = self.checked.type_of(left);
        if of != self.checked.type_of(right) {
            return None;
        }
        match of {
            Type::Quantity | Type::Semver | Type::Ip | Type::Cidr | Type::Authorization(_) => Some(Estimate::of(ONE)),
            Type::Format => Some(Estimate::of(Range { min: 1, max: 64 }.by(0.1))),
            Type::Url => {
                let size = self.sizes.get(&right.id).map_or(1, |size| size.max);
                Some(Estimate::of(Range { min: 1, max: size }.by(0.1)))
            }
            _ => None,
        }
    }

    /// A walk over a list, or a search in a string.
    fn walk(&mut self, target: &Expr) -> Range {
        let element = match self.checked.type_of(target) {
            Type::List(element) => (**element).clone(),
            Type::Map(key, _) => (**key).clone(),
            Type::Optional(value) => (**value).clone(),
            _ => return self.size_or_unknown(target).by(0.1),
        };
        let mut each = ONE;
        if matches!(element, Type::String | Type::Bytes) {
            each = each.plus(self.element_size(target).by(0.1));
        }
        self.size_or_unknown(target).times(each)
    }

    fn element_size(&self, list: &Expr) -> Range {
        let mut path = self.path(list);
        path.push("@items".into());
        self.declared_size(&path).unwrap_or(Range::UNKNOWN)
    }

    fn replace(&mut self, target: &Expr, old: &Expr, new: &Expr) -> Estimate {
        let size = self.size_or_unknown(target);
        let (old, new) = (self.size_or_unknown(old), self.size_or_unknown(new));
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "upstream's arithmetic; the cast saturates"
        )]
        let ratio = |a: u64, b: u64| (a as f64 / b as f64).ceil() as u64;
        let (mut count, mut kept) = (NOTHING, NOTHING);
        if old.min == 0 {
            count.max = size.max.saturating_add(1);
            kept.max = size.max;
        } else if new.max <= old.min {
            kept.max = size.max;
        } else {
            count.max = ratio(size.max, old.min);
        }
        if old.max == 0 {
            count.min = size.min.saturating_add(1);
            kept.min = size.min;
        } else if old.max <= new.min {
            kept.min = size.min;
        } else {
            count.min = ratio(size.min, old.max);
        }
        Estimate::sized(size.by(0.2), count.times(new).plus(kept))
    }

    fn join(&mut self, target: &Expr, separator: Option<&Expr>) -> Estimate {
        let count = self.size_or_unknown(target);
        let mut size = NOTHING;
        if matches!(self.checked.type_of(target), Type::List(_)) {
            size = count.times(self.element_size(target));
        }
        if let Some(separator) = separator {
            let separators = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
            size = size.plus(self.size_or_unknown(separator).times(separators));
        }
        Estimate::sized(size.by(0.1), size)
    }

    fn standard_call(
        &mut self,
        node: &Expr,
        overload: &str,
        target: Option<&Expr>,
        args: &[Expr],
        costs: &[Range],
    ) -> Estimate {
        let sum = sum(costs);
        let plus = |cost: Range| Estimate::of(cost.plus(sum));
        match (overload, target, args) {
            ("string_format", Some(target), _) => plus(self.size_or_unknown(target).by(0.1)),
            ("string_to_bytes", _, [text]) => {
                let size = self.size_or_unknown(text);
                Estimate::sized(size.by(0.1).plus(sum), Range { min: size.min, max: size.max.wrapping_mul(4) })
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = self.size_or_unknown(bytes);
                Estimate::sized(size.by(0.1).plus(sum), Range { min: size.min / 4, max: size.max })
            }
            ("strings_quote", _, [text]) => {
                let size = self.size_or_unknown(text);
                let quoted = Range { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
                Estimate::sized(size.by(0.1).plus(sum), quoted)
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => plus(self.size_or_unknown(part).by(0.1)),
            ("in_list", _, [_, list]) => plus(self.size_or_unknown(list).by(1.0)),
            ("matches", None, [target, pattern]) if self.checked.libraries == Libraries::Since1_37 => {
                let text = self.size_or_unknown(target).plus(ONE).by(0.1);
                plus(text.times(self.size_or_unknown(pattern).by(0.25)))
            }
            ("matches_string", Some(target), [pattern]) => {
                let text = self.size_or_unknown(target).plus(ONE).by(0.1);
                plus(text.times(self.size_or_unknown(pattern).by(0.25)))
            }
            ("contains_string", Some(target), [part]) => {
                let text = self.size_or_unknown(target).by(0.1);
                plus(text.times(self.size_or_unknown(part).by(0.1)))
            }
            ("logical_or" | "logical_and", ..) => match costs {
                [left, right] => Estimate::of(Range { min: left.min, max: left.plus(*right).max }),
                _ => plus(ONE),
            },
            ("conditional", _, [_, then, otherwise]) => {
                let size = self.size_or_unknown(then).union(self.size_or_unknown(otherwise));
                if let (Some(a), Some(b)) = (self.entries_of(then), self.entries_of(otherwise)) {
                    self.entries.insert(node.id, union(a, b));
                }
                match costs {
                    [condition, then, otherwise] => Estimate::sized(condition.plus(then.union(*otherwise)), size),
                    _ => plus(ONE),
                }
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let size = self.size_or_unknown(left).plus(self.size_or_unknown(right));
                if let (Some(a), Some(b)) = (self.entries_of(left), self.entries_of(right)) {
                    self.entries.insert(node.id, union(a, b));
                }
                let cost = if overload == "add_list" { ONE } else { size.by(0.1) };
                Estimate::sized(cost.plus(sum), size)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = self.size_or_unknown(left).max.min(self.size_or_unknown(right).max);
                plus(Range { min: u64::from(max > 0), max }.by(0.1))
            }
            _ => plus(ONE),
        }
    }
}

fn union(a: Entries, b: Entries) -> Entries {
    Entries { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) }
}

const fn is_struct(of: &Type) -> bool {
    matches!(of, Type::Device | Type::Quantity | Type::Semver | Type::Url | Type::Format | Type::Authorization(_))
}

fn sort_factor(overload: &str) -> f64 {
    if overload.starts_with("list_string") || overload.starts_with("list_bytes") { 2.1 } else { 2.0 }
}

fn literal_int(node: &Expr) -> Option<i64> {
    match &node.kind {
        ExprKind::Literal(Literal::Int(value)) => Some(*value),
        _ => None,
    }
}

/// A literal integer, not below 0; else the default.
fn integer(node: &Expr, default: u64) -> u64 {
    literal_int(node).map_or(default, |value| u64::try_from(value).unwrap_or(0))
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

/// What the parts of a call cost together.
fn sum(costs: &[Range]) -> Range {
    costs.iter().fold(NOTHING, |sum, cost| sum.plus(*cost))
}
