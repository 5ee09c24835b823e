//! Devices that a zone has, published ones and those that machines bring for it.

use std::collections::BTreeMap;

use expect_test::expect;
use proptest::prelude::*;
use serde_json::json;

use dra_sched::PoolScope::{Domain, Machine};

use super::{GPU, NET};
use crate::{
    plan::Verdict,
    provisioning::{
        plan,
        tests::{
            check,
            fixture::{Fixture, exactly, gib},
        },
    },
};

const ZONE: &str = api::labels::ZONE;

#[test]
fn a_device_that_one_zone_has_pins_the_machine_to_it_whatever_the_price() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 30);
    f.slice_for("net-b", NET, (ZONE, "b"), 1);
    f.pool("default");
    f.claim_template("net", &json!({"requests": [exactly("r", NET, 1)]}));
    f.pod("networked").requests(1000, gib(1)).claims_from("net");
    f.pod("second").requests(1000, gib(1)).claims_from("net");
    check(
        &f,
        expect![[r#"
            machine default-0: plain/b/on-demand $0.00000003/h types [plain] devices [1 net.example.com] pods [networked]
            refused second (DoesNotFit): nodepool/default: none of 1 instance types fits: 1 without the devices it claims (in topology.kubernetes.io/zone=a: claim net, request r: 0 of 0 devices are usable, 1 wanted; or in topology.kubernetes.io/zone=b: claim net, request r: 0 of 1 devices are usable, 1 wanted; 1 is allocated); needs net.example.com (claim net, request r); none of 1 instance types has a template for it; a NodeOverlay can say what its driver will publish
        "#]],
    );
}

#[test]
fn of_zones_that_have_the_device_the_cheaper_one_is_taken() {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16);
    for (zone, price) in [("a", 50), ("b", 40), ("c", 20)] {
        f.offering(zone, "on-demand", price);
    }
    f.slice_for("net-a", NET, (ZONE, "a"), 3).slice_for("net-b", NET, (ZONE, "b"), 3);
    f.pool("default");
    f.claim_template("net", &json!({"requests": [exactly("r", NET, 1)]}));
    f.pod("networked").requests(1000, gib(1)).claims_from("net");
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.00000004/h types [plain] devices [1 net.example.com] pods [networked]
    "#]],
    );
}

#[test]
fn a_zones_device_that_a_machines_own_may_come_behind_by_name_is_not_counted_on() {
    // The scheduler goes by names of pools, and the machine's has none yet: its pod may take the zone's device.
    let mut f = Fixture::new();
    f.device_class(GPU, None);
    f.instance_type("gpu", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 20);
    f.devices(GPU, &json!([{"name": "own"}]), &[]);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 1);
    f.slice_for("gpu-a", GPU, (ZONE, "a"), 1);
    f.pool("default");
    f.claim_template("any", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.pod("local").requests(3000, gib(1)).claims_from("any").select(api::labels::INSTANCE_TYPE, "gpu");
    f.pod("zonal").requests(3000, gib(1)).claims_from("any").select(api::labels::INSTANCE_TYPE, "plain");
    let snapshot = f.snapshot();
    let made = plan(&snapshot);
    assert!(made.refusals.is_empty());
    let zones = made.machines.iter().map(|machine| &*snapshot.interner.value_arc(machine.launch.zone) == "a");
    assert_eq!(zones.filter(|is_a| *is_a).count(), 1, "one in each zone");
}

/// A dear type that brings two links for its zone, and a cheap one without; zone b is cheaper.
fn links(scope: dra_sched::PoolScope, count: usize) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None);
    f.instance_type("plain", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 9);
    f.instance_type("router", 4, 16).offering("a", "on-demand", 100).offering("b", "on-demand", 90);
    f.devices_for_nodes(NET, count, scope, &[ZONE]);
    f.claim_template("link", &json!({"requests": [exactly("r", NET, 1)]}));
    f.claim_template("all", &json!({"requests": [exactly("r", NET, count)]}));
    f.pool("default");
    f
}

#[test]
fn a_pool_that_each_machine_brings_for_its_zone_serves_cheaper_machines_there() {
    let mut f = links(Machine, 3);
    for index in 0..4 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-0]
            machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
            machine default-2: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-2]
            machine default-3: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-3]
        "#]],
    );
}

