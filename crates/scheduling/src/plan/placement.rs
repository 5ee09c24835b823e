//! Why a pod is where a plan puts it, as data: which rule decided, and at which rule every other place fell that would
//! have come first. Sentences are made only when somebody reads them ([`Placement::messages`]).

use model::{Interner, KeyId, Requirement, Taint, ValueSet, quantity::Rounding};

use crate::plan::device_cost::Wanted;
use crate::plan::reason::amount;
use crate::snapshot::{Excluded, Limit};

/// Why one pod is where it is, all other pods being where the plan puts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// What decided.
    pub decided_by: Decision,
    /// How the other existing nodes and NodeClaims fell.
    pub nodes: Passed,
    /// How the other machines of the plan fell; nothing for a pod on an existing node, which comes first.
    pub machines: Passed,
    /// How the offerings of new machines fell that cost less, or whose NodePool comes first; nothing for a pod on an
    /// existing node.
    pub offerings: Passed,
}

/// What decided where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// An earlier plan put it there, and its machine is on its way.
    PlannedBefore,
    /// No other node that exists has room that its rules leave.
    OnlyRoom,
    /// Of the nodes that hold it, it comes first: those in use, then by name.
    FirstRoom,
    /// Other nodes hold it as well.
    OneOfSeveral,
    /// No machine costs less, and no node has room.
    CheapestMachine,
    /// Every machine that costs less falls at a rule of its own; the rules that exclude the cheapest of them.
    CheapestThatRulesLeave,
    /// A cheaper machine would hold it, but not all that it shares its machine with: so many other pods.
    SharedMachine(usize),
    /// A cheaper machine would hold it; the plan as a whole was made so.
    WholePlan,
}

/// Places that were passed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Passed {
    /// How many there are.
    pub of: usize,
    /// How many fell at which rule, in the order in which rules are asked; each counts at the first that it fails.
    pub fell: Vec<(Fall, usize)>,
    /// How many would hold the pod.
    pub hold: usize,
    /// How many would hold it if its devices are there, which was not asked.
    pub by_devices_unasked: usize,
}

/// A rule at which a place fell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fall {
    /// The node takes no pods.
    Excluded(Excluded),
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// What the NodePool requires of its machines.
    NodePool,
    /// Not to be had now.
    Unavailable,
    /// What the pod wants of a label.
    Label {
        /// Which label.
        key: KeyId,
        /// What it wants.
        wanted: ValueSet,
    },
    /// None of several terms of its node affinity, or of places of its volumes.
    NodeAffinity,
    /// Too little of a resource.
    Resource {
        /// What the pod takes, its devices included; daemons left out.
        wanted: Wanted,
        /// The most that one of these places has, in the resource's unit.
        most: i64,
    },
    /// Its machines never have the devices that the pod claims.
    Devices,
    /// A rule between pods, in Kubernetes' words.
    PodRule(String),
    /// A limit of the NodePool.
    Limit(Limit),
    /// The NodePool's limits or minValues, together.
    LimitsOrMinValues,
    /// Another NodePool comes first: higher weight, then name.
    PoolOrder,
}

impl Passed {
    /// Counts a place that fell; what is wanted of a resource counts once, with the most that any place has.
    pub(crate) fn add(&mut self, fall: Fall) {
        self.of += 1;
        for (known, count) in &mut self.fell {
            match (&mut *known, &fall) {
                (Fall::Resource { wanted, most }, Fall::Resource { wanted: other, most: more }) if wanted == other => {
                    *most = (*most).max(*more);
                }
                (known, fall) if known == fall => {}
                _ => continue,
            }
            *count += 1;
            return;
        }
        self.fell.push((fall, 1));
    }

    /// Sorts by the order of rules, then by name.
    pub(crate) fn in_order(mut self, names: &Interner) -> Self {
        self.fell.sort_by_cached_key(|(fall, _)| (fall.rank(), fall.message(names)));
        self
    }

    fn message(&self, what: &str, holding: &str, names: &Interner) -> Option<String> {
        if self.of == 0 {
            return None;
        }
        let mut parts: Vec<String> =
            self.fell.iter().map(|(fall, count)| format!("{count} {}", fall.message(names))).collect();
        if self.by_devices_unasked > 0 {
            parts.push(format!("{} would fit if its devices are there", self.by_devices_unasked));
        }
        if self.hold > 0 {
            parts.push(format!("{} {holding}", self.hold));
        }
        let plural = if self.of == 1 { "" } else { "s" };
        Some(format!("{} {what}{plural}: {}", self.of, parts.join(", ")))
    }
}

