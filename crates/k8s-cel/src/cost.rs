//! What evaluation costs, in upstream's units: the actual cost of calls, and the worst case before any device is seen.
//!
//! Both follow cel-go and the Kubernetes library term for term, because a claim whose estimate is beyond
//! [`super::MAX_COST`] is refused at admission, and an evaluation beyond it fails. Sizes are characters of strings,
//! bytes, elements; what is unknown is taken to be infinite.

mod estimate;
mod size;

pub(crate) use estimate::estimate;

use super::error::EvalError;
use super::library::Libraries;
use super::value::Value;

/// How the cost of one call is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallCost {
    One,
    /// A walk over the first argument.
    Traverse,
    /// A tenth of the size of the first argument.
    Tenth,
    /// A tenth of the size of the second argument.
    TenthOfSecond,
    /// A fifth of the size of the first argument.
    Fifth,
    /// A fifth of the size of the result.
    FifthOfResult,
    /// A pattern in a text.
    Pattern,
    /// A text in a text.
    Contains,
    /// The size of the second argument.
    SecondSize,
    /// A tenth of the smaller.
    Comparison,
    /// A tenth of the sum.
    Concatenation,
    ContainsAddress {
        parse: bool,
    },
    ContainsNetwork {
        parse: bool,
    },
    Validate,
    /// A new list, of the size of the result.
    OutputList,
    Flatten,
    /// All pairs of a list's elements; of the first or second argument.
    Pairs(usize),
    /// All pairs of elements of two lists, times this.
    Sets(u64),
}

impl CallCost {
    /// How calls of a function are counted. The overload is known only if types left no choice.
    pub(crate) fn of(function: &str, overload: Option<&str>, libraries: Libraries) -> Self {
        match overload {
            Some("list_slice" | "lists_range" | "list_reverse") => return Self::OutputList,
            Some("list_flatten" | "list_flatten_int") => return Self::Flatten,
            Some("list_distinct") => return Self::Pairs(0),
            Some(id) if id.starts_with("list_") && id.ends_with("_sort") => return Self::Pairs(0),
            Some(id) if id.starts_with("list_") && id.ends_with("_sortByAssociatedKeys") => return Self::Pairs(1),
            Some("list_sets_contains_list" | "list_sets_intersects_list") => return Self::Sets(1),
            Some("list_sets_equivalent_list") => return Self::Sets(2),
            _ => {}
        }
        match function {
            "includes" if libraries == Libraries::Since1_37 => Self::Traverse,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => Self::Traverse,
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => Self::Tenth,
            "replace" | "split" => Self::Fifth,
            "join" => Self::FifthOfResult,
            "find" | "findAll" => Self::Pattern,
            "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => Self::Tenth,
            "ip" if overload != Some("cidr_ip") => Self::Tenth,
            "ip.isCanonical" => Self::Fifth,
            "containsIP" => Self::ContainsAddress { parse: overload == Some("cidr_contains_ip_string") },
            "containsCIDR" => Self::ContainsNetwork { parse: overload == Some("cidr_contains_cidr_string") },
            "validate" => Self::Validate,
            "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan" | "isLessThan"
            | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" => Self::One,
            _ => Self::of_standard(overload.unwrap_or_default(), libraries),
        }
    }

    fn of_standard(overload: &str, libraries: Libraries) -> Self {
        match overload {
            "starts_with_string" | "ends_with_string" if libraries == Libraries::Since1_37 => Self::TenthOfSecond,
            "matches" if libraries == Libraries::Since1_37 => Self::Pattern,
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string" | "strings_quote"
            | "string_format" => Self::Tenth,
            "in_list" => Self::SecondSize,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes" => Self::Comparison,
            "add_string" | "add_bytes" => Self::Concatenation,
            "matches_string" => Self::Pattern,
            "contains_string" => Self::Contains,
            _ => Self::One,
        }
    }

    /// A tenth, rounded up.
    pub(crate) fn tenth(size: u64) -> u64 {
        size::factor(size, 0.1)
    }

    /// Whether upstream's accounting crashes, because it takes an argument for a list that is none.
    pub(crate) fn needs_list(self, args: &[Result<Value, EvalError>]) -> bool {
        match self {
            Self::Pairs(index) => !matches!(args.get(index), Some(Ok(Value::List(_)))),
            _ => false,
        }
    }

    /// The units of a call, whether it succeeded or not.
    pub(crate) fn of_call(self, args: &[Result<Value, EvalError>], result: &Result<Value, EvalError>) -> u64 {
        let size_of = |value: &Result<Value, EvalError>| value.as_ref().map_or(1, Value::cost_size);
        let size = |index: usize| args.get(index).map_or(1, size_of);
        let list_call = |factor: f64, size: u64| 11 + (size as f64 * factor) as u64;
        match self {
            Self::One => 1,
            Self::Traverse => args.first().map_or(0, |value| value.as_ref().map_or(1, traverse)),
            Self::Tenth => Self::tenth(size(0)),
            Self::TenthOfSecond => Self::tenth(size(1)),
            Self::Fifth => size::factor(size(0), 0.2),
            Self::FifthOfResult => size::factor(size_of(result), 0.2),
            Self::Pattern => Self::tenth(size(0).saturating_add(1)).saturating_mul(size::factor(size(1), 0.25)),
            Self::Contains => Self::tenth(size(0)).saturating_mul(Self::tenth(size(1))),
            Self::SecondSize => size(1),
            Self::Comparison => Self::tenth(size(0).min(size(1))),
            Self::Concatenation => Self::tenth(size(0).saturating_add(size(1))),
            Self::ContainsAddress { parse } => Self::tenth(2 * size(0)) + if parse { Self::tenth(size(1)) } else { 0 },
            Self::ContainsNetwork { parse } => {
                Self::tenth(2 * size(0)) + Self::tenth(size(0)) + 1 + if parse { Self::tenth(size(1)) } else { 0 }
            }
            Self::Validate => match args.first() {
                Some(Ok(Value::Format(format))) => {
                    Self::tenth(size(1).saturating_add(1)).saturating_mul(size::factor(format.pattern_size, 0.25))
                }
                _ => 1,
            },
            Self::OutputList => list_call(1.0, size_of(result)),
            Self::Flatten => {
                let depth = match args.get(1) {
                    Some(Ok(Value::Int(depth))) => *depth as f64,
                    _ => 1.0,
                };
                list_call(depth, size(0))
            }
            Self::Pairs(index) => {
                let text = match args.get(index) {
                    Some(Ok(Value::List(list))) => matches!(list.first(), Some(Value::String(_) | Value::Bytes(_))),
                    _ => false,
                };
                list_call(if text { 2.1 } else { 2.0 }, size(index).saturating_mul(size(index)))
            }
            Self::Sets(times) => 1 + size(0).saturating_mul(size(1)).saturating_mul(times),
        }
    }
}

/// What walking over a value counts for.
fn traverse(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * 0.1) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * 0.1) as u64,
        Value::List(list) => list.iter().map(traverse).sum(),
        Value::Map(map) => map.pairs().iter().map(|(key, value)| traverse(key) + traverse(value)).sum(),
        _ => 1,
    }
}
