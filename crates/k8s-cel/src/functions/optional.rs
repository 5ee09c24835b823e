//! Optional values. `or` and `orValue` evaluate only what they need, see [`crate::eval`].

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

pub(crate) fn of(_: Context<'_>, args: &[Value]) -> Outcome {
    args.first().cloned().map_or_else(|| no_overload("optional.of"), |value| Ok(Value::some(value)))
}

pub(crate) fn of_non_zero_value(_: Context<'_>, args: &[Value]) -> Outcome {
    let Some(value) = args.first() else { return no_overload("optional.ofNonZeroValue") };
    let zero = match value {
        Value::Null | Value::Optional(None) => true,
        Value::Bool(value) => !value,
        Value::Int(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.len() == 0,
        Value::Duration(nanos) => *nanos == 0,
        _ => false,
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
}

pub(crate) fn none(_: Context<'_>, _: &[Value]) -> Outcome {
    Ok(Value::Optional(None))
}

pub(crate) fn value(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(EvalError::invalid("optional.none() dereference")),
        _ => no_overload("value"),
    }
}

pub(crate) fn has_value(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => no_overload("hasValue"),
    }
}

pub(crate) fn unwrap(_: Context<'_>, args: &[Value]) -> Outcome {
    let Some(Value::List(list)) = args.first() else { return no_overload("optional.unwrap") };
    let value = |element: &Value| match element {
        Value::Optional(value) => Ok(value.as_ref().map(|value| (**value).clone())),
        _ => Err(EvalError::invalid("value is not optional")),
    };
    let values: Result<Vec<_>, _> = list.iter().map(value).collect();
    values.map(|values| Value::list(values.into_iter().flatten().collect()))
}
