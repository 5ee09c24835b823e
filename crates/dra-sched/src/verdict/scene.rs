//! What a search looked at when it refused, so that its reasons can be found when somebody reads them.
//!
//! A planner asks thousands of times and reads few refusals. So a refusal only keeps the view, which is shared anyway,
//! and what was taken of its devices at that time.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::compile::ids::{ClaimClassId, CounterIndex};
use crate::inventory::Inventory;
use crate::inventory::view::View;
use crate::ledger::{ClusterLedger, Snapshot, Taken};
use dra_types::{NodeFacts, compat::Gate};

/// Claims, what a node sees, and what was taken of it.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) claims: SmallVec<[ClaimClassId; 2]>,
    /// The facts about the node that the view does not contain.
    pub(crate) facts: NodeFacts,
    pub(crate) view: Arc<View>,
    taken: Snapshot,
}

impl Scene {
    pub(crate) fn of(
        inventory: &Inventory,
        facts: &NodeFacts,
        view: &Arc<View>,
        claims: &[ClaimClassId],
        taken: Taken<'_>,
    ) -> Self {
        let declared = Gate::OptionalNodeOperations.name();
        let declared_features: BTreeSet<Arc<str>> =
            facts.declared_features.get(declared).cloned().into_iter().collect();
        let drawing =
            view.pools.iter().flat_map(|pool| pool.drawing.iter().map(|device| pool.unit(inventory, *device)));
        let units = view.devices.ids().map(|position| view.unit(inventory, position)).chain(drawing);
        let counters = view.pools.iter().flat_map(|pool| {
            (0..pool.totals.len()).map(|index| pool.counter(<CounterIndex as model::Id>::from_index(index)))
        });
        Self {
            claims: claims.into(),
            facts: NodeFacts { declared_features, ..NodeFacts::default() },
            view: Arc::clone(view),
            taken: taken.snapshot(units, counters),
        }
    }

    /// A ledger with what was taken at that time.
    pub(crate) fn ledger(&self) -> ClusterLedger {
        self.taken.ledger()
    }
}

impl PartialEq for Scene {
    fn eq(&self, other: &Self) -> bool {
        let same_view = Arc::ptr_eq(&self.view, &other.view) || self.view.sees_the_same(&other.view);
        same_view && self.claims == other.claims && self.facts == other.facts && self.taken == other.taken
    }
}
