//! Why a machine goes or stays, as data, and the one place where that becomes words.

use std::sync::Arc;

use model::{DurationMs, NamespacedName, NodePoolName, PriceNanoUsdPerHour, Timestamp};

use crate::plan::Verdict;
use crate::plan::reason::Reason as PlanReason;
use crate::snapshot::Snapshot;
use crate::snapshot::eviction::Forbidden;
use crate::snapshot::fleet::{Reason, ReplicasHold, UnderWay};
use crate::tuning::SPOT_TO_SPOT_TYPES;

/// Why a machine goes or stays. There is one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeReason {
    /// It goes.
    Goes {
        /// With which command, by its position in the plan.
        command: usize,
    },
    /// Nothing may be done with it now.
    Blocked(Block),
    /// It would go, and budgets of its NodePool let no more nodes go.
    Budget {
        /// Why it would go.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
        /// What holds it.
        limit: BudgetLimit,
    },
    /// It would be replaced, and the number of nodes that its static NodePool keeps does not let that begin.
    Replicas {
        /// Why it would be.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
        /// What holds it.
        hold: ReplicasHold,
    },
    /// It would go, and one of its pods has no place elsewhere.
    NoPlace {
        /// Why it would go.
        reason: Reason,
        /// The pod.
        pod: NamespacedName,
        /// Whether that is proven.
        verdict: Verdict,
        /// Why.
        reasons: Arc<[PlanReason]>,
    },
    /// It would go, and one of its pods has a place only on a machine that is still coming up.
    PlaceNotReady {
        /// Why it would go.
        reason: Reason,
        /// The pod.
        pod: NamespacedName,
        /// The machine.
        node: Arc<str>,
    },
    /// It would go, and the bound of simulations was reached before it was its turn.
    Undecided {
        /// Why it would go.
        reason: Reason,
    },
    /// Its NodePool is not consolidated (`consolidateAfter: Never`).
    ConsolidationOff {
        /// Why it could go.
        reason: Reason,
        /// The NodePool.
        node_pool: NodePoolName,
    },
    /// It has not been quiet for long enough.
    NotQuiet {
        /// Why it could go.
        reason: Reason,
        /// How long its NodePool wants it to be (`consolidateAfter`).
        wanted: DurationMs,
        /// When a pod last came or left, if that is known.
        last_pod_event: Option<Timestamp>,
    },
    /// It keeps room free for pods to come.
    HoldsBuffer {
        /// Why it could go.
        reason: Reason,
        /// The CapacityBuffer, and the first of them if there are several.
        buffer: NamespacedName,
    },
    /// It has pods that would have to move, and to move them saves nothing, or not enough.
    Unconsolidatable(Unconsolidatable),
    /// Pods of machines that go, or pods that wait, have got a place on it.
    TakesPods,
}

/// Why it does not pay, or is against a rule, to place the pods of a machine elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unconsolidatable {
    /// The policy of its NodePool is `WhenEmpty`.
    PolicyWhenEmpty(NodePoolName),
    /// No offering like it is known any more, so nobody knows what it costs.
    PriceUnknown,
    /// No fleet with room for all pods costs less than this one, all machines together.
    NothingToGain {
        /// What the machines cost that could go.
        price: PriceNanoUsdPerHour,
        /// What room for their pods costs at least: a lower bound, by linear relaxation.
        bound: PriceNanoUsdPerHour,
    },
    /// Its pods are worth its price, by the dual prices of that relaxation.
    WorthItsPrice {
        /// What it costs.
        price: PriceNanoUsdPerHour,
        /// What it could save at most.
        most: PriceNanoUsdPerHour,
    },
    /// By that relaxation it brings too little for its evictions.
    CannotPay {
        /// What it could save at most.
        most: PriceNanoUsdPerHour,
        /// What has to be saved so that they pay.
        wanted: PriceNanoUsdPerHour,
    },
    /// Machines for those of its pods that find no room elsewhere cost as much.
    NoSaving {
        /// What it costs.
        price: PriceNanoUsdPerHour,
        /// What the others cost at least, as far as they were planned.
        replacements: PriceNanoUsdPerHour,
    },
    /// What would be saved is less than what the evictions cost.
    DoesNotPay {
        /// What would be saved.
        saving: PriceNanoUsdPerHour,
        /// What would have to be.
        wanted: PriceNanoUsdPerHour,
    },
    /// A spot machine is not replaced by another: the gate `SpotToSpotConsolidation` is off.
    SpotToSpotOff,
    /// Too few types are cheaper for a spot machine to be replaced by another.
    TooFewCheaperTypes {
        /// How many are.
        found: usize,
    },
    /// The types that are cheaper do not keep the `minValues` of a NodePool.
    MinValues(NodePoolName),
    /// Among what would take the place of several machines is one of these.
    ReplacedByItself,
    /// The policy `Balanced` of a NodePool finds the saving too small for the disruption.
    Balanced {
        /// The NodePool.
        node_pool: NodePoolName,
        /// How often the part of its price that would be saved is the part of its disruption cost, in thousandths.
        score_permille: i64,
    },
    /// It was part of a set that would pay together, and what provisioning made of that did not.
    NotConfirmed,
}

