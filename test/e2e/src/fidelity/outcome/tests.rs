use super::super::reading::Refusal;
use super::*;

fn pod(name: &str, node: Option<&str>) -> Pod {
    let class = name.split('-').next().unwrap_or_default().to_owned();
    let (name, uid, node) = (name.to_owned(), name.to_owned(), node.map(str::to_owned));
    Pod { name, uid, class, has_waited: true, node, refusal: None, unschedulable: None }
}

fn refused(name: &str, node: Option<&str>, verdict: &str) -> Pod {
    let message = format!("Failed to schedule pod, it {verdict}: nodepool/random-1: a rule");
    Pod { refusal: Some(Refusal(message)), ..pod(name, node) }
}

/// A machine whose NodeClaim and node have one name.
fn machine(name: &str, planned: &[&str]) -> Machine {
    Machine {
        name: name.to_owned(),
        node: Some(name.to_owned()),
        zone: "zone-a".to_owned(),
        is_new: true,
        planned: Some(planned.iter().map(|&uid| uid.to_owned()).collect()),
    }
}

fn there_before(name: &str, planned: &[&str]) -> Machine {
    Machine { is_new: false, ..machine(name, planned) }
}

/// Five pods that are where they were planned, and these.
fn judge(pods: Vec<Pod>, machines: Vec<Machine>) -> Outcome {
    let names = ["z-0", "z-1", "z-2", "z-3", "z-4"];
    let others = names.map(|name| pod(name, Some("others")));
    let machines = machines.into_iter().chain([machine("others", &names)]).collect();
    Reading { pods: pods.into_iter().chain(others).collect(), machines }.judge()
}

#[track_caller]
fn is_wrong(outcome: &Outcome, with: &[&str]) {
    let faults: Vec<&str> = outcome.faults().collect();
    assert!(with.iter().all(|with| faults.iter().any(|fault| fault.contains(with))), "{with:?} in {faults:#?}");
}

#[test]
fn pods_on_the_machines_that_name_them_are_exactly_as_planned() {
    let outcome = judge(vec![pod("a-0", Some("m")), pod("b-0", Some("m"))], vec![machine("m", &["a-0", "b-0"])]);
    assert!(outcome.is_as_planned(), "{outcome:?}");
    assert_eq!((outcome.exact, outcome.on_existing, outcome.exchanged, outcome.machines), (7, 0, 0, 2));
}

#[test]
fn a_pod_on_a_machine_that_was_there_is_as_planned_only_if_that_was_planned() {
    let planned = judge(vec![pod("a-0", Some("old"))], vec![there_before("old", &["gone", "a-0"])]);
    assert!(planned.is_as_planned(), "{planned:?}");
    assert_eq!((planned.exact, planned.on_existing), (6, 1));

    let elsewhere =
        judge(vec![pod("a-0", Some("older"))], vec![there_before("old", &["a-0"]), there_before("older", &[])]);
    assert!(elsewhere.is_as_planned(), "{elsewhere:?}");
    assert_eq!((elsewhere.exact, elsewhere.on_existing, elsewhere.moved.len()), (5, 0, 1));

    // That it left a new one is a fault, whoever was planned onto its place.
    let left = judge(
        vec![pod("a-0", Some("old")), pod("a-1", Some("older"))],
        vec![machine("m", &["a-0"]), there_before("old", &["a-1"]), there_before("older", &[])],
    );
    is_wrong(&left, &["m was planned for {\"a\": 1}", "old was planned for {} (pods by class), and holds {\"a\": 1}"]);

    // That it went elsewhere and exchanged its place with one of its class is none.
    let exchanged = judge(
        vec![pod("a-0", Some("m")), pod("a-1", Some("older"))],
        vec![machine("m", &["a-1"]), there_before("old", &["a-0"]), there_before("older", &[])],
    );
    assert!(exchanged.is_as_planned(), "{exchanged:?}");
    assert_eq!((exchanged.exact, exchanged.exchanged, exchanged.moved.len()), (5, 1, 1));

    let nowhere = judge(vec![pod("a-0", Some("old"))], vec![there_before("old", &[])]);
    assert!(nowhere.is_as_planned(), "{nowhere:?}");
    assert_eq!((nowhere.exact, nowhere.before_the_plan.len()), (5, 1));
}

