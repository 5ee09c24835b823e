use cloudprovider::{ConditionStatus, RepairPolicy};
use model::pod::DoNotDisrupt;
use serde_json::{Value, json};

use super::*;
use crate::world::store::test_objects::{condition, merge};
use crate::world::store::{ClusterStore, Revision};
use crate::world::test_pods::pod;

const KINDS: [NodeClassKind; 1] = [NodeClassKind { group: "g", version: "v1", kind: "K", plural: "ks" }];

fn policy(condition_type: &str, regex: &str, action: RepairAction) -> RepairPolicy {
    RepairPolicy {
        condition_type: condition_type.to_owned(),
        condition_status: ConditionStatus::True,
        reason_regex: regex.to_owned(),
        toleration: DurationMs::from_seconds(60),
        termination_grace_period: Some(DurationMs::from_seconds(30)),
        priority: 0,
        action,
    }
}

fn policies() -> RepairPolicies {
    let unbounded = RepairPolicy { termination_grace_period: None, ..policy("Slow", ".*", RepairAction::RebootNode) };
    RepairPolicies::new(&[
        policy("Bad", "", RepairAction::ReplaceNode),
        policy("Stuck", ".*", RepairAction::RebootNode),
        unbounded,
    ])
    .unwrap()
}

/// A cluster with one NodePool, `p`, whose machines are initialized; they have conditions that are true since one
/// o'clock.
struct Fleet(ClusterStore);

fn keep(store: &ClusterStore, pod: model::Pod) {
    let revision = Revision { uid: pod.uid.clone(), resource_version: 0 };
    store.apply(pod, revision);
}

impl Fleet {
    fn new(budgets: Value) -> Self {
        let store = ClusterStore::new();
        store.show_node_pool(json!({
            "metadata": {"name": "p"}, "spec": {"disruption": {"consolidateAfter": "0s", "budgets": budgets}},
        }));
        Self(store)
    }

    /// So many machines, `n0` and so on, the first of them broken in that way.
    fn with(self, nodes: usize, broken: &[&str]) -> Self {
        for index in 0..nodes {
            self.machine(&format!("n{index}"), broken.get(index).copied(), json!({}), json!({}));
        }
        self
    }

    fn machine(&self, name: &str, broken: Option<&str>, of_node: Value, of_claim: Value) {
        let broken = broken.map(|kind| condition(kind, "True", "2026-01-01T01:00:00Z"));
        self.0.show_node(json!({
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"karpenter.sh/registered": "true", "karpenter.sh/nodepool": "p"}, "annotations": of_node},
            "spec": {"providerID": format!("id-{name}")},
            "status": {"conditions": Vec::from_iter(broken)},
        }));
        let initialized = condition("Initialized", "True", "2026-01-01T00:01:00Z");
        let mut claim = json!({
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}},
            "status": {"providerID": format!("id-{name}"), "nodeName": name, "conditions": [initialized]},
        });
        merge(&mut claim, of_claim);
        self.0.show_node_claim(claim);
    }

    fn decide(&self, rules: Rules) -> (Vec<String>, Vec<String>) {
        let (policies, awaited) = (policies(), BTreeSet::from(["awaited".into()]));
        let now = Timestamp::parse("2026-01-01T12:00:00Z").unwrap();
        let question = Question {
            rules,
            policies: &policies,
            kinds: &KINDS,
            awaited: &awaited,
            deletion_costs: DeletionCosts::OfUsers,
            now,
        };
        let decisions = decide(&self.0.read(), question);
        let name = |case: &Case<'_>| claim::name(&case.claim).to_owned();
        let repairs = decisions.repairs.iter().map(|case| {
            let bound = case.drain_bound.map_or("-".to_owned(), |bound| bound.to_string());
            format!("{} {:?} {bound}", name(case), case.repair.action)
        });
        let blocked = decisions.blocked.iter().map(|(case, obstacle)| format!("{}: {obstacle}", name(case)));
        (repairs.collect(), blocked.collect())
    }

    fn now(&self) -> (Vec<String>, Vec<String>) {
        self.decide(Rules::Current)
    }
}

