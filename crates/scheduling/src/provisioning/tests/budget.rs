//! One budget for all passes and orders: no plan takes more fills, and each is whole.

use std::collections::{BTreeMap, BTreeSet};

use seeded_random::Random;

use super::fixture::{Fixture, gib, render};
use crate::plan::reason::Reason;
use crate::plan::{Plan, Verdict};
use crate::provisioning::orders::Planning;
use crate::provisioning::{PASSES, orders, plan, plan_with};
use crate::snapshot::{PodId, Snapshot};
use crate::tuning::{KEPT_BACK, MAX_FILLS};

const HOST: &str = api::labels::HOSTNAME;
const ZONE: &str = api::labels::ZONE;

/// The plan with a budget of so many fills, and how many it took.
pub(super) fn planned(snapshot: &Snapshot, fills: u32) -> (Plan, u32) {
    let mut planning = Planning::within(fills);
    let plan = plan_with(PASSES, orders::plan_in_best_order, snapshot, &mut planning);
    (plan, planning.budget.taken())
}

/// Each pod is in one part of the plan, and each PodGroup has as many places as it needs, or none, in one domain.
fn check(snapshot: &Snapshot, plan: &Plan) {
    let text = || render(plan, snapshot);
    let on_nodes = plan.existing.iter().flat_map(|placement| &placement.pods);
    let placed: Vec<PodId> = plan.machines.iter().flat_map(|machine| &machine.pods).chain(on_nodes).copied().collect();
    let refused = plan.refusals.iter().map(|refusal| refusal.pod);
    let mut everywhere: Vec<PodId> = placed.iter().copied().chain(refused).collect();
    everywhere.sort_unstable();
    assert_eq!(everywhere, snapshot.pods.ids().collect::<Vec<_>>(), "{}", text());
    assert!(plan.refusals.iter().all(|refusal| !refusal.reasons.is_empty()), "{}", text());
    let mut of_groups: BTreeMap<_, Vec<PodId>> = BTreeMap::new();
    for &pod in &placed {
        if let Some(group) = &snapshot.pods[pod].pod.shape.scheduling_group {
            of_groups.entry(&group.pod_group).or_default().push(pod);
        }
    }
    for (name, pods) in of_groups {
        let group = &snapshot.pod_groups[name];
        assert!(pods.len() >= group.min_count.unwrap_or(0) as usize, "{name} is placed in part\n{}", text());
        if let Some(key) = group.topology_key {
            let its = plan.machines.iter().filter(|machine| machine.pods.iter().any(|pod| pods.contains(pod)));
            let value = |machine: &crate::plan::Machine| machine.requirements.get(key)?.values.single_value();
            assert_eq!(its.map(value).collect::<BTreeSet<_>>().len(), 1, "{name} is not in one domain\n{}", text());
        }
    }
}

