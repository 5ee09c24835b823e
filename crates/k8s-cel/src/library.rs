//! Which functions exist: the standard library, cel-go's extensions and Kubernetes' own, each overload with its types
//! and its implementation.
//!
//! Order matters where a type is still open: the first overload that fits decides it. Names and types are upstream's;
//! the authorization library is declared, because its names are known to the checker, but no value of its types can be
//! had.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::ast::op;
use super::functions::{
    Function, collections, conversions, format, net, operators, optional, quantities, regex, strings, time, url,
};
use super::types::Type;
use dra_types::{Compat, Edition, KubernetesMinor};

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    /// Whether it is called on a target, which is then the first parameter.
    pub(crate) member: bool,
    pub(crate) params: Vec<Type>,
    pub(crate) result: Type,
    /// How many type variables the signature has.
    pub(crate) variables: u32,
    /// None for operators that the evaluator handles itself, and for what can never be called.
    pub(crate) run: Option<Function>,
}

impl Overload {
    fn new((id, member): (&'static str, bool), params: Vec<Type>, result: Type, run: Option<Function>) -> Self {
        let variables = params.iter().chain([&result]).map(highest_variable).max().unwrap_or(0);
        Self { id, member, params, result, variables, run }
    }
}

/// The functions of an environment, by name.
pub(crate) type Library = BTreeMap<&'static str, Vec<Overload>>;

/// The releases of cel-go and of Kubernetes' libraries, as far as they differ here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libraries {
    /// cel-go 0.26, Kubernetes up to 1.36. `includes` is DRA's own: it costs one unit and fails on long lists.
    UpTo1_36,
    /// cel-go 0.29. `includes` is one of the functions on lists and costs a walk; a global `matches` costs what the
    /// member does; prefixes and suffixes cost their own length; `lists.range` refuses negative and huge sizes; there
    /// is no `duration` of an int; `.name` passes by the variables of macros, and these hide names of types.
    Since1_37,
}

impl Libraries {
    pub(crate) fn of(compat: &Compat) -> Self {
        let released = compat.edition() != Edition::Alpha;
        if released && compat.kubernetes >= KubernetesMinor::V1_37 { Self::Since1_37 } else { Self::UpTo1_36 }
    }
}

/// All functions, with `includes` or without.
pub(crate) fn library(includes: bool, libraries: Libraries) -> &'static Library {
    static OLD: LazyLock<Library> = LazyLock::new(|| build(false, Libraries::UpTo1_36));
    static OLD_WITH_INCLUDES: LazyLock<Library> = LazyLock::new(|| build(true, Libraries::UpTo1_36));
    static NEW: LazyLock<Library> = LazyLock::new(|| build(false, Libraries::Since1_37));
    static NEW_WITH_INCLUDES: LazyLock<Library> = LazyLock::new(|| build(true, Libraries::Since1_37));
    match (libraries, includes) {
        (Libraries::UpTo1_36, false) => &OLD,
        (Libraries::UpTo1_36, true) => &OLD_WITH_INCLUDES,
        (Libraries::Since1_37, false) => &NEW,
        (Libraries::Since1_37, true) => &NEW_WITH_INCLUDES,
    }
}

const A: Type = Type::Param(0);
const B: Type = Type::Param(1);

struct Builder(Library);

impl Builder {
    fn add(&mut self, name: &'static str, overload: Overload) {
        self.0.entry(name).or_default().push(overload);
    }

    fn global(&mut self, name: &'static str, id: &'static str, params: Vec<Type>, result: Type, run: Function) {
        self.add(name, Overload::new((id, false), params, result, Some(run)));
    }

    fn member(&mut self, name: &'static str, id: &'static str, params: Vec<Type>, result: Type, run: Function) {
        self.add(name, Overload::new((id, true), params, result, Some(run)));
    }

    /// Handled by the evaluator.
    fn special(&mut self, name: &'static str, id: &'static str, member: bool, params: Vec<Type>, result: Type) {
        self.add(name, Overload::new((id, member), params, result, None));
    }
}

