//! Flags of the kubelet, for images that are told no more than those.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use model::Quantity;

use super::Boot;

/// All flags, in one fixed order, entries sorted.
pub(super) fn render(boot: &Boot<'_>) -> String {
    let kubelet = boot.kubelet;
    let mut flags = Vec::new();
    if !boot.labels.is_empty() {
        flags.push(format!("--node-labels=\"{}\"", labels(boot.labels)));
    }
    if !boot.taints.is_empty() {
        flags.push(format!("--register-with-taints=\"{}\"", taints(boot.taints)));
    }
    flags.push(format!("--max-pods={}", boot.max_pods));
    flags.extend(kubelet.pods_per_core.map(|count| format!("--pods-per-core={count}")));
    flags.extend(pairs("--system-reserved", &amounts(&kubelet.system_reserved), '='));
    flags.extend(pairs("--kube-reserved", &amounts(&kubelet.kube_reserved), '='));
    flags.extend(pairs("--eviction-hard", &kubelet.eviction_hard, '<'));
    flags.extend(pairs("--eviction-soft", &kubelet.eviction_soft, '<'));
    flags.extend(pairs("--eviction-soft-grace-period", &kubelet.eviction_soft_grace_period, '='));
    let numbers = [
        ("--eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period),
        ("--image-gc-high-threshold", kubelet.image_gc_high_threshold_percent),
        ("--image-gc-low-threshold", kubelet.image_gc_low_threshold_percent),
    ];
    flags.extend(numbers.into_iter().filter_map(|(flag, number)| Some(format!("{flag}={}", number?))));
    flags.extend(kubelet.cpu_cfs_quota.map(|is_on| format!("--cpu-cfs-quota={is_on}")));
    flags.join(" ")
}

/// Labels as `--node-labels` takes them.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn taints(taints: &[Taint]) -> String {
    let text = |taint: &Taint| format!("{}={}", taint.key, value_and_effect(taint));
    taints.iter().map(text).collect::<Vec<_>>().join(",")
}

/// What follows a taint's key, as kubelets and Bottlerocket write it.
pub(super) fn value_and_effect(taint: &Taint) -> String {
    format!("{}:{}", taint.value.as_deref().unwrap_or_default(), taint.effect)
}

/// Amounts as they were written.
pub(super) fn amounts(amounts: &BTreeMap<String, Quantity>) -> BTreeMap<String, String> {
    amounts.iter().map(|(resource, amount)| (resource.clone(), amount.to_string())).collect()
}

fn pairs(flag: &str, entries: &BTreeMap<String, String>, between: char) -> Option<String> {
    let text = entries.iter().map(|(key, value)| format!("{key}{between}{value}")).collect::<Vec<_>>().join(",");
    (!text.is_empty()).then(|| format!("{flag}=\"{text}\""))
}
