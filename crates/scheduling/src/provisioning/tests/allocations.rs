//! Trials of pods without claims allocate nothing: they run on two buffers that the state keeps.

use super::fixture::{Fixture, gib};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};

const ZONE: &str = api::labels::ZONE;

/// Machines of many sizes in three zones, a limit, nodes; pods without rules, spread ones and such that exclude others.
fn fixture() -> Fixture {
    let mut f = Fixture::new();
    for cpus in 1..=40 {
        f.instance_type(&format!("t{cpus}"), cpus, 4 * cpus);
        for zone in ["za", "zb", "zc"] {
            f.offering(zone, "on-demand", 1000 * cpus + 1).offering(zone, "spot", 400 * cpus + 1);
        }
    }
    f.pool("p").limit("cpu", 100_000, 90_000);
    f.node("n").label(ZONE, "za").allocatable(3000, gib(10));
    for index in 0..3 {
        f.pod(&format!("free-{index}")).requests(700, gib(1));
        f.pod(&format!("picky-{index}")).requests(300, gib(1)).select(ZONE, "zb");
        f.pod(&format!("spread-{index}")).requests(900, gib(1)).label("app", "s").spread(ZONE, 1, "s");
        f.pod(&format!("alone-{index}")).requests(200, gib(1)).label("app", "l").away_from(api::labels::HOSTNAME, "l");
        f.pod(&format!("near-{index}")).requests(100, gib(1)).label("app", "n").near(ZONE, "n");
    }
    f
}

/// Asks about each class on each node, in each machine and in new ones; how many questions had an answer above zero.
fn ask(packing: &mut Packing<'_>) -> u32 {
    let problem = packing.problem;
    let mut answered = 0;
    for class in problem.classes.ids() {
        for wanted in [1, 3, 1000] {
            for &node in &problem.node_order {
                answered += u32::from(packing.copies_on_node(node, class, wanted).so_far() > 0);
            }
            for (pool, table) in problem.pools.iter_enumerated() {
                for alternative in &table.by_class[class] {
                    answered += u32::from(packing.copies_in_new_bin(pool, class, alternative, wanted).so_far() > 0);
                    for bin in (0..packing.state.bins.len()).map(BinId) {
                        answered += u32::from(packing.copies_in_bin(bin, class, alternative, wanted).so_far() > 0);
                    }
                }
            }
        }
    }
    answered
}

#[test]
fn a_trial_without_claims_allocates_no_memory() {
    let snapshot = fixture().snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    for class in problem.classes.ids() {
        for (pool, table) in problem.pools.iter_enumerated() {
            if let Some(first) = table.by_class[class].first()
                && packing.copies_in_new_bin(pool, class, first, 1).so_far() == 1
            {
                packing.open_bin(pool, class, first, 1);
            }
        }
    }
    assert!(packing.state.bins.len() >= 4, "machines to ask about: {}", packing.state.bins.len());
    // The buffers get their size.
    let answered = ask(&mut packing);
    assert!(answered > 50, "{answered}");
    let allocated = allocation_counter::measure(|| assert_eq!(ask(&mut packing), answered));
    assert_eq!(allocated.count_total, 0);
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![answered])));
    assert_eq!(counted.count_total, 1, "allocations are counted");
}
