//! `quantity(…)` and `semver(…)` and what they can do.

use std::cmp::Ordering;
use std::sync::Arc;

use model::Quantity;
use model::quantity::Format;

use super::Context;
use crate::cel::error::EvalError;
use crate::cel::value::Value;
use crate::types::SemanticVersion;

type Outcome = Result<Value, EvalError>;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

const NANO_PER_UNIT: i128 = 1_000_000_000;

pub(crate) fn quantity(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Quantity::parse(text).map(Value::Quantity).map_err(EvalError::invalid),
        _ => no_overload("quantity"),
    }
}

pub(crate) fn is_quantity(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        _ => no_overload("isQuantity"),
    }
}

pub(crate) fn sign(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value) | Value::Sum(value)] => {
            Ok(Value::Int(i64::try_from(value.to_nano().signum()).unwrap_or_default()))
        }
        _ => no_overload("sign"),
    }
}

/// The whole number, if it is one.
fn whole(value: Quantity) -> Option<i64> {
    let nano = value.to_nano();
    if nano % NANO_PER_UNIT == 0 { i64::try_from(nano / NANO_PER_UNIT).ok() } else { None }
}

pub(crate) fn is_integer(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value) | Value::Sum(value)] => Ok(Value::Bool(whole(*value).is_some())),
        _ => no_overload("isInteger"),
    }
}

pub(crate) fn as_integer(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value) | Value::Sum(value)] => {
            whole(*value).map(Value::Int).ok_or_else(|| EvalError::invalid("cannot convert value to integer"))
        }
        _ => no_overload("asInteger"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "the function is called approximate")]
pub(crate) fn as_approximate_float(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(value) | Value::Sum(value)] => {
            let nano = value.to_nano();
            let (units, rest) = (nano / NANO_PER_UNIT, nano % NANO_PER_UNIT);
            Ok(Value::Double(units as f64 + rest as f64 / NANO_PER_UNIT as f64))
        }
        _ => no_overload("asApproximateFloat"),
    }
}

/// The right side of `add` and `sub`: a quantity or an int.
fn other(value: &Value) -> Option<Quantity> {
    match value {
        Value::Quantity(value) | Value::Sum(value) => Some(*value),
        Value::Int(value) => Quantity::from_i64(*value, Format::DecimalSi).ok(),
        _ => None,
    }
}

pub(crate) fn add(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(a) | Value::Sum(a), b] => match other(b) {
            Some(b) => a.checked_add(b).map(Value::Sum).map_err(EvalError::invalid),
            None => no_overload("add"),
        },
        _ => no_overload("add"),
    }
}

pub(crate) fn sub(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Quantity(a) | Value::Sum(a), b] => match other(b) {
            Some(b) => a.checked_sub(b).map(Value::Sum).map_err(EvalError::invalid),
            None => no_overload("sub"),
        },
        _ => no_overload("sub"),
    }
}

fn order(args: &[Value]) -> Option<Ordering> {
    match args {
        [Value::Quantity(a) | Value::Sum(a), Value::Quantity(b) | Value::Sum(b)] => Some(a.cmp(b)),
        [Value::Semver(a), Value::Semver(b)] => Some(a.cmp(b)),
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
