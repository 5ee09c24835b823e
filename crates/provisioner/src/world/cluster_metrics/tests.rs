use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use api::NodeClaim;
use model::pod::PodPhase;
use serde_json::{Value, json};

use super::*;
use crate::controllers::disruption::metrics::DisruptionMetrics;
use crate::controllers::pod_deletion_cost::DeletionCostMetrics;
use crate::runtime::clock::MockClock;
use crate::runtime::metrics::Format;
use crate::world::status_conditions::StatusConditions;
use crate::world::store::test_objects::merge;
use crate::world::store::{NodeRecord, Revision};
use crate::world::test_pods::pod;

const NOW: &str = "2026-01-01T01:00:00Z";

struct Shown {
    metrics: Metrics,
    disruption: DisruptionMetrics,
    deletion_cost: DeletionCostMetrics,
    cluster: ClusterMetrics,
    store: Arc<ClusterStore>,
    clock: Arc<MockClock>,
    _conditions: StatusConditions,
}

impl Shown {
    fn new(of_each: bool) -> Self {
        let mut metrics = Metrics::new();
        let conditions = StatusConditions::register(&mut metrics);
        let disruption = DisruptionMetrics::register(&mut metrics);
        let deletion_cost = DeletionCostMetrics::register(&mut metrics);
        let cluster = ClusterMetrics::register(&mut metrics);
        let store = Arc::new(ClusterStore::new());
        let clock = Arc::new(MockClock::at(Timestamp::parse(NOW).unwrap()));
        let time: Arc<dyn Clock> = clock.clone();
        conditions.observe(&store, Arc::clone(&time));
        cluster.observe(&store, &time, &ProviderLabels::default(), of_each);
        Self { metrics, disruption, deletion_cost, cluster, store, clock, _conditions: conditions }
    }

