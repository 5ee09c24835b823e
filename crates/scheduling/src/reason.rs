//! Why a pod has no place, as data. A reason names the object it is about, counts what fell at each rule and says what
//! would help; sentences are made only when somebody reads them ([`Reason::message`]).

use std::{fmt::Write as _, sync::Arc};

use model::{
    Interner, KeyId, NamespacedName, NodePoolName, Quantity, Requirement, ResourceId, Taint, Unsupported, ValueId,
    ValueSet,
    pod::HostPort,
    quantity::{Format, Rounding},
};

use crate::snapshot::Limit;

mod contradiction;
mod devices;

pub use contradiction::Contradiction;
pub(crate) use devices::zones;
pub use devices::{ClaimedDevices, EndingTypes};

/// One reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The pod uses something that is not planned for.
    Unsupported(Unsupported),
    /// It waits for another object: one that does not exist, or a volume that is bound without it.
    WaitsFor {
        /// For what, as a sentence about it.
        what: Arc<str>,
    },
    /// There is no NodePool at all.
    NoNodePool,
    /// A NodePool that may not launch now.
    NodePoolNotUsable {
        /// Which.
        node_pool: NodePoolName,
        /// Why.
        why: Arc<str>,
    },
    /// The pod does not tolerate a taint of the pool.
    NodePoolTaint {
        /// Which pool.
        node_pool: NodePoolName,
        /// The first taint it does not tolerate.
        taint: Taint,
    },
    /// The pod needs a label that the pool's machines will not have.
    LabelNotDefined {
        /// Which pool.
        node_pool: NodePoolName,
        /// Which label.
        key: KeyId,
        /// What the pod asks of it.
        wanted: ValueSet,
        /// A defined label that looks like it.
        typo_of: Option<KeyId>,
    },
    /// The pod goes by the name of a Node, and that of a machine to come is not known.
    NodeName {
        /// Which pool.
        node_pool: NodePoolName,
        /// The label that is a Node's name, if it goes by that; else `metadata.name`.
        label: Option<KeyId>,
        /// The names that the pod's node affinity, or that of its volume, allows.
        wanted: ValueSet,
    },
    /// Pod and pool ask for different values of one label.
    Requirement {
        /// Which pool.
        node_pool: NodePoolName,
        /// Which label.
        key: KeyId,
        /// What the pod asks for.
        wanted: ValueSet,
        /// What the pool allows.
        allowed: ValueSet,
    },
    /// Labels and taints agree, but no offering is left.
    NoInstanceType(Box<NoInstanceType>),
    /// A machine for it would exceed the pool's limits.
    LimitExceeded {
        /// Which pool.
        node_pool: NodePoolName,
        /// Which limit.
        limit: Limit,
        /// The limit.
        total: i64,
        /// What is left before the machine.
        remaining: i64,
        /// The least that a machine for this pod takes.
        needed: i64,
    },
    /// Too few values are left for a minValues of the pool.
    MinValues {
        /// Which pool.
        node_pool: NodePoolName,
        /// Which label.
        key: KeyId,
        /// Wanted.
        wanted: u32,
        /// Left.
        left: u32,
    },
    /// What the pod asks of nodes contradicts itself: one for each alternative that it gives.
    Contradiction(Vec<Contradiction>),
    /// A rule that couples the pod with others goes by a label that the pool's machines will not have.
    LabelForRule {
        /// Which pool.
        node_pool: NodePoolName,
        /// Which label.
        key: KeyId,
        /// The rule, in Kubernetes' words.
        rule: Arc<str>,
    },
    /// A claim of the pod keeps it from every node.
    Claim {
        /// Why.
        why: Arc<str>,
    },
    /// Its gang is short of places, so that no pod of it gets one. What keeps the first of them follows.
    Gang(Gang),
    /// Its PodGroup has to be in one domain of a label, and none has room for enough of it. What keeps it from the one that came
    /// nearest follows.
    GroupDomain(GroupDomain),
    /// What becomes of its claims' requests on the instance types that there are.
    Devices(Vec<ClaimedDevices>),
    /// What happened on existing nodes.
    ExistingNodes(ExistingNodes),
    /// Places that would hold the pod are closed by rules that couple it with other pods: spread, affinity and
    /// anti-affinity, host ports, claims.
    PodRules {
        /// The pool whose machines are meant; `None` for existing nodes.
        node_pool: Option<NodePoolName>,
        /// Each rule that closes one of them, in Kubernetes' words.
        rules: Vec<Arc<str>>,
    },
    /// What all of this comes to: the rules that exclude every machine, and what would let the pod in.
    Remedies(Box<Remedies>),
    /// The search for contended room ran out of steps.
    OutOfBudget {
        /// Steps taken.
        steps: u64,
    },
    /// Whether it would have a place if others moved was not searched for: there are too many of them.
    NotSearched {
        /// Pods that are planned together with such a search at most.
        most: u64,
    },
    /// The search for contended room does not try every order in which machines bring devices for others.
    OthersMayBringDevices {
        /// Steps taken.
        steps: u64,
    },
    /// The allocation of devices ran out of steps.
    DevicesOutOfBudget {
        /// Steps taken for all pods.
        steps: u64,
    },
}

