//! Labels that machines on their way will never have.

use std::cell::RefCell;

use api::labels;
use model::KeyId;
use model::collections::FastMap;

use crate::snapshot::{Node, PoolId, Snapshot};

/// Which keys a machine will not have if its NodeClaim does not mention them: those that neither its NodePool nor any
/// of its instance types gives. The rule is that of machines that could be launched ([`NodePool::can_have`]).
///
/// [`NodePool::can_have`]: crate::snapshot::NodePool::can_have
pub(super) struct AbsentKeys<'s> {
    snapshot: &'s Snapshot,
    /// A catalogue has thousands of offerings, and few keys are asked for.
    known: RefCell<FastMap<(PoolId, KeyId), bool>>,
}

impl<'s> AbsentKeys<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, known: RefCell::default() }
    }

    /// Whether the machine will not have the key, which its NodeClaim does not mention.
    pub(super) fn will_miss(&self, node: &Node, key: KeyId) -> bool {
        let mut pools = self.snapshot.node_pools.iter_enumerated();
        let of_node = pools.find(|(_, pool)| node.node_pool.as_ref() == Some(&pool.name));
        // What is not known of the pool's machines may be said by anybody.
        let Some((id, pool)) = of_node.filter(|(_, pool)| !pool.catalogue.offerings.is_empty()) else { return false };
        *self.known.borrow_mut().entry((id, key)).or_insert_with(|| {
            let mut offerings = pool.catalogue.offerings.iter();
            self.snapshot.interner.key_name(key) != labels::HOSTNAME
                && pool.requirements.get(key).is_none()
                && offerings.all(|offering| offering.requirements.get(key).is_none())
        })
    }
}
