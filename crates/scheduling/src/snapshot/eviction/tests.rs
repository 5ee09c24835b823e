use model::{DurationMs, LabelSelector, NamespacedName};

use super::*;
use crate::provisioning::tests::fixture::pod;

const NOW: Timestamp = Timestamp::from_seconds(10_000);

fn after(seconds: i64) -> Timestamp {
    NOW.saturating_add(DurationMs::from_seconds(seconds))
}

#[test]
fn protection_for_a_time_counts_from_the_pods_start() {
    let mut for_a_minute = pod("a");
    for_a_minute.do_not_disrupt = DoNotDisrupt::For(DurationMs::from_seconds(60));
    assert!(is_protected(&for_a_minute, NOW), "it has not started");
    for (started, expected) in [(-59, true), (-60, false)] {
        for_a_minute.started_at = Some(after(started));
        assert_eq!(is_protected(&for_a_minute, NOW), expected);
    }
}

#[test]
fn only_a_toleration_of_the_disruption_taint_counts() {
    let mut interner = Interner::new();
    let disrupted = interner.key(taints::DISRUPTED);
    let other = interner.key("other");
    let value = interner.value("x");
    let everything = Toleration::EVERYTHING;
    let keyed = |key| Toleration { key: Some(key), ..everything };
    let cases = [
        (everything, true),
        (keyed(disrupted), true),
        (keyed(other), false),
        (Toleration { effect: Some(TaintEffect::NoSchedule), ..everything }, true),
        (Toleration { effect: Some(TaintEffect::NoExecute), ..everything }, false),
        (Toleration { operator: TolerationOperator::Equal, ..keyed(disrupted) }, true),
        (Toleration { operator: TolerationOperator::Equal, value, ..keyed(disrupted) }, false),
        (Toleration { operator: TolerationOperator::Equal, value: ValueId::EMPTY, ..everything }, false),
    ];
    for (toleration, expected) in cases {
        assert_eq!(tolerates_disruption(&[toleration], &interner), expected, "{toleration:?}");
    }
}

/// A budget for the pods of an app that allows so many disruptions now.
fn budget(name: &str, app: &str, allowed: i32, names: &mut Interner) -> PodDisruptionBudget {
    PodDisruptionBudget {
        name: NamespacedName::new("default", name),
        selector: LabelSelector::new([("app", app)], [], names).unwrap(),
        disruptions_allowed: allowed,
        never_allows_disruption: false,
        unhealthy_pod_eviction_policy: UnhealthyPodEvictionPolicy::IfHealthyBudget,
    }
}

#[test]
fn what_forbids_an_eviction_is_named() {
    let mut names = Interner::new();
    let mut lenient = budget("lenient", "queue", 0, &mut names);
    lenient.unhealthy_pod_eviction_policy = UnhealthyPodEvictionPolicy::AlwaysAllow;
    let mut elsewhere = budget("elsewhere", "web", 0, &mut names);
    elsewhere.name.namespace = "other".into();
    let all = [
        budget("two", "db", 1, &mut names),
        budget("one", "db", 1, &mut names),
        budget("open", "web", 1, &mut names),
        budget("shut", "cache", 0, &mut names),
        lenient,
        elsewhere,
    ];
    let budgets = Budgets::new(&all);
    let app = names.key("app");
    let mut of_app = |name: &str| {
        let mut pod = pod(name);
        pod.labels.insert(app, names.value(name));
        pod
    };
    let (web, db, cache, queue, free) = (of_app("web"), of_app("db"), of_app("cache"), of_app("queue"), of_app("x"));
    let going = Pod { deletion_timestamp: Some(NOW), do_not_disrupt: DoNotDisrupt::Always, ..cache.clone() };
    let ended = Pod { phase: model::pod::PodPhase::Succeeded, do_not_disrupt: DoNotDisrupt::Always, ..cache.clone() };
    let asked_for_a_minute = DoNotDisrupt::For(DurationMs::from_seconds(60));
    let mut tolerant = cache.clone();
    Arc::make_mut(&mut tolerant.shape).tolerations.push(Toleration::EVERYTHING);
    let shut = Some(Forbidden::Budget("shut".into()));
    let cases = [
        (web.clone(), None),
        (free, None),
        (db, Some(Forbidden::SeveralBudgets(vec!["one".into(), "two".into()]))),
        (cache.clone(), shut.clone()),
        // A budget lets unready pods go only if it says so.
        (Pod { is_unready: true, ..cache.clone() }, shut),
        (queue.clone(), Some(Forbidden::Budget("lenient".into()))),
        (Pod { is_unready: true, ..queue }, None),
        // What a drain does not evict needs no budget.
        (Pod { is_mirror: true, ..cache.clone() }, None),
        (tolerant, None),
        (going, None),
        (ended, None),
        // The annotation counts for all pods that go on, and comes first.
        (Pod { do_not_disrupt: DoNotDisrupt::Always, ..cache }, Some(Forbidden::DoNotDisrupt(None))),
        (
            Pod { do_not_disrupt: DoNotDisrupt::Always, is_daemon: true, ..web.clone() },
            Some(Forbidden::DoNotDisrupt(None)),
        ),
        (
            Pod { do_not_disrupt: asked_for_a_minute, started_at: Some(after(-50)), ..web.clone() },
            Some(Forbidden::DoNotDisrupt(Some(after(10)))),
        ),
        (Pod { do_not_disrupt: asked_for_a_minute, started_at: Some(after(-60)), ..web.clone() }, None),
        (Pod { do_not_disrupt: DoNotDisrupt::Invalid, ..web }, None),
    ];
    for (pod, expected) in cases {
        assert_eq!(budgets.forbid(&pod, NOW, &names), expected, "{pod:?}");
    }
}

#[test]
fn an_eviction_costs_what_deletion_cost_and_priority_say_within_bounds() {
    let of = |disruption_cost, deletion_cost, costs| {
        EvictionCost::of(&Pod { disruption_cost, deletion_cost, ..pod("a") }, costs).0 - EvictionCost::ONE.0
    };
    use DeletionCosts::{OfUsers, Ours};
    assert_eq!([of(Some(5), Some(7), OfUsers), of(None, Some(7), OfUsers), of(None, None, OfUsers)], [5, 7, 0]);
    assert_eq!([of(Some(5), Some(7), Ours), of(None, Some(7), Ours)], [5, 0]);
    let cost = |deletion_cost: i32, priority: i32| {
        EvictionCost::of(&Pod { deletion_cost: Some(deletion_cost), priority, ..pod("a") }, OfUsers).0
    };
    let one = EvictionCost::ONE.0;
    assert_eq!(cost(0, 0), one);
    assert_eq!(cost(1 << 27, 0), 2 * one);
    assert_eq!(cost(0, 1 << 25), 2 * one);
    assert_eq!(cost(-(1 << 27), 0), 0);
    assert_eq!((cost(i32::MAX, 2_000_000_000), cost(i32::MIN, i32::MIN)), (10 * one, -10 * one));
    let of = |costs: &[i64]| EvictionCost::of_node(costs.iter().map(|&cost| EvictionCost(cost))).0;
    assert_eq!((of(&[]), of(&[one, -5, 3])), (one, 2 * one + 3));
}
