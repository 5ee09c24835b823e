use std::collections::BTreeMap;

use api::labels::{self, ProviderLabels};
use api::{NodeSelectorRequirementWithMinValues, Operator};
use model::InstanceTypeName;

use super::*;
use crate::{CapacityType, Overhead, Reservation};

fn offering(zone: &str, capacity_type: CapacityType, price: i64) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type,
        labels: BTreeMap::new(),
        reservation: None,
        price: PriceNanoUsdPerHour(price),
        available: true,
        capacity_override: None,
        overhead_override: None,
    }
}

fn instance_type(name: &str, cpu: &str, offerings: Vec<Offering>) -> Arc<InstanceType> {
    let requirements = [
        (labels::INSTANCE_TYPE.to_owned(), [name.to_owned()].into()),
        (labels::ZONE.to_owned(), offerings.iter().map(|offering| offering.zone.clone()).collect()),
    ];
    Arc::new(InstanceType {
        name: InstanceTypeName::from(name),
        requirements: requirements.into(),
        offerings,
        capacity: [("cpu".to_owned(), Quantity::parse(cpu).unwrap())].into(),
        overhead: Overhead::default(),
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    })
}

fn asked(requirements: &[(&str, &[&str], Option<i64>)]) -> LabelRequirements {
    let requirements: Vec<_> = requirements
        .iter()
        .map(|(key, values, min_values)| NodeSelectorRequirementWithMinValues {
            key: (*key).to_owned(),
            operator: if values.is_empty() { Operator::Exists } else { Operator::In },
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            min_values: *min_values,
        })
        .collect();
    LabelRequirements::parse(&requirements, &ProviderLabels::default()).unwrap()
}

fn cpu(amount: &str) -> ResourceList {
    [("cpu".to_owned(), Quantity::parse(amount).unwrap())].into()
}

fn keys(options: &[LaunchOption<'_>]) -> Vec<String> {
    options.iter().map(|option| option.key().to_string()).collect()
}

#[test]
fn options_are_cheapest_first_and_ties_are_told_by_name() {
    let catalogue = [
        instance_type("b", "2", vec![offering("z", CapacityType::Spot, 5), offering("a", CapacityType::Spot, 5)]),
        instance_type("a", "2", vec![offering("z", CapacityType::OnDemand, 5), offering("z", CapacityType::Spot, 3)]),
    ];
    let options = launch_options(&catalogue, &LabelRequirements::default(), &cpu("1"), |_| false).len();
    assert_eq!(options, 4);
    let requirements = LabelRequirements::default();
    let options = launch_options(&catalogue, &requirements, &cpu("1"), |_| false);
    assert_eq!(keys(&options), ["a/z/spot", "a/z/on-demand", "b/a/spot", "b/z/spot"]);
}

#[test]
fn an_option_is_launchable_allowed_large_enough_and_not_known_to_have_run_out() {
    let sold_out = Offering { available: false, ..offering("a", CapacityType::Spot, 1) };
    let used_up = Offering {
        reservation: Some(Reservation { id: "r".to_owned(), remaining: 0 }),
        ..offering("a", CapacityType::Reserved, 1)
    };
    let shrunk = Offering { capacity_override: Some(cpu("1")), ..offering("a", CapacityType::OnDemand, 1) };
    let catalogue = [
        instance_type("a", "4", vec![sold_out, used_up, shrunk, offering("a", CapacityType::Spot, 9)]),
        instance_type("b", "4", vec![offering("a", CapacityType::Spot, 7), offering("b", CapacityType::Spot, 6)]),
        instance_type("small", "1", vec![offering("a", CapacityType::Spot, 1)]),
    ];
    let requirements = asked(&[(labels::ZONE, &["a"], None)]);
    let options = launch_options(&catalogue, &requirements, &cpu("2"), |_| false);
    assert_eq!(keys(&options), ["b/a/spot", "a/a/spot"]);
    let options = launch_options(&catalogue, &requirements, &cpu("2"), |key| key.to_string() == "b/a/spot");
    assert_eq!(keys(&options), ["a/a/spot"]);
}

#[test]
fn a_resource_that_the_machine_lacks_does_not_fit_unless_nothing_is_asked_of_it() {
    assert!(!fits(&[("example.com/gpu".to_owned(), Quantity::parse("1").unwrap())].into(), &cpu("4")));
    assert!(fits(&[("example.com/gpu".to_owned(), Quantity::ZERO)].into(), &cpu("4")));
    assert!(fits(&cpu("4"), &cpu("4")));
}

#[test]
fn at_most_sixty_types_are_launched_from_with_all_their_offerings() {
    let catalogue: Vec<_> = (0..100)
        .map(|index| {
            let name = format!("t{index:03}");
            instance_type(
                &name,
                "1",
                vec![
                    offering("a", CapacityType::Spot, index),
                    offering("b", CapacityType::Spot, index + 1),
                    offering("a", CapacityType::OnDemand, 1_000 + index),
                ],
            )
        })
        .collect();
    let requirements = LabelRequirements::default();
    let options = launch_options(&catalogue, &requirements, &cpu("1"), |_| false);
    let candidates = launch_candidates(&options, &requirements).unwrap();
    assert_eq!(candidates.len(), 60 * 3);
    assert!(candidates.iter().all(|candidate| *candidate.instance_type.name < *"t060"));

    let requirements = asked(&[(labels::INSTANCE_TYPE, &[], Some(61))]);
    let options = launch_options(&catalogue, &requirements, &cpu("1"), |_| false);
    let unmet = launch_candidates(&options, &requirements).unwrap_err();
    assert_eq!(unmet, MinValuesUnmet { key: labels::INSTANCE_TYPE.to_owned(), min_values: 61, found: 60 });
}

/// The sixty cheapest have one value of the label between them, and the one type with the other is the dearest.
#[test]
fn the_cut_to_sixty_types_keeps_those_that_min_values_needs() {
    let catalogue: Vec<_> = (0..100)
        .map(|index| {
            let zone = if index == 99 { "rare" } else { "common" };
            instance_type(&format!("t{index:03}"), "1", vec![offering(zone, CapacityType::Spot, index)])
        })
        .collect();
    let requirements = asked(&[(labels::ZONE, &[], Some(2))]);
    let options = launch_options(&catalogue, &requirements, &cpu("1"), |_| false);
    let candidates = launch_candidates(&options, &requirements).unwrap();
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.instance_type.name.to_string()).collect();
    let expected: Vec<_> = (0..59).chain([99]).map(|index| format!("t{index:03}")).collect();
    assert_eq!(names, expected);
}

