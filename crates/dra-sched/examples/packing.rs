//! A small packer against the engine: which machines would pods with claims need?
//!
//!     cargo run --release -p dra-sched --example packing
//!
//! Pods of a class go onto open machines first, then onto new ones; of the alternatives that the engine offers the one
//! with the cheapest machine is taken. Machines of one type bring network devices for their whole zone; such a
//! machine's zone is pinned when it opens, and pods on other machines use what it leaves. This is not the planner: it
//! shows how the API is meant to be used, and that nothing of a packer's own state is needed by the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

use dra_sched::{
    Alternative, BinLedger, ClaimUse, ClusterLedger, Copies, Domain, DomainSelector, Inventory, InventoryBuilder,
    LabelKnowledge, MachineShape, MachineTemplate, PoolScope, ShapeId, SharedTemplate,
};
use dra_types::{Compat, DeviceClass, ResourceClaim, ResourceSlice};
use model::{Budget, IdSet};
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const STEPS: u64 = 100_000;

/// What can be launched: a shape, and its price in cents by zone.
struct MachineType {
    name: &'static str,
    shape: ShapeId,
    cents: BTreeMap<&'static str, u32>,
}

struct Bin {
    ledger: BinLedger,
    shapes: IdSet<ShapeId>,
    pods: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut builder = InventoryBuilder::new(Compat::fixed());
    for class in ["gpu", "net", "nic"] {
        let selector = json!({"cel": {"expression": format!("device.driver == \"{class}.example.com\"")}});
        builder.class(Arc::new(DeviceClass::from_json(&object(
            "DeviceClass",
            class,
            json!({"selectors": [selector]}),
        ))?));
    }
    // Zone b has one network device that its nodes share.
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]});
    let network = json!({
        "driver": "net.example.com", "nodeSelector": {"nodeSelectorTerms": [term]}, "devices": [{"name": "fabric"}],
        "pool": {"name": "zone-b", "generation": 1, "resourceSliceCount": 1},
    });
    builder.slice(Arc::new(ResourceSlice::from_json(&object("ResourceSlice", "net", network))?));
    let types = [
        MachineType {
            name: "gpu-2",
            shape: builder.machine_shape(with_gpus(2)?),
            cents: [("a", 300), ("b", 330)].into(),
        },
        MachineType {
            name: "gpu-8",
            shape: builder.machine_shape(with_gpus(8)?),
            cents: [("a", 1000), ("b", 1100)].into(),
        },
        MachineType {
            name: "nic-host",
            shape: builder.machine_shape(with_gpus(0)?.with_shared(vec![Arc::new(zonal_nics(2)?)])),
            cents: [("a", 200), ("b", 200)].into(),
        },
    ];
    let classes = [
        ("training", 3, vec![("gpu", 2)]),
        ("networked", 2, vec![("gpu", 1), ("net", 1)]),
        ("huge", 1, vec![("gpu", 16)]),
        ("gateway", 1, vec![("nic", 1)]),
        ("connected", 2, vec![("gpu", 2), ("nic", 1)]),
    ];
    let mut pods = Vec::new();
    for (name, copies, wants) in classes {
        let request = |(class, count): &(&str, u32)| json!({"name": class, "exactly": {"deviceClassName": class, "count": count}});
        let requests: Vec<Value> = wants.iter().map(request).collect();
        let spec = json!({"devices": {"requests": requests}});
        let claim = ResourceClaim::from_json(&object("ResourceClaim", name, spec))?;
        let class = builder.claim_class(name, &Arc::new(claim.spec), None);
        pods.push((name, copies, ClaimUse::Fresh { class, containers: 1 }));
    }
    pack(&builder.build(), &types, &pods);
    Ok(())
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A machine with GPUs of its own, in zone a or b.
fn with_gpus(count: usize) -> Result<MachineShape, Box<dyn Error>> {
    let template = template("gpu", count)?;
    let zones = LabelKnowledge::OneOf(["a", "b"].map(Arc::from).into());
    Ok(MachineShape::new(vec![Arc::new(template)], [(Arc::from(ZONE), zones)].into(), BTreeSet::new()))
}

/// Network devices that each machine of a type brings for its zone.
fn zonal_nics(count: usize) -> Result<SharedTemplate, Box<dyn Error>> {
    let nodes = DomainSelector { match_label_keys: [Arc::from(ZONE)].into(), ..DomainSelector::default() };
    Ok(SharedTemplate { template: template("nic", count)?, scope: PoolScope::Machine, nodes })
}

