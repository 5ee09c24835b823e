//! Why a pod has no place, as data. A reason names the object it is about, counts what fell at each rule and says what
//! would help; sentences are made only when somebody reads them ([`Reason::message`]).

use std::sync::Arc;

use api::labels;
use model::{
    Interner, KeyId, NodePoolName, Quantity, Requirement, ResourceId, Taint, Unsupported, ValueSet,
    quantity::{Format, Rounding},
};

use crate::snapshot::Limit;

mod contradiction;
mod devices;
mod fallen;
mod groups;
mod notes;
mod remedies;

pub use contradiction::Contradiction;
pub(crate) use devices::EndOfType;
pub use devices::{ClaimedDevices, EndingTypes};
pub use fallen::{ExistingNodes, NoInstanceType, Shortage};
pub use groups::{Gang, GroupDomain};
pub use notes::{Note, NoteKind, ToldNote};
pub use remedies::{Excluding, Need, Remedies, Remedy};

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
    /// It must not be on a machine of any NodePool.
    OptedOut,
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
    /// Its PodGroup has to be in one domain of a label, and none has room for enough of it. What keeps it from the one
    /// that came nearest follows.
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
    /// Nothing better was tried: pods are packed so often for one plan at most.
    PlanOutOfBudget {
        /// How often they were.
        fills: u32,
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

impl Reason {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Unsupported(_) => "Unsupported",
            Reason::WaitsFor { .. } => "WaitsFor",
            Reason::OptedOut => "OptedOut",
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
            | Reason::PlanOutOfBudget { .. }
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
            | Reason::OptedOut
            | Reason::NoNodePool
            | Reason::Claim { .. }
            | Reason::ExistingNodes(_)
            | Reason::OutOfBudget { .. }
            | Reason::NotSearched { .. }
            | Reason::PlanOutOfBudget { .. }
            | Reason::OthersMayBringDevices { .. }
            | Reason::DevicesOutOfBudget { .. } => None,
        }
    }

    /// One sentence for people, without a full stop.
    pub fn message(&self, names: &Interner) -> String {
        match self {
            Reason::Unsupported(unsupported) => format!("{} is not planned for yet", unsupported.construct),
            Reason::WaitsFor { what } => what.to_string(),
            Reason::OptedOut => format!("it wants no machine of a NodePool ({} DoesNotExist)", labels::NODEPOOL),
            Reason::NoNodePool => "there is no NodePool".to_owned(),
            Reason::Contradiction(all) => contradiction::message(all, names),
            Reason::LabelForRule { key, rule, .. } => format!(
                "{rule} needs the label {}, which its machines will not have; add it to the NodePool's labels or requirements",
                names.key_name(*key)
            ),
            Reason::NodeName { label, wanted, .. } => format!(
                "asks for a Node by its name ({} {}), and the name of a new machine is not known yet",
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
                format!("{what} that would hold it are excluded by {}", rules.join("; "))
            }
            Reason::DevicesOutOfBudget { steps } => {
                format!("the search for its devices ended without an answer, {steps} steps after the plan was begun")
            }
            Reason::PlanOutOfBudget { fills } => {
                format!("the plan ended before this was decided: all pods had been packed {fills} times")
            }
            Reason::OthersMayBringDevices { steps } => {
                format!(
                    "machines of other pods may bring devices for it, and not every order of them was tried within {steps} steps"
                )
            }
            Reason::NotSearched { most } => format!(
                "it does not fit as the other pods are placed; with more than {most} pods, not every way to move them is tried"
            ),
            Reason::OutOfBudget { steps } => {
                format!(
                    "the search for room ended after {steps} steps without an answer; raise the budget to search on"
                )
            }
        }
    }
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
