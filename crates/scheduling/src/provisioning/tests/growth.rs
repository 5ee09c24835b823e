//! What is kept of larger sizes of open machines is what looking at each offering finds.

use model::PriceNanoUsdPerHour;

use super::fixture::{Fixture, gib};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};

const ZONE: &str = api::labels::ZONE;

/// By alternative of the class in the machine's pool: (copies, price), cheapest first.
type Steps = Vec<Vec<(u32, PriceNanoUsdPerHour)>>;

fn kept(packing: &mut Packing<'_>, id: BinId, class: ClassId) -> Steps {
    let bin = &packing.state.bins[id.0];
    let table = &packing.problem.pools[bin.pool];
    let of_alternative = |alternative| {
        let growth = packing.state.growths.of(id, bin, table, alternative);
        if growth.least().is_none() {
            return Vec::new();
        }
        (0..).map_while(|index| growth.step(index, bin, table, |_| false)).collect()
    };
    table.by_class[class].iter().map(of_alternative).collect()
}

/// What one copy more adds is kept too, and no more than the first step adds.
fn check_added(packing: &mut Packing<'_>, id: BinId, class: ClassId, steps: &Steps) {
    let (pool, price) = (packing.state.bins[id.0].pool, packing.state.bins[id.0].price);
    let (table, bins) = (&packing.problem.pools[pool], packing.state.bins.len());
    let alternatives = &table.by_class[class];
    let rows = packing.state.growths.rows(pool, alternatives.iter().map(|alternative| alternative.fit), bins);
    for ((row, alternative), steps) in rows.into_iter().zip(alternatives).zip(steps) {
        let of_step = steps.first().map(|(_, of_step)| of_step.0 - price.0);
        for _ in ["asked first", "kept"] {
            match packing.state.growths.added(row, id, &packing.state.bins, table, alternative) {
                Some(added) => assert!(added >= 0 && of_step.is_none_or(|of_step| added <= of_step)),
                None => assert_eq!(of_step, None),
            }
        }
    }
}

fn by_looking(packing: &Packing<'_>, id: BinId, class: ClassId) -> Steps {
    let problem = packing.problem;
    let bin = &packing.state.bins[id.0];
    let table = &problem.pools[bin.pool];
    let of_alternative = |alternative: &crate::simulation::compile::pools::Alternative| {
        let mut steps: Vec<(u32, PriceNanoUsdPerHour)> = Vec::new();
        for &offering in &table.by_price {
            if !bin.offerings.contains(offering) || !alternative.offerings.contains(offering) {
                continue;
            }
            let mut free = table.net(offering).clone();
            free.saturating_sub_assign(&bin.requests);
            let copies = problem.classes[class].shape.requests.times_in(&free, u32::MAX);
            if copies > steps.last().map_or(0, |(most, _)| *most) {
                steps.push((copies, table.price(offering)));
            }
        }
        steps
    };
    table.by_class[class].iter().map(of_alternative).collect()
}

#[test]
fn larger_sizes_are_those_that_looking_at_each_offering_finds() {
    let mut f = Fixture::new();
    for cpus in 1..=12 {
        f.instance_type(&format!("t{cpus}"), cpus, 3 * cpus % 17 + 1);
        for zone in ["za", "zb"] {
            f.offering(zone, "on-demand", 1000 * cpus + 7 * (cpus % 3)).offering(zone, "spot", 400 * cpus + 1);
        }
    }
    f.pool("p");
    for index in 0..4 {
        f.pod(&format!("free-{index}")).requests(700, gib(1));
        f.pod(&format!("picky-{index}")).requests(300, gib(2)).select(ZONE, "zb");
        f.pod(&format!("spread-{index}")).requests(900, gib(1)).label("app", "s").spread(ZONE, 1, "s");
    }
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let run = PlanRun::new(&problem);
    let mut packing = Packing::new(&problem, &run, Charging::Least);
    let classes: Vec<ClassId> = problem.classes.ids().collect();
    let (pool, table) = problem.pools.iter_enumerated().next().unwrap();
    for &class in &classes {
        packing.open_bin(pool, class, &table.by_class[class][0], 1);
    }
    let mut compared = 0;
    let mut compare = |packing: &mut Packing<'_>| {
        for id in (0..packing.state.bins.len()).map(BinId) {
            for &class in &classes {
                let expected = by_looking(packing, id, class);
                assert_eq!(kept(packing, id, class), expected);
                check_added(packing, id, class, &expected);
                compared += expected.iter().flatten().count();
            }
        }
    };
    compare(&mut packing);
    // Machines that hold more, and what they were before.
    let mark = packing.mark();
    for (id, &class) in (0..packing.state.bins.len()).map(BinId).zip(classes.iter().rev()) {
        for alternative in &table.by_class[class] {
            if packing.copies_in_bin(id, class, alternative, 1).so_far() == 1 {
                packing.place_in_bin(id, class, alternative, 1);
            }
        }
    }
    compare(&mut packing);
    packing.rollback(mark);
    compare(&mut packing);
    assert!(compared > 50, "sizes to compare: {compared}");
}
