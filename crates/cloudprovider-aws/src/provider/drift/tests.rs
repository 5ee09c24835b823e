use serde_json::{Value, json};

use super::*;
use crate::instance_types::Resolver;
use crate::instance_types::settings::{MachineOptions, NodeSettings};
use crate::node_class::{AmiFamily, decode};
use crate::service::ec2::MachineState;

/// A node class with these fields merged into its status and annotations.
fn class(status: &Value, hash: &str) -> NodeClass {
    let mut object: Value = serde_json::from_str(include_str!("../../../tests/fixtures/full-node-class.json")).unwrap();
    object["metadata"]["annotations"] = json!({
        (names::NODE_CLASS_HASH): hash, (names::NODE_CLASS_HASH_VERSION): "dovetail-v1",
    });
    object["status"] = json!({
        "subnets": [{"id": "subnet-1", "zone": "a"}],
        "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
        "amis": [{"id": "ami-1", "requirements": []}],
        "capacityReservations": [{
            "id": "cr-1", "availabilityZone": "a", "instanceMatchCriteria": "targeted", "instanceType": "m5.large",
            "ownerID": "123456789012",
        }],
    });
    for (field, value) in status.as_object().unwrap() {
        object["status"][field] = value.clone();
    }
    decode(&object).unwrap()
}

fn claim(version: &str) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "c",
            "labels": {(labels::CAPACITY_RESERVATION_ID): "cr-1"},
            "annotations": {(names::NODE_CLASS_HASH): "1", (names::NODE_CLASS_HASH_VERSION): version},
        },
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": names::GROUP, "kind": names::NODE_CLASS_KIND, "name": "full"},
        },
        "status": {"imageID": "ami-1"},
    }))
    .unwrap()
}

fn machine() -> Machine {
    Machine {
        id: "i-1".to_owned(),
        state: MachineState::Running,
        instance_type: "m5.large".to_owned(),
        zone: "a".to_owned(),
        image_id: "ami-1".to_owned(),
        subnet_id: Some("subnet-1".to_owned()),
        security_group_ids: vec!["sg-2".to_owned(), "sg-1".to_owned()],
        launched_at: model::Timestamp(0),
        is_spot: false,
        capacity_reservation_id: Some("cr-1".to_owned()),
        placement_group_id: Some("pg-1".to_owned()),
        partition: None,
        efa_count: 0,
        tags: Default::default(),
    }
}

fn reason(claim: &NodeClaim, class: &NodeClass, placement_group: Option<&str>) -> Option<String> {
    let settings = NodeSettings::of_family(AmiFamily::Al2023);
    let resolver = Resolver { region: "us-east-1", settings: &settings, options: &MachineOptions::default() };
    let instance_type = resolver.resolve(&crate::catalogue::instance_types()["m5.large"]);
    let today = Today { class, instance_type: Some(&instance_type), placement_group };
    drifted(claim, &machine(), today).map(|it| it.0)
}

#[test]
fn the_first_difference_gives_the_reason() {
    let (claim, group) = (claim("dovetail-v1"), Some("pg-1"));
    let of = |status: Value, hash: &str| reason(&claim, &class(&status, hash), group);
    assert_eq!(of(json!({}), "1"), None);
    let new_image = json!([{"id": "ami-2", "requirements": []}]);
    let no_subnet = json!([{"id": "subnet-2", "zone": "a"}]);
    let all = json!({
        "amis": new_image, "securityGroups": [{"id": "sg-1"}], "subnets": no_subnet, "capacityReservations": [],
    });
    assert_eq!(of(all.clone(), "2").as_deref(), Some("NodeClassDrift"));
    assert_eq!(of(all, "1").as_deref(), Some("AMIDrift"));
    assert_eq!(of(json!({"securityGroups": [{"id": "sg-1"}]}), "1").as_deref(), Some("SecurityGroupDrift"));
    assert_eq!(of(json!({"subnets": no_subnet}), "1").as_deref(), Some("SubnetDrift"));
    assert_eq!(of(json!({"capacityReservations": []}), "1").as_deref(), Some("CapacityReservationDrift"));
    assert_eq!(reason(&claim, &class(&json!({}), "1"), None).as_deref(), Some("PlacementGroupDrift"));
}

#[test]
fn hashes_that_were_made_in_different_ways_say_nothing() {
    assert_eq!(reason(&claim("v6"), &class(&json!({}), "2"), Some("pg-1")), None);
}

#[test]
fn an_image_that_is_for_other_types_does_not_make_a_machine_drift() {
    let arm = json!([{"id": "ami-2", "requirements":
        [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}]);
    assert_eq!(reason(&claim("dovetail-v1"), &class(&json!({"amis": arm}), "1"), Some("pg-1")), None);
}
