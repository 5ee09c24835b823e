//! What a write changed, for those who act on it.

use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use decode::capacity_buffer::{BufferTemplate, TemplateKey};
use decode::default_spread::{PodSelector, SelectorKey};
use model::workload::{DaemonSet, PodDisruptionBudget};
use model::{NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, Pod};

use super::Kind;
use super::object::{NodeClass, NodeClassKey, NodeRecord};

/// An object before and after a change. Both are there for an update, one of them for a creation or deletion.
#[derive(Debug)]
pub struct Delta<'a, K, V> {
    /// Its name.
    pub key: &'a K,
    /// As it was.
    pub before: Option<&'a Arc<V>>,
    /// As it is.
    pub after: Option<&'a Arc<V>>,
}

impl<'a, K, V> Delta<'a, K, V> {
    /// The object as it is, or as it was if it is gone.
    pub fn latest(&self) -> Option<&'a Arc<V>> {
        self.after.or(self.before)
    }

    /// Whether `property` differs between before and after; creation and deletion count.
    pub fn changed<P: PartialEq>(&self, property: impl Fn(&V) -> P) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => property(before) != property(after),
            (Some(_), None) | (None, Some(_)) => true,
            (None, None) => false,
        }
    }
}

/// A change of one object. Kinds of which nobody needs more than the fact come as [`Change::Other`].
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are the kinds' own")]
pub enum Change<'a> {
    Pod(Delta<'a, NamespacedName, Pod>),
    Node(Delta<'a, NodeName, NodeRecord>),
    NodeClaim(Delta<'a, NodeClaimName, NodeClaim>),
    NodePool(Delta<'a, NodePoolName, NodePool>),
    NodeOverlay(Delta<'a, NodeOverlayName, NodeOverlay>),
    NodeClass(Delta<'a, NodeClassKey, NodeClass>),
    DaemonSet(Delta<'a, NamespacedName, DaemonSet>),
    PodDisruptionBudget(Delta<'a, NamespacedName, PodDisruptionBudget>),
    CapacityBuffer(Delta<'a, NamespacedName, CapacityBuffer>),
    BufferTemplate(Delta<'a, TemplateKey, BufferTemplate>),
    PodSelector(Delta<'a, SelectorKey, PodSelector>),
    /// Any other kind.
    Other(Kind),
}

impl Change<'_> {
    /// The kind of the changed object.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pod(_) => Kind::Pod,
            Self::Node(_) => Kind::Node,
            Self::NodeClaim(_) => Kind::NodeClaim,
            Self::NodePool(_) => Kind::NodePool,
            Self::NodeOverlay(_) => Kind::NodeOverlay,
            Self::NodeClass(_) => Kind::NodeClass,
            Self::DaemonSet(_) => Kind::DaemonSet,
            Self::PodDisruptionBudget(_) => Kind::PodDisruptionBudget,
            Self::CapacityBuffer(_) => Kind::CapacityBuffer,
            Self::BufferTemplate(_) => Kind::BufferTemplate,
            Self::PodSelector(_) => Kind::PodSelector,
            Self::Other(kind) => *kind,
        }
    }
}
