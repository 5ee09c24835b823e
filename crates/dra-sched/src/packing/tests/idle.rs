//! Claims that are allocated for nobody's use.

use std::sync::Arc;

use dra_types::ResourceClaim;
use model::{Budget, IdSet};
use serde_json::{Value, json};

use super::{shape, template};
use crate::ClaimId;
use crate::fixture::{STEPS, builder, claim, exactly, local, n1};
use crate::inventory::{ClaimUse, Inventory, Reservation};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::packing::Copies;
use crate::verdict::Refusal;

/// Node `n1` with a device, an allocated claim for it, a class for one device, and machines with a device each.
fn allocated(consumers: &Value, is_idle: bool) -> (Inventory, ClaimId, ClaimUse) {
    let result = json!({"request": "r", "driver": "gpu", "pool": "n1", "device": "d0"});
    let nodes = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]);
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
        "status": {"reservedFor": consumers, "allocation": {
            "devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": nodes}}},
    });
    let mut builder = builder(&["gpu"]);
    builder.slice(local("gpu", &json!([{"name": "d0"}])));
    builder.machine_shape(shape(vec![template("gpu", 1)], &[]));
    let id = builder.claim(Arc::new(ResourceClaim::from_json(&object).unwrap()));
    if is_idle {
        builder.mark_idle(id);
    }
    let class = claim(&mut builder, "one", &json!({"requests": [exactly("r", "gpu", 1)]}));
    (builder.build(), id, ClaimUse::Fresh { class, containers: 1 })
}

/// How many copies a bin takes, and why not more.
fn take(
    inventory: &Inventory,
    bin: &mut BinLedger,
    cluster: &mut ClusterLedger,
    (claim, copies): (ClaimUse, u32),
) -> (u32, Option<Refusal>) {
    let shapes: IdSet<_> = inventory.machines.ids().collect();
    let asked = Copies { claims: &[claim], copies };
    let offer = asked.try_add(inventory, bin, &shapes, cluster, &mut Budget::new(STEPS));
    let taken = offer.alternatives.first().map_or(0, |alternative| {
        alternative.commit(inventory, bin, cluster);
        alternative.copies
    });
    (taken, offer.refused.into_iter().next().map(|refused| refused.refusal))
}

fn machine(inventory: &Inventory, cluster: &mut ClusterLedger) -> BinLedger {
    BinLedger::machine(&inventory.machines.ids().collect(), cluster)
}

const ELSEWHERE: &str = "claim ns/c is allocated for other nodes";

#[test]
fn a_claim_that_nobody_uses_is_allocated_anew_elsewhere_and_what_it_held_is_free_then() {
    let (inventory, id, one) = allocated(&json!([]), true);
    let held = ClaimUse::Named { claim: id, containers: 1, reservation: Reservation::NewPod };
    let mut cluster = ClusterLedger::new(&inventory);
    let mut node = BinLedger::node(n1());
    assert_eq!(take(&inventory, &mut node, &mut cluster, (one, 1)).0, 0, "taken until a pod takes it back");
    let before = cluster.clone();
    let mark = cluster.mark();
    let mut first = machine(&inventory, &mut cluster);
    // All share the one claim.
    assert_eq!(take(&inventory, &mut first, &mut cluster, (held, 3)), (3, None));
    assert_eq!(take(&inventory, &mut first, &mut cluster, (one, 1)).0, 0, "its device is the claim's");
    let mut second = machine(&inventory, &mut cluster);
    assert_eq!(take(&inventory, &mut second, &mut cluster, (held, 1)).1.unwrap().to_string(), ELSEWHERE);
    assert_eq!(take(&inventory, &mut node, &mut cluster, (one, 1)).0, 1);
    cluster.rollback(mark);
    assert!(cluster == before);
    assert_eq!(take(&inventory, &mut node, &mut cluster, (one, 1)).0, 0);
}

#[test]
fn a_claim_that_is_used_where_it_is_stays_there() {
    let pod = json!([{"resource": "pods", "name": "p", "uid": "p"}]);
    let (new, own) = (Reservation::NewPod, Reservation::OfPod);
    for (consumers, is_idle, first) in [
        // Nobody said that it may be taken back.
        (json!([]), false, None),
        (pod.clone(), false, None),
        // A pod of the plan uses it.
        (json!([]), true, Some(new)),
        (pod, true, Some(own)),
    ] {
        let (inventory, id, _) = allocated(&consumers, is_idle);
        let mut cluster = ClusterLedger::new(&inventory);
        let of = |reservation| ClaimUse::Named { claim: id, containers: 1, reservation };
        if let Some(reservation) = first {
            let mut node = BinLedger::node(n1());
            assert_eq!(take(&inventory, &mut node, &mut cluster, (of(reservation), 1)).0, 1, "{consumers}");
        }
        let mut bin = machine(&inventory, &mut cluster);
        let (taken, refusal) = take(&inventory, &mut bin, &mut cluster, (of(new), 1));
        assert_eq!((taken, refusal.unwrap().to_string()), (0, ELSEWHERE.to_owned()), "{consumers}");
    }
}

#[test]
fn a_claim_reserved_for_the_pod_alone_goes_with_it() {
    let (inventory, id, _) = allocated(&json!([{"resource": "pods", "name": "p", "uid": "p"}]), true);
    let mut cluster = ClusterLedger::new(&inventory);
    let mut bin = machine(&inventory, &mut cluster);
    let own = ClaimUse::Named { claim: id, containers: 1, reservation: Reservation::OfPod };
    assert_eq!(take(&inventory, &mut bin, &mut cluster, (own, 1)), (1, None));
    assert!(!inventory.stays_allocated(id) && cluster.released().contains(&id));
}