/// Why no machine that could be launched would do, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedies {
    /// Together these exclude every offering of every NodePool that may launch, and none can be left out.
    pub excluded_by: Vec<Excluding>,
    /// The smallest changes, each by itself enough: the fewest first, then in the order of the NodePools.
    pub remedies: Vec<Remedy>,
}

/// A rule that excludes machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excluding {
    /// Taints of NodePools.
    Taints,
    /// What the pod wants of a label.
    Label {
        /// Which label.
        key: KeyId,
        /// What it wants.
        wanted: ValueSet,
    },
    /// That it goes by the name of a Node.
    NodeName,
    /// What the NodePools require of machines.
    NodePools,
    /// How much it takes of a resource.
    Resource {
        /// Which resource.
        resource: ResourceId,
        /// Asked for, daemons included.
        wanted: i64,
    },
    /// What DaemonSets take.
    Daemons,
    /// A host port that it wants and a DaemonSet has.
    HostPort(HostPort),
    /// The devices that it claims.
    Devices,
    /// Nothing to be had.
    Availability,
    /// Limits of NodePools.
    Limits,
    /// `minValues` of NodePools.
    MinValues,
    /// Rules that couple it with other pods.
    PodRules,
}

/// Changes after which a machine of a NodePool would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// Which NodePool.
    pub node_pool: NodePoolName,
    /// All of them are needed.
    pub needs: Vec<Need>,
    /// Whether rules that couple the pod with others could keep it from there all the same: they were not asked.
    pub rules_may_close: bool,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The pod tolerates a taint.
    Tolerate(Taint),
    /// The pod does not ask that of a label.
    NotWanted {
        /// Which label.
        key: KeyId,
        /// What it asks.
        wanted: ValueSet,
    },
    /// The pod does not go by the name of a Node.
    AnyNode,
    /// The NodePool allows these values of a label.
    Allowed {
        /// Which label.
        key: KeyId,
        /// Which values.
        values: ValueSet,
    },
    /// The NodePool allows machines that several of its requirements exclude.
    OtherTypes {
        /// What an instance type that would do has of these labels, by key.
        labels: Vec<(KeyId, ValueSet)>,
        /// That instance type.
        like: Arc<str>,
    },
    /// The pod asks for less.
    Less {
        /// Of which resource.
        resource: ResourceId,
        /// How much less.
        by: i64,
        /// The most there is.
        most: i64,
    },
    /// DaemonSets leave something.
    Daemons,
    /// The pod does not want a host port that a DaemonSet has.
    OtherPort(HostPort),
    /// The machine brings other devices.
    Devices,
    /// The provider has one.
    Available,
    /// A limit is higher.
    Limit {
        /// Which limit.
        limit: Limit,
        /// How much higher, at least.
        by: i64,
    },
    /// A `minValues` is lower.
    MinValues {
        /// Which label.
        key: KeyId,
        /// How many values are left.
        left: u32,
    },
    /// Rules between pods let it in.
    PodRules,
}

/// A PodGroup whose pods are placed together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// The PodGroup.
    pub name: NamespacedName,
    /// Its `minCount`.
    pub wanted: u32,
    /// How many of its pods are bound.
    pub bound: u32,
    /// How many wait.
    pub waiting: usize,
    /// How many of these would have had a place.
    pub placed: usize,
}

