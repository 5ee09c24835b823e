//! `docs/dra-support.md` says "held against" only what a stage reads: the features in what is asked and read are
//! exactly those of the rows that claim it. Claims about a control plane are checked by the e2e tests.

#[path = "../examples/differential/generate.rs"]
#[allow(dead_code, reason = "releases are chosen elsewhere")]
mod generate;
#[path = "../examples/plugin_differential/generate.rs"]
mod plugin_generate;

use std::collections::BTreeSet;
use std::path::Path;

use dra_sched::support::{Check, FEATURES};
use dra_types::KubernetesMinor;
use seeded_random::Random;
use serde_json::Value;

const OBJECTS: &str = "Objects of v1, v1beta2, v1beta1; DeviceTaintRule of v1, v1beta2, v1alpha3";
const SELECTORS: &str = "Selectors in CEL, with their costs and limits";
const COUNTS: &str = "Requests for a number of devices, or for all";
const MATCHES: &str = "matchAttribute";
const POOLS: &str = "Pools: generations, completeness, validity, order";
const RESULTS: &str = "Results, configuration, node selector of an allocation";
const ALTERNATIVES: &str = "Alternatives (firstAvailable) and their score";
const TAINTS: &str = "Device taints and tolerations";
const RULES: &str = "DeviceTaintRules; NoExecute as demand again";
const CONSUMABLE: &str = "Consumable capacity, distinctAttribute";
const EXTENDED: &str = "Extended resources served by DRA";
const LISTS: &str = "Attributes that are lists, includes()";
const NODE_RESOURCES: &str = "Node resources handed out or cost by devices, both shapes";
const DERIVED: &str = "Derived attributes";
const STANDARD: &str = "Standard attributes (pcieRoot, pciBusID, numaNode)";
const STATUS: &str = "Device status in claims";

/// What the JSON of a question holds if it is about a feature: all of these.
const ASKED: [(&str, &[&str]); 19] = [
    (SELECTORS, &["\"cel\":"]),
    (COUNTS, &["\"allocationMode\":\"All\"", "\"allocationMode\":\"ExactCount\""]),
    (MATCHES, &["\"matchAttribute\":"]),
    (POOLS, &["\"generation\":2", "\"resourceSliceCount\":2"]),
    (RESULTS, &["\"config\":[{", "\"nodeSelector\":"]),
    ("Admin access", &["\"adminAccess\":true", "\"DRAAdminAccess\""]),
    (ALTERNATIVES, &["\"firstAvailable\":", "\"DRAPrioritizedList\""]),
    (
        "Partitionable devices: shared counters, devices on several nodes",
        &["\"consumesCounters\":", "\"perDeviceNodeSelection\":true", "\"DRAPartitionableDevices\""],
    ),
    (TAINTS, &["\"taints\":", "\"tolerations\":", "\"DRADeviceTaints\""]),
    (RULES, &["\"deviceSelector\":", "\"NoExecute\"", "\"DRADeviceTaintRules\""]),
    (CONSUMABLE, &["\"allowMultipleAllocations\":true", "\"distinctAttribute\":", "\"DRAConsumableCapacity\""]),
    ("Fractions in ranges of capacity", &["\"validRange\":", "\"DRAFractionalCapacityRange\""]),
    (
        "Binding conditions, bindsToNode",
        &["\"bindingConditions\":", "\"bindsToNode\":true", "\"DRADeviceBindingConditions\""],
    ),
    (EXTENDED, &["\"extendedResourceName\":", "\"DRAExtendedResource\""]),
    (LISTS, &["\"ints\":", "\"DRAListTypeAttributes\""]),
    (
        NODE_RESOURCES,
        &["\"nodeAllocatableResourceMappings\":", "\"nodeAllocatableResources\":", "\"DRANodeAllocatableResources\""],
    ),
    (DERIVED, &["\"derivedAttributes\":", "\"DRADerivedAttributes\""]),
    ("Compatibility groups", &["\"compatibilityGroups\":", "\"DRADeviceCompatibilityGroups\""]),
    ("Node operations that a driver does not need", &["\"skipNodeOperations\":", "\"DRAOptionalNodeOperations\""]),
];

/// The tests of each row that claims tables, by the file and the name.
const TABLES: &[(&str, &str, &str)] = &[
    (OBJECTS, "../dra-types/src/tests.rs", "a_rule_of_every_version_is_read_and_old_selectors_are_unsupported"),
    (SELECTORS, "../k8s-cel/src/selector.rs", "an_evaluation_ends_at_the_cost_limit_even_beside_what_decides"),
    (COUNTS, "src/allocator/tests.rs", "one_device_more_than_there_are_is_refused_by_counting"),
    (MATCHES, "src/allocator/tests.rs", "a_constraint_moves_the_choice_to_the_first_devices_that_agree"),
    (POOLS, "src/allocator/tests/explained.rs", "pools_that_are_not_used_are_named_with_the_reason"),
    (ALTERNATIVES, "src/support.rs", "gates_of_the_allocator_make_the_difference_that_their_rows_claim"),
    (TAINTS, "../dra-types/src/tests.rs", "a_toleration_without_key_or_effect_covers_all_and_an_unknown_operator_none"),
    (RULES, "src/evictions.rs", "consumers_of_a_device_with_a_no_execute_taint_end_when_their_tolerations_do"),
    (CONSUMABLE, "src/capacity.rs", "ranges_round_up_from_the_least_in_steps_and_end_at_the_most"),
    ("Fractions in ranges of capacity", "src/capacity.rs", "fractional_steps_count_in_thousandths_only_with_the_gate"),
    (EXTENDED, "src/pods/tests.rs", "explicit_and_implicit_names_become_requests_named_after_container_and_resource"),
    (LISTS, "src/quirks.rs", "constraints_of_1_36_make_nothing_of_lists_and_those_of_1_37_compare_them"),
    (NODE_RESOURCES, "src/packing/tests/node_allocatable.rs", "both_shapes_say_what_a_device_hands_out"),
    ("Claims of PodGroups", "src/pods/tests.rs", "an_entry_that_the_group_has_too_is_one_claim_for_all_its_pods"),
    (DERIVED, "src/allocator/tests/derived.rs", "devices_of_two_drivers_are_aligned_by_what_each_request_computes"),
    (
        "Machines that do not exist yet: templates, unknown values, zones",
        "src/packing/tests.rs",
        "devices_bound_to_one_unknown_value_match_and_others_do_not",
    ),
    (
        "CEL constraints, mixins, resource claim reservations in the spec",
        "../dra-types/src/tests.rs",
        "an_unknown_field_of_a_spec_is_unsupported_by_its_path",
    ),
];