/// What keeps a machine from being disrupted, whatever for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Somebody has begun with it.
    UnderWay(UnderWay),
    /// Its Node is not there yet, or not initialized.
    NotInitialized,
    /// It carries no label of a NodePool.
    NoNodePool,
    /// Its NodePool is not there, or could not be read.
    NodePoolNotFound(NodePoolName),
    /// Nothing is known that its NodePool could launch.
    NoInstanceTypes(NodePoolName),
    /// Its NodePool has a fixed number of nodes, which pods do not decide about.
    StaticNodePool(NodePoolName),
    /// Its Node's annotation `karpenter.sh/do-not-disrupt`.
    DoNotDisrupt,
    /// A pod that waits is to come to it.
    Nominated(NamespacedName),
    /// A pod may not be evicted.
    Pod {
        /// The pod.
        pod: NamespacedName,
        /// Why not.
        forbidden: Forbidden,
    },
    /// Nobody here looks for a place for one of its pods.
    PodLeftToOthers {
        /// The pod.
        pod: NamespacedName,
        /// Why not, after the pod's name.
        why: Arc<str>,
    },
}

/// What of a NodePool lets no more nodes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetLimit {
    /// An active budget.
    Budget {
        /// Its position in the list.
        index: usize,
        /// What it says.
        text: Arc<str>,
        /// How many nodes that is.
        allowed: u32,
        /// How many are being disrupted, or taken by commands before.
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
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Goes { .. } => "Goes",
            Self::Blocked(block) => block.code(),
            Self::Budget { .. } => "Budget",
            Self::Replicas { hold: ReplicasHold::Surplus, .. } => "TooManyReplicas",
            Self::Replicas { hold: ReplicasHold::NodeLimit(_), .. } => "NodeLimit",
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
            Self::Goes { command } => format!("goes with command {}", command + 1),
            Self::Blocked(block) => block.message(),
            Self::Budget { reason, node_pool, limit } => {
                format!("{}, but nodepool {node_pool} {}", would_go(*reason), limit.message())
            }
            Self::Replicas { reason, node_pool, hold: ReplicasHold::Surplus } => {
                format!("{}, but nodepool {node_pool} has more nodes than replicas, which go first", would_go(*reason))
            }
            Self::Replicas { reason, node_pool, hold: ReplicasHold::NodeLimit(limit) } => format!(
                "{}, but static nodepool {node_pool} is at its node limit, {limit}, and cannot stage a replacement",
                would_go(*reason)
            ),
            Self::NoPlace { reason, pod, verdict, reasons } => {
                let has_none = match verdict {
                    Verdict::OutOfBudget => "may have no place elsewhere, the search for one was cut short",
                    Verdict::DoesNotFit | Verdict::Unsupported | Verdict::Waits | Verdict::OptedOut => {
                        "has no place elsewhere"
                    }
                };
                let why: Vec<String> = reasons.iter().map(|reason| told(reason, snapshot)).collect();
                let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
                format!("{}, but pod {pod} {has_none}{why}", would_go(*reason))
            }
            Self::PlaceNotReady { reason, pod, node } => {
                format!("{}, but pod {pod} has a place only on {node}, which is still coming up", would_go(*reason))
            }
            Self::Undecided { reason } => {
                format!("{}, but it was not decided where its pods go; it is tried again", would_go(*reason))
            }
            Self::ConsolidationOff { reason: Reason::Empty, node_pool } => {
                format!("is empty, but nodepool {node_pool} removes no empty nodes (consolidateAfter Never)")
            }
            Self::ConsolidationOff { node_pool, .. } => {
                format!("is in use, and nodepool {node_pool} is not consolidated (consolidateAfter Never)")
            }
            Self::NotQuiet { reason, wanted, last_pod_event: Some(last) } => {
                let is = is_now(*reason);
                format!("{is} the last pod came or left at {last}, and consolidateAfter is {wanted}")
            }
            Self::NotQuiet { reason: Reason::Empty, wanted, last_pod_event: None } => {
                format!("is empty, but not known to have been so for consolidateAfter, {wanted}")
            }
            Self::NotQuiet { wanted, .. } => {
                format!("is in use, and not known to have been quiet for consolidateAfter, {wanted}")
            }
            Self::HoldsBuffer { reason, buffer } => {
                format!("{} keeps room free for CapacityBuffer {buffer}", is_now(*reason))
            }
            Self::Unconsolidatable(why) => why.message(),
            Self::TakesPods => "is in use, and takes pods of machines that go".to_owned(),
        }
    }
}

