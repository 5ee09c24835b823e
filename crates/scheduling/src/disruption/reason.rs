//! Why a machine is disrupted or stays, as data; and the only place where that becomes text.

use std::sync::Arc;

use model::price::{short, short_apart};
use model::{DurationMs, NamespacedName, NodePoolName, PriceNanoUsdPerHour, Timestamp};

use crate::plan::Verdict;
use crate::plan::reason::Reason as PlanReason;
use crate::snapshot::Snapshot;
use crate::snapshot::eviction::Forbidden;
use crate::snapshot::fleet::{Reason, ReplicasHold, UnderWay};
use crate::tuning::SPOT_TO_SPOT_TYPES;

/// Why a machine is disrupted or stays. Each machine of a plan has exactly one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReason {
    /// It is disrupted.
    Goes {
        /// The command, by its position in the plan.
        command: usize,
    },
    /// It must not be disrupted now, whatever for.
    Blocked(Block),
    /// It would be disrupted, but the budgets of its NodePool allow no more.
    Budget {
        /// Why it would be disrupted.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
        /// What prevents it.
        limit: BudgetLimit,
    },
    /// It would be replaced, but its static NodePool has too many nodes, or no room for one more.
    Replicas {
        /// Why it would be replaced.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
        /// What prevents it.
        hold: ReplicasHold,
    },
    /// It would be disrupted, but one of its pods has no place elsewhere.
    NoPlace {
        /// Why it would be disrupted.
        reason: Reason,
        /// The pod.
        pod: NamespacedName,
        /// `OutOfBudget` if the search was cut short; any other refusal is a proof.
        verdict: Verdict,
        /// Why the pod has no place.
        reasons: Arc<[PlanReason]>,
    },
    /// It would be disrupted, but one of its pods only fits on a machine that is not initialized yet.
    PlaceNotReady {
        /// Why it would be disrupted.
        reason: Reason,
        /// The pod.
        pod: NamespacedName,
        /// The machine.
        node: Arc<str>,
    },
    /// It would be disrupted, but the plan reached its limit of simulations before its turn.
    Undecided {
        /// Why it would be disrupted.
        reason: Reason,
    },
    /// Its NodePool is not consolidated (`consolidateAfter: Never`).
    ConsolidationOff {
        /// Why it could be disrupted.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
    },
    /// A pod came or left within `consolidateAfter`, or nobody knows that none did.
    NotQuiet {
        /// Why it could be disrupted.
        reason: Reason,
        /// `consolidateAfter` of its NodePool.
        wanted: DurationMs,
        /// When a pod last came or left, if that is known.
        last_pod_event: Option<Timestamp>,
    },
    /// It keeps room free for pods to come.
    HoldsBuffer {
        /// Why it could be disrupted.
        reason: Reason,
        /// The CapacityBuffer, and the first of them if there are several.
        buffer: NamespacedName,
    },
    /// It has pods that would have to move, and moving them saves too little or is against a rule.
    Unconsolidatable(Unconsolidatable),
    /// The plan places pods of disrupted machines, or pending pods, on it.
    TakesPods,
}

