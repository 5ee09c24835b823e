//! A brake on launches that do not help.
//!
//! A machine comes, and the pods that it was launched for wait as before: a daemon asks for more than anybody
//! could know, a kubelet offers less than the provider promised, a webhook adds a taint. The same plan made again would
//! bring another machine, as useless, every few seconds. Whatever the cause, the effect is bounded here, as that of a
//! crash loop is:
//!
//! * A class of pods for which a machine was launched in vain is planned again only after a delay, which starts from
//!   the moment when that machine was initialized, or had its Node if it is not, and grows threefold with each machine
//!   in a row.
//! * The next attempt brings one machine, however many pods of the class wait. Once it runs some of them, the others
//!   may have theirs.
//! * In place of the computed room of the machine's type the observed one counts.
//! * Once the NodePool of that machine is gone, all of this is forgotten: machines of another one may help.
//!
//! All of it is a pure function of what is noted and of the time. After a restart it comes back from the NodeClaims:
//! each says for which classes it was launched and after how many launches in vain (`launched_for`), and whether it was
//! in vain is judged from the cluster anew (`judge`).

use std::collections::{BTreeMap, BTreeSet};

use model::{DurationMs, InstanceTypeName, NodePoolName, Timestamp, Uid};

use super::pod_class::PodClass;

pub(super) mod condition;
pub(super) mod judge;
pub(super) mod launched_for;

/// How much longer each delay is than the one before.
const GROWTH: i64 = 3;
/// The longest delay, in first ones: half an hour with the default of 20 s.
const LONGEST: i64 = 90;
/// After so many first delays without trouble a class starts afresh: ten minutes, as for a container.
const FORGOTTEN: i64 = 30;
/// So many half first delays a pod must run for its machine to count as good: half a minute.
const PROVED_HALVES: i64 = 3;
/// Most classes, rooms and judged machines that are remembered.
const REMEMBERED: usize = 1_000;

/// What may be launched for a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowance {
    /// As many machines as it wants.
    Any,
    /// One.
    One,
    /// None before that time.
    NoneUntil(Timestamp),
}

/// A machine that was launched for a class, and did not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InVain {
    pub(super) class: PodClass,
    /// How many launches in vain there had been before.
    pub(super) before: u32,
    /// When the machine was initialized.
    pub(super) at: Timestamp,
    pub(super) node_claim: Uid,
    pub(super) node_pool: NodePoolName,
    pub(super) instance_type: Option<InstanceTypeName>,
    /// What it has for pods, by resource name.
    pub(super) room: Vec<(String, i64)>,
    /// For people: which machine has room for what, and what which pod asks for.
    pub(super) message: String,
}

/// What is remembered of a class.
#[derive(Debug, Clone)]
struct Known {
    in_vain: u32,
    at: Timestamp,
    /// When the class was last in a plan.
    seen_at: Timestamp,
    /// Whether a machine launched since runs some of its pods.
    is_proved: bool,
    node_pool: NodePoolName,
    message: String,
}

/// When the room of a type was seen, and how much there was of each resource.
type SeenRoom = (Timestamp, Vec<(String, i64)>);

/// The brake's memory. See the [module](self).
#[derive(Debug)]
pub(super) struct Brake {
    first_delay: DurationMs,
    classes: BTreeMap<PodClass, Known>,
    rooms: BTreeMap<(NodePoolName, InstanceTypeName), SeenRoom>,
    /// Machines that were judged, so that each is told and counted once.
    judged: BTreeSet<(Uid, PodClass)>,
}

impl Brake {
    /// With nothing remembered.
    pub(super) fn new(first_delay: DurationMs) -> Self {
        Self { first_delay, classes: BTreeMap::new(), rooms: BTreeMap::new(), judged: BTreeSet::new() }
    }

    /// Whether nothing is remembered of any class.
    pub(super) fn is_idle(&self) -> bool {
        self.classes.is_empty()
    }

    /// How long a class waits after so many launches in vain.
    fn delay(&self, in_vain: u32) -> DurationMs {
        let factor = GROWTH.saturating_pow(in_vain.saturating_sub(1)).min(LONGEST);
        DurationMs(self.first_delay.0.saturating_mul(factor))
    }

    /// What may be launched for a class.
    pub(super) fn allowance(&self, class: PodClass, now: Timestamp) -> Allowance {
        let Some(known) = self.classes.get(&class).filter(|known| known.in_vain > 0) else { return Allowance::Any };
        let until = known.at.saturating_add(self.delay(known.in_vain));
        if now < until {
            Allowance::NoneUntil(until)
        } else if known.is_proved {
            Allowance::Any
        } else {
            Allowance::One
        }
    }

    /// How many launches in a row were in vain for a class.
    pub(super) fn in_vain(&self, class: PodClass) -> u32 {
        self.classes.get(&class).map_or(0, |known| known.in_vain)
    }

