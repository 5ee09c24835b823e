//! Rules that couple pods, one claim a test. What kube-scheduler's plugins say decides.

use std::sync::Arc;

use expect_test::expect;
use model::{
    Interner, NamespacedName, Operator, Requirement, Requirements,
    pod::{NodeInclusionPolicy, NodeSelectorTerm, Protocol, SpreadSource},
    volume::{AccessMode, ClaimPhase, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBindingMode},
};

use super::{
    check,
    fixture::{Fixture, gib},
};

const ZONE: &str = api::labels::ZONE;
const HOST: &str = api::labels::HOSTNAME;

/// One size in three zones, `a` the cheapest.
fn three_zones() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 10).offering("b", "on-demand", 11).offering(
        "c",
        "on-demand",
        12,
    );
    f.pool("default");
    f
}

#[test]
fn pods_with_one_host_port_share_no_machine_and_other_addresses_and_protocols_do_not_conflict() {
    let mut f = three_zones();
    f.pod("a").requests(100, gib(1)).port("0.0.0.0", 80, Protocol::Tcp);
    f.pod("b").requests(100, gib(1)).port("10.0.0.1", 80, Protocol::Tcp);
    f.pod("c").requests(100, gib(1)).port("10.0.0.2", 80, Protocol::Tcp);
    f.pod("d").requests(100, gib(1)).port("0.0.0.0", 80, Protocol::Udp);
    f.pod("e").requests(100, gib(1)).port("0.0.0.0", 81, Protocol::Tcp);
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [a, d, e]
        machine default-1: small/a/on-demand $0.00000001/h types [small] pods [b, c]
    "#]],
    );
}

#[test]
fn ports_of_running_pods_and_of_daemons_to_come_are_taken() {
    let mut f = three_zones();
    f.daemon_set("agent", 0, 0, &[(ZONE, "a")]);
    f.daemon_port(80);
    f.node("old").allocatable(4000, gib(8));
    f.pod("web").port("0.0.0.0", 80, Protocol::Tcp).runs();
    f.node("soon").allocatable(4000, gib(8)).label(ZONE, "a");
    f.pod("p").requests(100, gib(1)).port("0.0.0.0", 80, Protocol::Tcp);
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [p]
    "#]],
    );
}

#[test]
fn pods_are_spread_over_zones_by_counts_and_the_odd_one_goes_where_it_is_cheapest() {
    let mut f = three_zones();
    for i in 0..7 {
        f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0, web-1, web-2]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-3, web-4]
        machine default-2: small/c/on-demand $0.000000012/h types [small] pods [web-5, web-6]
    "#]],
    );
}

#[test]
fn a_spread_that_is_the_clusters_default_is_kept_like_any_and_refusals_say_whose_it_is() {
    let mut f = three_zones();
    f.require(ZONE, "In", &["a", "b"]);
    f.node("full").allocatable(0, gib(8)).label(ZONE, "c");
    for i in 0..3 {
        f.pod(&format!("web-{i}"))
            .requests(1000, gib(1))
            .label("app", "web")
            .spread(ZONE, 1, "web")
            .but(|spread, _| spread.source = SpreadSource::ClusterDefault);
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-1]
            refused web-2 (DoesNotFit): none of 1 existing nodes fits: 1 has too little room (cpu 1 wanted, the most free is 0 of 0); nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1, the cluster's default)
        "#]],
    );
}

#[test]
fn a_domains_share_goes_to_its_nodes_before_a_machine_is_bought_for_it() {
    let mut f = three_zones();
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "c");
    for i in 0..8 {
        f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-3, web-4, web-5]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-6, web-7]
        node old: [web-0, web-1, web-2]
    "#]],
    );
}

#[test]
fn running_pods_count_for_a_spread_but_not_those_that_are_going_or_of_another_namespace() {
    let mut f = three_zones();
    f.node("old").allocatable(500, gib(8)).label(ZONE, "a");
    f.pod("web-0").label("app", "web").runs();
    f.pod("web-1").label("app", "web").runs();
    f.pod("db-0").label("app", "db").runs();
    f.pod("web-9").label("app", "web").going().runs();
    f.pod("web-8").label("app", "web").in_namespace("other").runs();
    for i in 2..5 {
        f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [web-2, web-3]
        machine default-1: small/c/on-demand $0.000000012/h types [small] pods [web-4]
    "#]],
    );
}

