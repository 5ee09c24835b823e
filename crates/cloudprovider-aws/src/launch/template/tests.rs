use serde_json::{Value, json};

use super::*;
use crate::node_class::decode;

/// A node class with other fields in its spec than the full example has.
fn class(fields: &Value) -> NodeClassSpec {
    let mut object: Value = serde_json::from_str(include_str!("../../../tests/fixtures/full-node-class.json")).unwrap();
    for (field, value) in fields.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    decode(&object).unwrap().spec
}

fn key() -> TemplateKey {
    TemplateKey {
        image_id: "ami-1".to_owned(),
        max_pods: 58,
        efa_count: 0,
        market: Market::Spot,
        reserved: Default::default(),
    }
}

fn template(fields: &Value, key: &TemplateKey, addresses: AddressFamily) -> LaunchTemplate {
    let node_class = class(fields);
    let input = TemplateInput {
        node_class: &node_class,
        security_groups: &["sg-1".to_owned()],
        instance_profile: "p",
        tags: &Tags::new(),
        placement: &Placement::default(),
        addresses,
    };
    LaunchTemplate::new(&input, key, "dXNlcg==".to_owned())
}

#[test]
fn the_name_stands_for_everything_in_the_template() {
    let plain = template(&json!({}), &key(), AddressFamily::V4);
    assert_eq!(template(&json!({}), &key(), AddressFamily::V4).name(), plain.name());
    assert!(plain.name().starts_with("karpenter.k8s.aws/") && plain.name().len() <= 128);
    let others = [
        template(&json!({ "context": "other" }), &key(), AddressFamily::V4),
        template(&json!({ "detailedMonitoring": null }), &key(), AddressFamily::V4),
        template(&json!({ "metadataOptions": null }), &key(), AddressFamily::V4),
        template(&json!({}), &key(), AddressFamily::V6),
        template(&json!({}), &TemplateKey { image_id: "ami-2".to_owned(), ..key() }, AddressFamily::V4),
        template(&json!({}), &TemplateKey { market: Market::OnDemand, ..key() }, AddressFamily::V4),
        LaunchTemplate { user_data: "b3RoZXI=".to_owned(), ..plain.clone() },
    ];
    let names: Vec<_> = others.iter().map(LaunchTemplate::name).collect();
    // The context is in the request for a fleet, not in the template.
    assert_eq!(names[0], plain.name());
    for (index, name) in names.iter().enumerate().skip(1) {
        assert_ne!(*name, plain.name(), "{index}");
    }
}

#[test]
fn interfaces_of_the_user_are_taken_as_they_are() {
    let interfaces = template(&json!({}), &TemplateKey { efa_count: 8, ..key() }, AddressFamily::V4).network_interfaces;
    let [primary, efa] = &interfaces[..] else { panic!("two interfaces") };
    assert_eq!((primary.interface_type, efa.interface_type), (Some("interface"), Some("efa-only")));
    assert_eq!((primary.ipv4_prefixes, primary.associate_public_ip_address), (Some(2), Some(false)));
    assert!(primary.connection_tracking.is_some());
    // An interface without addresses has no settings of addresses.
    assert_eq!((efa.ipv4_prefixes, efa.associate_public_ip_address, efa.connection_tracking), (None, None, None));
    assert_eq!(efa.security_groups, ["sg-1"]);
}

#[test]
fn there_is_an_efa_on_each_card_or_one_ordinary_interface() {
    let none = json!({ "networkInterfaces": null });
    let efas = template(&none, &TemplateKey { efa_count: 4, ..key() }, AddressFamily::V4).network_interfaces;
    let places: Vec<_> = efas.iter().map(|it| (it.network_card_index, it.device_index, it.interface_type)).collect();
    assert_eq!(places, [(0, 0, Some("efa")), (1, 1, Some("efa")), (2, 1, Some("efa")), (3, 1, Some("efa"))]);
    assert_eq!((efas[0].ipv4_prefixes, efas[1].ipv4_prefixes), (Some(2), None));
    let one = template(&none, &key(), AddressFamily::V6).network_interfaces;
    let [one] = &one[..] else { panic!("one interface") };
    assert_eq!((one.interface_type, one.has_ipv6_address), (None, true));
    assert_eq!((one.ipv4_prefixes, one.ipv6_prefixes), (None, Some(2)));
}

#[test]
fn machines_carry_the_tags_by_which_they_are_found_and_iam_grants_their_launch() {
    let of_user = [("team".to_owned(), "a".to_owned())].into();
    let tags = tags(&of_user, "test", "pool", "class");
    let expected = [
        ("eks:eks-cluster-name", "test"),
        ("karpenter.k8s.aws/ec2nodeclass", "class"),
        ("karpenter.sh/nodepool", "pool"),
        ("kubernetes.io/cluster/test", "owned"),
        ("team", "a"),
    ];
    assert_eq!(tags, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}
