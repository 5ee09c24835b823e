//! When Karpenter's order of packing is tried, so that no plan is dearer.

use model::{Id as _, IdVec};

use super::fixture::{Fixture, gib};
use crate::provisioning::{
    classes::ClassId,
    karpenter::{MAX_WORK, work},
    problem::Problem,
};

/// Whether the order is tried for so many pods that want a host each, and so many others, if a plan takes so many machines.
fn is_tried(f: &Fixture, copies: [u32; 2], machines: usize) -> bool {
    let snapshot = f.snapshot();
    let problem = Problem::new(&snapshot);
    let placed: IdVec<ClassId, u32> = problem.classes.ids().map(|class| copies[class.index()]).collect();
    work(&problem, &placed, machines) <= MAX_WORK
}

#[test]
fn it_is_tried_where_it_takes_few_machines_however_many_another_plan_takes() {
    let mut f = Fixture::new();
    f.instance_type("small", 2, 8).offering("a", "on-demand", 10);
    f.instance_type("large", 64, 256).offering("a", "on-demand", 320);
    f.pool("default");
    f.pod("other").requests(1000, gib(1));
    f.pod("alone").requests(100, gib(1)).label("app", "x").away_from(api::labels::HOSTNAME, "x");
    // 47 machines for 3,000 pods.
    assert!(is_tried(&f, [0, 3000], 1000));
    assert!(!is_tried(&f, [0, 10_000], 2000));
    // A host each.
    assert!(is_tried(&f, [400, 0], 400));
    assert!(!is_tried(&f, [3000, 0], 3000));
    // The plan itself takes no more.
    assert!(is_tried(&f, [3000, 0], 20));
}
