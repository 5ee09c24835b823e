use std::collections::BTreeSet;

use super::*;
use crate::fidelity::CLASS;

/// The spec of the first pod of each class.
fn classes(scenario: &Scenario) -> Vec<(&str, &Value)> {
    let mut seen = BTreeSet::new();
    let pods = scenario.pods.iter().filter_map(|pod| Some((pod["metadata"]["labels"][CLASS].as_str()?, &pod["spec"])));
    pods.filter(|(class, _)| seen.insert(*class)).collect()
}

#[test]
fn a_seed_gives_the_same_scenario_and_all_rules_appear() {
    let text = |seed| format!("{}", Scenario::random(seed).objects());
    assert_eq!(text(7), text(7));
    let all: String = (0..200).map(text).collect();
    for rule in [
        "\"minDomains\":2",
        "\"nodeAffinityPolicy\":\"Ignore\"",
        "\"nodeTaintsPolicy\":\"Honor\"",
        "\"matchLabelKeys\"",
        "\"mismatchLabelKeys\"",
        "\"namespaceSelector\"",
        "\"podAffinity\":{\"required",
        "\"podAntiAffinity\":{\"required",
        "\"podAffinity\":{\"preferred",
        "\"hostPort\"",
        "\"minValues\"",
        "\"NotIn\"",
        "\"restartPolicy\":\"Always\"",
        RUNTIME_CLASS,
        PRIORITIES[0].0,
        PRIORITIES[1].0,
    ] {
        assert!(all.contains(rule), "{rule}");
    }
}

/// Rules that contradict each other leave nothing to plan.
#[test]
fn zones_of_a_class_agree_and_no_more_than_a_tenth_of_the_pods_is_impossible() {
    let mut impossible_somewhere = false;
    for seed in 0..300 {
        let scenario = Scenario::random(seed);
        let contradict = |spec: &Value| {
            let selector = &spec["nodeSelector"];
            Zones::of(spec).is_empty()
                || !selector["fidelity.example.com/nowhere"].is_null()
                || selector["kubernetes.io/arch"] == "s390x"
        };
        let impossible = scenario.pods.iter().filter(|pod| contradict(&pod["spec"])).count();
        assert!(impossible * 10 <= scenario.pods.len(), "{seed}: {impossible} of {}", scenario.pods.len());
        impossible_somewhere |= impossible > 0;
        for (class, spec) in classes(&scenario).into_iter().filter(|(_, spec)| !contradict(spec)) {
            let is_near = !spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].is_null();
            let is_spread = is_spread_over_zones(&spec["topologySpreadConstraints"]);
            assert!(!is_near || !is_spread, "{seed}, class {class}: near to others and spread over zones");
            let selects_team = !spec["nodeSelector"][TEAM].is_null();
            let zone = spec["nodeSelector"][ZONE].as_str();
            assert!(!selects_team || zone.is_none_or(|zone| ZONES[..2].contains(&zone)), "{seed}, class {class}");
        }
    }
    assert!(impossible_somewhere);
}

/// A scenario whose pods all find room on machines that are there launches nothing, and tells nothing (seeds 910061 and
/// 930001).
#[test]
fn where_machines_are_there_and_pods_are_few_some_need_a_machine_of_their_own() {
    let (mut few_somewhere, mut many_somewhere) = (false, false);
    for seed in (0..300).chain([910_061, 930_001]) {
        let scenario = Scenario::random(seed);
        let (newcomers, others): (Vec<Value>, Vec<Value>) =
            scenario.pods.iter().cloned().partition(|pod| pod["metadata"]["labels"]["app"] == NEWCOMERS);
        let is_few = !scenario.before.is_empty() && may_all_find_room(&others, &scenario.before);
        assert_eq!(newcomers.len() > scenario.before.len().div_ceil(2), is_few, "{seed}");
        few_somewhere |= is_few;
        many_somewhere |= !scenario.before.is_empty() && !is_few;
    }
    assert!(few_somewhere && many_somewhere);
}