#[test]
fn with_fewer_domains_than_min_domains_no_domain_gets_more_than_the_skew() {
    let mut f = three_zones();
    for i in 0..4 {
        let pod = f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
        pod.but(|spread, _| spread.min_domains = Some(4));
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-1]
            machine default-2: small/c/on-demand $0.000000012/h types [small] pods [web-2]
            refused web-3 (DoesNotFit): nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1, minDomains 4)
        "#]],
    );
}

#[test]
fn zones_that_the_node_affinity_excludes_do_not_count_unless_the_policy_ignores_it() {
    let build = |policy: NodeInclusionPolicy| {
        let mut f = three_zones();
        f.node("far").allocatable(0, 0).label(ZONE, "c");
        for i in 0..4 {
            let pod = f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
            pod.but(|spread, _| spread.node_affinity_policy = policy).term(&[(ZONE, "In", &["a", "b"])]);
        }
        f
    };
    check(
        &build(NodeInclusionPolicy::Honor),
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0, web-1]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-2, web-3]
    "#]],
    );
    check(
        &build(NodeInclusionPolicy::Ignore),
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-1]
            refused web-2 (DoesNotFit): none of 1 existing nodes fits: 1 does not match its node selector or affinity; nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1)
            refused web-3 (DoesNotFit): none of 1 existing nodes fits: 1 does not match its node selector or affinity; nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1)
        "#]],
    );
}

#[test]
fn nodes_whose_taints_are_not_tolerated_are_domains_unless_the_policy_honours_taints() {
    let build = |policy: NodeInclusionPolicy| {
        let mut f = Fixture::new();
        f.instance_type("small", 4, 8).offering("a", "on-demand", 10);
        f.pool("default");
        f.node("far").allocatable(0, 0).label(ZONE, "b").taint("team", "x");
        for i in 0..2 {
            let pod = f.pod(&format!("web-{i}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
            pod.but(|spread, _| spread.node_taints_policy = policy);
        }
        f
    };
    check(
        &build(NodeInclusionPolicy::Ignore),
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            refused web-1 (DoesNotFit): none of 1 existing nodes fits: 1 has a taint it does not tolerate; nodepool/default: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1)
        "#]],
    );
    check(
        &build(NodeInclusionPolicy::Honor),
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-0, web-1]
    "#]],
    );
}

#[test]
fn match_label_keys_spread_each_revision_by_itself() {
    let mut f = three_zones();
    for (revision, zone) in [("1", "a"), ("2", "a"), ("2", "b")] {
        let name = format!("web-{revision}-{zone}");
        let pod = f.pod(&name).requests(1000, gib(1)).label("app", "web").label("rev", revision);
        pod.spread(ZONE, 1, "web").but(|spread, names| spread.match_label_keys.push(names.key("rev")));
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [web-1-a, web-2-a]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [web-2-b]
    "#]],
    );
}

#[test]
fn several_constraints_hold_at_once() {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8)
        .offering("a", "on-demand", 10)
        .offering("a", "spot", 3)
        .offering("b", "on-demand", 10)
        .offering("b", "spot", 3);
    f.pool("default");
    for i in 0..6 {
        f.pod(&format!("web-{i}"))
            .requests(500, gib(1))
            .label("app", "web")
            .spread(ZONE, 1, "web")
            .spread(api::labels::CAPACITY_TYPE, 1, "web")
            .spread(HOST, 2, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/spot $0.000000003/h types [small] pods [web-0, web-3]
        machine default-1: small/b/on-demand $0.00000001/h types [small] pods [web-1, web-2]
        machine default-2: small/a/spot $0.000000003/h types [small] pods [web-4]
        machine default-3: small/b/on-demand $0.00000001/h types [small] pods [web-5]
    "#]],
    );
}

#[test]
fn a_spread_over_a_label_that_no_machine_has_is_refused_with_the_rule() {
    let mut f = three_zones();
    f.pod("p").requests(1000, gib(1)).label("app", "web").spread("rack", 1, "web");
    check(
        &f,
        expect![[r#"
            refused p (DoesNotFit): nodepool/default: required topology spread over rack (maxSkew 1) needs the label rack, which its machines will not have; add it to the NodePool's labels or requirements
        "#]],
    );
}

#[test]
fn a_label_that_the_pool_leaves_open_is_given_to_machines_as_the_spread_asks() {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 10);
    f.pool("default").require("rack", "In", &["r1", "r2"]);
    for i in 0..4 {
        f.pod(&format!("web-{i}")).requests(500, gib(1)).label("app", "web").spread("rack", 1, "web");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] labels [rack=r1] pods [web-0, web-1]
        machine default-1: small/a/on-demand $0.00000001/h types [small] labels [rack=r2] pods [web-2, web-3]
    "#]],
    );
}

