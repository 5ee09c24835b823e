use model::{Interner, Quantity};
use serde_json::{Value, json};

use super::*;

/// An instance type as a snapshot has it.
fn instance_type(name: &str, offerings: &Value) -> provider::InstanceType {
    serde_json::from_value(json!({
        "name": name,
        "requirements": {
            "beta.kubernetes.io/arch": ["amd64"],
            "topology.kubernetes.io/zone": ["a", "b"],
            "gpu": [],
        },
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "overhead": {"kubeReserved": {"cpu": "100m", "memory": "512Mi"}},
        "offerings": offerings,
    }))
    .unwrap()
}

#[test]
fn an_offering_has_the_labels_of_its_type_narrowed_by_its_own() {
    let offerings = json!([
        {"zone": "b", "capacityType": "spot", "price": 5, "available": false},
        {"zone": "a", "capacityType": "reserved", "price": 1, "available": true, "labels": {"reservation": "r1"},
         "reservation": {"id": "r1", "remaining": 2}, "capacityOverride": {"example.com/gpu": "1"}},
    ]);
    let mut interner = Interner::new();
    let (catalogue, errors) = catalogue(&[instance_type("t", &offerings)], &mut Context::new(&mut interner));
    assert_eq!(errors, []);
    let printed: Vec<_> = catalogue
        .offerings
        .iter()
        .map(|it| {
            format!(
                "{} | {} | {} | {}",
                it.requirements.display(&interner),
                it.allocatable.display(&interner),
                it.price.0,
                it.launchable()
            )
        })
        .collect();
    assert_eq!(
        printed,
        [
            "beta.kubernetes.io/arch In [amd64], gpu DoesNotExist, karpenter.sh/capacity-type In [reserved], kubernetes.io/arch In [amd64], reservation In [r1], topology.kubernetes.io/zone In [a] | cpu: 3900m, example.com/gpu: 1, memory: 7680Mi, pods: 110 | 1 | true",
            "beta.kubernetes.io/arch In [amd64], gpu DoesNotExist, karpenter.sh/capacity-type In [spot], kubernetes.io/arch In [amd64], topology.kubernetes.io/zone In [b] | cpu: 3900m, memory: 7680Mi, pods: 110 | 5 | false",
        ]
    );
}

/// Else a pod that asks for a reservation could get a machine on demand that is given the label for it.
#[test]
fn labels_of_reservations_are_absent_from_all_other_offerings() {
    let offerings = json!([
        {"zone": "a", "capacityType": "spot", "price": 5, "available": true},
        {"zone": "a", "capacityType": "reserved", "price": 1, "available": true, "labels": {"reservation": "r1"},
         "reservation": {"id": "r1", "remaining": 2}},
    ]);
    let labels = api::labels::ProviderLabels {
        reservation_id: Some("reservation".to_owned()),
        reserved_capacity: ["reservation-kind".to_owned()].into(),
        ..Default::default()
    };
    let mut interner = Interner::new();
    let (catalogue, errors) =
        catalogue(&[instance_type("t", &offerings)], &mut Context::with_labels(&mut interner, &labels));
    assert_eq!(errors, []);
    let of = |offering: &Offering| {
        let said = |key: &str| {
            let requirement = interner.find_key(key).and_then(|key| offering.requirements.get(key));
            requirement.map(|requirement| requirement.display(&interner).to_string())
        };
        (said("reservation"), said("reservation-kind"), offering.reservation.and_then(|it| it.label).is_some())
    };
    let all: Vec<_> = catalogue.offerings.iter().map(of).collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        all,
        [
            (some("reservation In [r1]"), None, true),
            (some("reservation DoesNotExist"), some("reservation-kind DoesNotExist"), false),
        ]
    );
}

#[test]
fn types_that_cannot_be_used_are_named_and_the_others_go_on() {
    let offering = |price: i64| json!({"zone": "a", "capacityType": "spot", "price": price, "available": true});
    let mut negative = instance_type("negative", &json!([]));
    negative.capacity.insert("cpu".to_owned(), Quantity::parse("-1").unwrap());
    let types = [
        instance_type("fine", &json!([offering(1)])),
        instance_type("cheap", &json!([offering(-1)])),
        instance_type("twice", &json!([offering(1), offering(2)])),
        negative,
        instance_type("fine", &json!([])),
    ];
    let (catalogue, errors) = catalogue(&types, &mut Context::new(&mut Interner::new()));
    assert_eq!(catalogue.types.len(), 1);
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "InstanceType cheap: offerings[0].price: -$0.000000001/h is below zero",
            "InstanceType twice: offerings[1]: is given twice",
            "InstanceType negative: capacity[cpu]: quantity \"-1\" is negative",
            "InstanceType fine: name: is given twice",
        ]
    );
}
