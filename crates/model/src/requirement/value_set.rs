//! Exact sets of label values.
//!
//! The universe is every label value plus the key's absence. Values are text; some read as integers. A label value
//! begins with a letter or digit, so no integer among them is negative. It may have leading zeros, so every integer
//! has many spellings (`7`, `07`): a range of integers cannot be emptied by excluding values one by one.
//!
//! Invariants, which make equal sets equal representations:
//! * `values` is sorted by id, without duplicates;
//! * a set with `complement == false` has no bounds, and no values if `absent`;
//! * a set with bounds does not hold absence, its range is not empty, and each excluded value lies in it;
//! * an upper bound is below `i64::MAX`; a lower one is above 0, or is 0 and there is no upper one.

use std::{fmt, sync::Arc};

use smallvec::{SmallVec, smallvec};

use super::operator::{Operator, ValuesError};
use crate::intern::{Interner, ValueId};

/// How many values are printed before "and N others".
const PRINTED_VALUES: usize = 5;

/// A few values, sorted by id.
pub type Values = SmallVec<[ValueId; 4]>;

/// A set of label values, and whether the key may be absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueSet {
    absent: bool,
    complement: bool,
    values: Values,
    gte: Option<i64>,
    lte: Option<i64>,
}

/// One expression as Kubernetes writes it. A [`ValueSet`] is the conjunction of up to three.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expression {
    /// `In` these values.
    In(Values),
    /// `NotIn` these values.
    NotIn(Values),
    /// `Exists`.
    Exists,
    /// `DoesNotExist`.
    DoesNotExist,
    /// `Gte` this integer.
    Gte(i64),
    /// `Lte` this integer.
    Lte(i64),
}

impl ValueSet {
    /// Everything, absence too: no restriction.
    pub fn any() -> Self {
        Self { absent: true, ..Self::exists() }
    }

    /// Every value.
    pub fn exists() -> Self {
        Self { absent: false, complement: true, values: smallvec![], gte: None, lte: None }
    }

    /// Absence only.
    pub fn only_absent() -> Self {
        Self { absent: true, ..Self::nothing() }
    }

    /// The empty set, which nothing satisfies.
    pub fn nothing() -> Self {
        Self { absent: false, complement: false, values: smallvec![], gte: None, lte: None }
    }

    /// One value.
    pub fn one(value: ValueId) -> Self {
        Self { values: smallvec![value], ..Self::nothing() }
    }

    /// These values.
    pub fn among(values: impl IntoIterator<Item = ValueId>) -> Self {
        Self { values: sorted(values), ..Self::nothing() }
    }

