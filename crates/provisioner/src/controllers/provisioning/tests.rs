//! From a store to NodeClaims, without a cluster.

mod actions;
mod bindings;
mod brake;
mod commands;
mod departing;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::labels::{self, ProviderLabels};
use api::{NodeClaim, NodePool, annotations};
use cloudprovider::{CapacityType, InstanceType, Offering, Overhead};
use cluster::snapshot::LaunchableNodePool;
use decode::capacity_buffer::{TemplateKind, buffer_template};
use decode::devices;
use decode::pod_selectors::{SelectorKey, SelectorKind, pod_selector};
use decode::scheduler_config::SchedulerConfig;
use model::{DurationMs, PriceNanoUsdPerHour, Quantity, Timestamp, Uid};
use scheduling::catalogue::Catalogue;
use scheduling::snapshot::SchedulerNames;
use serde_json::{Value, json};

use scheduling::plan::Plan;
use scheduling::snapshot::Snapshot;

use super::*;
use crate::world::assignments::Assignments;
use crate::world::held_devices::HeldDevices;
use crate::world::new_node_claim;
use crate::world::planned_node_claim::node_claim;
use crate::world::planned_pods;
use crate::world::preconditions::{Stale, check_limits, check_machine, check_pool, used_since};
use crate::world::store::ClusterStore;
use crate::world::store::test_objects::controlled_by;
use scheduling::snapshot::Options as PlanOptions;

fn instance_type(cpu: u32, price: i64) -> InstanceType {
    let amount = |text: String| Quantity::parse(&text).unwrap();
    let one = |value: &str| BTreeSet::from([value.to_owned()]);
    InstanceType {
        name: format!("t-{cpu}").as_str().into(),
        requirements: BTreeMap::from([
            (labels::INSTANCE_TYPE.to_owned(), one(&format!("t-{cpu}"))),
            (labels::ARCH.to_owned(), one("amd64")),
        ]),
        offerings: [
            ("a", CapacityType::Spot, price / 2),
            ("a", CapacityType::OnDemand, price),
            ("b", CapacityType::OnDemand, price),
        ]
        .into_iter()
        .map(|(zone, capacity_type, price)| Offering {
            zone: zone.to_owned(),
            capacity_type,
            labels: BTreeMap::new(),
            reservation: None,
            price: PriceNanoUsdPerHour(price),
            available: true,
            capacity_override: None,
            overhead_override: None,
        })
        .collect(),
        capacity: BTreeMap::from([
            ("cpu".to_owned(), amount(cpu.to_string())),
            ("memory".to_owned(), amount(format!("{}Gi", cpu * 4))),
            ("pods".to_owned(), amount("110".to_owned())),
        ]),
        overhead: Overhead::default(),
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    }
}

fn node_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "general", "uid": "pool-uid", "generation": 3, "resourceVersion": "1"},
        "spec": {"template": {
            "metadata": {"labels": {"team": "web"}, "annotations": {"note": "x"}},
            "spec": {
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
                "startupTaints": [{"key": "cni", "effect": "NoSchedule"}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
            },
        }},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "default-scheduler",
            "containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    });
    change(&mut pod);
    pod
}

fn of_daemon_set(pod: &mut Value) {
    pod["metadata"]["ownerReferences"] = controlled_by("DaemonSet", "d");
}

/// A store with those pods.
fn store(pods: impl IntoIterator<Item = Value>) -> ClusterStore {
    let store = ClusterStore::new();
    for pod in pods {
        store.show_pod(pod);
    }
    store
}

fn snapshot_of(store: &ClusterStore, pool: &Arc<NodePool>, assignments: &Assignments) -> Snapshot {
    let before = snapshot::Before {
        planned: &assignments.claims_by_pod(),
        succession: &Default::default(),
        left_out: Default::default(),
    };
    snapshot_with(store, pool, before)
}

