//! What is said of a pod that no machine would hold, as a whole: which rules exclude all, and what would let it in.

use std::sync::Arc;

use expect_test::expect;
use model::{Operator, Requirement, Requirements, pod::Protocol};

use super::{
    check,
    fixture::{Fixture, gib},
};
use crate::plan::reason::Reason;
use crate::provisioning::plan;

const ZONE: &str = api::labels::ZONE;

/// The last word on the only pod.
fn remedies(f: &Fixture) -> String {
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let refusal = plan.refusals.first().unwrap();
    let is_last_word = |reason: &&Reason| matches!(reason, Reason::Remedies(_));
    refusal.reasons.iter().find(is_last_word).map(|reason| reason.message(&snapshot.interner)).unwrap_or_default()
}

/// Small machines in zone a, large ones in zone b.
fn two_zones() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("a", "on-demand", 10);
    f.instance_type("large", 8, 64).offering("b", "on-demand", 40);
    f
}

#[test]
fn every_rule_of_the_set_is_needed_to_exclude_all() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("both").requests(1000, gib(32)).select(ZONE, "a");
    assert_eq!(
        remedies(&f),
        "every machine is excluded by topology.kubernetes.io/zone In [a] or memory 32Gi; it would fit one if it did not want \
         topology.kubernetes.io/zone In [a] (nodepool/p), or with 16Gi less memory (nodepool/p)"
    );
}

#[test]
fn rules_that_others_make_superfluous_are_not_named() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("huge").requests(1000, gib(100)).select(ZONE, "a");
    // Memory excludes both; the machine in zone b would need another zone too.
    assert_eq!(remedies(&f), "it would fit a new machine with 84Gi less memory (nodepool/p)");
    let mut f = two_zones();
    f.pool("p");
    f.pod("anywhere").requests(1000, gib(100));
    assert_eq!(remedies(&f), "it would fit a new machine with 36Gi less memory (nodepool/p)");
}

#[test]
fn a_node_pool_that_excludes_the_machine_is_named() {
    let mut f = two_zones();
    f.pool("near").require(ZONE, "In", &["a"]);
    f.pod("large").requests(6000, gib(1));
    assert_eq!(
        remedies(&f),
        "every machine is excluded by what NodePools require or cpu 6; it would fit one if nodepool/near had \
         topology.kubernetes.io/zone In [b], or with 2 less cpu (nodepool/near)"
    );
}

#[test]
fn of_several_node_pools_the_one_with_the_fewest_changes_comes_first() {
    let mut f = two_zones();
    f.pool("tainted").taint("team", "x");
    f.pool("open");
    f.pod("p").requests(6000, gib(1)).select(ZONE, "a");
    assert!(remedies(&f).ends_with("it would fit one if it did not want topology.kubernetes.io/zone In [a] (nodepool/open), or with 2 less cpu (nodepool/open), or if it tolerated team=x:NoSchedule and if it did not want topology.kubernetes.io/zone In [a] (nodepool/tainted)"), "{}", remedies(&f));
}

#[test]
fn what_would_help_is_worked_out_for_the_first_of_very_many() {
    let mut f = Fixture::new();
    for size in 1..=200 {
        f.instance_type(&format!("t{size}"), 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 11);
    }
    f.pool("p");
    for index in 0..1000 {
        f.pod(&format!("p{index}")).requests(10_000 + index, gib(1));
    }
    let plan = plan(&f.snapshot());
    let is_told = |reasons: &[Reason]| reasons.iter().any(|reason| matches!(reason, Reason::Remedies(_)));
    let told = plan.refusals.iter().filter(|refusal| is_told(&refusal.reasons)).count();
    assert_eq!((plan.refusals.len(), told), (1000, 500), "400 offerings each, of 200,000");
}

/// All that is said of the only pod.
fn said(f: &Fixture) -> Vec<String> {
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let [refusal] = plan.refusals.as_slice() else { panic!("{} refusals", plan.refusals.len()) };
    refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect()
}

