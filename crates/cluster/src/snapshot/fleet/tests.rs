use std::fmt::Write as _;

use api::labels::ProviderLabels;
use cloudprovider::InstanceType;
use expect_test::{Expect, expect};
use scheduling::snapshot::Snapshot;
use serde_json::json;

use super::*;
use crate::snapshot::tests::cluster;

const NOW: &str = "2026-11-25T10:00:00Z";

/// A fleet as a cluster's objects make it, and what is wrong with them.
fn fleet(yaml: &str) -> (Snapshot, Vec<ObjectError>) {
    let (mut cluster, interner) = cluster(yaml);
    cluster.now = Timestamp::parse(NOW).unwrap();
    cluster.wants_fleet = true;
    let mut interner = Arc::unwrap_or_clone(interner);
    let offering =
        |zone: &str, price: i64| json!({"zone": zone, "capacityType": "on-demand", "price": price, "available": true});
    let instance_type = json!({
        "name": "m4", "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "requirements": {"node.kubernetes.io/instance-type": ["m4"]},
        // Nobody can launch the second now; whoever has one pays for it all the same.
        "offerings": [offering("a", 40), json!({"zone": "b", "capacityType": "on-demand", "price": 44, "available": false})],
    });
    let instance_type: InstanceType = serde_json::from_value(instance_type).unwrap();
    let labels = ProviderLabels::default();
    let context = &mut decode::Context::with_labels(&mut interner, &labels);
    let (catalogue, errors) = crate::catalogue([&instance_type], context);
    assert!(errors.is_empty(), "{errors:?}");
    let catalogue = Arc::new(catalogue);
    cluster.node_pools.iter_mut().for_each(|pool| pool.catalogue = Arc::clone(&catalogue));
    crate::snapshot(cluster, Arc::new(interner), &labels)
}

#[track_caller]
fn check(yaml: &str, expected: Expect) {
    let (snapshot, errors) = fleet(yaml);
    let fleet = snapshot.fleet.as_ref().unwrap();
    let mut text = String::new();
    for machine in &fleet.nodes {
        let node = &snapshot.nodes[machine.node];
        let bought = &machine.machine;
        let of = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let _ = writeln!(
            text,
            "{} {} in {} as {} for {} {:?}{}",
            node.display_name(),
            of(bought.instance_type.as_deref()),
            of(bought.zone.as_deref()),
            of(bought.capacity_type.as_deref()),
            bought.price().map_or(-1, |price| price.0),
            machine.under_way,
            if machine.is_protected { " protected" } else { "" },
        );
        let claim = &machine.claim;
        let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), |time| time.to_string());
        let drifted = claim.drifted.as_ref().map(|drift| format!("{} since {}", drift.cause, drift.since));
        let _ = writeln!(
            text,
            "  quiet {} drifted {} last pod {} grace {} expires {}",
            time(claim.consolidatable),
            of(drifted.as_deref()),
            time(claim.last_pod_event),
            claim.termination_grace_period.map_or("-".to_owned(), |it| it.to_string()),
            time(claim.expires_at),
        );
        for pod in &machine.pods {
            let moves = match &pod.moves {
                Moves::No => "stays",
                Moves::As(_) => "moves",
                Moves::LeftToOthers(why) => why,
            };
            let cost = pod.cost.0 as f64 / EvictionCost::ONE.0 as f64;
            let _ = writeln!(text, "  {} {moves} at {cost} {:?}", pod.pod.name.name, pod.forbidden);
        }
    }
    for (name, pool) in &fleet.pools {
        let after = pool.consolidate_after.map_or("Never".to_owned(), |after| after.to_string());
        let _ = writeln!(
            text,
            "pool {name} {:?} after {after}{} nodes {} going {} unready {}",
            pool.policy,
            if pool.is_static() { " static" } else { "" },
            pool.nodes,
            pool.going,
            pool.unready
        );
        for budget in &pool.budgets {
            let _ = writeln!(text, "  {} allows {} for {:?}", budget.text, budget.allowed, budget.reasons);
        }
    }
    for error in errors {
        let _ = writeln!(text, "{error}");
    }
    expected.assert_eq(&text);
}

