//! Small things to do to JSON.

use serde_json::Value;

/// Writes whole numbers without fraction, as Go does.
pub(crate) fn write_whole_numbers_without_fraction(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_without_fraction),
        Value::Array(entries) => entries.iter_mut().for_each(write_whole_numbers_without_fraction),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