#[test]
fn what_a_pod_asks_against_itself_is_named() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("p").select(ZONE, "a").term(&[(ZONE, "In", &["b"])]).term(&[("disk", "In", &["x"]), ("disk", "In", &["y"])]);
    assert_eq!(
        said(&f),
        [
            "no node can satisfy it: nodeSelectorTerms[0] of its node affinity wants topology.kubernetes.io/zone In [b], its \
          nodeSelector topology.kubernetes.io/zone In [a]; nodeSelectorTerms[1] of its node affinity leaves no value of disk"
        ]
    );
}

#[test]
fn a_volume_where_the_pod_cannot_be_is_named() {
    let mut f = two_zones();
    f.pool("p");
    f.waiting_claim("data", "ebs.csi.example.com");
    let (names, volumes) = f.volumes();
    let allowed = Requirement::parse(ZONE, Operator::In, ["b"], names).unwrap();
    for class in volumes.classes.values_mut() {
        Arc::make_mut(class).allowed_topologies = vec![Requirements::from_requirements([allowed.clone()], names)];
    }
    f.pod("p").select(ZONE, "a").claim("data");
    assert_eq!(
        said(&f),
        [
            "no node can satisfy it: PersistentVolumeClaim default/data is only reached with topology.kubernetes.io/zone In \
          [b], the pod wants topology.kubernetes.io/zone In [a]"
        ]
    );
}

#[test]
fn a_label_that_a_rule_between_pods_goes_by_is_named_where_machines_lack_it() {
    let mut f = two_zones();
    f.pool("tainted").taint("team", "x");
    f.pool("open");
    f.pod("p").label("app", "x").spread("rack", 1, "x");
    let [tainted, open, remedies] = said(&f).try_into().unwrap();
    assert_eq!(tainted, "does not tolerate the taint team=x:NoSchedule");
    assert_eq!(
        open,
        "required topology spread over rack (maxSkew 1) needs the label rack, which its machines will not have; add it to the \
         NodePool's labels or requirements"
    );
    assert_eq!(
        remedies,
        "it would fit a new machine if nodepool/open had the label rack (if rules between pods let it in there), or if it tolerated \
         team=x:NoSchedule and if nodepool/tainted had the label rack (if rules between pods let it in there)"
    );
}

#[test]
fn the_name_of_a_node_is_no_label() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("p").node_named("gone");
    assert_eq!(
        said(&f),
        ["asks for a Node by its name (metadata.name In [gone]), and the name of a new machine is not known yet"]
    );
}

#[test]
fn a_resource_that_no_machine_has_is_not_called_small() {
    let mut f = two_zones();
    f.pool("p");
    f.pod("p").extended("example.com/gpu", 2);
    let [types, remedies] = said(&f).try_into().unwrap();
    assert_eq!(types, "none of 2 instance types fits: 2 too small (example.com/gpu 2 wanted, none has any)");
    assert_eq!(remedies, "it would fit a new machine without example.com/gpu (nodepool/p)");
}

