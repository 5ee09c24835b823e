//! What a packer relies on: superposition, refunds, domains, shared claims, unknown values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Budget, Id, IdSet};
use serde_json::json;

use super::{Daemon, DeviceSets, NodeDemand, Offer, OverheadVerdict, Reach};
use crate::compile::ids::ShapeId;
use crate::fixture::{STEPS, builder, claim, devices, exactly, local, slice};
use crate::inventory::{ClaimUse, Inventory, Reservation};
use crate::ledger::{BinLedger, ClusterLedger, MachineOverhead};
use crate::machine::{
    BoundAttribute, DomainSelector, LabelKnowledge, MachineShape, MachineTemplate, PoolScope, SharedTemplate,
    binding_group,
};
use dra_types::ResourceSlice;

const ZONE: &str = "topology.kubernetes.io/zone";

fn template(driver: &str, count: usize) -> MachineTemplate {
    let devices = devices(count, |_| json!({}));
    let spec = json!({"driver": driver, "allNodes": true, "devices": devices,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
    let slice: Arc<ResourceSlice> = slice("template", &spec);
    MachineTemplate {
        driver: driver.into(),
        pool_suffix: "".into(),
        devices: slice.devices.clone(),
        shared_counters: Vec::new(),
        bindings: Vec::new(),
    }
}

fn shape(templates: Vec<MachineTemplate>, zones: &[&str]) -> MachineShape {
    let zones: BTreeSet<Arc<str>> = zones.iter().map(|zone| Arc::from(*zone)).collect();
    let labels = if zones.is_empty() { BTreeMap::new() } else { [(ZONE.into(), LabelKnowledge::OneOf(zones))].into() };
    MachineShape::new(templates.into_iter().map(Arc::new).collect(), labels, BTreeSet::new())
}

/// One network device that nodes of a zone reach.
fn network(zone: &str) -> Arc<ResourceSlice> {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let spec = json!({"driver": "net", "nodeSelector": {"nodeSelectorTerms": [term]}, "devices": [{"name": "vip"}],
        "pool": {"name": zone, "generation": 1, "resourceSliceCount": 1}});
    slice(zone, &spec)
}

fn try_add(inventory: &Inventory, bin: &BinLedger, cluster: &ClusterLedger, claim: ClaimUse, copies: u32) -> Offer {
    let all: IdSet<ShapeId> = inventory.machines.ids().collect();
    crate::Copies { claims: &[claim], copies }.try_add(inventory, bin, &all, cluster, &mut Budget::new(STEPS))
}

/// (copies, domain, shapes) of each alternative.
fn shown(offer: &Offer) -> Vec<(u32, String, Vec<usize>)> {
    let show = |alternative: &super::Alternative| {
        let shapes = alternative.shapes.iter().map(Id::index).collect();
        (alternative.copies, alternative.domain.to_string(), shapes)
    };
    offer.alternatives.iter().map(show).collect()
}

#[test]
fn each_shape_takes_as_many_copies_as_it_has_devices() {
    let mut builder = builder(&["gpu"]);
    let small = builder.machine_shape(shape(vec![template("gpu", 2)], &[]));
    let large = builder.machine_shape(shape(vec![template("gpu", 4)], &[]));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 1)]}));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let mut bin = BinLedger::machine(&[small, large].into_iter().collect(), &mut cluster);
    let fresh = ClaimUse::Fresh { class, containers: 1 };
    let offer = try_add(&inventory, &bin, &cluster, fresh, 8);
    assert_eq!(shown(&offer), [(4, String::new(), vec![1]), (2, String::new(), vec![0, 1])]);
    offer.alternatives[1].commit(&inventory, &mut bin, &mut cluster);
    let offer = try_add(&inventory, &bin, &cluster, fresh, 8);
    assert_eq!(shown(&offer), [(2, String::new(), vec![1])]);
    assert_eq!(offer.refused.iter().map(|refused| refused.shape).collect::<Vec<_>>(), [Some(small), Some(large)]);
}

