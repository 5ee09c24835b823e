//! Which crate and which room may use which. RFC 0006 and `ARCHITECTURE.md` say why; this is what is checked.
//!
//! A path begins with the crate as `use` names it (`dra_sched`). A path of modules stands for all that is below it.

/// A part of a crate: modules, and the rooms of that crate that they may use.
pub(super) struct Room {
    pub(super) name: &'static str,
    /// `a::*` makes each child of `a` a room of its own, named by its path.
    pub(super) modules: &'static [&'static str],
    pub(super) uses: &'static [&'static str],
}

pub(super) const fn room(name: &'static str, modules: &'static [&'static str], uses: &'static [&'static str]) -> Room {
    Room { name, modules, uses }
}

/// What is there today and should not be, with what will end it.
pub(super) struct Exception {
    pub(super) reason: &'static str,
    /// From a room or a module to a room or a module, or to the word of a provider.
    pub(super) arrows: &'static [(&'static str, &'static str)],
    /// Modules of a crate that form a cycle.
    pub(super) cycles: &'static [Together],
}

/// A crate, and modules of it that refer to each other in a circle.
pub(super) type Together = (&'static str, &'static [&'static str]);

/// A provider's word, and the one place beside its own crate that may name it.
pub(super) struct Provider {
    pub(super) own: &'static str,
    /// Crates that do for it what it leaves to others.
    pub(super) helpers: &'static [&'static str],
    pub(super) word: &'static str,
    pub(super) table: &'static str,
}

pub(super) const PROVIDERS: &[Provider] = &[
    Provider {
        own: "cloudprovider_aws",
        helpers: &["cloudprovider_aws_sdk"],
        word: "aws",
        table: "dovetail::providers",
    },
    Provider { own: "cloudprovider_kwok", helpers: &[], word: "kwok", table: "dovetail::providers" },
];

/// What cloud and device crates stand on.
const BELOW: &[&str] =
    &["model", "api", "dra_types", "k8s_cel", "dra_sched", "cloudprovider", "dra_templates", "overlay"];
/// Of the kinds of `api` planners know none, only what labels, taints and annotations are called.
const NAMES: &[&str] = &["api::labels", "api::taints", "api::annotations"];
/// What a plan is made from. No room that plans is used for it.
const INPUT: &[&str] = &["scheduling::snapshot", "scheduling::catalogue", "scheduling::devices"];
/// What planners give.
const OUTPUT: &[&str] = &["scheduling::plan", "scheduling::disruption::plan", "scheduling::disruption::reason"];
/// What plans and what feeds it.
const ABOVE: &[&str] = &["scheduling", "decode", "cluster", "cloudprovider_plugin"];

/// The crates that a crate may use; with modules behind its name, only those. Providers are not here, see
/// [`PROVIDERS`].
pub(super) const CRATES: &[(&str, &[&[&str]])] = &[
    ("model", &[]),
    ("api", &[&["model"]]),
    ("dra_types", &[&["model"]]),
    ("k8s_cel", &[&["model", "dra_types"]]),
    ("dra_sched", &[&["model", "dra_types", "k8s_cel"]]),
    ("cloudprovider", &[&["model", "api"]]),
    ("dra_templates", &[&["model", "api", "dra_types", "dra_sched"]]),
    ("overlay", &[&["model", "api", "dra_types", "dra_sched", "cloudprovider", "dra_templates"]]),
    ("scheduling", &[&["model", "dra_types", "dra_sched", "cloudprovider"], NAMES]),
    // The checker is worth something because it shares input and output with the planner and nothing else.
    ("checker", &[&["model", "dra_types", "dra_sched", "cloudprovider"], OUTPUT, NAMES, INPUT]),
    // One object becomes one value; no planner is known here.
    ("decode", &[&["model", "api", "dra_types", "k8s_cel"]]),
    ("cluster", &[BELOW, &["decode"], INPUT]),
    ("cloudprovider_plugin", &[&["model", "api", "cloudprovider"]]),
    ("cloudprovider_aws", &[&["model", "api", "k8s_cel", "cloudprovider", "cloudprovider_plugin", "dra_templates"]]),
    // The only crate that sees the SDK of AWS. Of the provider it knows what is called, and what is sent.
    (
        "cloudprovider_aws_sdk",
        &[&[
            "model",
            "cloudprovider_aws::service",
            "cloudprovider_aws::instance_types",
            "cloudprovider_aws::launch",
            "cloudprovider_aws::node_class",
            "cloudprovider_aws::options",
        ]],
    ),
    ("cloudprovider_kwok", &[&["model", "api", "cloudprovider", "cloudprovider_plugin", "dra_templates"]]),
    ("provisioner", &[&["model", "api", "dra_types", "dra_sched", "cloudprovider", "dra_templates", "overlay"], ABOVE]),
    ("dovetail", &[BELOW, ABOVE, &["checker", "provisioner"]]),
];

/// Crates with rooms. In the others each module below the root is a room, which may use all that do not use it.
pub(super) const ROOMS: &[(&str, &[Room])] =
    &[("dra_sched", DRA_SCHED), ("scheduling", SCHEDULING), ("provisioner", PROVISIONER)];

const DRA_SCHED: &[Room] = &[
    // Values and rules that know no device of an inventory.
    room("rules", &["tuning", "quirks", "flow", "capacity", "faults"], &[]),
    room("compile", &["compile", "machine"], &["rules"]),
    room("inventory", &["inventory"], &["rules", "compile"]),
    room("ledger", &["ledger"], &["rules", "compile", "inventory"]),
    // A refusal keeps what was looked at and what was taken of it.
    room("verdict", &["verdict"], &["rules", "compile", "inventory", "ledger"]),
    room("allocator", &["allocator"], &["rules", "compile", "inventory", "ledger", "verdict"]),
    room("packing", &["packing"], &["rules", "compile", "inventory", "ledger", "verdict", "allocator"]),
    room("explain", &["explain"], &["rules", "compile", "inventory", "verdict", "allocator"]),
    room("pods", &["pods"], &["rules", "inventory", "packing"]),
    room("evictions", &["evictions"], &["compile", "inventory"]),
    room("support", &["support"], &[]),
];

const SCHEDULING: &[Room] = &[
    room("tuning", &["tuning"], &[]),
    room("input", &["snapshot", "catalogue", "devices"], &["tuning"]),
    room("plan", &["plan"], &["tuning", "input"]),
    // Classes hold which rules concern them, and rules split the tables of pools.
    room("compile", &["simulation::compile", "simulation::topology"], &["tuning", "input", "plan"]),
    room("homes", &["simulation::homes"], &["tuning", "input", "compile"]),
    room("packing", &["simulation::packing"], &["tuning", "input", "plan", "compile"]),
    room("placing", &["simulation::placing"], &["tuning", "input", "plan", "compile", "packing"]),
    // It asks for how many copies new machines have devices.
    room("bound", &["bound"], &["tuning", "input", "compile", "packing"]),
    room("explain", &["explain"], &["tuning", "input", "plan", "compile", "packing", "placing"]),
    room(
        "assemble",
        &["provisioning::assemble", "provisioning::device_costs", "provisioning::launch"],
        &["tuning", "input", "plan", "compile", "packing", "placing", "explain"],
    ),
    room(
        "orders",
        &["provisioning::orders"],
        &["tuning", "input", "plan", "compile", "packing", "placing", "bound", "assemble"],
    ),
    room(
        "passes",
        &["provisioning::passes"],
        &["tuning", "input", "plan", "compile", "packing", "placing", "bound", "assemble", "orders"],
    ),
    room(
        "provisioning",
        &["provisioning"],
        &[
            "tuning", "input", "plan", "compile", "packing", "placing", "bound", "explain", "assemble", "orders",
            "passes",
        ],
    ),
    // It proposes what could go, on a packing of its own, and knows of no rule of disruption.
    room("search", &["disruption::search"], &["tuning", "input", "plan", "compile", "packing", "placing", "bound"]),
    // Who takes nodes away plans for their pods as provisioning does, and knows nothing of how.
    room("disruption", &["disruption"], &["tuning", "input", "plan", "homes", "provisioning", "search"]),
];

/// What two controllers need to agree on is in `world`.
const PROVISIONER: &[Room] = &[
    room("options", &["options"], &[]),
    room("runtime", &["runtime"], &["options"]),
    room("world", &["world"], &["options", "runtime"]),
    room("provider", &["provider"], &["options", "runtime"]),
    room("controllers::*", &["controllers::*"], &["options", "runtime", "world"]),
    room("controller", &["controller"], &["options", "runtime", "world", "provider", "controllers::*"]),
];

/// Modules that are one room, because the types in them hold each other.
pub(super) const TOGETHER: &[Together] = &[
    ("checker", &["devices", "world"]),
    ("cloudprovider", &["instance_type", "offering", "requirements"]),
    ("cloudprovider_kwok", &["cluster", "drivers"]),
    ("dra_types", &["device", "node_allocatable", "slice", "taint"]),
    ("k8s_cel", &["functions", "types", "value"]),
    ("k8s_cel", &["macros", "parser"]),
    ("k8s_cel", &["selector", "slots"]),
    ("model", &["intern", "labels", "pod", "requirement", "resources", "selector", "taint"]),
];

/// At most [`MOST_EXCEPTIONS`].
pub(super) const EXCEPTIONS: &[Exception] = &[];

pub(super) const MOST_EXCEPTIONS: usize = 2;
