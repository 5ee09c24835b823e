//! What of a cluster decides about devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::types::Pod;
use dra_sched::{Compat, KubernetesMinor};
use model::Uid;
use scheduling::devices::DeviceObjects;

/// Claims, slices and what belongs to them.
#[derive(Debug, Clone)]
pub struct ClusterDevices {
    /// Whose allocator is imitated.
    pub compat: Compat,
    /// The objects.
    pub objects: Arc<DeviceObjects>,
    /// What devices read of the pods that may want any, and of the DaemonSets whose pods may, by their uids.
    pub pods: BTreeMap<Uid, Arc<Pod>>,
}

impl Default for ClusterDevices {
    fn default() -> Self {
        Self { compat: Compat::new(KubernetesMinor::NEWEST), objects: Arc::default(), pods: BTreeMap::new() }
    }
}