/// Pods for every pass, on too few machines for all of them.
fn mix(random: &mut Random) -> Snapshot {
    let mut f = Fixture::new();
    f.search_steps(100);
    for cpu in [4, 8] {
        f.instance_type(&format!("cpu-{cpu}"), cpu, 4 * cpu);
        for (zone, price) in [("a", 10), ("b", 9), ("c", 11)] {
            f.offering(zone, "on-demand", price * cpu);
        }
    }
    f.pool("default").require(ZONE, "In", &["a", "b"]).limit("nodes", 9, 1 + random.below(9));
    f.pool("tainted").taint("team", "x").require(ZONE, "In", &["c"]).limit("nodes", 2, 2);
    for group in ["gang-a", "gang-b", "gang-c"] {
        let pods = 1 + random.below(3);
        f.pod_group(group, Some(u32::try_from(1 + random.below(pods)).unwrap()));
        for index in 0..pods {
            f.pod(&format!("{group}-{index}")).requests(1000 * (1 + random.below(4)), gib(1)).group(group);
        }
    }
    f.pod_group_in_one("one", Some(2), ZONE);
    for index in 0..random.below(4) {
        f.pod(&format!("one-{index}")).requests(2000, gib(1)).group("one");
    }
    for index in 0..random.below(4) {
        f.pod(&format!("web-{index}")).requests(500, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    for index in 0..random.below(4) {
        let pod = f.pod(&format!("near-{index}")).requests(1500, gib(1)).label("app", "near");
        let _ = pod.near(if random.below(2) == 0 { HOST } else { ZONE }, "near");
    }
    for index in 0..random.below(3) {
        f.pod(&format!("rather-{index}")).requests(700, gib(1)).prefer(ZONE, "a").rather_away_from(HOST, "web");
    }
    f.pod("tolerant").requests(700, gib(1)).tolerate("team", "x").select(ZONE, "c");
    f.pod("room").requests(600, gib(1)).buffered(u32::try_from(random.below(3)).unwrap());
    f.snapshot()
}

#[test]
fn no_plan_takes_more_fills_than_there_are_and_each_is_whole() {
    let mut random = Random::new(3);
    let (mut most, mut cut_short, mut whole) = (0, 0, 0);
    for _ in 0..12 {
        let snapshot = mix(&mut random);
        let (plan, taken) = planned(&snapshot, MAX_FILLS);
        check(&snapshot, &plan);
        assert_eq!(plan, crate::provisioning::plan(&snapshot));
        most = most.max(taken);
        for fills in [0, KEPT_BACK, KEPT_BACK + 1, KEPT_BACK + 3, KEPT_BACK + 8, KEPT_BACK + 20] {
            let (with_few, taken_of_few) = planned(&snapshot, fills);
            check(&snapshot, &with_few);
            assert!(taken_of_few <= fills.max(KEPT_BACK), "{taken_of_few} of {fills}");
            assert_eq!(with_few, planned(&snapshot, fills).0, "equal snapshots give equal plans");
            if taken <= fills.saturating_sub(KEPT_BACK) {
                assert_eq!(with_few, plan, "there were enough");
                whole += 1;
            }
            cut_short += u32::from(taken_of_few < taken);
        }
    }
    assert!(most <= MAX_FILLS / 10, "the budget is for plans beyond what anybody has: {most}");
    assert!(cut_short > 20 && whole > 5, "{cut_short} cut short, {whole} whole: the cases say nothing");
}

/// Each gang has a pod that is free and one near to the free one of the gang before it, and the first has a pod that
/// fits nowhere: one is short after the other, each in a plan of its own.
fn chain(f: &mut Fixture, prefix: &str, gangs: usize) {
    for index in 0..gangs {
        let (group, app) = (format!("{prefix}-{index:02}"), format!("{prefix}-{index}"));
        f.pod_group(&group, Some(2));
        f.pod(&format!("{group}-free")).requests(100, gib(1)).label("app", &app).group(&group);
        let bound = f.pod(&format!("{group}-bound")).requests(if index == 0 { 99_000 } else { 100 }, gib(1));
        let bound = bound.group(&group);
        if index > 0 {
            let _ = bound.near(ZONE, &format!("{prefix}-{}", index - 1));
        }
    }
}

#[test]
fn gangs_that_are_short_one_after_the_other_end_with_the_budget() {
    let mut f = Fixture::new();
    f.search_steps(10);
    f.instance_type("large", 64, 256).offering("a", "on-demand", 10);
    f.pool("default");
    chain(&mut f, "chain", 20);
    f.pod_group("alone", Some(1));
    f.pod("alone-0").requests(100, gib(1)).group("alone");
    f.pod("other").requests(100, gib(1));
    let snapshot = f.snapshot();
    let reasons = |plan: &Plan, name: &str| {
        let refusal = plan.refusals.iter().find(|refusal| *snapshot.pods[refusal.pod].pod.name.name == *name)?;
        let reasons: Vec<String> =
            refusal.reasons.iter().map(|reason| reason.message(&snapshot.interner)).collect::<Vec<_>>();
        Some((refusal.verdict, reasons))
    };
    let whole = plan(&snapshot);
    check(&snapshot, &whole);
    assert_eq!((whole.refusals.len(), reasons(&whole, "alone-0")), (40, None));
    let (short, taken) = planned(&snapshot, KEPT_BACK);
    check(&snapshot, &short);
    assert_eq!((taken, reasons(&short, "other")), (KEPT_BACK, None));
    let (verdict, reasons) = reasons(&short, "alone-0").expect("there is no other plan without half a gang");
    assert_eq!(verdict, Verdict::OutOfBudget);
    let ended = "the plan ended before this was decided: all pods had been packed 15 times";
    assert_eq!(reasons, ["needs 1 pods at once, and 1 of the 1 that wait would have a place", ended]);
}

#[test]
fn pods_that_are_spread_over_domains_that_could_yet_be_added_are_undecided() {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 8).offering("a", "on-demand", 10).offering("b", "on-demand", 10);
    f.pool("plain").require(ZONE, "In", &["a"]);
    f.pool("tainted").taint("team", "x").require(ZONE, "In", &["b"]);
    for index in 0..3 {
        f.pod(&format!("web-{index}")).requests(500, gib(1)).label("app", "web").spread(ZONE, 1, "web");
    }
    f.pod("other").requests(100, gib(1)).tolerate("team", "x");
    let snapshot = f.snapshot();
    assert!(plan(&snapshot).refusals.is_empty(), "nothing adds zone b");
    let (short, taken) = planned(&snapshot, KEPT_BACK);
    check(&snapshot, &short);
    assert_eq!((short.refusals.len(), taken), (2, 1));
    for refusal in &short.refusals {
        assert_eq!(refusal.verdict, Verdict::OutOfBudget);
        assert_eq!(refusal.reasons.first(), Some(&Reason::PlanOutOfBudget { fills: 1 }));
    }
}

/// Three groups, for each of which there are 32 zones, and each plan for one takes gangs out one after the other.
#[test]
fn a_plan_that_would_take_more_fills_is_whole_and_ends() {
    let mut f = Fixture::new();
    f.instance_type("large", 64, 256);
    for zone in 0..32 {
        f.offering(&format!("z{zone:02}"), "on-demand", 10 + zone);
    }
    f.pool("default");
    for index in 0..12 {
        let group = format!("gang-{index:02}");
        f.pod_group(&group, Some(2));
        f.pod(&format!("{group}-small")).requests(100, gib(1)).group(&group);
        f.pod(&format!("{group}-large")).requests(99_000, gib(1)).group(&group);
    }
    for group in ["x", "y", "z"] {
        f.pod_group_in_one(group, Some(2), ZONE);
        for index in 0..2 {
            f.pod(&format!("{group}-{index}")).requests(100, gib(1)).group(group);
        }
    }
    f.pod("other").requests(100, gib(1));
    let snapshot = f.snapshot();
    let name = |pod: &PodId| &*snapshot.pods[*pod].pod.name.name;
    let (plan, taken) = planned(&snapshot, MAX_FILLS);
    check(&snapshot, &plan);
    assert!((MAX_FILLS - KEPT_BACK..=MAX_FILLS).contains(&taken), "{taken}");
    let placed: Vec<&str> = plan.machines.iter().flat_map(|machine| &machine.pods).map(name).collect();
    assert!(placed.contains(&"other") && placed.contains(&"x-0"), "the first group was tried in all zones: {placed:?}");
    let gangs = plan.refusals.iter().filter(|refusal| name(&refusal.pod).starts_with("gang-"));
    assert_eq!(gangs.count(), 24, "half of each fits nowhere");
}