impl Fall {
    fn rank(&self) -> u8 {
        match self {
            Self::Excluded(_) => 0,
            Self::PoolOrder => 1,
            Self::Taint(_) => 2,
            Self::NodePool => 3,
            Self::Unavailable => 4,
            Self::Label { .. } | Self::NodeAffinity => 5,
            Self::Resource { .. } => 6,
            Self::Devices => 7,
            Self::PodRule(_) => 8,
            Self::Limit(_) | Self::LimitsOrMinValues => 9,
        }
    }

    /// The rule in words, after a number of places.
    pub fn message(&self, names: &Interner) -> String {
        match self {
            Self::Excluded(Excluded::Deleting) => "being deleted".to_owned(),
            Self::Excluded(Excluded::Cordoned) => "cordoned".to_owned(),
            Self::Excluded(Excluded::NotReady) => "not ready".to_owned(),
            Self::Excluded(Excluded::HoldsUnreadablePod) => "full, as a pod there cannot be read".to_owned(),
            Self::Taint(taint) => format!("excluded by taint {}", taint.display(names)),
            Self::NodePool => "excluded by what NodePools require".to_owned(),
            Self::Unavailable => "not available now".to_owned(),
            Self::Label { key, wanted } => {
                format!("excluded by {}", Requirement::new(*key, wanted.clone()).display(names))
            }
            Self::NodeAffinity => "excluded by its node affinity or volumes".to_owned(),
            Self::Resource { wanted, most } => format!(
                "without enough room ({}, the most is {})",
                wanted.missing(names),
                amount(wanted.resource, (*most).max(0), Rounding::Down, names)
            ),
            Self::Devices => "without the devices it claims".to_owned(),
            Self::PodRule(rule) => format!("excluded by {rule}"),
            Self::Limit(Limit::Nodes) => "over limits.nodes".to_owned(),
            Self::Limit(Limit::Resource(resource)) => format!("over limits.{}", names.resource_name(*resource)),
            Self::LimitsOrMinValues => "excluded by limits and minValues".to_owned(),
            Self::PoolOrder => "of NodePools that come later".to_owned(),
        }
    }
}

impl Decision {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PlannedBefore => "PlannedBefore",
            Self::OnlyRoom => "OnlyRoom",
            Self::FirstRoom => "FirstRoom",
            Self::OneOfSeveral => "OneOfSeveral",
            Self::CheapestMachine => "CheapestMachine",
            Self::CheapestThatRulesLeave => "CheapestThatRulesLeave",
            Self::SharedMachine(_) => "SharedMachine",
            Self::WholePlan => "WholePlan",
        }
    }

    /// `is_known` if no place that would do depends on devices that were not asked about.
    fn message(&self, is_known: bool) -> String {
        match self {
            Self::PlannedBefore => "an earlier plan put it there, and the machine is on its way".to_owned(),
            Self::OnlyRoom => "the only free room that holds it".to_owned(),
            Self::FirstRoom => "the first node that holds it: those in use come first, then by name".to_owned(),
            Self::OneOfSeveral => "one of several nodes that hold it".to_owned(),
            Self::CheapestMachine => "the cheapest machine there is".to_owned(),
            Self::CheapestThatRulesLeave => "the cheapest machine that its rules leave".to_owned(),
            Self::SharedMachine(1) => "the cheapest machine that holds it together with the other pod on it".to_owned(),
            Self::SharedMachine(others) => {
                format!("the cheapest machine that holds it together with the {others} other pods on it")
            }
            Self::WholePlan if !is_known => {
                "cheaper machines may lack devices by the time it comes; this one serves the plan as a whole".to_owned()
            }
            Self::WholePlan => {
                "a cheaper machine would hold it by itself; this one serves the plan as a whole".to_owned()
            }
        }
    }
}

impl Placement {
    /// What decided, then how other nodes, other machines of the plan and cheaper machines fell, as far as there are
    /// any.
    pub fn messages(&self, names: &Interner) -> Vec<String> {
        let also = "would hold it too";
        [
            Some(self.decided_by.message(self.offerings.hold > 0 || self.offerings.by_devices_unasked == 0)),
            self.nodes.message("other node", also, names),
            self.machines.message("other machine", also, names).map(|text| text + " (of this plan)"),
            self.offerings
                .message("offering", "would hold it by itself", names)
                .map(|text| text + " (of those that are cheaper or of a NodePool that comes first)"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
