//! How many consumers a claim gets.

use std::sync::Arc;

use dra_types::ResourceClaim;
use model::{Budget, IdSet, NamespacedName};
use serde_json::{Value, json};

use crate::fixture::{STEPS, builder, exactly, local, n1};
use crate::inventory::{ClaimUse, Inventory, InventoryBuilder, Reservation};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::packing::{Copies, Offer};
use crate::verdict::Refusal;

/// A node with a device, and an allocated claim for it with this many consumers.
fn shared(consumers: usize) -> (InventoryBuilder, crate::ClaimId) {
    let consumers: Vec<Value> =
        (0..consumers).map(|index| json!({"resource": "pods", "name": format!("o{index}"), "uid": "o"})).collect();
    let result = json!({"request": "r", "driver": "gpu", "pool": "n1", "device": "d0"});
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers},
    });
    let mut builder = builder(&["gpu"]);
    builder.slice(local("gpu", &json!([{"name": "d0"}])));
    let claim = builder.claim(Arc::new(ResourceClaim::from_json(&object).unwrap()));
    (builder, claim)
}

/// What a question found, and the copies that were taken by it.
fn take(inventory: &Inventory, cluster: &mut ClusterLedger, uses: &[ClaimUse], copies: u32) -> (Offer, u32) {
    let mut node = BinLedger::node(n1());
    let asked = Copies { claims: uses, copies };
    let offer = asked.try_add(inventory, &node, &IdSet::default(), cluster, &mut Budget::new(STEPS));
    let taken = offer.alternatives.first().map_or(0, |alternative| {
        alternative.commit(inventory, &mut node, cluster);
        alternative.copies
    });
    (offer, taken)
}

#[test]
fn planned_pods_count_among_the_256_consumers_of_a_claim_until_they_are_rolled_back() {
    for (before, first, second) in [(0, 200, 56), (250, 6, 0), (256, 0, 0)] {
        let (builder, claim) = shared(before);
        let inventory = builder.build();
        let mut cluster = ClusterLedger::new(&inventory);
        let uses = [1, 1].map(|containers| ClaimUse::Named { claim, containers, reservation: Reservation::NewPod });
        let untouched = cluster.clone();
        let mark = cluster.mark();
        assert_eq!(take(&inventory, &mut cluster, &uses, 200).1, first, "{before} before");
        let (offer, taken) = take(&inventory, &mut cluster, &uses, 10_000);
        assert_eq!(taken, second, "{before} before");
        assert_eq!(offer.refused[0].refusal, Refusal::TooManyConsumers { claim: "ns/c".into() });
        // Whoever is a consumer already needs no room.
        let own = [ClaimUse::Named { claim, containers: 1, reservation: Reservation::OfPod }];
        assert_eq!(take(&inventory, &mut cluster, &own, 1).1, u32::from(before > 0), "{before} before");
        cluster.rollback(mark);
        assert!(cluster == untouched);
    }
}

#[test]
fn a_group_is_one_consumer_of_a_claim_for_all_its_pods() {
    let (mut builder, claim) = shared(255);
    let [first, second] = ["g", "h"].map(|name| {
        let group = builder.group(&NamespacedName::new("ns", name));
        [ClaimUse::Named { claim, containers: 1, reservation: Reservation::NewGroup(group) }]
    });
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    assert_eq!(take(&inventory, &mut cluster, &first, 300).1, 300);
    assert_eq!(take(&inventory, &mut cluster, &second, 1).1, 0);
    assert_eq!(take(&inventory, &mut cluster, &first, 300).1, 300);
    let of_group = [ClaimUse::Named { claim, containers: 1, reservation: Reservation::OfGroup }];
    assert_eq!(take(&inventory, &mut cluster, &of_group, 300).1, 300);
}

#[test]
fn pods_are_too_many_where_together_they_are_more_consumers_than_a_claim_can_have() {
    let (mut builder, claim) = shared(250);
    let [g, h] = ["g", "h"].map(|name| Reservation::NewGroup(builder.group(&NamespacedName::new("ns", name))));
    let inventory = builder.build();
    let (pod, own, of_group) = (Reservation::NewPod, Reservation::OfPod, Reservation::OfGroup);
    for (before, pods, expected) in [
        (0, vec![(pod, 6)], false),
        (0, vec![(pod, 7)], true),
        (0, vec![(pod, 3), (pod, 4)], true),
        (0, vec![(pod, 6), (own, 300), (of_group, 300)], false),
        (0, vec![(pod, 4), (g, 300), (h, 300)], false),
        (0, vec![(pod, 4), (g, 300), (h, 300), (g, 1)], false),
        (0, vec![(pod, 5), (g, 1), (h, 1)], true),
        (2, vec![(pod, 4)], false),
        (2, vec![(pod, 5)], true),
        (6, vec![(own, 300)], false),
        (6, vec![(g, 1)], true),
    ] {
        let mut cluster = ClusterLedger::new(&inventory);
        let use_by = |reservation| [ClaimUse::Named { claim, containers: 1, reservation }];
        assert_eq!(take(&inventory, &mut cluster, &use_by(pod), before).1, before);
        let uses: Vec<_> = pods.iter().map(|(reservation, copies)| (use_by(*reservation), *copies)).collect();
        let wanting = uses.iter().map(|(uses, copies)| (&uses[..], *copies));
        let found = cluster.are_too_many_consumers(&inventory, wanting);
        assert_eq!(found, expected, "{before} planned before {pods:?}");
        // One after the other, they are served just as far.
        let is_served = uses.iter().all(|(uses, copies)| take(&inventory, &mut cluster, uses, *copies).1 == *copies);
        assert_eq!(is_served, !expected, "{before} planned before {pods:?}");
    }
}
