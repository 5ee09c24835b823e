//! The general evaluator: walks a [`Plan`] over a device and counts what it costs, unit for unit like cel-go.
//!
//! Errors are values of their own kind: `||` and `&&` absorb them where the other side decides. Only running out of
//! cost ends everything at once. Recursion is bounded by the depth of the plan, which the parser bounds.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cost::CallCost;
use super::error::EvalError;
use super::functions::Context;
use super::library::Overload;
use super::plan::{Attribute, Base, Call, Callee, Fold, Key, Plan, Qualifier, pairs_map};
use super::value::Value;

pub(crate) type Outcome = Result<Value, EvalError>;

/// What a variable holds.
enum Local {
    Unset,
    Value(Outcome),
    /// An accumulator that nobody has looked at yet.
    Lazy,
}

pub(crate) struct Evaluator<'a> {
    device: &'a Value,
    locals: Vec<Local>,
    /// The initial value of each fold that is running, by where its accumulator is.
    inits: Vec<(usize, &'a Plan)>,
    cost: u64,
    limit: u64,
}

/// What an evaluation came to, and its cost in upstream's units.
pub(crate) fn evaluate(plan: &Plan, device: &Value, limit: u64) -> (Outcome, u64) {
    let mut evaluator = Evaluator { device, locals: Vec::new(), inits: Vec::new(), cost: 0, limit };
    let outcome = evaluator.run(plan);
    (outcome, evaluator.cost)
}

pub(crate) fn is_final(error: &EvalError) -> bool {
    matches!(error, EvalError::CostLimitExceeded | EvalError::Internal)
}

impl<'a> Evaluator<'a> {
    fn charge(&mut self, units: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(units);
        if self.cost > self.limit { Err(EvalError::CostLimitExceeded) } else { Ok(()) }
    }

    fn run(&mut self, plan: &'a Plan) -> Outcome {
        match plan {
            Plan::Constant(value) => Ok(value.clone()),
            other => super::with_stack(|| self.run_within(other)),
        }
    }

    fn run_within(&mut self, plan: &'a Plan) -> Outcome {
        match plan {
            Plan::Constant(value) => Ok(value.clone()),
            Plan::Attribute(attribute) => {
                let value = self.resolve(attribute, false);
                if value.as_ref().is_err_and(is_final) {
                    return value;
                }
                if !matches!(attribute.base, Base::Conditional { .. }) {
                    self.charge(1)?;
                }
                value
            }
            Plan::Presence(attribute) => match self.resolve(attribute, true)? {
                Value::Optional(value) => Ok(Value::Bool(value.is_some())),
                value => Ok(value),
            },
            Plan::And(left, right) => self.logical(left, right, false),
            Plan::Or(left, right) => self.logical(left, right, true),
            Plan::NotStrictlyFalse(operand) => {
                let value = self.run(operand);
                if value.as_ref().is_err_and(is_final) {
                    return value;
                }
                self.charge(1)?;
                Ok(match value {
                    Ok(Value::Bool(false)) => Value::Bool(false),
                    _ => Value::Bool(true),
                })
            }
            Plan::Equals { left, right, negated } => self.equals(left, right, *negated),
            Plan::Member { value, set } => {
                let value = self.run(value)?;
                member(&value, set)
            }
            Plan::OptionalOr { left, right, unwrap } => match self.run(left)? {
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                Value::Optional(None) => self.run(right),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(EvalError::no_overload(if *unwrap { "orValue" } else { "or" })),
            },
            Plan::Call(call) => self.call(call),
            Plan::List(elements) => self.list(elements),
            Plan::Map(entries) => self.map(entries),
            Plan::Fold(fold) => self.fold(fold),
        }
    }

