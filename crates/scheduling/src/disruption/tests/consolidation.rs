//! Consolidation: each rule on a fleet of its own, and small random fleets against all that could be done.

mod asked_for;
mod domains;
mod exact;
mod extremes;
mod large;
mod memory;

use std::sync::Arc;

use api::labels;
use model::{DurationMs, Timestamp};

use super::{allow, fleet, of, render};
use crate::disruption::plan::{Command, DisruptionPlan};
use crate::disruption::plan_disruption;
use crate::disruption::reason::NodeReason;
use crate::provisioning::tests::fixture::{Fixture, PodFixture, gib};
use crate::snapshot::fleet::{ClaimFacts, ConsolidationPolicy, Fleet, Reason};
use crate::snapshot::{NodeState, Snapshot};

/// A cent, in nano-dollars.
const CENT: i64 = 10_000_000;

/// Types by CPUs, with what they cost.
const TYPES: [(&str, i64, i64); 3] = [("small", 2, 10 * CENT), ("medium", 4, 19 * CENT), ("large", 8, 36 * CENT)];

/// A pool `p` of these types in one zone.
fn fixture() -> Fixture {
    let mut f = Fixture::new();
    for (name, cpu, price) in TYPES {
        f.instance_type(name, cpu, 4 * cpu).offering("za", "on-demand", price);
    }
    f.pool("p");
    f
}

/// A machine of ours of that type, with pods of so many milli-CPUs.
fn machine(f: &mut Fixture, name: &str, of_type: &str, pods: &[i64]) {
    let (_, cpu, _) = TYPES.into_iter().find(|(known, _, _)| *known == of_type).unwrap();
    f.node(name).label(labels::ZONE, "za").label(labels::INSTANCE_TYPE, of_type);
    f.label(labels::CAPACITY_TYPE, "on-demand").allocatable(1000 * cpu, gib(4 * cpu)).claim(name).of_pool("p");
    for (index, milli_cpu) in pods.iter().enumerate() {
        f.pod(&format!("{name}-{index}")).requests(*milli_cpu, gib(1) / 4).runs();
    }
}

/// The fleet with each machine at the price of what its labels say.
fn priced(snapshot: &Snapshot) -> Fleet {
    let mut fleet = fleet(snapshot);
    let names = &snapshot.interner;
    for machine in &mut fleet.nodes {
        let crate::snapshot::NodeLabels::Known(known) = &snapshot.nodes[machine.node].labels else { continue };
        let label = |key: &str| Some(names.value_name(known.get(names.find_key(key)?)?));
        let (pool, _) = snapshot.node_pools.iter_enumerated().next().unwrap();
        let catalogue = &snapshot.node_pools[pool].catalogue;
        let is_it = |offering: &crate::catalogue::Offering| {
            Some(catalogue.types[offering.instance_type].name.as_str()) == label(labels::INSTANCE_TYPE)
                && Some(offering.capacity_type.as_str()) == label(labels::CAPACITY_TYPE)
        };
        let offering = catalogue.offerings.iter_enumerated().find(|(_, offering)| is_it(offering));
        machine.machine.offering = offering.map(|(id, offering)| (pool, id, offering.price));
        machine.machine.instance_type = label(labels::INSTANCE_TYPE).map(Into::into);
        machine.machine.capacity_type = label(labels::CAPACITY_TYPE).map(Into::into);
        machine.machine.zone = Some("za".into());
    }
    fleet
}

fn planned(f: &Fixture, change: impl FnOnce(&mut Fleet, &mut Snapshot)) -> (Snapshot, DisruptionPlan) {
    let mut snapshot = f.snapshot();
    // Any saving pays, unless a test says otherwise.
    snapshot.options.disruption.eviction_price_nano_usd = 0;
    let mut fleet = priced(&snapshot);
    change(&mut fleet, &mut snapshot);
    snapshot.fleet = Some(Arc::new(fleet));
    let plan = plan_disruption(&snapshot);
    (snapshot, plan)
}

/// What goes, by name; and what that saves.
fn going(snapshot: &Snapshot, plan: &DisruptionPlan) -> (Vec<String>, i64) {
    let saves = |command: &&Command| command.reason == Reason::Underutilized;
    let commands: Vec<&Command> = plan.commands.iter().filter(saves).collect();
    let mut nodes: Vec<String> = commands
        .iter()
        .flat_map(|command| &command.nodes)
        .map(|node| snapshot.nodes[*node].display_name().to_owned())
        .collect();
    nodes.sort();
    (nodes, commands.iter().map(|command| command.saving.0).sum())
}

