//! How large an object may be.
//!
//! The bounds are those of the API server (3 MiB a request) or far beyond what real objects have. They are checked in
//! one pass without recursion before anything is read, so that a hostile object costs no more than its own size.

use serde_json::Value;

use crate::error::{Problem, Reason};

/// Bytes of text in one object, as much as the API server takes in one request.
pub const MAX_OBJECT_BYTES: usize = 3 * 1024 * 1024;

/// Levels of nesting.
pub const MAX_DEPTH: usize = 64;

/// Entries of one list or map that the planner reads.
pub const MAX_ENTRIES: usize = 10_000;

/// Values of all kinds in one object.
const MAX_VALUES: usize = 400_000;

/// Checks an object as a whole.
pub(crate) fn check(object: &Value) -> Result<(), Problem> {
    let fail = |reason| Err(Problem { field: String::new(), reason });
    let mut open = vec![(object, 1)];
    let (mut bytes, mut values) = (0usize, 0usize);
    while let Some((value, depth)) = open.pop() {
        values += 1;
        bytes += match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 4,
            Value::String(text) => text.len() + 2,
            Value::Array(items) => {
                open.extend(items.iter().map(|item| (item, depth + 1)));
                items.len() + 2
            }
            Value::Object(entries) => {
                open.extend(entries.values().map(|value| (value, depth + 1)));
                entries.keys().map(|key| key.len() + 4).sum::<usize>() + 2
            }
        };
        if bytes > MAX_OBJECT_BYTES || values > MAX_VALUES {
            return fail(Reason::TooLarge { limit: MAX_OBJECT_BYTES });
        }
        if depth > MAX_DEPTH {
            return fail(Reason::TooDeep { limit: MAX_DEPTH });
        }
    }
    Ok(())
}

/// A text of more than `limit` bytes.
pub(crate) fn too_large(limit: usize) -> Problem {
    Problem { field: String::new(), reason: Reason::TooLarge { limit } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_beyond_three_mebibytes_is_refused_and_one_below_is_not() {
        let object = |len| json!({"metadata": {"annotations": {"a": "x".repeat(len)}}});
        assert_eq!(check(&object(MAX_OBJECT_BYTES - 100)), Ok(()));
        assert_eq!(check(&object(MAX_OBJECT_BYTES)).unwrap_err().reason, Reason::TooLarge { limit: MAX_OBJECT_BYTES });
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused() {
        let nested = |depth| (1..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH + 1)).unwrap_err().reason, Reason::TooDeep { limit: MAX_DEPTH });
    }

    #[test]
    fn a_million_small_values_are_refused_as_too_large() {
        let object = Value::Array(vec![Value::Null; 1_000_000]);
        assert!(matches!(check(&object).unwrap_err().reason, Reason::TooLarge { .. }));
    }
}