#[test]
fn anti_affinity_to_oneself_takes_a_host_each() {
    let mut f = three_zones();
    f.node("old").allocatable(4000, gib(8));
    for i in 0..3 {
        f.pod(&format!("db-{i}")).requests(100, gib(1)).label("app", "db").away_from(HOST, "db");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [db-1]
        machine default-1: small/a/on-demand $0.00000001/h types [small] pods [db-2]
        node old: [db-0]
    "#]],
    );
}

#[test]
fn anti_affinity_of_running_and_planned_pods_keeps_others_away() {
    let mut f = three_zones();
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "a");
    f.pod("hermit").label("app", "hermit").away_from(ZONE, "web").runs();
    f.pod("loner").requests(3000, gib(1)).label("app", "loner").away_from(ZONE, "web");
    f.pod("web").requests(100, gib(1)).label("app", "web");
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [web]
        node old: [loner]
    "#]],
    );
}

#[test]
fn affinity_follows_running_pods_and_pods_of_the_same_plan() {
    let mut f = three_zones();
    f.node("old").allocatable(100, gib(8)).label(ZONE, "c");
    f.pod("db").label("app", "db").runs();
    f.pod("near-db").requests(3000, gib(1)).near(ZONE, "db");
    f.pod("big-client").requests(3500, gib(1)).near(ZONE, "cache");
    f.pod("cache").requests(500, gib(1)).label("app", "cache");
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [big-client, cache]
        machine default-1: small/c/on-demand $0.000000012/h types [small] pods [near-db]
    "#]],
    );
}

#[test]
fn the_first_of_pods_that_want_to_be_together_may_go_anywhere_and_the_others_follow() {
    let mut f = three_zones();
    f.node("tight").allocatable(500, gib(8)).label(ZONE, "b");
    for i in 0..6 {
        f.pod(&format!("ring-{i}")).requests(1000, gib(1)).label("app", "ring").near(ZONE, "ring");
    }
    for i in 0..3 {
        f.pod(&format!("pack-{i}")).requests(400, gib(1)).label("app", "pack").near(HOST, "pack");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [ring-0, ring-1, ring-2, ring-3]
        machine default-1: small/a/on-demand $0.00000001/h types [small] pods [pack-0, pack-1, pack-2, ring-4, ring-5]
    "#]],
    );
}

#[test]
fn pods_that_share_a_host_get_one_with_room_for_all_though_a_larger_size_is_cheaper_for_the_first() {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 11);
    f.instance_type("large", 8, 16).offering("a", "on-demand", 20);
    f.pool("default");
    // In a large plan nothing is searched for.
    f.search_steps(0);
    f.pod("other").requests(3000, gib(1)).priority(10);
    for i in 0..3 {
        f.pod(&format!("near-{i}")).requests(2000, gib(1)).label("app", "near").near(HOST, "near");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.000000011/h types [small, large] pods [other]
            machine default-1: large/a/on-demand $0.00000002/h types [large] pods [near-0, near-1, near-2]
        "#]],
    );
}

