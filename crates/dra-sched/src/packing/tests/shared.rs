//! Pools that machines bring for the nodes of their domain: who sees them, since when, and that nobody gives a device
//! out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::IdSet;
use proptest::prelude::*;
use serde_json::json;

use super::{ZONE, shape, shown, template, try_add};
use crate::compile::ids::{ClaimClassId, ShapeId};
use crate::fixture::{builder, claim, devices, exactly, n1, slice};
use crate::inventory::unit::{Instance, Unit};
use crate::inventory::{ClaimUse, Domain, Inventory, InventoryBuilder, Reservation};
use crate::ledger::{BinLedger, ClusterLedger, Kind, Mark};
use crate::machine::{BoundAttribute, DomainSelector, MachineShape, PoolScope, SharedTemplate, binding_group};
use dra_types::{ResourceClaim, ResourceSlice};

/// A pool of the zone of the machine that brings it.
fn zonal(driver: &str, count: usize, scope: PoolScope) -> SharedTemplate {
    let nodes = DomainSelector { match_label_keys: [ZONE.into()].into(), ..DomainSelector::default() };
    SharedTemplate { template: template(driver, count), scope, nodes }
}

/// Machines in one of the zones, with GPUs of their own, that bring pools.
fn bringing(gpus: usize, zones: &[&str], shared: Vec<SharedTemplate>) -> MachineShape {
    shape(vec![template("gpu", gpus)], zones).with_shared(shared.into_iter().map(Arc::new).collect())
}

fn one(builder: &mut InventoryBuilder, driver: &str) -> ClaimUse {
    let class = claim(builder, driver, &json!({"requests": [exactly("r", driver, 1)]}));
    ClaimUse::Fresh { class, containers: 1 }
}

fn zone(value: &str) -> Domain {
    Domain([(ZONE.into(), value.into())].into())
}

fn only(shape: ShapeId, cluster: &mut ClusterLedger) -> BinLedger {
    BinLedger::machine(&[shape].into_iter().collect(), cluster)
}

/// How many copies fit at most, by domain.
fn most(inventory: &Inventory, bin: &BinLedger, cluster: &ClusterLedger, claim: ClaimUse) -> BTreeMap<String, u32> {
    let mut most = BTreeMap::new();
    for (copies, domain, _) in shown(&try_add(inventory, bin, cluster, claim, 100)) {
        most.entry(domain).or_insert(copies);
    }
    most
}

fn counts(expected: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let name = |zone: &str| if zone.is_empty() { String::new() } else { format!("{ZONE}={zone}") };
    expected.iter().map(|(zone, count)| (name(zone), *count)).collect()
}

#[test]
fn where_machines_describe_a_zones_one_pool_differently_the_first_description_holds() {
    let mut builder = builder(&["gpu", "nic"]);
    let small = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 1, PoolScope::Domain)]));
    let large = builder.machine_shape(bringing(2, &["a"], vec![zonal("nic", 3, PoolScope::Domain)]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut first, mut second) = (only(large, &mut cluster), only(small, &mut cluster));
    assert_eq!(most(&inventory, &second, &cluster, nic), counts(&[("", 1)]), "its own, as long as nobody brings it");
    first.pin(&inventory, &mut cluster, &zone("a"));
    second.pin(&inventory, &mut cluster, &zone("a"));
    assert_eq!(most(&inventory, &first, &cluster, nic), counts(&[("", 3)]));
    assert_eq!(most(&inventory, &second, &cluster, nic), counts(&[("", 3)]));
    let offer = try_add(&inventory, &second, &cluster, nic, 2);
    offer.alternatives[0].commit(&inventory, &mut second, &mut cluster);
    assert_eq!(most(&inventory, &first, &cluster, nic), counts(&[("", 1)]), "not one of its own beside");
}

