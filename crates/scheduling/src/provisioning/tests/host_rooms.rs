//! What is kept of rules over hosts is what asking for each machine finds.

use super::fixture::{Fixture, gib};
use crate::provisioning::{
    classes::ClassId,
    host_rooms::ANY,
    problem::Problem,
    state::{BinId, Charging, State},
    topology::Checking,
};

const HOST: &str = api::labels::HOSTNAME;

/// Asks for each machine and class twice, the second time for what is kept; says how many answers there were of 0, of a few
/// and of any number of copies.
fn compare(problem: &Problem<'_>, state: &mut State) -> [usize; 3] {
    let mut seen = [0; 3];
    for checking in [Checking::Stepwise, Checking::AtTheEnd] {
        state.checking = checking;
        for class in problem.classes.ids() {
            for (_, table) in problem.pools.iter_enumerated() {
                let ways = &table.by_class[class];
                let rows = state.host_rooms.rows(problem, class, checking, ways.iter(), state.bins.len());
                for (way, row) in ways.iter().zip(rows) {
                    let row = row.expect("with machines to launch the least of hosts stays 0");
                    for id in (0..state.bins.len()).map(BinId) {
                        let asked = state.copies_allowed_on_host(problem, id, class, way, ANY);
                        if let Some(known) = state.host_rooms.copies(row, id) {
                            assert_eq!(known, asked);
                        }
                        state.host_rooms.keep(row, id, asked);
                        assert_eq!(state.host_rooms.copies(row, id), Some(asked));
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
    state.checking = Checking::Stepwise;
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
    let problem = Problem::new(&snapshot);
    let mut state = State::new(&problem, Charging::Least);
    let classes: Vec<ClassId> = problem.classes.ids().collect();
    let (pool, table) = problem.pools.iter_enumerated().next().unwrap();
    for &class in &classes {
        state.open_bin(&problem, pool, class, &table.by_class[class][0], 1);
    }
    let mut seen = compare(&problem, &mut state);
    let mark = state.mark();
    for (id, &class) in (0..state.bins.len()).map(BinId).zip(classes.iter().rev()) {
        let way = &table.by_class[class][0];
        if state.copies_in_bin(&problem, id, class, way, 1) == 1 {
            state.place_in_bin(&problem, id, class, way, 1);
        }
    }
    for (all, more) in seen.iter_mut().zip(compare(&problem, &mut state)) {
        *all += more;
    }
    state.rollback(&problem, mark);
    compare(&problem, &mut state);
    assert!(seen.iter().all(|&answers| answers > 4), "none, a few, any: {seen:?}");
}
