//! The fields of `KubeletConfiguration` v1beta1 and their types, as in Kubernetes 1.37.

use serde_json::Value;

use api::duration;

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    Int32,
    Int64,
    Number,
    Duration,
    Texts,
    Integers,
    TextMap,
    FlagMap,
    Object,
    Objects,
}

impl Kind {
    /// The type in a sentence that begins "is not".
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::Int32 => "a whole number of 32 bits",
            Self::Int64 => "a whole number",
            Self::Number => "a number",
            Self::Duration => "a duration such as 1m30s",
            Self::Texts => "a list of texts",
            Self::Integers => "a list of whole numbers",
            Self::TextMap => "a map of texts",
            Self::FlagMap => "a map of true and false",
            Self::Object => "an object",
            Self::Objects => "a list of objects",
        }
    }

    /// Whether a value is of the type.
    pub(super) fn allows(self, value: &Value) -> bool {
        let all = |list: Option<&Vec<Value>>, is: fn(&Value) -> bool| list.is_some_and(|list| list.iter().all(is));
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Int32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Int64 => value.is_i64(),
            Self::Number => value.is_number(),
            Self::Duration => value.as_str().is_some_and(|text| duration::parse(text).is_ok()),
            Self::Texts => all(value.as_array(), Value::is_string),
            Self::Integers => all(value.as_array(), Value::is_i64),
            Self::TextMap => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
            Self::FlagMap => value.as_object().is_some_and(|map| map.values().all(Value::is_boolean)),
            Self::Object => value.is_object(),
            Self::Objects => all(value.as_array(), Value::is_object),
        }
    }
}

/// The type of a field, if the kubelet has it.
pub(super) fn kind(field: &str) -> Option<Kind> {
    FIELDS.iter().find(|(_, fields)| fields.contains(&field)).map(|(kind, _)| *kind)
}

const FIELDS: [(Kind, &[&str]); 12] = [
    (
        Kind::Text,
        &[
            // TypeMeta.
            "apiVersion",
            "kind",
            "staticPodPath",
            "podLogsDir",
            "staticPodURL",
            "address",
            "tlsCertFile",
            "tlsPrivateKeyFile",
            "tlsMinVersion",
            "imagePullCredentialsVerificationPolicy",
            "healthzBindAddress",
            "clusterDomain",
            "kubeletCgroups",
            "systemCgroups",
            "cgroupRoot",
            "cgroupDriver",
            "cpuManagerPolicy",
            "memoryManagerPolicy",
            "memoryReservationPolicy",
            "topologyManagerPolicy",
            "topologyManagerScope",
            "hairpinMode",
            "podCIDR",
            "resolvConf",
            "contentType",
            "containerLogMaxSize",
            "configMapAndSecretChangeDetectionStrategy",
            "reservedSystemCPUs",
            "showHiddenMetricsForVersion",
            "systemReservedCgroup",
            "kubeReservedCgroup",
            "volumePluginDir",
            "providerID",
            "containerRuntimeEndpoint",
            "imageServiceEndpoint",
        ],
    ),
    (
        Kind::Flag,
        &[
            "enableServer",
            "rotateCertificates",
            "serverTLSBootstrap",
            "enableDebuggingHandlers",
            "enableContentionProfiling",
            "cgroupsPerQOS",
            "singleProcessOOMKill",
            "runOnce",
            "cpuCFSQuota",
            "serializeImagePulls",
            "mergeDefaultEvictionSettings",
            "enableControllerAttachDetach",
            "protectKernelDefaults",
            "makeIPTablesUtilChains",
            "failSwapOn",
            "kernelMemcgNotification",
            "enableSystemLogHandler",
            "enableSystemLogQuery",
            "enableProfilingHandler",
            "enableDebugFlagsHandler",
            "seccompDefault",
            "registerNode",
            "localStorageCapacityIsolation",
            "failCgroupV1",
        ],
    ),
    (
        Kind::Int32,
        &[
            "port",
            "readOnlyPort",
            "registryPullQPS",
            "registryBurst",
            "eventRecordQPS",
            "eventBurst",
            "healthzPort",
            "oomScoreAdj",
            "nodeLeaseDurationSeconds",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "maxPods",
            "nodeStatusMaxImages",
            "kubeAPIQPS",
            "kubeAPIBurst",
            "maxParallelImagePulls",
            "evictionMaxPodGracePeriod",
            "podsPerCore",
            "iptablesMasqueradeBit",
            "iptablesDropBit",
            "containerLogMaxFiles",
            "containerLogMaxWorkers",
        ],
    ),
    (Kind::Int64, &["podPidsLimit", "maxOpenFiles"]),
    (Kind::Number, &["memoryThrottlingFactor"]),
    (
        Kind::Duration,
        &[
            "syncFrequency",
            "fileCheckFrequency",
            "httpCheckFrequency",
            "streamingConnectionIdleTimeout",
            "nodeStatusUpdateFrequency",
            "nodeStatusReportFrequency",
            "imageMinimumGCAge",
            "imageMaximumGCAge",
            "volumeStatsAggPeriod",
            "cpuManagerReconcilePeriod",
            "runtimeRequestTimeout",
            "cpuCFSQuotaPeriod",
            "evictionPressureTransitionPeriod",
            "containerLogMonitorInterval",
            "shutdownGracePeriod",
            "shutdownGracePeriodCriticalPods",
        ],
    ),
    (
        Kind::Texts,
        &[
            "tlsCipherSuites",
            "preloadedImagesVerificationAllowlist",
            "clusterDNS",
            "enforceNodeAllocatable",
            "allowedUnsafeSysctls",
        ],
    ),
    (Kind::Integers, &["tlsCurvePreferences"]),
    (
        Kind::TextMap,
        &[
            "cpuManagerPolicyOptions",
            "topologyManagerPolicyOptions",
            "qosReserved",
            "evictionHard",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "evictionMinimumReclaim",
            "systemReserved",
            "kubeReserved",
        ],
    ),
    (Kind::FlagMap, &["featureGates"]),
    (
        Kind::Object,
        &[
            "staticPodURLHeader",
            "authentication",
            "authorization",
            "memorySwap",
            "logging",
            "crashLoopBackOff",
            "tracing",
            "userNamespaces",
        ],
    ),
    (Kind::Objects, &["shutdownGracePeriodByPodPriority", "reservedMemory"]),
];