    fn later(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    fn show(&self, pod: Pod) {
        let revision = Revision { uid: pod.uid.clone(), resource_version: 0 };
        self.store.apply(pod, revision);
    }

    fn node(&self, name: &str, change: Value) {
        let mut metadata = json!({"name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"karpenter.sh/nodepool": "p", "topology.kubernetes.io/zone": "a"}});
        merge(&mut metadata, change);
        self.store.show_node(json!({
            "metadata": metadata, "spec": {"providerID": format!("id-{name}")},
            "status": {"capacity": {"cpu": "4", "pods": "10"}, "allocatable": {"cpu": "3500m", "pods": "10"}},
        }));
    }

    fn claim(&self, conditions: Value) {
        self.store.show_node_claim(json!({
            "metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:59:00Z"},
            "status": {"providerID": "id-n", "conditions": conditions},
        }));
    }

    /// A pod with a request of so much CPU, by names of the store.
    fn pod_of(&self, name: &str, milli_cpu: &str) -> Pod {
        let json = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "creationTimestamp": "2026-01-01T00:59:00Z"},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": milli_cpu}}}]},
            "status": {"phase": "Pending"},
        });
        self.store.intern(|names| decode::pod(&json, &mut decode::Context::new(names)).unwrap()).0
    }

    fn lines(&self, start: &str) -> Vec<String> {
        let text = self.metrics.render().unwrap();
        let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn value(&self, series: &str) -> Option<f64> {
        let lines = self.lines(&format!("{series} "));
        lines.first().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

#[test]
fn a_pod_is_timed_from_its_creation_and_from_its_first_place_in_a_plan() {
    let shown = Shown::new(true);
    let waiting = |name: &str| Pod { phase: PodPhase::Pending, created_at: at("00:59:00"), ..pod(name) };
    shown.show(waiting("a"));
    let labels = r#"{name="a",namespace="default"}"#;
    let of_a = |name: &str| shown.value(&format!("karpenter_pods_{name}{labels}"));
    shown.later(5);
    assert_eq!(of_a("provisioning_scheduling_undecided_time_seconds"), Some(5.0), "since it was seen");
    assert_eq!(of_a("unstarted_time_seconds"), Some(65.0), "since its creation");
    let unbound = r#"karpenter_pods_unbound_time_seconds{name="a",namespace="default",dynamic_resources="false"}"#;
    assert_eq!(shown.value(unbound), Some(65.0));

    shown.cluster.refused([&waiting("a").uid]);
    assert_eq!(of_a("provisioning_scheduling_undecided_time_seconds"), None);
    assert_eq!(of_a("provisioning_unstarted_time_seconds"), None, "no plan had a place for it");
    shown.cluster.placed([&waiting("a").uid], shown.clock.now());
    shown.later(10);
    assert_eq!(of_a("provisioning_unstarted_time_seconds"), Some(10.0));

    shown.show(Pod { node_name: Some("n".into()), ..waiting("a") });
    let bound = r#"karpenter_pods_provisioning_bound_duration_seconds_sum{dynamic_resources="false"}"#;
    assert_eq!((shown.value(bound), shown.value(unbound)), (Some(10.0), None));
    shown.later(20);
    let ready = Pod { node_name: Some("n".into()), phase: PodPhase::Running, ..waiting("a") };
    shown.show(Pod { is_unready: true, ..ready.clone() });
    assert_eq!(shown.value("karpenter_pods_startup_duration_seconds_sum"), Some(0.0), "it is not ready");
    shown.show(ready.clone());
    assert_eq!(shown.value("karpenter_pods_startup_duration_seconds_sum"), Some(95.0));
    assert_eq!(shown.value("karpenter_pods_provisioning_startup_duration_seconds_sum"), Some(30.0));
    assert_eq!(of_a("unstarted_time_seconds"), None);
    // It starts once.
    shown.show(Pod { is_unready: true, ..ready.clone() });
    shown.show(ready);
    assert_eq!(shown.value("karpenter_pods_startup_duration_seconds_count"), Some(1.0));
}

fn at(text: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-01-01T{text}Z")).unwrap()
}

#[test]
fn the_first_pods_by_name_are_shown_and_no_more() {
    let shown = Shown::new(true);
    for number in (0..pods::MOST + 3).rev() {
        shown.show(Pod { phase: PodPhase::Pending, ..pod(&format!("p{number:05}")) });
    }
    let lines = shown.lines("karpenter_pods_unstarted_time_seconds{");
    assert_eq!(lines.len(), pods::MOST);
    assert!(lines[0].contains("p00000"), "{}", lines[0]);
    shown.store.delete::<Pod>(&pod("p00000").name, &pod("p00000").uid);
    assert!(shown.lines("karpenter_pods_unstarted_time_seconds{")[0].contains("p00001"));
}

#[test]
fn sums_of_a_node_follow_its_pods_and_go_with_it() {
    let shown = Shown::new(true);
    shown.node("n", json!({}));
    let on_node = |name: &str, cpu: &str| Pod { node_name: Some("n".into()), ..shown.pod_of(name, cpu) };
    shown.show(on_node("a", "500m"));
    shown.show(Pod { is_daemon: true, ..on_node("d", "250m") });
    shown.show(Pod { phase: PodPhase::Succeeded, ..on_node("ended", "3") });
    let of_cpu = |name: &str| {
        let lines = shown.lines(&format!("karpenter_nodes_{name}{{resource_type=\"cpu\",node_name=\"n\""));
        lines.first().map(|line| line.rsplit(' ').next().unwrap().to_owned())
    };
    let cpu = |number: &str| Some(number.to_owned());
    assert_eq!((of_cpu("total_pod_requests"), of_cpu("total_daemon_requests")), (cpu("0.5"), cpu("0.25")));
    assert_eq!((of_cpu("allocatable"), of_cpu("system_overhead")), (cpu("3.5"), cpu("0.5")));
    let used = "karpenter_cluster_utilization_percent{resource_type=\"cpu\"}";
    assert_eq!(shown.value(used), Some(0.75 / 3.5 * 100.0));
    shown.show(on_node("b", "1"));
    assert_eq!(of_cpu("total_pod_requests"), cpu("1.5"));
    shown.store.delete::<Pod>(&pod("a").name, &pod("a").uid);
    assert_eq!(of_cpu("total_pod_requests"), cpu("1.0"));
    shown.store.forget::<NodeRecord>(&"n".into());
    assert_eq!((of_cpu("total_pod_requests"), of_cpu("allocatable")), (None, None));
}

#[test]
fn series_of_single_nodes_and_pods_can_be_left_out() {
    let shown = Shown::new(false);
    shown.node("n", json!({}));
    shown.show(Pod { phase: PodPhase::Pending, ..pod("a") });
    let names = ["karpenter_nodes_allocatable", "karpenter_pods_unbound_time_seconds"];
    assert!(names.iter().all(|name| shown.lines(name).is_empty()));
    assert_eq!(shown.lines("karpenter_cluster_utilization_percent{").len(), 2);
}

#[test]
fn an_object_on_its_way_out_is_timed_until_it_is_gone() {
    let shown = Shown::new(true);
    shown.claim(json!([]));
    let of_claim = r#"{group="karpenter.sh",kind="NodeClaim",namespace="",name="c"}"#;
    let current = format!("operator_termination_current_time_seconds{of_claim}");
    assert_eq!(shown.value(&current), Some(60.0));
    shown.later(30);
    shown.store.forget::<NodeClaim>(&"c".into());
    assert_eq!(shown.value(&current), None);
    let durations = r#"operator_termination_duration_seconds_sum{group="karpenter.sh",kind="NodeClaim"}"#;
    assert_eq!(shown.value(durations), Some(90.0));
}

/// A family as it is served: its type, and the labels of its series.
#[derive(Debug, PartialEq, Eq)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
}

/// Families by name, of those whose names begin as Karpenter's do. Each must have a series.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let kind = kind[..1].to_uppercase();
            families.insert(name.to_owned(), Family { kind, labels: BTreeSet::from(["no series".to_owned()]) });
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let labels = if line[name.len()..].starts_with('{') { labels.split_once('}').unwrap().0 } else { "" };
        let stems = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        let Some(name) = std::iter::once(name).chain(stems).find(|name| families.contains_key(*name)) else { continue };
        // No value of these series has a comma or a quote.
        let keys = labels.split(',').filter_map(|label| label.split_once('=')).map(|(key, _)| key.to_owned());
        families.get_mut(name).unwrap().labels = keys.filter(|key| key != "le").collect();
    }
    families.retain(|name, _| name.starts_with("karpenter_") || name.starts_with("operator_"));
    families
}

