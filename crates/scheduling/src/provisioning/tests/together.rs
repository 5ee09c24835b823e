//! Pods that have to share a host or a zone, planned as what that amounts to.

use std::collections::BTreeSet;

use model::PriceNanoUsdPerHour;

use super::fixture::{Fixture, gib};
use crate::plan::Plan;
use crate::provisioning::orders::{Planning, plan_in_best_order};
use crate::provisioning::passes::colocation;
use crate::provisioning::plan;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::snapshot::Snapshot;

const ZONE: &str = api::labels::ZONE;
const HOST: &str = api::labels::HOSTNAME;
const DOLLAR: i64 = 1_000_000_000;

/// A dollar for each CPU and four GiB, in two zones.
fn machines(sizes: &[i64]) -> Fixture {
    let mut f = Fixture::new();
    for &cpu in sizes {
        let of_type = f.instance_type(&format!("cpu-{cpu}"), cpu, 4 * cpu);
        of_type.offering("za", "on-demand", cpu * DOLLAR).offering("zb", "on-demand", cpu * DOLLAR);
    }
    f.pool("default");
    f
}

/// The plan without passes.
fn plan_alone(snapshot: &Snapshot) -> Plan {
    plan_in_best_order(&Problem::new(&Request::of(snapshot)), &mut Planning::default()).unwrap()
}

/// Dollars for the plan, and for the plan class by class.
fn prices(f: &Fixture) -> (Plan, [i64; 2]) {
    let snapshot = f.snapshot();
    let (found, alone) = (plan(&snapshot), plan_alone(&snapshot));
    assert!(found.refusals.is_empty() && alone.refusals.is_empty());
    assert!(found.lower_bound >= alone.lower_bound && found.lower_bound <= found.price);
    let dollars = |plan: &Plan| plan.price.0 / DOLLAR;
    let prices = [dollars(&found), dollars(&alone)];
    (found, prices)
}

#[test]
fn pods_that_share_a_host_are_packed_by_what_they_request_together() {
    let mut f = machines(&[4, 8, 16]);
    for group in 0..6 {
        let app = format!("g{group}");
        for (name, cpu) in [("large", 3000), ("medium", 1500), ("small", 500)] {
            let pod = f.pod(&format!("{name}-{group}")).requests(cpu, gib(1));
            let _ = pod.label("app", &app).near(HOST, &app);
        }
    }
    let snapshot = f.snapshot();
    let (found, [together, alone]) = prices(&f);
    assert_eq!(together, 32, "three of five CPUs each on one of 16");
    assert!(together < alone, "class by class it is {alone}");
    let groups = |machine: &crate::plan::Machine| {
        let name =
            |pod: &crate::snapshot::PodId| snapshot.pods[*pod].pod.name.name.rsplit('-').next().map(str::to_owned);
        machine.pods.iter().filter_map(name).collect::<BTreeSet<String>>()
    };
    let hosts: Vec<BTreeSet<String>> = found.machines.iter().map(groups).collect();
    assert_eq!(hosts.iter().map(BTreeSet::len).sum::<usize>(), 6, "each group is on one machine: {hosts:?}");
    assert_eq!(found.machines.iter().map(|machine| machine.pods.len()).sum::<usize>(), 18);
}

#[test]
fn pods_that_share_a_zone_are_packed_like_any_others_there() {
    let mut f = machines(&[4, 16]);
    for index in 0..12 {
        let _ = f.pod(&format!("cpu-{index}")).requests(3000, gib(2)).label("app", "x").near(ZONE, "x");
        let _ = f.pod(&format!("memory-{index}")).requests(900, gib(13)).label("app", "x").near(ZONE, "x");
    }
    let (found, [together, alone]) = prices(&f);
    assert!(together <= alone, "class by class it is {alone}, together {together}");
    let zones: BTreeSet<_> = found.machines.iter().map(|machine| machine.launch.zone).collect();
    assert_eq!(zones.len(), 1);
}

/// Small machines are cheaper in one zone, and large ones much cheaper in the other. All pods are of one group, the
/// small ones with a priority.
fn zones_apart(priority: i32) -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("za", "on-demand", 3 * DOLLAR).offering("zb", "on-demand", 4 * DOLLAR);
    f.instance_type("large", 16, 64).offering("za", "on-demand", 90 * DOLLAR).offering("zb", "on-demand", 16 * DOLLAR);
    for index in 0..4 {
        let pod = f.pod(&format!("small-{index}")).requests(3000, gib(2)).priority(priority);
        let _ = pod.label("app", "x").near(ZONE, "x");
    }
    for index in 0..2 {
        let _ = f.pod(&format!("large-{index}")).requests(15_000, gib(30)).label("app", "x").near(ZONE, "x");
    }
    f
}

fn zones<'s>(plan: &Plan, snapshot: &'s Snapshot) -> BTreeSet<&'s str> {
    plan.machines.iter().map(|machine| snapshot.interner.value_name(machine.launch.zone)).collect()
}

#[test]
fn pods_that_share_a_zone_go_where_all_of_them_are_cheapest() {
    let mut f = zones_apart(10);
    f.pool("default");
    let (found, [together, alone]) = prices(&f);
    assert_eq!((together, alone), (48, 192), "two large ones and four small ones in zb, and in za");
    assert_eq!(zones(&found, &f.snapshot()), BTreeSet::from(["zb"]));
}