#[test]
fn a_machine_that_nobody_else_needs_stays_free_to_land_anywhere() {
    let mut f = links(Machine, 3);
    f.pod("a").requests(3000, gib(1)).claims_from("link");
    f.pod("web").requests(3000, gib(1));
    check(
        &f,
        expect![[r#"
        machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] pods [web]
    "#]],
    );
}

#[test]
fn where_claims_take_more_of_more_it_is_decided_where_machines_bring_it() {
    // Were the first machine free to land beside the second, its pods could find their links taken by the other's
    // claim.
    for (elastic, decided) in [(false, false), (true, true)] {
        let mut f = links(Machine, 3);
        let count = |name: &str, count: usize| json!({"name": name, "deviceClassName": NET, "count": count});
        let request = match elastic {
            true => json!({"name": "r", "firstAvailable": [count("four", 4), count("two", 2)]}),
            false => exactly("r", NET, 2),
        };
        f.claim_template("some", &json!({"requests": [request]}));
        f.pod("a").requests(3000, gib(1)).claims_from("all");
        f.pod("b").requests(2000, gib(1)).claims_from("some").select(ZONE, "a");
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        assert_eq!((made.machines.len(), made.refusals.len()), (2, 0));
        let zone = snapshot.interner.find_key(ZONE).unwrap();
        let is_decided = |machine: &crate::plan::Machine| {
            machine.requirements.get(zone).is_some_and(|zones| zones.values.single_value().is_some())
        };
        assert_eq!(made.machines.iter().all(is_decided), decided);
        let in_a = |machine: &&crate::plan::Machine| &*snapshot.interner.value_arc(machine.launch.zone) == "a";
        assert_eq!(made.machines.iter().filter(in_a).count(), 1);
    }
}

#[test]
fn claims_that_take_what_anothers_machine_brings_leave_it_as_much_as_it_has_to_serve() {
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("both", 4, 16).offering("a", "on-demand", 10);
    f.plain_devices(GPU, 2);
    f.devices_for_nodes(NET, 2, Machine, &[ZONE]);
    f.pool("default");
    let alternatives = [("links", NET, 2), ("gpu", GPU, 1)];
    let alternatives =
        alternatives.map(|(name, class, count)| json!({"name": name, "deviceClassName": class, "count": count}));
    f.claim_template("some", &json!({"requests": [{"name": "r", "firstAvailable": alternatives}]}));
    for index in 0..6 {
        f.pod(&format!("a-{index}")).requests(100, gib(1)).claims_from("some");
    }
    // Three on each of two machines would do if one took the links of each; but two on one could take all.
    check(
        &f,
        expect![[r#"
        machine default-0: both/a/on-demand $0.00000001/h types [both] devices [2 gpu.example.com, 2 net.example.com] pods [a-0, a-1, a-2]
        machine default-1: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-3]
        machine default-2: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-4]
        machine default-3: both/a/on-demand $0.00000001/h types [both] devices [2 net.example.com] pods [a-5]
    "#]],
    );
}

/// One GPU to a router, whose one link is for its zone, and one link for all; each large pod wants two links.
fn few_links(large: usize, small: usize) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("plain", 2, 16).offering("a", "on-demand", 10);
    f.instance_type("router", 2, 16).offering("a", "on-demand", 30);
    f.plain_devices(GPU, 1).devices_for_nodes(NET, 1, Machine, &[ZONE]);
    f.pool("default");
    f.slice("everywhere", NET, ("allNodes", true.into()), 1);
    f.claim_template("gpu", &json!({"requests": [exactly("r", GPU, 1)]}));
    f.claim_template("links", &json!({"requests": [exactly("r", NET, 2)]}));
    for index in 0..large {
        f.pod(&format!("large-{index}")).requests(1700, gib(1)).claims_from("links");
    }
    for index in 0..small {
        f.pod(&format!("small-{index}")).requests(900, gib(1)).claims_from("gpu");
    }
    f
}