#[test]
fn types_are_ordered_by_their_cheapest_launchable_offering_and_those_without_one_come_last() {
    let gone = Offering { available: false, ..offering("a", CapacityType::Spot, 1) };
    let mut types = vec![
        instance_type("gone", "1", vec![gone]),
        instance_type("c", "1", vec![offering("a", CapacityType::Spot, 9), offering("b", CapacityType::Spot, 2)]),
        instance_type("b", "1", vec![offering("a", CapacityType::Spot, 3)]),
        instance_type("a", "1", vec![offering("a", CapacityType::Spot, 3)]),
    ];
    let names = |types: &[Arc<InstanceType>]| types.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    order_by_price(&mut types, &LabelRequirements::default());
    assert_eq!(names(&types), ["c", "a", "b", "gone"]);
    let kept = truncate(types, &asked(&[(labels::ZONE, &["a"], None)]), 2).unwrap();
    assert_eq!(names(&kept), ["a", "b"]);
}

#[test]
fn min_values_count_only_values_that_are_allowed() {
    let types = [
        instance_type("a", "1", vec![offering("x", CapacityType::Spot, 1), offering("y", CapacityType::Spot, 1)]),
        instance_type("b", "1", vec![offering("z", CapacityType::Spot, 1)]),
    ];
    let unmet = |requirements: &LabelRequirements| min_values_unmet(types.iter().map(|it| &**it), requirements);
    assert_eq!(unmet(&asked(&[(labels::ZONE, &[], Some(3))])), None);
    let only_two = asked(&[(labels::ZONE, &["x", "z", "elsewhere"], Some(3))]);
    let found = unmet(&only_two).unwrap();
    assert_eq!((found.found, found.min_values), (2, 3));
    assert_eq!(
        found.to_string(),
        "minValues requirement is not met for \"topology.kubernetes.io/zone\": 2 of 3 values"
    );
}