#[test]
fn network_devices_of_a_zone_make_alternatives_and_pin_it() {
    let mut builder = builder(&["net"]);
    builder.slice(network("a"));
    builder.slice(network("b"));
    builder.machine_shape(shape(vec![], &["a", "b", "c"]));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "net", 1)]}));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let all: IdSet<ShapeId> = inventory.machines.ids().collect();
    let (mut one, two) = (BinLedger::machine(&all, &mut cluster), BinLedger::machine(&all, &mut cluster));
    let fresh = ClaimUse::Fresh { class, containers: 1 };
    let offer = try_add(&inventory, &one, &cluster, fresh, 1);
    assert_eq!(shown(&offer), [(1, format!("{ZONE}=a"), vec![0]), (1, format!("{ZONE}=b"), vec![0])]);

    let mark = cluster.mark();
    offer.alternatives[0].commit(&inventory, &mut one, &mut cluster);
    assert_eq!(one.domain().unwrap().to_string(), format!("{ZONE}=a"));
    // The zone's only device is withheld from others, until it is given back.
    assert_eq!(shown(&try_add(&inventory, &two, &cluster, fresh, 1)), [(1, format!("{ZONE}=b"), vec![0])]);
    one.release(&inventory, &mut cluster, &IdSet::default());
    assert_eq!(try_add(&inventory, &two, &cluster, fresh, 1).alternatives.len(), 2);
    cluster.rollback(mark);
    assert_eq!(try_add(&inventory, &two, &cluster, fresh, 1).alternatives.len(), 2);
}

#[test]
fn a_domain_that_no_device_depends_on_is_not_pinned() {
    let mut builder = builder(&["gpu"]);
    builder.slice(network("z"));
    builder.machine_shape(shape(vec![template("gpu", 1)], &["a", "b"]));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 1)]}));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let bin = BinLedger::machine(&inventory.machines.ids().collect(), &mut cluster);
    let offer = try_add(&inventory, &bin, &cluster, ClaimUse::Fresh { class, containers: 1 }, 1);
    assert_eq!(shown(&offer), [(1, String::new(), vec![0])]);
}

#[test]
fn a_shared_claim_is_allocated_once_and_ties_its_pods_to_one_machine() {
    let mut builder = builder(&["gpu"]);
    builder.machine_shape(shape(vec![template("gpu", 1)], &[]));
    let spec = json!({"devices": {"requests": [exactly("r", "gpu", 1)]}});
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "ns"}, "spec": spec});
    let claim = builder.claim(Arc::new(dra_types::ResourceClaim::from_json(&object).unwrap()));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let all: IdSet<ShapeId> = inventory.machines.ids().collect();
    let (mut here, elsewhere) = (BinLedger::machine(&all, &mut cluster), BinLedger::machine(&all, &mut cluster));
    let named = ClaimUse::Named { claim, containers: 1, reservation: Reservation::NewPod };
    let offer = try_add(&inventory, &here, &cluster, named, 3);
    assert_eq!(shown(&offer), [(3, String::new(), vec![0])], "one device serves all copies");
    offer.alternatives[0].commit(&inventory, &mut here, &mut cluster);
    assert_eq!(shown(&try_add(&inventory, &here, &cluster, named, 2)), [(2, String::new(), vec![0])]);
    let offer = try_add(&inventory, &elsewhere, &cluster, named, 1);
    assert!(offer.alternatives.is_empty());
    assert_eq!(offer.refused[0].refusal.to_string(), "claim ns/shared is allocated for other nodes");
}

/// A request for administrators' access to one device of a class.
fn admin(class: &str) -> serde_json::Value {
    json!({"name": "r", "exactly": {"deviceClassName": class, "adminAccess": true}})
}

#[test]
fn claims_reach_drivers_whose_devices_they_could_take_and_administrators_what_others_can_use_up() {
    let mut builder = builder(&["gpu", "net", "part", "link"]);
    builder.slice(network("z"));
    let counters = json!([{"name": "board", "counters": {"slices": {"value": "4"}}}]);
    let consumes = json!([{"counterSet": "board", "counters": {"slices": {"value": "4"}}}]);
    let of_part = |name: &str, field: &str, value: &serde_json::Value| {
        let spec = json!({"driver": "part", "nodeName": "n", field: value,
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2}});
        slice(name, &spec)
    };
    builder.slice(of_part("counters", "sharedCounters", &counters));
    builder.slice(of_part("devices", "devices", &json!([{"name": "whole", "consumesCounters": consumes}])));
    builder.slice(slice(
        "links",
        &json!({"driver": "link", "nodeName": "n", "devices": [{"name": "link", "allowMultipleAllocations": true}],
        "pool": {"name": "links", "generation": 1, "resourceSliceCount": 1}}),
    ));
    builder.machine_shape(shape(vec![template("gpu", 1)], &["z"]));
    let requests = [exactly("r", "gpu", 1), exactly("r", "net", 1), admin("gpu"), admin("part"), admin("link")];
    let classes = requests.map(|request| claim(&mut builder, "c", &json!({"requests": [request]})));
    let inventory = builder.build();
    let reach = classes.map(|class| {
        let reach = Reach::of(&inventory, &[ClaimUse::Fresh { class, containers: 1 }]);
        let names = |drivers: BTreeSet<dra_types::DriverName>| -> Vec<String> {
            drivers.iter().map(ToString::to_string).collect()
        };
        (reach.is_beyond_machine(), names(reach.own), names(reach.shared))
    });
    let own = |driver: &str| (false, vec![driver.to_owned()], Vec::new());
    let expected = [
        own("gpu"),
        (true, Vec::new(), vec!["net".to_owned()]),
        (false, Vec::new(), Vec::new()),
        own("part"),
        own("link"),
    ];
    assert_eq!(reach, expected);
}

