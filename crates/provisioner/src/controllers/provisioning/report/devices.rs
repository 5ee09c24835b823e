//! What plans say of devices, as metrics: templates in force, and pods without a place because of devices, by reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use scheduling::plan::Refusal;
use scheduling::plan::reason::{ClaimedDevices, Reason};
use scheduling::snapshot::Snapshot;

/// Why a pod gets no devices: all values of the label `reason`.
pub(super) const REASONS: [&str; 11] = [
    "NoTemplate",
    "Selector",
    "Taint",
    "InUse",
    "Capacity",
    "Counter",
    "TooFew",
    "Constraint",
    "Claim",
    "Budget",
    "Other",
];

/// The reason of a pod that has no place because of devices: that of the first request which ends at one, at the step
/// that comes furthest.
pub(super) fn reason(refusal: &Refusal) -> Option<&'static str> {
    refusal.reasons.iter().find_map(|reason| match reason {
        Reason::Claim { .. } => Some("Claim"),
        Reason::DevicesOutOfBudget { .. } | Reason::OthersMayBringDevices { .. } => Some("Budget"),
        Reason::Devices(requests) => requests.iter().find_map(of_request),
        Reason::Unsupported(_)
        | Reason::WaitsFor { .. }
        | Reason::OptedOut
        | Reason::NoNodePool
        | Reason::NodePoolNotUsable { .. }
        | Reason::NodePoolTaint { .. }
        | Reason::LabelNotDefined { .. }
        | Reason::LabelForRule { .. }
        | Reason::NodeName { .. }
        | Reason::Contradiction(_)
        | Reason::Requirement { .. }
        | Reason::NoInstanceType(_)
        | Reason::LimitExceeded { .. }
        | Reason::MinValues { .. }
        | Reason::Gang(_)
        | Reason::GroupDomain(_)
        | Reason::ExistingNodes(_)
        | Reason::PodRules { .. }
        | Reason::Remedies(_)
        | Reason::OutOfBudget { .. }
        | Reason::NotSearched { .. }
        | Reason::PlanOutOfBudget { .. } => None,
    })
}

fn of_request(request: &ClaimedDevices) -> Option<&'static str> {
    if request.with_template == 0 {
        return Some("NoTemplate");
    }
    // Where some type would give the devices and fails otherwise, devices are not what is missing.
    let steps: Vec<Option<&'static str>> = request.ends.iter().map(|end| of_step(end.code)).collect();
    if steps.iter().any(Option::is_none) { None } else { steps.into_iter().flatten().last() }
}

/// The group of a step of the allocator; `None` for what is no matter of this request's devices.
fn of_step(code: &str) -> Option<&'static str> {
    Some(match code {
        "NoDevices" => "NoTemplate",
        "ClassSelector" | "RequestSelector" | "SelectorError" => "Selector",
        "Taint" => "Taint",
        "InUse" => "InUse",
        "Capacity" | "CapacityPolicy" => "Capacity",
        "Counter" | "CountersOff" => "Counter",
        "TooFewDevices" | "TooFewDevicesTogether" => "TooFew",
        "NoCommonValue" | "TooFewValues" | "NoCombination" | "NoAttribute" | "DerivedError" => "Constraint",
        "OutOfBudget" => "Budget",
        "OtherRequest" | "NodePool" | "Label" | "Resources" | "NotSettled" | "Offering" => return None,
        _ => "Other",
    })
}

/// How many instance types templates describe, by driver.
pub(super) fn templates(snapshot: &Snapshot) -> BTreeMap<Arc<str>, i64> {
    let mut types: BTreeMap<Arc<str>, BTreeSet<&str>> = BTreeMap::new();
    let mut seen: Vec<*const scheduling::Catalogue> = Vec::new();
    for pool in &snapshot.node_pools {
        let catalogue = Arc::as_ptr(&pool.catalogue);
        if seen.contains(&catalogue) {
            continue;
        }
        seen.push(catalogue);
        for of in pool.catalogue.types.iter().filter(|of| !of.device_templates.is_empty()) {
            let own = of.device_templates.own.iter().map(|template| &template.driver);
            let shared = of.device_templates.shared.iter().map(|shared| &shared.template.driver);
            for driver in own.chain(shared) {
                match types.get_mut(driver.as_str()) {
                    Some(known) => drop(known.insert(of.name.as_str())),
                    None => drop(types.insert(Arc::from(driver.as_str()), [of.name.as_str()].into())),
                }
            }
        }
    }
    types.into_iter().map(|(driver, types)| (driver, i64::try_from(types.len()).unwrap_or(i64::MAX))).collect()
}

#[cfg(test)]
mod tests {
    use scheduling::plan::Verdict;
    use scheduling::plan::reason::EndingTypes;
    use scheduling::snapshot::PodId;

    use super::*;

    fn refused(with_template: usize, ends: &[&'static str]) -> Refusal {
        let ends = ends.iter().map(|&code| EndingTypes { types: 1, code, what: "".into() }).collect();
        let request = ClaimedDevices {
            claim: "c".into(),
            request: "r".into(),
            class: "gpu".into(),
            wanted: Some(1),
            types: 3,
            with_template,
            ends,
            nearest: None,
        };
        let pod: PodId = model::Id::from_index(0);
        Refusal { pod, verdict: Verdict::DoesNotFit, reasons: [Reason::Devices(vec![request])].into() }
    }

    #[test]
    fn a_pod_counts_at_the_furthest_step_and_only_where_no_type_has_its_devices() {
        assert_eq!(reason(&refused(0, &[])), Some("NoTemplate"));
        assert_eq!(reason(&refused(2, &["RequestSelector", "Counter"])), Some("Counter"));
        assert_eq!(reason(&refused(2, &["RequestSelector", "Resources"])), None);
        let claim = Refusal { reasons: [Reason::Claim { why: "gone".into() }].into(), ..refused(1, &[]) };
        assert_eq!(reason(&claim), Some("Claim"));
    }

    #[test]
    fn every_group_is_one_of_the_documented_values() {
        let codes = [
            "NoDevices",
            "ClassSelector",
            "RequestSelector",
            "SelectorError",
            "Taint",
            "InUse",
            "Capacity",
            "CapacityPolicy",
            "Counter",
            "CountersOff",
            "TooFewDevices",
            "TooFewDevicesTogether",
            "NoCommonValue",
            "TooFewValues",
            "NoCombination",
            "NoAttribute",
            "DerivedError",
            "OutOfBudget",
            "OtherNode",
        ];
        for code in codes {
            assert!(of_step(code).is_some_and(|reason| REASONS.contains(&reason)), "{code}");
        }
    }
}