/// The pool of one driver.
fn template(kind: &str, count: usize) -> Result<MachineTemplate, Box<dyn Error>> {
    let devices: Vec<Value> = (0..count).map(|index| json!({"name": format!("{kind}-{index}")})).collect();
    let driver = format!("{kind}.example.com");
    let spec = json!({
        "driver": driver, "allNodes": true, "devices": devices,
        "pool": {"name": "template", "generation": 1, "resourceSliceCount": 1},
    });
    Ok(MachineTemplate {
        driver: driver.as_str().into(),
        pool_suffix: "".into(),
        devices: ResourceSlice::from_json(&object("ResourceSlice", kind, spec))?.devices,
        shared_counters: Vec::new(),
        bindings: Vec::new(),
    })
}

fn pack(inventory: &Inventory, types: &[MachineType], pods: &[(&str, u32, ClaimUse)]) {
    let every_shape: IdSet<ShapeId> = types.iter().map(|of| of.shape).collect();
    let mut cluster = ClusterLedger::new(inventory);
    let mut bins: Vec<Bin> = Vec::new();
    for &(name, copies, claim) in pods {
        let mut left = copies;
        for bin in &mut bins {
            left -= fill(inventory, types, bin, &mut cluster, (name, claim), left);
        }
        while left > 0 {
            // A machine that takes nothing is undone, not kept.
            let mark = cluster.mark();
            let ledger = BinLedger::machine(&every_shape, &mut cluster);
            let mut bin = Bin { ledger, shapes: every_shape.clone(), pods: Vec::new() };
            let placed = fill(inventory, types, &mut bin, &mut cluster, (name, claim), left);
            if placed == 0 {
                let budget = &mut Budget::new(STEPS);
                let offer = Copies { claims: &[claim], copies: 1 }.try_add(
                    inventory,
                    &bin.ledger,
                    &every_shape,
                    &cluster,
                    budget,
                );
                cluster.rollback(mark);
                for refused in &offer.refused {
                    let of = types.iter().find(|of| Some(of.shape) == refused.shape).map_or("", |of| of.name);
                    println!("{left} × {name} not on {of}: {}", refused.refusal);
                }
                break;
            }
            pin_bringer(inventory, types, &mut bin, &mut cluster);
            cluster.keep(mark);
            left -= placed;
            bins.push(bin);
        }
    }
    for (index, bin) in bins.iter().enumerate() {
        let (of, zone, cents) = cheapest(types, &bin.shapes, bin.ledger.domain().and_then(|domain| domain.0.get(ZONE)));
        println!("machine {index}: {of} in zone {zone}, ${:.2}/h: {}", f64::from(cents) / 100.0, bin.pods.join(", "));
    }
}

/// Decides the zone of a machine that brings devices for it, so that others can use them.
fn pin_bringer(inventory: &Inventory, types: &[MachineType], bin: &mut Bin, cluster: &mut ClusterLedger) {
    let (name, zone, _) = cheapest(types, &bin.shapes, None);
    if name == "nic-host" && bin.ledger.domain().is_some_and(|domain| domain.0.is_empty()) {
        bin.ledger.pin(inventory, cluster, &Domain([(Arc::from(ZONE), Arc::from(zone))].into()));
    }
}

/// Puts as many copies as possible into a machine, by the alternative that serves most at the lowest price.
fn fill(
    inventory: &Inventory,
    types: &[MachineType],
    bin: &mut Bin,
    cluster: &mut ClusterLedger,
    (name, claim): (&str, ClaimUse),
    copies: u32,
) -> u32 {
    let mut budget = Budget::new(STEPS);
    let offer = Copies { claims: &[claim], copies }.try_add(inventory, &bin.ledger, &bin.shapes, cluster, &mut budget);
    let pinned = bin.ledger.domain().and_then(|domain| domain.0.get(ZONE)).cloned();
    let price = |alternative: &Alternative| {
        let zone = alternative.domain.0.get(ZONE).or(pinned.as_ref());
        cheapest(types, &alternative.shapes, zone).2 / alternative.copies
    };
    let Some(best) = offer.alternatives.iter().min_by_key(|alternative| price(alternative)) else { return 0 };
    best.commit(inventory, &mut bin.ledger, cluster);
    bin.shapes = best.shapes.clone();
    bin.pods.push(format!("{} × {name}", best.copies));
    best.copies
}

/// The cheapest type of some shapes, in a zone or anywhere.
fn cheapest(
    types: &[MachineType],
    shapes: &IdSet<ShapeId>,
    zone: Option<&Arc<str>>,
) -> (&'static str, &'static str, u32) {
    let offerings = types.iter().filter(|of| shapes.contains(of.shape)).flat_map(|of| {
        let here = move |(name, _): &(&&str, &u32)| zone.is_none_or(|zone| **zone == ***name);
        of.cents.iter().filter(here).map(|(zone, cents)| (of.name, *zone, *cents))
    });
    offerings.min_by_key(|(_, _, cents)| *cents).unwrap_or(("none", "none", u32::MAX))
}
