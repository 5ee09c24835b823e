//! What each kind of object is read for.

use api::crd::CustomResourceDefinition;
use api::groups;
use decode::devices::DeviceKind;
use decode::manifests::Manifest;
use decode::pod_selectors::SelectorKind;
use decode::workloads::WorkloadKind;

use crate::snapshot_file;

/// What an object is to the planner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Pod,
    Node,
    CsiNode,
    Namespace,
    DaemonSet,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    PodDisruptionBudget,
    PriorityClass,
    RuntimeClass,
    ResourceQuota,
    LimitRange,
    Device(DeviceKind),
    NodePool,
    NodeClaim,
    Workload(WorkloadKind),
    CapacityBuffer,
    PodTemplate,
    /// A kind that is there for the pods that it selects, and for nothing else.
    Selector(SelectorKind),
    Header,
    InstanceType,
    NodeOverlay,
    /// A kind of ours or of a provider that has no part in planning; it is held to its CRD all the same.
    Checked,
    NotUsed,
}

impl Role {
    pub(super) fn of(manifest: &Manifest, provider_crds: &[CustomResourceDefinition]) -> Self {
        match (manifest.group.as_str(), manifest.kind.as_str()) {
            ("", "Pod") => Self::Pod,
            ("", "Node") => Self::Node,
            ("", "Namespace") => Self::Namespace,
            ("", "PersistentVolume") => Self::PersistentVolume,
            ("", "PersistentVolumeClaim") => Self::PersistentVolumeClaim,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("storage.k8s.io", "StorageClass") => Self::StorageClass,
            ("storage.k8s.io", "CSINode") => Self::CsiNode,
            ("", "ResourceQuota") => Self::ResourceQuota,
            ("policy", "PodDisruptionBudget") => Self::PodDisruptionBudget,
            ("scheduling.k8s.io", "PriorityClass") => Self::PriorityClass,
            ("node.k8s.io", "RuntimeClass") => Self::RuntimeClass,
            ("", "LimitRange") => Self::LimitRange,
            (groups::KARPENTER, "NodePool") => Self::NodePool,
            (groups::KARPENTER, "NodeClaim") => Self::NodeClaim,
            (groups::KARPENTER, "NodeOverlay") => Self::NodeOverlay,
            (snapshot_file::GROUP, snapshot_file::HEADER) => Self::Header,
            (snapshot_file::GROUP, snapshot_file::INSTANCE_TYPE) => Self::InstanceType,
            (groups::AUTOSCALING_X_K8S, "CapacityBuffer") => Self::CapacityBuffer,
            ("", "PodTemplate") => Self::PodTemplate,
            ("", "Service") => Self::Selector(SelectorKind::Service),
            (groups::KARPENTER | groups::AUTOSCALING_X_K8S, _) => Self::Checked,
            (group, _) if is_of_provider(group, provider_crds) => Self::Checked,
            (group, kind) => match DeviceKind::of(group, kind) {
                Some(kind) => Self::Device(kind),
                None => WorkloadKind::of(manifest).map_or(Self::NotUsed, Self::Workload),
            },
        }
    }

    pub(super) fn is_namespaced(self) -> bool {
        match self {
            Self::Pod
            | Self::DaemonSet
            | Self::PersistentVolumeClaim
            | Self::PodDisruptionBudget
            | Self::ResourceQuota
            | Self::CapacityBuffer
            | Self::PodTemplate
            | Self::LimitRange
            | Self::Selector(_)
            | Self::Workload(_) => true,
            Self::Device(kind) => kind.is_namespaced(),
            Self::Node
            | Self::CsiNode
            | Self::Namespace
            | Self::PersistentVolume
            | Self::StorageClass
            | Self::PriorityClass
            | Self::RuntimeClass
            | Self::NodePool
            | Self::NodeClaim
            | Self::NodeOverlay
            | Self::Header
            | Self::InstanceType
            | Self::Checked
            | Self::NotUsed => false,
        }
    }

    /// Whether others are read by what these say.
    pub(super) fn comes_first(self) -> bool {
        matches!(
            self,
            Self::PriorityClass
                | Self::RuntimeClass
                | Self::LimitRange
                | Self::Namespace
                | Self::Header
                | Self::InstanceType
        )
    }
}

/// Whether one of those CRDs is of the group.
pub(super) fn is_of_provider(group: &str, provider_crds: &[CustomResourceDefinition]) -> bool {
    provider_crds.iter().any(|crd| crd.spec.group == group)
}

#[cfg(test)]
mod tests {
    use decode::api_resources;
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_a_cluster_is_watched_for_is_read_of_files_too_and_in_namespaces_alike() {
        for resource in api_resources::ALL.iter().filter(|it| **it != &api_resources::VOLUME_ATTACHMENT) {
            let version = [resource.group, resource.versions[0]].join("/");
            let object = json!({"apiVersion": version.trim_start_matches('/'), "kind": resource.kind});
            let parsed = decode::manifests::parse("in.json", &object.to_string());
            let role = Role::of(&parsed.manifests[0], &[]);
            assert!(!matches!(role, Role::NotUsed | Role::Checked), "{}", resource.kind);
            assert_eq!(role.is_namespaced(), resource.is_namespaced, "{}", resource.kind);
        }
    }
}
