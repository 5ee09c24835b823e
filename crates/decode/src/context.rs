//! What decoding needs besides the object.

use std::collections::{BTreeMap, BTreeSet};

use api::labels::ProviderLabels;
use model::{Interner, KeyId, ValueId};

/// Where names are interned, and which label keys stand for others.
///
/// Keys of what NodePools, NodeClaims and providers say of machines are normalized (`beta.kubernetes.io/arch` is
/// `kubernetes.io/arch`) by the one table of `api` and the provider's additions. Labels of Nodes, and what pods ask of
/// them, are taken literally, as kube-scheduler does; see [`crate::aliases`] for how the two meet.
pub struct Context<'a> {
    /// Takes new names.
    pub interner: &'a mut Interner,
    labels: &'a ProviderLabels,
}

static NO_PROVIDER: ProviderLabels = ProviderLabels {
    well_known: BTreeSet::new(),
    restricted_domains: BTreeSet::new(),
    aliases: BTreeMap::new(),
    value_aliases: BTreeMap::new(),
    known_values: BTreeMap::new(),
    offering: BTreeSet::new(),
    reservation_id: None,
    reserved_capacity: BTreeSet::new(),
};

impl<'a> Context<'a> {
    /// Kubernetes' own aliases only.
    pub fn new(interner: &'a mut Interner) -> Self {
        Self::with_labels(interner, &NO_PROVIDER)
    }

    /// With what a cloud provider adds.
    pub fn with_labels(interner: &'a mut Interner, labels: &'a ProviderLabels) -> Self {
        Self { interner, labels }
    }

    /// What a cloud provider adds.
    pub fn provider_labels(&self) -> &'a ProviderLabels {
        self.labels
    }

    /// The key that `key` stands for.
    pub fn normalize<'k>(&'k self, key: &'k str) -> &'k str {
        self.labels.normalize(key)
    }

    /// The id of the key that `key` stands for.
    pub fn key(&mut self, key: &str) -> KeyId {
        self.interner.key(self.labels.normalize(key))
    }

    /// The id of the value that `value` stands for at `key`, an old key or a new one.
    pub fn value(&mut self, key: &str, value: &str) -> ValueId {
        let key = self.labels.normalize(key);
        self.interner.value(self.labels.normalize_value(key, value))
    }
}
