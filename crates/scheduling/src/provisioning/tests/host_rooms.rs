//! What is kept of rules over hosts is what asking for each machine finds.

use super::fixture::{Fixture, gib};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::host_rooms::ANY;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};
use crate::simulation::topology::Checking;

const HOST: &str = api::labels::HOSTNAME;

/// Asks for each machine and class twice, the second time for what is kept; says how many answers there were of 0, of a
/// few and of any number of copies.
fn compare(packing: &mut Packing<'_>) -> [usize; 3] {
    let problem = packing.problem;
    let mut seen = [0; 3];
    for checking in [Checking::Stepwise, Checking::AtTheEnd] {
        for class in problem.classes.ids() {
            for (_, table) in problem.pools.iter_enumerated() {
                let ways = &table.by_class[class];
                let state = &mut packing.state;
                let asked = (problem, &state.counts);
                let rows = state.host_rooms.rows(asked, class, checking, ways.iter(), state.bins.len());
                for (way, row) in ways.iter().zip(rows) {
                    let row = row.expect("with machines to launch the least of hosts stays 0");
                    for id in (0..packing.state.bins.len()).map(BinId) {
                        let ask = |packing: &mut Packing<'_>| packing.copies_allowed_on_host(id, class, way, ANY);
                        let asked = packing.checking(checking, ask);
                        if let Some(known) = packing.state.host_rooms.copies(row, id) {
                            assert_eq!(known, asked);
                        }
                        packing.state.host_rooms.keep(row, id, asked);
                        assert_eq!(packing.state.host_rooms.copies(row, id), Some(asked));
                        seen[match asked {
                            0 => 0,
                            ANY => 2,
                            _ => 1,
                        }] += 1;
                    }
                }
            }
        }
    }
    seen
}

#[test]
fn what_rules_over_hosts_allow_is_kept_until_a_machine_changes() {
    let mut f = Fixture::new();
    f.instance_type("t", 64, 64).offering("za", "on-demand", 100);
    f.pool("p");
    for index in 0..3 {
        f.pod(&format!("free-{index}")).requests(100, gib(1));
        f.pod(&format!("alone-{index}")).requests(200, gib(1)).label("app", "a").away_from(HOST, "a");
        f.pod(&format!("spread-{index}")).requests(300, gib(1)).label("app", "s").spread(HOST, 2, "s");
        // Counted by others, and with a rule that does not count it.
        f.pod(&format!("counted-{index}")).requests(400, gib(1)).label("app", "s").away_from(HOST, "a");
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
    let mut seen = compare(&mut packing);
    let mark = packing.mark();
    for (id, &class) in (0..packing.state.bins.len()).map(BinId).zip(classes.iter().rev()) {
        let way = &table.by_class[class][0];
        if packing.copies_in_bin(id, class, way, 1).so_far() == 1 {
            packing.place_in_bin(id, class, way, 1);
        }
    }
    for (all, more) in seen.iter_mut().zip(compare(&mut packing)) {
        *all += more;
    }
    packing.rollback(mark);
    compare(&mut packing);
    assert!(seen.iter().all(|&answers| answers > 4), "none, a few, any: {seen:?}");
}
