//! cel-go's extensions: strings, optional values, lists and sets.
//!
//! Kubernetes' `find` is declared here too: a function's overloads are tried in the order in which they are declared,
//! so all functions of strings stay in one list.

use super::{A, Builder, Libraries};
use crate::functions::{Function, collections, optional, regex, strings};
use crate::types::Type;

pub(super) fn string_functions(b: &mut Builder) {
    use Type::{Int, String};
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

pub(super) fn optionals(b: &mut Builder) {
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

pub(super) fn list_extensions(b: &mut Builder, libraries: Libraries) {
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
