//! What of the last snapshot is used again, so that the cost of the next one follows what has changed.
//!
//! What a node comes to depends on its Node, its NodeClaim and its bound pods. These are shared objects that nobody
//! changes in place, so as long as all three are the same objects, so is the result: a look at three addresses instead
//! of a walk over the pods.
//!
//! A snapshot may give out ids for names that the cluster's interner does not know, and the interner may give out the
//! same ids for others later. So nothing is remembered that was made since the first of these; whoever wants it
//! remembered next time interns the names of the snapshot ([`Interner::learn`]).

use std::sync::Arc;

use api::NodeClaim;
use model::collections::Remembered;
use model::{Interner, Pod, ResourceVec};
use scheduling::snapshot::{Kinds, Node};

use super::nodes::Claim;

/// Parts of the last snapshot, by what they were made of. It goes with one interner, whose later versions keep its ids,
/// and with one provider's labels; the snapshot is the same without it.
#[derive(Debug, Default)]
pub struct Cache {
    /// The kinds of pods that run.
    pub(super) kinds: Kinds,
    /// What NodeClaims say.
    pub(super) claims: Remembered<NodeClaim, Arc<Claim>>,
    /// What nodes come to.
    pub(super) nodes: Remembered<model::Node, KnownNode>,
}

/// What a node was made of besides its Node, and what it came to.
#[derive(Debug)]
pub(super) struct KnownNode {
    pub(super) claim: Option<Arc<NodeClaim>>,
    pub(super) pods: Option<Arc<Vec<Arc<Pod>>>>,
    pub(super) node: Arc<Node>,
    /// For limits of its NodePool.
    pub(super) capacity: ResourceVec,
}

impl KnownNode {
    /// Whether it was made of these.
    pub(super) fn is_of(&self, claim: Option<&Arc<NodeClaim>>, pods: Option<&Arc<Vec<Arc<Pod>>>>) -> bool {
        is_same(self.claim.as_ref(), claim) && is_same(self.pods.as_ref(), pods)
    }
}

fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Cache {
    /// Begins a snapshot.
    pub(super) fn begin(&mut self) {
        self.claims.begin();
        self.nodes.begin();
    }

    /// Ends it: what it did not use is forgotten.
    pub(super) fn end(&mut self) {
        self.claims.end();
        self.nodes.end();
    }
}

/// How many names an interner knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Names(usize, usize, usize);

impl Names {
    pub(super) fn of(interner: &Interner) -> Self {
        Self(interner.key_count(), interner.value_count(), interner.resource_count())
    }
}

#[cfg(test)]
mod tests;