#[test]
fn a_host_port_that_a_daemon_takes_everywhere_is_told_with_its_number() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 4, 8).offering("a", "on-demand", 20);
    f.pool("p");
    f.daemon_set("agent", 100, gib(0), &[]);
    f.daemon_port(9100);
    f.pod("web").requests(1000, gib(1)).port("0.0.0.0", 9100, Protocol::Tcp);
    check(
        &f,
        expect![[r#"
            refused web (DoesNotFit): nodepool/p: none of 2 instance types fits: 2 where a DaemonSet takes host port 9100/TCP; it would fit a new machine if it did not want host port 9100/TCP (nodepool/p, if rules between pods let it in there)
        "#]],
    );
}

#[test]
fn no_node_pool_is_asked_for_the_hostname_of_a_machine_to_come() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("p");
    f.pod("local").requests(1000, gib(1)).select(api::labels::HOSTNAME, "gone");
    check(
        &f,
        expect![[r#"
            refused local (DoesNotFit): nodepool/p: asks for a Node by its name (kubernetes.io/hostname In [gone]), and the name of a new machine is not known yet
        "#]],
    );
}

#[test]
fn pods_that_are_near_to_and_away_from_the_same_pods_are_refused_without_a_search() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.instance_type("large", 4, 8).offering("a", "on-demand", 20);
    f.pool("p");
    let hostname = api::labels::HOSTNAME;
    for index in 0..2 {
        f.pod(&format!("web-{index}"))
            .requests(100, gib(1))
            .label("app", "web")
            .near(hostname, "web")
            .away_from(hostname, "web");
    }
    for index in 0..6 {
        f.pod(&format!("other-{index}")).requests(100 * index, gib(1));
    }
    check(
        &f,
        expect![[r#"
            machine p-0: small/a/on-demand $0.00000001/h types [small, large] pods [other-2, other-3, other-4, other-5]
            machine p-1: small/a/on-demand $0.00000001/h types [small, large] pods [other-0, other-1, web-0]
            refused web-1 (DoesNotFit): nodepool/p: machines that would hold it are excluded by required pod affinity over kubernetes.io/hostname (pods with app In [web]); required pod anti-affinity over kubernetes.io/hostname (pods with app In [web])
        "#]],
    );
}

#[test]
fn a_spread_says_how_many_domains_it_wants_and_amounts_are_short() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 4).offering("a", "on-demand", 10);
    f.pool("p");
    for index in 0..2 {
        f.pod(&format!("web-{index}"))
            .requests(100, gib(1))
            .label("app", "web")
            .spread(api::labels::ZONE, 1, "web")
            .but(|it, _| it.min_domains = Some(3));
    }
    f.pod("large").requests(100, 974_858 << 20);
    check(
        &f,
        expect![[r#"
            machine p-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            refused large (DoesNotFit): nodepool/p: none of 1 instance types fits: 1 too small (memory 953Gi wanted, the largest has 4Gi beside daemons); it would fit a new machine with 949Gi less memory (nodepool/p)
            refused web-1 (DoesNotFit): nodepool/p: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1, minDomains 3)
        "#]],
    );
}

/// Karpenter's own chart keeps its pods off its machines so.
#[test]
fn a_pod_that_opts_out_of_node_pools_is_left_to_other_nodes_and_put_on_them_where_there_is_room() {
    const NODEPOOL: &str = api::labels::NODEPOOL;
    let mut f = two_zones();
    f.pool("p");
    f.node("other").allocatable(1000, gib(4));
    f.pod("fits").requests(800, gib(1)).term(&[(NODEPOOL, "DoesNotExist", &[])]);
    f.pod("left").requests(900, gib(1)).term(&[(NODEPOOL, "DoesNotExist", &[])]);
    f.pod("zz-either").requests(700, gib(1)).term(&[(NODEPOOL, "DoesNotExist", &[])]).term(&[(ZONE, "In", &["a"])]);
    check(
        &f,
        expect![[r#"
            machine p-0: small/a/on-demand $0.00000001/h types [small] pods [zz-either]
            node other: [left]
            refused fits (OptedOut): none of 1 existing nodes fits: 1 has too little room (cpu 800m wanted, the most free is 100m of 1); it wants no machine of a NodePool (karpenter.sh/nodepool DoesNotExist)
        "#]],
    );
}

/// Only some pods of a shape wait: whose claim a quota forbids.
#[test]
fn a_pod_that_waits_for_something_else_is_told_apart_from_others_of_its_shape() {
    let mut f = two_zones();
    f.pool("p");
    for name in ["first", "second", "third"] {
        f.pod(name).requests(1000, gib(1));
    }
    f.waits("second", "a quota forbids its claim");
    check(
        &f,
        expect![[r#"
            machine p-0: small/a/on-demand $0.00000001/h types [small, large] pods [first, third]
            refused second (Waits): a quota forbids its claim
        "#]],
    );
}
