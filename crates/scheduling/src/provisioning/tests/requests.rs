//! What passes decide about single pods, and what the plan makes of it.

use std::sync::Arc;

use model::PodShape;

use super::fixture::{Fixture, gib};
use crate::plan::reason::Reason;
use crate::plan::{Plan, Refusal, Verdict};
use crate::provisioning::orders::{Planning, plan_in_best_order};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::{Fate, LeftOut, Refused, Request, reshaped};
use crate::snapshot::{PodId, Snapshot};

/// Two pods of one shape, one of which fills the only type.
fn two_pods() -> Snapshot {
    let mut f = Fixture::new();
    f.instance_type("small", 4, 16).offering("za", "on-demand", 1_000_000_000);
    f.pool("default");
    f.pod("a").requests(3000, gib(1));
    f.pod("b").requests(3000, gib(1));
    f.snapshot()
}

fn pod(snapshot: &Snapshot, name: &str) -> PodId {
    snapshot.pods.iter_enumerated().find(|(_, pending)| *pending.pod.name.name == *name).map(|(id, _)| id).unwrap()
}

fn planned(request: &Request<'_>) -> Plan {
    plan_in_best_order(&Problem::new(request), &mut Planning::default()).unwrap()
}

#[test]
fn a_pod_that_is_left_out_is_refused_for_the_reasons_of_the_pass_and_takes_no_room() {
    let snapshot = two_pods();
    let (a, b) = (pod(&snapshot, "a"), pod(&snapshot, "b"));
    let reasons: Arc<[Reason]> = [Reason::WaitsFor { what: "the others of its gang".into() }].into();
    for verdict in [Verdict::DoesNotFit, Verdict::OutOfBudget, Verdict::Unsupported] {
        let fate = Fate::LeftOut(LeftOut::Refused(Refused { verdict, reasons: Arc::clone(&reasons) }));
        let plan = planned(&Request::of(&snapshot).with([(a, fate)]));
        assert_eq!(plan.refusals, [Refusal { pod: a, verdict, reasons: Arc::clone(&reasons) }]);
        assert_eq!(plan.machines.iter().map(|machine| machine.pods.clone()).collect::<Vec<_>>(), [vec![b]]);
    }
}

#[test]
fn a_pod_that_another_stands_for_is_in_no_part_of_the_plan() {
    let snapshot = two_pods();
    let (a, b) = (pod(&snapshot, "a"), pod(&snapshot, "b"));
    let plan = planned(&Request::of(&snapshot).with([(a, Fate::LeftOut(LeftOut::PartOfAnother))]));
    assert!(plan.refusals.is_empty());
    assert_eq!(plan.machines.iter().map(|machine| machine.pods.clone()).collect::<Vec<_>>(), [vec![b]]);
}

#[test]
fn what_a_pass_decided_lasts_when_the_next_changes_the_shape() {
    let snapshot = two_pods();
    let (a, b) = (pod(&snapshot, "a"), pod(&snapshot, "b"));
    let refused = Refused { verdict: Verdict::DoesNotFit, reasons: Arc::default() };
    let first = Request::of(&snapshot).with([(a, Fate::LeftOut(LeftOut::Refused(refused)))]);
    let larger = |shape: &mut PodShape| shape.requests.set(model::ResourceId::CPU, 5000);
    let second = first.with(reshaped(&first.snapshot, &[a, b], larger));
    assert!(Arc::ptr_eq(&first.snapshot.pods[b].pod, &snapshot.pods[b].pod), "the first is as it was");
    let refused: Vec<(PodId, usize)> =
        planned(&second).refusals.iter().map(|refusal| (refusal.pod, refusal.reasons.len())).collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.contains(&(a, 0)), "it is still left out: {refused:?}");
    assert!(refused.iter().any(|(pod, reasons)| *pod == b && *reasons > 0), "it is too large by now: {refused:?}");
}
