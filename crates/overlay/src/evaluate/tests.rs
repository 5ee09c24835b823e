use api::NodeOverlay;
use api::labels::ProviderLabels;
use cloudprovider::{CapacityType, Offering};
use model::{PriceNanoUsdPerHour, Quantity};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn offering(zone: &str, capacity_type: CapacityType, price: i64) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type,
        labels: BTreeMap::new(),
        reservation: None,
        price: PriceNanoUsdPerHour(price * 1_000_000_000),
        available: true,
        capacity_override: None,
        overhead_override: None,
    }
}

/// A type `name` of that family, in zones a and b, on demand for `price` dollars and spot for half of it.
fn instance_type(name: &str, family: &str, price: i64) -> Arc<InstanceType> {
    let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
    Arc::new(InstanceType {
        name: name.into(),
        requirements: BTreeMap::from([
            (api::labels::INSTANCE_TYPE.to_owned(), set(&[name])),
            ("example.com/family".to_owned(), set(&[family])),
            (api::labels::ZONE.to_owned(), set(&["a", "b"])),
            (api::labels::CAPACITY_TYPE.to_owned(), set(&["spot", "on-demand"])),
        ]),
        offerings: ["a", "b"]
            .into_iter()
            .flat_map(|zone| {
                [(CapacityType::OnDemand, 2), (CapacityType::Spot, 1)]
                    .map(|(capacity_type, half)| offering(zone, capacity_type, price * half / 2))
            })
            .collect(),
        capacity: BTreeMap::from([("cpu".to_owned(), Quantity::parse("4").unwrap())]),
        overhead: Default::default(),
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    })
}

fn types() -> Vec<Arc<InstanceType>> {
    vec![instance_type("c4", "c", 4), instance_type("m4", "m", 8), instance_type("m8", "m", 16)]
}

fn overlay(name: &str, spec: Value) -> Overlay {
    let mut spec = spec;
    spec.as_object_mut().unwrap().entry("requirements").or_insert(json!([]));
    let object: NodeOverlay = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap();
    Overlay::new(&object, &ProviderLabels::default()).unwrap()
}

/// NodePools `pool-0`, `pool-1`, … with those template labels.
fn evaluated(overlays: &[Overlay], template_labels: &[&[(&str, &str)]]) -> Evaluation {
    let types = types();
    let names: Vec<NodePoolName> =
        (0..template_labels.len()).map(|index| format!("pool-{index}").as_str().into()).collect();
    let labels: Vec<BTreeMap<String, String>> = template_labels
        .iter()
        .map(|labels| labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        .collect();
    let pools: Vec<Pool<'_>> = names
        .iter()
        .zip(&labels)
        .map(|(name, template_labels)| Pool { name, template_labels, types: &types })
        .collect();
    evaluate(overlays, &pools)
}

/// Which offerings (as `type/zone/capacity type`) of a NodePool cost something else than the provider says, and what.
fn changed_prices(evaluation: &Evaluation, pool: usize) -> Vec<String> {
    let before = types();
    let mut changed = Vec::new();
    for (before, after) in before.iter().zip(&evaluation.pools[pool].types) {
        for (old, new) in before.offerings.iter().zip(&after.offerings) {
            if old.price != new.price {
                changed.push(format!("{} {}", new.key(&after.name), new.price));
            }
        }
    }
    changed
}

fn conflict<'e>(evaluation: &'e Evaluation, overlay: &str) -> &'e Conflict {
    match &evaluation.rejected[&NodeOverlayName::from(overlay)] {
        Rejection::Conflict(conflict) => conflict,
        other => panic!("{other}"),
    }
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

#[test]
fn an_overlay_without_requirements_corrects_everything() {
    let evaluation = evaluated(&[overlay("all", json!({"price": "1.5"}))], &[&[]]);
    assert_eq!(changed_prices(&evaluation, 0).len(), 12);
    assert_eq!(evaluation.pools[0].with_price.len(), 3);
}

