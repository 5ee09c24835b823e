//! Room that others make among more pods than are searched.

use super::fixture::{Fixture, gib};
use crate::plan::Plan;
use crate::provisioning::plan;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};
use crate::tuning::MAX_SEARCHED;

const ZONE: &str = api::labels::ZONE;

/// So many pods that an exact search is not begun, on a node of their own.
fn many() -> Fixture {
    let mut f = Fixture::new();
    f.instance_type("only", 4, 16).offering("za", "on-demand", 10).offering("zb", "on-demand", 10);
    f.pool("default").limit("cpu", 4000, 4000);
    f.node("bulk").label("kind", "bulk").allocatable(110_000, gib(110));
    f.node("bulk-1").label("kind", "bulk").allocatable(110_000, gib(110));
    f.node("bulk-2").label("kind", "bulk").allocatable(110_000, gib(110));
    f.node("bulk-3").label("kind", "bulk").allocatable(110_000, gib(110));
    for index in 0..=MAX_SEARCHED {
        let _ = f.pod(&format!("bulk-{index}")).requests(1000, gib(1)).select("kind", "bulk").priority(10);
    }
    f
}

fn left(plan: &Plan) -> usize {
    plan.refusals.len()
}

#[test]
fn pods_leave_a_node_that_others_need_for_one_that_these_cannot_have() {
    let mut f = many();
    f.node("a").label(ZONE, "za").allocatable(4000, gib(16));
    f.node("b").label(ZONE, "zb").allocatable(4000, gib(16));
    for index in 0..4 {
        let _ = f.pod(&format!("any-{index}")).requests(2000, gib(1)).select(ZONE, if index < 2 { "zb" } else { "za" });
    }
    let without = left(&plan(&f.snapshot()));
    assert_eq!(without, 0, "there is room for these");
    let mut f = many();
    f.node("a").label(ZONE, "za").allocatable(4000, gib(16));
    f.node("b").label(ZONE, "zb").allocatable(4000, gib(16));
    for index in 0..2 {
        let _ = f.pod(&format!("any-{index}")).requests(2000, gib(1)).tolerate("x", "y");
    }
    for index in 0..8 {
        let _ = f.pod(&format!("picky-{index}")).requests(1000, gib(1)).select(ZONE, "za");
    }
    // Four on the node, four on the one machine within the limit.
    assert_eq!(left(&plan(&f.snapshot())), 0);
}

#[test]
fn pods_leave_a_machine_for_a_node() {
    let mut f = many();
    f.node("b").label(ZONE, "zb").allocatable(2000, gib(16));
    let _ = f.pod("large").requests(4000, gib(1)).tolerate("x", "y").priority(5);
    f.node("c").label(ZONE, "zb").allocatable(4000, gib(16));
    let _ = f.pod("picky").requests(1000, gib(1)).select(ZONE, "za");
    assert_eq!(left(&plan(&f.snapshot())), 0);
}

#[test]
fn a_machine_that_copies_leave_is_what_it_was_without_them() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 8).offering("za", "on-demand", 10).offering("zb", "on-demand", 9);
    f.instance_type("large", 8, 32).offering("za", "on-demand", 40).offering("zb", "on-demand", 41);
    f.pool("default");
    f.pod("a").requests(1000, gib(1));
    f.pod("b").requests(500, gib(6)).select(ZONE, "za");
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let (pool, table) = problem.pools.iter_enumerated().next().unwrap();
    let classes: Vec<ClassId> = problem.classes.ids().collect();
    let [one, other] = classes[..] else { panic!("two classes") };
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    packing.open_bin(pool, one, &table.by_class[one][0], 1);
    let before = format!("{:?} {}", packing.state.bins, packing.state.price());
    let mark = packing.mark();
    packing.place_in_bin(BinId(0), other, &table.by_class[other][0], 1);
    let with = format!("{:?} {}", packing.state.bins, packing.state.price());
    assert_ne!(before, with);
    let inner = packing.mark();
    packing.take_from_bin(BinId(0), (other, 0), 1);
    assert_eq!(format!("{:?} {}", packing.state.bins, packing.state.price()), before);
    packing.rollback(inner);
    assert_eq!(format!("{:?} {}", packing.state.bins, packing.state.price()), with);
    assert_eq!(packing.state.assignments.iter().map(|assignment| assignment.copies).collect::<Vec<_>>(), [1, 1]);
    packing.commit(mark);
}