    /// What is known of a class for which launches were in vain, in words.
    pub(super) fn message(&self, class: PodClass) -> Option<&str> {
        self.classes.get(&class).map(|known| known.message.as_str())
    }

    /// Whether a machine was found to be in vain for a class.
    pub(super) fn has_judged(&self, node_claim: &Uid, class: PodClass) -> bool {
        self.judged.contains(&(node_claim.clone(), class))
    }

    /// Notes a launch in vain. Says whether it is news.
    pub(super) fn note(&mut self, launch: &InVain, now: Timestamp) -> bool {
        if let Some(instance_type) = &launch.instance_type {
            let key = (launch.node_pool.clone(), instance_type.clone());
            self.rooms.insert(key, (now, launch.room.clone()));
        }
        let in_vain = launch.before.saturating_add(1);
        let known = self.classes.entry(launch.class).or_insert_with(|| Known {
            in_vain: 0,
            at: launch.at,
            seen_at: now,
            is_proved: false,
            node_pool: launch.node_pool.clone(),
            message: String::new(),
        });
        let is_new = self.judged.insert((launch.node_claim.clone(), launch.class));
        known.seen_at = now;
        if is_new && in_vain >= known.in_vain {
            // Of machines that were launched together the last counts.
            known.at = if in_vain > known.in_vain { launch.at } else { known.at.max(launch.at) };
            known.in_vain = in_vain;
            known.is_proved = false;
            known.node_pool = launch.node_pool.clone();
            known.message.clone_from(&launch.message);
        }
        is_new
    }

    /// Notes that a machine runs pods of a class for which it was launched after `before` launches in vain: since when
    /// it is initialized, and since when the oldest of the pods exists.
    pub(super) fn note_help(&mut self, class: PodClass, before: u32, since: Timestamp, now: Timestamp) {
        let Some(known) = self.classes.get_mut(&class).filter(|known| before >= known.in_vain) else { return };
        let lasted = now.since(since);
        if lasted >= DurationMs(self.first_delay.0.saturating_mul(FORGOTTEN)) {
            self.classes.remove(&class);
        } else if lasted >= DurationMs(self.first_delay.0.saturating_mul(PROVED_HALVES) / 2) {
            known.is_proved = true;
        }
    }

    /// Forgets what was found with machines of NodePools that are gone.
    pub(super) fn forget_gone(&mut self, exists: impl Fn(&NodePoolName) -> bool) {
        self.classes.retain(|_, known| exists(&known.node_pool));
        self.rooms.retain(|(node_pool, _), _| exists(node_pool));
    }

    /// Notes that pods of these classes wait, and forgets what has not mattered for long: a class of which no pod waits
    /// or that was not launched for, and what is known of machines that are gone.
    pub(super) fn tidy(&mut self, waiting: &BTreeSet<PodClass>, now: Timestamp, exists: impl Fn(&Uid) -> bool) {
        let longest = DurationMs(self.first_delay.0.saturating_mul(LONGEST));
        for (class, known) in &mut self.classes {
            if waiting.contains(class) {
                known.seen_at = now;
            }
        }
        self.classes.retain(|_, known| now.since(known.seen_at) < longest);
        self.rooms.retain(|_, (at, _)| now.since(*at) < DurationMs(longest.0.saturating_mul(2)));
        self.judged.retain(|(node_claim, _)| exists(node_claim));
        while self.classes.len() > REMEMBERED {
            let oldest = self.classes.iter().min_by_key(|(_, known)| known.seen_at).map(|(class, _)| *class);
            oldest.and_then(|class| self.classes.remove(&class));
        }
        while self.rooms.len() > REMEMBERED {
            self.rooms.pop_first();
        }
        while self.judged.len() > REMEMBERED * 10 {
            self.judged.pop_first();
        }
    }

    /// The room that machines of a NodePool turned out to have, by type.
    pub(super) fn rooms<'a>(
        &'a self,
        node_pool: &'a str,
    ) -> impl Iterator<Item = (&'a InstanceTypeName, &'a [(String, i64)])> {
        let of_pool = self.rooms.iter().filter(move |((pool, _), _)| pool.as_str() == node_pool);
        of_pool.map(|((_, instance_type), (_, room))| (instance_type, room.as_slice()))
    }

    /// What each NodePool has to be told: for the class with most launches in vain, how many and why.
    pub(super) fn troubles(&self, waiting: &BTreeSet<PodClass>) -> BTreeMap<NodePoolName, (u32, String)> {
        let mut troubles: BTreeMap<NodePoolName, (u32, String)> = BTreeMap::new();
        for known in self.classes.iter().filter(|(class, _)| waiting.contains(class)).map(|(_, known)| known) {
            let told = troubles.entry(known.node_pool.clone()).or_default();
            if known.in_vain > told.0 {
                *told = (known.in_vain, known.message.clone());
            }
        }
        troubles
    }
}

#[cfg(test)]
mod tests;