fn snapshot_with(store: &ClusterStore, pool: &Arc<NodePool>, before: snapshot::Before<'_>) -> Snapshot {
    let types = [instance_type(2, 100), instance_type(4, 200), instance_type(16, 800)];
    let ((catalogue, errors), _): ((Catalogue, _), _) =
        store.intern(|names| cluster::catalogue(&types, &mut decode::Context::new(names)));
    assert_eq!(errors, []);
    let pools = vec![LaunchableNodePool { object: Arc::clone(pool), usable: Ok(()), catalogue: Arc::new(catalogue) }];
    let now = Timestamp::parse("2026-01-01T00:01:00Z").unwrap();
    let (snapshot, errors) = snapshot::build(
        &store.snapshot(),
        pools,
        before,
        snapshot::Settings {
            whom: snapshot::For::Provisioning,
            now,
            options: PlanOptions::default(),
            scheduler_config: &zone_default(),
            labels: &ProviderLabels::default(),
            held_devices: &HeldDevices::new(DurationMs::ZERO),
            repair: None,
        },
        &mut snapshot::Memory::default(),
    );
    assert_eq!(errors, []);
    snapshot
}

/// Pods that something selects are spread over zones.
fn zone_default() -> SchedulerConfig {
    let text = "podTopologySpread: {defaultConstraints: [
        {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}";
    SchedulerConfig::parse(text).unwrap()
}

fn pool_object(json: Value) -> Arc<NodePool> {
    Arc::new(serde_json::from_value(json).unwrap())
}

fn planned(store: &ClusterStore) -> (Snapshot, Plan, Arc<NodePool>) {
    let pool = pool_object(node_pool());
    let snapshot = snapshot_of(store, &pool, &Assignments::default());
    let plan = scheduling::provisioning::plan(&snapshot);
    (snapshot, plan, pool)
}

fn pending_names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.pods.iter().map(|pending| pending.pod.name.name.to_string()).collect()
}

#[test]
fn only_pods_that_wait_for_us_are_planned() {
    let store = store([
        pod("waits", |_| {}),
        pod("not-tried", |pod| pod["status"]["conditions"] = json!([])),
        pod("gated", |pod| pod["status"]["conditions"][0]["reason"] = json!("SchedulingGated")),
        pod("other-scheduler", |pod| pod["spec"]["schedulerName"] = json!("volcano")),
        pod("preempts", |pod| pod["status"]["nominatedNodeName"] = json!("n1")),
        pod("going", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z")),
        pod("ended", |pod| pod["status"]["phase"] = json!("Failed")),
        pod("daemon", of_daemon_set),
    ]);
    let snapshot = snapshot_of(&store, &pool_object(node_pool()), &Assignments::default());
    assert_eq!(pending_names(&snapshot), ["other-scheduler", "waits"]);
    let only = SchedulerNames::Only(["default-scheduler".into()].into());
    assert!(snapshot::has_work(&store.read(), &only));
    store.forget::<model::Pod>(&model::NamespacedName::new("default", "waits"));
    assert!(!snapshot::has_work(&store.read(), &only));
    assert!(snapshot::has_work(&store.read(), &SchedulerNames::All));
}

#[test]
fn a_planned_machine_becomes_a_claim_with_all_that_karpenter_writes() {
    let store = store([pod("a", |_| {}), pod("b", |_| {})]);
    let (snapshot, plan, pool) = planned(&store);
    assert_eq!(plan.machines.len(), 1, "{plan:#?}");
    let machine = plan.machines.iter().next().unwrap();
    let claim = node_claim(&snapshot, machine, &pool, None).unwrap();
    assert_eq!(claim.metadata.generate_name.as_deref(), Some("general-"));
    let expected_labels =
        [("karpenter.kwok.sh/kwoknodeclass", "default"), ("karpenter.sh/nodepool", "general"), ("team", "web")];
    let labels = claim.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(), expected_labels);
    let written = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(written["note"], "x");
    assert_eq!(written[annotations::NODEPOOL_HASH_VERSION], "v3");
    assert_eq!(written[annotations::NODEPOOL_HASH], cluster::node_pool_hash::hash(&pool).unwrap());
    assert_eq!(planned_pods::decode(Some(written)), ["uid-a", "uid-b"].map(Uid::from));
    let owner = &claim.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str(), owner.block_owner_deletion),
        ("NodePool", "pool-uid", Some(true))
    );
    assert_eq!(claim.spec.expire_after.0, "Never");
    assert_eq!(claim.spec.startup_taints[0].key, "cni");
    assert_eq!(claim.spec.resources.requests["cpu"].0, "3");
    let requirement = |key: &str| claim.spec.requirements.iter().find(|it| it.key == key).unwrap();
    assert_eq!(requirement(labels::INSTANCE_TYPE).values, ["t-4", "t-16"], "cheapest first, too small ones left out");
    assert_eq!(requirement(labels::CAPACITY_TYPE).values, ["on-demand"]);
    assert_eq!(requirement(labels::ZONE).values, ["a", "b"]);
    assert_eq!(requirement(labels::NODEPOOL).values, ["general"]);
    for planning_only in [labels::REGISTERED, labels::INITIALIZED, labels::HOSTNAME] {
        assert!(claim.spec.requirements.iter().all(|it| it.key != planning_only), "{planning_only}");
    }
}

