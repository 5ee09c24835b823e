//! CEL's standard library: operators, containers, conversions, and the parts of timestamps and durations.

use std::sync::Arc;

use super::{A, B, Builder, Libraries};
use crate::ast::op;
use crate::functions::{Function, collections, conversions, operators, regex, strings, time};
use crate::types::Type;

pub(super) fn logic(b: &mut Builder) {
    b.special(op::CONDITIONAL, "conditional", false, vec![Type::Bool, A, A], A);
    b.special(op::AND, "logical_and", false, vec![Type::Bool, Type::Bool], Type::Bool);
    b.special(op::OR, "logical_or", false, vec![Type::Bool, Type::Bool], Type::Bool);
    b.global(op::NOT, "logical_not", vec![Type::Bool], Type::Bool, operators::not);
    b.special(op::NOT_STRICTLY_FALSE, "not_strictly_false", false, vec![Type::Bool], Type::Bool);
    b.special(op::EQUALS, "equals", false, vec![A, A], Type::Bool);
    b.special(op::NOT_EQUALS, "not_equals", false, vec![A, A], Type::Bool);
}

pub(super) fn arithmetic(b: &mut Builder) {
    use Type::{Bytes, Double, Duration, Int, String, Timestamp, Uint};
    for (id, left, right, result) in [
        ("add_bytes", Bytes, Bytes, Bytes),
        ("add_double", Double, Double, Double),
        ("add_duration_duration", Duration, Duration, Duration),
        ("add_duration_timestamp", Duration, Timestamp, Timestamp),
        ("add_timestamp_duration", Timestamp, Duration, Timestamp),
        ("add_int64", Int, Int, Int),
        ("add_list", Type::list(A), Type::list(A), Type::list(A)),
        ("add_string", String, String, String),
        ("add_uint64", Uint, Uint, Uint),
    ] {
        b.global(op::ADD, id, vec![left, right], result, operators::add);
    }
    for (id, left, right, result) in [
        ("subtract_double", Double, Double, Double),
        ("subtract_duration_duration", Duration, Duration, Duration),
        ("subtract_int64", Int, Int, Int),
        ("subtract_timestamp_duration", Timestamp, Duration, Timestamp),
        ("subtract_timestamp_timestamp", Timestamp, Timestamp, Duration),
        ("subtract_uint64", Uint, Uint, Uint),
    ] {
        b.global(op::SUBTRACT, id, vec![left, right], result, operators::subtract);
    }
    for (id, of) in [("multiply_double", Double), ("multiply_int64", Int), ("multiply_uint64", Uint)] {
        b.global(op::MULTIPLY, id, vec![of.clone(), of.clone()], of, operators::multiply);
    }
    for (id, of) in [("divide_double", Double), ("divide_int64", Int), ("divide_uint64", Uint)] {
        b.global(op::DIVIDE, id, vec![of.clone(), of.clone()], of, operators::divide);
    }
    for (id, of) in [("modulo_int64", Int), ("modulo_uint64", Uint)] {
        b.global(op::MODULO, id, vec![of.clone(), of.clone()], of, operators::modulo);
    }
    b.global(op::NEGATE, "negate_double", vec![Double], Double, operators::negate);
    b.global(op::NEGATE, "negate_int64", vec![Int], Int, operators::negate);
}

