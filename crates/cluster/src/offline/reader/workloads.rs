//! The pods that workloads of the input will make.

use std::sync::Arc;

use model::pod::VolumeRef;
use model::{NamespacedName, Pod, Uid};
use serde_json::Value;

use super::Reader;
use decode::Context;
use decode::devices::pod_devices_as;
use decode::manifests::Manifest;
use decode::workloads::{PodSet, WorkloadKind, workload};

impl Reader<'_> {
    pub(super) fn workload(&mut self, kind: WorkloadKind, manifest: &Manifest) {
        // Pods of a cluster's workloads are there.
        if !self.settings.expand_workloads || self.header.is_some() {
            self.not_expanded += usize::from(self.header.is_none());
            *self.not_used.entry(manifest.kind.clone()).or_default() += 1;
            return;
        }
        match workload(&manifest.object, kind) {
            Ok(Some(sets)) => sets.into_iter().for_each(|set| self.pods_of_workload(set, manifest)),
            Ok(None) => *self.not_used.entry(manifest.kind.clone()).or_default() += 1,
            Err(error) => {
                let owner = manifest.object_ref().name;
                self.unreadable(manifest.origin.clone(), error, [owner]);
            }
        }
    }

    fn pods_of_workload(&mut self, set: PodSet, manifest: &Manifest) {
        let owner = manifest.object_ref().name;
        let PodSet { suffixes, mut pod, claims, template } = set;
        let names = suffixes.iter().map(|suffix| self.free_name(&owner, suffix, &manifest.kind));
        let names: Vec<(NamespacedName, &String)> = names.zip(&suffixes).collect();
        if let Some(spec) = pod.get_mut("spec") {
            self.defaults.apply_to_spec(&owner.namespace, spec);
        }
        if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("name".to_owned(), Value::String(owner.name.to_string()));
        }
        let context = &mut Context::with_labels(&mut self.interner, self.settings.labels);
        let admitted = super::admitted(self.header.as_ref(), &self.cluster.devices.compat, &self.admin_namespaces);
        let read = decode::pod(&pod, context).and_then(|read| Ok((read, pod_devices_as(&pod, admitted)?)));
        match read {
            Ok((pod, devices)) => {
                for (name, suffix) in names {
                    let uid = Uid::from(format!("{}/{name}", manifest.kind));
                    let mut devices = devices.clone();
                    if let Some(devices) = &mut devices {
                        devices.meta.name = name.clone();
                        devices.meta.uid = uid.clone();
                    }
                    let mut pod = Pod { name, uid, ..pod.clone() };
                    self.use_claims(&mut pod, &claims, &format!("{}-{suffix}", owner.name));
                    self.add_pod(pod, devices);
                }
            }
            Err(mut error) => {
                // The pod's fields are those of the template.
                error.object = manifest.object_ref();
                error.problem.field = format!("{template}.{}", error.problem.field);
                self.unreadable(manifest.origin.clone(), error, names.into_iter().map(|(name, _)| name));
            }
        }
    }

    /// Lets a StatefulSet's pod have the claims that an earlier one of its name had made, with their volumes.
    fn use_claims(&self, pod: &mut Pod, claims: &[String], name: &str) {
        let namespace = Arc::clone(&pod.name.namespace);
        for claim in claims {
            let made = NamespacedName::new(Arc::clone(&namespace), format!("{claim}-{name}"));
            if !self.cluster.volumes.claims.contains_key(&made) {
                continue;
            }
            for volume in &mut Arc::make_mut(&mut pod.shape).volumes {
                if matches!(volume, VolumeRef::Ephemeral { volume, .. } if **volume == **claim) {
                    *volume = VolumeRef::Claim(made.clone());
                }
            }
        }
    }

    /// `<workload>-<suffix>`, with the kind in between if another workload of that name has the pod already.
    fn free_name(&self, owner: &NamespacedName, suffix: &str, kind: &str) -> NamespacedName {
        let name = NamespacedName::new(Arc::clone(&owner.namespace), format!("{}-{suffix}", owner.name));
        if !self.pod_names.contains(&name) {
            return name;
        }
        NamespacedName::new(Arc::clone(&owner.namespace), format!("{}-{}-{suffix}", owner.name, kind.to_lowercase()))
    }
}