    fn logical(&mut self, left: &'a Plan, right: &'a Plan, decides: bool) -> Outcome {
        let function = if decides { "_||_" } else { "_&&_" };
        let mut failed = None;
        for term in [left, right] {
            match self.run(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(EvalError::no_overload(function))),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn equals(&mut self, left: &'a Plan, right: &'a Plan, negated: bool) -> Outcome {
        let left = self.run(left);
        if left.as_ref().is_err_and(is_final) {
            return left;
        }
        let right = self.run(right);
        if right.as_ref().is_err_and(is_final) {
            return right;
        }
        let (units, outcome) = equality(&left, &right, negated);
        self.charge(units)?;
        outcome
    }

    fn call(&mut self, call: &'a Call) -> Outcome {
        let mut args = Vec::with_capacity(call.args.len());
        for (index, arg) in call.args.iter().enumerate() {
            let value = self.run(arg);
            match &value {
                Err(error) if is_final(error) => return value,
                Err(_) if call.callee.stops_at_error && index + 1 < call.args.len() => return value,
                _ => args.push(value),
            }
        }
        let (units, outcome) = apply(&call.callee, &args);
        self.charge(units)?;
        outcome
    }

    fn list(&mut self, elements: &'a [(Plan, bool)]) -> Outcome {
        let mut values = Vec::with_capacity(elements.len());
        let mut failed = None;
        for (element, optional) in elements {
            match (self.run(element), optional) {
                (Err(error), _) => {
                    failed = Some(error);
                    break;
                }
                (Ok(value), false) => values.push(value),
                (Ok(Value::Optional(value)), true) => values.extend(value.map(|value| (*value).clone())),
                (Ok(_), true) => {
                    failed = Some(EvalError::invalid("cannot initialize optional list element from a plain value"));
                    break;
                }
            }
        }
        self.built(10, failed, || Value::list(values))
    }

    fn map(&mut self, entries: &'a [(Plan, Plan, bool)]) -> Outcome {
        let mut pairs = Vec::with_capacity(entries.len());
        let mut failed = None;
        for (key, value, optional) in entries {
            let entry = self.run(key).and_then(|key| self.run(value).map(|value| (key, value)));
            match (entry, optional) {
                (Err(error), _) => {
                    failed = Some(error);
                    break;
                }
                (Ok(entry), false) => pairs.push(entry),
                (Ok((key, Value::Optional(value))), true) => pairs.extend(value.map(|value| (key, (*value).clone()))),
                (Ok(_), true) => {
                    failed = Some(EvalError::invalid("cannot initialize optional entry from a plain value"));
                    break;
                }
            }
        }
        self.built(30, failed, || Value::Map(Arc::new(pairs_map(pairs))))
    }

    /// Charges for a container that was built, or failed to be.
    fn built(&mut self, units: u64, failed: Option<EvalError>, value: impl FnOnce() -> Value) -> Outcome {
        match failed {
            Some(error) if is_final(&error) => Err(error),
            Some(error) => {
                self.charge(units)?;
                Err(error)
            }
            None => {
                self.charge(units)?;
                Ok(value())
            }
        }
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome {
        let range = self.run(&fold.range)?;
        let needed = fold.base + 3;
        while self.locals.len() < needed {
            self.locals.push(Local::Unset);
        }
        self.set(fold.base, Local::Lazy);
        self.inits.push((fold.base, &fold.init));
        let outcome = match self.iterate(fold, &range) {
            Ok(()) => self.run(&fold.result),
            Err(error) => Err(error),
        };
        self.inits.pop();
        outcome
    }

    fn iterate(&mut self, fold: &'a Fold, range: &Value) -> Result<(), EvalError> {
        let pairs: Vec<(Value, Value)> = match range {
            Value::List(list) if fold.two => list
                .iter()
                .enumerate()
                .map(|(index, value)| (Value::Int(i64::try_from(index).unwrap_or(i64::MAX)), value.clone()))
                .collect(),
            Value::List(list) => list.iter().map(|value| (value.clone(), Value::Null)).collect(),
            Value::Map(map) => map.pairs(),
            other => {
                return Err(EvalError::invalid(format_args!("got '{}', expected iterable type", other.type_name())));
            }
        };
        for (first, second) in pairs {
            let second = second.known(|| printed(&first));
            self.set(fold.base + 1, Local::Value(Ok(first)));
            self.set(fold.base + 2, Local::Value(second));
            match self.run(&fold.condition) {
                Ok(Value::Bool(false)) => return Ok(()),
                Err(error) if is_final(&error) => return Err(error),
                _ => {}
            }
            let value = self.run(&fold.step);
            if value.as_ref().is_err_and(is_final) {
                return value.map(|_| ());
            }
            self.set(fold.base, Local::Value(value));
        }
        Ok(())
    }

    fn set(&mut self, position: usize, local: Local) {
        if let Some(slot) = self.locals.get_mut(position) {
            *slot = local;
        }
    }

    fn local(&mut self, position: usize) -> Outcome {
        match self.locals.get(position) {
            Some(Local::Value(value)) => value.clone(),
            Some(Local::Lazy) => {
                let init = self.inits.iter().rev().find(|(base, _)| *base == position).map(|(_, init)| *init);
                let Some(init) = init else { return Err(EvalError::no_overload("fold")) };
                let value = self.run(init);
                if value.as_ref().is_err_and(is_final) {
                    return value;
                }
                self.set(position, Local::Value(value.clone()));
                value
            }
            Some(Local::Unset) | None => Err(EvalError::no_overload("variable")),
        }
    }

    /// The value of an attribute. Its qualifiers are charged for, the attribute itself is not.
    fn resolve(&mut self, attribute: &'a Attribute, presence: bool) -> Outcome {
        let base: Cow<'a, Value> = match &attribute.base {
            Base::Device | Base::HiddenDevice => Cow::Borrowed(self.device),
            Base::Local(position) => Cow::Owned(self.local(*position)?),
            Base::Relative(plan) => Cow::Owned(self.run(plan)?),
            Base::Conditional { condition, then, otherwise } => match self.run(condition)? {
                Value::Bool(true) => return self.resolve(then, presence),
                Value::Bool(false) => return self.resolve(otherwise, presence),
                _ => return Err(EvalError::no_overload("_?_:_")),
            },
        };
        let is_counted = !matches!(attribute.base, Base::HiddenDevice);
        self.qualify(base, &attribute.qualifiers, presence, is_counted)
    }

    fn qualify(
        &mut self,
        base: Cow<'a, Value>,
        qualifiers: &'a [Qualifier],
        presence: bool,
        is_counted: bool,
    ) -> Outcome {
        let mut optional = false;
        let mut value = match &*base {
            Value::Optional(None) if !qualifiers.is_empty() => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) if !qualifiers.is_empty() => {
                optional = true;
                Cow::Owned((**inner).clone())
            }
            _ => base,
        };
        let last = qualifiers.len().wrapping_sub(1);
        for (index, qualifier) in qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let key = match &qualifier.key {
                Key::Constant(key) => Cow::Borrowed(key),
                Key::Dynamic(attribute) => match self.resolve(attribute, false).and_then(as_key) {
                    Ok(key) => Cow::Owned(key),
                    Err(error) if is_final(&error) => return Err(error),
                    Err(error) => {
                        self.charge(u64::from(is_counted && !optional))?;
                        return Err(error);
                    }
                },
            };
            let found = read(&value, &key, optional || (presence && index == last));
            if presence && index == last {
                let is_free = optional && matches!(found, Ok(None));
                self.charge(u64::from(is_counted && !is_free))?;
                return found.map(|found| Value::Bool(found.is_some()));
            }
            // What is not there costs nothing where that is no error.
            if !matches!(found, Ok(None)) || !optional {
                let counted = found.is_ok() || !optional;
                self.charge(u64::from(is_counted && counted))?;
            }
            match found? {
                Some(found) => value = Cow::Owned(found.known(|| printed(&key))?),
                None => return Ok(Value::Optional(None)),
            }
        }
        let value = value.into_owned();
        Ok(if optional { Value::some(value) } else { value })
    }
}