/// Pairs of types that compare, with the end of the overload's id.
fn comparable_pairs() -> [([&'static str; 4], Type, Type); 14] {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    macro_rules! ids {
        ($suffix:literal) => {
            [
                concat!("less_", $suffix),
                concat!("less_equals_", $suffix),
                concat!("greater_", $suffix),
                concat!("greater_equals_", $suffix),
            ]
        };
    }
    [
        (ids!("bool"), Bool, Bool),
        (ids!("int64"), Int, Int),
        (ids!("int64_double"), Int, Double),
        (ids!("int64_uint64"), Int, Uint),
        (ids!("uint64"), Uint, Uint),
        (ids!("uint64_double"), Uint, Double),
        (ids!("uint64_int64"), Uint, Int),
        (ids!("double"), Double, Double),
        (ids!("double_int64"), Double, Int),
        (ids!("double_uint64"), Double, Uint),
        (ids!("string"), String, String),
        (ids!("bytes"), Bytes, Bytes),
        (ids!("timestamp"), Timestamp, Timestamp),
        (ids!("duration"), Duration, Duration),
    ]
}

pub(super) fn comparisons(b: &mut Builder) {
    for ([less, less_equals, greater, greater_equals], left, right) in comparable_pairs() {
        let params = || vec![left.clone(), right.clone()];
        b.global(op::LESS, less, params(), Type::Bool, operators::less);
        b.global(op::LESS_EQUALS, less_equals, params(), Type::Bool, operators::less_equals);
        b.global(op::GREATER, greater, params(), Type::Bool, operators::greater);
        b.global(op::GREATER_EQUALS, greater_equals, params(), Type::Bool, operators::greater_equals);
    }
}

pub(super) fn containers(b: &mut Builder) {
    let (list, map) = (Type::list(A), Type::map(A, B));
    b.special(op::INDEX, "index_list", false, vec![list.clone(), Type::Int], A);
    b.special(op::INDEX, "index_map", false, vec![map.clone(), A], B);
    let optional_list = Type::optional(list.clone());
    let optional_map = Type::optional(map.clone());
    b.special(op::INDEX, "optional_list_index_int", false, vec![optional_list.clone(), Type::Int], Type::optional(A));
    b.special(op::INDEX, "optional_map_index_value", false, vec![optional_map.clone(), A], Type::optional(B));
    b.special(
        op::OPTIONAL_INDEX,
        "list_optindex_optional_int",
        false,
        vec![list.clone(), Type::Int],
        Type::optional(A),
    );
    b.special(
        op::OPTIONAL_INDEX,
        "optional_list_optindex_optional_int",
        false,
        vec![optional_list, Type::Int],
        Type::optional(A),
    );
    b.special(op::OPTIONAL_INDEX, "map_optindex_optional_value", false, vec![map.clone(), A], Type::optional(B));
    b.special(
        op::OPTIONAL_INDEX,
        "optional_map_optindex_optional_value",
        false,
        vec![optional_map, A],
        Type::optional(B),
    );
    b.global(op::IN, "in_list", vec![A, list.clone()], Type::Bool, operators::contained_in);
    b.global(op::IN, "in_map", vec![A, map.clone()], Type::Bool, operators::contained_in);
    for (global, member, of) in [
        ("size_bytes", "bytes_size", Type::Bytes),
        ("size_list", "list_size", list),
        ("size_map", "map_size", map.clone()),
        ("size_string", "string_size", Type::String),
    ] {
        b.global("size", global, vec![of.clone()], Type::Int, collections::size);
        b.member("size", member, vec![of], Type::Int, collections::size);
    }
    b.global(
        "cel.@mapInsert",
        "@mapInsert_map_map",
        vec![map.clone(), map.clone()],
        map.clone(),
        operators::map_insert,
    );
    b.global("cel.@mapInsert", "@mapInsert_map_key_value", vec![map.clone(), A, B], map, operators::map_insert);
}

pub(super) fn type_conversions(b: &mut Builder, libraries: Libraries) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    b.global("type", "type", vec![A], Type::Type(Some(Arc::new(A))), conversions::type_of);
    b.global("dyn", "to_dyn", vec![A], Type::Dyn, operators::dynamic);
    let mut conversion = |name, run: Function, result: Type, from: Vec<(&'static str, Type)>| {
        for (id, param) in from {
            b.global(name, id, vec![param], result.clone(), run);
        }
    };
    conversion("bool", conversions::to_bool, Bool, vec![("bool_to_bool", Bool), ("string_to_bool", String)]);
    conversion("bytes", conversions::to_bytes, Bytes, vec![("bytes_to_bytes", Bytes), ("string_to_bytes", String)]);
    let from = vec![
        ("double_to_double", Double),
        ("int64_to_double", Int),
        ("string_to_double", String),
        ("uint64_to_double", Uint),
    ];
    conversion("double", conversions::to_double, Double, from);
    let mut from = vec![("duration_to_duration", Duration), ("string_to_duration", String)];
    if libraries == Libraries::UpTo1_36 {
        from.push(("int64_to_duration", Int));
    }
    conversion("duration", conversions::to_duration, Duration, from);
    let from = vec![
        ("int64_to_int64", Int),
        ("double_to_int64", Double),
        ("duration_to_int64", Duration),
        ("string_to_int64", String),
        ("timestamp_to_int64", Timestamp),
        ("uint64_to_int64", Uint),
    ];
    conversion("int", conversions::to_int, Int, from);
    let from = vec![
        ("string_to_string", String),
        ("bool_to_string", Bool),
        ("bytes_to_string", Bytes),
        ("double_to_string", Double),
        ("duration_to_string", Duration),
        ("int64_to_string", Int),
        ("timestamp_to_string", Timestamp),
        ("uint64_to_string", Uint),
        ("ip_to_string", Type::Ip),
        ("cidr_to_string", Type::Cidr),
    ];
    conversion("string", conversions::to_string, String, from);
    let from =
        vec![("timestamp_to_timestamp", Timestamp), ("int64_to_timestamp", Int), ("string_to_timestamp", String)];
    conversion("timestamp", conversions::to_timestamp, Timestamp, from);
    let from = vec![
        ("uint64_to_uint64", Uint),
        ("double_to_uint64", Double),
        ("int64_to_uint64", Int),
        ("string_to_uint64", String),
    ];
    conversion("uint", conversions::to_uint, Uint, from);
}