/// A PodGroup that has to be in one domain of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDomain {
    /// The PodGroup.
    pub name: NamespacedName,
    /// The label.
    pub key: KeyId,
    /// Its values on the nodes that pods of the group run on; `None` for nodes without it, or whose value is not known yet.
    pub runs_in: Vec<Option<ValueId>>,
    /// How many values were tried.
    pub tried: usize,
    /// How many were not.
    pub left: usize,
    /// The value that came nearest.
    pub nearest: Option<ValueId>,
}

/// How many different troubles with devices a message tells.
const MAX_TOLD: usize = 3;

/// How the offerings of a pool fell, rule after rule; each offering counts at the first rule it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoInstanceType {
    /// Which pool.
    pub node_pool: NodePoolName,
    /// Instance types the pool's catalogue has.
    pub types: usize,
    /// Types that the pool's own requirements exclude.
    pub by_node_pool: usize,
    /// (label, what the pod wants, types that fell at it), in label order.
    pub by_label: Vec<(KeyId, ValueSet, usize)>,
    /// Types too small, daemons included.
    pub by_resources: usize,
    /// Types on which a DaemonSet takes a host port that the pod wants.
    pub by_ports: usize,
    /// The first such port.
    pub port: Option<HostPort>,
    /// Types that hold the pod but whose machines would not give it its devices.
    pub by_devices: usize,
    /// What is the matter with the devices, with the number of types: the nearest to fitting first.
    pub devices: Vec<(Arc<str>, usize)>,
    /// Types that hold the pod but have no launchable offering for it now.
    pub by_offering: usize,
    /// Types that hold the pod but only by reservations that the plan uses up.
    pub by_reservation: usize,
    /// These reservations, by name.
    pub reservations: Vec<ValueId>,
    /// The resource that most of the types lack, how much the pod asks and the most that is there beside daemons.
    pub nearest: Option<Shortage>,
}

/// The smallest shortage of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// Which resource.
    pub resource: ResourceId,
    /// Asked for, in the resource's unit.
    pub wanted: i64,
    /// The most that any otherwise fitting type or node has.
    pub most: i64,
}

/// How the existing nodes fell; each counts at the first rule it fails.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExistingNodes {
    /// All of them.
    pub nodes: usize,
    /// Deleting, cordoned, not ready.
    pub excluded: usize,
    /// A taint is not tolerated.
    pub by_taint: usize,
    /// Labels do not match.
    pub by_label: usize,
    /// Room, but a rule that couples the pod with others says no.
    pub by_rules: usize,
    /// Room, but not the devices that it claims.
    pub by_devices: usize,
    /// What is the matter with the devices of that which is nearest to fitting.
    pub devices: Option<Arc<str>>,
    /// No room.
    pub by_resources: usize,
    /// The smallest shortage among those without room.
    pub nearest: Option<Shortage>,
}

/// Something a person should know that refuses nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A pod of the class.
    pub example: NamespacedName,
    /// How many pods of that class.
    pub pods: usize,
    /// What.
    pub kind: NoteKind,
}

/// What a [`Note`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoteKind {
    /// Preferred node affinity is not kept by the plan.
    PreferredNodeAffinity,
    /// Preferred pod affinity or anti-affinity is not kept by the plan.
    PreferredPodAffinity,
    /// `ScheduleAnyway` topology spread is not kept by the plan.
    ScheduleAnywaySpread,
    /// The same of a spread that the pods do not ask for themselves.
    DefaultScheduleAnywaySpread,
    /// The pods are planned where a `PreferNoSchedule` taint is that they do not tolerate.
    PreferNoScheduleTaint,
}

impl NoteKind {
    /// The construct in Kubernetes' words.
    pub fn construct(self) -> &'static str {
        match self {
            NoteKind::PreferredNodeAffinity => "preferred node affinity",
            NoteKind::PreferredPodAffinity => "preferred pod affinity or anti-affinity",
            NoteKind::ScheduleAnywaySpread => "topology spread with whenUnsatisfiable ScheduleAnyway",
            NoteKind::DefaultScheduleAnywaySpread => {
                "the cluster's default topology spread with whenUnsatisfiable ScheduleAnyway"
            }
            NoteKind::PreferNoScheduleTaint => "avoidance of PreferNoSchedule taints",
        }
    }
}