#[track_caller]
fn check(
    f: &Fixture,
    change: impl FnOnce(&mut Fleet, &mut Snapshot),
    expected: (&[&str], i64),
    codes: &[(&str, &str)],
) -> DisruptionPlan {
    let (snapshot, plan) = planned(f, change);
    let text = render(&snapshot, &plan);
    let (nodes, saving) = going(&snapshot, &plan);
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    assert_eq!((nodes, saving), (expected.0.to_vec(), expected.1 * CENT), "{text}");
    for (node, code) in codes {
        let reason = plan.node_reasons.iter().find(|(id, _)| snapshot.nodes[*id].display_name() == *node);
        assert_eq!(reason.map(|(_, reason)| reason.code()), Some(*code), "{node}: {text}");
    }
    plan
}

#[test]
fn a_machine_goes_whose_pods_find_room_elsewhere_the_dearest_per_eviction_first() {
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[1000]);
    machine(&mut f, "b", "medium", &[1000, 500]);
    machine(&mut f, "full", "small", &[2000]);
    let plan = check(&f, |_, _| (), (&["a"], 19), &[("b", "TakesPods"), ("full", "NoSaving")]);
    assert_eq!(plan.commands[0].moves.len(), 1);
    assert!(plan.fleet_bound.is_some_and(|bound| bound <= plan.fleet_price.after), "{:?}", plan.fleet_bound);
}

#[test]
fn a_machine_is_replaced_by_a_cheaper_one_that_keeps_cheaper_types_only() {
    let mut f = fixture();
    machine(&mut f, "a", "large", &[1000, 500]);
    let plan = check(&f, |_, _| (), (&["a"], 26), &[]);
    let simulated = plan.simulated.unwrap();
    let machine = &simulated.plan.machines[plan.commands[0].replacements[0]];
    let types = &simulated.snapshot.node_pools[machine.node_pool].catalogue.types;
    let names: Vec<&str> = machine.instance_types.iter().map(|id| types[*id].name.as_str()).collect();
    assert_eq!(names, ["small", "medium"]);
}

#[test]
fn two_machines_take_the_place_of_three() {
    let mut f = Fixture::new();
    // Three at 20 with a pod of 5 and one of 1 CPU each; two at 25 hold all of them.
    f.instance_type("six", 6, 24).offering("za", "on-demand", 20 * CENT);
    f.instance_type("ten", 10, 40).offering("za", "on-demand", 25 * CENT);
    f.pool("p");
    for name in ["a", "b", "c"] {
        f.node(name).label(labels::ZONE, "za").label(labels::INSTANCE_TYPE, "six");
        f.label(labels::CAPACITY_TYPE, "on-demand").allocatable(6000, gib(24)).claim(name).of_pool("p");
        f.pod(&format!("{name}-0")).requests(5000, gib(1)).runs();
        f.pod(&format!("{name}-1")).requests(1000, gib(1)).runs();
    }
    let plan = check(&f, |_, _| (), (&["a", "b", "c"], 10), &[]);
    assert_eq!(plan.commands[0].replacements.len(), 2);
}

#[test]
fn where_nothing_can_be_gained_nothing_is_tried_and_the_bound_says_so() {
    let mut f = fixture();
    // The cheapest per CPU, and full.
    for name in ["a", "b"] {
        machine(&mut f, name, "large", &[4000, 4000]);
    }
    let plan = check(&f, |_, _| (), (&[], 0), &[("a", "NothingToGain"), ("b", "NothingToGain")]);
    let bound = plan.fleet_bound.unwrap().0;
    // Rounded down for each of four pods.
    assert!((72 * CENT - 8..=72 * CENT).contains(&bound), "{bound}");
}