/// A value that a step may be taken by.
fn as_key(key: Value) -> Outcome {
    match key {
        Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => Ok(key),
        other => Err(EvalError::invalid(format_args!("invalid qualifier type: {}", other.type_name()))),
    }
}

/// Whether a value is one of a list of constants. Upstream looks it up by its hash and crashes on what has none.
pub(crate) fn member(value: &Value, set: &[Value]) -> Outcome {
    match value {
        Value::Semver(_) | Value::Bytes(_) | Value::Format(_) => Err(EvalError::Internal),
        _ => Ok(Value::Bool(set.iter().any(|element| element.equals(value)))),
    }
}

/// `==` or `!=`, with its units.
pub(crate) fn equality(left: &Outcome, right: &Outcome, negated: bool) -> (u64, Outcome) {
    let size = |value: &Outcome| value.as_ref().map_or(1, Value::cost_size);
    let units = match left {
        Ok(value) if value.is_own_type() && !negated => 1,
        _ => CallCost::tenth(size(left).min(size(right))),
    };
    let (left, right) = match (left, right) {
        (Err(error), _) | (Ok(_), Err(error)) => return (units, Err(error.clone())),
        (Ok(left), Ok(right)) => (left, right),
    };
    if !left.compares_with(right) {
        return (units, if negated { Ok(Value::Bool(true)) } else { Err(EvalError::no_overload("_==_")) });
    }
    (units, Ok(Value::Bool(left.equals(right) != negated)))
}

