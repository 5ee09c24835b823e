//! Conversions between the basic types: `int(…)`, `string(…)`, `type(…)` and so on.

use super::{Context, time};
use crate::error::EvalError;
use crate::types::Type;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

fn type_conversion(from: &Value, to: &str) -> EvalError {
    EvalError::invalid(format_args!("type conversion error from '{}' to '{to}'", from.type_name()))
}

pub(crate) fn type_of(_: Context<'_>, args: &[Value]) -> Outcome {
    args.first().map_or_else(|| no_overload("type"), |value| Ok(Value::Type(value.simple_type())))
}

pub(crate) fn to_bool(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [value @ Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(type_conversion(value, "bool")),
        },
        _ => no_overload("bool"),
    }
}

pub(crate) fn to_bytes(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Bytes(_)] => Ok(value.clone()),
        [Value::String(text)] => Ok(Value::Bytes(text.as_bytes().into())),
        _ => no_overload("bytes"),
    }
}

#[allow(clippy::cast_precision_loss, reason = "upstream's conversion")]
pub(crate) fn to_double(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Double(value)] => Ok(Value::Double(*value)),
        [Value::Int(value)] => Ok(Value::Double(*value as f64)),
        [Value::Uint(value)] => Ok(Value::Double(*value as f64)),
        [value @ Value::String(text)] => text.parse().map(Value::Double).map_err(|_| type_conversion(value, "double")),
        _ => no_overload("double"),
    }
}

/// Whether a double lies strictly inside of the range of i64, as upstream checks.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked")]
fn double_to_i64(value: f64) -> Option<i64> {
    (value > -9_223_372_036_854_775_808.0 && value < 9_223_372_036_854_775_807.0).then_some(value as i64)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn double_to_u64(value: f64) -> Option<u64> {
    (0.0..18_446_744_073_709_551_615.0).contains(&value).then_some(value as u64)
}

pub(crate) fn to_int(_: Context<'_>, args: &[Value]) -> Outcome {
    let overflow = |value: Option<i64>| value.map(Value::Int).ok_or(EvalError::Overflow);
    match args {
        [Value::Int(value)] => Ok(Value::Int(*value)),
        [Value::Uint(value)] => overflow(i64::try_from(*value).ok()),
        [Value::Double(value)] => overflow(double_to_i64(*value)),
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::Timestamp(nanos)] => overflow(i64::try_from(nanos.div_euclid(1_000_000_000)).ok()),
        [value @ Value::String(text)] => text.parse().map(Value::Int).map_err(|_| type_conversion(value, "int")),
        _ => no_overload("int"),
    }
}

pub(crate) fn to_uint(_: Context<'_>, args: &[Value]) -> Outcome {
    let overflow = |value: Option<u64>| value.map(Value::Uint).ok_or(EvalError::Overflow);
    match args {
        [Value::Uint(value)] => Ok(Value::Uint(*value)),
        [Value::Int(value)] => overflow(u64::try_from(*value).ok()),
        [Value::Double(value)] => overflow(double_to_u64(*value)),
        [value @ Value::String(text)] => {
            let unsigned = if text.starts_with('+') { None } else { text.parse().ok() };
            unsigned.map(Value::Uint).ok_or_else(|| type_conversion(value, "uint"))
        }
        _ => no_overload("uint"),
    }
}

/// As Go prints a float with `%g`: the shortest text that reads back, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn double_to_string(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e6).contains(&magnitude) {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((mantissa, exponent)) => {
                let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => text,
        };
    }
    format!("{value}")
}

pub(crate) fn to_string(_: Context<'_>, args: &[Value]) -> Outcome {
    let Some(value) = args.first() else { return no_overload("string") };
    Ok(Value::string(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_to_string(*value),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(EvalError::invalid("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Duration(nanos) => time::duration_to_string(*nanos),
        Value::Timestamp(nanos) => time::timestamp_to_string(*nanos),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => format!("{}/{}", cidr.address, cidr.prefix_length),
        _ => return no_overload("string"),
    }))
}

pub(crate) fn to_duration(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Duration(*nanos)),
        [value @ Value::Int(_)] => Err(type_conversion(value, "duration")),
        [value @ Value::String(text)] => {
            time::parse_duration(text).map(Value::Duration).ok_or_else(|| type_conversion(value, "duration"))
        }
        _ => no_overload("duration"),
    }
}

pub(crate) fn to_timestamp(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value @ Value::Timestamp(_)] => Ok(value.clone()),
        [Value::Int(seconds)] => super::operators::timestamp(i128::from(*seconds) * 1_000_000_000),
        [value @ Value::String(text)] => {
            let nanos = time::parse_timestamp(text).ok_or_else(|| type_conversion(value, "timestamp"))?;
            super::operators::timestamp(nanos)
        }
        _ => no_overload("timestamp"),
    }
}

/// The types that can be written as a name.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Ip,
        "net.CIDR" => Type::Cidr,
        _ => return None,
    })
}
