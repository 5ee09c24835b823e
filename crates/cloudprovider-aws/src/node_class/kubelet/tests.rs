use serde_json::json;

use super::*;

fn read(written: Value, family: AmiFamily) -> Result<Kubelet, Vec<String>> {
    let written = written.as_object().unwrap();
    let read = Kubelet::read(written, family, Expressions::Disabled);
    read.map_err(|problems| problems.iter().map(|it| format!("{} {it}", it.reason.as_str())).collect())
}

#[test]
fn settings_are_read() {
    let kubelet = read(
        json!({
            "clusterDNS": ["10.0.0.10"], "maxPods": 20, "podsPerCore": 10, "cpuCFSQuota": false,
            "kubeReserved": { "cpu": "200m", "pid": "100" }, "systemReserved": { "memory": "100Mi" },
            "evictionHard": { "memory.available": "5%", "pid.available": "10" },
            "evictionSoft": { "nodefs.available": "10Gi" },
            "evictionSoftGracePeriod": { "nodefs.available": "1m30s" },
            "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80,
        }),
        AmiFamily::Al2,
    )
    .unwrap();
    assert_eq!(kubelet.cluster_dns, ["10.0.0.10"]);
    assert_eq!((kubelet.max_pods, kubelet.pods_per_core, kubelet.cpu_cfs_quota), (Some(20), Some(10), Some(false)));
    assert_eq!(kubelet.kube_reserved["cpu"], Quantity::parse("200m").unwrap());
    assert_eq!(kubelet.system_reserved["memory"], Quantity::parse("100Mi").unwrap());
    assert_eq!(kubelet.eviction_hard["memory.available"], "5%");
    assert_eq!(kubelet.eviction_soft_grace_period["nodefs.available"], "1m30s");
    assert_eq!(kubelet.eviction_max_pod_grace_period, Some(60));
    assert_eq!((kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent), (Some(85), Some(80)));
    assert_eq!(kubelet.written.len(), 12);
    assert_eq!(read(json!({}), AmiFamily::Bottlerocket).unwrap(), Kubelet::default());
}

#[test]
fn nulls_are_as_good_as_absent() {
    assert_eq!(read(json!({ "maxPods": null, "logging": null }), AmiFamily::Al2).unwrap().max_pods, None);
}