    /// The set that an expression stands for.
    pub fn of(operator: Operator, values: &[ValueId], interner: &Interner) -> Result<Self, ValuesError> {
        let integer = || match values {
            [value] => interner
                .value_int(*value)
                .filter(|&int| int >= 0)
                .ok_or_else(|| ValuesError::NotAnInteger { value: interner.value_arc(*value) }),
            _ => Err(ValuesError::NotOne { count: values.len() }),
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => Err(ValuesError::Missing),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Err(ValuesError::Unexpected { count: values.len() })
            }
            Operator::In => Ok(Self::among(values.iter().copied())),
            Operator::NotIn => Ok(Self { values: sorted(values.iter().copied()), ..Self::any() }),
            Operator::Exists => Ok(Self::exists()),
            Operator::DoesNotExist => Ok(Self::only_absent()),
            Operator::Gt => {
                Ok(integer()?.checked_add(1).map_or_else(Self::nothing, |gte| Self::range(Some(gte), None)))
            }
            Operator::Lt => {
                Ok(integer()?.checked_sub(1).map_or_else(Self::nothing, |lte| Self::range(None, Some(lte))))
            }
            Operator::Gte => Ok(Self::range(Some(integer()?), None)),
            Operator::Lte => Ok(Self::range(None, Some(integer()?))),
        }
    }

    /// The values that are integers from `gte` to `lte`, both included; every value if neither is given.
    pub fn range(gte: Option<i64>, lte: Option<i64>) -> Self {
        let mut set = Self { gte, lte, ..Self::exists() };
        set.normalize_bounds();
        set
    }

    /// What both sets have.
    pub fn intersect(&self, other: &Self, interner: &Interner) -> Self {
        let absent = self.absent && other.absent;
        let values = match (self.complement, other.complement) {
            (true, true) => {
                let mut set = Self {
                    absent,
                    complement: true,
                    values: union(&self.values, &other.values),
                    gte: self.gte.max(other.gte),
                    lte: tighter_upper(self.lte, other.lte),
                };
                set.normalize_bounds();
                set.drop_exclusions_out_of_bounds(interner);
                return set;
            }
            (false, true) => retained(&self.values, |value| other.contains(Some(value), interner)),
            (true, false) => retained(&other.values, |value| self.contains(Some(value), interner)),
            (false, false) => retained(&self.values, |value| other.values.binary_search(&value).is_ok()),
        };
        Self { absent, values, ..Self::nothing() }
    }

    /// Whether the sets have something in common. Allocates nothing.
    pub fn intersects(&self, other: &Self, interner: &Interner) -> bool {
        if self.absent && other.absent {
            return true;
        }
        match (self.complement, other.complement) {
            (true, true) => {
                let (low, high) = (self.low().max(other.low()), self.high().min(other.high()));
                low <= high
            }
            (false, _) => self.values.iter().any(|&value| other.contains(Some(value), interner)),
            (true, false) => other.values.iter().any(|&value| self.contains(Some(value), interner)),
        }
    }

    /// Whether everything in this set is in `other` too.
    pub fn is_subset(&self, other: &Self, interner: &Interner) -> bool {
        if self.absent && !other.absent {
            return false;
        }
        if !self.complement {
            return self.values.iter().all(|&value| other.contains(Some(value), interner));
        }
        let bounds_within =
            !other.is_bounded() || (self.is_bounded() && self.low() >= other.low() && self.high() <= other.high());
        other.complement
            && bounds_within
            && other.values.iter().all(|&excluded| !self.contains(Some(excluded), interner))
    }

    /// Whether the set holds `value`, or absence for `None`.
    pub fn contains(&self, value: Option<ValueId>, interner: &Interner) -> bool {
        match value {
            None => self.absent,
            Some(value) => {
                let listed = self.values.binary_search(&value).is_ok();
                listed != self.complement && self.in_bounds(value, interner)
            }
        }
    }

    /// Whether the set holds nothing at all, so that no node can satisfy it.
    pub fn is_empty(&self) -> bool {
        !self.absent && self.has_no_value()
    }

    /// Whether the set holds everything, absence too.
    pub fn is_any(&self) -> bool {
        self.absent && self.complement && self.values.is_empty()
    }

    /// Whether the key may be absent.
    pub const fn allows_absent(&self) -> bool {
        self.absent
    }

    /// Whether the set holds no value; absence may still be in it.
    pub fn has_no_value(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// The values, sorted by id, if they are finitely many.
    pub fn finite_values(&self) -> Option<&[ValueId]> {
        if self.complement { None } else { Some(&self.values) }
    }

    /// The values that are left out, sorted by id, if there are infinitely many others.
    pub fn excluded_values(&self) -> Option<&[ValueId]> {
        if self.complement { Some(&self.values) } else { None }
    }

    /// The least and the greatest integer allowed, where there is one.
    pub const fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.gte, self.lte)
    }

    /// The only value, if there is exactly one and the key may not be absent.
    pub fn single_value(&self) -> Option<ValueId> {
        match (self.absent, self.finite_values()) {
            (false, Some(&[value])) => Some(value),
            _ => None,
        }
    }

    /// The operator that names the set's kind, as Karpenter prints it: bounds count as Exists.
    /// [`ValueSet::to_expressions`] tells everything.
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (false, true) if self.absent => Operator::DoesNotExist,
            (false, _) => Operator::In,
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
        }
    }

    /// Expressions whose conjunction is this set; none for [`ValueSet::any`].
    ///
    /// Differs: `bounds-and-exclusions`. Karpenter writes the bounds alone if there are exclusions too.
    pub fn to_expressions(&self) -> SmallVec<[Expression; 3]> {
        if self.is_empty() {
            // Kubernetes has no expression for it; these two contradict each other.
            return smallvec![Expression::Exists, Expression::DoesNotExist];
        }
        if !self.complement {
            return smallvec![match self.absent {
                true => Expression::DoesNotExist,
                false => Expression::In(self.values.clone()),
            }];
        }
        let mut expressions = SmallVec::new();
        expressions.extend(self.gte.map(Expression::Gte));
        expressions.extend(self.lte.map(Expression::Lte));
        if !self.absent && expressions.is_empty() {
            expressions.push(Expression::Exists);
        }
        if !self.values.is_empty() {
            expressions.push(Expression::NotIn(self.values.clone()));
        }
        expressions
    }

    /// Prints the set in Karpenter's style, as it stands behind a key: `In [a b]`, `Exists >=3`.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| self.write(f, interner))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, interner: &Interner) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("In []");
        }
        if self.is_any() {
            return f.write_str("Any");
        }
        for (place, expression) in self.to_expressions().iter().enumerate() {
            if place > 0 {
                f.write_str(" ")?;
            }
            match expression {
                Expression::Exists | Expression::DoesNotExist => write!(f, "{}", expression.operator())?,
                Expression::Gte(bound) => write!(f, ">={bound}")?,
                Expression::Lte(bound) => write!(f, "<={bound}")?,
                Expression::In(_) | Expression::NotIn(_) => {
                    let mut values = expression.values(interner);
                    if let Some(others) = values.len().checked_sub(PRINTED_VALUES).filter(|&others| others > 0) {
                        values.truncate(PRINTED_VALUES);
                        values.push(format!("and {others} others"));
                    }
                    write!(f, "{} [{}]", expression.operator(), values.join(" "))?;
                }
            }
        }
        Ok(())
    }

    /// A value of the set for a label that the machine must be given: the least by name among listed ones, else the
    /// least integer that is allowed. `None` if the set holds no value.
    ///
    /// Differs: `open-label-value`. Karpenter draws a random integer; this is the same on every run.
    pub fn any_value(&self, interner: &Interner) -> Option<Arc<str>> {
        if !self.complement {
            let least = self.values.iter().copied().min_by_key(|&value| interner.value_name(value));
            return least.map(|value| interner.value_arc(value));
        }
        // Each exclusion can spoil one candidate at most, so this ends; a small range is tried again with more zeros.
        let (low, high) = (self.low(), self.high());
        let wanted = i64::try_from(self.values.len()).unwrap_or(i64::MAX);
        let last = low.saturating_add(wanted).min(high);
        (0..LABEL_VALUE_MAX_LEN).find_map(|zeros| {
            (low..=last).find_map(|int| {
                let text = format!("{}{int}", "0".repeat(zeros));
                if text.len() > LABEL_VALUE_MAX_LEN {
                    return None;
                }
                let excluded =
                    interner.find_value(&text).is_some_and(|value| self.values.binary_search(&value).is_ok());
                (!excluded).then(|| text.into())
            })
        })
    }

    fn is_bounded(&self) -> bool {
        self.gte.is_some() || self.lte.is_some()
    }

    fn low(&self) -> i64 {
        self.gte.unwrap_or(0)
    }

    fn high(&self) -> i64 {
        self.lte.unwrap_or(i64::MAX)
    }

    fn in_bounds(&self, value: ValueId, interner: &Interner) -> bool {
        !self.is_bounded() || interner.value_int(value).is_some_and(|int| self.low() <= int && int <= self.high())
    }

    /// Brings bounds into the one form they have. A set with bounds never holds absence: only [`ValueSet::range`] puts
    /// bounds on one, and what it is intersected with cannot bring absence back.
    fn normalize_bounds(&mut self) {
        if !self.is_bounded() {
            return;
        }
        let (low, high) = (self.low().max(0), self.high());
        if low > high {
            *self = Self::nothing();
            return;
        }
        let open_above = high == i64::MAX;
        self.gte = (open_above || low > 0).then_some(low);
        self.lte = (!open_above).then_some(high);
    }

    fn drop_exclusions_out_of_bounds(&mut self, interner: &Interner) {
        if self.is_bounded() {
            let values = std::mem::take(&mut self.values);
            self.values = retained(&values, |value| self.in_bounds(value, interner));
        }
    }
}