fn all() -> Value {
    json!([{"nodes": "100%"}])
}

const NONE: [&str; 0] = [];

#[test]
fn a_machine_is_rebooted_as_its_policy_says_and_one_that_is_to_be_replaced_is_left_to_disruption() {
    let (repairs, blocked) = Fleet::new(all()).with(10, &["Bad", "Stuck"]).now();
    assert_eq!(repairs, ["n1 RebootNode 30s"]);
    assert_eq!(blocked, NONE);
    assert_eq!(Fleet::new(all()).with(10, &["Fine"]).now().0, NONE);
}

#[test]
fn more_than_a_fifth_of_a_pool_blocks_all() {
    let (repairs, blocked) = Fleet::new(all()).with(10, &["Bad", "Stuck", "Stuck"]).now();
    assert_eq!(repairs, NONE);
    assert_eq!(blocked[0], "n1: 3 of 10 nodes are unhealthy, more than 20%");
    assert_eq!(blocked.len(), 2);
}

#[test]
fn budgets_for_unhealthy_pace_repairs_and_a_machine_never_initialized_needs_none() {
    let one = json!([{"nodes": "1", "reasons": ["Unhealthy"]}]);
    let (repairs, blocked) = Fleet::new(one.clone()).with(10, &["Stuck", "Stuck"]).now();
    assert_eq!(repairs, ["n0 RebootNode 30s"]);
    assert_eq!(blocked, ["n1: disruption budget 1 lets no more nodes go for reason Unhealthy"]);
    // One that is being rebooted has the place.
    let fleet = Fleet::new(one).with(9, &["Stuck"]);
    let rebooting = json!({"status": {"conditions": [
        {"type": "Rebooting", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:01:00Z"},
    ]}});
    fleet.machine("x", None, json!({}), rebooting);
    assert_eq!(fleet.now().0, NONE);

    let fleet = Fleet::new(json!([{"nodes": "0"}])).with(9, &[]);
    fleet.machine("new", Some("Stuck"), json!({}), json!({"status": {"conditions": []}}));
    assert_eq!(fleet.now().0, ["new RebootNode 30s"]);

    let (_, blocked) = Fleet::new(json!([{"nodes": "a few"}])).with(5, &["Stuck"]).now();
    assert!(blocked[0].contains("spec.disruption.budgets[0]") && blocked[0].contains("a few"), "{blocked:?}");
}

#[test]
fn only_the_nodes_do_not_repair_counts_and_do_not_disrupt_does_not() {
    let fleet = Fleet::new(all()).with(20, &[]);
    let flag = |key: &str| json!({key: "true"});
    fleet.machine("a", Some("Stuck"), flag("karpenter.sh/do-not-repair"), json!({}));
    let of_claim = json!({"metadata": {"annotations": {"karpenter.sh/do-not-repair": "true"}}});
    fleet.machine("b", Some("Stuck"), flag("karpenter.sh/do-not-disrupt"), of_claim);
    let (repairs, blocked) = fleet.now();
    assert_eq!(repairs, ["b RebootNode 30s"]);
    assert_eq!(blocked, ["a: annotation karpenter.sh/do-not-repair is \"true\""]);
}

#[test]
fn pods_that_must_stay_are_passed_over_only_if_something_bounds_the_drain() {
    let fleet = Fleet::new(all()).with(20, &["Stuck", "Slow", "Slow"]);
    let protected = |name: &str, node: &str| model::Pod {
        node_name: Some(node.into()),
        do_not_disrupt: DoNotDisrupt::Always,
        ..pod(name)
    };
    for node in ["n0", "n1", "n2"] {
        keep(&fleet.0, protected(&format!("on-{node}"), node));
    }
    fleet.machine("n2", Some("Slow"), json!({}), json!({"spec": {"terminationGracePeriod": "10s"}}));
    let (repairs, blocked) = fleet.now();
    assert_eq!(repairs, ["n0 RebootNode 30s", "n2 RebootNode 10s"]);
    assert_eq!(blocked.len(), 1);
    assert!(blocked[0].starts_with("n1: pod default/on-n1 has annotation karpenter.sh/do-not-disrupt"), "{blocked:?}");
}

#[test]
fn machines_with_which_something_was_begun_are_left_alone() {
    let fleet = Fleet::new(all()).with(40, &[]);
    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:01:00Z"});
    let with = |conditions: Value| json!({"status": {"conditions": conditions}});
    fleet.machine("command", Some("Stuck"), json!({}), with(json!([condition("DisruptionReason", "Drifted")])));
    fleet.machine("reboot", Some("Stuck"), json!({}), with(json!([condition("Rebooting", "RebootIssued")])));
    fleet.machine(
        "going",
        Some("Stuck"),
        json!({}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    fleet.machine("awaited", Some("Stuck"), json!({}), json!({}));
    fleet.machine("foreign", Some("Stuck"), json!({}), json!({"spec": {"nodeClassRef": {"group": "other"}}}));
    assert_eq!(fleet.now(), (vec![], vec![]));
}

#[test]
fn a_third_reboot_within_a_day_is_none() {
    let fleet = Fleet::new(all()).with(20, &[]);
    let rebooted = |times: &str| {
        json!({
            "metadata": {"annotations": {"dovetail.sh/reboots": times}},
            "status": {"conditions": [
                {"type": "Rebooting", "status": "False", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T11:00:00Z"},
            ]},
        })
    };
    fleet.machine("once", Some("Stuck"), json!({}), rebooted("2026-01-01T10:00:00Z"));
    fleet.machine("twice", Some("Stuck"), json!({}), rebooted("2026-01-01T09:00:00Z,2026-01-01T10:00:00Z"));
    fleet.machine("long-ago", Some("Stuck"), json!({}), rebooted("2025-12-31T09:00:00Z,2026-01-01T10:00:00Z"));
    let (repairs, _) = fleet.now();
    assert_eq!(repairs, ["long-ago RebootNode 30s", "once RebootNode 30s"]);
}

#[test]
fn without_a_node_pool_nothing_is_repaired_but_by_the_legacy_rules() {
    let fleet = Fleet::new(json!([{"nodes": "0"}])).with(20, &["Stuck", "Bad"]);
    let standalone = json!({"metadata": {"labels": {"karpenter.sh/nodepool": "gone"}}});
    fleet.machine("alone", Some("Bad"), json!({"karpenter.sh/do-not-repair": "true"}), standalone.clone());
    fleet.machine("stuck", Some("Stuck"), json!({}), standalone);
    let (repairs, blocked) = fleet.now();
    assert_eq!(repairs, NONE);
    assert!(blocked.contains(&"stuck: it belongs to no NodePool that could replace it".to_owned()), "{blocked:?}");
    // No reboots, no budgets, no drain.
    let (repairs, blocked) = fleet.decide(Rules::Legacy);
    assert_eq!(repairs, ["alone ReplaceNode 0s", "n1 ReplaceNode 0s"]);
    assert_eq!(blocked, NONE);
}

#[test]
fn the_longest_waiting_goes_first_then_the_cheapest_to_evict() {
    let fleet = Fleet::new(json!([{"nodes": "1"}])).with(20, &["Stuck", "Stuck"]);
    keep(&fleet.0, model::Pod { node_name: Some("n0".into()), ..pod("a") });
    assert_eq!(fleet.now().0, ["n1 RebootNode 30s"]);
    let rested = json!({"status": {"conditions": [
        {"type": "Initialized", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:01:00Z"},
        {"type": "Rebooting", "status": "False", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T11:00:00Z"},
    ]}});
    fleet.machine("n1", Some("Stuck"), json!({}), rested);
    assert_eq!(fleet.now().0, ["n0 RebootNode 30s"], "the other was rebooted an hour ago");
}