#[test]
fn devices_bound_to_one_unknown_value_match_and_others_do_not() {
    let bound = |driver: &str| {
        let mut template = template(driver, 2);
        for (group, device) in [(0, "d00"), (1, "d01")] {
            let attribute = BoundAttribute { device: device.into(), attribute: "example.com/root".into() };
            template.bindings.push((binding_group(group, true), attribute));
        }
        template
    };
    let mut builder = builder(&["gpu", "nic"]);
    builder.machine_shape(shape(vec![bound("gpu"), bound("nic")], &[]));
    let aligned = |gpus: usize| {
        json!({"requests": [exactly("g", "gpu", gpus), exactly("n", "nic", 1)],
            "constraints": [{"matchAttribute": "example.com/root"}]})
    };
    let (pair, triple) = (claim(&mut builder, "pair", &aligned(1)), claim(&mut builder, "triple", &aligned(2)));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let bin = BinLedger::machine(&inventory.machines.ids().collect(), &mut cluster);
    let offer = try_add(&inventory, &bin, &cluster, ClaimUse::Fresh { class: pair, containers: 1 }, 3);
    assert_eq!(shown(&offer), [(2, String::new(), vec![0])]);
    let offer = try_add(&inventory, &bin, &cluster, ClaimUse::Fresh { class: triple, containers: 1 }, 1);
    assert!(offer.alternatives.is_empty() && offer.undecided.is_empty());
}

#[test]
fn selectors_see_that_a_bound_attribute_is_there_and_not_what_it_is() {
    let root = "device.attributes['example.com'].root";
    let cases = [
        (format!("has({root})"), true),
        (format!("!has({root})"), false),
        ("'root' in device.attributes['example.com']".to_owned(), true),
        (format!("{root} == 'x'"), false),
        (format!("device.driver == 'gpu' || {root} == 'x'"), true),
        ("device.attributes['example.com'].?root.orValue('x') == 'x'".to_owned(), false),
        ("device.attributes['example.com'].all(name, name == 'root')".to_owned(), true),
        ("device.attributes['example.com'].exists(name, value, value == 'x')".to_owned(), false),
    ];
    for (expression, expected) in cases {
        let mut template = template("gpu", 1);
        let attribute = BoundAttribute { device: "d00".into(), attribute: "example.com/root".into() };
        template.bindings.push((binding_group(0, false), attribute));
        let mut builder = builder(&["gpu"]);
        builder.machine_shape(shape(vec![template], &[]));
        let mut request = exactly("g", "gpu", 1);
        request["exactly"]["selectors"] = json!([{"cel": {"expression": expression}}]);
        let class = claim(&mut builder, "picky", &json!({"requests": [request]}));
        let inventory = builder.build();
        let mut cluster = ClusterLedger::new(&inventory);
        let bin = BinLedger::machine(&inventory.machines.ids().collect(), &mut cluster);
        let offer = try_add(&inventory, &bin, &cluster, ClaimUse::Fresh { class, containers: 1 }, 1);
        assert_eq!(!offer.alternatives.is_empty(), expected, "{expression}");
    }
}

mod consumers;
mod ends;
mod idle;
mod node_allocatable;
mod shared;
mod supply;

#[test]
fn what_daemons_take_of_a_shape_is_taken_of_each_of_its_machines() {
    let mut builder = builder(&["gpu"]);
    let none = builder.machine_shape(shape(vec![], &[]));
    let small = builder.machine_shape(shape(vec![template("gpu", 1)], &[]));
    let large = builder.machine_shape(shape(vec![template("gpu", 4)], &[]));
    let class = claim(&mut builder, "c", &json!({"requests": [exactly("r", "gpu", 1)]}));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let fresh = ClaimUse::Fresh { class, containers: 1 };
    let mut overhead = MachineOverhead::default();
    let mut daemon = |shape| {
        Daemon { claims: &[fresh] }.add_to(&inventory, &mut overhead, shape, &mut cluster, &mut Budget::new(STEPS))
    };
    assert_eq!(daemon(none), OverheadVerdict::Refused);
    assert_eq!(daemon(small), OverheadVerdict::Given(NodeDemand::default()));
    assert_eq!(daemon(small), OverheadVerdict::Refused, "a second daemon finds nothing left");
    assert_eq!(daemon(large), OverheadVerdict::Given(NodeDemand::default()));

    let all: IdSet<ShapeId> = inventory.machines.ids().collect();
    let mut bin = BinLedger::machine_with(&all, &overhead, &mut cluster);
    let offer = try_add(&inventory, &bin, &cluster, fresh, 8);
    assert_eq!(shown(&offer), [(3, String::new(), vec![2])]);
    offer.alternatives[0].commit(&inventory, &mut bin, &mut cluster);
    let other = BinLedger::machine_with(&all, &overhead, &mut cluster);
    assert_eq!(shown(&try_add(&inventory, &other, &cluster, fresh, 8)), [(3, String::new(), vec![2])]);
    assert_eq!(shown(&try_add(&inventory, &bin, &cluster, fresh, 8)), []);
}