impl Reason {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Unsupported(_) => "Unsupported",
            Reason::WaitsFor { .. } => "WaitsFor",
            Reason::NoNodePool => "NoNodePool",
            Reason::NodePoolNotUsable { .. } => "NodePoolNotUsable",
            Reason::NodePoolTaint { .. } => "NodePoolTaint",
            Reason::LabelNotDefined { .. } | Reason::LabelForRule { .. } => "LabelNotDefined",
            Reason::Contradiction(_) => "Contradiction",
            Reason::NodeName { .. } => "NodeName",
            Reason::Requirement { .. } => "RequirementConflict",
            Reason::NoInstanceType(_) => "NoInstanceType",
            Reason::LimitExceeded { .. } => "LimitExceeded",
            Reason::MinValues { .. } => "MinValues",
            Reason::Claim { .. } => "ResourceClaim",
            Reason::Gang(_) => "Gang",
            Reason::GroupDomain(_) => "GroupDomain",
            Reason::Devices(_) => "Devices",
            Reason::ExistingNodes(_) => "ExistingNodes",
            Reason::PodRules { .. } => "PodRules",
            Reason::Remedies(_) => "Remedies",
            Reason::OutOfBudget { .. }
            | Reason::NotSearched { .. }
            | Reason::OthersMayBringDevices { .. }
            | Reason::DevicesOutOfBudget { .. } => "OutOfBudget",
        }
    }

    /// The object it is about, as `kind/name`; `None` where it is about the pod itself.
    pub fn object(&self) -> Option<String> {
        if let Reason::Gang(Gang { name, .. }) | Reason::GroupDomain(GroupDomain { name, .. }) = self {
            return Some(format!("podgroup/{name}"));
        }
        self.node_pool().map(|pool| format!("nodepool/{pool}"))
    }

    /// The NodePool that it is about, if it is about one.
    pub fn node_pool(&self) -> Option<&NodePoolName> {
        match self {
            Reason::NodePoolNotUsable { node_pool, .. }
            | Reason::NodePoolTaint { node_pool, .. }
            | Reason::LabelNotDefined { node_pool, .. }
            | Reason::LabelForRule { node_pool, .. }
            | Reason::NodeName { node_pool, .. }
            | Reason::Requirement { node_pool, .. }
            | Reason::LimitExceeded { node_pool, .. }
            | Reason::MinValues { node_pool, .. } => Some(node_pool),
            Reason::NoInstanceType(reason) => Some(&reason.node_pool),
            Reason::PodRules { node_pool, .. } => node_pool.as_ref(),
            Reason::Contradiction(_)
            | Reason::Gang(_)
            | Reason::GroupDomain(_)
            | Reason::Devices(_)
            | Reason::Remedies(_)
            | Reason::Unsupported(_)
            | Reason::WaitsFor { .. }
            | Reason::NoNodePool
            | Reason::Claim { .. }
            | Reason::ExistingNodes(_)
            | Reason::OutOfBudget { .. }
            | Reason::NotSearched { .. }
            | Reason::OthersMayBringDevices { .. }
            | Reason::DevicesOutOfBudget { .. } => None,
        }
    }

    /// One sentence for people, without a full stop.
    pub fn message(&self, names: &Interner) -> String {
        match self {
            Reason::Unsupported(unsupported) => format!("{} is not planned for yet", unsupported.construct),
            Reason::WaitsFor { what } => what.to_string(),
            Reason::NoNodePool => "there is no NodePool".to_owned(),
            Reason::Contradiction(all) => contradiction::message(all, names),
            Reason::LabelForRule { key, rule, .. } => format!(
                "{rule} needs the label {}, which its machines will not have; add it to the NodePool's labels or requirements",
                names.key_name(*key)
            ),
            Reason::NodeName { label, wanted, .. } => format!(
                "goes by the name of a Node ({} {}), which is not known of a machine to come",
                label.map_or("metadata.name", |key| names.key_name(key)),
                wanted.display(names)
            ),
            Reason::Claim { why } => why.to_string(),
            Reason::Gang(gang) => gang.message(),
            Reason::GroupDomain(group) => group.message(names),
            Reason::Devices(requests) => {
                requests.iter().map(ClaimedDevices::message).collect::<Vec<_>>().join("; and ")
            }
            Reason::Remedies(remedies) => remedies.message(names),
            Reason::NodePoolNotUsable { why, .. } => why.to_string(),
            Reason::NodePoolTaint { taint, .. } => format!("does not tolerate the taint {}", taint.display(names)),
            Reason::LabelNotDefined { key, wanted, typo_of, .. } => {
                let hint = typo_of.map(|key| format!(" (did you mean {}?)", names.key_name(key))).unwrap_or_default();
                format!(
                    "wants {}, but its machines will not have that label{hint}; add it to the NodePool's labels or requirements",
                    expression(*key, wanted, names)
                )
            }
            Reason::Requirement { key, wanted, allowed, .. } => {
                format!(
                    "wants {}, the NodePool allows {}",
                    expression(*key, wanted, names),
                    expression(*key, allowed, names)
                )
            }
            Reason::NoInstanceType(reason) => reason.message(names),
            Reason::LimitExceeded { limit, total, remaining, needed, .. } => {
                let (what, amount): (&str, &dyn Fn(i64, Rounding) -> String) = match limit {
                    Limit::Nodes => ("nodes", &|value, _| value.to_string()),
                    Limit::Resource(resource) => {
                        (names.resource_name(*resource), &|value, rounding| amount(*resource, value, rounding, names))
                    }
                };
                format!(
                    "a machine for it takes at least {} of {what}, the limit of {} has {} left",
                    amount(*needed, Rounding::Up),
                    amount(*total, Rounding::Down),
                    amount((*remaining).max(0), Rounding::Down)
                )
            }
            Reason::MinValues { key, wanted, left, .. } => {
                let are = if *left == 1 { "is" } else { "are" };
                format!("minValues of {} wants {wanted} values, {left} {are} left for this pod", names.key_name(*key))
            }
            Reason::ExistingNodes(nodes) => nodes.message(names),
            Reason::PodRules { node_pool, rules } => {
                let what = if node_pool.is_some() { "machines" } else { "nodes" };
                format!("{what} that would hold it are closed by {}", rules.join("; "))
            }
            Reason::DevicesOutOfBudget { steps } => {
                format!("the search for its devices ended without an answer, {steps} steps after the plan was begun")
            }
            Reason::OthersMayBringDevices { steps } => {
                format!(
                    "machines of other pods may bring devices for it, and not every order of these was tried in {steps} steps"
                )
            }
            Reason::NotSearched { most } => format!(
                "no place as the others are placed; among more than {most} pods not every way to move them is tried"
            ),
            Reason::OutOfBudget { steps } => {
                format!(
                    "the search for room ended after {steps} steps without an answer; raise the budget to search on"
                )
            }
        }
    }
}