pub(super) fn string_functions(b: &mut Builder) {
    use Type::{Bool, String};
    b.member("contains", "contains_string", vec![String, String], Bool, strings::contains);
    b.member("endsWith", "ends_with_string", vec![String, String], Bool, strings::ends_with);
    b.member("startsWith", "starts_with_string", vec![String, String], Bool, strings::starts_with);
    b.global("matches", "matches", vec![String, String], Bool, regex::matches);
    b.member("matches", "matches_string", vec![String, String], Bool, regex::matches);
}

/// No part of CEL: Karpenter's expressions for kubelets have it.
pub(super) fn least_and_greatest(b: &mut Builder) {
    use Type::{Double, Int};
    for (name, run, ids) in [
        (
            "max",
            operators::greatest as Function,
            ["max_int_int", "max_double_double", "max_int_double", "max_double_int"],
        ),
        ("min", operators::least, ["min_int_int", "min_double_double", "min_int_double", "min_double_int"]),
    ] {
        let pairs = [(Int, Int, Int), (Double, Double, Double), (Int, Double, Double), (Double, Int, Double)];
        for (id, (left, right, result)) in ids.into_iter().zip(pairs) {
            b.global(name, id, vec![left, right], result, run);
        }
    }
}

pub(super) fn time_functions(b: &mut Builder) {
    use Type::{Duration, Int, String, Timestamp};
    let parts: [(&'static str, &'static str, &'static str, Function); 10] = [
        ("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", time::full_year),
        ("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", time::month),
        ("getDayOfYear", "timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz", time::day_of_year),
        ("getDayOfMonth", "timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz", time::day_of_month),
        ("getDate", "timestamp_to_day_of_month_1_based", "timestamp_to_day_of_month_1_based_with_tz", time::date),
        ("getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", time::day_of_week),
        ("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", time::hours),
        ("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", time::minutes),
        ("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_with_tz", time::seconds),
        ("getMilliseconds", "timestamp_to_milliseconds", "timestamp_to_milliseconds_with_tz", time::milliseconds),
    ];
    for (name, plain, with_zone, run) in parts {
        b.member(name, plain, vec![Timestamp], Int, run);
        b.member(name, with_zone, vec![Timestamp, String], Int, run);
    }
    b.member("getHours", "duration_to_hours", vec![Duration], Int, time::hours);
    b.member("getMinutes", "duration_to_minutes", vec![Duration], Int, time::minutes);
    b.member("getSeconds", "duration_to_seconds", vec![Duration], Int, time::seconds);
    b.member("getMilliseconds", "duration_to_milliseconds", vec![Duration], Int, time::milliseconds);
}