#[test]
fn a_name_is_the_pool_and_five_letters_and_never_the_same() {
    let claim = NodeClaim {
        metadata: kube::api::ObjectMeta { generate_name: Some(format!("{}-", "p".repeat(80))), ..Default::default() },
        ..NodeClaim::new(
            "",
            serde_json::from_value(
                json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}),
            )
            .unwrap(),
        )
    };
    let names: BTreeSet<String> = (0..100).map(|_| new_node_claim::random_name(&claim)).collect();
    assert!(names.iter().all(|name| name.len() == 63 && name.starts_with("pppp")), "{names:?}");
    assert!(names.len() > 95, "{} different names of 100", names.len());
}

#[test]
fn a_pool_that_changed_since_the_plan_is_stale() {
    let planned = pool_object(node_pool());
    let live = |change: &dyn Fn(&mut Value)| {
        let mut json = node_pool();
        change(&mut json);
        check_pool(&planned, &pool_object(json))
    };
    assert_eq!(live(&|_| {}), Ok(()));
    assert_eq!(
        live(&|pool| pool["metadata"]["resourceVersion"] = json!("9")),
        Ok(()),
        "a status update changes nothing"
    );
    assert_eq!(live(&|pool| pool["metadata"]["uid"] = json!("other")), Err(Stale::NodePoolReplaced));
    assert_eq!(live(&|pool| pool["metadata"]["generation"] = json!(4)), Err(Stale::NodePoolChanged));
    assert_eq!(
        live(&|pool| pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z")),
        Err(Stale::NodePoolDeleting)
    );
    assert!(matches!(
        live(&|pool| pool["status"]["conditions"][0]["status"] = json!("False")),
        Err(Stale::NodePoolNotReady(_))
    ));
}

#[test]
fn a_machine_is_wanted_while_one_of_its_pods_waits() {
    let store = store([pod("a", |_| {}), pod("b", |_| {})]);
    let (snapshot, plan, _) = planned(&store);
    let machine = plan.machines.iter().next().unwrap();
    store.show_pod(pod("a", |pod| {
        pod["metadata"]["resourceVersion"] = json!("2");
        pod["spec"]["nodeName"] = json!("n1");
    }));
    assert_eq!(check_machine(&store.read(), &snapshot, machine), Ok(()));
    store.forget::<model::Pod>(&model::NamespacedName::new("default", "b"));
    assert_eq!(check_machine(&store.read(), &snapshot, machine), Err(Stale::NoPodWaits));
}

#[test]
fn pods_of_an_earlier_plan_keep_their_machine() {
    let store = store([pod("a", |_| {}), pod("b", |_| {})]);
    let (snapshot, plan, pool) = planned(&store);
    let machine = plan.machines.iter().next().unwrap();
    let mut claim = node_claim(&snapshot, machine, &pool, None).unwrap();
    claim.metadata.name = Some("general-1".into());
    claim.metadata.uid = Some("claim-uid".into());
    claim.metadata.resource_version = Some("5".into());
    let revision = crate::world::store::Revision::of(&claim.metadata);
    store.apply(claim, revision);
    let assignments = Assignments::default();
    assignments.assign(&"general-1".into(), ["uid-a", "uid-b"].map(Uid::from));
    store.show_pod(pod("c", |_| {}));
    let snapshot = snapshot_of(&store, &pool, &assignments);
    let plan = scheduling::provisioning::plan(&snapshot);
    assert_eq!(plan.existing.len(), 1, "{plan:#?}");
    let kept: Vec<_> = plan.existing[0].pods.iter().map(|&id| snapshot.pods[id].pod.name.name.to_string()).collect();
    assert_eq!(kept, ["a", "b"]);
    assert_eq!(plan.machines.len(), 1, "only the new pod needs a machine");
    assert_eq!(plan.machines.iter().next().unwrap().pods.len(), 1);
}

#[test]
fn a_limit_that_others_used_up_since_the_plan_makes_it_stale() {
    let store = store([pod("a", |_| {})]);
    let mut limited = node_pool();
    limited["spec"]["limits"] = json!({"cpu": "16", "nodes": "3"});
    let pool = pool_object(limited);
    let snapshot = snapshot_of(&store, &pool, &Assignments::default());
    let plan = scheduling::provisioning::plan(&snapshot);
    let machine = plan.machines.iter().next().unwrap();
    let check = || {
        let used = used_since(&store.read(), &snapshot, &"general".into());
        check_limits(&snapshot, machine.node_pool, &used)
    };
    let create = |name: &str, cpu: &str| {
        let mut claim = node_claim(&snapshot, machine, &pool, None).unwrap();
        claim.metadata.name = Some(name.to_owned());
        claim.metadata.uid = Some(name.to_owned());
        claim.metadata.resource_version = Some("5".to_owned());
        claim.spec.resources.requests.insert("cpu".to_owned(), cpu.into());
        let revision = crate::world::store::Revision::of(&claim.metadata);
        assert!(store.apply(claim, revision));
    };
    assert_eq!(check(), Ok(()));
    create("general-1", "2");
    assert_eq!(check(), Ok(()), "two of sixteen");
    create("general-2", "15");
    assert_eq!(check(), Err(Stale::LimitsUsedUp));
}

/// Applies an object of `resource.k8s.io`.
fn apply_device_object(store: &ClusterStore, kind: &str, name: &str, spec: &Value) {
    apply_owned_device_object(store, kind, (name, &json!({})), spec);
}

/// Applies an object of `resource.k8s.io` with more metadata than a name.
fn apply_owned_device_object(store: &ClusterStore, kind: &str, (name, more): (&str, &Value), spec: &Value) {
    let admitted = devices::Admitted::ByServer;
    let mut metadata = json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"});
    metadata.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
    let is_new = match kind {
        "DeviceClass" => store.apply_json(object, |json, _| devices::device_class(json, admitted)),
        "ResourceSlice" => store.apply_json(object, |json, _| devices::resource_slice(json, admitted)),
        "ResourceClaimTemplate" => store.apply_json(object, |json, _| devices::resource_claim_template(json, admitted)),
        "ResourceClaim" => store.apply_json(object, |json, _| devices::resource_claim(json, admitted)),
        other => unreachable!("no test applies a {other}"),
    };
    assert!(is_new);
}

#[test]
fn pods_with_claims_go_where_slices_of_the_store_give_them_devices() {
    let mut claiming = pod("gpu", |pod| {
        pod["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "one"}]);
    });
    claiming["metadata"]["namespace"] = "default".into();
    let uid = Uid::from(claiming["metadata"]["uid"].as_str().unwrap());
    let store = ClusterStore::new();
    store.note_devices(&uid, devices::pod_devices(&claiming).unwrap());
    store.show_pod(claiming);
    let refused = planned(&store);
    assert_eq!(refused.1.refusals.len(), 1);
    let why: Vec<String> =
        refused.1.refusals[0].reasons.iter().map(|reason| reason.message(&refused.0.interner)).collect();
    assert_eq!(why, ["resource claim template default/one does not exist"]);

    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    apply_device_object(&store, "DeviceClass", "gpu", &json!({}));
    apply_device_object(&store, "ResourceClaimTemplate", "one", &json!({"spec": {"devices": {"requests": [request]}}}));
    let why = |store: &ClusterStore| -> Vec<String> {
        let (snapshot, plan, _) = planned(store);
        plan.refusals[0].reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect()
    };
    assert_eq!(why(&store), ["its ResourceClaim for \"c\" has not been made yet"]);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "gpu", "uid": "uid-gpu", "controller": true});
    let made = json!({"annotations": {"resource.kubernetes.io/pod-claim-name": "c"}, "ownerReferences": [owner]});
    let claim = json!({"devices": {"requests": [request]}});
    apply_owned_device_object(&store, "ResourceClaim", ("made", &made), &claim);
    assert!(why(&store)[0].contains("3 without the devices it claims"), "{:?}", why(&store));

    let slice = json!({"driver": "d.example.com", "allNodes": true, "devices": [{"name": "d"}],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
    apply_device_object(&store, "ResourceSlice", "s", &slice);
    let (_, plan, _) = planned(&store);
    assert_eq!((plan.machines.len(), plan.refusals.len()), (1, 0));
    assert_eq!(plan.machines.iter().next().unwrap().devices, [(Arc::from("d.example.com"), 1)]);
}

fn apply_service(store: &ClusterStore, app: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": "web", "uid": "uid-service", "resourceVersion": "7"},
        "spec": {"selector": {"app": app}},
    });
    store.apply_json(service, |service, context| pod_selector(service, SelectorKind::Service, context));
}