#[test]
fn types_and_offerings_are_chosen_by_their_labels_and_what_is_unknown_is_absent() {
    let cases = [
        (vec![requirement("example.com/family", "In", &["c"])], 4),
        (vec![requirement("example.com/family", "NotIn", &["c"])], 8),
        (vec![requirement("node.kubernetes.io/instance-type", "In", &["m4", "m8"])], 8),
        (vec![requirement("topology.kubernetes.io/zone", "In", &["a"])], 6),
        (
            vec![
                requirement("topology.kubernetes.io/zone", "In", &["a"]),
                requirement("karpenter.sh/capacity-type", "In", &["spot"]),
            ],
            3,
        ),
        (vec![requirement("topology.kubernetes.io/zone", "In", &["c"])], 0),
        (vec![requirement("nobody.knows/it", "In", &["x"])], 0),
        (vec![requirement("nobody.knows/it", "Exists", &[])], 0),
        (vec![requirement("nobody.knows/it", "DoesNotExist", &[])], 12),
        (vec![requirement("nobody.knows/it", "NotIn", &["x"])], 12),
    ];
    for (requirements, expected) in cases {
        let overlay = overlay("o", json!({"requirements": requirements, "price": "99"}));
        let found = changed_prices(&evaluated(&[overlay], &[&[]]), 0);
        assert_eq!(found.len(), expected, "{requirements:?}: {found:?}");
    }
}

#[test]
fn template_labels_and_the_nodepools_name_count_and_its_requirements_do_not() {
    let team = overlay("team", json!({"requirements": [requirement("team", "In", &["ml"])], "price": "99"}));
    let evaluation = evaluated(&[team], &[&[("team", "ml")], &[("team", "web")], &[]]);
    let counts: Vec<usize> = (0..3).map(|pool| changed_prices(&evaluation, pool).len()).collect();
    assert_eq!(counts, [12, 0, 0]);

    let named = overlay(
        "named",
        json!({"requirements": [requirement("karpenter.sh/nodepool", "In", &["pool-1"])], "price": "99"}),
    );
    let evaluation = evaluated(&[named], &[&[], &[]]);
    assert_eq!((changed_prices(&evaluation, 0).len(), changed_prices(&evaluation, 1).len()), (0, 12));

    // The template says c: a type of another family is none of this NodePool's.
    let family =
        overlay("family", json!({"requirements": [requirement("example.com/family", "Exists", &[])], "price": "99"}));
    let evaluation = evaluated(&[family], &[&[("example.com/family", "c")]]);
    assert_eq!(evaluation.pools[0].with_price, BTreeSet::from(["c4".into()]));
}

#[test]
fn the_highest_weight_wins_for_each_price_and_resource_and_others_are_not_combined() {
    let overlays = [
        overlay("base", json!({"priceAdjustment": "+50%", "capacity": {"example.com/a": "1", "example.com/b": "1"}})),
        overlay(
            "zone-a",
            json!({
                "weight": 10, "price": "1", "capacity": {"example.com/b": "2"},
                "requirements": [requirement("topology.kubernetes.io/zone", "In", &["a"])],
            }),
        ),
    ];
    let evaluation = evaluated(&overlays, &[&[]]);
    assert!(evaluation.rejected.is_empty());
    assert_eq!(
        changed_prices(&evaluation, 0)[..4],
        ["c4/a/on-demand $1.00/h", "c4/a/spot $1.00/h", "c4/b/on-demand $6.00/h", "c4/b/spot $3.00/h"]
    );
    let amount = |resource: &str| evaluation.pools[0].types[0].capacity[resource].to_string();
    // One matching offering is enough for the capacity of the whole type.
    assert_eq!((amount("example.com/a"), amount("example.com/b"), amount("cpu")), ("1".into(), "2".into(), "4".into()));
}

#[test]
fn at_equal_weight_the_last_name_stays_and_the_other_is_rejected_whole() {
    let overlays = [
        overlay("a", json!({"price": "1", "capacity": {"example.com/a": "1"}})),
        overlay("b", json!({"price": "2", "requirements": [requirement("example.com/family", "In", &["m"])]})),
        overlay(
            "c",
            json!({"weight": 1, "price": "3", "requirements": [requirement("example.com/family", "In", &["c"])]}),
        ),
    ];
    let evaluation = evaluated(&overlays, &[&[]]);
    let conflict = &evaluation.rejected[&NodeOverlayName::from("a")];
    assert_eq!(
        conflict.to_string(),
        "conflict with another overlay: nodeoverlay/b of equal weight also sets the price of instance type m4 in \
         nodepool/pool-0"
    );
    assert_eq!(evaluation.rejected.len(), 1);
    assert!(evaluation.pools[0].with_capacity.is_empty(), "nothing of a rejected overlay is used");
    assert_eq!(changed_prices(&evaluation, 0).len(), 12, "b on the m types, c on the c type");
}