/// Why a machine with pods is not consolidated: it does not pay, or is against a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unconsolidatable {
    /// The policy of its NodePool is `WhenEmpty`.
    PolicyWhenEmpty(NodePoolName),
    /// The provider no longer lists its offering, so its price is unknown.
    PriceUnknown,
    /// No fleet with room for all pods costs less than the present one.
    NothingToGain {
        /// The price of all machines that could be removed.
        price: PriceNanoUsdPerHour,
        /// A lower bound on the price of capacity for their pods, from the linear relaxation.
        bound: PriceNanoUsdPerHour,
    },
    /// By the dual prices of the linear relaxation, its pods cost as much elsewhere, or nearly so.
    WorthItsPrice {
        /// Its price.
        price: PriceNanoUsdPerHour,
        /// An upper bound on what removing it saves.
        most: PriceNanoUsdPerHour,
    },
    /// By the linear relaxation, removing it saves too little for its evictions.
    CannotPay {
        /// An upper bound on what removing it saves.
        most: PriceNanoUsdPerHour,
        /// The least saving that pays for the evictions.
        wanted: PriceNanoUsdPerHour,
    },
    /// Some of its pods need new machines, which cost at least as much.
    NoSaving {
        /// Its price.
        price: PriceNanoUsdPerHour,
        /// A lower bound on the price of the new machines: planning stops as soon as they cost too much.
        replacements: PriceNanoUsdPerHour,
    },
    /// The saving is smaller than the price of the evictions.
    DoesNotPay {
        /// What would be saved.
        saving: PriceNanoUsdPerHour,
        /// The least saving that pays for the evictions.
        wanted: PriceNanoUsdPerHour,
    },
    /// Only a spot machine could replace this spot machine, and the gate `SpotToSpotConsolidation` is off.
    SpotToSpotOff,
    /// Fewer than `SPOT_TO_SPOT_TYPES` instance types are cheaper, so this spot machine is not replaced by another.
    TooFewCheaperTypes {
        /// How many are cheaper.
        found: usize,
    },
    /// The cheaper instance types do not satisfy the `minValues` of this NodePool.
    MinValues(NodePoolName),
    /// Several machines would be replaced by one of the instance type of one of them (Karpenter's
    /// `filterOutSameInstanceType`).
    ReplacedByItself,
    /// By the policy `Balanced` of a NodePool, the saving is too small for the disruption.
    Balanced {
        /// The NodePool.
        node_pool: NodePoolName,
        /// The saving as a share of the NodePool's price, divided by the command's share of the NodePool's disruption
        /// cost, in thousandths.
        score_permille: i64,
    },
    /// The search proposed a set with this machine, but the plan of that set, by all rules, does not save enough.
    NotConfirmed,
}

/// Why a machine must not be disrupted, for any reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// It is being deleted, disrupted or rebooted already.
    UnderWay(UnderWay),
    /// Its Node does not exist yet, or is not initialized.
    NotInitialized,
    /// It carries no label of a NodePool.
    NoNodePool,
    /// Its NodePool does not exist, or could not be read.
    NodePoolNotFound(NodePoolName),
    /// No instance types are known for its NodePool.
    NoInstanceTypes(NodePoolName),
    /// Its NodePool has a fixed number of nodes, which pods do not decide about.
    StaticNodePool(NodePoolName),
    /// Its Node has the annotation `karpenter.sh/do-not-disrupt`.
    DoNotDisrupt,
    /// Its Node has the annotation `karpenter.sh/do-not-repair`, and it is broken.
    DoNotRepair,
    /// It is broken, and so are too many others of its NodePool.
    TooManyUnhealthy {
        /// The NodePool.
        node_pool: NodePoolName,
        /// How many of its nodes.
        unhealthy: usize,
        /// Of so many.
        nodes: usize,
    },
    /// This pending pod is nominated to it.
    Nominated(NamespacedName),
    /// A pod may not be evicted.
    Pod {
        /// The pod.
        pod: NamespacedName,
        /// Why not.
        forbidden: Forbidden,
    },
    /// One of its pods would have to move, and Dovetail does not plan for that pod.
    PodLeftToOthers {
        /// The pod.
        pod: NamespacedName,
        /// Why not, after the pod's name.
        why: Arc<str>,
    },
}

/// Why the budgets of a NodePool allow no more disruptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetLimit {
    /// An active budget.
    Budget {
        /// Its position in the list.
        index: usize,
        /// What it says.
        text: Arc<str>,
        /// How many nodes may be disrupted at once.
        allowed: u32,
        /// How many are disrupted already: not ready, under way, or in earlier commands of this plan.
        disrupted: u32,
        /// When the budget ends, if it has a schedule.
        until: Option<Timestamp>,
    },
    /// A budget that cannot be read.
    Fault {
        /// Its position in the list.
        index: usize,
        /// What is wrong with it.
        problem: Arc<str>,
    },
}