fn labels(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned).collect()
}

#[test]
fn names_types_and_labels_are_those_of_karpenter_1_15_but_for_what_is_listed() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = fs::read_to_string(repository.join("test/karpenter-metrics/1.15.txt")).unwrap();
    let compatibility = fs::read_to_string(repository.join("docs/compatibility.md")).unwrap();

    let shown = Shown::new(true);
    shown.metrics.touch();
    shown.disruption.touch();
    shown.deletion_cost.count("updated", 1);
    shown.deletion_cost.waiting(&["p".to_owned()]);
    shown.node("n", json!({"deletionTimestamp": "2026-01-01T00:59:00Z"}));
    shown.show(Pod { phase: PodPhase::Pending, ..shown.pod_of("undecided", "1") });
    shown.show(Pod { phase: PodPhase::Pending, ..shown.pod_of("a", "1") });
    shown.cluster.placed([&pod("a").uid], shown.clock.now());
    let on_node = |name: &str| Pod { node_name: Some("n".into()), ..shown.pod_of(name, "1") };
    shown.show(Pod { is_daemon: true, ..on_node("d") });
    shown.show(Pod { phase: PodPhase::Pending, ..shown.pod_of("b", "1") });
    shown.cluster.placed([&pod("b").uid], shown.clock.now());
    shown.show(on_node("b"));
    let condition = |status: &str| json!([{"type": "T", "status": status, "reason": "R", "message": "", "lastTransitionTime": NOW}]);
    shown.claim(condition("True"));
    shown.claim(condition("False"));
    shown.node("gone", json!({"deletionTimestamp": "2026-01-01T00:59:00Z"}));
    shown.store.forget::<NodeRecord>(&"gone".into());
    let mut ours = families(&shown.metrics.render_as(Format::Prometheus).unwrap());

    let mut wrong = Vec::new();
    for line in list.lines() {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, kind, of_series, here] = columns[..] else { panic!("{line}: not four columns") };
        let (here, mark) = here.split_once('(').map_or((here, None), |(here, mark)| (here.trim(), Some(mark)));
        if let Some(mark) = mark.map(|mark| mark.trim_end_matches(')'))
            && !compatibility.contains(&format!("`{mark}` |"))
        {
            wrong.push(format!("{name}: docs/compatibility.md has no row with mark {mark}"));
        }
        let mut expected = Family { kind: kind.to_owned(), labels: labels(of_series) };
        match here {
            "=" => {}
            "-" | "pending" => {
                if ours.remove(name).is_some() {
                    wrong.push(format!("{name}: is there, and listed as {here}"));
                }
                continue;
            }
            "C" | "G" | "H" => here.clone_into(&mut expected.kind),
            other => expected.labels = labels(other),
        }
        match ours.remove(name) {
            Some(family) if family == expected => {}
            found => wrong.push(format!("{name}: expected {expected:?}, found {found:?}")),
        }
    }
    wrong.extend(ours.keys().map(|name| format!("{name}: is not Karpenter's")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