#[test]
fn what_no_kubelet_takes_is_named() {
    for (written, expected) in [
        (json!({ "maxPod": 1 }), "maxPod: the kubelet has no such setting"),
        (json!({ "maxPods": 1.5 }), "maxPods: is not a whole number of 32 bits"),
        (json!({ "maxPods": -1 }), "maxPods: -1 is negative"),
        (json!({ "podsPerCore": -1 }), "podsPerCore: -1 is negative"),
        (json!({ "clusterDNS": "10.0.0.10" }), "clusterDNS: is not a list of texts"),
        (json!({ "clusterDNS": ["dns"] }), "clusterDNS[0]: \"dns\" is not an IP address"),
        (json!({ "registerWithTaints": [] }), "registerWithTaints: taints are those of the NodePool"),
        (json!({ "cpuCFSQuota": "no" }), "cpuCFSQuota: is not true or false"),
        (json!({ "cpuManagerReconcilePeriod": "soon" }), "cpuManagerReconcilePeriod: is not a duration such as 1m30s"),
        (
            json!({ "kubeReserved": { "nvidia.com/gpu": "1" } }),
            "kubeReserved[nvidia.com/gpu]: only cpu, memory, ephemeral-storage, pid can be reserved",
        ),
        (json!({ "systemReserved": { "cpu": "-1" } }), "systemReserved[cpu]: \"-1\" is negative"),
        (
            json!({ "evictionHard": { "memory.free": "1%" } }),
            "evictionHard[memory.free]: there is no such signal; they are memory.available, nodefs.available, \
             nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available",
        ),
        (
            json!({ "evictionHard": { "memory.available": "101%" } }),
            "evictionHard[memory.available]: \"101%\" is neither a percentage from 0 to 100 nor an amount, 0 or more",
        ),
        (
            json!({ "evictionMinimumReclaim": { "memory.available": "-1Mi" } }),
            "evictionMinimumReclaim[memory.available]: \"-1Mi\" is neither a percentage from 0 to 100 nor an amount, 0 \
             or more",
        ),
        (
            json!({ "evictionSoft": { "memory.available": "1%" } }),
            "evictionSoft[memory.available]: has no counterpart in evictionSoftGracePeriod",
        ),
        (
            json!({ "evictionSoftGracePeriod": { "memory.available": "1m" } }),
            "evictionSoftGracePeriod[memory.available]: has no counterpart in evictionSoft",
        ),
        (
            json!({ "imageGCHighThresholdPercent": 101 }),
            "imageGCHighThresholdPercent: 101 is not a percentage from 0 to 100",
        ),
        (
            json!({ "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80 }),
            "imageGCHighThresholdPercent: 80 is not above imageGCLowThresholdPercent, 80",
        ),
    ] {
        let expected = format!("InvalidKubeletConfiguration spec.kubelet.{expected}");
        assert_eq!(read(written.clone(), AmiFamily::Al2023).unwrap_err(), [expected], "{written}");
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let problems = read(json!({ "a": 1, "b": 2, "maxPods": true }), AmiFamily::Al2023).unwrap_err();
    assert_eq!(problems.len(), 3);
}

#[test]
fn expressions_need_their_gate() {
    let written = json!({ "maxPods": "min(110, vcpus * 10)", "kubeReserved": { "memory": "max_pods * 11" } });
    let expected = [
        "KubeletExpressionsDisabled spec.kubelet.maxPods: \"min(110, vcpus * 10)\" is an expression, and the gate \
         NodeClassCEL is off",
        "KubeletExpressionsDisabled spec.kubelet.kubeReserved[memory]: \"max_pods * 11\" is an expression, and the gate \
         NodeClassCEL is off",
    ];
    assert_eq!(read(written.clone(), AmiFamily::Al2023).unwrap_err(), expected);
    let kubelet = Kubelet::read(written.as_object().unwrap(), AmiFamily::Al2023, Expressions::Allowed).unwrap();
    assert_eq!((kubelet.max_pods, kubelet.kube_reserved.len()), (None, 0));
    assert!(!kubelet.computed.is_empty());
    let wrong = json!({ "maxPods": "vcpus > 2", "systemReserved": { "cpu": "vcpu * 2" } });
    let problems = Kubelet::read(wrong.as_object().unwrap(), AmiFamily::Al2023, Expressions::Allowed).unwrap_err();
    let problems: Vec<_> = problems.iter().map(|it| format!("{} {it}", it.reason.as_str())).collect();
    let expected = [
        "KubeletExpressionInvalid spec.kubelet.maxPods: \"vcpus > 2\": 1:7: must evaluate to an integer or a double, not \
         bool",
        "KubeletExpressionInvalid spec.kubelet.systemReserved[cpu]: \"vcpu * 2\": 1:1: undeclared reference to 'vcpu'",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn what_expressions_reserve_takes_their_place() {
    let written = json!({
        "maxPods": "vcpus * 10",
        "kubeReserved": { "cpu": "vcpus * 30", "memory": "1Gi" },
        "systemReserved": { "memory": "memory_mib / 100", "pid": "1000" },
    });
    let kubelet = Kubelet::read(written.as_object().unwrap(), AmiFamily::Al2023, Expressions::Allowed).unwrap();
    let reserved = ComputedReserved { kube: [("cpu".to_owned(), "60m".to_owned())].into(), system: BTreeMap::new() };
    let told = kubelet.with(&reserved);
    assert_eq!(told.written["kubeReserved"], json!({ "cpu": "60m", "memory": "1Gi" }));
    // It failed on this type, so the system is left what it has without it.
    assert_eq!(told.written["systemReserved"], json!({ "pid": "1000" }));
    assert_eq!(told.kube_reserved["cpu"], Quantity::parse("60m").unwrap());
    assert!(told.computed.is_empty());
    let plain = read(json!({ "maxPods": 20 }), AmiFamily::Al2023).unwrap();
    assert!(matches!(plain.with(&ComputedReserved::default()), Cow::Borrowed(_)));
}

#[test]
fn only_al2023_and_custom_images_take_everything() {
    let written = json!({ "topologyManagerPolicy": "single-numa-node", "clusterDNS": ["10.0.0.10", "10.0.0.11"] });
    for family in [AmiFamily::Al2023, AmiFamily::Custom] {
        assert!(read(written.clone(), family).is_ok(), "{family}");
    }
    for family in [AmiFamily::Al2, AmiFamily::Bottlerocket, AmiFamily::Windows2022] {
        let expected = [
            format!("topologyManagerPolicy: images of family {family} cannot be told"),
            format!("clusterDNS: images of family {family} can be told of one address only"),
        ];
        let expected = expected.map(|it| format!("UnsupportedKubeletConfiguration spec.kubelet.{it}"));
        assert_eq!(read(written.clone(), family).unwrap_err(), expected);
    }
    assert!(read(json!({ "podsPerCore": 5 }), AmiFamily::Windows2019).is_ok());
    assert_eq!(
        read(json!({ "podsPerCore": 5 }), AmiFamily::Bottlerocket).unwrap_err(),
        ["UnsupportedKubeletConfiguration spec.kubelet.podsPerCore: images of family Bottlerocket cannot be told"]
    );
}
