//! Claims that nobody uses any more once some pods have left, and the devices that this frees.
//!
//! Upstream's claim controller removes pods that are gone from `status.reservedFor`, and takes the allocation back once
//! no consumer is left. The claim is then allocated anew where its next pod goes.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ClusterLedger, Undo, Usage};
use crate::compile::ids::ClaimId;
use crate::inventory::Inventory;
use dra_types::Allocation;

impl ClusterLedger {
    /// Gives back what an allocated claim holds that is one of [`Inventory::held_alone`] or idle: its devices are free,
    /// and it can be allocated once more.
    pub fn release(&mut self, inventory: &Inventory, claim: ClaimId) {
        if self.released.insert(claim) {
            let usage = held_by(inventory, claim);
            self.base.remove(&usage);
            self.record(|| Undo::Released(claim, Arc::new(usage)));
        }
    }

    /// Undoes [`Self::release`] where no mark was set before it. Whatever others took since has to be given back first.
    pub fn take_back(&mut self, inventory: &Inventory, claim: ClaimId) {
        self.hold_again(claim, &held_by(inventory, claim));
    }

    pub(super) fn hold_again(&mut self, claim: ClaimId, usage: &Usage) {
        if self.released.remove(&claim) {
            self.base.add(usage);
        }
    }

    /// What a claim has in the cluster, unless it was released.
    pub(crate) fn allocation<'i>(&self, inventory: &'i Inventory, claim: ClaimId) -> Option<&'i Allocation> {
        inventory.allocation(claim).filter(|_| !self.released.contains(&claim))
    }

    /// The claims that were released, in their order.
    pub fn released(&self) -> &BTreeSet<ClaimId> {
        &self.released
    }
}

/// What an allocated claim takes. Results with adminAccess take nothing.
fn held_by(inventory: &Inventory, claim: ClaimId) -> Usage {
    let mut usage = Usage::default();
    for (result, key) in inventory.claims[claim].results().filter(|(result, _)| !result.admin_access) {
        usage.add_result(result, [key.into()]);
    }
    usage
}

/// Two ledgers are equal if the same is taken in both, in whichever order it was taken.
impl PartialEq for ClusterLedger {
    fn eq(&self, other: &Self) -> bool {
        self.base == other.base
            && self.bins == other.bins
            && self.whole == other.whole
            && self.shared == other.shared
            && self.counters == other.counters
            && self.offered == other.offered
            && self.claims == other.claims
            && self.consumers == other.consumers
            && self.released == other.released
            && self.pool_order == other.pool_order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use model::{NodeName, Uid};
    use serde_json::{Value, json};

    use crate::fixture::{ask_with, builder, claim, exactly, names, slice};
    use crate::inventory::InventoryBuilder;
    use crate::ledger::ClusterLedger;
    use dra_types::ResourceClaim;

    /// Two halves of a device, and the whole of it.
    fn partitions() -> InventoryBuilder {
        let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 2});
        let part = |name: &str, amount: &str| {
            let counters = json!([{"counterSet": "s", "counters": {"mem": {"value": amount}}}]);
            json!({"name": name, "consumesCounters": counters})
        };
        let devices = json!([part("half-0", "1"), part("half-1", "1"), part("whole", "2")]);
        let counters = json!([{"name": "s", "counters": {"mem": {"value": "2"}}}]);
        let mut builder = builder(&["gpu"]);
        builder.slice(slice("a", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "devices": devices})));
        builder
            .slice(slice("b", &json!({"driver": "gpu", "nodeName": "n1", "pool": pool, "sharedCounters": counters})));
        builder
    }

    fn held(device: &str, consumers: &Value) -> Arc<ResourceClaim> {
        let result = json!({"request": "r", "driver": "gpu", "pool": "n1", "device": device});
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "held"},
            "spec": {"devices": {"requests": [exactly("r", "gpu", 1)]}},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers},
        });
        Arc::new(ResourceClaim::from_json(&object).unwrap())
    }

    #[test]
    fn what_a_released_claim_drew_can_be_drawn_again_until_it_is_taken_back() {
        let mut builder = partitions();
        let held = builder.claim(held("half-0", &json!([{"resource": "pods", "name": "p", "uid": "p"}])));
        let both = claim(&mut builder, "both", &json!({"requests": [exactly("r", "gpu", 2)]}));
        let inventory = builder.build();
        let pod = Uid::from("p");
        let released = inventory.held_alone(&BTreeSet::from([&pod]), &NodeName::from("n1"));
        assert_eq!(released, [held]);
        assert!(inventory.held_alone(&BTreeSet::from([&pod]), &NodeName::from("n2")).is_empty());
        let mut ledger = ClusterLedger::new(&inventory);
        let before = ledger.clone();
        let given = |ledger: &ClusterLedger| names(&ask_with(&inventory, &[both], ledger).0);
        assert!(given(&ledger).is_empty(), "half of it is taken");
        let mark = ledger.mark();
        ledger.release(&inventory, held);
        assert_eq!(given(&ledger), ["half-0", "half-1"]);
        ledger.rollback(mark);
        assert!(ledger == before && given(&ledger).is_empty());
        ledger.release(&inventory, held);
        assert!(ledger != before);
        ledger.take_back(&inventory, held);
        assert!(ledger == before);
    }
}
