//! Options that are read and change nothing yet.
//!
//! Whoever sets one is told so at start: silence would pass for obedience. Each is a feature gate whose work has no
//! planner or controller here.

use super::Options;

/// One sentence for each option that was set to something that has no effect yet.
pub fn without_effect(options: &Options) -> Vec<String> {
    let mut said = Vec::new();
    let gates = &options.feature_gates;
    for (name, is_on, what) in [
        ("TerminateFirstDrift", gates.terminate_first_drift, "the replacement of a drifted node always comes first"),
        (
            "TerminateFirstRepair",
            gates.terminate_first_repair,
            "a broken node always goes before its replacement comes",
        ),
    ] {
        if is_on {
            said.push(format!("feature gate {name}=true has no effect yet: {what}"));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::super::tests::options;
    use super::*;

    #[test]
    fn each_option_that_changes_nothing_is_named_and_no_other() {
        assert_eq!(without_effect(&options(&[]).unwrap()), Vec::<String>::new());
        let set = options(&[
            "--preference-policy=Ignore",
            "--ignore-dra-requests",
            "--min-values-policy=BestEffort",
            "--feature-gates=NodeRepair=true,StaticCapacity=true,CapacityBuffer=true,SpotToSpotConsolidation=true,ReservedCapacity=false,\
             NodeOverlay=false,TerminateFirstDrift=true,TerminateFirstRepair=true,PodDeletionCostManagement=true",
        ]);
        let said = without_effect(&set.unwrap());
        let names = ["TerminateFirstDrift", "TerminateFirstRepair"];
        assert_eq!(said.len(), names.len(), "{said:?}");
        assert!(said.iter().zip(names).all(|(sentence, name)| sentence.contains(name)), "{said:?}");
    }
}