#[test]
fn a_machines_pool_is_its_own_until_its_zone_is_known_and_then_that_of_all_nodes_there() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a", "b"], vec![zonal("nic", 2, PoolScope::Machine)]));
    let plain = builder.machine_shape(bringing(1, &["a", "b"], vec![]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut host, guest) = (only(host, &mut cluster), only(plain, &mut cluster));
    assert_eq!(most(&inventory, &host, &cluster, nic), counts(&[("", 2)]), "the zone does not matter to its own pool");
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[]));
    let before = (cluster.mark(), host.clone());
    host.pin(&inventory, &mut cluster, &zone("a"));
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[("a", 2)]));

    let mut guest = guest;
    let offer = try_add(&inventory, &guest, &cluster, nic, 1);
    offer.alternatives[0].commit(&inventory, &mut guest, &mut cluster);
    assert_eq!(guest.domain(), Some(&zone("a")));
    assert_eq!(most(&inventory, &host, &cluster, nic), counts(&[("", 1)]), "the guest holds one");
    assert_eq!(cluster.users_of_pools(&host).bins, [guest.id().unwrap()]);
    assert!(cluster.users_of_pools(&guest).is_empty());

    cluster.rollback(before.0);
    host = before.1;
    assert_eq!(most(&inventory, &host, &cluster, nic), counts(&[("", 2)]));
    assert!(cluster.users_of_pools(&host).is_empty());
}

#[test]
fn a_machines_pool_goes_with_it() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 2, PoolScope::Machine)]));
    let plain = builder.machine_shape(bringing(1, &["a"], vec![]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut host, guest) = (only(host, &mut cluster), only(plain, &mut cluster));
    host.pin(&inventory, &mut cluster, &zone("a"));
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[("", 2)]));
    host.release(&inventory, &mut cluster, &IdSet::default());
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[]));
}

#[test]
fn a_pool_is_offered_only_where_every_shape_brings_it() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 2, PoolScope::Machine)]));
    let plain = builder.machine_shape(bringing(2, &["a"], vec![]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let mut either = BinLedger::machine(&[host, plain].into_iter().collect(), &mut cluster);
    let guest = only(plain, &mut cluster);
    either.pin(&inventory, &mut cluster, &zone("a"));
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[]));
    either.release(&inventory, &mut cluster, &[host].into_iter().collect());
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[("", 2)]));
}

#[test]
fn a_domain_has_one_pool_however_many_machines_bring_it() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a", "b"], vec![zonal("nic", 3, PoolScope::Domain)]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut first, mut second) = (only(host, &mut cluster), only(host, &mut cluster));
    assert_eq!(most(&inventory, &first, &cluster, nic), counts(&[("a", 3), ("b", 3)]));
    let offer = try_add(&inventory, &first, &cluster, nic, 2);
    offer.alternatives[0].commit(&inventory, &mut first, &mut cluster);
    assert_eq!(most(&inventory, &second, &cluster, nic), counts(&[("a", 1), ("b", 3)]));
    second.pin(&inventory, &mut cluster, &zone("a"));
    assert!(cluster.users_of_pools(&second).is_empty(), "the first machine still brings the pool");
    second.release(&inventory, &mut cluster, &IdSet::default());
    assert_eq!(most(&inventory, &first, &cluster, nic), counts(&[("", 1)]));
}

/// The pool of zone `a`, published: `slices` of `count` slices are there.
fn live(slices: usize, count: usize) -> Vec<Arc<ResourceSlice>> {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "a"]}]});
    let spec = |index: usize| {
        json!({"driver": "nic", "nodeSelector": {"nodeSelectorTerms": [term]}, "devices": [{"name": format!("live-{index}")}],
            "pool": {"name": "real", "generation": 1, "resourceSliceCount": count}})
    };
    (0..slices).map(|index| slice(&format!("live-{index}"), &spec(index))).collect()
}

#[test]
fn a_domains_pool_is_planned_until_it_is_published_as_a_whole() {
    for (slices, count, in_a) in [(0, 0, 3), (1, 2, 3), (1, 1, 1), (2, 2, 2)] {
        let mut builder = builder(&["gpu", "nic"]);
        live(slices, count).into_iter().for_each(|slice| builder.slice(slice));
        let host = builder.machine_shape(bringing(1, &["a", "b"], vec![zonal("nic", 3, PoolScope::Domain)]));
        let nic = one(&mut builder, "nic");
        let inventory = builder.build();
        let mut cluster = ClusterLedger::new(&inventory);
        let bin = only(host, &mut cluster);
        assert_eq!(most(&inventory, &bin, &cluster, nic), counts(&[("a", in_a), ("b", 3)]), "{slices} of {count}");
    }
}

#[test]
fn an_existing_node_uses_what_a_planned_machine_brings() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 2, PoolScope::Machine)]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let mut facts = n1();
    facts.labels.insert(ZONE.into(), "a".into());
    let (mut node, mut host) = (BinLedger::node(facts), only(host, &mut cluster));
    assert_eq!(most(&inventory, &node, &cluster, nic), counts(&[]));
    host.pin(&inventory, &mut cluster, &zone("a"));
    let offer = try_add(&inventory, &node, &cluster, nic, 1);
    offer.alternatives[0].commit(&inventory, &mut node, &mut cluster);
    assert_eq!(most(&inventory, &node, &cluster, nic), counts(&[("", 1)]));
    assert_eq!(most(&inventory, &host, &cluster, nic), counts(&[("", 1)]));
    assert!(cluster.users_of_pools(&host).nodes);
}

