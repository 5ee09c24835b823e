//! Lists, maps and sets.

use std::cmp::Ordering;

use super::Context;
use crate::error::EvalError;
use crate::value::Value;

type Outcome = Result<Value, EvalError>;

/// The longest list that `lists.range` makes.
///
/// Differs: `cel-sizes`. Up to 1.36 upstream has no limit but its cost limit, which is checked after the list is made.
/// From 1.37 on it has the same.
const MAX_RANGE: i64 = 1_000_000;

/// The longest list that `includes` looks through.
const MAX_INCLUDES: usize = 48;

fn no_overload(function: &str) -> Outcome {
    Err(EvalError::no_overload(function))
}

fn int(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

pub(crate) fn size(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(int(text.chars().count())),
        [Value::Bytes(bytes)] => Ok(int(bytes.len())),
        [Value::List(list)] => Ok(int(list.len())),
        [Value::Map(map)] => Ok(int(map.len())),
        _ => no_overload("size"),
    }
}

pub(crate) fn includes(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), value] => Ok(Value::Bool(list.iter().any(|element| element.equals(value)))),
        [target, value] => Ok(Value::Bool(target.equals(value))),
        _ => no_overload("includes"),
    }
}

/// As up to 1.36: an error on lists longer than attributes can be.
pub(crate) fn includes_of_few(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), value] => match list.iter().position(|element| element.equals(value)) {
            Some(at) if at < MAX_INCLUDES => Ok(Value::Bool(true)),
            _ if list.len() > MAX_INCLUDES => Err(EvalError::invalid(format_args!(
                "'includes' function cannot be applied to lists longer than {MAX_INCLUDES} values"
            ))),
            _ => Ok(Value::Bool(false)),
        },
        [target, value] => Ok(Value::Bool(target.equals(value))),
        _ => no_overload("includes"),
    }
}

/// Upstream takes what is of another type for neither less nor greater, as long as it has an order among its own.
fn compare(a: &Value, b: &Value) -> Result<Ordering, EvalError> {
    a.compare(b).or_else(|error| match (a.compare(a), b.compare(b)) {
        (Ok(_), Ok(_)) => Ok(Ordering::Equal),
        _ => Err(error),
    })
}

pub(crate) fn is_sorted(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return no_overload("isSorted") };
    for pair in list.windows(2) {
        if let [a, b] = pair
            && compare(a, b)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn extreme(args: &[Value], name: &str, better: Ordering) -> Outcome {
    let [Value::List(list)] = args else { return no_overload(name) };
    let mut values = list.iter();
    let Some(mut best) = values.next() else {
        return Err(EvalError::invalid(format_args!("{name} called on empty list")));
    };
    for value in values {
        if compare(value, best)? == better {
            best = value;
        }
    }
    Ok(best.clone())
}

pub(crate) fn min(_: Context<'_>, args: &[Value]) -> Outcome {
    extreme(args, "min", Ordering::Less)
}

pub(crate) fn max(_: Context<'_>, args: &[Value]) -> Outcome {
    extreme(args, "max", Ordering::Greater)
}

/// The sum of a list; `zero` is that of an empty one.
fn sum_from(context: Context<'_>, args: &[Value], zero: Value) -> Outcome {
    let [Value::List(list)] = args else { return no_overload("sum") };
    list.iter().try_fold(zero, |sum, value| super::operators::add(context, &[sum, value.clone()]))
}

pub(crate) fn sum_int(context: Context<'_>, args: &[Value]) -> Outcome {
    sum_from(context, args, Value::Int(0))
}

pub(crate) fn sum_uint(context: Context<'_>, args: &[Value]) -> Outcome {
    sum_from(context, args, Value::Uint(0))
}

pub(crate) fn sum_double(context: Context<'_>, args: &[Value]) -> Outcome {
    sum_from(context, args, Value::Double(0.0))
}

pub(crate) fn sum_duration(context: Context<'_>, args: &[Value]) -> Outcome {
    sum_from(context, args, Value::Duration(0))
}

pub(crate) fn index_of(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::List(list), wanted] = args else { return no_overload("indexOf") };
    Ok(list.iter().position(|value| value.equals(wanted)).map_or(Value::Int(-1), int))
}