impl NodeReason {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Goes { .. } => "Goes",
            Self::Blocked(block) => block.code(),
            Self::Budget { .. } => "Budget",
            Self::Replicas { hold: ReplicasHold::Surplus, .. } => "TooManyReplicas",
            Self::Replicas { hold: ReplicasHold::NodeLimit(_), .. } => "NodeLimit",
            Self::Replicas { hold: ReplicasHold::ReservationsFull, .. } => "ReservationsFull",
            Self::NoPlace { .. } => "NoPlace",
            Self::PlaceNotReady { .. } => "PlaceNotReady",
            Self::Undecided { .. } => "Undecided",
            Self::ConsolidationOff { .. } => "ConsolidationOff",
            Self::NotQuiet { .. } => "NotQuiet",
            Self::HoldsBuffer { .. } => "HoldsBuffer",
            Self::Unconsolidatable(why) => why.code(),
            Self::TakesPods => "TakesPods",
        }
    }

    /// The reason in words, after the machine's name. `snapshot` is that of the plan.
    pub fn message(&self, snapshot: &Snapshot) -> String {
        match self {
            Self::Goes { command } => format!("is disrupted by command {}", command + 1),
            Self::Blocked(block) => block.message(),
            Self::Budget { reason, node_pool, limit } => {
                format!("{}, but nodepool {node_pool} {}", would_go(*reason), limit.message())
            }
            Self::Replicas { reason, node_pool, hold: ReplicasHold::Surplus } => {
                format!(
                    "{}, but nodepool {node_pool} has more nodes than replicas, and the surplus is removed first",
                    would_go(*reason)
                )
            }
            Self::Replicas { reason, node_pool, hold: ReplicasHold::NodeLimit(limit) } => format!(
                "{}, but static nodepool {node_pool} is at its node limit of {limit}, so no replacement can be \
                 launched",
                would_go(*reason)
            ),
            Self::Replicas { reason, node_pool, hold: ReplicasHold::ReservationsFull } => format!(
                "{}, but static nodepool {node_pool} launches from reservations only, and these are full, so no \
                 replacement can be launched",
                would_go(*reason)
            ),
            Self::NoPlace { reason, pod, verdict, reasons } => {
                let has_none = match verdict {
                    Verdict::OutOfBudget => "could not be scheduled elsewhere before the search reached its limit",
                    Verdict::DoesNotFit | Verdict::Unsupported | Verdict::Waits | Verdict::OptedOut => {
                        "cannot be scheduled elsewhere"
                    }
                };
                let why: Vec<String> = reasons.iter().map(|reason| told(reason, snapshot)).collect();
                let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
                format!("{}, but pod {pod} {has_none}{why}", would_go(*reason))
            }
            Self::PlaceNotReady { reason, pod, node } => {
                format!("{}, but pod {pod} fits only on {node}, which is still starting", would_go(*reason))
            }
            Self::Undecided { reason } => {
                format!("{}, but planning reached its limit before its turn; it is tried again", would_go(*reason))
            }
            Self::ConsolidationOff { reason: Reason::Empty, node_pool } => {
                format!("is empty, but nodepool {node_pool} removes no empty nodes (consolidateAfter: Never)")
            }
            Self::ConsolidationOff { node_pool, .. } => {
                format!("is in use, and nodepool {node_pool} is not consolidated (consolidateAfter: Never)")
            }
            Self::NotQuiet { reason, wanted, last_pod_event: Some(last) } => {
                let is = is_now(*reason);
                format!("{is} the last pod came or left at {last}, and consolidateAfter is {wanted}")
            }
            Self::NotQuiet { reason: Reason::Empty, wanted, last_pod_event: None } => {
                format!("is empty, but not known to have been empty for {wanted} (consolidateAfter)")
            }
            Self::NotQuiet { wanted, .. } => {
                format!("is in use, and a pod may have come or left in the last {wanted} (consolidateAfter)")
            }
            Self::HoldsBuffer { reason, buffer } => {
                format!("{} keeps room free for CapacityBuffer {buffer}", is_now(*reason))
            }
            Self::Unconsolidatable(why) => why.message(),
            Self::TakesPods => "is in use, and receives pods in this plan".to_owned(),
        }
    }
}