#[test]
fn an_offer_taken_by_another_machine_takes_that_machines_pool() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 2, PoolScope::Machine)]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (spare, mut taker) = (only(host, &mut cluster), only(host, &mut cluster));
    let offer = try_add(&inventory, &spare, &cluster, nic, 2);
    offer.alternatives[0].commit(&inventory, &mut taker, &mut cluster);
    assert_eq!(most(&inventory, &taker, &cluster, nic), counts(&[]));
    assert_eq!(most(&inventory, &spare, &cluster, nic), counts(&[("", 2)]));
}

#[test]
fn a_claim_on_a_zones_pool_can_be_used_by_other_nodes_of_the_zone() {
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![zonal("nic", 1, PoolScope::Machine)]));
    let elsewhere = builder.machine_shape(bringing(1, &["b"], vec![]));
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "ns"}, "spec": {"devices": {"requests": [exactly("r", "nic", 1)]}}});
    let claim = builder.claim(Arc::new(ResourceClaim::from_json(&object).unwrap()));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let named = ClaimUse::Named { claim, containers: 1, reservation: Reservation::NewPod };
    let mut first = only(host, &mut cluster);
    let offer = try_add(&inventory, &first, &cluster, named, 1);
    offer.alternatives[0].commit(&inventory, &mut first, &mut cluster);
    let (same, other) = (only(host, &mut cluster), only(elsewhere, &mut cluster));
    assert_eq!(try_add(&inventory, &same, &cluster, named, 1).alternatives.len(), 1);
    assert!(try_add(&inventory, &other, &cluster, named, 1).alternatives.is_empty());
}

#[test]
fn unknown_values_of_another_machine_match_each_other_and_nothing_of_ones_own() {
    let bound = |mut template: crate::MachineTemplate| {
        for device in ["d00", "d01"] {
            let attribute = BoundAttribute { device: device.into(), attribute: "example.com/root".into() };
            template.bindings.push((binding_group(0, false), attribute));
        }
        template
    };
    let mut builder = builder(&["gpu", "nic"]);
    let nics = SharedTemplate { template: bound(template("nic", 2)), ..zonal("nic", 2, PoolScope::Machine) };
    let host = builder.machine_shape(shape(vec![bound(template("gpu", 2))], &["a"]).with_shared(vec![Arc::new(nics)]));
    let guest = builder.machine_shape(shape(vec![bound(template("gpu", 2))], &["a"]));
    let aligned = |a: &str, b: &str| json!({"requests": [exactly("a", a, 1), exactly("b", b, 1)], "constraints": [{"matchAttribute": "example.com/root"}]});
    let fresh = |class: ClaimClassId| ClaimUse::Fresh { class, containers: 1 };
    let mixed = fresh(claim(&mut builder, "mixed", &aligned("gpu", "nic")));
    let nics = fresh(claim(&mut builder, "nics", &aligned("nic", "nic")));
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut host, guest) = (only(host, &mut cluster), only(guest, &mut cluster));
    host.pin(&inventory, &mut cluster, &zone("a"));
    assert_eq!(most(&inventory, &host, &cluster, mixed), counts(&[("", 2)]));
    assert_eq!(most(&inventory, &guest, &cluster, mixed), counts(&[]), "whose root is whose nobody knows");
    assert_eq!(most(&inventory, &guest, &cluster, nics), counts(&[("", 1)]));
}

