//! How many devices of a set claims take at least, and how many a machine has at most: amounts that add up.
//!
//! For bounds over many machines, where nobody searches. A set are devices of which each serves one claim at a time,
//! on its own machine. So no machine serves claims that take more of a set together than it has. Left out: which device
//! it is, constraints, counters, capacity, taints. Claims that fit by these amounts may still be refused; those that do
//! not, certainly are.
//!
//! Cost: requests × different devices, once; then devices of a machine × sets for each question.

use std::collections::{BTreeMap, BTreeSet};

use model::collections::{FastMap, FastSet};
use model::{IdSet, IdVec, NodeName};

use crate::compile::claims::Request;
use crate::compile::device::DeviceEntry;
use crate::compile::ids::{ClaimClassId, DeviceIndex, DeviceKey, DeviceShape, ShapeId, SliceIndex};
use crate::inventory::unit::Unit;
use crate::inventory::{ClaimUse, Inventory};
use crate::ledger::{ClusterLedger, Taken};

/// Sets of devices that claims compete for.
#[derive(Debug)]
pub struct DeviceSets {
    sets: Vec<IdSet<DeviceShape>>,
    /// By set: what a claim of a class takes at least.
    taken: FastMap<ClaimClassId, Vec<u32>>,
    /// By set: what a machine of a shape has.
    on_machines: IdVec<ShapeId, Vec<u32>>,
    /// Devices of claims that nobody uses: these may be given back.
    idle: FastSet<DeviceKey>,
}

/// What a request takes at least of one of some sets.
struct Wanted {
    /// By alternative: what it could take, and how many of it.
    alternatives: Vec<(IdSet<DeviceShape>, u32)>,
}

impl Wanted {
    /// `None` for one that is met without taking anything.
    fn of(inventory: &Inventory, request: &Request) -> Option<Self> {
        let alternatives = &request.alternatives;
        if alternatives.iter().any(|alternative| alternative.admin_access) {
            return None;
        }
        let of_alternative = |alternative| {
            let could_take = |shape: &DeviceShape| inventory.could_take(alternative, *shape);
            // A request for all devices takes one at least.
            let count = u32::try_from(alternative.count.unwrap_or(1)).unwrap_or(u32::MAX);
            (inventory.shapes.ids().filter(could_take).collect(), count)
        };
        Some(Self { alternatives: alternatives.iter().map(of_alternative).collect() })
    }

    fn all(&self) -> IdSet<DeviceShape> {
        let mut all = IdSet::new();
        self.alternatives.iter().for_each(|(shapes, _)| all.union_with(shapes));
        all
    }

    fn from(&self, set: &IdSet<DeviceShape>) -> u32 {
        let of = |(shapes, count): &(IdSet<_>, u32)| if shapes.is_subset(set) { *count } else { 0 };
        self.alternatives.iter().map(of).min().unwrap_or(0)
    }
}

