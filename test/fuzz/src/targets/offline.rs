//! Text is read as the offline commands read it, planned, and the plan checked.

use std::sync::{Arc, LazyLock};

use api::NodePool;
use api::labels::ProviderLabels;
use cloudprovider::InstanceType;
use cloudprovider_kwok::catalogue::default_instance_types;
use cluster::offline::{self, Offline, Settings};
use cluster::snapshot_file;
use decode::manifests::{self, Manifest};
use scheduling::snapshot::Snapshot;
use serde_json::{Value, json};

/// Pods and nodes beyond which a plan is not made: the checker plays them one by one.
const MAX_PLANNED: usize = 60;
/// Steps that a plan may take; far fewer than in earnest, so that running out of them is seen as well.
const STEPS: u64 = 20_000;

const NODE_CLASS: (&str, &str) = ("karpenter.kwok.sh", "KWOKNodeClass");

pub(super) struct Types {
    /// The types that can be launched.
    all: Vec<Arc<InstanceType>>,
    /// Some that differ.
    pub(super) few: Vec<Arc<InstanceType>>,
    pub(super) labels: ProviderLabels,
    node_pool: NodePool,
}

pub(super) static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let all: Vec<_> = default_instance_types().into_iter().map(Arc::new).step_by(9).collect();
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": NODE_CLASS.0, "kind": NODE_CLASS.1, "name": "default"},
            "requirements": [],
        }}},
    });
    Types {
        few: all.iter().step_by(8).cloned().collect(),
        labels: ProviderLabels::default(),
        node_pool: serde_json::from_value(pool).expect("a NodePool"),
        all,
    }
});

fn read(manifests: Vec<Manifest>, documents: Vec<manifests::DocumentError>) -> Offline {
    let node_classes = [NODE_CLASS];
    let settings = Settings {
        expand_workloads: true,
        default_node_pool: Some(&TYPES.node_pool),
        ..Settings::new(&TYPES.all, &TYPES.labels, &node_classes)
    };
    let offline = offline::read(manifests, documents, &settings);
    for problem in &offline.problems {
        assert!(!problem.to_string().is_empty());
    }
    for note in &offline.notes {
        assert!(!note.to_string().is_empty());
    }
    offline
}

fn snapshot_of(offline: Offline) -> Snapshot {
    let (snapshot, errors) = cluster::snapshot(offline.cluster, offline.interner, &TYPES.labels);
    for error in errors {
        assert!(!error.to_string().is_empty());
    }
    snapshot
}

/// Any text: documents that are none are errors with a place, and stop no other.
pub(crate) fn manifests(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = manifests::parse("input", text);
    for error in &parsed.errors {
        assert!(error.to_string().starts_with("input"), "{error}");
    }
    snapshot_of(read(parsed.manifests, parsed.errors));
}

/// A snapshot file, whose header is written as it was read.
pub(crate) fn snapshot(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = manifests::parse("input", text);
    let offline = read(parsed.manifests, parsed.errors);
    if let Some(header) = &offline.header {
        let again = snapshot_file::header(&header.to_line());
        assert_eq!(again.as_ref().ok(), Some(header), "the header reads differently once it is written");
    }
    snapshot_of(offline);
}

/// Objects that are planned: the plan ends within its budget, and kube-scheduler's rules let every pod in where it was
/// put.
pub(crate) fn plan(bytes: &[u8]) {
    let Ok(Value::Array(objects)) = serde_json::from_slice(bytes) else { return };
    let manifests =
        (1..).zip(objects).filter_map(|(document, object)| Manifest::new("input", document, object)).collect();
    let mut snapshot = snapshot_of(read(manifests, Vec::new()));
    if snapshot.pods.len() + snapshot.nodes.len() > MAX_PLANNED {
        return;
    }
    snapshot.options.search_steps = STEPS;
    snapshot.options.device_steps = STEPS;
    let plan = scheduling::provisioning::plan(&snapshot);
    let problems = checker::check(&snapshot, &plan);
    assert!(problems.is_empty(), "the plan is wrong: {problems:#?}");
    let again = scheduling::provisioning::plan(&snapshot);
    assert_eq!(format!("{plan:?}"), format!("{again:?}"), "two plans of one snapshot differ");
}