#[test]
fn counters_of_pools_made_from_one_template_are_counted_apart() {
    let mut pool = zonal("nic", 0, PoolScope::Machine);
    let draw = json!([{"counterSet": "set", "counters": {"ports": {"value": "2"}}}]);
    let spec = json!({"driver": "nic", "allNodes": true, "devices": devices(4, |_| json!({"consumesCounters": draw.clone()})),
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
    pool.template.devices = slice("partitions", &spec).devices.clone();
    let set = json!({"name": "set", "counters": {"ports": {"value": "4"}}});
    pool.template.shared_counters = vec![dra_types::CounterSet::from_json(&set).unwrap()];
    let mut builder = builder(&["gpu", "nic"]);
    let host = builder.machine_shape(bringing(1, &["a"], vec![pool]));
    let plain = builder.machine_shape(bringing(1, &["a"], vec![]));
    let nic = one(&mut builder, "nic");
    let inventory = builder.build();
    let mut cluster = ClusterLedger::new(&inventory);
    let (mut first, mut second) = (only(host, &mut cluster), only(host, &mut cluster));
    first.pin(&inventory, &mut cluster, &zone("a"));
    second.pin(&inventory, &mut cluster, &zone("a"));
    let mut guest = only(plain, &mut cluster);
    assert_eq!(most(&inventory, &guest, &cluster, nic), counts(&[("", 4)]), "two of each pool's four");
    let offer = try_add(&inventory, &guest, &cluster, nic, 3);
    offer.alternatives[0].commit(&inventory, &mut guest, &mut cluster);
    assert_eq!(most(&inventory, &second, &cluster, nic), counts(&[("", 1)]));
}

/// What a random packer does next.
#[derive(Debug, Clone)]
enum Step {
    Open {
        shapes: u8,
    },
    Pin {
        bin: usize,
        zone: usize,
    },
    Fill {
        bin: usize,
        claim: usize,
        copies: u32,
        choice: usize,
    },
    Narrow {
        bin: usize,
        keep: u8,
    },
    /// Begins a part that may be undone.
    Mark,
    Undo,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u8..16).prop_map(|shapes| Step::Open { shapes }),
        3 => (0usize..6, 0usize..2).prop_map(|(bin, zone)| Step::Pin { bin, zone }),
        6 => (0usize..6, 0usize..3, 1u32..4, 0usize..4)
            .prop_map(|(bin, claim, copies, choice)| Step::Fill { bin, claim, copies, choice }),
        1 => (0usize..6, 0u8..16).prop_map(|(bin, keep)| Step::Narrow { bin, keep }),
        1 => Just(Step::Mark),
        1 => Just(Step::Undo),
    ];
    prop::collection::vec(step, 1..24)
}

const ZONES: [&str; 2] = ["a", "b"];
/// NICs of a machine's pool and of a domain's, by shape; see [`world`].
const BRINGS: [(u32, u32); 4] = [(0, 0), (2, 0), (0, 3), (2, 3)];

/// Four shapes that bring nothing, a pool of their own, one of the zone, both; GPUs and NICs to ask for.
fn world() -> (Inventory, Vec<ShapeId>, Vec<ClaimUse>) {
    let mut builder = builder(&["gpu", "nic"]);
    let shapes = BRINGS
        .iter()
        .enumerate()
        .map(|(index, (own, of_zone))| {
            let mut pools = Vec::new();
            if *own > 0 {
                pools.push(zonal("nic", *own as usize, PoolScope::Machine));
            }
            if *of_zone > 0 {
                pools.push(zonal("nic", *of_zone as usize, PoolScope::Domain));
            }
            builder.machine_shape(bringing(index + 1, &ZONES, pools))
        })
        .collect();
    let both = json!({"requests": [exactly("g", "gpu", 1), exactly("n", "nic", 2)]});
    let both = ClaimUse::Fresh { class: claim(&mut builder, "both", &both), containers: 1 };
    let claims = vec![one(&mut builder, "gpu"), one(&mut builder, "nic"), both];
    (builder.build(), shapes, claims)
}

/// A world in which random steps were taken.
struct Packer<'w> {
    inventory: &'w Inventory,
    shapes: &'w [ShapeId],
    claims: &'w [ClaimUse],
    cluster: ClusterLedger,
    bins: Vec<BinLedger>,
    marks: Vec<(Mark, Vec<BinLedger>)>,
}

