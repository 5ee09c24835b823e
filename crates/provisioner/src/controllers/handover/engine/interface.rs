//! What the engine is told and what it says: its configuration, what is seen of machines and pods, events, commands.

use std::collections::BTreeMap;

use model::{DurationMs, NamespacedName, NodeName, Timestamp, Uid};

/// Times and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Config {
    /// Whether pods get tolerations of their machine's taint; if not, they are nominated only.
    pub tolerate: bool,
    /// How long pods that may enter a machine may take to be bound before the machine is opened without them.
    pub max_wait_for_tolerating: DurationMs,
    /// How long a machine that has its pods waits for progress elsewhere before it is opened.
    pub pause: DurationMs,
    /// How long a machine that has its pods stays closed at most because others make progress.
    pub max_wait_for_others: DurationMs,
    /// How long nothing may have disturbed the scheduler before pods are nominated, at least.
    pub quiet: DurationMs,
    /// How much longer for each pod that waits, before it is known how long the scheduler takes to find no place for
    /// one.
    pub quiet_per_pod: DurationMs,
    /// How long quiet is waited for: a busy cluster is never quiet.
    pub max_wait_for_quiet: DurationMs,
    /// How long a machine may take from being held to being usable, for others to wait for it.
    pub gather: DurationMs,
    /// How long the watch may take to show a nomination.
    pub max_wait_for_watch: DurationMs,
    /// Time between seeing the nominations and checking them.
    pub settle: DurationMs,
    /// How long the pods of a batch may take to be bound before the next batch starts.
    pub max_wait_for_binding: DurationMs,
    /// How long a machine is held while it is not usable, and how long at most once it is, if no planned pods come.
    pub max_hold: DurationMs,
    /// How long a call may take before it counts as lost.
    pub call_timeout: DurationMs,
    /// Most machines in a batch.
    pub batch_machines: usize,
    /// Most pods in a batch that has more than one machine.
    pub batch_pods: usize,
    /// Most nominations of one pod to one machine, and most tries to give it a toleration.
    pub patches_per_pod: u32,
}

impl Config {
    /// How long a machine is held after the last progress at least: time to give up pods that are let in already, and
    /// as much for those that come after them.
    pub(super) fn patience_after_progress(&self) -> DurationMs {
        DurationMs(self.max_wait_for_tolerating.0.saturating_mul(2)).min(self.max_hold)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tolerate: true,
            // kube-scheduler leaves a pod that had no place for up to ten seconds.
            max_wait_for_tolerating: DurationMs::from_seconds(12),
            pause: DurationMs::from_seconds(1),
            max_wait_for_others: DurationMs::from_seconds(10),
            quiet: DurationMs(60),
            quiet_per_pod: DurationMs(3),
            max_wait_for_quiet: DurationMs(3_000),
            gather: DurationMs(2_000),
            max_wait_for_watch: DurationMs(250),
            settle: DurationMs(25),
            max_wait_for_binding: DurationMs(500),
            max_hold: DurationMs::from_seconds(60),
            call_timeout: DurationMs::from_seconds(5),
            batch_machines: 50,
            batch_pods: 100,
            patches_per_pod: 3,
        }
    }
}

/// The machines that are to be handed over, as they are now.
pub(crate) type View = BTreeMap<NodeName, Machine>;

/// A machine that is to be handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Whether it carries our taint.
    pub held: bool,
    /// Whether nothing but our taint keeps pods away.
    pub usable: bool,
    /// Whether our taint keeps out a pod that must run there before the machine can become usable, or may not be used.
    pub needs_entry: bool,
    /// Whether it is not usable yet, other taints keep its planned pods away, and all that must enter first are there:
    /// then our taint does no harm, and is in time.
    pub guarded: bool,
    /// Whether its taint is its own, so that a pod can tolerate this machine's and no other's.
    pub tolerable: bool,
    /// Whether its pods may be nominated at all; if not, it is opened in a batch of its own.
    pub nominate: bool,
    /// Whether a pod that waits for another machine would fit into what is free here, and so come here if it could.
    pub attracts: Attracts,
    /// Whether no order of binding undoes the plan for it if it opens now, with none of its pods patched; see
    /// [`economy`](crate::controllers::handover::economy).
    pub needs_no_patches: bool,
    /// Whether it is closed until pods have come that do not exist yet, since those that they are to succeed are being
    /// evicted: they have a place here, or are to go past.
    pub waits_for_successors: bool,
    /// The pods it was planned for.
    pub pods: Vec<PlannedPod>,
    /// Pods of other machines that are to be spread and count only nodes that they tolerate: they wait until they see
    /// the pods here. None could take a place but that of one like it.
    pub onlookers: Vec<PlannedPod>,
}