impl Remedies {
    fn message(&self, names: &Interner) -> String {
        let rules: Vec<String> = self.excluded_by.iter().map(|rule| rule.message(names)).collect();
        let remedies: Vec<String> = self.remedies.iter().map(|remedy| remedy.message(names)).collect();
        let remedies = remedies.join(", or ");
        match (rules.as_slice(), remedies.is_empty()) {
            (rules, true) => format!("every machine is excluded by {}", rules.join(" or ")),
            ([_], false) => format!("a machine would do {remedies}"),
            (rules, false) => format!("every machine is excluded by {}; one would do {remedies}", rules.join(" or ")),
        }
    }
}

impl Excluding {
    fn message(&self, names: &Interner) -> String {
        match self {
            Self::Taints => "taints".to_owned(),
            Self::Label { key, wanted } => expression(*key, wanted, names),
            Self::NodeName => "the name of a Node".to_owned(),
            Self::NodePools => "what NodePools require".to_owned(),
            Self::Resource { resource, wanted } => {
                format!("{} {}", names.resource_name(*resource), amount(*resource, *wanted, Rounding::Up, names))
            }
            Self::Daemons => "what DaemonSets take".to_owned(),
            Self::HostPort(port) => format!("host port {port}, which a DaemonSet takes"),
            Self::Devices => "the devices it claims".to_owned(),
            Self::Availability => "what can be launched now".to_owned(),
            Self::Limits => "limits".to_owned(),
            Self::MinValues => "minValues".to_owned(),
            Self::PodRules => "rules between pods".to_owned(),
        }
    }
}

impl Remedy {
    fn message(&self, names: &Interner) -> String {
        let pool = &self.node_pool;
        let needs: Vec<String> = self.needs.iter().map(|need| need.message(pool, names)).collect();
        let names_pool = self.needs.iter().any(Need::names_pool);
        let suffix = match (names_pool, self.rules_may_close) {
            (true, false) => String::new(),
            (false, false) => format!(" (nodepool/{pool})"),
            (true, true) => " (if rules between pods let it in there)".to_owned(),
            (false, true) => format!(" (nodepool/{pool}, if rules between pods let it in there)"),
        };
        format!("{}{suffix}", needs.join(" and "))
    }
}

