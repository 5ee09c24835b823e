//! What calls cost at worst, and how large their results are: by overload, as upstream's estimators know them.

use super::{Coster, Entries, NOTHING, ONE, Range};
use crate::ast::{Expr, ExprKind, Literal, op};
use crate::functions::format::MAX_PATTERN_SIZE;
use crate::library::Libraries;
use crate::types::Type;

/// Values that `includes` looks at.
const MAX_LIST_VALUES: u64 = 48;

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

impl Coster<'_> {
    pub(super) fn call(&mut self, node: &Expr) -> Range {
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
            ("includes", Some(target), _) if self.checked.environment.libraries == Libraries::Since1_37 => {
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
            ("matches", None, [target, pattern]) if self.checked.environment.libraries == Libraries::Since1_37 => {
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

/// What the parts of a call cost together.
fn sum(costs: &[Range]) -> Range {
    costs.iter().fold(NOTHING, |sum, cost| sum.plus(*cost))
}
