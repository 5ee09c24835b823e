//! What can be asked of one device during a walk: whether it is taken, what selectors, taints, capacity and constraints
//! say about it, and what goes wrong with it.

use std::borrow::Cow;
use std::sync::Arc;

use super::{BranchIndex, ClaimPosition, Search};
use crate::capacity::{self, BadCapacity, Demand};
use crate::compile::attributes::{self, Held};
use crate::compile::device::DeviceEntry;
use crate::compile::selectors::{Judgement, SelectorId};
use crate::faults::{Fault, SelectorFault};
use crate::inventory::unit::Unit;
use crate::inventory::view::{Position, ViewDevice};
use dra_types::{Device, DeviceId, DeviceTaint, compat::Gate};

impl<'a> Search<'a> {
    pub(crate) fn view_device(&self, position: Position) -> ViewDevice {
        self.view.devices[position]
    }

    pub(crate) fn entry(&self, position: Position) -> &'a DeviceEntry {
        &self.inventory.devices[self.view.devices[position].device]
    }

    pub(crate) fn device(&self, position: Position) -> &'a Device {
        self.inventory.device(self.view.devices[position].device)
    }

    /// A device as ledgers know it.
    pub(crate) fn unit(&self, position: Position) -> Unit {
        self.view.unit(self.inventory, position)
    }

    /// What results call a device.
    pub(crate) fn device_id(&self, position: Position) -> DeviceId {
        self.view.device_id(self.inventory, position)
    }

    /// What is added to the groups of a device's bound attributes.
    pub(crate) fn group_offset(&self, position: Position) -> Option<u32> {
        self.view.pools[self.view.devices[position].pool].group_offset
    }

    pub(super) fn claim_name(&self, branch: BranchIndex) -> Arc<str> {
        Arc::clone(&self.claims[self.branches[branch].claim].class.name)
    }

    pub(crate) fn is_shareable(&self, position: Position) -> bool {
        self.consumable && self.entry(position).traits.allows_multiple_allocations
    }

    /// Whether a device is given out whole, by the ledger or tentatively.
    pub(crate) fn in_use(&self, position: Position) -> bool {
        self.is_taken(position) || self.touched.get(position).is_some_and(|touch| !touch.claims.is_empty())
    }

    /// Whether the ledger has given a device out whole.
    pub(crate) fn is_taken(&self, position: Position) -> bool {
        let key = self.unit(position);
        self.taken.is_dedicated(key)
            || (!self.inventory.quirks.shared_device_can_become_dedicated
                && !self.is_shareable(position)
                && self.taken.shares(key).is_some())
    }

    pub(crate) fn is_picked_by(&self, position: Position, claim: ClaimPosition) -> bool {
        self.touched.get(position).is_some_and(|touch| touch.claims.contains(&claim))
    }

    /// Whether shares of a device are given out, by the ledger or tentatively.
    pub(super) fn has_shares(&self, position: Position) -> bool {
        self.touched.get(position).is_some_and(|touch| touch.shares > 0)
            || self
                .taken
                .shares(self.unit(position))
                .is_some_and(|amounts| !self.inventory.quirks.bare_shares_draw_counters_again || !amounts.is_empty())
    }

    /// What the selectors say about a device. The inventory remembers what each says.
    pub(crate) fn judge(&self, branch: BranchIndex, position: Position) -> Judgement {
        if !self.inventory.compat.is_on(Gate::DeviceBindingConditions)
            && self.entry(position).traits.has_binding_conditions
        {
            return Judgement::No;
        }
        match self.first_selector_that_fails(branch, position) {
            Some((_, _, judgement)) => judgement,
            None if self.view_device(position).here => Judgement::Yes,
            None => Judgement::No,
        }
    }

    /// The first selector that does not say yes: its position, whether it is the class's, and what it says.
    pub(crate) fn first_selector_that_fails(
        &self,
        branch: BranchIndex,
        position: Position,
    ) -> Option<(SelectorId, (bool, usize), Judgement)> {
        let shape = self.entry(position).shape;
        let content = &self.inventory.shapes[shape];
        let alternative = self.branches[branch].alternative;
        let of_class =
            alternative.class_selectors.iter().enumerate().map(|(index, selector)| (*selector, (true, index)));
        let own = alternative.selectors.iter().enumerate().map(|(index, selector)| (*selector, (false, index)));
        of_class.chain(own).find_map(|(selector, origin)| {
            match self.inventory.selectors.judge(selector, shape, content) {
                Judgement::Yes => None,
                judgement @ (Judgement::No | Judgement::Error) => Some((selector, origin, judgement)),
            }
        })
    }

    pub(super) fn selector_fault(&self, branch: BranchIndex, position: Position) -> Fault {
        let entry = self.entry(position);
        let device = self.device_id(position);
        let alternative = self.branches[branch].alternative;
        let found = self.first_selector_that_fails(branch, position);
        let (of_class, index) = found.map_or((false, 0), |(_, origin, _)| origin);
        let selectors = &self.inventory.selectors;
        Fault::Selector(Box::new(SelectorFault {
            claim: self.claim_name(branch),
            request: alternative.name.clone(),
            class: of_class.then(|| (&*alternative.class.meta.name.name).into()),
            index,
            text: found.map_or_else(|| "".into(), |(selector, ..)| Arc::clone(selectors.text(selector))),
            device,
            error: found.map_or_else(
                || "".into(),
                |(selector, ..)| selectors.error(selector, &self.inventory.shapes[entry.shape]),
            ),
        }))
    }

    /// What a request takes of a device's capacities.
    pub(crate) fn demand(&mut self, branch: BranchIndex, position: Position) -> Arc<Result<Demand, BadCapacity>> {
        let shape = self.entry(position).shape;
        let fractional = self.inventory.compat.is_on(Gate::FractionalCapacityRange);
        let (requests, device) = (&self.branches[branch].alternative.capacity, self.device(position));
        let compute = || Arc::new(capacity::demand(requests, &device.capacity, fractional));
        Arc::clone(self.demands.entry((branch, shape)).or_insert_with(compute))
    }

    /// Whether a device has the capacity for one more share, or as a whole. Without the gate nothing is taken of any.
    pub(crate) fn has_capacity(
        &mut self,
        branch: BranchIndex,
        position: Position,
        statically: bool,
    ) -> Result<bool, BadCapacity> {
        let wants_none = self.branches[branch].alternative.capacity.is_empty();
        if !self.consumable || wants_none && !self.entry(position).traits.has_capacity {
            return Ok(true);
        }
        let is_untouched =
            statically || self.touched.get(position).is_none() && self.taken.shares(self.unit(position)).is_none();
        if is_untouched && self.is_taken_whole(branch, position) {
            return Ok(true);
        }
        let demand = self.demand(branch, position);
        let amounts = match &*demand {
            Ok(Demand::Amounts(amounts)) => amounts,
            Ok(Demand::Unusable) => return Ok(false),
            Err(error) => return Err(*error),
        };
        let taken = if statically { None } else { self.taken.shares(self.unit(position)) };
        let picked = if statically { None } else { self.touched.get(position) };
        let fits = |(index, ((name, capacity), amount)): (usize, ((&_, &dra_types::DeviceCapacity), &i128))| {
            let taken = taken.as_ref().and_then(|taken| taken.get(name)).copied().unwrap_or(0);
            let picked = picked.and_then(|touch| touch.taken.get(index)).copied().unwrap_or(0);
            taken + picked + amount <= capacity.value.to_nano()
        };
        Ok(self.device(position).capacity.iter().zip(amounts.iter()).enumerate().all(fits))
    }

    /// Whether a request takes all that a device has of every capacity.
    pub(crate) fn is_taken_whole(&self, branch: BranchIndex, position: Position) -> bool {
        let wants_none = self.branches[branch].alternative.capacity.is_empty();
        !self.consumable || wants_none && self.inventory.shapes[self.entry(position).shape].plain_capacity
    }

    /// What a capacity that cannot be computed means: None skips the device.
    pub(super) fn capacity_fault(&self, branch: BranchIndex, position: Position, error: BadCapacity) -> Option<Fault> {
        if self.inventory.quirks.bad_capacity_skips_device {
            return None;
        }
        Some(Fault::Capacity {
            claim: self.claim_name(branch),
            request: self.branches[branch].alternative.name.clone(),
            device: self.device_id(position),
            error,
        })
    }

    /// The first taint that the request does not tolerate.
    pub(crate) fn untolerated(&self, branch: BranchIndex, position: Position) -> Option<&'a DeviceTaint> {
        self.branches[branch].alternative.untolerated(self.entry(position), &self.inventory.compat)
    }

    /// Whether the slice asks the node to skip steps that the node cannot skip.
    pub(crate) fn lacks_node_operations(&self, position: Position) -> bool {
        if !self.entry(position).traits.skips_node_operations {
            return false;
        }
        let declares = self.facts.declared_features.contains(Gate::OptionalNodeOperations.name());
        let can_skip = self.inventory.compat.is_on(Gate::OptionalNodeOperations) && declares;
        !self.inventory.quirks.node_operations_are_not_checked && !can_skip
    }

    pub(crate) fn counters_are_off(&self, position: Position) -> bool {
        !self.inventory.compat.is_on(Gate::PartitionableDevices) && self.entry(position).traits.consumes_counters
    }

    /// What a device has under the attribute of a constraint that covers a branch: what the request computes, else what
    /// the device publishes.
    pub(crate) fn held(&self, branch: BranchIndex, constraint: usize, position: Position) -> Cow<'a, Held> {
        let of = &self.branches[branch];
        let entry = self.entry(position);
        if let Some(derived) = of.alternative.derived_for(constraint) {
            return Cow::Owned(self.derived.held(derived, entry.shape, &self.inventory.shapes[entry.shape]));
        }
        match self.claims[of.claim].class.constraints.get(constraint) {
            Some(constraint) => {
                let offset = self.group_offset(position);
                attributes::held(&self.inventory.attributes, constraint.attribute, entry, offset)
            }
            None => Cow::Owned(Held::Missing),
        }
    }

    /// Why the expression of a derived attribute fails on a device.
    pub(crate) fn derived_error(&self, branch: BranchIndex, constraint: usize, position: Position) -> Arc<str> {
        let shape = self.entry(position).shape;
        let derived = self.branches[branch].alternative.derived_for(constraint);
        let outcome = derived.map(|id| self.inventory.derived.value(id, shape, &self.inventory.shapes[shape]));
        outcome.and_then(Result::err).unwrap_or_default()
    }

    pub(super) fn derived_fault(&self, branch: BranchIndex, constraint: usize, position: Position) -> Fault {
        let compiled = self.claims[self.branches[branch].claim].class.constraints.get(constraint);
        Fault::Derived {
            claim: self.claim_name(branch),
            request: self.branches[branch].alternative.name.clone(),
            attribute: compiled.map_or_else(
                || dra_types::QualifiedName::from(""),
                |compiled| self.inventory.attributes[compiled.attribute].name.clone(),
            ),
            device: self.device_id(position),
            error: self.derived_error(branch, constraint, position),
        }
    }
}