impl Packer<'_> {
    fn chosen(&self, mask: u8) -> IdSet<ShapeId> {
        let is_in = |(index, _): &(usize, &ShapeId)| mask >> index & 1 == 1;
        self.shapes.iter().enumerate().filter(is_in).map(|(_, shape)| *shape).collect()
    }

    fn take(&mut self, step: &Step) {
        let chosen = match *step {
            Step::Open { shapes: mask } | Step::Narrow { keep: mask, .. } => self.chosen(mask),
            Step::Pin { .. } | Step::Fill { .. } | Step::Mark | Step::Undo => IdSet::default(),
        };
        let (inventory, cluster) = (self.inventory, &mut self.cluster);
        match *step {
            Step::Open { .. } => self.bins.push(BinLedger::machine(&chosen, cluster)),
            Step::Pin { bin, zone: index } => {
                let Some(bin) = self.bins.get_mut(bin) else { return };
                if bin.domain().is_some_and(|domain| domain.0.is_empty()) {
                    bin.pin(inventory, cluster, &zone(ZONES[index]));
                }
            }
            Step::Fill { bin, claim, copies, choice } => {
                let Some(bin) = self.bins.get_mut(bin) else { return };
                let offer = try_add(inventory, bin, cluster, self.claims[claim], copies);
                assert!(offer.undecided.is_empty());
                if !offer.alternatives.is_empty() {
                    let chosen = &offer.alternatives[choice % offer.alternatives.len()];
                    chosen.commit(inventory, bin, cluster);
                }
            }
            Step::Narrow { bin, .. } => {
                if let Some(bin) = self.bins.get_mut(bin) {
                    bin.release(inventory, cluster, &chosen);
                }
            }
            Step::Mark => self.marks.push((cluster.mark(), self.bins.clone())),
            Step::Undo => {
                if let Some((mark, bins)) = self.marks.pop() {
                    cluster.rollback(mark);
                    self.bins = bins;
                }
            }
        }
    }

    /// What is held of pools that others may see, by any of the shapes that a machine may have.
    fn held(&self, bin: &BinLedger) -> BTreeSet<Unit> {
        let Kind::Machine { hypotheses, .. } = &bin.kind else { return BTreeSet::new() };
        let all = hypotheses.iter().flat_map(|hypothesis| &hypothesis.usage.dedicated);
        all.copied().filter(|unit| !self.inventory.is_planned(unit.key())).collect()
    }

    fn zone_of(bin: &BinLedger) -> Option<&str> {
        bin.domain().and_then(|domain| domain.0.get(ZONE)).map(|zone| &**zone)
    }

    /// What a machine brings whatever shape it will have: NICs of its own pool, of its zone's.
    fn brings(&self, bin: &BinLedger) -> (u32, u32) {
        let shapes: Vec<ShapeId> = bin.shapes().into_iter().flatten().collect();
        let of = |shape: &ShapeId| BRINGS[self.shapes.iter().position(|known| known == shape).unwrap()];
        let least = |count: fn((u32, u32)) -> u32| shapes.iter().map(|shape| count(of(shape))).min().unwrap_or(0);
        (least(|(own, _)| own), least(|(_, of_zone)| of_zone))
    }

    /// What the simplest bookkeeping says that a machine whose zone is known can still get: NICs of the pools of
    /// machines that are certainly in the zone, and of the zone's one pool if any of these brings it, less those that
    /// are held.
    fn free(&self, zone: &str) -> u32 {
        let mut pools: BTreeMap<Instance, u32> = BTreeMap::new();
        for bin in self.bins.iter().filter(|bin| Self::zone_of(bin) == Some(zone)) {
            let (own, of_zone) = self.brings(bin);
            if own > 0 {
                pools.insert(Instance::of_bin(bin.id().unwrap()), own);
            }
            if of_zone > 0 {
                let number = ZONES.iter().position(|known| *known == zone).unwrap() + 1;
                pools.insert(Instance::of_domain(number), of_zone);
            }
        }
        let held = self.bins.iter().flat_map(|bin| self.held(bin)).filter(|unit| pools.contains_key(&unit.instance()));
        let all: u32 = pools.values().sum();
        all - u32::try_from(held.count()).unwrap()
    }

    fn check(&self) {
        for (index, bin) in self.bins.iter().enumerate() {
            let held = self.held(bin);
            for other in &self.bins[..index] {
                assert!(held.is_disjoint(&self.held(other)), "two machines hold one device");
            }
            let shapes = bin.shapes().into_iter().flatten().count();
            let (1, Some(zone)) = (shapes, Self::zone_of(bin)) else { continue };
            let nic = self.claims[1];
            let found = most(self.inventory, bin, &self.cluster, nic).get("").copied().unwrap_or(0);
            assert_eq!(found, self.free(zone), "machine {index} in zone {zone}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_machines_hold_one_device_and_each_sees_what_its_zone_has_left(steps in steps()) {
        let (inventory, shapes, claims) = world();
        let cluster = ClusterLedger::new(&inventory);
        let (bins, marks) = (Vec::new(), Vec::new());
        let mut packer = Packer { inventory: &inventory, shapes: &shapes, claims: &claims, cluster, bins, marks };
        for step in &steps {
            packer.take(step);
            packer.check();
        }
    }
}