/// Longest label value that Kubernetes accepts, in bytes.
const LABEL_VALUE_MAX_LEN: usize = 63;

impl Expression {
    /// The operator as it is written.
    pub const fn operator(&self) -> Operator {
        match self {
            Self::In(_) => Operator::In,
            Self::NotIn(_) => Operator::NotIn,
            Self::Exists => Operator::Exists,
            Self::DoesNotExist => Operator::DoesNotExist,
            Self::Gte(_) => Operator::Gte,
            Self::Lte(_) => Operator::Lte,
        }
    }

    /// The values as they are written, sorted.
    pub fn values(&self, interner: &Interner) -> Vec<String> {
        match self {
            Self::In(values) | Self::NotIn(values) => {
                let mut names: Vec<_> = values.iter().map(|&value| interner.value_name(value).to_owned()).collect();
                names.sort_unstable();
                names
            }
            Self::Exists | Self::DoesNotExist => Vec::new(),
            Self::Gte(bound) | Self::Lte(bound) => vec![bound.to_string()],
        }
    }

    /// The set that the expression stands for.
    pub fn to_set(&self) -> ValueSet {
        match self {
            Self::In(values) => ValueSet::among(values.iter().copied()),
            Self::NotIn(values) => ValueSet { values: sorted(values.iter().copied()), ..ValueSet::any() },
            Self::Exists => ValueSet::exists(),
            Self::DoesNotExist => ValueSet::only_absent(),
            Self::Gte(bound) => ValueSet::range(Some(*bound), None),
            Self::Lte(bound) => ValueSet::range(None, Some(*bound)),
        }
    }
}

fn sorted(values: impl IntoIterator<Item = ValueId>) -> Values {
    let mut values: Values = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    values
}

fn union(a: &[ValueId], b: &[ValueId]) -> Values {
    sorted(a.iter().chain(b).copied())
}

fn retained(values: &[ValueId], keep: impl Fn(ValueId) -> bool) -> Values {
    values.iter().copied().filter(|&value| keep(value)).collect()
}

fn tighter_upper(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (bound, None) | (None, bound) => bound,
    }
}
