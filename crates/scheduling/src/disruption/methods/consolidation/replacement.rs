//! What a replacement's NodeClaim keeps: only what is cheaper, so that a launch which finds the cheapest out of stock
//! does not raise the fleet's price (Karpenter's `RemoveInstanceTypeOptionsByPriceAndMinValues`).
//!
//! An instance type is as dear as the dearest of its offerings that the claim lets in.
//!
//! Differs: `replacement-capacity-type`. A claim that lets in spot and on-demand is held to that which was planned, so
//! that no dear one comes where a cheap one is out of stock; Karpenter holds it to spot.

use std::collections::BTreeSet;

use api::labels;
use cloudprovider::CapacityType;
use model::{KeyId, Requirement, ValueId, ValueSet};

use crate::catalogue::{Offering, TypeId};
use crate::disruption::reason::Unconsolidatable;
use crate::disruption::search::NewMachine;
use crate::plan::Machine;
use crate::snapshot::{MinValuesPolicy, NodePool, Snapshot};

/// A replacement of a plan.
pub(super) struct Replacement<'a> {
    snapshot: &'a Snapshot,
    pool: &'a NodePool,
    machine: &'a mut Machine,
}

impl<'a> Replacement<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, machine: &'a mut Machine) -> Option<Self> {
        Some(Self { snapshot, pool: snapshot.node_pools.try_get(machine.node_pool)?, machine })
    }

    /// As rules look at it: how many of its spot types cost less than that.
    pub(super) fn as_new(&self, cost: i128) -> NewMachine {
        let spot = |id: TypeId| {
            let mut offerings = self.offerings(id).filter(|offering| offering.capacity_type == CapacityType::Spot);
            offerings.next().map(|first| offerings.fold(first.price, |least, offering| least.min(offering.price)))
        };
        let prices: Vec<i128> =
            self.machine.instance_types.iter().filter_map(|id| spot(*id)).map(|price| i128::from(price.0)).collect();
        let cheaper = || prices.iter().filter(|price| **price < cost).count();
        NewMachine { pool: self.machine.node_pool, cheaper_spot_types: (!prices.is_empty()).then(cheaper) }
    }

    /// The types that the claim lets in.
    pub(super) fn types(&self) -> impl Iterator<Item = &'a model::InstanceTypeName> {
        let pool = self.pool;
        let types = self.machine.instance_types.clone();
        types.into_iter().filter_map(move |id| pool.catalogue.types.try_get(id)).map(|it| &it.name)
    }

    /// Keeps the types that cost no more than that, whichever of their offerings is launched; at most `most` of them,
    /// or as many as minValues need.
    ///
    /// # Errors
    /// If what was planned is not among them, or too little is left for `minValues`.
    pub(super) fn keep_up_to(&mut self, limit: i128, most: Option<usize>) -> Result<(), Unconsolidatable> {
        let launch = self.machine.launch;
        let is_other = |offering: &Offering| offering.capacity_type != launch.capacity_type;
        if self.machine.instance_types.iter().any(|id| self.offerings(*id).any(is_other)) {
            let value = self.snapshot.interner.find_value(launch.capacity_type.as_str());
            self.pin(labels::CAPACITY_TYPE, value);
        }
        let mut kept = self.no_dearer_than(limit);
        if !kept.contains(&launch.instance_type) {
            // Dearer in another zone.
            self.pin(labels::ZONE, Some(launch.zone));
            kept = self.no_dearer_than(limit);
        }
        if !kept.contains(&launch.instance_type) {
            return Err(Unconsolidatable::NotConfirmed);
        }
        let enough = most.unwrap_or(kept.len()).min(kept.len());
        let count =
            (enough..=kept.len()).find(|&count| kept.get(..count).is_some_and(|kept| self.lacks(kept).is_empty()));
        kept.truncate(count.unwrap_or(kept.len()));
        let lacking = self.lacks(&kept);
        if !lacking.is_empty() {
            match self.snapshot.options.min_values {
                MinValuesPolicy::Strict => return Err(Unconsolidatable::MinValues(self.pool.name.clone())),
                MinValuesPolicy::BestEffort => self.relax(lacking),
            }
        }
        self.machine.choice.next_best = kept
            .iter()
            .find(|id| **id != launch.instance_type)
            .and_then(|&id| Some((id, self.offerings(id).map(|offering| offering.price).min()?)));
        self.machine.instance_types = kept;
        Ok(())
    }

    /// Offerings of a type that the claim lets in and that could be launched.
    fn offerings(&self, id: TypeId) -> impl Iterator<Item = &'a Offering> {
        let (catalogue, names) = (&*self.pool.catalogue, &*self.snapshot.interner);
        let requirements = self.machine.requirements.clone();
        let of_type = catalogue.offerings_of(id).filter_map(|id| catalogue.offerings.try_get(id));
        of_type.filter(move |offering| {
            offering.launchable() && requirements.intersects(&offering.requirements, names).is_ok()
        })
    }

    fn pin(&mut self, label: &str, value: Option<ValueId>) {
        let names = &*self.snapshot.interner;
        if let (Some(key), Some(value)) = (names.find_key(label), value) {
            let min_values = self.machine.requirements.get(key).and_then(|requirement| requirement.min_values);
            let pinned = Requirement { min_values, ..Requirement::new(key, ValueSet::one(value)) };
            self.machine.requirements.insert_intersect(pinned, names);
        }
    }

    fn no_dearer_than(&self, limit: i128) -> Vec<TypeId> {
        let is_kept = |id: &TypeId| {
            let dearest = self.offerings(*id).map(|offering| i128::from(offering.price.0)).max();
            dearest.is_some_and(|dearest| dearest <= limit)
        };
        self.machine.instance_types.iter().copied().filter(is_kept).collect()
    }

    /// The keys of which these types have fewer values than the claim wants, with how many they have.
    fn lacks(&self, types: &[TypeId]) -> Vec<(KeyId, u32)> {
        let wanted = self.machine.requirements.iter().filter_map(|it| Some((it.key, it.min_values?)));
        let has = |key: KeyId| {
            let offerings = types.iter().flat_map(|id| self.offerings(*id));
            let of_offering = |offering: &'a Offering| {
                let values = offering.requirements.get(key).and_then(|requirement| requirement.values.finite_values());
                values.unwrap_or_default().iter().copied()
            };
            let values: BTreeSet<ValueId> = offerings.flat_map(of_offering).collect();
            u32::try_from(values.len()).unwrap_or(u32::MAX)
        };
        let has = wanted.map(|(key, wanted)| (key, has(key), wanted));
        has.filter(|(_, has, wanted)| has < wanted).map(|(key, has, _)| (key, has)).collect()
    }

    fn relax(&mut self, lacking: Vec<(KeyId, u32)>) {
        self.machine.min_values_relaxed = true;
        for (key, left) in lacking {
            if let Some(requirement) = self.machine.requirements.get(key).cloned() {
                let min_values = (left > 0).then_some(left);
                self.machine.requirements.replace(Requirement { min_values, ..requirement });
            }
        }
    }
}
