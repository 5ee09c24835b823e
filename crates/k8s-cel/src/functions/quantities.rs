//! `quantity(…)` and `semver(…)` and what they can do.

use std::cmp::Ordering;
use std::sync::Arc;

use model::Quantity;

use super::Context;
use super::amount::Amount;
use crate::error::EvalError;
use crate::value::Value;
use dra_types::SemanticVersion;

type Outcome = Result<Value, EvalError>;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

pub(crate) fn quantity(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Amount::parse(text).map(Value::Quantity).map_err(EvalError::invalid),
        _ => no_overload("quantity"),
    }
}

pub(crate) fn is_quantity(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        // Ours end at 64 bits, upstream's do not.
        [Value::String(text)] => Ok(Value::Bool(matches!(
            Quantity::parse(text),
            Ok(_) | Err(model::quantity::Error::TooLarge { .. } | model::quantity::Error::ExponentOutOfRange { .. })
        ))),
        _ => no_overload("isQuantity"),
    }
}

pub(crate) fn sign(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value] => match nano(value) {
            Some(nano) => Ok(Value::Int(i64::try_from(nano.signum()).unwrap_or_default())),
            None => no_overload("sign"),
        },
        _ => no_overload("sign"),
    }
}

/// A quantity or sum.
fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::Quantity(amount) | Value::Sum(amount) => Some(*amount),
        _ => None,
    }
}

/// Nano-units of a quantity or sum.
fn nano(value: &Value) -> Option<i128> {
    amount(value).map(Amount::nano)
}

pub(crate) fn is_integer(_: Context<'_>, args: &[Value]) -> Outcome {
    match args.first().and_then(amount) {
        Some(amount) => Ok(Value::Bool(amount.integer().is_some())),
        None => no_overload("isInteger"),
    }
}

pub(crate) fn as_integer(_: Context<'_>, args: &[Value]) -> Outcome {
    match args.first().and_then(amount) {
        Some(amount) => {
            let integer = amount.integer().map(Value::Int);
            integer.ok_or_else(|| EvalError::invalid("cannot convert value to integer"))
        }
        None => no_overload("asInteger"),
    }
}

pub(crate) fn as_approximate_float(_: Context<'_>, args: &[Value]) -> Outcome {
    match args.first().and_then(amount) {
        Some(amount) => Ok(Value::Double(amount.approximate())),
        None => no_overload("asApproximateFloat"),
    }
}

/// Adds or subtracts: a quantity and a quantity or int. Sums may leave the range of quantities.
fn sum(function: &str, args: &[Value], operation: fn(Amount, Amount) -> Option<Amount>) -> Outcome {
    let [left, right] = args else { return no_overload(function) };
    let right = match right {
        Value::Int(value) => Some(Amount::whole(*value)),
        other => amount(other),
    };
    match (amount(left), right) {
        (Some(left), Some(right)) => {
            operation(left, right).map(Value::Sum).ok_or_else(|| EvalError::invalid("sum of quantities is too large"))
        }
        _ => no_overload(function),
    }
}

pub(crate) fn add(_: Context<'_>, args: &[Value]) -> Outcome {
    sum("add", args, Amount::plus)
}

pub(crate) fn sub(_: Context<'_>, args: &[Value]) -> Outcome {
    sum("sub", args, Amount::minus)
}

fn order(args: &[Value]) -> Option<Ordering> {
    match args {
        [Value::Semver(a), Value::Semver(b)] => Some(a.cmp(b)),
        [a, b] => Some(nano(a)?.cmp(&nano(b)?)),
        _ => None,
    }
}

pub(crate) fn compare_to(_: Context<'_>, args: &[Value]) -> Outcome {
    order(args).map_or_else(|| no_overload("compareTo"), |order| Ok(Value::Int(order as i64)))
}

pub(crate) fn is_greater_than(_: Context<'_>, args: &[Value]) -> Outcome {
    order(args).map_or_else(|| no_overload("isGreaterThan"), |order| Ok(Value::Bool(order.is_gt())))
}

pub(crate) fn is_less_than(_: Context<'_>, args: &[Value]) -> Outcome {
    order(args).map_or_else(|| no_overload("isLessThan"), |order| Ok(Value::Bool(order.is_lt())))
}

fn parse(args: &[Value]) -> Option<Result<SemanticVersion, EvalError>> {
    let parsed = match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => SemanticVersion::parse(text),
        [Value::String(text), Value::Bool(true)] => SemanticVersion::parse_normalized(text),
        _ => return None,
    };
    Some(parsed.map_err(EvalError::invalid))
}

pub(crate) fn semver(_: Context<'_>, args: &[Value]) -> Outcome {
    match parse(args) {
        Some(parsed) => parsed.map(|version| Value::Semver(Arc::new(version))),
        None => no_overload("semver"),
    }
}

pub(crate) fn is_semver(_: Context<'_>, args: &[Value]) -> Outcome {
    match parse(args) {
        Some(parsed) => Ok(Value::Bool(parsed.is_ok())),
        None => no_overload("isSemver"),
    }
}

fn part(args: &[Value], part: fn(&SemanticVersion) -> u64) -> Outcome {
    match args {
        // Numbers beyond i64 wrap around, as Go's conversion does.
        [Value::Semver(version)] => Ok(Value::Int(i64::from_ne_bytes(part(version).to_ne_bytes()))),
        _ => no_overload("major"),
    }
}

pub(crate) fn major(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |version| version.major)
}

pub(crate) fn minor(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |version| version.minor)
}

pub(crate) fn patch(_: Context<'_>, args: &[Value]) -> Outcome {
    part(args, |version| version.patch)
}
