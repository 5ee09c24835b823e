//! PodGroups that have to be in one domain of a label.

use seeded_random::Random;

use super::fixture::{Fixture, gib, render};
use crate::{
    plan::{Plan, Verdict},
    provisioning::plan,
    snapshot::Snapshot,
};

const ZONE: &str = api::labels::ZONE;
const RACK: &str = "example.com/rack";

/// Machines of four CPUs in zone `a` for 10, and in zone `b` for 8; as many as are said of each.
fn zones(a: i64, b: i64) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("a", "on-demand", 10).offering("b", "on-demand", 8);
    f.pool("in-a").require(ZONE, "In", &["a"]).limit("nodes", a, a);
    f.pool("in-b").require(ZONE, "In", &["b"]).limit("nodes", b, b);
    f
}

/// So many pods of a group that take a machine each.
fn members(f: &mut Fixture, group: &str, count: i64) {
    for index in 0..count {
        f.pod(&format!("{group}-{index}")).requests(3000, gib(1)).group(group);
    }
}

/// The values of a label where the group's pods are planned, each as often as pods are there.
fn domains(plan: &Plan, snapshot: &Snapshot, group: &str, key: &str) -> Vec<String> {
    let names = &snapshot.interner;
    let key = names.find_key(key).unwrap();
    let is_member = |pod: &&crate::snapshot::PodId| snapshot.pods[**pod].pod.name.name.starts_with(group);
    let mut found = Vec::new();
    for machine in &plan.machines {
        let value = machine.requirements.get(key).and_then(|known| known.values.single_value());
        let value = value.map_or("?", |value| names.value_name(value)).to_owned();
        found.extend(machine.pods.iter().filter(is_member).map(|_| value.clone()));
    }
    for placement in &plan.existing {
        let crate::snapshot::NodeLabels::Known(labels) = &snapshot.nodes[placement.node].labels else { continue };
        let value = labels.get(key).map_or("?", |value| names.value_name(value)).to_owned();
        found.extend(placement.pods.iter().filter(is_member).map(|_| value.clone()));
    }
    found.sort();
    found
}

fn planned(f: &Fixture, group: &str) -> Vec<String> {
    let snapshot = f.snapshot();
    domains(&plan(&snapshot), &snapshot, group, ZONE)
}

fn refused(f: &Fixture, pod: &str) -> (Verdict, Vec<String>) {
    let snapshot = f.snapshot();
    let plan = plan(&snapshot);
    let refusal = plan.refusals.iter().find(|it| *snapshot.pods[it.pod].pod.name.name == *pod).unwrap();
    (refusal.verdict, refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect())
}

#[test]
fn a_group_goes_to_the_cheapest_domain_that_holds_it() {
    for (a, b, expected) in [(3, 3, "b"), (3, 2, "a"), (2, 3, "b")] {
        let mut f = zones(a, b);
        f.pod_group_in_one("g", Some(3), ZONE);
        members(&mut f, "g", 3);
        assert_eq!(planned(&f, "g"), [expected; 3], "{a} machines in a, {b} in b");
    }
}

#[test]
fn what_a_node_costs_beside_its_machine_counts_when_domains_are_compared() {
    for (node_price, expected) in [(0, "b"), (5, "a")] {
        let mut f = Fixture::new();
        f.instance_type("one-for-both", 8, 32).offering("a", "on-demand", 18);
        f.instance_type("one-for-each", 4, 16).offering("b", "on-demand", 8);
        f.pool("default");
        f.options().node_price = model::PriceNanoUsdPerHour(node_price);
        f.pod_group_in_one("g", Some(2), ZONE);
        members(&mut f, "g", 2);
        assert_eq!(planned(&f, "g"), [expected; 2], "a node costs {node_price}");
    }
}

#[test]
fn more_pods_of_the_group_go_before_a_lower_price() {
    let mut f = zones(3, 2);
    f.pod_group_in_one("g", Some(2), ZONE);
    members(&mut f, "g", 4);
    assert_eq!(planned(&f, "g"), ["a"; 3]);
}

#[test]
fn a_group_without_minimum_is_in_one_domain_too() {
    let mut f = zones(2, 1);
    f.pod_group_in_one("g", None, ZONE);
    members(&mut f, "g", 3);
    assert_eq!(planned(&f, "g"), ["a"; 2]);
}

#[test]
fn where_pods_of_the_group_run_the_others_go() {
    let mut f = zones(3, 3);
    f.pod_group_in_one("g", Some(3), ZONE);
    members(&mut f, "g", 2);
    f.node("n").allocatable(1000, gib(1)).label(ZONE, "a");
    f.pod("g-old").group("g").runs();
    assert_eq!(planned(&f, "g"), ["a"; 2]);
    f.node("m").allocatable(1000, gib(1)).label(ZONE, "b");
    f.pod("g-older").group("g").runs();
    let (verdict, reasons) = refused(&f, "g-0");
    assert_eq!(verdict, Verdict::DoesNotFit);
    assert_eq!(reasons, ["all its pods have to be in one topology.kubernetes.io/zone, and those that run are in 2"]);
}