#[test]
fn policies_quiet_buffers_and_budgets_hold_machines() {
    let mut f = fixture();
    for name in ["a", "b", "c"] {
        machine(&mut f, name, "large", &[500]);
    }
    let policy = |policy: ConsolidationPolicy| {
        move |fleet: &mut Fleet, _: &mut Snapshot| fleet.pools.values_mut().for_each(|pool| pool.policy = policy)
    };
    check(&f, policy(ConsolidationPolicy::WhenEmpty), (&[], 0), &[("a", "PolicyWhenEmpty")]);
    check(&f, |fleet, _| allow(fleet, 1), (&["a"], 36), &[("c", "Budget")]);
    check(&f, |fleet, _| allow(fleet, 0), (&[], 0), &[("a", "Budget"), ("b", "Budget"), ("c", "Budget")]);
    let never = |fleet: &mut Fleet, _: &mut Snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = None);
    };
    check(&f, never, (&[], 0), &[("a", "ConsolidationOff")]);
    // One that is not quiet stays, and takes nobody.
    let unquiet = |fleet: &mut Fleet, snapshot: &mut Snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.consolidate_after = Some(DurationMs::from_seconds(30)));
        of(fleet, snapshot, "c").claim =
            ClaimFacts { last_pod_event: Some(Timestamp::default()), ..Default::default() };
    };
    let plan = check(&f, unquiet, (&["a", "b"], 62), &[("c", "NotQuiet")]);
    assert_eq!(plan.commands[0].replacements.len(), 1);
    f.pod("burst").requests(7000, gib(1)).buffered(1);
    check(&f, |_, _| (), (&["b", "c"], 62), &[("a", "HoldsBuffer")]);
}

#[test]
fn room_that_pods_which_wait_have_got_is_not_given_away() {
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[1000]);
    machine(&mut f, "b", "medium", &[1000]);
    f.pod("waits").requests(2500, gib(1)).select(labels::HOSTNAME, "b");
    check(&f, |_, _| (), (&["a"], 9), &[("b", "Nominated")]);
}

#[test]
fn machines_that_are_still_coming_up_take_nobody() {
    let mut f = fixture();
    machine(&mut f, "a", "large", &[500]);
    machine(&mut f, "coming", "medium", &[]);
    f.state(NodeState::Registered);
    // The only new machine that is cheaper would be a small one; the pod may not go to the other.
    let plan = check(&f, |_, _| (), (&["a"], 26), &[("coming", "NotInitialized")]);
    assert_eq!(plan.commands[0].replacements.len(), 1);
}

#[test]
fn evictions_have_to_pay_within_the_horizon() {
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[1000]);
    machine(&mut f, "b", "medium", &[1000, 500]);
    let price = |price: i64, hours: i64| {
        move |_: &mut Fleet, snapshot: &mut Snapshot| {
            snapshot.options.disruption.eviction_price_nano_usd = price * CENT;
            snapshot.options.disruption.consolidation_horizon = DurationMs::from_seconds(3600 * hours);
        }
    };
    check(&f, price(19, 1), (&["a"], 19), &[]);
    check(&f, price(20, 1), (&[], 0), &[("a", "CannotPay")]);
    check(&f, price(20, 2), (&["a"], 19), &[]);
}

/// A spot machine of the dearest of so many types, whose pod would fit on the least of them.
fn spot(types: i64) -> Fixture {
    let mut f = Fixture::new();
    for cpu in 1..=types {
        f.instance_type(&format!("t{cpu:02}"), cpu, 4 * cpu).offering("za", "spot", 10 * CENT * cpu);
    }
    f.pool("p");
    f.node("a").label(labels::ZONE, "za").label(labels::INSTANCE_TYPE, &format!("t{types:02}"));
    f.label(labels::CAPACITY_TYPE, "spot").allocatable(1000 * types, gib(4 * types)).claim("a").of_pool("p");
    f.pod("web").requests(500, gib(1)).runs();
    f
}

#[test]
fn a_spot_machine_is_replaced_by_another_if_the_gate_is_on_and_fifteen_types_are_cheaper() {
    let on = |_: &mut Fleet, snapshot: &mut Snapshot| snapshot.options.disruption.spot_to_spot_consolidation = true;
    check(&spot(16), |_, _| (), (&[], 0), &[("a", "SpotToSpotOff")]);
    check(&spot(15), on, (&[], 0), &[("a", "TooFewCheaperTypes")]);
    let plan = check(&spot(20), on, (&["a"], 190), &[]);
    let simulated = plan.simulated.unwrap();
    assert_eq!(simulated.plan.machines[plan.commands[0].replacements[0]].instance_types.len(), 15);
}