impl Unconsolidatable {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::PolicyWhenEmpty(_) => "PolicyWhenEmpty",
            Self::PriceUnknown => "PriceUnknown",
            Self::NothingToGain { .. } => "NothingToGain",
            Self::WorthItsPrice { .. } => "WorthItsPrice",
            Self::CannotPay { .. } => "CannotPay",
            Self::NoSaving { .. } => "NoSaving",
            Self::DoesNotPay { .. } => "DoesNotPay",
            Self::SpotToSpotOff => "SpotToSpotOff",
            Self::TooFewCheaperTypes { .. } => "TooFewCheaperTypes",
            Self::MinValues(_) => "MinValues",
            Self::ReplacedByItself => "ReplacedByItself",
            Self::Balanced { .. } => "Balanced",
            Self::NotConfirmed => "NotConfirmed",
        }
    }

    /// The reason in words, after the machine's name.
    fn message(&self) -> String {
        match self {
            Self::PolicyWhenEmpty(pool) => {
                format!("is in use, and nodepool {pool} removes empty nodes only (consolidationPolicy: WhenEmpty)")
            }
            Self::PriceUnknown => "is in use, and its price is unknown: no known offering matches it".to_owned(),
            Self::NothingToGain { price, bound } => {
                let (price, bound) = short_apart(*price, *bound);
                format!(
                    "is in use, and nothing can be saved: the nodes that could be removed cost {price}, and capacity \
                     for their pods costs at least {bound}"
                )
            }
            Self::WorthItsPrice { price, most } if most.0 <= 0 => {
                format!("is in use, and removing it cannot save any of its price, {}", short(*price))
            }
            Self::WorthItsPrice { price, most } => {
                let (most, price) = short_apart(*most, *price);
                format!("is in use, and removing it can save at most {most} of its price, {price}")
            }
            Self::CannotPay { most, wanted } => {
                let (most, wanted) = short_apart(*most, *wanted);
                format!(
                    "is in use; removing it can save at most {most}, but its evictions require a saving of {wanted}"
                )
            }
            Self::NoSaving { price, replacements } => {
                let (price, replacements) = short_apart(*price, *replacements);
                format!("is in use, and costs {price}; its replacements would cost at least {replacements}")
            }
            Self::DoesNotPay { saving, wanted } => {
                let (saving, wanted) = short_apart(*saving, *wanted);
                format!("could be consolidated to save {saving}, but its evictions require a saving of {wanted}")
            }
            Self::SpotToSpotOff => {
                "could be replaced, but only by a spot node, and the feature gate SpotToSpotConsolidation is off"
                    .to_owned()
            }
            Self::TooFewCheaperTypes { found } => format!(
                "could be replaced, but only {found} instance types are cheaper, and a spot node is replaced by \
                 another only if {SPOT_TO_SPOT_TYPES} are"
            ),
            Self::MinValues(pool) => {
                format!("could be replaced, but the cheaper instance types do not satisfy minValues of nodepool {pool}")
            }
            Self::ReplacedByItself => {
                "could be removed with others, but their replacement would be a node like one of them".to_owned()
            }
            Self::Balanced { node_pool, score_permille } => format!(
                "could be consolidated, but policy Balanced of nodepool {node_pool} finds the saving too small for the \
                 disruption: its score is {}.{:03}, and at least 0.500 is required",
                score_permille / 1000,
                score_permille % 1000
            ),
            Self::NotConfirmed => {
                "could be removed with others, but their replacements would not save enough".to_owned()
            }
        }
    }
}

