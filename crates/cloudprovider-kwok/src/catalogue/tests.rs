use crate::names;
use model::PriceNanoUsdPerHour;

use super::*;

/// One entry of Karpenter's own file, shortened to two of its eight offerings.
const KARPENTERS: &str = r#"[{
    "name": "c-1x-amd64-linux",
    "offerings": [
        {"Price": 0.019003238553599998, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]},
        {"Price": 0.027147483648, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]}
    ],
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "1", "ephemeral-storage": "20Gi", "memory": "2Gi", "pods": "16"}
}]"#;

fn default_type(name: &str) -> InstanceType {
    default_instance_types().into_iter().find(|it| it.name == name).unwrap()
}

fn prices(instance_type: &InstanceType) -> Vec<(String, i64)> {
    instance_type
        .offerings
        .iter()
        .map(|offering| (format!("{}/{}", offering.zone, offering.capacity_type), offering.price.0))
        .collect()
}

#[test]
fn the_default_catalogue_has_144_types_of_eight_offerings_in_order() {
    let types = default_instance_types();
    assert_eq!(types.len(), 144);
    assert!(types.iter().zip(types.iter().skip(1)).all(|(a, b)| a.name < b.name));
    assert!(types.iter().all(|it| it.offerings.len() == 8));
}

#[test]
fn an_entry_of_karpenters_file_reads_like_our_default_type_price_included() {
    let mut expected = default_type("c-1x-amd64-linux");
    expected.offerings.truncate(2);
    expected.requirements.insert(labels::ZONE.to_owned(), ["test-zone-a".to_owned()].into());
    assert_eq!(parse(KARPENTERS).unwrap(), Catalogue { instance_types: vec![expected], left_out: Vec::new() });
}

#[test]
fn prices_follow_karpenters_rule_to_the_nano_dollar() {
    // Karpenter's file has 0.0271474836480 and 15.199023255552 (on demand), 0.0190032385536 and 10.6393162788864
    // (spot).
    let small = prices(&default_type("c-1x-arm64-windows"));
    assert_eq!(small.first().unwrap(), &("test-zone-a/spot".to_owned(), 19_003_239));
    assert_eq!(small.last().unwrap(), &("test-zone-d/on-demand".to_owned(), 27_147_484));
    let huge = default_type("m-256x-amd64-linux");
    let on_demand = 256 * 25_000_000_000_i64 + 2048 * (1 << 30);
    assert_eq!(huge.offerings[1].price, PriceNanoUsdPerHour((on_demand + 500) / 1000));
    assert_eq!(huge.offerings[0].price, PriceNanoUsdPerHour((on_demand * 7 + 5000) / 10_000));
}

#[test]
fn a_default_type_tells_its_labels_and_leaves_its_overhead() {
    let it = default_type("s-4x-arm64-windows");
    let label = |key: &str| it.requirements[key].iter().cloned().collect::<Vec<_>>().join(",");
    assert_eq!(label(names::KWOK_INSTANCE_CPU), "4");
    assert_eq!(label(names::KWOK_INSTANCE_MEMORY), "16Gi");
    assert_eq!(label(names::KWOK_INSTANCE_FAMILY), "s");
    assert_eq!(label(names::KWOK_INSTANCE_SIZE), "4");
    assert_eq!(label(labels::ARCH), "arm64");
    assert_eq!(label(labels::OS), "windows");
    assert_eq!(label(labels::ZONE), "test-zone-a,test-zone-b,test-zone-c,test-zone-d");
    assert_eq!(label(labels::CAPACITY_TYPE), "on-demand,spot");
    let allocatable: Vec<_> = it.allocatable().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(allocatable, ["cpu=3900m", "ephemeral-storage=20Gi", "memory=16374Mi", "pods=64"]);
}

#[test]
fn family_and_size_are_read_from_names_of_several_clouds() {
    let cases = [
        ("m5.4xlarge", "m5", Some("4xlarge")),
        ("m5.xlarge", "m5", Some("xlarge")),
        ("u-6tb1.metal", "u", None),
        ("t3.nano", "t3", Some("nano")),
        ("n2-standard-8", "n2", None),
        ("Standard_D4s_v3", "S", None),
        ("ünusual", "ü", None),
        ("m5.4xlarge.big", "m5", None),
    ];
    for (name, expected_family, expected_size) in cases {
        assert_eq!((family(name), size(name)), (expected_family, expected_size), "{name}");
    }
}

