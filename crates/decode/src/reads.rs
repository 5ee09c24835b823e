//! Which fields of a pod, and which annotations, planning reads.
//!
//! One table for all who ask: a field of a PodSpec that is not in it makes a pod unsupported, a snapshot file holds
//! what is read, a watch passes over the rest before anything is built of it.

/// The fields of an object.
#[derive(Debug)]
pub struct Fields {
    /// By name.
    pub known: &'static [(&'static str, Reads)],
    /// What is read of any other.
    pub others: Reads,
}

/// What is read of a field.
#[derive(Debug, Clone, Copy)]
pub enum Reads {
    /// Nothing: it decides nothing about the place.
    Nothing,
    /// That it is there and not null.
    Presence,
    /// All of it.
    Whole,
    /// These fields of each item of the list.
    Each(&'static Fields),
}

impl Fields {
    /// What is read of the field of that name.
    pub fn of(&self, field: &str) -> Reads {
        self.known.iter().find(|(name, _)| *name == field).map_or(self.others, |(_, reads)| *reads)
    }

    /// Whether the field of that name is known, read or not.
    pub fn knows(&self, field: &str) -> bool {
        self.known.iter().any(|(name, _)| *name == field)
    }

    /// Paths of what is read of the known fields: `a` is a field, `a[].b` a field of each item.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.known.iter().flat_map(|(field, reads)| match reads {
            Reads::Nothing | Reads::Presence => Vec::new(),
            Reads::Whole => vec![(*field).to_owned()],
            Reads::Each(fields) => fields.paths().map(|path| format!("{field}[].{path}")).collect(),
        })
    }
}

/// PodSpec, all fields of Kubernetes 1.37. A pod with another is unsupported.
pub static POD_SPEC: Fields = Fields {
    known: &[
        ("activeDeadlineSeconds", Reads::Nothing),
        ("affinity", Reads::Whole),
        ("automountServiceAccountToken", Reads::Nothing),
        ("containers", Reads::Each(&CONTAINER)),
        ("dnsConfig", Reads::Nothing),
        ("dnsPolicy", Reads::Nothing),
        ("enableServiceLinks", Reads::Nothing),
        ("ephemeralContainers", Reads::Nothing),
        ("evictionResponders", Reads::Nothing),
        ("hostAliases", Reads::Nothing),
        ("hostIPC", Reads::Nothing),
        ("hostNetwork", Reads::Whole),
        ("hostPID", Reads::Nothing),
        ("hostUsers", Reads::Nothing),
        ("hostname", Reads::Nothing),
        ("hostnameOverride", Reads::Nothing),
        ("imagePullSecrets", Reads::Nothing),
        ("initContainers", Reads::Each(&CONTAINER)),
        ("nodeName", Reads::Whole),
        ("nodeSelector", Reads::Whole),
        ("os", Reads::Nothing),
        ("overhead", Reads::Whole),
        ("preemptionPolicy", Reads::Whole),
        ("priority", Reads::Whole),
        ("priorityClassName", Reads::Whole),
        ("readinessGates", Reads::Nothing),
        ("resourceClaims", Reads::Whole),
        ("resources", Reads::Whole),
        ("restartPolicy", Reads::Whole),
        ("runtimeClassName", Reads::Whole),
        ("schedulerName", Reads::Whole),
        ("schedulingGates", Reads::Whole),
        ("schedulingGroup", Reads::Whole),
        ("securityContext", Reads::Nothing),
        ("serviceAccount", Reads::Nothing),
        ("serviceAccountName", Reads::Nothing),
        ("setHostnameAsFQDN", Reads::Nothing),
        ("shareProcessNamespace", Reads::Nothing),
        ("subdomain", Reads::Nothing),
        ("terminationGracePeriodSeconds", Reads::Whole),
        ("tolerations", Reads::Whole),
        ("topologySpreadConstraints", Reads::Whole),
        ("volumes", Reads::Each(&VOLUME)),
    ],
    others: Reads::Presence,
};

/// A container; most of it tells the kubelet what to run.
static CONTAINER: Fields = Fields {
    known: &[
        ("name", Reads::Whole),
        ("ports", Reads::Whole),
        ("resources", Reads::Whole),
        ("restartPolicy", Reads::Whole),
    ],
    others: Reads::Nothing,
};