#[test]
fn claims_compete_for_sets_of_devices_that_only_their_machine_has() {
    let mut builder = builder(&["fabric", "gpu", "net", "shared"]);
    builder.slice(local("gpu", &devices(3, |index| json!({"attributes": {"large": {"bool": index == 0}}}))));
    builder.slice(local("shared", &devices(2, |_| json!({"allowMultipleAllocations": true}))));
    builder.slice(network("a"));
    let fabric = SharedTemplate {
        template: template("fabric", 2),
        scope: PoolScope::Machine,
        nodes: DomainSelector { match_label_keys: [ZONE.into()].into(), ..DomainSelector::default() },
    };
    let machine = shape(vec![template("gpu", 4)], &["a"]).with_shared(vec![Arc::new(fabric)]);
    let shape = builder.machine_shape(machine);
    let large = |name: &str| {
        let mut large = exactly(name, "gpu", 1);
        large["exactly"]["selectors"] = json!([{"cel": {"expression": "device.attributes['gpu'].large"}}]);
        large
    };
    let administrator = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1, "adminAccess": true}});
    let several = json!({"name": "r", "firstAvailable": [
        {"name": "two", "deviceClassName": "gpu", "count": 2}, {"name": "three", "deviceClassName": "gpu", "count": 3},
    ]});
    let elsewhere = json!({"name": "r", "firstAvailable": [
        {"name": "gpu", "deviceClassName": "gpu", "count": 2}, {"name": "net", "deviceClassName": "net", "count": 1},
    ]});
    let all = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}});
    // Of any GPU, of large ones.
    let cases = [
        ("two", json!([exactly("r", "gpu", 2)]), [2, 0]),
        ("large and another", json!([large("l"), exactly("r", "gpu", 1)]), [2, 1]),
        ("two or three", json!([several]), [2, 0]),
        ("two, or another driver's", json!([elsewhere]), [0, 0]),
        ("all", json!([all]), [1, 0]),
        ("as administrator", json!([administrator]), [0, 0]),
        ("what others can share", json!([exactly("r", "shared", 1)]), [0, 0]),
        ("what other machines reach", json!([exactly("r", "net", 1)]), [0, 0]),
        ("what machines bring for others", json!([exactly("r", "fabric", 1)]), [0, 0]),
    ];
    let mut number = 0;
    let claims = cases.map(|(name, requests, taken)| {
        number += 1;
        (name, claim(&mut builder, &format!("c{number}"), &json!({"requests": requests})), taken)
    });
    let inventory = builder.build();
    let fresh = claims.map(|(_, class, _)| [ClaimUse::Fresh { class, containers: 1 }]);
    let sets = DeviceSets::new(&inventory, fresh.iter().map(|claims| (&claims[..], 10)), 8);
    for ((name, _, taken), claims) in claims.iter().zip(&fresh) {
        assert_eq!(sets.taken(claims), taken, "{name}");
    }
    let mut ledger = ClusterLedger::new(&inventory);
    // What a template does not say of a device may be either.
    assert_eq!(sets.on_machine(shape), [4, 4]);
    assert_eq!(sets.on_node(&inventory, &"n1".into(), Some(&ledger)), [3, 1]);
    let device = inventory.keys.iter().find(|device| device.device.as_str() == "d00" && device.pool.as_str() == "n1");
    ledger.hold_device(&inventory, &device.unwrap().clone());
    assert_eq!(sets.on_node(&inventory, &"n1".into(), Some(&ledger)), [2, 0]);
    assert_eq!(sets.on_node(&inventory, &"n1".into(), None), [3, 1]);
    assert_eq!(sets.on_node(&inventory, &"n2".into(), None), [0, 0]);
    assert_eq!(DeviceSets::new(&inventory, fresh.iter().map(|claims| (&claims[..], 10)), 1).len(), 1, "the largest");
}
