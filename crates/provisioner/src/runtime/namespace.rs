//! The namespace that this process runs in.

use std::fs;

/// Where Kubernetes tells a pod its namespace.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Variables by which charts tell it, ours first, then Karpenter's.
const VARIABLES: [&str; 2] = ["POD_NAMESPACE", "SYSTEM_NAMESPACE"];
const KUBE_SYSTEM: &str = "kube-system";

/// The pod's own namespace, or `kube-system` outside of a cluster.
pub(crate) fn own_or_kube_system() -> String {
    let told = VARIABLES.into_iter().find_map(|name| std::env::var(name).ok());
    let found = told.or_else(|| fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).ok());
    let found = found.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    found.unwrap_or_else(|| KUBE_SYSTEM.to_owned())
}