impl Need {
    fn names_pool(&self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::OtherTypes { .. } | Self::Limit { .. } | Self::MinValues { .. })
    }

    fn message(&self, pool: &NodePoolName, names: &Interner) -> String {
        match self {
            Self::Tolerate(taint) => format!("if it tolerated {}", taint.display(names)),
            Self::NotWanted { key, wanted } => format!("if it did not want {}", expression(*key, wanted, names)),
            Self::AnyNode => "if it did not go by the name of a Node".to_owned(),
            Self::Allowed { key, values } if *values == ValueSet::exists() => {
                format!("if nodepool/{pool} had the label {}", names.key_name(*key))
            }
            Self::Allowed { key, values } => format!("if nodepool/{pool} had {}", expression(*key, values, names)),
            Self::OtherTypes { labels, like } => {
                let labels: Vec<String> = labels.iter().map(|(key, values)| expression(*key, values, names)).collect();
                format!("if nodepool/{pool} allowed {}, as of {like}", labels.join(" and "))
            }
            Self::Less { resource, most: 0, .. } => format!("without {}", names.resource_name(*resource)),
            Self::Less { resource, by, .. } => {
                format!("with {} less {}", amount(*resource, *by, Rounding::Up, names), names.resource_name(*resource))
            }
            Self::Daemons => "if DaemonSets left something".to_owned(),
            Self::OtherPort(port) => format!("if it did not want host port {port}"),
            Self::Devices => "with other devices".to_owned(),
            Self::Available => "if it were to be had".to_owned(),
            Self::Limit { limit, by } => match limit {
                Limit::Nodes => format!("with {by} more in limits.nodes of nodepool/{pool}"),
                Limit::Resource(resource) => format!(
                    "with {} more in limits.{} of nodepool/{pool}",
                    amount(*resource, *by, Rounding::Up, names),
                    names.resource_name(*resource)
                ),
            },
            Self::MinValues { key, left } => {
                format!("with minValues of {left} for {} in nodepool/{pool}", names.key_name(*key))
            }
            Self::PodRules => "if rules between pods let it in".to_owned(),
        }
    }
}

impl Gang {
    fn message(&self) -> String {
        let Self { wanted, bound, waiting, placed, .. } = self;
        let bound_text = if *bound == 0 { String::new() } else { format!("{bound} of them bound, ") };
        if *bound as usize + waiting < *wanted as usize {
            let there = *bound as usize + waiting;
            return format!("needs {wanted} pods at once, {bound_text}and there are only {there}");
        }
        format!("needs {wanted} pods at once, {bound_text}and {placed} of the {waiting} that wait would have a place")
    }
}

impl GroupDomain {
    fn message(&self, names: &Interner) -> String {
        let Self { key, runs_in, tried, left, nearest, .. } = self;
        let key = names.key_name(*key);
        let one = format!("all its pods have to be in one {key}");
        if let [only] = runs_in.as_slice() {
            return match only {
                Some(value) => {
                    format!("{one}, and those that run are in {}, which has no room", names.value_name(*value))
                }
                None => format!("{one}, and those that run are on a node without that label"),
            };
        }
        if !runs_in.is_empty() {
            return format!("{one}, and those that run are in {}", runs_in.len());
        }
        if *tried + *left == 0 {
            return format!("{one}, and no node has that label, nor is a value of it known of any machine to come");
        }
        let nearest = nearest.map(|value| format!("; nearest is {}", names.value_name(value))).unwrap_or_default();
        let rest = if *left > 0 { format!("; {left} more were not tried") } else { String::new() };
        format!("{one}, and none of the {tried} tried has room for enough of them{rest}{nearest}")
    }
}

