use std::collections::{BTreeMap, BTreeSet};

use api::labels;
use model::{InstanceTypeName, Interner, PriceNanoUsdPerHour};
use proptest::prelude::*;

use super::*;
use crate::{CapacityType, Overhead};

fn requirement(key: &str, operator: Operator, values: &[&str]) -> NodeSelectorRequirementWithMinValues {
    NodeSelectorRequirementWithMinValues {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        min_values: None,
    }
}

fn parse(requirements: &[NodeSelectorRequirementWithMinValues]) -> LabelRequirements {
    LabelRequirements::parse(requirements, &ProviderLabels::default()).unwrap()
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn offering(zone: &str) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type: CapacityType::Spot,
        labels: [("example.com/rack".to_owned(), "r1".to_owned())].into(),
        reservation: None,
        price: PriceNanoUsdPerHour::default(),
        available: true,
        capacity_override: None,
        overhead_override: None,
    }
}

fn instance_type() -> InstanceType {
    InstanceType {
        name: InstanceTypeName::from("m"),
        requirements: [
            (labels::INSTANCE_TYPE.to_owned(), set(&["m"])),
            (labels::OS.to_owned(), set(&["linux", "windows"])),
            (labels::ZONE.to_owned(), set(&["a", "b"])),
            ("example.com/gpu".to_owned(), set(&[])),
            ("example.com/cpu".to_owned(), set(&["8"])),
        ]
        .into(),
        offerings: vec![offering("a"), offering("b")],
        capacity: BTreeMap::new(),
        overhead: Overhead::default(),
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    }
}

#[test]
fn an_offering_is_allowed_by_what_it_and_its_type_say_of_each_label() {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    let cases: &[(&[NodeSelectorRequirementWithMinValues], &str, bool)] = &[
        (&[], "a", true),
        (&[requirement(labels::ZONE, In, &["b"])], "a", false),
        (&[requirement(labels::ZONE, In, &["b"])], "b", true),
        (&[requirement(labels::ZONE, NotIn, &["b"])], "b", false),
        (&[requirement(labels::OS, In, &["windows"])], "a", true),
        // Each holds for one of the values, but for none do both.
        (&[requirement(labels::OS, NotIn, &["windows"]), requirement(labels::OS, NotIn, &["linux"])], "a", false),
        (&[requirement("example.com/rack", In, &["r2"])], "a", false),
        (&[requirement("example.com/gpu", Exists, &[])], "a", false),
        (&[requirement("example.com/gpu", DoesNotExist, &[])], "a", true),
        (&[requirement("example.com/cpu", Gt, &["7"]), requirement("example.com/cpu", Lt, &["9"])], "a", true),
        (&[requirement("example.com/cpu", Gt, &["8"])], "a", false),
        (&[requirement("team", In, &["x"])], "a", true),
        (&[requirement("failure-domain.beta.kubernetes.io/zone", In, &["b"])], "a", false),
    ];
    for (requirements, zone, expected) in cases {
        let (asked, instance_type) = (parse(requirements), instance_type());
        let allowed = asked.allow(&instance_type, &offering(zone));
        assert_eq!(allowed, *expected, "{requirements:?} in {zone}");
        let among = asked.allowed_offerings(&instance_type).any(|offering| offering.zone == *zone);
        assert_eq!(among, *expected, "{requirements:?} among those in {zone}");
    }
}

#[test]
fn labels_are_settled_by_the_offering_and_by_what_is_asked() {
    let asked = parse(&[requirement(labels::OS, Operator::NotIn, &["linux"])]);
    let labels: Vec<_> = asked.resolve_labels(&instance_type(), &offering("b")).into_iter().collect();
    let expected = [
        ("example.com/cpu", "8"),
        ("example.com/rack", "r1"),
        (labels::CAPACITY_TYPE, "spot"),
        (labels::OS, "windows"),
        (labels::INSTANCE_TYPE, "m"),
        (labels::ZONE, "b"),
    ];
    assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn requirements_that_make_no_sense_name_key_and_reason() {
    let error = |operator: Operator, values: &[&str]| {
        LabelRequirements::parse(&[requirement("k", operator, values)], &ProviderLabels::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(error(Operator::from("Near"), &["x"]), "requirement on \"k\": unknown operator \"Near\"");
    assert_eq!(error(Operator::Exists, &["x"]), "requirement on \"k\": operator Exists takes no values, got [\"x\"]");
    assert_eq!(error(Operator::In, &[]), "requirement on \"k\": operator In needs a value");
    for values in [&[] as &[&str], &["a"], &["1", "2"], &["1.5"], &["-1"], &["99999999999999999999"]] {
        let text = error(Operator::Gte, values);
        assert!(text.starts_with("requirement on \"k\": operator Gte needs exactly one integer"), "{text}");
    }
}

/// Values with which every operator has something to decide.
const VALUES: [&str; 7] = ["a", "b", "0", "7", "8", "9223372036854775807", "7.5"];
const INTEGERS: [&str; 5] = ["0", "7", "8", "9223372036854775807", "0000008"];

fn any_requirement() -> impl Strategy<Value = NodeSelectorRequirementWithMinValues> {
    use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
    let values = || proptest::sample::subsequence(VALUES.to_vec(), 1..=3);
    let integer = || proptest::sample::select(INTEGERS.to_vec()).prop_map(|value| vec![value]);
    prop_oneof![
        (prop_oneof![Just(In), Just(NotIn)], values()),
        (prop_oneof![Just(Exists), Just(DoesNotExist)], Just(vec![])),
        (prop_oneof![Just(Gt), Just(Lt), Just(Gte), Just(Lte)], integer()),
    ]
    .prop_map(|(operator, values)| requirement("k", operator, &values))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn strings_are_judged_as_the_planner_judges_interned_values(
        requirements in proptest::collection::vec(any_requirement(), 1..4),
    ) {
        let mut interner = Interner::default();
        let mut planner = model::ValueSet::any();
        for requirement in &requirements {
            let operator = requirement.operator.as_str().parse::<model::Operator>().unwrap();
            let values: Vec<_> = requirement.values.iter().map(|value| interner.value(value)).collect();
            let set = model::ValueSet::of(operator, &values, &interner).unwrap();
            planner = planner.intersect(&set, &interner);
        }
        let ours = parse(&requirements);
        for value in VALUES {
            let id = interner.value(value);
            prop_assert_eq!(
                ours.allow_value("k", Some(value)),
                planner.contains(Some(id), &interner),
                "{} for {:?}", value, requirements
            );
        }
        prop_assert_eq!(ours.allow_value("k", None), planner.contains(None, &interner), "absent for {:?}", requirements);
    }
}