#[test]
fn a_dear_zone_is_cheap_if_its_nodes_have_room() {
    let mut f = zones_apart(0);
    f.pool("default");
    for name in ["n-0", "n-1"] {
        f.node(name).allocatable(15_000, gib(60)).label(ZONE, "za").label(HOST, name);
    }
    let snapshot = f.snapshot();
    let found = plan(&snapshot);
    assert!(found.refusals.is_empty());
    assert_eq!(found.price.0, 12 * DOLLAR, "four small ones beside the nodes");
    assert_eq!(zones(&found, &snapshot), BTreeSet::from(["za"]));
}

#[test]
fn a_dear_zone_is_better_than_no_place() {
    let mut f = zones_apart(10);
    f.pool("cheap").require(ZONE, "In", &["zb"]).limit("nodes", 2, 2);
    f.pool("dear").require(ZONE, "In", &["za"]);
    let (found, [together, alone]) = prices(&f);
    assert_eq!((together, alone), (192, 192));
    assert_eq!(zones(&found, &f.snapshot()), BTreeSet::from(["za"]));
}

#[test]
fn a_preference_is_kept_where_a_dear_zone_is_the_only_place() {
    let mut f = zones_apart(10);
    f.pool("cheap").require(ZONE, "In", &["zb"]).limit("nodes", 2, 2);
    f.pool("dear").require(ZONE, "In", &["za"]);
    f.pod("choosy").requests(3000, gib(2)).prefer(api::labels::INSTANCE_TYPE, "small");
    let found = plan(&f.snapshot());
    assert!(found.refusals.is_empty());
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    assert_eq!(found.price.0, 195 * DOLLAR);
}

#[test]
fn a_host_for_all_costs_at_least_a_machine_that_holds_all() {
    let mut f = Fixture::new();
    f.instance_type("cheap", 4, 16).offering("za", "on-demand", 3 * DOLLAR);
    f.instance_type("large", 8, 32).offering("za", "on-demand", 8 * DOLLAR);
    f.pool("default");
    for (name, cpu) in [("a", 3000), ("b", 2000)] {
        let _ = f.pod(name).requests(cpu, gib(1)).label("app", "x").near(HOST, "x");
    }
    let (found, _) = prices(&f);
    assert_eq!((found.price, found.lower_bound), (PriceNanoUsdPerHour(8 * DOLLAR), found.price));
}

#[test]
fn pods_that_others_may_begin_for_are_left_alone() {
    let mut f = machines(&[4]);
    let _ = f.pod("owner").requests(1000, gib(1)).label("app", "x").near(HOST, "x");
    let _ = f.pod("other").requests(500, gib(1)).label("app", "x");
    let _ = f.pod("spread").requests(500, gib(1)).label("app", "y").near(ZONE, "y").spread(HOST, 1, "y");
    let _ = f.pod("spread-1").requests(500, gib(1)).label("app", "y").near(ZONE, "y").spread(HOST, 1, "y");
    let snapshot = f.snapshot();
    assert!(colocation::groups(&Problem::new(&Request::of(&snapshot))).is_empty());
    let mut f = machines(&[4]);
    f.node("n").allocatable(4000, gib(16));
    f.pod("running").requests(500, gib(1)).label("app", "x").runs();
    for index in 0..2 {
        let _ = f.pod(&format!("p{index}")).requests(1000, gib(1)).label("app", "x").near(HOST, "x");
    }
    let snapshot = f.snapshot();
    assert!(colocation::groups(&Problem::new(&Request::of(&snapshot))).is_empty(), "one runs already");
}

#[test]
fn pods_that_found_no_room_beside_theirs_get_it_together() {
    let mut f = machines(&[4, 8, 16, 32]);
    for group in 0_usize..60 {
        let app = format!("g{group}");
        for kind in 0..2 + group % 3 {
            let cpu = [100, 250, 500, 1000, 1500, 3000][(group * 5 + kind * 7) % 6];
            let memory = [1, 2, 4, 8][(group * 3 + kind) % 4];
            for copy in 0..1 + (group + kind) % 4 {
                let pod = f.pod(&format!("p{group}-{kind}-{copy}")).requests(cpu, gib(memory));
                let _ = pod.label("app", &app).near(HOST, &app);
            }
        }
    }
    let _ = f.pod("huge-0").requests(31_000, gib(1)).label("app", "huge").near(HOST, "huge");
    let _ = f.pod("huge-1").requests(30_000, gib(1)).label("app", "huge").near(HOST, "huge");
    let snapshot = f.snapshot();
    let alone = plan_alone(&snapshot);
    assert!(alone.refusals.len() > 1, "class by class all have room, so this says nothing: {}", alone.refusals.len());
    let found = plan(&snapshot);
    let refused: Vec<String> =
        found.refusals.iter().map(|refusal| snapshot.pods[refusal.pod].pod.name.to_string()).collect();
    assert_eq!(refused, ["default/huge-1"], "for which no machine is large enough");
    assert!(found.lower_bound <= found.price && alone.lower_bound <= alone.price);
}