#[test]
fn room_is_searched_with_the_links_that_machines_of_later_pods_bring() {
    // Five routers and the link for all are six links: no large pod can do with a machine that brings none.
    check(
        &few_links(3, 2),
        expect![[r#"
        machine default-0: router/a/on-demand $0.00000003/h types [router] devices [1 gpu.example.com] pods [small-0]
        machine default-1: router/a/on-demand $0.00000003/h types [router] devices [1 gpu.example.com] pods [small-1]
        machine default-2: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-0]
        machine default-3: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-1]
        machine default-4: router/a/on-demand $0.00000003/h types [router] devices [2 net.example.com] pods [large-2]
    "#]],
    );
}

#[test]
fn where_machines_of_others_may_bring_devices_only_counting_proves_that_there_are_none() {
    for (large, small, expected) in [(1, 0, vec![]), (3, 1, vec![Verdict::OutOfBudget])] {
        let made = plan(&few_links(large, small).snapshot());
        assert_eq!(made.refusals.iter().map(|refusal| refusal.verdict).collect::<Vec<_>>(), expected);
    }
    // One pod has nobody beside it, and what does not fit for another reason is told so.
    let mut alone = few_links(0, 0);
    alone.claim_template("more", &json!({"requests": [exactly("r", NET, 3)]}));
    alone.pod("a").requests(1000, gib(1)).claims_from("more");
    let mut too_large = few_links(1, 1);
    too_large.pod("b").requests(5000, gib(1)).claims_from("links");
    for f in [alone, too_large] {
        let made = plan(&f.snapshot());
        assert_eq!(made.refusals.iter().map(|refusal| refusal.verdict).collect::<Vec<_>>(), [Verdict::DoesNotFit]);
    }
}

