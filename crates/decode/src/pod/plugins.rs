//! Which plugins of its kubelet a pod may serve, as far as its volumes show it.
//!
//! A kubelet finds plugins, those of CSI and of DRA drivers, by sockets in `plugins_registry` below its root directory.
//! So a pod that serves one mounts that directory from the host, or one that contains it. What the plugin itself needs
//! is by convention in `plugins/NAME` below the same root, NAME being the driver's
//! (`k8s.io/dynamic-resource-allocation`, package kubeletplugin, and the CSI drivers' manifests). The root is
//! `/var/lib/kubelet` unless a distribution moved it, so it is read from the paths.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::Problem;
use crate::field::Field;

const ROOT: &str = "kubelet";
const REGISTRY: &str = "plugins_registry";
const PLUGINS: &str = "plugins";

/// Reads `spec.volumes` for [`model::Pod::kubelet_plugins`].
pub(super) fn decode(volumes: &Field<'_, '_>) -> Result<Option<Arc<[Arc<str>]>>, Problem> {
    let mut paths = Vec::new();
    for volume in volumes.items()? {
        let path = volume.field("hostPath")?.field("path")?.str_or_empty()?;
        if !path.is_empty() {
            paths.push(components(path));
        }
    }
    Ok(of_paths(&paths))
}

fn components(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

fn of_paths(paths: &[Vec<&str>]) -> Option<Arc<[Arc<str>]>> {
    let roots: BTreeSet<&[&str]> = paths.iter().filter_map(|path| root(path)).collect();
    if roots.is_empty() {
        return None;
    }
    let named = |path: &Vec<&str>| {
        roots.iter().find_map(|root| match path.strip_prefix(*root)? {
            [PLUGINS, name, ..] => Some(Arc::from(*name)),
            _ => None,
        })
    };
    let names: BTreeSet<Arc<str>> = paths.iter().filter_map(named).collect();
    Some(names.into_iter().collect())
}

/// The root directory of the kubelet whose registry is at or below that path, or contains it.
fn root<'p>(path: &'p [&'p str]) -> Option<&'p [&'p str]> {
    match path.iter().position(|part| *part == REGISTRY) {
        Some(registry) => path.get(..registry),
        None => Some(path).filter(|path| path.last() == Some(&ROOT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_mounts_the_registry_may_serve_plugins_and_those_that_it_names() {
        let cases: [(&[&str], Option<&[&str]>); 9] = [
            (&[], None),
            (&["/var/log", "/var/lib/kubelet/pods", "/var/lib/kubelet/plugins/gpu.example.com"], None),
            (&["/var/lib/kubelet/plugins_registry"], Some(&[])),
            (&["/var/lib/kubelet/plugins_registry/", "/var/lib/kubelet/plugins"], Some(&[])),
            (
                &["/var/lib/kubelet/plugins/gpu.example.com", "/var/lib/kubelet/plugins_registry/gpu"],
                Some(&["gpu.example.com"]),
            ),
            (
                &["/data/k0s/plugins_registry", "/data/k0s/./plugins/b/sockets", "/data/k0s//plugins/a"],
                Some(&["a", "b"]),
            ),
            (&["/var/lib/kubelet/plugins_registry", "/opt/cni/plugins/bridge"], Some(&[])),
            (&["/var/lib/kubelet", "/var/lib/kubelet/plugins/a"], Some(&["a"])),
            (&["/"], None),
        ];
        for (paths, expected) in cases {
            let paths: Vec<_> = paths.iter().map(|path| components(path)).collect();
            let found = of_paths(&paths);
            let found: Option<Vec<&str>> = found.as_ref().map(|names| names.iter().map(AsRef::as_ref).collect());
            assert_eq!(found.as_deref(), expected, "{paths:?}");
        }
    }
}