/// The enumerations of each row that claims one.
const BRUTE_FORCE: &[(&str, &str, &str)] = &[
    (COUNTS, "src/allocator/tests/brute_force.rs", "the_answer_is_the_first_of_all_assignments_or_there_is_none"),
    (MATCHES, "src/allocator/tests/brute_force.rs", "the_answer_is_the_first_of_all_assignments_or_there_is_none"),
    (ALTERNATIVES, "tests/brute_force.rs", "the_answer_is_the_first_of_all_choices_or_there_is_none"),
];

/// The rows that claim a check.
fn rows(check: Check) -> BTreeSet<&'static str> {
    FEATURES.iter().filter(|feature| feature.checks.contains(&check)).map(|feature| feature.name).collect()
}

/// The features that questions are about.
fn asked(questions: impl Iterator<Item = String>) -> BTreeSet<&'static str> {
    let mut asked = BTreeSet::new();
    for question in questions {
        let holds = |parts: &&[&str]| parts.iter().all(|part| question.contains(part));
        asked.extend(ASKED.iter().filter(|(_, parts)| holds(parts)).map(|(name, _)| *name));
    }
    asked
}

fn all_are_tests(table: &[(&str, &str, &str)]) {
    for (feature, file, test) in table {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let place = text.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{feature}: no {test} in {file}"));
        let before = text[..place].trim_end().lines().next_back().unwrap_or_default();
        assert_eq!(before.trim(), "#[test]", "{feature}: {test} in {file}");
    }
}

#[test]
fn rows_held_against_tables_and_enumerations_have_such_a_test() {
    for (check, table) in [(Check::Tables, TABLES), (Check::BruteForce, BRUTE_FORCE)] {
        assert_eq!(table.iter().map(|(feature, ..)| *feature).collect::<BTreeSet<_>>(), rows(check), "{check:?}");
        all_are_tests(table);
    }
}

#[test]
fn rows_held_against_the_oracle_are_what_its_questions_are_about() {
    let cases = 0..2000;
    let of_allocator = cases.clone().map(|case| generate::question(&mut Random::of_case(1, case), "q").to_string());
    let of_plugins = cases
        .map(|case| plugin_generate::question(&mut Random::of_case(1, case), "q", KubernetesMinor::V1_37).to_string());
    assert_eq!(asked(of_allocator.chain(of_plugins)), rows(Check::Oracle));
}

#[test]
fn rows_held_against_recorded_answers_are_what_these_are_about() {
    let allocator =
        include_str!("allocator/recorded.jsonl").lines().chain(include_str!("allocator/upstream.jsonl").lines());
    let all = allocator.chain(include_str!("plugins/recorded.jsonl").lines());
    assert_eq!(asked(all.map(str::to_owned)), rows(Check::Recorded));
}

#[test]
fn rows_held_against_objects_of_real_drivers_are_what_these_hold() {
    const NAME: &str = "dra-sched, features of real drivers' objects";
    const HELD: [(&str, &[&str]); 6] = [
        (OBJECTS, &["\"apiVersion\":\"resource.k8s.io/v1beta"]),
        (SELECTORS, &["\"cel\":"]),
        (MATCHES, &["\"matchAttribute\":"]),
        (RESULTS, &["\"results\":"]),
        (STANDARD, &["resource.kubernetes.io/pcieRoot"]),
        (STATUS, &["\"conditions\":", "\"results\":"]),
    ];
    let Some(folder) = corpus::open(NAME, "corpus/dra") else { return };
    let (mut held, mut objects) = (BTreeSet::new(), 0);
    for entry in corpus::index::<Value>(&folder) {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        if !text("check").starts_with("accepted") || !text("api").starts_with("resource.k8s.io/") {
            continue;
        }
        let yaml = std::fs::read_to_string(folder.join(text("file"))).unwrap();
        let object: Value = serde_saphyr::from_str(&yaml).unwrap();
        let object = object.to_string();
        objects += 1;
        let holds = |parts: &&[&str]| parts.iter().all(|part| object.contains(part));
        held.extend(HELD.iter().filter(|(_, parts)| holds(parts)).map(|(name, _)| *name));
    }
    corpus::note(NAME, &format_args!("{objects} objects, {} features", held.len()));
    assert_eq!(held, rows(Check::Corpus));
}
