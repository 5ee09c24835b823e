//! Kubernetes' own functions: lists, quantities, versions, addresses, URLs, named formats, authorization.

use super::{A, Builder};
use crate::functions::{collections, format, net, quantities, url};
use crate::types::Type;

pub(super) fn kubernetes_lists(b: &mut Builder) {
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

pub(super) fn quantities_and_versions(b: &mut Builder) {
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

pub(super) fn addresses(b: &mut Builder) {
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

pub(super) fn urls_and_formats(b: &mut Builder) {
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

pub(super) fn authorization(b: &mut Builder) {
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