#[test]
fn daemons_have_the_priority_of_their_class_while_it_is_there() {
    let store = store([]);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "default", "name": "agent", "uid": "uid-agent", "resourceVersion": "7"},
        "spec": {"template": {"spec": {"priorityClassName": "high", "containers": [{"name": "a"}]}}},
    });
    store.apply_json(set, decode::daemon_set);
    let priority = |store: &ClusterStore| planned(store).0.daemon_sets[0].template.priority;
    assert_eq!(priority(&store), None);
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high", "uid": "uid-high", "resourceVersion": "8"}, "value": 1000,
    });
    store.apply_json(class, |class, _| decode::priority_class(class));
    assert_eq!(priority(&store), Some(1000));
    store.forget::<decode::priority_class::PriorityClass>(&"high".into());
    assert_eq!(priority(&store), None);
}

#[test]
fn what_decides_about_devices_is_gathered_for_buffers_alone() {
    for (claims, expected) in [(json!([]), false), (json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]), true)]
    {
        let store = store([]);
        let metadata = json!({"namespace": "default", "name": "spare", "uid": "u", "resourceVersion": "7"});
        let template = json!({
            "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata,
            "template": {"spec": {"containers": [{"name": "a"}], "resourceClaims": claims}},
        });
        store.apply_json(template, |json, context| buffer_template(json, TemplateKind::PodTemplate, context));
        let buffer = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata,
            "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 2},
        });
        store.apply_json(buffer, |buffer, _| decode::capacity_buffer_object(buffer));
        let (snapshot, plan, _) = planned(&store);
        assert_eq!(snapshot.devices.is_some(), expected);
        let [room] = plan.buffers.as_slice() else { panic!("{:?}", plan.buffers) };
        let why: Vec<String> = room.reasons.iter().map(|it| it.message(&snapshot.interner)).collect();
        let is_told = why.iter().any(|why| why.contains("default/one does not exist"));
        assert_eq!((room.missing, is_told), if expected { (2, true) } else { (0, false) }, "{why:?}");
    }
}