/// A volume: its kind is the field that is there.
static VOLUME: Fields = Fields {
    known: &[
        ("ephemeral", Reads::Whole),
        ("hostPath", Reads::Whole),
        ("name", Reads::Whole),
        ("persistentVolumeClaim", Reads::Whole),
    ],
    others: Reads::Presence,
};

/// The status of a pod.
pub static POD_STATUS: Fields = Fields {
    known: &[
        ("additionalNodeAllocatableResources", Reads::Whole),
        ("allocatedResources", Reads::Whole),
        ("conditions", Reads::Each(&CONDITION)),
        ("containerStatuses", Reads::Each(&CONTAINER_STATUS)),
        ("extendedResourceClaimStatus", Reads::Whole),
        ("initContainerStatuses", Reads::Each(&CONTAINER_STATUS)),
        ("nodeAllocatableResourceClaimStatuses", Reads::Whole),
        ("nominatedNodeName", Reads::Whole),
        ("phase", Reads::Whole),
        ("resourceClaimStatuses", Reads::Whole),
        ("resources", Reads::Whole),
        ("startTime", Reads::Whole),
    ],
    others: Reads::Nothing,
};

static CONDITION: Fields = Fields {
    known: &[("reason", Reads::Whole), ("status", Reads::Whole), ("type", Reads::Whole)],
    others: Reads::Nothing,
};

static CONTAINER_STATUS: Fields = Fields {
    known: &[("allocatedResources", Reads::Whole), ("name", Reads::Whole), ("resources", Reads::Whole)],
    others: Reads::Nothing,
};

/// Marks the API server's image of a pod that a kubelet read from a file; the value is a hash.
pub(crate) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Beginnings of the keys of annotations that are read; others may hold anything, such as a whole manifest.
const ANNOTATIONS: [&str; 8] = [
    "controller.kubernetes.io/pod-deletion-cost",
    "deprecated.daemonset.template.generation",
    "dovetail.sh/",
    "karpenter.sh/",
    "pv.kubernetes.io/bind-completed",
    "resource.kubernetes.io/extended-resource-claim",
    "resource.kubernetes.io/pod-claim-name",
    "storageclass.kubernetes.io/is-default-class",
];

/// Whether planning reads the annotation of that name.
pub fn is_read_of_annotations(key: &str) -> bool {
    key == MIRROR || ANNOTATIONS.iter().any(|start| key.starts_with(start))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1 as core;
    use serde_json::Value;

    use super::*;

    fn fields_of(schema: schemars::Schema) -> Vec<String> {
        let schema: Value = schema.into();
        let mut fields: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        fields.sort_unstable();
        fields
    }

    fn known(fields: &Fields) -> Vec<&str> {
        fields.known.iter().map(|(name, _)| *name).collect()
    }

    /// The list of fields that are known must be the API's own, or a pod would be refused for a field that means
    /// nothing.
    #[test]
    fn the_known_fields_of_a_spec_are_those_of_the_api_type() {
        assert_eq!(known(&POD_SPEC), fields_of(schemars::schema_for!(core::PodSpec)));
    }

    #[test]
    fn what_is_read_are_fields_of_the_api_types() {
        // What Kubernetes' types of this release do not have yet.
        let newer = [
            "additionalNodeAllocatableResources",
            "extendedResourceClaimStatus",
            "nodeAllocatableResourceClaimStatuses",
        ];
        for (fields, of_api) in [
            (&CONTAINER, fields_of(schemars::schema_for!(core::Container))),
            (&VOLUME, fields_of(schemars::schema_for!(core::Volume))),
            (&POD_STATUS, fields_of(schemars::schema_for!(core::PodStatus))),
            (&CONDITION, fields_of(schemars::schema_for!(core::PodCondition))),
            (&CONTAINER_STATUS, fields_of(schemars::schema_for!(core::ContainerStatus))),
        ] {
            let known = known(fields);
            assert!(known.is_sorted(), "{known:?}");
            let strange = |field: &&&str| !of_api.iter().any(|it| it == **field) && !newer.contains(*field);
            assert_eq!(known.iter().find(strange), None);
        }
    }
}