impl Block {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnderWay(UnderWay::Deletion) => "Deleting",
            Self::UnderWay(UnderWay::Command(_)) => "CommandUnderWay",
            Self::UnderWay(UnderWay::Taint) => "Tainted",
            Self::UnderWay(UnderWay::Reboot) => "Rebooting",
            Self::NotInitialized => "NotInitialized",
            Self::NoNodePool => "NoNodePool",
            Self::NodePoolNotFound(_) => "NodePoolNotFound",
            Self::NoInstanceTypes(_) => "NoInstanceTypes",
            Self::StaticNodePool(_) => "StaticNodePool",
            Self::DoNotDisrupt => "DoNotDisrupt",
            Self::DoNotRepair => "DoNotRepair",
            Self::TooManyUnhealthy { .. } => "TooManyUnhealthy",
            Self::Nominated(_) => "Nominated",
            Self::Pod { forbidden: Forbidden::DoNotDisrupt(_), .. } => "PodDoNotDisrupt",
            Self::Pod { forbidden: Forbidden::Budget(_), .. } => "PodDisruptionBudget",
            Self::Pod { forbidden: Forbidden::SeveralBudgets(_), .. } => "SeveralPodDisruptionBudgets",
            Self::PodLeftToOthers { .. } => "PodLeftToOthers",
        }
    }

    /// The block in words, after the machine's name.
    pub fn message(&self) -> String {
        match self {
            Self::UnderWay(UnderWay::Deletion) => "is being deleted".to_owned(),
            Self::UnderWay(UnderWay::Command(Some(reason))) => format!("is already being disrupted ({reason})"),
            Self::UnderWay(UnderWay::Command(None)) => "is part of a disruption command in progress".to_owned(),
            Self::UnderWay(UnderWay::Taint) => {
                "has the taint karpenter.sh/disrupted, which no disruption command explains".to_owned()
            }
            Self::UnderWay(UnderWay::Reboot) => "is being rebooted".to_owned(),
            Self::NotInitialized => "is not initialized yet".to_owned(),
            Self::NoNodePool => "belongs to no nodepool".to_owned(),
            Self::NodePoolNotFound(pool) => format!("belongs to nodepool {pool}, which was not found"),
            Self::NoInstanceTypes(pool) => format!("belongs to nodepool {pool}, which has no known instance types"),
            Self::StaticNodePool(pool) => format!("is one of the replicas of static nodepool {pool}"),
            Self::DoNotDisrupt => "has the annotation karpenter.sh/do-not-disrupt".to_owned(),
            Self::DoNotRepair => "is unhealthy, and has the annotation karpenter.sh/do-not-repair".to_owned(),
            Self::TooManyUnhealthy { node_pool, unhealthy, nodes } => format!(
                "is unhealthy, and so many nodes of nodepool {node_pool} are ({unhealthy} of {nodes}, more than 20%) that \
                 the cause is probably elsewhere"
            ),
            Self::Nominated(pod) => format!("is nominated for pending pod {pod}"),
            Self::Pod { pod, forbidden } => match forbidden {
                Forbidden::DoNotDisrupt(None) => format!("runs pod {pod} with annotation karpenter.sh/do-not-disrupt"),
                Forbidden::DoNotDisrupt(Some(until)) => {
                    format!("runs pod {pod} with annotation karpenter.sh/do-not-disrupt until {until}")
                }
                Forbidden::Budget(budget) => {
                    format!("runs pod {pod}, and PodDisruptionBudget {budget} allows no disruption now")
                }
                Forbidden::SeveralBudgets(budgets) => {
                    format!("runs pod {pod}, and several PodDisruptionBudgets select it: {}", budgets.join(", "))
                }
            },
            Self::PodLeftToOthers { pod, why } => format!("runs pod {pod}, which {why}"),
        }
    }
}

impl BudgetLimit {
    /// After the NodePool's name.
    fn message(&self) -> String {
        match self {
            Self::Budget { index, text, allowed, disrupted, until } => {
                let taken = match (allowed, disrupted) {
                    (0, _) => "allows no disruptions".to_owned(),
                    (1, _) => format!("allows 1 disruption at once, and {disrupted} {} used", are(*disrupted)),
                    _ => format!("allows {allowed} disruptions at once, and {disrupted} {} used", are(*disrupted)),
                };
                let until = until.map(|until| format!(", until {until}")).unwrap_or_default();
                format!("{taken} (budgets[{index}]: {text}{until})")
            }
            Self::Fault { index, problem } => {
                format!("allows no disruptions, since budgets[{index}] cannot be read: {problem}")
            }
        }
    }
}

fn is_now(reason: Reason) -> &'static str {
    match reason {
        Reason::Empty => "is empty, but",
        Reason::Underutilized | Reason::Drifted | Reason::Expired | Reason::Unhealthy => "is in use, and",
    }
}

fn would_go(reason: Reason) -> &'static str {
    match reason {
        Reason::Underutilized => "could be consolidated",
        Reason::Empty => "is empty",
        Reason::Drifted => "has drifted",
        Reason::Expired => "has expired",
        Reason::Unhealthy => "is unhealthy",
    }
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn told(reason: &PlanReason, snapshot: &Snapshot) -> String {
    let message = reason.message(&snapshot.interner);
    match reason.object() {
        Some(object) => format!("{object}: {message}"),
        None => message,
    }
}
