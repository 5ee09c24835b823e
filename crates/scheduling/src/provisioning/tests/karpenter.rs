//! Karpenter's order of packing, against going through all machines for each pod; and that no plan is dearer.

use model::{IdVec, ResourceId};

use super::fixture::{Fixture, gib};
use crate::plan::Plan;
use crate::provisioning::orders::karpenter;
use crate::provisioning::{plan, plan_in_karpenters_order};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};
use crate::simulation::placing::fill::on_nodes;

/// Numbers that look random, and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Deployments of which some are spread, some have a port or a host each, and some want to be near to each other.
fn cluster(numbers: &mut Numbers) -> Fixture {
    let mut f = Fixture::new();
    for (name, cpu) in [("small", 2), ("medium", 4), ("large", 16)] {
        let price = cpu * 10 - i64::try_from(numbers.below(5)).unwrap();
        let memory = cpu * (2 + i64::try_from(numbers.below(3)).unwrap());
        f.instance_type(name, cpu, memory).offering("za", "on-demand", price).offering("zb", "on-demand", price + 1);
    }
    f.pool("default");
    if numbers.below(3) == 0 {
        f.pool("limited").weight(5).limit("cpu", 24_000, 24_000);
    }
    for node in 0..numbers.below(6) {
        let zone = ["za", "zb"][usize::try_from(numbers.below(2)).unwrap()];
        f.node(&format!("n{node}")).label(api::labels::ZONE, zone).allocatable(4000, gib(8));
    }
    for class in 0..1 + numbers.below(12) {
        let app = format!("a{class}");
        let (cpu, memory) = (100 * (1 + numbers.below(15)), 1 + numbers.below(4));
        let kind = numbers.below(8);
        let group = format!("a{}", numbers.below(class + 1));
        for copy in 0..1 + numbers.below(8) {
            let pod = f.pod(&format!("{app}-{copy}"));
            let pod = pod.requests(i64::try_from(cpu).unwrap(), gib(i64::try_from(memory).unwrap())).label("app", &app);
            let _ = match kind {
                0 => pod.spread(api::labels::ZONE, 1, &app),
                1 => pod.spread(api::labels::HOSTNAME, 1, &app),
                2 => pod.away_from(api::labels::HOSTNAME, &group),
                3 => pod.near(api::labels::ZONE, &group),
                4 => pod.port("0.0.0.0", 80, model::pod::Protocol::Tcp),
                5 => pod.select(api::labels::ZONE, "zb"),
                _ => pod,
            };
        }
    }
    f
}

/// Pod by pod, asking every machine, those with fewest pods first.
fn pod_by_pod(packing: &mut Packing<'_>, waiting: &mut IdVec<ClassId, u32>) {
    let problem = packing.problem;
    let mut order: Vec<ClassId> = waiting.ids().filter(|&class| !problem.classes[class].is_refused()).collect();
    let size = |class: ClassId, resource| std::cmp::Reverse(problem.classes[class].shape.requests.get(resource));
    order.sort_by_key(|&class| (size(class, ResourceId::CPU), size(class, ResourceId::MEMORY), class));
    loop {
        let before: u32 = waiting.iter().sum();
        for &class in &order {
            while waiting[class] > 0 && place_one(packing, class) {
                waiting[class] -= 1;
            }
        }
        if waiting.iter().sum::<u32>() == before {
            return;
        }
    }
}

fn place_one(packing: &mut Packing<'_>, class: ClassId) -> bool {
    let problem = packing.problem;
    if on_nodes(packing, class, 1).so_far() == 0 {
        return true;
    }
    let pods = |id: usize| -> u32 { packing.state.bins[id].contents.iter().map(|(_, _, copies)| copies).sum() };
    let mut open: Vec<(u32, usize)> = (0..packing.state.bins.len()).map(|id| (pods(id), id)).collect();
    open.sort_unstable();
    for (_, id) in open {
        for way in &problem.pools[packing.state.bins[id].pool].by_class[class] {
            if packing.copies_in_bin(BinId(id), class, way, 1).so_far() == 1 {
                packing.place_in_bin(BinId(id), class, way, 1);
                return true;
            }
        }
    }
    for (pool, table) in problem.pools.iter_enumerated() {
        for way in &table.by_class[class] {
            if packing.copies_in_new_bin(pool, class, way, 1).so_far() == 1 {
                packing.open_bin(pool, class, way, 1);
                return true;
            }
        }
    }
    false
}

/// What each machine holds, what is free on each node, and what has no place.
fn outcome(problem: &Problem<'_>, place: impl Fn(&mut Packing<'_>, &mut IdVec<ClassId, u32>)) -> String {
    let run = PlanRun::new(problem);
    let mut packing = Packing::new(problem, &run, Charging::Least);
    let mut waiting: IdVec<ClassId, u32> = problem.classes.iter().map(|class| class.count()).collect();
    place(&mut packing, &mut waiting);
    let machines: Vec<_> = packing.state.bins.iter().map(|bin| (bin.pool, &bin.contents, bin.price)).collect();
    format!("{machines:?} {:?} {waiting:?}", packing.state.room)
}

#[test]
fn pods_go_where_they_would_if_each_asked_every_machine() {
    let mut machines = 0;
    for seed in 0..150 {
        let f = cluster(&mut Numbers(seed));
        let snapshot = f.snapshot();
        let request = Request::of(&snapshot);
        let problem = Problem::new(&request);
        let expected = outcome(&problem, pod_by_pod);
        let found = outcome(&problem, |packing, waiting| assert!(karpenter::place(packing, waiting, false)));
        assert_eq!(found, expected, "seed {seed}");
        machines += plan_in_karpenters_order(&snapshot).machines.len();
    }
    assert!(machines > 250, "{machines} machines: the cases say nothing");
}

fn cost(plan: &Plan) -> (usize, i64) {
    (plan.refusals.len(), plan.price.0)
}

#[test]
fn no_plan_is_dearer_however_many_pods_and_machines_it_has() {
    let mut f = Fixture::new();
    for cpu in [4_i64, 8] {
        let of_type = f.instance_type(&format!("cpu-{cpu}"), cpu, 4 * cpu);
        for (zone, more) in [("za", 0), ("zb", 1), ("zc", 2)] {
            of_type.offering(zone, "on-demand", 100 * cpu + more);
        }
    }
    f.pool("default");
    let mut numbers = Numbers(1);
    for index in 0..1500 {
        let (cpu, memory) = (100 + 10 * numbers.below(140), 1 + numbers.below(6));
        let app = format!("a{index}");
        let pod = f.pod(&format!("p{index}")).label("app", &app);
        let _ = pod.requests(i64::try_from(cpu).unwrap(), gib(i64::try_from(memory).unwrap())).spread(
            api::labels::ZONE,
            1,
            &app,
        );
    }
    let snapshot = f.snapshot();
    let (ours, theirs) = (plan(&snapshot), plan_in_karpenters_order(&snapshot));
    assert!(theirs.machines.len() * 1500 > 200_000, "{} machines", theirs.machines.len());
    assert!(cost(&ours) <= cost(&theirs), "{:?}, in Karpenter's order {:?}", cost(&ours), cost(&theirs));
}