impl DeviceSets {
    /// What each request of some pods could take is a set; those count of which the pods take most together, `most` at
    /// most.
    pub fn new<'c>(inventory: &Inventory, wanting: impl Iterator<Item = (&'c [ClaimUse], u32)>, most: usize) -> Self {
        let mut copies: BTreeMap<ClaimClassId, u64> = BTreeMap::new();
        for (claims, pods) in wanting {
            for class in claims.iter().filter_map(of_its_own) {
                *copies.entry(class).or_default() += u64::from(pods);
            }
        }
        let wanted = |class: ClaimClassId| -> Vec<Wanted> {
            let requests = inventory.claim_classes[class].requests.iter();
            requests.filter_map(|request| Wanted::of(inventory, request)).collect()
        };
        let wanted: Vec<(ClaimClassId, u64, Vec<Wanted>)> =
            copies.into_iter().map(|(class, copies)| (class, copies, wanted(class))).collect();
        let common = common(inventory);
        let mut sets: Vec<IdSet<DeviceShape>> = Vec::new();
        for set in wanted.iter().flat_map(|(.., wanted)| wanted).map(Wanted::all) {
            if !set.is_empty() && !set.intersects(&common) && !sets.contains(&set) {
                sets.push(set);
            }
        }
        let of_class = |wanted: &[Wanted], set: &IdSet<DeviceShape>| {
            wanted.iter().map(|wanted| wanted.from(set)).fold(0_u32, u32::saturating_add)
        };
        sets.sort_by_cached_key(|set| {
            let of_all = wanted.iter().map(|(_, copies, wanted)| copies * u64::from(of_class(wanted, set)));
            std::cmp::Reverse(of_all.fold(0, u64::saturating_add))
        });
        sets.truncate(most);
        let taken = wanted
            .iter()
            .map(|(class, _, wanted)| (*class, sets.iter().map(|set| of_class(wanted, set)).collect()))
            .collect();
        let idle = inventory.claims.iter().filter(|claim| claim.is_idle).flat_map(|claim| claim.held.iter().copied());
        let mut all = Self { sets, taken, on_machines: IdVec::new(), idle: idle.collect() };
        all.on_machines = inventory
            .machines
            .map(|machine| all.count(inventory, machine.slices.iter().flat_map(|slice| inventory.devices_of(*slice))));
        all
    }

    /// How many sets there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// By set: what a pod with these claims takes at least.
    pub fn taken(&self, claims: &[ClaimUse]) -> Vec<u32> {
        let mut taken = vec![0_u32; self.sets.len()];
        for of_class in claims.iter().filter_map(of_its_own).filter_map(|class| self.taken.get(&class)) {
            taken.iter_mut().zip(of_class).for_each(|(taken, more)| *taken = taken.saturating_add(*more));
        }
        taken
    }

    /// By set: how many a machine of a shape has.
    pub fn on_machine(&self, shape: ShapeId) -> &[u32] {
        self.on_machines.try_get(shape).map_or(&[], Vec::as_slice)
    }

    /// By set: how many a node has; of these, those that a ledger does not hold.
    pub fn on_node(&self, inventory: &Inventory, node: &NodeName, ledger: Option<&ClusterLedger>) -> Vec<u32> {
        let slices = inventory.local.get(node).into_iter().flat_map(|local| &local.slices);
        let mut seen: BTreeSet<DeviceKey> = BTreeSet::new();
        let is_left = |device: &DeviceIndex| {
            let key = inventory.devices[*device].key;
            let is_held = |ledger| Taken { cluster: ledger, own: None }.is_dedicated(Unit::from(key));
            // Of several generations of a pool one counts, and a device is mostly in each of them.
            seen.insert(key) && (self.idle.contains(&key) || !ledger.is_some_and(is_held))
        };
        self.count(inventory, slices.flat_map(|slice| inventory.devices_of(*slice)).filter(is_left))
    }

    fn count(&self, inventory: &Inventory, devices: impl Iterator<Item = DeviceIndex>) -> Vec<u32> {
        let mut count = vec![0; self.sets.len()];
        for shape in devices.map(|device| inventory.devices[device].shape) {
            for (count, _) in count.iter_mut().zip(&self.sets).filter(|(_, set)| set.contains(shape)) {
                *count += 1;
            }
        }
        count
    }
}

/// The class of a claim that is allocated for each copy of a pod anew.
fn of_its_own(claim: &ClaimUse) -> Option<ClaimClassId> {
    match *claim {
        ClaimUse::Fresh { class, .. } | ClaimUse::Extended { class } => Some(class),
        ClaimUse::Named { .. } => None,
    }
}

/// Devices that several claims can share, or that pods of several machines can take.
fn common(inventory: &Inventory) -> IdSet<DeviceShape> {
    let for_several: BTreeSet<SliceIndex> =
        inventory.shared.iter().copied().chain(inventory.slices_for_domains()).collect();
    let is_common =
        |device: &&DeviceEntry| device.traits.allows_multiple_allocations || for_several.contains(&device.slice);
    inventory.devices.iter().filter(is_common).map(|device| device.shape).collect()
}