fn highest_variable(of: &Type) -> u32 {
    match of {
        Type::Param(variable) => variable + 1,
        Type::List(inner) | Type::Optional(inner) | Type::Type(Some(inner)) => highest_variable(inner),
        Type::Map(key, value) => highest_variable(key).max(highest_variable(value)),
        _ => 0,
    }
}

fn build(includes: bool, libraries: Libraries) -> Library {
    let mut builder = Builder(BTreeMap::new());
    logic(&mut builder);
    arithmetic(&mut builder);
    comparisons(&mut builder);
    containers(&mut builder);
    type_conversions(&mut builder, libraries);
    // Which `indexOf` comes first decides what an element of unknown type is taken for.
    if libraries == Libraries::UpTo1_36 {
        kubernetes_lists(&mut builder);
    }
    string_functions(&mut builder);
    time_functions(&mut builder);
    optionals(&mut builder);
    list_extensions(&mut builder, libraries);
    if libraries == Libraries::Since1_37 {
        kubernetes_lists(&mut builder);
    }
    quantities_and_versions(&mut builder);
    addresses(&mut builder);
    urls_and_formats(&mut builder);
    authorization(&mut builder);
    if includes {
        let (id, run): (_, Function) = match libraries {
            Libraries::UpTo1_36 => ("dra_includes_dyn_dyn", collections::includes_of_few),
            Libraries::Since1_37 => ("list_includes_dyn_dyn", collections::includes),
        };
        builder.member("includes", id, vec![Type::Dyn, Type::Dyn], Type::Bool, run);
    }
    builder.0
}

fn logic(b: &mut Builder) {
    b.special(op::CONDITIONAL, "conditional", false, vec![Type::Bool, A, A], A);
    b.special(op::AND, "logical_and", false, vec![Type::Bool, Type::Bool], Type::Bool);
    b.special(op::OR, "logical_or", false, vec![Type::Bool, Type::Bool], Type::Bool);
    b.global(op::NOT, "logical_not", vec![Type::Bool], Type::Bool, operators::not);
    b.special(op::NOT_STRICTLY_FALSE, "not_strictly_false", false, vec![Type::Bool], Type::Bool);
    b.special(op::EQUALS, "equals", false, vec![A, A], Type::Bool);
    b.special(op::NOT_EQUALS, "not_equals", false, vec![A, A], Type::Bool);
}