/// A call, with its units.
pub(crate) fn apply(callee: &Callee, args: &[Outcome]) -> (u64, Outcome) {
    let outcome = run(callee, args);
    if outcome.as_ref().is_err_and(is_final) {
        return (0, outcome);
    }
    if callee.cost.needs_list(args) {
        return (0, Err(EvalError::Internal));
    }
    (callee.cost.of_call(args, &outcome), outcome)
}

fn run(callee: &Callee, args: &[Outcome]) -> Outcome {
    let mut values: SmallVec<[Value; 3]> = SmallVec::with_capacity(args.len());
    for arg in args {
        values.push(arg.clone()?);
    }
    if let (true, [value @ Value::Format(_)]) = (callee.overloads.is_empty(), values.as_slice()) {
        return Ok(value.clone());
    }
    let fits = |overload: &&&Overload| {
        // Upstream's flatten and sorts look at elements themselves, if the types did not tell.
        let takes_any_list = match values.as_slice() {
            [Value::List(_)] => overload.id == "list_flatten" || overload.id.ends_with("_sort"),
            [Value::List(_), Value::List(_)] => overload.id.ends_with("_sortByAssociatedKeys"),
            _ => false,
        };
        takes_any_list
            || overload.params.len() == values.len()
                && overload.params.iter().zip(&values).all(|(param, value)| param.matches(value))
    };
    let run = callee.overloads.iter().find(fits).and_then(|overload| overload.run);
    match run {
        Some(run) => run(Context { regex: callee.regex.as_ref() }, &values),
        None => Err(EvalError::NoSuchOverload(callee.function.clone())),
    }
}

/// One step into a value. None for what is missing, which is an error unless asked for presence.
fn read(value: &Value, key: &Value, presence: bool) -> Result<Option<Value>, EvalError> {
    let missing = |error: EvalError| if presence { Ok(None) } else { Err(error) };
    match value {
        Value::Map(map) => match map.get(key) {
            Some(found) => Ok(Some(found)),
            None => missing(EvalError::NoSuchKey(printed(key))),
        },
        Value::List(list) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                #[allow(clippy::cast_possible_truncation, reason = "checked to be whole")]
                Value::Double(index) if index.fract() == 0.0 => usize::try_from(*index as i64).ok(),
                _ => return Err(EvalError::invalid("unsupported index type in list")),
            };
            match index.and_then(|index| list.get(index)) {
                Some(found) => Ok(Some(found.clone())),
                None => missing(EvalError::IndexOutOfBounds(printed(key))),
            }
        }
        _ => missing(EvalError::NoSuchKey(printed(key))),
    }
}

fn printed(key: &Value) -> Arc<str> {
    match key {
        Value::String(text) => text.clone(),
        Value::Int(number) => number.to_string().into(),
        Value::Uint(number) => number.to_string().into(),
        Value::Bool(value) => value.to_string().into(),
        other => other.type_name().into(),
    }
}
