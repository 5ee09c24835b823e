//! Kinds of which a snapshot holds only what something else refers to: PodTemplates and workloads that buffers name;
//! and, where pods have default spread constraints, Services and the controllers of pods.

use std::collections::BTreeSet;

use cluster::snapshot_file::SnapshotKind;
use decode::capacity_buffer::TemplateKind;
use decode::pod_selectors::SelectorKind;
use serde_json::Value;

/// What the snapshot needs of such kinds.
#[derive(Debug, Default)]
pub(super) struct OnDemand {
    /// The CapacityBuffers.
    pub(super) buffers: Vec<Value>,
    /// Whether it matters what selects pods.
    selectors: bool,
    /// Controllers of pods.
    owners: BTreeSet<Named>,
}

/// API version, kind, namespace and name.
type Named = [String; 4];

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

fn selector_kind(api_version: &str, kind: &str) -> Option<SelectorKind> {
    SelectorKind::of(group(api_version), kind).filter(|kind| SelectorKind::OF_SCHEDULER.contains(kind))
}

fn template_kind(api_version: &str, kind: &str) -> Option<TemplateKind> {
    TemplateKind::of(group(api_version), kind)
}

impl OnDemand {
    /// Nothing is referred to yet.
    pub(super) fn new(selectors: bool) -> Self {
        Self { selectors, ..Self::default() }
    }

    /// Whether the objects of a kind have to be asked for. Buffers are listed before what they name.
    pub(super) fn asks_for(&self, kind: &SnapshotKind) -> bool {
        let for_buffers = template_kind(kind.api_version, kind.kind).map(|_| !self.buffers.is_empty());
        let for_pods = selector_kind(kind.api_version, kind.kind).map(|_| self.selectors);
        match (for_buffers, for_pods) {
            (None, None) => true,
            (for_buffers, for_pods) => for_buffers == Some(true) || for_pods == Some(true),
        }
    }

    /// Remembers which objects are controllers of these pods.
    pub(super) fn note_owners(&mut self, pods: &[Value]) {
        for pod in pods {
            let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            for owner in owners.into_iter().flatten() {
                self.owners.insert([
                    text(owner, "/apiVersion"),
                    text(owner, "/kind"),
                    text(pod, "/metadata/namespace"),
                    text(owner, "/name"),
                ]);
            }
        }
    }

    /// Whether a line of the snapshot has a part in it.
    pub(super) fn is_wanted(&self, line: &Value) -> bool {
        let (api_version, kind) = (text(line, "/apiVersion"), text(line, "/kind"));
        let selects = selector_kind(&api_version, &kind);
        if template_kind(&api_version, &kind).is_none() && selects.is_none() {
            return true;
        }
        let named = || [api_version, kind.clone(), text(line, "/metadata/namespace"), text(line, "/metadata/name")];
        let for_pods = self.selectors
            && match selects {
                None => false,
                Some(SelectorKind::Service) => true,
                Some(_) => self.owners.contains(&named()),
            };
        for_pods || self.buffers.iter().any(|buffer| names(buffer, line))
    }
}

/// Whether a buffer names the object.
fn names(buffer: &Value, object: &Value) -> bool {
    let name = match text(object, "/kind").as_str() {
        "PodTemplate" => text(buffer, "/spec/podTemplateRef/name"),
        of if text(buffer, "/spec/scalableRef/kind") == of => text(buffer, "/spec/scalableRef/name"),
        _ => return false,
    };
    !name.is_empty()
        && name == text(object, "/metadata/name")
        && text(buffer, "/metadata/namespace") == text(object, "/metadata/namespace")
}

#[cfg(test)]
mod tests {
    use cluster::snapshot_file::KINDS;
    use serde_json::json;

    use super::*;

    fn kinds(part: &OnDemand) -> Vec<&'static str> {
        let all = OnDemand { buffers: vec![json!({})], selectors: true, ..OnDemand::default() };
        assert!(KINDS.iter().all(|kind| all.asks_for(kind)));
        KINDS.iter().filter(|kind| !part.asks_for(kind)).map(|kind| kind.kind).collect()
    }

    #[test]
    fn kinds_that_nothing_refers_to_are_not_asked_for() {
        let workloads = ["PodTemplate", "Deployment", "ReplicaSet", "StatefulSet", "Service", "ReplicationController"];
        assert_eq!(kinds(&OnDemand::default()), workloads);
        assert_eq!(kinds(&OnDemand { selectors: true, ..OnDemand::default() }), workloads[..2]);
        assert_eq!(kinds(&OnDemand { buffers: vec![json!({})], ..OnDemand::default() }), workloads[4..]);
    }

    #[test]
    fn controllers_stay_if_they_own_a_pod_or_a_buffer_names_them() {
        let object = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "shop", "name": name}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "p",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-2", "controller": true}]}});
        let buffer =
            json!({"metadata": {"namespace": "shop"}, "spec": {"scalableRef": {"kind": "StatefulSet", "name": "db"}}});
        let mut part = OnDemand { buffers: vec![buffer], selectors: true, ..OnDemand::default() };
        part.note_owners(std::slice::from_ref(&pod));
        let table = [
            (pod, true),
            (object("v1", "Service", "any"), true),
            (object("apps/v1", "ReplicaSet", "web-1"), false),
            (object("apps/v1", "ReplicaSet", "web-2"), true),
            (object("apps/v1", "StatefulSet", "web-2"), false),
            (object("apps/v1", "StatefulSet", "db"), true),
            (object("v1", "ReplicationController", "web-2"), false),
            (object("v1", "PodTemplate", "db"), false),
            (object("apps/v1", "Deployment", "db"), false),
        ];
        for (line, expected) in &table {
            assert_eq!(part.is_wanted(line), *expected, "{line}");
        }
        part.selectors = false;
        let kept: Vec<_> =
            table.iter().filter(|(line, _)| part.is_wanted(line)).map(|(line, _)| &line["kind"]).collect();
        assert_eq!(kept, ["Pod", "StatefulSet"]);
    }
}