fn arithmetic(b: &mut Builder) {
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

fn comparisons(b: &mut Builder) {
    for ([less, less_equals, greater, greater_equals], left, right) in comparable_pairs() {
        let params = || vec![left.clone(), right.clone()];
        b.global(op::LESS, less, params(), Type::Bool, operators::less);
        b.global(op::LESS_EQUALS, less_equals, params(), Type::Bool, operators::less_equals);
        b.global(op::GREATER, greater, params(), Type::Bool, operators::greater);
        b.global(op::GREATER_EQUALS, greater_equals, params(), Type::Bool, operators::greater_equals);
    }
}

fn containers(b: &mut Builder) {
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

fn type_conversions(b: &mut Builder, libraries: Libraries) {
    use Type::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    b.global("type", "type", vec![A], Type::Type(Some(std::sync::Arc::new(A))), conversions::type_of);
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

fn string_functions(b: &mut Builder) {
    use Type::{Bool, Int, String};
    b.member("contains", "contains_string", vec![String, String], Bool, strings::contains);
    b.member("endsWith", "ends_with_string", vec![String, String], Bool, strings::ends_with);
    b.member("startsWith", "starts_with_string", vec![String, String], Bool, strings::starts_with);
    b.global("matches", "matches", vec![String, String], Bool, regex::matches);
    b.member("matches", "matches_string", vec![String, String], Bool, regex::matches);
    b.member("find", "string_find_string", vec![String, String], String, regex::find);
    let strings_list = Type::list(String);
    b.member("findAll", "string_find_all_string", vec![String, String], strings_list.clone(), regex::find_all);
    b.member("findAll", "string_find_all_string_int", vec![String, String, Int], strings_list.clone(), regex::find_all);
    b.member("charAt", "string_char_at_int", vec![String, Int], String, strings::char_at);
    b.member("indexOf", "string_index_of_string", vec![String, String], Int, strings::index_of);
    b.member("indexOf", "string_index_of_string_int", vec![String, String, Int], Int, strings::index_of);
    b.member("lastIndexOf", "string_last_index_of_string", vec![String, String], Int, strings::last_index_of);
    b.member("lastIndexOf", "string_last_index_of_string_int", vec![String, String, Int], Int, strings::last_index_of);
    b.member("lowerAscii", "string_lower_ascii", vec![String], String, strings::lower_ascii);
    b.member("upperAscii", "string_upper_ascii", vec![String], String, strings::upper_ascii);
    b.member("trim", "string_trim", vec![String], String, strings::trim);
    b.member("replace", "string_replace_string_string", vec![String, String, String], String, strings::replace);
    b.member(
        "replace",
        "string_replace_string_string_int",
        vec![String, String, String, Int],
        String,
        strings::replace,
    );
    b.member("split", "string_split_string", vec![String, String], strings_list.clone(), strings::split);
    b.member("split", "string_split_string_int", vec![String, String, Int], strings_list.clone(), strings::split);
    b.member("substring", "string_substring_int", vec![String, Int], String, strings::substring);
    b.member("substring", "string_substring_int_int", vec![String, Int, Int], String, strings::substring);
    b.member("join", "list_join", vec![strings_list.clone()], String, strings::join);
    b.member("join", "list_join_string", vec![strings_list, String], String, strings::join);
    b.member("format", "string_format", vec![String, Type::list(Type::Dyn)], String, strings::format);
    b.global("strings.quote", "strings_quote", vec![String], String, strings::quote);
}

fn time_functions(b: &mut Builder) {
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

fn optionals(b: &mut Builder) {
    let optional = Type::optional(A);
    b.global("optional.of", "optional_of", vec![A], optional.clone(), optional::of);
    b.global(
        "optional.ofNonZeroValue",
        "optional_ofNonZeroValue",
        vec![A],
        optional.clone(),
        optional::of_non_zero_value,
    );
    b.global("optional.none", "optional_none", vec![], optional.clone(), optional::none);
    b.member("value", "optional_value", vec![optional.clone()], A, optional::value);
    b.member("hasValue", "optional_hasValue", vec![optional.clone()], Type::Bool, optional::has_value);
    b.special("or", "optional_or_optional", true, vec![optional.clone(), optional.clone()], optional.clone());
    b.special("orValue", "optional_orValue_value", true, vec![optional.clone(), A], A);
    let list = Type::list(A);
    b.global("optional.unwrap", "optional_unwrap", vec![Type::list(optional.clone())], list.clone(), optional::unwrap);
    b.member("unwrapOpt", "optional_unwrapOpt", vec![Type::list(optional.clone())], list.clone(), optional::unwrap);
    b.member("first", "list_first", vec![list.clone()], optional.clone(), collections::first);
    b.member("last", "list_last", vec![list], optional, collections::last);
}

fn list_extensions(b: &mut Builder, libraries: Libraries) {
    let range: Function = match libraries {
        Libraries::UpTo1_36 => collections::range,
        Libraries::Since1_37 => collections::range_within_limits,
    };
    let list = Type::list(A);
    b.member("slice", "list_slice", vec![list.clone(), Type::Int, Type::Int], list.clone(), collections::slice);
    let nested = Type::list(list.clone());
    b.member("flatten", "list_flatten", vec![nested], list.clone(), collections::flatten);
    let dynamic = Type::list(Type::Dyn);
    b.member("flatten", "list_flatten_int", vec![dynamic.clone(), Type::Int], dynamic, collections::flatten);
    for (sort, sort_by, of) in [
        ("list_int_sort", "list_int_sortByAssociatedKeys", Type::Int),
        ("list_uint_sort", "list_uint_sortByAssociatedKeys", Type::Uint),
        ("list_double_sort", "list_double_sortByAssociatedKeys", Type::Double),
        ("list_bool_sort", "list_bool_sortByAssociatedKeys", Type::Bool),
        ("list_google.protobuf.Duration_sort", "list_google.protobuf.Duration_sortByAssociatedKeys", Type::Duration),
        ("list_google.protobuf.Timestamp_sort", "list_google.protobuf.Timestamp_sortByAssociatedKeys", Type::Timestamp),
        ("list_string_sort", "list_string_sortByAssociatedKeys", Type::String),
        ("list_bytes_sort", "list_bytes_sortByAssociatedKeys", Type::Bytes),
    ] {
        let keys = Type::list(of);
        b.member("sort", sort, vec![keys.clone()], keys.clone(), collections::sort);
        b.member(
            "@sortByAssociatedKeys",
            sort_by,
            vec![list.clone(), keys],
            list.clone(),
            collections::sort_by_associated_keys,
        );
    }
    b.global("lists.range", "lists_range", vec![Type::Int], Type::list(Type::Int), range);
    b.member("reverse", "list_reverse", vec![list.clone()], list.clone(), collections::reverse);
    b.member("distinct", "list_distinct", vec![list.clone()], list.clone(), collections::distinct);
    b.global(
        "sets.contains",
        "list_sets_contains_list",
        vec![list.clone(), list.clone()],
        Type::Bool,
        collections::set_contains,
    );
    b.global(
        "sets.equivalent",
        "list_sets_equivalent_list",
        vec![list.clone(), list.clone()],
        Type::Bool,
        collections::set_equivalent,
    );
    b.global(
        "sets.intersects",
        "list_sets_intersects_list",
        vec![list.clone(), list],
        Type::Bool,
        collections::set_intersects,
    );
}

fn kubernetes_lists(b: &mut Builder) {
    for (sorted, min, max, of) in [
        ("list_int_is_sorted_bool", "list_int_min_int", "list_int_max_int", Type::Int),
        ("list_uint_is_sorted_bool", "list_uint_min_uint", "list_uint_max_uint", Type::Uint),
        ("list_double_is_sorted_bool", "list_double_min_double", "list_double_max_double", Type::Double),
        ("list_bool_is_sorted_bool", "list_bool_min_bool", "list_bool_max_bool", Type::Bool),
        ("list_duration_is_sorted_bool", "list_duration_min_duration", "list_duration_max_duration", Type::Duration),
        (
            "list_timestamp_is_sorted_bool",
            "list_timestamp_min_timestamp",
            "list_timestamp_max_timestamp",
            Type::Timestamp,
        ),
        ("list_string_is_sorted_bool", "list_string_min_string", "list_string_max_string", Type::String),
        ("list_bytes_is_sorted_bool", "list_bytes_min_bytes", "list_bytes_max_bytes", Type::Bytes),
    ] {
        let list = Type::list(of.clone());
        b.member("isSorted", sorted, vec![list.clone()], Type::Bool, collections::is_sorted);
        b.member("min", min, vec![list.clone()], of.clone(), collections::min);
        b.member("max", max, vec![list], of, collections::max);
    }
    b.member("sum", "list_int_sum_int", vec![Type::list(Type::Int)], Type::Int, collections::sum_int);
    b.member("sum", "list_uint_sum_uint", vec![Type::list(Type::Uint)], Type::Uint, collections::sum_uint);
    b.member("sum", "list_double_sum_double", vec![Type::list(Type::Double)], Type::Double, collections::sum_double);
    b.member(
        "sum",
        "list_duration_sum_duration",
        vec![Type::list(Type::Duration)],
        Type::Duration,
        collections::sum_duration,
    );
    b.member("indexOf", "list_a_index_of_int", vec![Type::list(A), A], Type::Int, collections::index_of);
    b.member("lastIndexOf", "list_a_last_index_of_int", vec![Type::list(A), A], Type::Int, collections::last_index_of);
}

fn quantities_and_versions(b: &mut Builder) {
    use Type::{Bool, Double, Int, Quantity, Semver, String};
    b.global("quantity", "string_to_quantity", vec![String], Quantity, quantities::quantity);
    b.global("isQuantity", "is_quantity_string", vec![String], Bool, quantities::is_quantity);
    b.global("sign", "quantity_sign", vec![Quantity], Int, quantities::sign);
    b.member("asApproximateFloat", "quantity_get_float", vec![Quantity], Double, quantities::as_approximate_float);
    b.member("asInteger", "quantity_get_int", vec![Quantity], Int, quantities::as_integer);
    b.member("isInteger", "quantity_is_integer", vec![Quantity], Bool, quantities::is_integer);
    b.member("add", "quantity_add", vec![Quantity, Quantity], Quantity, quantities::add);
    b.member("add", "quantity_add_int", vec![Quantity, Int], Quantity, quantities::add);
    b.member("sub", "quantity_sub", vec![Quantity, Quantity], Quantity, quantities::sub);
    b.member("sub", "quantity_sub_int", vec![Quantity, Int], Quantity, quantities::sub);
    for (greater, less, compare, of) in [
        ("quantity_is_greater_than", "quantity_is_less_than", "quantity_compare_to", Quantity),
        ("semver_is_greater_than", "semver_is_less_than", "semver_compare_to", Semver),
    ] {
        b.member("isGreaterThan", greater, vec![of.clone(), of.clone()], Bool, quantities::is_greater_than);
        b.member("isLessThan", less, vec![of.clone(), of.clone()], Bool, quantities::is_less_than);
        b.member("compareTo", compare, vec![of.clone(), of], Int, quantities::compare_to);
    }
    b.global("semver", "string_to_semver", vec![String], Semver, quantities::semver);
    b.global("semver", "string_bool_to_semver", vec![String, Bool], Semver, quantities::semver);
    b.global("isSemver", "is_semver_string", vec![String], Bool, quantities::is_semver);
    b.global("isSemver", "is_semver_string_bool", vec![String, Bool], Bool, quantities::is_semver);
    b.member("major", "semver_major", vec![Semver], Int, quantities::major);
    b.member("minor", "semver_minor", vec![Semver], Int, quantities::minor);
    b.member("patch", "semver_patch", vec![Semver], Int, quantities::patch);
}

fn addresses(b: &mut Builder) {
    use Type::{Bool, Cidr, Int, Ip, String};
    b.global("ip", "string_to_ip", vec![String], Ip, net::ip);
    b.member("ip", "cidr_ip", vec![Cidr], Ip, net::ip);
    b.global("isIP", "is_ip", vec![String], Bool, net::is_ip);
    b.global("ip.isCanonical", "ip_is_canonical", vec![String], Bool, net::is_canonical);
    b.member("family", "ip_family", vec![Ip], Int, net::family);
    b.member("isUnspecified", "ip_is_unspecified", vec![Ip], Bool, net::is_unspecified);
    b.member("isLoopback", "ip_is_loopback", vec![Ip], Bool, net::is_loopback);
    b.member("isLinkLocalMulticast", "ip_is_link_local_multicast", vec![Ip], Bool, net::is_link_local_multicast);
    b.member("isLinkLocalUnicast", "ip_is_link_local_unicast", vec![Ip], Bool, net::is_link_local_unicast);
    b.member("isGlobalUnicast", "ip_is_global_unicast", vec![Ip], Bool, net::is_global_unicast);
    b.global("cidr", "string_to_cidr", vec![String], Cidr, net::cidr);
    b.global("isCIDR", "is_cidr", vec![String], Bool, net::is_cidr);
    b.member("containsIP", "cidr_contains_ip_string", vec![Cidr, String], Bool, net::contains_ip);
    b.member("containsIP", "cidr_contains_ip_ip", vec![Cidr, Ip], Bool, net::contains_ip);
    b.member("containsCIDR", "cidr_contains_cidr_string", vec![Cidr, String], Bool, net::contains_cidr);
    b.member("containsCIDR", "cidr_contains_cidr", vec![Cidr, Cidr], Bool, net::contains_cidr);
    b.member("prefixLength", "cidr_prefix_length", vec![Cidr], Int, net::prefix_length);
    b.member("masked", "cidr_masked", vec![Cidr], Cidr, net::masked);
}

fn urls_and_formats(b: &mut Builder) {
    use Type::{Bool, Format, String, Url};
    b.global("url", "string_to_url", vec![String], Url, url::url);
    b.global("isURL", "is_url_string", vec![String], Bool, url::is_url);
    b.member("getScheme", "url_get_scheme", vec![Url], String, url::scheme);
    b.member("getHost", "url_get_host", vec![Url], String, url::host);
    b.member("getHostname", "url_get_hostname", vec![Url], String, url::hostname);
    b.member("getPort", "url_get_port", vec![Url], String, url::port);
    b.member("getEscapedPath", "url_get_escaped_path", vec![Url], String, url::escaped_path);
    b.member("getQuery", "url_get_query", vec![Url], Type::map(String, Type::list(String)), url::query);
    b.member("validate", "format-validate", vec![Format, String], Type::optional(Type::list(String)), format::validate);
    b.global("format.named", "format-named", vec![String], Type::optional(Format), format::named);
    macro_rules! formats {
        ($($name:literal),*) => {$(
            b.special(concat!("format.", $name), concat!("format.", $name), false, vec![], Format);
        )*};
    }
    formats!(
        "dns1123Label",
        "dns1123Subdomain",
        "dns1035Label",
        "qualifiedName",
        "dns1123LabelPrefix",
        "dns1123SubdomainPrefix",
        "dns1035LabelPrefix",
        "labelValue",
        "uri",
        "uuid",
        "byte",
        "date",
        "datetime"
    );
}

fn authorization(b: &mut Builder) {
    use Type::{Bool, String};
    let of = Type::Authorization;
    for (name, id, params, result) in [
        ("path", "authorizer_path", vec![of("Authorizer"), String], of("PathCheck")),
        ("group", "authorizer_group", vec![of("Authorizer"), String], of("GroupCheck")),
        ("serviceAccount", "authorizer_serviceaccount", vec![of("Authorizer"), String, String], of("Authorizer")),
        ("resource", "groupcheck_resource", vec![of("GroupCheck"), String], of("ResourceCheck")),
        ("subresource", "resourcecheck_subresource", vec![of("ResourceCheck"), String], of("ResourceCheck")),
        ("namespace", "resourcecheck_namespace", vec![of("ResourceCheck"), String], of("ResourceCheck")),
        ("name", "resourcecheck_name", vec![of("ResourceCheck"), String], of("ResourceCheck")),
        ("fieldSelector", "authorizer_fieldselector", vec![of("ResourceCheck"), String], of("ResourceCheck")),
        ("labelSelector", "authorizer_labelselector", vec![of("ResourceCheck"), String], of("ResourceCheck")),
        ("check", "pathcheck_check", vec![of("PathCheck"), String], of("Decision")),
        ("check", "resourcecheck_check", vec![of("ResourceCheck"), String], of("Decision")),
        ("errored", "decision_errored", vec![of("Decision")], Bool),
        ("error", "decision_error", vec![of("Decision")], String),
        ("allowed", "decision_allowed", vec![of("Decision")], Bool),
        ("reason", "decision_reason", vec![of("Decision")], String),
    ] {
        b.special(name, id, true, params, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overloads_of_a_function_have_ids_of_their_own() {
        for (name, overloads) in library(true, Libraries::Since1_37) {
            let mut ids: Vec<_> = overloads.iter().map(|overload| overload.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), overloads.len(), "{name}");
        }
    }

    #[test]
    fn includes_is_there_only_if_asked_for() {
        for libraries in [Libraries::UpTo1_36, Libraries::Since1_37] {
            assert!(library(true, libraries).contains_key("includes"));
            assert!(!library(false, libraries).contains_key("includes"));
        }
    }

    #[test]
    fn every_named_format_can_be_called() {
        for format in &format::FORMATS {
            let library = library(false, Libraries::Since1_37);
            assert!(library.contains_key(format!("format.{}", format.name).as_str()), "{}", format.name);
        }
    }
}