impl Machine {
    /// Whether some of its pods wait, no others are to come, and only our taint keeps all of them away.
    pub(crate) fn lets_pods_in(&self) -> bool {
        let mut waiting = self.pods.iter().filter(|pod| pod.is_waiting()).peekable();
        let is_ready = self.held && self.usable && !self.waits_for_successors;
        is_ready && self.tolerable && waiting.peek().is_some() && !waiting.any(|pod| pod.may_enter)
    }
}

/// Which of the pods that wait for other machines would come to one if it were open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attracts {
    /// None.
    Nobody,
    /// Only such as may enter their machines already.
    LetIn,
    /// Others too.
    Others,
}

/// A pod that a machine was planned for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedPod {
    /// Its uid.
    pub uid: Uid,
    /// Its name.
    pub name: NamespacedName,
    /// How far it is.
    pub state: PodState,
    /// Whether it tolerates the machine's taint.
    pub may_enter: bool,
    /// Whether pods that wait for their own machines have to be bound before it.
    pub after_others: bool,
    /// Whether others of this kind cannot come to the machine while this one is nominated to it and waits.
    pub crowds_out_alike: bool,
}

impl PlannedPod {
    pub(super) fn is_waiting(&self) -> bool {
        match self.state {
            PodState::Waiting | PodState::Nominated => true,
            PodState::HandsOff | PodState::Settled => false,
        }
    }
}

/// How far a planned pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Waits, and may be nominated.
    Waiting,
    /// Waits, nominated to this machine.
    Nominated,
    /// Waits, and is not ours to nominate: somebody else did, it is gated, or another scheduler's.
    HandsOff,
    /// Bound or gone: nothing more to do.
    Settled,
}

/// What else the engine needs to know of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Surroundings {
    /// Machines were launched lately, and are worth waiting for until then.
    pub expected_until: Option<Timestamp>,
    /// How many pods wait for a node, planned or not.
    pub waiting_pods: usize,
    /// Pods that were planned onto machines that are open by now, and have not come; with those. None that nominations
    /// do not help.
    pub late: Vec<(NodeName, PlannedPod)>,
}

/// What happened since the last step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A taint was added to or removed from any node of the cluster.
    TaintChanged,
    /// The nomination of any pod that is not bound was removed.
    NominationCleared,
    /// A [`Command::Nominate`] has ended.
    NominationEnded {
        /// The pod.
        pod: Uid,
        /// Whether the pod has the nomination now.
        accepted: bool,
    },
    /// A [`Command::Tolerate`] has ended.
    TolerationEnded {
        /// The pod.
        pod: Uid,
        /// The machine.
        node: NodeName,
        /// How.
        outcome: TolerationOutcome,
    },
    /// A [`Command::Close`] has ended.
    ClosingEnded,
    /// A [`Command::Open`] has ended.
    OpeningEnded {
        /// The machine.
        node: NodeName,
        /// Whether the taint is gone.
        opened: bool,
    },
}

/// What came of giving a pod a toleration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TolerationOutcome {
    /// It has it, or the pod is gone.
    Done,
    /// We may not change pods: nominations are left.
    Refused,
    /// Another try may help.
    Failed,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Let the pod tolerate the machine's taint.
    Tolerate {
        /// The pod's uid.
        uid: Uid,
        /// The pod.
        pod: NamespacedName,
        /// The machine.
        node: NodeName,
    },
    /// Write the node into the pod's `status.nominatedNodeName`.
    Nominate {
        /// The pod's uid.
        uid: Uid,
        /// The pod.
        pod: NamespacedName,
        /// The machine.
        node: NodeName,
    },
    /// Take our taint off the node.
    Open {
        /// The machine.
        node: NodeName,
        /// Why now.
        opening: Opening,
    },
    /// Give the node our taint.
    Close {
        /// The machine.
        node: NodeName,
    },
}

/// Why a machine is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Opening {
    /// Its pods were nominated, or needed no nomination.
    HandedOver,
    /// Its pods come in whatever order they are bound.
    Unpatched,
    /// Our taint kept out a pod that has to run there first.
    EntryNeeded,
    /// It was held as long as it may be.
    HeldTooLong,
}

impl Opening {
    /// Label `outcome` of the metric.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::HandedOver => "handed_over",
            Self::Unpatched => "unpatched",
            Self::EntryNeeded => "entry_needed",
            Self::HeldTooLong => "held_too_long",
        }
    }
}
