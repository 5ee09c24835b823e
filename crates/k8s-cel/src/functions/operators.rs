//! Arithmetic and comparison.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Context;
use crate::error::EvalError;
use crate::value::{Map, Value};

type Outcome = Result<Value, EvalError>;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

/// Seconds from year 1 to year 9999, the range of a timestamp.
const MIN_TIMESTAMP_NS: i128 = -62_135_596_800 * 1_000_000_000;
const MAX_TIMESTAMP_NS: i128 = 253_402_300_799 * 1_000_000_000 + 999_999_999;

pub(crate) fn timestamp(nanos: i128) -> Outcome {
    if (MIN_TIMESTAMP_NS..=MAX_TIMESTAMP_NS).contains(&nanos) {
        Ok(Value::Timestamp(nanos))
    } else {
        Err(EvalError::invalid("timestamp overflow"))
    }
}

fn duration(nanos: Option<i64>) -> Outcome {
    nanos.map(Value::Duration).ok_or(EvalError::Overflow)
}

pub(crate) fn add(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(a), Value::Int(b)] => a.checked_add(*b).map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_add(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => Ok(Value::string([&**a, &**b].concat())),
        [Value::Bytes(a), Value::Bytes(b)] => Ok(Value::Bytes([&**a, &**b].concat().into())),
        [Value::List(a), Value::List(b)] => Ok(Value::List(a.iter().chain(&**b).cloned().collect())),
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_add(*b)),
        [Value::Timestamp(at), Value::Duration(by)] | [Value::Duration(by), Value::Timestamp(at)] => {
            timestamp(at + i128::from(*by))
        }
        _ => no_overload("_+_"),
    }
}

pub(crate) fn subtract(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(a), Value::Int(b)] => a.checked_sub(*b).map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_sub(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Duration(a), Value::Duration(b)] => duration(a.checked_sub(*b)),
        [Value::Timestamp(at), Value::Duration(by)] => timestamp(at - i128::from(*by)),
        [Value::Timestamp(a), Value::Timestamp(b)] => duration(i64::try_from(a - b).ok()),
        _ => no_overload("_-_"),
    }
}

pub(crate) fn least(_: Context<'_>, args: &[Value]) -> Outcome {
    of_two_numbers("min", args, Ordering::Less)
}

pub(crate) fn greatest(_: Context<'_>, args: &[Value]) -> Outcome {
    of_two_numbers("max", args, Ordering::Greater)
}

/// The left number if it compares so with the right one, else that; a double where either is.
fn of_two_numbers(function: &str, args: &[Value], wanted: Ordering) -> Outcome {
    let double =
        |left: f64, right: f64| Ok(Value::Double(if left.partial_cmp(&right) == Some(wanted) { left } else { right }));
    match *args {
        [Value::Int(left), Value::Int(right)] => Ok(Value::Int(if left.cmp(&right) == wanted { left } else { right })),
        [Value::Double(left), Value::Double(right)] => double(left, right),
        [Value::Int(left), Value::Double(right)] => double(left as f64, right),
        [Value::Double(left), Value::Int(right)] => double(left, right as f64),
        _ => no_overload(function),
    }
}

pub(crate) fn multiply(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(a), Value::Int(b)] => a.checked_mul(*b).map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_mul(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => no_overload("_*_"),
    }
}

pub(crate) fn divide(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::DivisionByZero),
        [Value::Int(a), Value::Int(b)] => a.checked_div(*b).map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_div(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => no_overload("_/_"),
    }
}

pub(crate) fn modulo(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => Err(EvalError::ModulusByZero),
        [Value::Int(a), Value::Int(b)] => a.checked_rem(*b).map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Uint(a), Value::Uint(b)] => a.checked_rem(*b).map(Value::Uint).ok_or(EvalError::Overflow),
        _ => no_overload("_%_"),
    }
}

pub(crate) fn negate(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(a)] => a.checked_neg().map(Value::Int).ok_or(EvalError::Overflow),
        [Value::Double(a)] => Ok(Value::Double(-a)),
        _ => no_overload("-_"),
    }
}

pub(crate) fn not(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Bool(a)] => Ok(Value::Bool(!a)),
        _ => no_overload("!_"),
    }
}

fn compare(args: &[Value], holds: fn(Ordering) -> bool) -> Outcome {
    match args {
        [a, b] => a.compare(b).map(|order| Value::Bool(holds(order))),
        _ => no_overload("compare"),
    }
}

pub(crate) fn less(_: Context<'_>, args: &[Value]) -> Outcome {
    compare(args, Ordering::is_lt)
}

pub(crate) fn less_equals(_: Context<'_>, args: &[Value]) -> Outcome {
    compare(args, Ordering::is_le)
}

pub(crate) fn greater(_: Context<'_>, args: &[Value]) -> Outcome {
    compare(args, Ordering::is_gt)
}

pub(crate) fn greater_equals(_: Context<'_>, args: &[Value]) -> Outcome {
    compare(args, Ordering::is_ge)
}

pub(crate) fn contained_in(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value, Value::List(list)] => Ok(Value::Bool(list.iter().any(|element| element.equals(value)))),
        [key, Value::Map(map)] => Ok(Value::Bool(map.contains(key))),
        _ => no_overload("@in"),
    }
}

pub(crate) fn dynamic(_: Context<'_>, args: &[Value]) -> Outcome {
    args.first().cloned().map_or_else(|| no_overload("dyn"), Ok)
}

/// `cel.@mapInsert`, made by macros only.
pub(crate) fn map_insert(_: Context<'_>, args: &[Value]) -> Outcome {
    let insert = |map: &Map, added: Vec<(Value, Value)>| {
        let mut pairs = map.pairs();
        for (key, value) in added {
            if pairs.iter().any(|(found, _)| found.equals(&key)) {
                return Err(EvalError::invalid("insert failed: key already exists"));
            }
            pairs.push((key, value));
        }
        Ok(Value::Map(Arc::new(Map::Pairs(pairs))))
    };
    match args {
        [Value::Map(map), key, value] => insert(map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(more)] => insert(map, more.pairs()),
        _ => no_overload("cel.@mapInsert"),
    }
}