pub(crate) fn last_index_of(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::List(list), wanted] = args else { return no_overload("lastIndexOf") };
    Ok(list.iter().rposition(|value| value.equals(wanted)).map_or(Value::Int(-1), int))
}

pub(crate) fn slice(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else { return no_overload("slice") };
    let fail = |reason: &str| Err(EvalError::invalid(format_args!("cannot slice({start}, {end}), {reason}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return fail("negative indexes not supported");
    };
    if from > to {
        return fail("start index must be less than or equal to end index");
    }
    match list.get(from..to) {
        Some(part) => Ok(Value::List(part.into())),
        None => fail(&format!("list is length {}", list.len())),
    }
}

fn flatten_into(list: &[Value], depth: i64, flat: &mut Vec<Value>) {
    for value in list {
        match value {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat),
            _ => flat.push(value.clone()),
        }
    }
}

pub(crate) fn flatten(_: Context<'_>, args: &[Value]) -> Outcome {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload("flatten"),
    };
    if depth < 0 {
        return Err(EvalError::invalid("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat);
    Ok(Value::list(flat))
}

fn sort_by(list: &[Value], keys: &[Value]) -> Outcome {
    if list.len() != keys.len() {
        return Err(EvalError::invalid("list and associated keys must have the same size"));
    }
    if let Some(first) = keys.first() {
        first.compare(first).map_err(|_| EvalError::invalid("list elements must be comparable"))?;
        if keys.iter().any(|key| key.simple_type() != first.simple_type()) {
            return Err(EvalError::invalid("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<_> = keys.iter().zip(list).collect();
    pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, value)| value.clone()).collect()))
}

pub(crate) fn sort(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => sort_by(list, list),
        _ => no_overload("sort"),
    }
}

pub(crate) fn sort_by_associated_keys(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), Value::List(keys)] => sort_by(list, keys),
        _ => no_overload("sortBy"),
    }
}

/// As from 1.37 on.
pub(crate) fn range_within_limits(context: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(count)] if *count < 0 => {
            Err(EvalError::invalid(format_args!("lists.range: size must be non-negative, got {count}")))
        }
        [Value::Int(count)] if *count > MAX_RANGE => {
            Err(EvalError::invalid(format_args!("lists.range: size {count} exceeds maximum allowed ({MAX_RANGE})")))
        }
        _ => range(context, args),
    }
}

pub(crate) fn range(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Int(count)] if *count > MAX_RANGE => Err(EvalError::CostLimitExceeded),
        [Value::Int(count)] => Ok(Value::list((0..*count).map(Value::Int).collect())),
        _ => no_overload("lists.range"),
    }
}

pub(crate) fn reverse(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => Ok(Value::List(list.iter().rev().cloned().collect())),
        _ => no_overload("reverse"),
    }
}

pub(crate) fn distinct(_: Context<'_>, args: &[Value]) -> Outcome {
    let [Value::List(list)] = args else { return no_overload("distinct") };
    let mut distinct: Vec<Value> = Vec::new();
    for value in list.iter() {
        if !distinct.iter().any(|seen| seen.equals(value)) {
            distinct.push(value.clone());
        }
    }
    Ok(Value::list(distinct))
}

pub(crate) fn first(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => Ok(list.first().cloned().map_or(Value::Optional(None), Value::some)),
        _ => no_overload("first"),
    }
}

pub(crate) fn last(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list)] => Ok(list.last().cloned().map_or(Value::Optional(None), Value::some)),
        _ => no_overload("last"),
    }
}

fn holds_all(list: &[Value], wanted: &[Value]) -> bool {
    wanted.iter().all(|value| list.iter().any(|element| element.equals(value)))
}

pub(crate) fn set_contains(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(list), Value::List(wanted)] => Ok(Value::Bool(holds_all(list, wanted))),
        _ => no_overload("sets.contains"),
    }
}

pub(crate) fn set_equivalent(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(holds_all(a, b) && holds_all(b, a))),
        _ => no_overload("sets.equivalent"),
    }
}

pub(crate) fn set_intersects(_: Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::List(a), Value::List(b)] => {
            Ok(Value::Bool(a.iter().any(|value| b.iter().any(|element| element.equals(value)))))
        }
        _ => no_overload("sets.intersects"),
    }
}
