//! Claims that are kept apart because the scheduler may come to them in another order.

use expect_test::expect;
use model::{Answer, SearchEnd};
use serde_json::json;

use super::{GPU, mixed};
use crate::provisioning::{
    plan,
    tests::{
        check,
        fixture::{exactly, gib},
        vacate::class_of,
    },
};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::Replaying;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::{BinId, Charging};
use crate::tuning::REPLAYS;

#[test]
fn claims_that_could_take_each_others_devices_are_kept_apart_and_the_plan_says_what_that_costs() {
    let mut f = mixed();
    f.pod("picky").requests(2000, gib(1)).claims_from("large");
    f.pod("any").requests(1000, gib(1)).claims_from("any");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [picky]
        machine default-1: mixed/a/on-demand $0.0000001/h types [mixed] devices [1 gpu.example.com] pods [any]
    "#]],
    );
    let snapshot = f.snapshot();
    assert_eq!(plan(&snapshot).kept_apart.map(|price| price.0), Some(100));
}

#[test]
fn an_answer_for_which_replays_ran_out_says_so_each_time_it_is_asked_for() {
    let mut f = mixed();
    f.pod("picky").requests(2000, gib(1)).claims_from("large");
    f.pod("any").requests(1000, gib(1)).claims_from("any");
    let snapshot = f.snapshot();
    let request = Request::of(&snapshot);
    let problem = Problem::new(&request);
    let (picky, any) = (class_of(&problem, "picky"), class_of(&problem, "any"));
    for end in [SearchEnd::Finished, SearchEnd::OutOfBudget] {
        let run = PlanRun::new(&problem);
        if end.is_out_of_budget() {
            assert!(run.devices().may_replay(REPLAYS, Replaying::Placing), "all of them are left");
        }
        let mut packing = Packing::new(&problem, &run, Charging::Least);
        let (pool, table) = problem.pools.iter_enumerated().next().unwrap();
        packing.open_bin(pool, picky, &table.by_class[picky][0], 1);
        for time in ["first", "second"] {
            let copies = packing.copies_in_bin(BinId(0), any, &table.by_class[any][0], 1);
            assert_eq!(copies, Answer::new(0, end), "asked for the {time} time");
        }
    }
}

#[test]
fn claims_that_every_order_serves_share_a_machine_and_nothing_is_said() {
    let mut f = mixed();
    f.claim_template("another", &json!({"requests": [exactly("other", GPU, 1)]}));
    f.pod("one").requests(2000, gib(1)).claims_from("any");
    f.pod("other").requests(1000, gib(1)).claims_from("another");
    check(
        &f,
        expect![[r#"
        machine default-0: mixed/a/on-demand $0.0000001/h types [mixed] devices [2 gpu.example.com] pods [one, other]
    "#]],
    );
    assert_eq!(plan(&f.snapshot()).kept_apart, None);
}

#[test]
fn a_pod_that_has_to_wait_for_the_sake_of_anothers_claim_is_told_so() {
    let mut f = mixed();
    f.node("n1").allocatable(8000, gib(32)).label("here", "yes");
    f.slice("n1-gpus", GPU, ("nodeName", "n1".into()), 1);
    let device = |name: &str, size: &str| json!({"name": name, "attributes": {"size": {"string": size}}});
    f.republish("n1-gpus", &json!([device("d0", "large"), device("d1", "small")]));
    f.pod("picky").requests(2000, gib(1)).claims_from("large").select("here", "yes");
    f.pod("any").requests(1000, gib(1)).claims_from("any").select("here", "yes");
    check(
        &f,
        expect![[r#"
            node n1: [picky]
            refused any (DoesNotFit): none of 1 existing nodes fits: 1 does not have the devices it claims (the scheduler may come to the claims planned there in an order that leaves one without devices); nodepool/default: wants here In [yes], but its machines will not have that label; add it to the NodePool's labels or requirements; it would fit a new machine if nodepool/default had here In [yes] and with other devices
        "#]],
    );
}