#[test]
fn a_shadowed_overlay_conflicts_with_its_equals_too() {
    let overlays = [
        overlay("top", json!({"weight": 9, "price": "3"})),
        overlay("y", json!({"price": "1"})),
        overlay("x", json!({"price": "2"})),
    ];
    let evaluation = evaluated(&overlays, &[&[]]);
    assert_eq!(conflict(&evaluation, "x").other, *"y");
}

#[test]
fn overlays_of_equal_weight_over_different_things_do_not_conflict_and_over_one_resource_always_do() {
    let one = |name: &str, resource: &str| overlay(name, json!({"capacity": {resource: "1"}}));
    let evaluation =
        evaluated(&[one("c", "example.com/x"), one("b", "example.com/y"), one("a", "example.com/x")], &[&[]]);
    // With b between them, too.
    assert_eq!(evaluation.rejected.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(conflict(&evaluation, "a").field, Field::Capacity("example.com/x".to_owned()));
    let apart = [overlay("p", json!({"price": "1"})), one("q", "example.com/x")];
    assert!(evaluated(&apart, &[&[]]).rejected.is_empty());
}

#[test]
fn an_offering_that_differs_from_its_type_gets_the_overlays_amount_as_well() {
    let mut types = types();
    let mut own = offering("a", CapacityType::OnDemand, 1);
    let amount = |text: &str| Quantity::parse(text).unwrap();
    own.capacity_override =
        Some(BTreeMap::from([("example.com/x".to_owned(), amount("7")), ("memory".to_owned(), amount("1Gi"))]));
    Arc::make_mut(&mut types[0]).offerings.push(own);
    let name = NodePoolName::from("p");
    let pool = Pool { name: &name, template_labels: &BTreeMap::new(), types: &types };
    let evaluation = evaluate(&[overlay("x", json!({"capacity": {"example.com/x": "2"}}))], &[pool]);
    let corrected = &evaluation.pools[0].types[0];
    let capacity = corrected.offerings.last().unwrap().capacity(corrected);
    assert_eq!((capacity["example.com/x"], capacity["memory"]), (amount("2"), amount("1Gi")));
}

#[test]
fn what_no_overlay_touches_is_the_providers_own() {
    let types = types();
    let names = [NodePoolName::from("p"), NodePoolName::from("q")];
    let labels = BTreeMap::new();
    let pools = names.each_ref().map(|name| Pool { name, template_labels: &labels, types: &types });
    let c_only = overlay("c", json!({"price": "1", "requirements": [requirement("example.com/family", "In", &["c"])]}));
    let evaluation = evaluate(&[c_only], &pools);
    assert!(!Arc::ptr_eq(&evaluation.pools[0].types[0], &types[0]));
    assert!(Arc::ptr_eq(&evaluation.pools[0].types[1], &types[1]));
    assert!(Arc::ptr_eq(&evaluation.pools[0], &evaluation.pools[1]), "no overlay tells the two apart");
}

/// The rules said once more, offering by offering, without classes and without sharing.
fn by_hand(overlays: &[Overlay], pool: &Pool<'_>, rejected: &BTreeSet<NodeOverlayName>) -> Vec<PriceNanoUsdPerHour> {
    let mut overlays: Vec<&Overlay> = overlays.iter().filter(|it| !rejected.contains(&it.name)).collect();
    overlays.sort_by(|a, b| (b.weight, &b.name).cmp(&(a.weight, &a.name)));
    let mut prices = Vec::new();
    for instance_type in pool.types {
        for offering in &instance_type.offerings {
            let winner = overlays.iter().find(|overlay| {
                overlay.price.is_some()
                    && matches(overlay, pool).iter().any(|(place, offerings)| {
                        std::ptr::eq(&*pool.types[*place], &**instance_type)
                            && offerings.iter().any(|it| std::ptr::eq(&instance_type.offerings[*it], offering))
                    })
            });
            prices.push(winner.and_then(|it| it.price).map_or(offering.price, |change| change.apply(offering.price)));
        }
    }
    prices
}

proptest! {
    #[test]
    fn classes_of_nodepools_change_nothing_and_no_two_of_equal_weight_share_a_price(
        specs in proptest::collection::vec((0_i32..3, 0_usize..4, 0_usize..4, 1_u32..9), 0..6),
        labels in proptest::collection::vec(0_usize..3, 1..4),
    ) {
        let overlays: Vec<Overlay> = specs
            .iter()
            .enumerate()
            .map(|(index, (weight, family, zone, price))| {
                let mut requirements = Vec::new();
                match family {
                    0 => {}
                    1 => requirements.push(requirement("example.com/family", "In", &["c"])),
                    2 => requirements.push(requirement("example.com/family", "NotIn", &["c"])),
                    _ => requirements.push(requirement("team", "In", &["x"])),
                }
                match zone {
                    0 | 1 => {}
                    2 => requirements.push(requirement("topology.kubernetes.io/zone", "In", &["a"])),
                    _ => requirements.push(requirement("karpenter.sh/capacity-type", "In", &["spot"])),
                }
                overlay(&format!("o{index}"), json!({"weight": weight, "price": price.to_string(), "requirements": requirements}))
            })
            .collect();
        let of_pool: Vec<Vec<(&str, &str)>> = labels
            .iter()
            .map(|label| match label { 0 => vec![], 1 => vec![("team", "x")], _ => vec![("team", "y")] })
            .collect();
        let slices: Vec<&[(&str, &str)]> = of_pool.iter().map(Vec::as_slice).collect();
        let evaluation = evaluated(&overlays, &slices);
        let rejected: BTreeSet<NodeOverlayName> = evaluation.rejected.keys().cloned().collect();
        let types = types();
        for (index, labels) in of_pool.iter().enumerate() {
            let name = NodePoolName::from(format!("pool-{index}").as_str());
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let pool = Pool { name: &name, template_labels: &labels, types: &types };
            let found: Vec<_> = evaluation.pools[index]
                .types
                .iter()
                .flat_map(|it| it.offerings.iter().map(|offering| offering.price))
                .collect();
            prop_assert_eq!(found, by_hand(&overlays, &pool, &rejected));
            let kept: Vec<&Overlay> = overlays.iter().filter(|it| !rejected.contains(&it.name)).collect();
            for (a, b) in kept.iter().enumerate().flat_map(|(i, a)| kept[i + 1..].iter().map(move |b| (a, b))) {
                let (of_a, of_b) = (matches(a, &pool), matches(b, &pool));
                let shared = of_a.iter().any(|(place, offerings)| {
                    of_b.iter().any(|(other, others)| other == place && offerings.iter().any(|it| others.contains(it)))
                });
                prop_assert!(a.weight != b.weight || !shared, "{} and {}", a.name, b.name);
            }
        }
    }
}

/// An overlay whose only template is of that driver, with one device of each name.
fn devices(name: &str, weight: Option<i32>, driver: &str, names: &[&str]) -> Overlay {
    let devices: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let template = json!({"metadata": {"name": "t"}, "spec": {"driver": driver, "devices": devices}});
    overlay(name, json!({"weight": weight, "dynamicResources": {"resourceSliceTemplates": [template]}}))
}

/// Templates and devices of a type after the evaluation of the first NodePool.
fn templates(evaluation: &Evaluation, instance_type: &str) -> Vec<String> {
    let found = evaluation.pools[0].types.iter().find(|it| it.name == *instance_type).unwrap();
    let templates = found.dynamic_resources.resource_slice_templates.iter().map(|template| {
        let devices: Vec<&str> = template.spec.devices.iter().map(|device| device.name.as_str()).collect();
        format!("{} {}", template.metadata.name, devices.join("+"))
    });
    templates.collect()
}

#[test]
fn for_each_driver_the_highest_weight_gives_all_templates() {
    let overlays = [
        devices("low", Some(1), "gpu.example.com", &["a", "b"]),
        devices("high", Some(2), "gpu.example.com", &["c"]),
        devices("nic", None, "nic.example.com", &["n"]),
    ];
    let evaluation = evaluated(&overlays, &[&[]]);
    assert_eq!(evaluation.rejected, BTreeMap::new());
    assert_eq!(templates(&evaluation, "c4"), ["high/t c", "nic/t n"]);
    assert_eq!(evaluation.pools[0].with_devices.len(), 3);
    let described = &evaluation.described[&NodeOverlayName::from("low")][&DriverName::from("gpu.example.com")];
    assert_eq!(*described, Described { instance_types: 3, fewest: 2, most: 2 });
}

#[test]
fn overlays_of_equal_weight_conflict_where_they_describe_other_devices() {
    let same = [devices("a", Some(1), "gpu.example.com", &["d"]), devices("b", Some(1), "gpu.example.com", &["d"])];
    assert_eq!(evaluated(&same, &[&[]]).rejected, BTreeMap::new());
    let mut differs = same.to_vec();
    differs.push(overlay(
        "0-with-price",
        json!({"weight": 1, "price": "1", "dynamicResources": differs[0].dynamic_resources}),
    ));
    differs[2].dynamic_resources.resource_slice_templates[0].spec.devices[0].name = "other".to_owned();
    let evaluation = evaluated(&differs, &[&[]]);
    assert_eq!(
        evaluation.rejected[&NodeOverlayName::from("0-with-price")].to_string(),
        "conflict with another overlay: nodeoverlay/a of equal weight also sets the devices of gpu.example.com of instance \
         type c4 in nodepool/pool-0"
    );
    assert_eq!(changed_prices(&evaluation, 0), Vec::<String>::new(), "rejected whole");
    assert_eq!(templates(&evaluation, "c4"), ["b/t d"]);
}

#[test]
fn the_providers_templates_rank_below_every_overlay_driver_by_driver() {
    let of_provider = json!({
        "resourceSliceTemplates": [
            {"metadata": {"name": "g"}, "spec": {"driver": "gpu.example.com", "devices": [{"name": "x"}]}},
            {"metadata": {"name": "n"}, "spec": {"driver": "nic.example.com", "devices": [{"name": "y"}]}},
        ],
        "attributeBindings": [{"attributes": ["a/b"], "deviceSelectors": [
            {"resourceSliceTemplate": "g", "device": "x"}, {"resourceSliceTemplate": "n", "device": "y"}]}],
    });
    let mut given = types();
    Arc::make_mut(&mut given[0]).dynamic_resources = serde_json::from_value(of_provider).unwrap();
    let (name, labels) = ("p".into(), BTreeMap::new());
    let overlays = [devices("o", None, "gpu.example.com", &["d"])];
    let evaluation = evaluate(&overlays, &[Pool { name: &name, template_labels: &labels, types: &given }]);
    assert_eq!(templates(&evaluation, "c4"), ["n y", "o/t d"]);
    let bindings = &evaluation.pools[0].types[0].dynamic_resources.attribute_bindings;
    assert_eq!(bindings[0].device_selectors.len(), 1, "of a driver that is described otherwise nothing is known");
}

#[test]
fn templates_that_make_no_sense_on_an_instance_type_reject_the_overlay_with_its_name() {
    let counted = |label: &str| {
        let device = json!({"name": "d-{index}", "replicasFromLabel": label});
        let template = json!({"metadata": {"name": "t"}, "spec": {"driver": "gpu.example.com", "devices": [device]}});
        overlay("o", json!({"price": "1", "dynamicResources": {"resourceSliceTemplates": [template]}}))
    };
    let evaluation = evaluated(&[counted("example.com/family")], &[&[]]);
    assert_eq!(
        evaluation.rejected[&NodeOverlayName::from("o")].to_string(),
        "spec.dynamicResources.resourceSliceTemplates[t].spec.devices[0]: label example.com/family is \"c\", which is not a \
         number of devices (instance type c4 in nodepool/pool-0)"
    );
    assert_eq!(changed_prices(&evaluation, 0), Vec::<String>::new());
    let by_template_label = evaluated(&[counted("team/gpus")], &[&[("team/gpus", "2")], &[("team/gpus", "4")]]);
    assert_eq!(by_template_label.rejected, BTreeMap::new());
    let described = &by_template_label.described[&NodeOverlayName::from("o")][&DriverName::from("gpu.example.com")];
    assert_eq!((described.fewest, described.most), (2, 4));
    for (pool, count) in by_template_label.pools.iter().zip([2, 4]) {
        let device = &pool.types[0].dynamic_resources.resource_slice_templates[0].spec.devices[0];
        let written = (device.replicas, device.replicas_from_label.as_deref());
        assert_eq!(written, (Some(count), None), "the type alone does not know its NodePool's labels");
    }
}

#[test]
fn devices_are_described_for_whole_instance_types() {
    let mut spec = json!({"requirements": [requirement(api::labels::ZONE, "In", &["a"])]});
    spec["dynamicResources"] = json!({"resourceSliceTemplates": [
        {"metadata": {"name": "t"}, "spec": {"driver": "gpu.example.com", "devices": [{"name": "d"}]}}]});
    let evaluation = evaluated(&[overlay("o", spec)], &[&[]]);
    let rejection = evaluation.rejected[&NodeOverlayName::from("o")].to_string();
    assert!(rejection.starts_with("spec.requirements: they leave out "), "{rejection}");
    assert!(rejection.contains("of instance type c4 in nodepool/pool-0"), "{rejection}");
}

/// What an overlay means, type by type and offering by offering.
fn matches(overlay: &Overlay, pool: &Pool<'_>) -> Vec<(usize, Vec<usize>)> {
    let may_be = |instance_type: &InstanceType| {
        overlay.requirements.keys().all(|key| {
            let allows = |value: Option<&str>| overlay.requirements.allow_value(key, value);
            match (value_of_pool(pool, key), instance_type.requirements.get(key)) {
                (Some(value), Some(of_type)) => of_type.contains(value) && allows(Some(value)),
                (Some(value), None) => allows(Some(value)),
                (None, Some(of_type)) if of_type.is_empty() => allows(None),
                (None, Some(of_type)) => of_type.iter().any(|value| allows(Some(value))),
                (None, None) => {
                    let values: Vec<&str> = instance_type.offerings.iter().filter_map(|it| it.label(key)).collect();
                    if values.is_empty() { allows(None) } else { values.iter().any(|value| allows(Some(value))) }
                }
            }
        })
    };
    let of_type = |(place, instance_type): (usize, &Arc<InstanceType>)| {
        let offerings = instance_type.offerings.iter().enumerate();
        let meant = offerings.filter(|(_, it)| may_be(instance_type) && overlay.requirements.allow_offering(it));
        (place, meant.map(|(offering, _)| offering).collect::<Vec<_>>())
    };
    pool.types.iter().enumerate().map(of_type).filter(|(_, offerings)| !offerings.is_empty()).collect()
}

#[test]
fn what_was_generated_ranks_below_every_person_and_conflicts_with_none() {
    let devices = |count: usize| {
        let device = json!({"name": "gpu-{index}", "replicas": count});
        json!({"resourceSliceTemplates": [{"metadata": {"name": "t"}, "spec": {"driver": "gpu", "devices": [device]}}]})
    };
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
        "metadata": {"name": "z-generated", "labels": {api::labels::GENERATED: "true"}},
        "spec": {"requirements": [], "weight": 100, "dynamicResources": devices(2)},
    });
    let generated = Overlay::new(&serde_json::from_value(object).unwrap(), &ProviderLabels::default()).unwrap();
    let person = overlay(
        "a-person",
        json!({"dynamicResources": devices(4),
        "requirements": [{"key": "example.com/family", "operator": "In", "values": ["m"]}]}),
    );
    let (types, name, labels) = (types(), "p".into(), BTreeMap::new());
    let pools = [Pool { name: &name, template_labels: &labels, types: &types }];
    let evaluation = evaluate(&[generated, person], &pools);
    assert!(evaluation.rejected.is_empty(), "{:?}", evaluation.rejected);
    let of: Vec<(&str, &str)> = evaluation.pools[0]
        .types
        .iter()
        .map(|it| (it.name.as_str(), it.dynamic_resources.resource_slice_templates[0].metadata.name.as_str()))
        .collect();
    assert_eq!(of, [("c4", "z-generated/t"), ("m4", "a-person/t"), ("m8", "a-person/t")]);
}