fn pool(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template: {{spec: {{nodeClassRef: {{group: \
         g.example, kind: K, name: c}}, requirements: []}}}}\n{spec}"
    )
}

/// Which conditions of a NodeClaim are true, with their reasons.
fn machine(name: &str, conditions: &[(&str, &str)], more: &str) -> String {
    let all = [("Launched", "Launched"), ("Registered", "Registered"), ("Initialized", "Initialized")];
    let conditions = all.iter().chain(conditions).map(|(condition, reason)| {
        format!(
            "{{type: {condition}, status: \"True\", reason: {reason}, message: \"\", lastTransitionTime: \"2026-11-25T09:00:00Z\"}}"
        )
    });
    let conditions: Vec<String> = conditions.collect();
    format!(
        "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: claim-{name}, labels: {{karpenter.sh/nodepool: p}}, \
         creationTimestamp: \"2026-11-24T09:00:00Z\"}}\nspec: {{nodeClassRef: {{group: g.example, kind: K, name: c}}, requirements: \
         []{more}}}\nstatus: {{providerID: id-{name}, conditions: [{}]}}\n",
        conditions.join(", ")
    )
}

fn node(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{karpenter.sh/nodepool: p, topology.kubernetes.io/zone: b, \
         node.kubernetes.io/instance-type: m4, karpenter.sh/capacity-type: on-demand}}{more}}}\nspec: {{providerID: \
         id-{name}}}\nstatus: {{allocatable: {{cpu: 4}}, conditions: [{{type: Ready, status: \"True\"}}]}}\n"
    )
}

#[test]
fn a_machine_says_what_it_was_bought_as_and_what_its_claim_says() {
    let plain = machine("a", &[("Consolidatable", "Consolidatable"), ("Drifted", "NodePoolDrifted")], "");
    let plain = plain.replace("providerID: id-a", "providerID: id-a, lastPodEventTime: \"2026-11-25T09:30:00Z\"");
    let bounded = machine("b", &[], ", terminationGracePeriod: 1h30m, expireAfter: Never");
    let bad = machine("c", &[], ", terminationGracePeriod: soon, expireAfter: later");
    let unknown = node("c", "").replace("zone: b", "zone: z");
    let protected = node("b", ", annotations: {karpenter.sh/do-not-disrupt: \"true\"}");
    // No Node of ours, and no Node at all.
    let other = node("other", "").replace("id-other", "id-of-nobody");
    let coming = machine("d", &[], "");
    check(
        &[plain, node("a", ""), bounded, protected, bad, unknown, other, coming, pool("p", "")].concat(),
        expect![[r#"
            a m4 in b as on-demand for 44 None
              quiet 2026-11-25T09:00:00Z drifted NodePoolDrifted since 2026-11-25T09:00:00Z last pod 2026-11-25T09:30:00Z grace - expires 2026-12-24T09:00:00Z
            b m4 in b as on-demand for 44 None protected
              quiet - drifted - last pod 2026-11-25T09:00:00Z grace 1h30m0s expires -
            c m4 in z as on-demand for -1 None
              quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires -
            claim-d - in - as - for -1 None
              quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
            pool p WhenEmptyOrUnderutilized after 0s nodes 3 going 0 unready 0
              10% allows 1 for None
            NodeClaim claim-c: spec.terminationGracePeriod: "soon" is not a duration: expected numbers with units such as "1h30m"
            NodeClaim claim-c: spec.expireAfter: "later" is not a duration: expected numbers with units such as "1h30m"
        "#]],
    );
}

#[test]
fn what_is_under_way_counts_against_budgets() {
    let annotated = machine("replacement", &[], "")
        .replace("creationTimestamp", "annotations: {dovetail.sh/disruption-command: x}, creationTimestamp");
    let tainted =
        node("tainted", "").replace("spec: {", "spec: {taints: [{key: karpenter.sh/disrupted, effect: NoSchedule}], ");
    let parts = [
        machine("command", &[("DisruptionReason", "Empty")], ""),
        node("command", ""),
        machine("reboot", &[("Rebooting", "RebootIssued")], ""),
        node("reboot", ""),
        annotated,
        node("replacement", ""),
        machine("tainted", &[], ""),
        tainted,
        machine("deleting", &[], ""),
        node("deleting", ", deletionTimestamp: \"2026-11-25T09:59:00Z\""),
        machine("ending", &[("InstanceTerminating", "InstanceTerminating")], ""),
        node("ending", ", deletionTimestamp: \"2026-11-25T09:59:00Z\""),
        machine("unready", &[], ""),
        node("unready", "").replace("\"True\"", "\"False\""),
        machine("new", &[], "").replace("Initialized", "Other"),
        node("new", ""),
        machine("fine", &[], ""),
        node("fine", ""),
        pool(
            "p",
            "  disruption: {budgets: [{nodes: 30%}, {nodes: \"2\", reasons: [Drifted]}, {nodes: \"0\", schedule: \"@daily\", duration: 9h}]}\n",
        ),
    ];
    check(
        &parts.concat(),
        expect![[r#"
        command m4 in b as on-demand for 44 Some(Command(Some("Empty")))
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        reboot m4 in b as on-demand for 44 Some(Reboot)
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        replacement m4 in b as on-demand for 44 Some(Command(None))
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        tainted m4 in b as on-demand for 44 Some(Taint)
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        deleting m4 in b as on-demand for 44 Some(Deletion)
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        ending m4 in b as on-demand for 44 Some(Deletion)
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        unready m4 in b as on-demand for 44 None
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        new m4 in b as on-demand for 44 None
          quiet - drifted - last pod - grace - expires 2026-12-24T09:00:00Z
        fine m4 in b as on-demand for 44 None
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
        pool p WhenEmptyOrUnderutilized after 0s nodes 7 going 5 unready 1
          30% allows 3 for None
          2 allows 2 for Some({Drifted})
    "#]],
    );
}

#[test]
fn a_pods_part_is_whether_it_moves_what_that_costs_and_what_forbids_it() {
    let pod = |name: &str, metadata: &str, spec: &str, status: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: ns, uid: {name}{metadata}}}\nspec: {{nodeName: a, \
             containers: [{{name: c, image: x}}]{spec}}}\nstatus: {{phase: Running, startTime: \"2026-11-25T09:50:00Z\"{status}}}\n"
        )
    };
    let owner = |kind: &str| {
        format!(", ownerReferences: [{{apiVersion: apps/v1, kind: {kind}, name: o, uid: o, controller: true}}]")
    };
    let gone = ", deletionTimestamp: \"2026-11-25T10:00:10Z\"";
    let unready = ", conditions: [{type: Ready, status: \"False\"}]";
    let budget = |name: &str, spec: &str, allowed: u32| {
        format!(
            "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{selector: \
             {{matchLabels: {{app: {name}}}}}{spec}}}\nstatus: {{disruptionsAllowed: {allowed}}}\n"
        )
    };
    let parts = [
        machine("a", &[], ""),
        node("a", ""),
        pod("plain", ", labels: {app: open}", "", ""),
        pod("cheap", ", annotations: {karpenter.sh/disruption-cost: \"-134217728\"}", ", priority: 67108864", ""),
        pod("daemon", &owner("DaemonSet"), "", ""),
        pod("static", &owner("Node"), "", ""),
        pod("leaving", gone, "", ""),
        pod("leaving-of-set", &(owner("StatefulSet") + gone), "", ""),
        pod("ended", "", "", "").replace("Running", "Succeeded"),
        pod("quiet", ", annotations: {karpenter.sh/do-not-disrupt: 15m}", "", ""),
        pod("was-quiet", ", annotations: {karpenter.sh/do-not-disrupt: 5m}", "", ""),
        pod("shut", ", labels: {app: shut}", "", ""),
        pod("unready", ", labels: {app: lenient}", "", unready),
        pod("lenient", ", labels: {app: lenient}", "", ""),
        budget("open", "", 1),
        budget("shut", "", 0),
        budget("lenient", ", unhealthyPodEvictionPolicy: AlwaysAllow", 0),
        pool("p", ""),
    ];
    check(
        &parts.concat(),
        expect![[r#"
        a m4 in b as on-demand for 44 None
          quiet - drifted - last pod 2026-11-25T09:00:00Z grace - expires 2026-12-24T09:00:00Z
          cheap moves at 2 None
          daemon stays at 1 None
          leaving stays at 1 None
          leaving-of-set moves at 1 None
          lenient moves at 1 Some(Budget("lenient"))
          plain moves at 1 None
          quiet moves at 1 Some(DoNotDisrupt(Some(Timestamp(1795601100000))))
          shut moves at 1 Some(Budget("shut"))
          static stays at 1 None
          unready moves at 1 None
          was-quiet moves at 1 None
        pool p WhenEmptyOrUnderutilized after 0s nodes 1 going 0 unready 0
          10% allows 1 for None
    "#]],
    );
}

#[test]
fn a_pod_disruption_budget_that_selects_everything_holds_every_node_with_a_pod_of_its_namespace_and_no_other() {
    use scheduling::disruption::plan_disruption;
    use scheduling::disruption::reason::NodeReason;
    use scheduling::snapshot::eviction::Forbidden;

    let pod = |namespace: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: on-{node}, namespace: {namespace}, uid: on-{node}}}\nspec: {{nodeName: \
             {node}, containers: [{{name: c, image: x}}]}}\nstatus: {{phase: Running}}\n"
        )
    };
    let budget = |name: &str, selector: &str, allowed: i32| {
        format!(
            "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: \
             ns}}\nspec: {{maxUnavailable: 0{selector}}}\nstatus: {{disruptionsAllowed: {allowed}}}\n"
        )
    };
    let everything = ", selector: {}";
    let shut = || Some(Forbidden::Budget("all".into()));
    let several = || Some(Forbidden::SeveralBudgets(vec!["all".into(), "more".into()]));
    let cases = [
        (vec![budget("all", everything, 0)], shut(), "it allows none"),
        (vec![budget("all", everything, -1)], shut(), "it allows less than none"),
        (vec![budget("all", everything, 1)], None, "it allows one"),
        (vec![budget("all", "", 0)], None, "without a selector it selects nothing"),
        (vec![budget("all", everything, 1), budget("more", everything, 1)], several(), "the eviction API takes one"),
    ];
    for (budgets, expected, why) in cases {
        let drifted = [("Consolidatable", "Consolidatable"), ("Drifted", "NodePoolDrifted")];
        let nodes = ["a", "b", "empty", "other"].map(|name| machine(name, &drifted, "") + &node(name, ""));
        let pods = [pod("ns", "a"), pod("ns", "b"), pod("elsewhere", "other")];
        let all = "  disruption: {consolidateAfter: 0s, budgets: [{nodes: 100%}]}\n";
        let yaml = [nodes.concat(), pods.concat(), budgets.concat(), pool("p", all)].concat();
        let (snapshot, errors) = fleet(&yaml);
        assert!(errors.is_empty(), "{errors:?}");
        let forbidden = |name: &str| {
            let fleet = snapshot.fleet.as_ref().unwrap();
            let machine = fleet.nodes.iter().find(|it| snapshot.nodes[it.node].display_name() == name).unwrap();
            machine.pods.iter().map(|pod| pod.forbidden.clone()).collect::<Vec<_>>()
        };
        assert_eq!(forbidden("a"), std::slice::from_ref(&expected), "{why}");
        assert_eq!(forbidden("b"), std::slice::from_ref(&expected), "{why}");
        assert_eq!(forbidden("other"), [None], "{why}");
        let plan = plan_disruption(&snapshot);
        let goes = |(node, reason): &(NodeId, NodeReason)| {
            matches!(reason, NodeReason::Goes { .. }).then(|| snapshot.nodes[*node].display_name().to_owned())
        };
        let going: Vec<String> = plan.node_reasons.iter().filter_map(goes).collect();
        let wanted = if expected.is_some() { &["empty", "other"][..] } else { &["a", "b", "empty", "other"] };
        assert_eq!(going, wanted, "{why}: {:#?}", plan.node_reasons);
    }
}

#[test]
fn what_a_pool_says_that_cannot_be_read_lets_less_go() {
    let budgets = "budgets: [{nodes: \"1\"}, {nodes: \"1\", schedule: \"0 9 * * 7\", duration: 1h}]";
    let bad = format!("  disruption: {{consolidateAfter: soon, consolidationPolicy: WhenBored, {budgets}}}\n");
    let parts = [
        pool("bad", &bad),
        pool("never", "  disruption: {consolidateAfter: Never, consolidationPolicy: WhenEmpty, budgets: []}\n"),
        pool("static", "  replicas: 3\n"),
    ];
    check(
        &parts.concat(),
        expect![[r#"
        pool bad WhenEmpty after Never nodes 0 going 0 unready 0
          1 allows 1 for None
        pool never WhenEmpty after Never nodes 0 going 0 unready 0
        pool static WhenEmptyOrUnderutilized after 0s static nodes 0 going 0 unready 0
          10% allows 0 for None
        NodePool bad: spec.disruption.consolidateAfter: "soon" is not a duration: expected numbers with units such as "1h30m"
        NodePool bad: spec.disruption.consolidationPolicy: unknown policy "WhenBored"
        NodePool bad: spec.disruption.budgets[1]: schedule "0 9 * * 7" day of week: "7" is not within 0 to 6
    "#]],
    );
    let (snapshot, _) = fleet(&parts.concat());
    let faults = &snapshot.fleet.unwrap().pools["bad"].faults;
    assert_eq!(faults.iter().map(|fault| fault.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn pods_that_move_get_the_clusters_default_spread_as_pods_that_wait_do() {
    use crate::default_spread::DefaultSpread;
    use decode::pod_selectors::SelectorKind;
    use decode::scheduler_config::SchedulerConfig;

    let config = "podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, \
                  whenUnsatisfiable: DoNotSchedule}]}";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: ns, uid: web, labels: {app: web}}\nspec: {nodeName: a, \
               containers: [{name: c, image: x}]}\n";
    let parts = [machine("a", &[], ""), node("a", ""), pod.to_owned(), pool("p", "")];
    let (mut cluster, interner) = cluster(&parts.concat());
    let mut interner = Arc::unwrap_or_clone(interner);
    let service = json!({"metadata": {"name": "web", "namespace": "ns"}, "spec": {"selector": {"app": "web"}}});
    let context = &mut decode::Context::new(&mut interner);
    let selector = decode::pod_selectors::pod_selector(&service, SelectorKind::Service, context).unwrap();
    cluster.default_spread =
        DefaultSpread { config: SchedulerConfig::parse(config).unwrap(), selectors: vec![Arc::new(selector)] };
    cluster.wants_fleet = true;
    let (snapshot, _) = crate::snapshot(cluster, Arc::new(interner), &ProviderLabels::default());
    let fleet = snapshot.fleet.unwrap();
    let Moves::As(pending) = &fleet.nodes[0].pods[0].moves else { panic!("it moves") };
    assert_eq!(pending.pod.shape.topology_spread.len(), 1);
    assert!(fleet.nodes[0].pods[0].pod.shape.topology_spread.is_empty(), "where it runs it is as it was made");
}

#[test]
fn who_only_provisions_gets_no_fleet() {
    let (cluster, interner) = cluster(&[machine("a", &[], ""), node("a", ""), pool("p", "")].concat());
    let (snapshot, _) = crate::snapshot(cluster, interner, &ProviderLabels::default());
    assert!(snapshot.fleet.is_none());
}
