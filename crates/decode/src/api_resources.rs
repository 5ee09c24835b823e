//! Where the API server has the kinds that planning reads: one table for watches, snapshot files and the rights that
//! the chart gives.
//!
//! Node classes are not in it: which there are is for the provider to say.

use api::groups;

/// A kind, and where the API server has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    /// The versions that it may be served in, all of one meaning.
    pub versions: &'static [&'static str],
    /// As manifests spell it.
    pub kind: &'static str,
    /// Its name in paths of the API.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

impl Resource {
    /// Whether it is the kind of that name in that group.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

macro_rules! resources {
    ($($name:ident = $group:expr, $versions:expr, $kind:literal, $plural:literal, $is_namespaced:expr;)*) => {
        $(
            #[doc = $kind]
            pub const $name: Resource = Resource {
                group: $group,
                versions: &$versions,
                kind: $kind,
                plural: $plural,
                is_namespaced: $is_namespaced,
            };
        )*

        /// All of them.
        pub const ALL: &[&Resource] = &[$(&$name),*];
    };
}

const IN_NAMESPACES: bool = true;
const IN_CLUSTER: bool = false;
const CORE: &str = "";
const APPS: &str = "apps";
const STORAGE: &str = "storage.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

resources! {
    POD = CORE, ["v1"], "Pod", "pods", IN_NAMESPACES;
    NODE = CORE, ["v1"], "Node", "nodes", IN_CLUSTER;
    NODE_CLAIM = groups::KARPENTER, ["v1"], "NodeClaim", "nodeclaims", IN_CLUSTER;
    NODE_POOL = groups::KARPENTER, ["v1"], "NodePool", "nodepools", IN_CLUSTER;
    NODE_OVERLAY = groups::KARPENTER, ["v1alpha1"], "NodeOverlay", "nodeoverlays", IN_CLUSTER;
    NAMESPACE = CORE, ["v1"], "Namespace", "namespaces", IN_CLUSTER;
    DAEMON_SET = APPS, ["v1"], "DaemonSet", "daemonsets", IN_NAMESPACES;
    POD_DISRUPTION_BUDGET = "policy", ["v1"], "PodDisruptionBudget", "poddisruptionbudgets", IN_NAMESPACES;
    PRIORITY_CLASS = SCHEDULING, ["v1"], "PriorityClass", "priorityclasses", IN_CLUSTER;
    POD_GROUP = SCHEDULING, ["v1", "v1beta1", "v1alpha3", "v1alpha2"], "PodGroup", "podgroups", IN_NAMESPACES;
    LIMIT_RANGE = CORE, ["v1"], "LimitRange", "limitranges", IN_NAMESPACES;
    RESOURCE_QUOTA = CORE, ["v1"], "ResourceQuota", "resourcequotas", IN_NAMESPACES;
    PERSISTENT_VOLUME_CLAIM = CORE, ["v1"], "PersistentVolumeClaim", "persistentvolumeclaims", IN_NAMESPACES;
    PERSISTENT_VOLUME = CORE, ["v1"], "PersistentVolume", "persistentvolumes", IN_CLUSTER;
    STORAGE_CLASS = STORAGE, ["v1"], "StorageClass", "storageclasses", IN_CLUSTER;
    CSI_NODE = STORAGE, ["v1"], "CSINode", "csinodes", IN_CLUSTER;
    VOLUME_ATTACHMENT = STORAGE, ["v1"], "VolumeAttachment", "volumeattachments", IN_CLUSTER;
    CAPACITY_BUFFER = groups::AUTOSCALING_X_K8S, ["v1beta1"], "CapacityBuffer", "capacitybuffers", IN_NAMESPACES;
    POD_TEMPLATE = CORE, ["v1"], "PodTemplate", "podtemplates", IN_NAMESPACES;
    DEPLOYMENT = APPS, ["v1"], "Deployment", "deployments", IN_NAMESPACES;
    REPLICA_SET = APPS, ["v1"], "ReplicaSet", "replicasets", IN_NAMESPACES;
    STATEFUL_SET = APPS, ["v1"], "StatefulSet", "statefulsets", IN_NAMESPACES;
    SERVICE = CORE, ["v1"], "Service", "services", IN_NAMESPACES;
    REPLICATION_CONTROLLER = CORE, ["v1"], "ReplicationController", "replicationcontrollers", IN_NAMESPACES;
    DEVICE_CLASS = RESOURCE, ["v1"], "DeviceClass", "deviceclasses", IN_CLUSTER;
    RESOURCE_SLICE = RESOURCE, ["v1"], "ResourceSlice", "resourceslices", IN_CLUSTER;
    RESOURCE_CLAIM = RESOURCE, ["v1"], "ResourceClaim", "resourceclaims", IN_NAMESPACES;
    RESOURCE_CLAIM_TEMPLATE = RESOURCE, ["v1"], "ResourceClaimTemplate", "resourceclaimtemplates", IN_NAMESPACES;
    DEVICE_TAINT_RULE = RESOURCE, ["v1", "v1beta2", "v1alpha3"], "DeviceTaintRule", "devicetaintrules", IN_CLUSTER;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// What the chart lets the controller do with what planning reads, and with our own kinds.
    const TEMPLATES: [&str; 2] = [
        include_str!("../../../charts/dovetail/templates/rbac/cluster.yaml"),
        include_str!("../../../charts/dovetail/templates/rbac/api.yaml"),
    ];

    /// Group, resource and verb of all that these templates give, with all features on.
    fn rights() -> BTreeSet<(String, String, String)> {
        let mut rights = BTreeSet::new();
        for template in TEMPLATES {
            // What is left are the rules, a list in YAML.
            let rules: Vec<&str> = template.lines().filter(|line| !line.contains("{{")).collect();
            let rules: Value = serde_saphyr::from_str(&rules.join("\n")).unwrap();
            for rule in rules.as_array().unwrap().iter().filter(|rule| rule["nonResourceURLs"].is_null()) {
                let texts = |field: &str| -> Vec<String> {
                    rule[field].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect()
                };
                for (group, resource) in texts("apiGroups")
                    .iter()
                    .flat_map(|group| texts("resources").into_iter().map(move |it| (group, it)))
                {
                    rights.extend(texts("verbs").into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
                }
            }
        }
        rights
    }

    #[test]
    fn the_chart_lets_the_controller_list_and_watch_these_and_no_others() {
        let of_table: BTreeSet<_> = ALL
            .iter()
            .flat_map(|it| ["list", "watch"].map(|verb| (it.group.to_owned(), it.plural.to_owned(), verb.to_owned())))
            .collect();
        let of_chart: BTreeSet<_> =
            rights().into_iter().filter(|(_, _, verb)| matches!(verb.as_str(), "list" | "watch")).collect();
        let missing: Vec<_> = of_table.difference(&of_chart).collect();
        assert!(missing.is_empty(), "watched without a right: {missing:?}");
        let superfluous: Vec<_> = of_chart.difference(&of_table).collect();
        assert!(superfluous.is_empty(), "rights for what nobody watches: {superfluous:?}");
    }

    #[test]
    fn no_kind_is_there_twice() {
        let kinds: BTreeSet<_> = ALL.iter().map(|it| (it.group, it.kind)).collect();
        let plurals: BTreeSet<_> = ALL.iter().map(|it| (it.group, it.plural)).collect();
        assert_eq!((kinds.len(), plurals.len()), (ALL.len(), ALL.len()));
    }
}