impl NoInstanceType {
    fn message(&self, names: &Interner) -> String {
        let mut text = format!("none of {} instance types fits", self.types);
        let mut parts = Vec::new();
        if self.by_node_pool > 0 {
            parts.push(format!("{} excluded by the NodePool's requirements", self.by_node_pool));
        }
        for (key, wanted, count) in &self.by_label {
            let fall = if *count == 1 { "falls" } else { "fall" };
            parts.push(format!("{count} {fall} at {}", expression(*key, wanted, names)));
        }
        if self.by_resources > 0 {
            let mut part = format!("{} too small", self.by_resources);
            if let Some(shortage) = &self.nearest {
                let _ = write!(part, " ({})", shortage.message(names));
            }
            parts.push(part);
        }
        if let Some(port) = &self.port {
            parts.push(format!("{} where a DaemonSet takes host port {port}", self.by_ports));
        }
        if self.by_devices > 0 {
            let mut part = format!("{} without the devices it claims", self.by_devices);
            let told: Vec<&str> = self.devices.iter().take(MAX_TOLD).map(|(text, _)| &**text).collect();
            if !told.is_empty() {
                let _ = write!(part, " ({})", told.join("; or "));
            }
            parts.push(part);
        }
        if self.by_offering > 0 {
            parts.push(format!("{} {} no launchable offering", self.by_offering, has(self.by_offering)));
        }
        if self.by_reservation > 0 {
            let names: Vec<&str> = self.reservations.iter().map(|id| names.value_name(*id)).collect();
            let what = if names.len() == 1 { "reservation" } else { "reservations" };
            parts.push(format!("{} only by {what} {}, used up by this plan", self.by_reservation, names.join(", ")));
        }
        if !parts.is_empty() {
            text.push_str(": ");
            text.push_str(&parts.join(", "));
        }
        text
    }
}

impl Shortage {
    fn message(&self, names: &Interner) -> String {
        if self.most == 0 {
            let amount = amount(self.resource, self.wanted, Rounding::Up, names);
            return format!("{} {amount} wanted, none has any", names.resource_name(self.resource));
        }
        format!(
            "{} {} wanted, the largest has {} beside daemons",
            names.resource_name(self.resource),
            amount(self.resource, self.wanted, Rounding::Up, names),
            amount(self.resource, self.most, Rounding::Down, names)
        )
    }
}

impl ExistingNodes {
    fn message(&self, names: &Interner) -> String {
        let mut parts = Vec::new();
        for (count, one, several) in [
            (
                self.excluded,
                "takes no pods (deleting, cordoned or not ready)",
                "take no pods (deleting, cordoned or not ready)",
            ),
            (self.by_taint, "has a taint it does not tolerate", "have a taint it does not tolerate"),
            (
                self.by_label,
                "does not match its node selector or affinity",
                "do not match its node selector or affinity",
            ),
            (self.by_rules, "is closed by rules between pods", "are closed by rules between pods"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {}", if count == 1 { one } else { several }));
            }
        }
        if self.by_devices > 0 {
            let lack = if self.by_devices == 1 { "does not have" } else { "do not have" };
            let mut part = format!("{} {lack} the devices it claims", self.by_devices);
            if let Some(why) = &self.devices {
                let _ = write!(part, " ({why})");
            }
            parts.push(part);
        }
        if self.by_resources > 0 {
            let mut part = format!("{} {} no room", self.by_resources, has(self.by_resources));
            if let Some(Shortage { resource, wanted, most }) = &self.nearest {
                let _ = write!(
                    part,
                    " ({} {} wanted, the most free is {})",
                    names.resource_name(*resource),
                    amount(*resource, *wanted, Rounding::Up, names),
                    amount(*resource, *most, Rounding::Down, names)
                );
            }
            parts.push(part);
        }
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        format!("of {} existing {nodes} {}", self.nodes, parts.join(", "))
    }
}

/// The verb of so many things that lack something.
fn has(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// An amount of a resource as people read it.
pub(crate) fn amount(resource: ResourceId, value: i64, rounding: Rounding, names: &Interner) -> String {
    let quantity = match resource {
        ResourceId::CPU => Ok(Quantity::from_milli(value, Format::DecimalSi)),
        ResourceId::MEMORY | ResourceId::EPHEMERAL_STORAGE => Quantity::from_i64(value, Format::BinarySi),
        _ if names.resource_name(resource).starts_with("hugepages-") => Quantity::from_i64(value, Format::BinarySi),
        _ => return value.to_string(),
    };
    quantity.map_or_else(|_| value.to_string(), |quantity| quantity.readable(rounding))
}

fn expression(key: KeyId, values: &ValueSet, names: &Interner) -> String {
    Requirement::new(key, values.clone()).display(names).to_string()
}