#[test]
fn a_zones_devices_are_left_to_those_who_cannot_be_elsewhere() {
    // The large pods come first, and b is cheaper. In which order they come decides who has links and who a GPU.
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("router", 4, 16).offering("a", "on-demand", 100).offering("b", "on-demand", 90);
    f.plain_devices(GPU, 2).devices_for_nodes(NET, 4, Domain, &[ZONE]);
    f.pool("default");
    let of = |name: &str, class: &str, count: u32| json!({"name": name, "deviceClassName": class, "count": count});
    let either = [of("links", NET, 2), of("other", GPU, 1)];
    f.claim_template("either", &json!({"requests": [{"name": "r", "firstAvailable": either}]}));
    f.claim_template("link", &json!({"requests": [exactly("r", NET, 1)]}));
    for index in 0..4 {
        f.pod(&format!("anywhere-{index}")).requests(1500, gib(1)).claims_from("either");
        f.pod(&format!("in-b-{index}")).requests(900, gib(1)).claims_from("link").select(ZONE, "b");
    }
    f.claim_template("both", &json!({"requests": [exactly("r", GPU, 2)]}));
    for index in 0..3 {
        f.pod(&format!("gpus-{index}")).requests(1500, gib(1)).claims_from("both");
    }
    check(
        &f,
        expect![[r#"
            machine default-0: router/b/on-demand $0.00000009/h types [router] devices [4 net.example.com] pods [in-b-0, in-b-1, in-b-2, in-b-3]
            machine default-1: router/a/on-demand $0.0000001/h types [router] devices [4 net.example.com] pods [anywhere-0, anywhere-1]
            machine default-2: router/a/on-demand $0.0000001/h types [router] devices [2 gpu.example.com] pods [anywhere-2, anywhere-3]
            machine default-3: router/b/on-demand $0.00000009/h types [router] devices [2 gpu.example.com] pods [gpus-0]
            machine default-4: router/b/on-demand $0.00000009/h types [router] devices [2 gpu.example.com] pods [gpus-1]
            machine default-5: router/b/on-demand $0.00000009/h types [router] devices [2 gpu.example.com] pods [gpus-2]
        "#]],
    );
}

#[test]
fn a_zone_has_one_pool_of_its_own_however_many_machines_bring_it() {
    let mut f = links(Domain, 2);
    for index in 0..4 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    f.pod("b").requests(3000, gib(1)).claims_from("all").select(ZONE, "b");
    check(
        &f,
        expect![[r#"
            machine default-0: router/b/on-demand $0.00000009/h types [router] devices [1 net.example.com] pods [a-0]
            machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
            machine default-2: router/a/on-demand $0.0000001/h types [router] devices [1 net.example.com] pods [a-2]
            machine default-3: plain/a/on-demand $0.00000001/h types [plain, router] devices [1 net.example.com] pods [a-3]
            refused b (DoesNotFit): nodepool/default: none of 2 instance types fits: 2 without the devices it claims (in topology.kubernetes.io/zone=a: claim all, request r: 0 of 2 devices are usable, 2 wanted; 2 are allocated; or in topology.kubernetes.io/zone=b: claim all, request r: 0 of 2 devices are usable, 2 wanted; 2 are allocated); needs 2 of net.example.com (claim all, request r); 2 of 2 instance types have a template for it; 2 have too few that are not taken; nearest: on plain net.example.com/domain-a/d0 is allocated
        "#]],
    );
}

#[test]
fn the_zone_that_a_pool_is_planned_for_is_the_cheapest_that_the_pods_allow() {
    for zone in ["a", "b"] {
        let mut f = links(Domain, 2);
        f.pod("link").requests(1000, gib(1)).claims_from("link");
        f.pod("zonal").requests(2000, gib(1)).claims_from("link").select(ZONE, zone);
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        let zones: Vec<_> = made.machines.iter().map(|of| snapshot.interner.value_arc(of.launch.zone)).collect();
        assert_eq!(zones, [zone.into()]);
    }
}

#[test]
fn a_pool_that_is_published_for_a_zone_is_used_and_not_planned_again() {
    let mut f = links(Domain, 2);
    f.slice_for("published", NET, (ZONE, "b"), 2);
    for index in 0..3 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-0]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
        machine default-2: router/a/on-demand $0.0000001/h types [router] devices [1 net.example.com] pods [a-2]
    "#]],
    );
}

#[test]
fn a_machine_on_its_way_brings_its_pool_until_it_is_published() {
    let mut f = links(Machine, 2);
    f.in_flight("coming", "router", 0).promised(ZONE, "b");
    for index in 0..2 {
        f.pod(&format!("a-{index}")).requests(3000, gib(1)).claims_from("link");
    }
    check(
        &f,
        expect![[r#"
        machine default-0: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-0]
        machine default-1: plain/b/on-demand $0.000000009/h types [plain, router] devices [1 net.example.com] pods [a-1]
    "#]],
    );
}

#[test]
fn where_shared_devices_run_out_the_search_for_room_ends_soon() {
    let mut f = links(Domain, 2);
    f.device_class(GPU, None);
    for zone in ["c", "d"] {
        f.offering(zone, "on-demand", 120);
    }
    f.resource_claim("first", &json!({"requests": [exactly("one", NET, 1)]}), &json!({}));
    f.resource_claim("second", &json!({"requests": [exactly("other", NET, 1)]}), &json!({}));
    f.pod("a").requests(1500, gib(1)).claims("first");
    for index in 0..2 {
        f.pod(&format!("b-{index}")).requests(900, gib(1)).claims("second");
    }
    for index in 0..3 {
        f.pod(&format!("c-{index}")).requests(400, gib(1)).claims_from("link").select(ZONE, "b");
    }
    let made = plan(&f.snapshot());
    let refusals: Vec<_> = made.refusals.iter().map(|refusal| refusal.verdict).collect();
    assert_eq!(refusals, [Verdict::DoesNotFit], "two links of zone b for three pods that want one");
}

/// Whether links, so many to a zone, serve pods that each may be in the zones given.
fn are_served(links: usize, pods: &[Vec<usize>], taken: [usize; 2]) -> bool {
    let Some((zones, rest)) = pods.split_first() else { return true };
    zones.iter().any(|&zone| {
        let mut taken = taken;
        taken[zone] += 1;
        taken[zone] <= links && are_served(links, rest, taken)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn pods_without_links_are_refused_by_a_proof_and_only_if_there_are_none_for_them(
        links_of_zone in 1..3_usize,
        classes in prop::collection::vec((1..3_usize, prop::option::of(0..2_usize)), 1..4),
    ) {
        let mut f = links(Domain, links_of_zone);
        let mut zones_of = BTreeMap::new();
        for (class, (copies, zone)) in classes.iter().enumerate() {
            for copy in 0..*copies {
                let name = format!("class-{class}-{copy}");
                let pod = f.pod(&name).requests(1000 + 100 * class as i64, gib(1)).claims_from("link");
                if let Some(zone) = zone {
                    pod.select(ZONE, ["a", "b"][*zone]);
                }
                zones_of.insert(name, zone.map_or_else(|| vec![0, 1], |zone| vec![zone]));
            }
        }
        let snapshot = f.snapshot();
        let made = plan(&snapshot);
        let refused: Vec<(&str, Verdict)> = made
            .refusals
            .iter()
            .map(|refusal| (&*snapshot.pods[refusal.pod].pod.name.name, refusal.verdict))
            .collect();
        let placed: Vec<Vec<usize>> = zones_of
            .iter()
            .filter(|(name, _)| refused.iter().all(|(pod, _)| pod != &name.as_str()))
            .map(|(_, zones)| zones.clone())
            .collect();
        prop_assert!(are_served(links_of_zone, &placed, [0, 0]));
        for (pod, verdict) in refused {
            prop_assert_eq!(verdict, Verdict::DoesNotFit);
            let with_it: Vec<Vec<usize>> = placed.iter().chain([&zones_of[pod]]).cloned().collect();
            prop_assert!(!are_served(links_of_zone, &with_it, [0, 0]), "{pod}");
        }
    }
}

/// Routers with one GPU and four links for their zone, and machines with neither; pods with a GPU have to be on the
/// former and pods with links on the latter.
fn hosts(hosts: &[Option<&str>], links: &[(usize, Option<&str>)], have_claims: bool) -> Fixture {
    let mut f = Fixture::new();
    f.device_class(NET, None).device_class(GPU, None);
    f.instance_type("plain", 8, 32).offering("a", "on-demand", 10).offering("b", "on-demand", 9);
    f.instance_type("router", 8, 32).offering("a", "on-demand", 30).offering("b", "on-demand", 29);
    f.plain_devices(GPU, 1).devices_for_nodes(NET, 4, Machine, &[ZONE]);
    f.pool("default");
    f.claim_template("gpu", &json!({"requests": [exactly("r", GPU, 1)]}));
    for (index, zone) in hosts.iter().enumerate() {
        let mut pod = f.pod(&format!("host-{index}"));
        pod = pod.requests(5000, gib(1)).select(api::labels::INSTANCE_TYPE, "router");
        if have_claims {
            pod = pod.claims_from("gpu");
        }
        if let Some(zone) = zone {
            pod.select(ZONE, zone);
        }
    }
    for (index, (count, zone)) in links.iter().enumerate() {
        let template = format!("links-{count}");
        f.claim_template(&template, &json!({"requests": [exactly("r", NET, *count)]}));
        let pod = f.pod(&format!("link-{index}")).requests(1000, gib(1)).claims_from(&template);
        let pod = pod.select(api::labels::INSTANCE_TYPE, "plain");
        if let Some(zone) = zone {
            pod.select(ZONE, zone);
        }
    }
    f
}

#[test]
fn claims_get_what_several_machines_of_one_domain_bring() {
    let anywhere = [None, None];
    for have_claims in [true, false] {
        for links in [vec![1; 6], vec![1; 8], vec![2; 3], vec![2; 4], vec![4; 2], vec![6], vec![8], vec![5, 3]] {
            let links: Vec<_> = links.into_iter().map(|count| (count, None)).collect();
            let snapshot = hosts(&anywhere, &links, have_claims).snapshot();
            let made = plan(&snapshot);
            assert!(made.refusals.is_empty(), "{links:?}, {have_claims}: {:?}", made.refusals);
            let zones = made.machines.iter().map(|machine| snapshot.interner.value_arc(machine.launch.zone));
            let alone = links.iter().any(|(count, _)| *count > 4);
            assert!(!alone || zones.collect::<std::collections::BTreeSet<_>>().len() == 1, "all in one zone");
            assert!(made.cost() >= i128::from(made.lower_bound.0), "a bound is not above the price");
        }
    }
}

#[test]
fn machines_of_different_domains_do_not_serve_one_claim_and_the_refusal_is_a_proof() {
    let (a, b) = (Some("a"), Some("b"));
    let one_each = |zone| vec![(1, zone); 6];
    for (of_hosts, links, refused) in [
        ([a, b], vec![(6, None)], 1),
        ([a, a], vec![(6, b)], 1),
        ([a, a], vec![(6, None)], 0),
        ([a, b], one_each(a), 2),
        ([a, b], one_each(None), 0),
        ([a, a], one_each(b), 6),
        ([a, a], one_each(a), 0),
        ([None, None], vec![(9, None)], 1),
        ([None, None], vec![(1, None); 9], 1),
    ] {
        let made = plan(&hosts(&of_hosts, &links, true).snapshot());
        let verdicts: Vec<Verdict> = made.refusals.iter().map(|refusal| refusal.verdict).collect();
        assert_eq!(verdicts, vec![Verdict::DoesNotFit; refused], "{of_hosts:?} {links:?}");
    }
}

#[test]
fn a_refusal_says_how_many_devices_the_machines_of_each_domain_have_together() {
    check(
        &hosts(&[Some("a"), Some("b")], &[(6, None)], true),
        expect![[r#"
        machine default-0: router/a/on-demand $0.00000003/h types [router] devices [1 gpu.example.com] pods [host-0]
        machine default-1: router/b/on-demand $0.000000029/h types [router] devices [1 gpu.example.com] pods [host-1]
        refused link-0 (DoesNotFit): nodepool/default: none of 2 instance types fits: 1 does not match node.kubernetes.io/instance-type In [plain], 1 without the devices it claims (in topology.kubernetes.io/zone=a: claim links-6, request r: 4 of 4 devices are usable, 6 wanted; or in topology.kubernetes.io/zone=b: claim links-6, request r: 4 of 4 devices are usable, 6 wanted); needs 6 of net.example.com (claim links-6, request r); 2 of 2 instance types have a template for it; 1 has too few of them; 1 does not match label node.kubernetes.io/instance-type
    "#]],
    );
}

/// Whether machines of hosts, each in one of the zones that it may be in, serve claims for links in one of theirs.
fn do_hosts_serve(hosts: &[Option<usize>], links: &[(usize, Option<usize>)], free: &mut [usize; 2]) -> bool {
    let zones = |of: Option<usize>| of.map_or(0..2, |zone| zone..zone + 1);
    if let Some((&host, hosts)) = hosts.split_first() {
        return zones(host).any(|zone| {
            free[zone] += 4;
            let serve = do_hosts_serve(hosts, links, free);
            free[zone] -= 4;
            serve
        });
    }
    let Some((&(count, of), links)) = links.split_first() else { return true };
    zones(of).any(|zone| {
        let has_room = free[zone] >= count;
        has_room && {
            free[zone] -= count;
            let serve = do_hosts_serve(hosts, links, free);
            free[zone] += count;
            serve
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn what_hosts_cannot_serve_is_refused_and_only_that_by_a_proof(
        of_hosts in prop::collection::vec(prop::option::of(0..2_usize), 0..4),
        links in prop::collection::vec((1..7_usize, prop::option::of(0..2_usize)), 1..4),
        have_claims in any::<bool>(),
    ) {
        let name = |zone: usize| ["a", "b"][zone];
        let zones_of_hosts: Vec<_> = of_hosts.iter().map(|zone| zone.map(name)).collect();
        let zones_of_links: Vec<_> = links.iter().map(|(count, zone)| (*count, zone.map(name))).collect();
        let snapshot = hosts(&zones_of_hosts, &zones_of_links, have_claims).snapshot();
        let made = plan(&snapshot);
        let refused = |index: &usize| {
            let name = format!("link-{index}");
            made.refusals.iter().find(|refusal| *snapshot.pods[refusal.pod].pod.name.name == *name)
        };
        let placed: Vec<_> = (0..links.len()).filter(|index| refused(index).is_none()).map(|index| links[index]).collect();
        prop_assert!(do_hosts_serve(&of_hosts, &placed, &mut [0, 0]), "{placed:?}");
        for (index, link) in links.iter().enumerate() {
            if refused(&index).is_some_and(|refusal| refusal.verdict == Verdict::DoesNotFit) {
                let with_it: Vec<_> = placed.iter().copied().chain([*link]).collect();
                prop_assert!(!do_hosts_serve(&of_hosts, &with_it, &mut [0, 0]), "{with_it:?}");
            }
        }
    }
}
