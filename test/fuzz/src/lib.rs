//! What is fuzzed: functions of bytes that must end soon, within bounds and without a panic, whatever the bytes are.
//!
//! Each [`Target`] has a folder of inputs in `corpus/`, and of inputs that once broke it in `crashes/`. `cargo xtask
//! fuzz` looks for more with libFuzzer, guided by the branches that an input reaches; `tests/replay.rs` plays the
//! folders and seeded mutations of them with every `cargo test`.
//!
//! Left out: anything with I/O. The controller's handling of hostile objects is tested on a real API server.

#![forbid(unsafe_code)]

pub mod mutate;
mod targets;

use std::path::{Path, PathBuf};

use fastrand::Rng;

/// Something to be fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The text of a resource quantity.
    Quantity,
    /// The text of a device selector: CEL, compiled and evaluated by both evaluators.
    Selector,
    /// A JSON object of any kind that the controller watches.
    Object,
    /// A JSON list of `resource.k8s.io` objects: slices, classes, claims; every claim is allocated.
    Devices,
    /// A NodeOverlay as JSON: admitted, checked, its templates written out for machines.
    Overlay,
    /// The text of manifests: YAML or JSON, read as `dovetail plan` reads it.
    Manifests,
    /// The text of a snapshot file, read as `dovetail plan` reads it, and written again.
    Snapshot,
    /// A JSON list of manifests that are planned; the plan is checked pod by pod.
    Plan,
}

impl Target {
    /// All of them, the fastest first.
    pub const ALL: [Self; 8] = [
        Self::Quantity,
        Self::Selector,
        Self::Object,
        Self::Overlay,
        Self::Devices,
        Self::Manifests,
        Self::Snapshot,
        Self::Plan,
    ];

    /// The name of its folders, and what one types.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quantity => "quantity",
            Self::Selector => "selector",
            Self::Object => "object",
            Self::Devices => "devices",
            Self::Overlay => "overlay",
            Self::Manifests => "manifests",
            Self::Snapshot => "snapshot",
            Self::Plan => "plan",
        }
    }

    /// The target of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }

    /// Runs it on one input.
    ///
    /// # Panics
    /// If the input breaks a promise: that is what fuzzing looks for.
    pub fn run(self, bytes: &[u8]) {
        match self {
            Self::Quantity => targets::quantity::run(bytes),
            Self::Selector => targets::selector::run(bytes),
            Self::Object => targets::object::run(bytes),
            Self::Devices => targets::devices::run(bytes),
            Self::Overlay => targets::overlay::run(bytes),
            Self::Manifests => targets::offline::manifests(bytes),
            Self::Snapshot => targets::offline::snapshot(bytes),
            Self::Plan => targets::offline::plan(bytes),
        }
    }

    /// A new input from two old ones.
    #[must_use]
    pub fn mutate(self, random: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
        match self {
            Self::Quantity | Self::Selector | Self::Manifests => mutate::text(random, input, other),
            Self::Object | Self::Devices | Self::Overlay | Self::Plan => mutate::json(random, input, other),
            Self::Snapshot => mutate::json_lines(random, input, other),
        }
    }

    /// Inputs worth beginning with.
    #[must_use]
    pub fn corpus(self) -> PathBuf {
        folder("corpus", self)
    }

    /// Inputs that broke it once.
    #[must_use]
    pub fn crashes(self) -> PathBuf {
        folder("crashes", self)
    }
}

fn folder(kind: &str, target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name())
}