#[test]
fn groups_choose_one_after_the_other_and_the_more_important_first() {
    let mut f = zones(2, 3);
    f.pod_group_in_one("low", Some(2), ZONE);
    members(&mut f, "low", 2);
    f.pod_group_in_one("top", Some(3), ZONE);
    for index in 0..3 {
        f.pod(&format!("top-{index}")).requests(3000, gib(1)).group("top").priority(1);
    }
    assert_eq!((planned(&f, "top"), planned(&f, "low")), (vec!["b".to_owned(); 3], vec!["a".to_owned(); 2]));
}

#[test]
fn racks_that_only_nodes_have_are_domains() {
    let mut f = zones(9, 9);
    f.pod_group_in_one("g", Some(2), RACK);
    members(&mut f, "g", 2);
    for (node, rack) in [("n1", "r1"), ("n2", "r2"), ("n3", "r2")] {
        f.node(node).allocatable(4000, gib(16)).label(RACK, rack);
    }
    let snapshot = f.snapshot();
    assert_eq!(domains(&plan(&snapshot), &snapshot, "g", RACK), ["r2"; 2]);
}

#[test]
fn a_group_without_domain_says_which_came_nearest_and_leaves_the_room_to_others() {
    let mut f = zones(1, 2);
    f.pod_group_in_one("g", Some(3), ZONE);
    members(&mut f, "g", 3);
    f.pod("alone").requests(3000, gib(1));
    let (verdict, reasons) = refused(&f, "g-0");
    assert_eq!(verdict, Verdict::DoesNotFit);
    assert_eq!(
        reasons[..2],
        [
            "all its pods have to be in one topology.kubernetes.io/zone, and none of the 2 tried has room for enough of them; \
             nearest is b",
            "needs 3 pods at once, and 2 of the 3 that wait would have a place",
        ]
    );
    assert_eq!(planned(&f, "alone"), ["b"]);
}

#[test]
fn a_group_that_lacks_pods_says_so_and_nothing_of_domains() {
    let mut f = zones(3, 3);
    f.pod_group_in_one("g", Some(3), ZONE);
    members(&mut f, "g", 2);
    assert_eq!(refused(&f, "g-0").1, ["needs 3 pods at once, and there are only 2"]);
}

#[test]
fn a_label_that_nobody_has_and_spread_beside_it_are_told() {
    let mut f = zones(3, 3);
    f.pod_group_in_one("g", Some(1), RACK);
    members(&mut f, "g", 1);
    f.pod_group_in_one("s", Some(1), ZONE);
    f.pod("s-0").requests(1000, gib(1)).label("app", "s").spread(ZONE, 1, "s").group("s");
    assert_eq!(
        refused(&f, "g-0").1,
        [
            "all its pods have to be in one example.com/rack, and no node has that label, nor is a value of it known of any \
          machine to come"
        ]
    );
    let (verdict, reasons) = refused(&f, "s-0");
    assert_eq!(verdict, Verdict::Unsupported);
    assert_eq!(
        reasons,
        [
            "spread of the pods of PodGroup default/s, which have to be in one topology.kubernetes.io/zone, is not planned for yet"
        ]
    );
}

/// One group beside nodes that are there, each holding one pod: what a domain holds and costs can be told without a
/// plan.
#[test]
fn the_domain_is_the_best_by_counting() {
    let mut random = Random::new(11);
    let (mut in_one, mut nowhere) = (0, 0);
    for round in 0..150 {
        let limits = [random.below(4), random.below(4)];
        let mut f = zones(limits[0], limits[1]);
        let (pods, wanted) = (1 + random.below(4), 1 + random.below(4));
        f.pod_group_in_one("g", Some(u32::try_from(wanted).unwrap()), ZONE);
        members(&mut f, "g", pods);
        let mut free = [0, 0];
        for node in 0..random.below(4) {
            let zone = random.below(2);
            free[usize::try_from(zone).unwrap()] += 1;
            f.node(&format!("n{node}"))
                .allocatable(4000, gib(16))
                .label(ZONE, ["a", "b"][usize::try_from(zone).unwrap()]);
        }
        let of_zone = |zone: usize| {
            let placed = pods.min(free[zone] + limits[zone]);
            let new = (placed - free[zone]).max(0);
            (-placed, new * [10, 8][zone])
        };
        let (placed, price) = of_zone(0).min(of_zone(1));
        let (placed, price) = if -placed >= wanted { (-placed, price) } else { (0, 0) };
        let snapshot = f.snapshot();
        let found = plan(&snapshot);
        let mut domains = domains(&found, &snapshot, "g", ZONE);
        let text = render(&found, &snapshot);
        assert_eq!((domains.len(), found.price.0), (usize::try_from(placed).unwrap(), price), "round {round}: {text}");
        domains.dedup();
        assert!(domains.len() <= 1, "round {round}: {text}");
        in_one += usize::from(placed > 0);
        nowhere += usize::from(placed == 0);
    }
    assert!(in_one > 50 && nowhere > 20, "{in_one} with a domain, {nowhere} without: the cases say nothing");
}