/// Changes one part of [`KARPENTERS`] and tells the error.
fn error(from: &str, to: &str) -> String {
    assert!(KARPENTERS.contains(from), "{from}");
    parse(&KARPENTERS.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn errors_name_entry_field_and_reason() {
    let entry = r#"instance types: entry 0 ("c-1x-amd64-linux"): "#;
    let cases = [
        (r#""1""#, r#""-1""#, "resources: cpu: -1 is negative"),
        (r#""2Gi""#, r#""2Xi""#, r#"resources: memory: quantity "2Xi" has unknown suffix "Xi""#),
        (r#""cpu": "1", "#, "", "resources: cpu is missing"),
        ("0.027147483648", "-1", "offerings[1].Price: is negative"),
        ("0.027147483648", "1e300", r#"offerings[1].Price: price "1e+300" is out of range"#),
        (
            r#"["spot"]"#,
            r#"["cheap"]"#,
            r#"offerings[0].Requirements: karpenter.sh/capacity-type: "cheap" is none of reserved, spot, on-demand"#,
        ),
        (r#"["spot"]"#, r#"["on-demand"]"#, "offerings[1]: a second one for on-demand in test-zone-a"),
        (r#"["spot"]"#, r#"["reserved"]"#, "offerings[0].Requirements: this provider has no reservations"),
        (
            r#"["test-zone-a"]"#,
            "[]",
            "offerings[0].Requirements: topology.kubernetes.io/zone: needs operator In with one value, got In []",
        ),
        (
            r#""operator": "In", "values": ["spot"]"#,
            r#""operator": "Near", "values": ["spot"]"#,
            "offerings[0].Requirements: karpenter.sh/capacity-type: needs operator In with one value, got Near [\"spot\"]",
        ),
        (
            r#""topology.kubernetes.io/zone""#,
            r#""zone""#,
            "offerings[0].Requirements: topology.kubernetes.io/zone is missing",
        ),
        (r#"["linux"]"#, "[]", "operatingSystems: needs at least one, none empty"),
    ];
    for (from, to, expected) in cases {
        assert_eq!(error(from, to), format!("{entry}{expected}"), "{from} -> {to}");
    }
    let unknown = error(r#""architecture""#, r#""arch""#);
    assert!(unknown.starts_with(&format!("{entry}entry: unknown field `arch`")), "{unknown}");
    let unreadable = error("0.019003238553599998,", "");
    assert!(unreadable.starts_with("instance types: expected a JSON list: "), "{unreadable}");
    assert_eq!(parse("[]").unwrap_err().to_string(), "instance types: the list is empty");
    assert!(parse("{}").unwrap_err().to_string().starts_with("instance types: expected a JSON list: "));
}

#[test]
fn entries_that_differ_in_system_only_are_one_type_and_others_are_refused() {
    let entry = KARPENTERS.trim_start_matches('[').trim_end_matches(']');
    let both = |second: &str| parse(&format!("[{entry},{second}]")).unwrap();
    let merged = both(&entry.replace("linux\"]", "windows\"]")).instance_types;
    assert_eq!(merged.len(), 1);
    let systems: Vec<_> = merged[0].requirements[labels::OS].iter().map(String::as_str).collect();
    assert_eq!(systems, ["linux", "windows"]);

    let alone = parse(KARPENTERS).unwrap().instance_types;
    let left_out = |second: &str| {
        let read = both(second);
        assert_eq!(read.instance_types, alone);
        let [error] = read.left_out.as_slice() else { panic!("{:?}", read.left_out) };
        error.to_string()
    };
    let twice = left_out(entry);
    assert!(twice.contains("entry 1 (\"c-1x-amd64-linux\"): name: an earlier entry has the same name"), "{twice}");
    let other = left_out(&entry.replace("\"2Gi\"", "\"3Gi\"").replace("linux\"]", "windows\"]"));
    assert!(other.ends_with("resources: an earlier entry of this name has it differently"), "{other}");
}

#[test]
fn an_entry_that_makes_no_sense_takes_no_other_with_it() {
    let good = KARPENTERS.trim_start_matches('[').trim_end_matches(']');
    let bad = good.replace("c-1x", "c-2x").replace("\"2Gi\"", "\"-2Gi\"");
    let read = parse(&format!("[{bad},7,{good}]")).unwrap();
    assert_eq!(read.instance_types, parse(KARPENTERS).unwrap().instance_types);
    let left_out: Vec<_> = read.left_out.iter().map(ToString::to_string).collect();
    assert_eq!(left_out[0], r#"instance types: entry 0 ("c-2x-amd64-linux"): resources: memory: -2Gi is negative"#);
    assert!(left_out[1].starts_with(r#"instance types: entry 1 (""): entry: invalid type"#), "{left_out:?}");
    assert_eq!(left_out.len(), 2);
}

#[test]
fn a_type_without_a_pod_limit_gets_the_kubelets_and_what_cannot_be_had_stays_listed() {
    let text = KARPENTERS.replace(r#", "pods": "16""#, "").replacen("true", "false", 1);
    let types = parse(&text).unwrap().instance_types;
    assert_eq!(types[0].capacity["pods"].to_string(), "110");
    let available: Vec<_> = types[0].offerings.iter().map(|offering| offering.available).collect();
    assert_eq!(available, [false, true]);
}

#[test]
fn the_user_guides_example_is_a_catalogue() {
    let guide = include_str!("../../../../docs/fake-machines.md");
    let (_, rest) = guide.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let types = parse(example).unwrap().instance_types;
    assert_eq!(types[0].capacity["nvidia.com/gpu"].to_string(), "1");
    assert_eq!(types[0].offerings[0].price, PriceNanoUsdPerHour(1_624_000_000));
}