/// How many pods are planned in each zone, where that is decided.
fn by_zone(store: &ClusterStore) -> Vec<(Vec<String>, usize)> {
    let (snapshot, plan, pool) = planned(store);
    let mut zones: Vec<_> = plan
        .machines
        .iter()
        .map(|machine| {
            let claim = node_claim(&snapshot, machine, &pool, None).unwrap();
            let zone = claim.spec.requirements.into_iter().find(|it| it.key == labels::ZONE).unwrap();
            (zone.values, machine.pods.len())
        })
        .collect();
    zones.sort();
    zones
}

#[test]
fn pods_have_the_clusters_default_spread_while_a_service_selects_them() {
    let web = |name: &str| pod(name, |pod| pod["metadata"]["labels"] = json!({"app": "web"}));
    let store = store([web("a"), web("b")]);
    let anywhere = vec![(vec!["a".to_owned(), "b".to_owned()], 2)];
    assert_eq!(by_zone(&store), anywhere, "nothing selects them");
    apply_service(&store, "web");
    assert_eq!(by_zone(&store), [(vec!["a".to_owned()], 1), (vec!["b".to_owned()], 1)]);
    let name = model::NamespacedName::new("default", "web");
    store.forget::<decode::pod_selectors::PodSelector>(&SelectorKey { kind: SelectorKind::Service, name });
    assert_eq!(by_zone(&store), anywhere, "the Service is gone");
    apply_service(&store, "other");
    assert_eq!(by_zone(&store), anywhere, "the Service selects others");
}