#[test]
fn pods_of_a_class_may_exchange_their_places_and_others_may_not() {
    let machines = || vec![machine("m", &["a-0"]), there_before("old", &["a-1"])];
    let alike = judge(vec![pod("a-0", Some("old")), pod("a-1", Some("m"))], machines());
    assert!(alike.is_as_planned(), "{alike:?}");
    assert_eq!((alike.exact, alike.exchanged), (5, 2));

    let machines = vec![machine("m", &["a-0"]), machine("n", &["b-0"])];
    let others = judge(vec![pod("a-0", Some("n")), pod("b-0", Some("m"))], machines);
    is_wrong(&others, &["m was planned for {\"a\": 1} (pods by class), and holds {\"b\": 1}"]);
}

#[test]
fn a_pod_that_was_refused_and_is_bound_is_a_fault_whatever_machine_it_is_on() {
    for machines in
        [vec![machine("m", &["b-0"])], vec![there_before("m", &["b-0"])], vec![machine("m", &["b-0", "a-0"])]]
    {
        let pods = vec![refused("a-0", Some("m"), "does not fit"), pod("b-0", Some("m"))];
        is_wrong(&judge(pods, machines), &["a-0", "a rule", "was refused and is bound"]);
    }
    let waits = judge(vec![refused("a-0", None, "does not fit"), pod("b-0", Some("m"))], vec![machine("m", &["b-0"])]);
    assert!(waits.is_as_planned(), "{waits:?}");
    assert_eq!((waits.refused, waits.exact), (1, 6));
}

#[test]
fn pods_that_waited_for_something_else_and_those_without_a_verdict_are_counted_apart() {
    let pods = vec![
        refused("a-0", Some("m"), "waits for something else"),
        refused("a-1", Some("m"), "was not decided within the budget"),
        pod("b-0", Some("m")),
        pod("b-1", Some("m")),
        pod("b-2", Some("m")),
    ];
    let outcome = judge(pods, vec![machine("m", &["b-0", "b-1", "b-2"])]);
    assert!(outcome.is_as_planned(), "{outcome:?}");
    assert_eq!((outcome.waited.len(), outcome.undecided.len(), outcome.exact), (1, 1, 8));
    assert_eq!(outcome.remarks().count(), 2);
}

#[test]
fn a_pod_that_nobody_planned_on_a_new_machine_is_a_fault() {
    let pods = vec![pod("a-0", Some("m")), pod("b-0", Some("m"))];
    is_wrong(&judge(pods, vec![machine("m", &["b-0"])]), &["a-0 (planned on nowhere, bound to m in zone-a)"]);
}

#[test]
fn a_plan_that_refuses_most_or_launches_nothing_tells_nothing() {
    let refuse = |count: usize| {
        let pods = (0..count).map(|index| refused(&format!("a-{index}"), None, "does not fit")).collect();
        judge(pods, Vec::new())
    };
    assert!(refuse(1).is_as_planned(), "five of six are 83 %");
    is_wrong(&refuse(2), &["5 of 7 pods were planned"]);
    let nothing = Reading { pods: vec![pod("a-0", Some("old"))], machines: vec![there_before("old", &["a-0"])] };
    is_wrong(&nothing.judge(), &["on 0 new machines"]);
    is_wrong(&Reading::default().judge(), &["0 of 0 pods were planned"]);
}

#[test]
fn pods_that_were_bound_before_the_plan_have_found_a_place_too() {
    let refused_of = |bound: usize| {
        let before = (0..bound).map(|_| Pod { has_waited: false, ..pod("b-0", Some("old")) });
        let waiting =
            [pod("a-0", Some("m")), refused("c-0", None, "does not fit"), refused("c-1", None, "does not fit")];
        let machines = vec![machine("m", &["a-0"]), there_before("old", &[])];
        Reading { pods: before.chain(waiting).collect(), machines }.judge()
    };
    assert_eq!(refused_of(10).faults().count(), 0);
    is_wrong(&refused_of(1), &["too few to tell anything"]);
}

#[test]
fn machines_of_a_second_plan_and_those_without_pods_are_strays() {
    let again = judge(vec![pod("a-0", Some("n"))], vec![machine("m", &["a-0"]), machine("n", &["a-0"])]);
    is_wrong(&again, &["n was launched for pods that had been planned before", "m is empty"]);
    let silent = Machine { planned: None, ..machine("m", &[]) };
    is_wrong(&judge(vec![pod("a-0", Some("m"))], vec![silent]), &["m does not say which pods"]);
}
