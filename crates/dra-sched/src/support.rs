//! What is supported: a row for each feature of Dynamic Resource Allocation that Kubernetes has or had.
//!
//! `dovetail support` prints it and `docs/dra-support.md` is its output. What a release does with a gate comes from
//! [`Compat`]; that every gate has a row, that a gate which is off is honoured, and that what a row says it is held
//! against is what tests and oracles ask and read (`tests/support_matrix.rs`), is checked by tests.

use std::fmt::Write as _;

use dra_types::compat::{Compat, Gate, KubernetesMinor};

/// How far a feature is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As upstream does it.
    Supported,
    /// As upstream does it, with this exception.
    Partly(&'static str),
    /// The feature has no effect on which devices are allocated.
    NoEffect(&'static str),
    /// An object that uses it is refused, and the field is named.
    Refused(&'static str),
}

/// What a feature is tested against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Tables of cases in the crate.
    Tables,
    /// An enumeration of all assignments on small random inputs.
    BruteForce,
    /// Answers of upstream's libraries and of the scheduler's plugins, recorded.
    Recorded,
    /// Random questions to upstream's libraries v0.36.3 and v0.37.2, and to the scheduler's plugins v1.36.3 and
    /// v1.37.2.
    Oracle,
    /// Objects of real drivers with the verdict of a real API server.
    Corpus,
    /// What kube-scheduler gave on a real control plane of 1.36, compared with what was predicted.
    ControlPlane1_36,
    /// What kube-scheduler gave on a real control plane of 1.37, compared with what was predicted.
    ControlPlane1_37,
    /// Random scenarios on real control planes of 1.36 and 1.37, from templates of devices to what kube-scheduler gave.
    Fidelity,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// The number of its proposal; empty if it has none of its own.
    pub kep: &'static str,
    /// The gate that turns it on; None if it is always on or was never served.
    pub gate: Option<Gate>,
    /// How far it is supported.
    pub state: State,
    /// What it is tested against.
    pub checks: &'static [Check],
}

const fn row(
    name: &'static str,
    kep: &'static str,
    gate: Option<Gate>,
    state: State,
    checks: &'static [Check],
) -> Feature {
    Feature { name, kep, gate, state, checks }
}

use Check::{BruteForce, ControlPlane1_36, ControlPlane1_37, Corpus, Fidelity, Oracle, Recorded, Tables};
use State::{NoEffect, Partly, Refused, Supported};

/// All rows, the general ones first.
pub const FEATURES: &[Feature] = &[
    row(
        "Objects of v1, v1beta2, v1beta1; DeviceTaintRule of v1, v1beta2, v1alpha3",
        "4381",
        None,
        Supported,
        &[Tables, Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Selectors in CEL, with their costs and limits",
        "4381",
        None,
        Supported,
        &[Tables, Recorded, Oracle, Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Requests for a number of devices, or for all",
        "4381",
        None,
        Supported,
        &[Tables, BruteForce, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "matchAttribute",
        "4381",
        None,
        Supported,
        &[Tables, BruteForce, Recorded, Oracle, Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Pools: generations, completeness, validity, order",
        "4381",
        None,
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Results, configuration, node selector of an allocation",
        "4381",
        None,
        Supported,
        &[Recorded, Oracle, Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Admin access",
        "5018",
        Some(Gate::AdminAccess),
        Supported,
        &[Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Alternatives (firstAvailable) and their score",
        "4816",
        Some(Gate::PrioritizedList),
        Supported,
        &[Tables, BruteForce, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Partitionable devices: shared counters, devices on several nodes",
        "4815",
        Some(Gate::PartitionableDevices),
        Supported,
        &[Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Device taints and tolerations",
        "5055",
        Some(Gate::DeviceTaints),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "DeviceTaintRules; NoExecute as demand again",
        "5055",
        Some(Gate::DeviceTaintRules),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Consumable capacity, distinctAttribute",
        "5075",
        Some(Gate::ConsumableCapacity),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Fractions in ranges of capacity",
        "5075",
        Some(Gate::FractionalCapacityRange),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_37],
    ),
    row(
        "Binding conditions, bindsToNode",
        "5007",
        Some(Gate::DeviceBindingConditions),
        Supported,
        &[Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Extended resources served by DRA",
        "5004",
        Some(Gate::ExtendedResource),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Attributes that are lists, includes()",
        "5491",
        Some(Gate::ListTypeAttributes),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Node resources handed out or cost by devices, both shapes",
        "5517",
        Some(Gate::NodeAllocatableResources),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Claims of PodGroups",
        "5729",
        Some(Gate::WorkloadResourceClaims),
        Supported,
        &[Tables, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Derived attributes",
        "6080",
        Some(Gate::DerivedAttributes),
        Supported,
        &[Tables, Recorded, Oracle, ControlPlane1_37],
    ),
    row(
        "Compatibility groups",
        "5963",
        Some(Gate::DeviceCompatibilityGroups),
        Supported,
        &[Recorded, Oracle, ControlPlane1_37],
    ),
    row(
        "Node operations that a driver does not need",
        "5945",
        Some(Gate::OptionalNodeOperations),
        Supported,
        &[Recorded, Oracle, ControlPlane1_37],
    ),
    row(
        "Machines that do not exist yet: templates, unknown values, zones",
        "",
        None,
        Partly("devices per node that draw from counters: the machine's own"),
        &[Tables, Fidelity],
    ),
    row(
        "Standard attributes (pcieRoot, pciBusID, numaNode)",
        "6072",
        None,
        Supported,
        &[Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row(
        "Device status in claims",
        "4817",
        None,
        NoEffect("read for binding conditions"),
        &[Corpus, ControlPlane1_36, ControlPlane1_37],
    ),
    row("ResourcePoolStatusRequest", "5677", None, NoEffect("reporting only"), &[]),
    row("Counters drawn by capacity requests", "5941", None, Refused("not served by any release"), &[]),
    row(
        "CEL constraints, mixins, resource claim reservations in the spec",
        "5254, 5234, 5194",
        None,
        Refused("withdrawn"),
        &[Tables],
    ),
];

impl Check {
    /// All, in the order of the legend.
    pub const ALL: [Self; 8] =
        [Tables, BruteForce, Recorded, Oracle, Corpus, ControlPlane1_36, ControlPlane1_37, Fidelity];

    fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::BruteForce => "brute force",
            Self::Recorded => "recorded",
            Self::Oracle => "oracle",
            Self::Corpus => "corpus",
            Self::ControlPlane1_36 => "control plane 1.36",
            Self::ControlPlane1_37 => "control plane 1.37",
            Self::Fidelity => "fidelity",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Tables => "tables of cases in the crate",
            Self::BruteForce => "an enumeration of all assignments on small random inputs",
            Self::Recorded => {
                "answers of upstream's libraries and of the scheduler's plugins to random questions, recorded (`tests` of `crates/k8s-cel` and `crates/dra-sched`)"
            }
            Self::Oracle => {
                "random questions to upstream's libraries v0.36.3 and v0.37.2 and the scheduler's plugins v1.36.3 and \
                 v1.37.2 (`cargo xtask oracle`)"
            }
            Self::Corpus => {
                "objects of real drivers that a real API server takes; they are not part of the repository, and `cargo xtask test` says \
                 how many were read"
            }
            Self::ControlPlane1_36 => {
                "what kube-scheduler 1.36.3 gave, and what was predicted before (`cargo xtask test --stage e2e`, \
                 `test/e2e/tests/e2e/dra/scenarios`)"
            }
            Self::ControlPlane1_37 => {
                "what kube-scheduler 1.37.2 gave, and what was predicted before (`cargo xtask test --stage dra`)"
            }
            Self::Fidelity => {
                "what kube-scheduler 1.36.3 and 1.37.2 gave on machines planned for random claims (`cargo xtask \
                 fidelity --dra`, with `--kubernetes 1.37` too)"
            }
        }
    }

    /// The releases whose own kube-scheduler was asked.
    fn releases(self) -> &'static [KubernetesMinor] {
        match self {
            Self::Tables | Self::BruteForce | Self::Recorded | Self::Oracle | Self::Corpus => &[],
            Self::ControlPlane1_36 => &[KubernetesMinor::V1_36],
            Self::ControlPlane1_37 => &[KubernetesMinor::V1_37],
            Self::Fidelity => &[KubernetesMinor::V1_36, KubernetesMinor::V1_37],
        }
    }
}

impl Feature {
    /// On which releases it was proved, by what their kube-scheduler does with it.
    fn proved_on(&self) -> String {
        let proved = |release: &KubernetesMinor| self.checks.iter().any(|check| check.releases().contains(release));
        let releases: Vec<String> =
            KubernetesMinor::ALL.iter().filter(|it| proved(it)).map(ToString::to_string).collect();
        match (releases.is_empty(), self.state) {
            (false, _) => releases.join(", "),
            (true, Refused(_)) => "none serves it".to_owned(),
            (true, NoEffect(_) | Supported | Partly(_)) => "none".to_owned(),
        }
    }
}

impl State {
    fn text(self) -> String {
        match self {
            Self::Supported => "yes".to_owned(),
            Self::Partly(what) => format!("yes, {what}"),
            Self::NoEffect(why) => format!("no effect ({why})"),
            Self::Refused(why) => format!("refused by name ({why})"),
        }
    }
}

/// What a release does with a gate by default.
fn in_release(gate: Gate, release: KubernetesMinor) -> &'static str {
    if gate.known_since() > release.minor() {
        "–"
    } else if Compat::new(release).is_on(gate) {
        "on"
    } else {
        "off"
    }
}

/// The matrix as a Markdown table with aligned columns.
pub fn markdown() -> String {
    let mut rows = vec![Vec::from(["Feature", "KEP", "Gate"].map(str::to_owned))];
    if let Some(headings) = rows.first_mut() {
        headings.extend(KubernetesMinor::ALL.map(|release| release.to_string()));
        headings.extend(["Here", "Proved on", "Held against"].map(str::to_owned));
    }
    for feature in FEATURES {
        let gate = feature.gate.map_or_else(String::new, |gate| format!("`{}`", gate.name()));
        let mut row = vec![feature.name.to_owned(), feature.kep.to_owned(), gate];
        let releases = KubernetesMinor::ALL.map(|release| feature.gate.map_or("", |gate| in_release(gate, release)));
        row.extend(releases.map(str::to_owned));
        row.push(feature.state.text());
        row.push(feature.proved_on());
        row.push(feature.checks.iter().map(|check| check.name()).collect::<Vec<_>>().join(", "));
        rows.push(row);
    }
    let mut text = String::from(
        "# Dynamic Resource Allocation: what is supported\n\n\
         Printed by `dovetail support`; `cargo xtask codegen` writes it. For each release: whether its feature gate is on\n\
         by default (on, off, – not known). Behaviour follows the cluster's release and gates, defects of releases included\n\
         (`docs/compatibility.md`). \"Proved on\" names the releases whose kube-scheduler did in a cluster what was predicted.\n\n",
    );
    write_table(&mut text, &rows);
    text.push_str("\nHeld against:\n\n");
    for check in Check::ALL {
        let _ = writeln!(text, "* {}: {}", check.name(), check.meaning());
    }
    text
}

fn write_table(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let widths = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        widths.max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
        if index == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{ask, builder_for, claim, devices, exactly, local, names};
    use dra_types::Gates;

    #[test]
    fn every_gate_has_one_row_and_every_claim_of_support_is_held_against_something() {
        for gate in Gate::ALL {
            assert_eq!(FEATURES.iter().filter(|feature| feature.gate == Some(*gate)).count(), 1, "{gate:?}");
        }
        for feature in FEATURES.iter().filter(|feature| matches!(feature.state, Supported | Partly(_))) {
            assert!(!feature.checks.is_empty(), "{}", feature.name);
            // A feature of 1.37 cannot be proved on 1.36.
            let proved = feature.proved_on();
            let is_new = feature.gate.is_some_and(|gate| gate.known_since() > KubernetesMinor::V1_36.minor());
            assert_eq!(proved, if is_new { "1.37" } else { "1.36, 1.37" }, "{}", feature.name);
        }
    }

    #[test]
    fn releases_and_their_defaults_stand_in_the_table() {
        let text = markdown();
        let row = |gate: &str| {
            let line = text.lines().find(|line| line.contains(gate)).unwrap();
            line.split('|').map(|cell| cell.trim().to_owned()).skip(4).take(4).collect::<Vec<_>>()
        };
        assert_eq!(row("`DRAPartitionableDevices`"), ["off", "off", "on", "on"]);
        assert_eq!(row("`DRADeviceTaintRules`"), ["–", "off", "off", "on"]);
        assert_eq!(row("`DRADerivedAttributes`"), ["–", "–", "–", "off"]);
    }

    /// A device and a request that a release with all gates but one answers otherwise than with all.
    fn differs_without(gate: Gate, device: &Value, request: &Value, constraint: &Value) -> bool {
        let all = Gates::all(KubernetesMinor::V1_37);
        let answer = |gates: Gates| {
            let mut builder = builder_for(Compat::with_gates(KubernetesMinor::V1_37, gates), &["gpu"]);
            builder.slice(local("gpu", &devices(2, |_| device.clone())));
            let class = claim(&mut builder, "c", &json!({"requests": [request], "constraints": constraint}));
            names(&ask(&builder.build(), &[class]).0)
        };
        answer(all) != answer(all.with(gate, false))
    }

    #[test]
    fn gates_of_the_allocator_make_the_difference_that_their_rows_claim() {
        let plain = exactly("r", "gpu", 1);
        let with = |field: &str, value: Value| {
            let mut request = plain.clone();
            request["exactly"][field] = value;
            request
        };
        let alternatives = json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]});
        let none = json!([]);
        let matching = json!([{"matchAttribute": "gpu/root"}]);
        let pair = exactly("r", "gpu", 2);
        let derived = with("derivedAttributes", json!([{"name": "gpu/root", "expression": "1"}]));
        let lists = json!({"attributes": {"root": {"ints": [1, 2]}}});
        for (gate, device, request, constraint) in [
            (Gate::AdminAccess, json!({}), with("adminAccess", true.into()), &none),
            (Gate::PrioritizedList, json!({}), alternatives, &none),
            (Gate::DeviceTaints, json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}), plain.clone(), &none),
            (
                Gate::ConsumableCapacity,
                json!({"allowMultipleAllocations": true, "capacity": {"m": {"value": "1"}}}),
                with("capacity", json!({"requests": {"m": "1"}})),
                &none,
            ),
            (
                Gate::DeviceBindingConditions,
                json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}),
                plain.clone(),
                &none,
            ),
            (Gate::ListTypeAttributes, lists, pair, &matching),
            (Gate::DerivedAttributes, json!({}), derived, &matching),
        ] {
            assert!(differs_without(gate, &device, &request, constraint), "{gate:?}");
        }
    }
}