#[test]
fn affinity_to_pods_that_are_nowhere_is_refused_with_the_rule() {
    let mut f = three_zones();
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "c");
    f.pod("p").requests(1000, gib(1)).near(ZONE, "nobody");
    check(
        &f,
        expect![[r#"
            refused p (DoesNotFit): none of 1 existing nodes fits: 1 is excluded by rules between pods; nodes that would hold it are excluded by required pod affinity over topology.kubernetes.io/zone (pods with app In [nobody]); nodepool/default: machines that would hold it are excluded by required pod affinity over topology.kubernetes.io/zone (pods with app In [nobody])
        "#]],
    );
}

#[test]
fn a_machine_of_another_class_that_opens_a_zone_makes_the_plan_begin_anew() {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 10).offering("b", "on-demand", 10);
    f.pool("plain").require(ZONE, "In", &["a"]);
    f.pool("tainted").taint("team", "x").require(ZONE, "In", &["b"]);
    for i in 0..3 {
        f.pod(&format!("web-{i}")).requests(500, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    f.pod("other").requests(100, gib(1)).tolerate("team", "x").select(ZONE, "b");
    check(
        &f,
        expect![[r#"
            machine tainted-0: small/b/on-demand $0.00000001/h types [small] pods [other]
            machine plain-0: small/a/on-demand $0.00000001/h types [small] pods [web-0]
            refused web-1 (DoesNotFit): nodepool/tainted: does not tolerate the taint team=x:NoSchedule; nodepool/plain: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1); every machine is excluded by taints or rules between pods; it would fit one if it tolerated team=x:NoSchedule (nodepool/tainted, if rules between pods let it in there)
            refused web-2 (DoesNotFit): nodepool/tainted: does not tolerate the taint team=x:NoSchedule; nodepool/plain: machines that would hold it are excluded by required topology spread over topology.kubernetes.io/zone (maxSkew 1); every machine is excluded by taints or rules between pods; it would fit one if it tolerated team=x:NoSchedule (nodepool/tainted, if rules between pods let it in there)
        "#]],
    );
}

/// A claim of the class that waits for its first pod, changed as the test needs.
fn with_claim(f: &mut Fixture, name: &str, change: impl FnOnce(&mut PersistentVolumeClaim)) {
    f.waiting_claim(name, "disk.example.com");
    let (_, volumes) = f.volumes();
    let claim = volumes.claims.get_mut(&NamespacedName::new("default", name)).unwrap();
    change(Arc::make_mut(claim));
}

#[test]
fn a_pod_follows_the_node_affinity_of_its_bound_volume() {
    let mut f = three_zones();
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "a");
    with_claim(&mut f, "data", |claim| (claim.volume_name, claim.bind_completed) = (Some("pv".into()), true));
    let (names, volumes) = f.volumes();
    let term = |zone: &str, names: &mut Interner| NodeSelectorTerm {
        expressions: Requirements::from_requirements(
            [Requirement::parse(ZONE, Operator::In, [zone], names).unwrap()],
            &names.clone(),
        ),
        ..NodeSelectorTerm::default()
    };
    let volume = PersistentVolume {
        name: "pv".into(),
        node_affinity: vec![term("elsewhere", names), term("c", names)],
        csi_driver: None,
        csi_volume_handle: None,
        storage_class: None,
        claim: None,
    };
    volumes.volumes.insert("pv".into(), Arc::new(volume));
    f.pod("p").requests(1000, gib(1)).claim("data");
    f.pod("lost").requests(1000, gib(1)).claim("data").select(ZONE, "b");
    check(
        &f,
        expect![[r#"
            machine default-0: small/c/on-demand $0.000000012/h types [small] pods [p]
            refused lost (DoesNotFit): no node can satisfy it: PersistentVolumeClaim default/data is only reached with topology.kubernetes.io/zone In [elsewhere], the pod wants topology.kubernetes.io/zone In [b]; PersistentVolumeClaim default/data is only reached with topology.kubernetes.io/zone In [c], the pod wants topology.kubernetes.io/zone In [b]
        "#]],
    );
}

#[test]
fn a_claim_that_waits_goes_where_its_class_may_make_volumes_and_its_pods_stay_together() {
    let mut f = three_zones();
    with_claim(&mut f, "data", |_| {});
    let (names, volumes) = f.volumes();
    let allowed = Requirement::parse(ZONE, Operator::In, ["b", "c"], names).unwrap();
    for class in volumes.classes.values_mut() {
        Arc::make_mut(class).allowed_topologies = vec![Requirements::from_requirements([allowed.clone()], names)];
    }
    for i in 0..6 {
        f.pod(&format!("p{i}")).requests(1000, gib(1)).claim("data");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/b/on-demand $0.000000011/h types [small] pods [p0, p1, p2, p3]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [p4, p5]
    "#]],
    );
}

#[test]
fn a_read_write_once_pod_claim_serves_one_pod() {
    let mut f = three_zones();
    with_claim(&mut f, "free", |claim| claim.access_modes = vec![AccessMode::ReadWriteOncePod]);
    with_claim(&mut f, "used", |claim| claim.access_modes = vec![AccessMode::ReadWriteOncePod]);
    f.node("old").allocatable(4000, gib(8)).label(ZONE, "a");
    f.pod("user").claim("used").runs();
    f.pod("p1").requests(1000, gib(1)).claim("free");
    f.pod("p2").requests(1000, gib(1)).claim("free");
    f.pod("p3").requests(1000, gib(1)).claim("used");
    check(
        &f,
        expect![[r#"
            node old: [p1]
            refused p2 (DoesNotFit): none of 1 existing nodes fits: 1 is excluded by rules between pods; nodes that would hold it are excluded by PersistentVolumeClaim default/free with access mode ReadWriteOncePod; nodepool/default: machines that would hold it are excluded by PersistentVolumeClaim default/free with access mode ReadWriteOncePod; PersistentVolumeClaim default/free, whose pods must be in one topology.kubernetes.io/zone,
            refused p3 (DoesNotFit): none of 1 existing nodes fits: 1 is excluded by rules between pods; nodes that would hold it are excluded by PersistentVolumeClaim default/used with access mode ReadWriteOncePod; nodepool/default: machines that would hold it are excluded by PersistentVolumeClaim default/used with access mode ReadWriteOncePod
        "#]],
    );
}

#[test]
fn claims_whose_place_nobody_can_tell_are_refused_by_name() {
    let mut f = three_zones();
    with_claim(&mut f, "at-once", |claim| claim.storage_class = Some("immediate".into()));
    with_claim(&mut f, "by-hand", |claim| claim.storage_class = Some("local".into()));
    with_claim(&mut f, "lost", |claim| claim.phase = ClaimPhase::Lost);
    let (_, volumes) = f.volumes();
    let standard = (**volumes.classes.get("standard").unwrap()).clone();
    let immediate = StorageClass {
        name: "immediate".into(),
        binding_mode: VolumeBindingMode::Immediate,
        is_default: false,
        ..standard.clone()
    };
    let local = StorageClass {
        name: "local".into(),
        provisioner: "kubernetes.io/no-provisioner".into(),
        is_default: false,
        ..standard
    };
    volumes.classes.insert("immediate".into(), Arc::new(immediate));
    volumes.classes.insert("local".into(), Arc::new(local));
    for claim in ["at-once", "by-hand", "lost", "missing"] {
        f.pod(claim).requests(100, gib(1)).claim(claim);
    }
    check(
        &f,
        expect![[r#"
            refused at-once (Waits): PersistentVolumeClaim default/at-once is not bound yet, and its StorageClass immediate binds it without a pod (volumeBindingMode Immediate)
            refused by-hand (Unsupported): PersistentVolumeClaim default/by-hand of StorageClass local, which only binds volumes that exist, is not planned for yet
            refused lost (Waits): PersistentVolumeClaim default/lost has lost its volume
            refused missing (Waits): PersistentVolumeClaim default/missing does not exist
        "#]],
    );
}

/// Oldest first, all pods of one zone would come before those of the other, and the skew would refuse them.
#[test]
fn pods_stay_where_they_were_planned_in_whatever_order_they_come() {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("za", "on-demand", 10).offering("zb", "on-demand", 10);
    f.pool("p");
    for zone in ["za", "zb"] {
        f.node(zone).allocatable(4000, gib(16)).label(ZONE, zone).claim(&format!("claim-{zone}"));
    }
    for index in 0..6 {
        let claim = if index < 3 { "claim-za" } else { "claim-zb" };
        f.pod(&format!("p{index}")).requests(1000, gib(1)).label("app", "web").spread(ZONE, 1, "web").planned_on(claim);
    }
    let snapshot = f.snapshot();
    let found = crate::provisioning::plan(&snapshot);
    let mut placed = Vec::new();
    for placement in &found.existing {
        let node = snapshot.nodes[placement.node].display_name();
        placed.extend(placement.pods.iter().map(|&pod| format!("{} on {node}", snapshot.pods[pod].pod.name.name)));
    }
    let expected = ["p0 on za", "p1 on za", "p2 on za", "p3 on zb", "p4 on zb", "p5 on zb"];
    assert_eq!(placed, expected);
}

/// Those that have no spread of their own may be bound first, and the zone would be closed to those that have one.
#[test]
fn a_spread_is_planned_with_the_pods_that_it_counts_whichever_are_bound_first() {
    let mut f = three_zones();
    for index in 0..4 {
        f.pod(&format!("spread-{index}")).requests(2000, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    for index in 0..6 {
        f.pod(&format!("counted-{index}")).requests(500, gib(1)).label("app", "web").select(ZONE, "a");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: small/a/on-demand $0.00000001/h types [small] pods [counted-0, counted-1, counted-2, counted-3, counted-4, counted-5]
        machine default-1: small/b/on-demand $0.000000011/h types [small] pods [spread-0, spread-1]
        machine default-2: small/c/on-demand $0.000000012/h types [small] pods [spread-2, spread-3]
    "#]],
    );
}

/// Its zone is not decided, so nobody knows in which domain they will be counted; but only their own rules can keep
/// them out.
#[test]
fn pods_that_others_count_stay_planned_on_a_machine_whose_domain_is_not_known_yet() {
    let mut f = three_zones();
    f.in_flight("coming", "small", 4000);
    f.pod("spread").requests(500, gib(1)).label("app", "web").select("nowhere", "x").spread(ZONE, 1, "web");
    for index in 0..2 {
        f.pod(&format!("counted-{index}")).requests(500, gib(1)).label("app", "web").planned_on("coming");
    }
    check(
        &f,
        expect![[r#"
            node coming: [counted-0, counted-1]
            refused spread (DoesNotFit): none of 1 existing nodes fits: 1 does not match its node selector or affinity; nodepool/default: wants nowhere In [x], but its machines will not have that label; add it to the NodePool's labels or requirements
        "#]],
    );
}

/// Here those that are counted keep a spread of their own, and want to be near to each other and to the
/// others.
#[test]
fn pods_that_want_to_be_near_to_those_of_a_spread_come_after_them_although_it_counts_them() {
    let mut f = three_zones();
    for index in 0..3 {
        let pod = f.pod(&format!("high-{index}")).priority(10).requests(1000, gib(1)).label("app", "web");
        pod.spread(ZONE, 1, "web");
    }
    for index in 0..6 {
        let pod = f.pod(&format!("low-{index}")).requests(500, gib(1)).label("app", "web").select(ZONE, "a");
        pod.spread(HOST, 3, "web").near(ZONE, "web");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: small/a/on-demand $0.00000001/h types [small] pods [high-0, low-0, low-1]
            machine default-1: small/b/on-demand $0.000000011/h types [small] pods [high-1]
            machine default-2: small/c/on-demand $0.000000012/h types [small] pods [high-2]
            machine default-3: small/a/on-demand $0.00000001/h types [small] pods [low-2, low-3, low-4]
            machine default-4: small/a/on-demand $0.00000001/h types [small] pods [low-5]
            then [low-1, low-2, low-3, low-4, low-5]
        "#]],
    );
}

/// kube-scheduler counts no node that a spread pod's own selector excludes, and a NodeClaim says where its machine will
/// be, or may be. With a domain too many the least would be 0, and pods that are planned for a machine in another zone
/// would be refused.
#[test]
fn a_machine_on_its_way_in_a_zone_that_pods_exclude_is_no_domain_of_theirs() {
    for zones in [&["b"][..], &["c"], &["b", "c"]] {
        let mut f = Fixture::new();
        f.instance_type("small", 4, 8).offering("b", "on-demand", 10).offering("c", "on-demand", 10);
        f.pool("default");
        f.node("here").label(ZONE, "b").allocatable(4000, 1 << 40);
        f.in_flight("coming", "small", 4000);
        f.promised_any(ZONE, zones);
        for index in 0..4 {
            let pod = f.pod(&format!("pod-{index}")).requests(500, gib(1)).label("app", "a");
            pod.select(ZONE, "b").spread(ZONE, 1, "a");
        }
        let snapshot = f.snapshot();
        let plan = super::plan(&snapshot);
        assert!(plan.refusals.is_empty(), "{zones:?}: {}", super::fixture::render(&plan, &snapshot));
    }
}

/// As above, by a label of a NodePool that machines of others will not have: neither their NodeClaims nor their types
/// name it.
#[test]
fn a_machine_on_its_way_from_a_pool_without_a_label_that_pods_select_is_no_domain_of_theirs() {
    let mut f = three_zones();
    f.pool("blue");
    f.label("team", "blue");
    f.in_flight("other", "small", 4000);
    f.promised(ZONE, "c");
    for zone in ["a", "b"] {
        f.in_flight(zone, "small", 4000);
        f.promised(ZONE, zone);
        f.promised("team", "blue");
    }
    for index in 0..6 {
        let pod = f.pod(&format!("pod-{index}")).requests(500, gib(1)).label("app", "a").select("team", "blue");
        pod.spread(ZONE, 1, "a").planned_on(if index < 3 { "a" } else { "b" });
    }
    check(
        &f,
        expect![[r#"
            node a: [pod-0, pod-1, pod-2]
            node b: [pod-3, pod-4, pod-5]
        "#]],
    );
}