impl Unconsolidatable {
    /// A stable word for programs.
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
                format!("is in use, and nodepool {pool} removes empty nodes only (consolidationPolicy WhenEmpty)")
            }
            Self::PriceUnknown => "is in use, and what it costs is not known: no offering like it is".to_owned(),
            Self::NothingToGain { price, bound } => format!(
                "is in use, and nothing can be gained: the machines that could go cost {price}, and no room for their \
                 pods costs less than {bound}"
            ),
            Self::WorthItsPrice { price, most } if most.0 <= 0 => {
                format!("is in use, and its pods are worth its price, {price}")
            }
            Self::WorthItsPrice { price, most } => {
                format!("is in use, and its pods are worth its price, {price}, but for {most} at most")
            }
            Self::CannotPay { most, wanted } => {
                format!("is in use, and could save {most} at most, but its evictions pay from {wanted} on")
            }
            Self::NoSaving { price, replacements } => {
                format!("is in use, and costs {price}; in its place machines for {replacements} would be needed")
            }
            Self::DoesNotPay { saving, wanted } => {
                format!("could go and save {saving}, but its evictions pay from {wanted} on")
            }
            Self::SpotToSpotOff => {
                "could be replaced, but by a spot machine, and the gate SpotToSpotConsolidation is off".to_owned()
            }
            Self::TooFewCheaperTypes { found } => format!(
                "could be replaced, but {found} instance types are cheaper, and a spot machine is replaced by another only \
                 if {SPOT_TO_SPOT_TYPES} are"
            ),
            Self::MinValues(pool) => {
                format!("could be replaced, but the cheaper instance types do not keep minValues of nodepool {pool}")
            }
            Self::ReplacedByItself => {
                "could go with others, but one of them would take the place of all of them".to_owned()
            }
            Self::Balanced { node_pool, score_permille } => format!(
                "could go, but policy Balanced of nodepool {node_pool} finds that too little for the disruption: score \
                 {}.{:03}, and 0.500 is wanted",
                score_permille / 1000,
                score_permille % 1000
            ),
            Self::NotConfirmed => "could go with others, but what takes their place would not pay".to_owned(),
        }
    }
}

impl Block {
    /// A stable word for programs.
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
            Self::UnderWay(UnderWay::Command(Some(reason))) => format!("has a command under way ({reason})"),
            Self::UnderWay(UnderWay::Command(None)) => "takes part in a command under way".to_owned(),
            Self::UnderWay(UnderWay::Taint) => {
                "has the taint karpenter.sh/disrupted, and no command under way says why".to_owned()
            }
            Self::UnderWay(UnderWay::Reboot) => "is being rebooted".to_owned(),
            Self::NotInitialized => "is not initialized yet".to_owned(),
            Self::NoNodePool => "belongs to no nodepool".to_owned(),
            Self::NodePoolNotFound(pool) => format!("belongs to nodepool {pool}, which is not there"),
            Self::NoInstanceTypes(pool) => format!("belongs to nodepool {pool}, of which no instance type is known"),
            Self::StaticNodePool(pool) => format!("is one of the replicas of nodepool {pool}"),
            Self::DoNotDisrupt => "has the annotation karpenter.sh/do-not-disrupt".to_owned(),
            Self::Nominated(pod) => format!("is to take pod {pod}, which waits"),
            Self::Pod { pod, forbidden } => match forbidden {
                Forbidden::DoNotDisrupt(None) => format!("runs pod {pod} with karpenter.sh/do-not-disrupt"),
                Forbidden::DoNotDisrupt(Some(until)) => {
                    format!("runs pod {pod} with karpenter.sh/do-not-disrupt until {until}")
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
                    (0, _) => "lets none go".to_owned(),
                    _ => format!("lets {allowed} go at once, and {disrupted} are going"),
                };
                let until = until.map(|until| format!(", until {until}")).unwrap_or_default();
                format!("{taken} (budgets[{index}]: {text}{until})")
            }
            Self::Fault { index, problem } => {
                format!("lets none go, since budgets[{index}] cannot be read: {problem}")
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
        Reason::Underutilized => "could go",
        Reason::Empty => "is empty",
        Reason::Drifted => "has drifted",
        Reason::Expired => "is past its time",
        Reason::Unhealthy => "is broken",
    }
}

fn told(reason: &PlanReason, snapshot: &Snapshot) -> String {
    let message = reason.message(&snapshot.interner);
    match reason.object() {
        Some(object) => format!("{object}: {message}"),
        None => message,
    }
}