#[test]
fn an_on_demand_machine_is_replaced_by_a_spot_machine_that_stays_one() {
    let mut f = Fixture::new();
    f.instance_type("t", 4, 16).offering("za", "spot", 4 * CENT).offering("za", "on-demand", 10 * CENT);
    f.pool("p");
    f.node("a").label(labels::ZONE, "za").label(labels::INSTANCE_TYPE, "t");
    f.label(labels::CAPACITY_TYPE, "on-demand").allocatable(4000, gib(16)).claim("a").of_pool("p");
    f.pod("web").requests(500, gib(1)).runs();
    let plan = check(&f, |_, _| (), (&["a"], 6), &[]);
    let simulated = plan.simulated.unwrap();
    let names = &simulated.snapshot.interner;
    let requirements = &simulated.plan.machines[plan.commands[0].replacements[0]].requirements;
    let capacity_type = requirements.get(names.find_key(labels::CAPACITY_TYPE).unwrap()).unwrap();
    assert_eq!(capacity_type.values.single_value().map(|value| names.value_name(value)), Some("spot"));
}

#[test]
fn cheaper_types_have_to_keep_min_values() {
    let mut f = fixture();
    f.min_values(labels::INSTANCE_TYPE, 3);
    machine(&mut f, "a", "large", &[500]);
    check(&f, |_, _| (), (&[], 0), &[("a", "MinValues")]);
    let mut f = fixture();
    f.min_values(labels::INSTANCE_TYPE, 2);
    machine(&mut f, "a", "large", &[500]);
    check(&f, |_, _| (), (&["a"], 26), &[]);
}

#[test]
fn policy_balanced_weighs_what_is_saved_against_what_is_disrupted() {
    let balanced = |fleet: &mut Fleet, _: &mut Snapshot| {
        fleet.pools.values_mut().for_each(|pool| pool.policy = ConsolidationPolicy::Balanced);
    };
    // Four of ten in disruption, three pods and a node; 9 of 91 in price.
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[500, 500, 500]);
    machine(&mut f, "c", "large", &[4000, 4000]);
    machine(&mut f, "d", "large", &[4000, 4000]);
    check(&f, balanced, (&[], 0), &[("a", "Balanced")]);
    check(&f, |_, _| (), (&["a"], 9), &[]);
    // All of it for half of the price.
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[1500]);
    check(&f, balanced, (&[], 0), &[("a", "Balanced")]);
    let mut f = fixture();
    machine(&mut f, "a", "large", &[1500]);
    let plan = check(&f, balanced, (&["a"], 26), &[]);
    let scores: Vec<_> = plan.scores.iter().map(|it| (it.command, &*it.node_pool, it.score_permille)).collect();
    // 26 of 36 in price, all of it in disruption.
    assert_eq!(scores, [(0, "p", 722)]);
    let plan = check(&f, |_, _| (), (&["a"], 26), &[]);
    assert!(plan.scores.is_empty(), "no NodePool has the policy");
}

#[test]
fn a_machine_without_a_known_price_and_one_of_which_a_pod_has_no_place_stay() {
    let mut f = fixture();
    machine(&mut f, "a", "medium", &[1000]);
    machine(&mut f, "b", "medium", &[]);
    f.label("disk", "fast");
    f.pod("tied").requests(1000, gib(1)).select("disk", "fast").runs();
    let unknown = |fleet: &mut Fleet, snapshot: &mut Snapshot| {
        of(fleet, snapshot, "a").machine.offering = None;
    };
    check(&f, unknown, (&[], 0), &[("a", "PriceUnknown"), ("b", "NoPlace")]);
}

#[test]
fn what_has_drifted_goes_first_and_what_saves_goes_beside_it() {
    let mut f = fixture();
    machine(&mut f, "drifted", "large", &[7000]);
    machine(&mut f, "a", "large", &[500]);
    machine(&mut f, "b", "small", &[500]);
    let plan = check(
        &f,
        |fleet, snapshot| super::drifted(fleet, snapshot, &["drifted"]),
        (&["b"], 10),
        &[("drifted", "Goes"), ("a", "TakesPods")],
    );
    let reasons: Vec<Reason> = plan.commands.iter().map(|command| command.reason).collect();
    assert_eq!(reasons, [Reason::Drifted, Reason::Underutilized]);
    let is_told = |(_, reason): &(_, NodeReason)| matches!(reason, NodeReason::Goes { .. });
    assert_eq!(plan.node_reasons.iter().filter(|it| is_told(it)).count(), 2);
}
