//! One round of planning, off the async threads: the plan of a snapshot, without the pods that are to be left out of
//! it.
//!
//! Two things leave pods out: launches for their class were in vain (`brake`), or the planner panics with them
//! (`isolation`). Each shows in the plan only, so the plan is made again without them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::snapshot::LaunchableNodePool;
use decode::ObjectError;
use model::collections::NameMap;
use model::{DurationMs, NodeClaimName, NodePoolName, Pod, ResourceId, Timestamp, Uid};
use scheduling::plan::{Machine, MachineId, Plan};
use scheduling::snapshot::pending::is_untried;
use scheduling::snapshot::{NodePool, Options as PlanOptions, PodId, SchedulerNames, Snapshot};

use super::brake::judge;
use super::brake::launched_for::{self, Launched};
use super::brake::{Allowance, Brake, InVain};
use super::isolation::{self, SetAside};
use super::pod_class::{PodClass, PodClasses};
use crate::runtime::failpoints;
use crate::runtime::panics::{self, Panicked};
use crate::world::context::Context;
use crate::world::leaving::{self, OfCommands};
use crate::world::snapshot;
use crate::world::store::State;
use crate::world::successors::Succession;

/// How often a round is planned anew because launches turn out to have been in vain.
const MOST_BRAKINGS: usize = 3;

/// What is remembered from round to round.
#[derive(Debug)]
pub(super) struct Memory {
    brake: Brake,
    aside: SetAside,
    /// What is left of the last snapshot.
    snapshot: snapshot::Memory,
}

impl Memory {
    /// With nothing remembered; `first_delay` is the brake's.
    pub(super) fn new(first_delay: DurationMs) -> Self {
        Self { brake: Brake::new(first_delay), aside: SetAside::default(), snapshot: snapshot::Memory::default() }
    }
}

/// What is asked.
pub(super) struct Question {
    pub(super) state: State,
    pub(super) node_pools: Vec<LaunchableNodePool>,
    /// The NodeClaims that pods were planned onto before.
    pub(super) planned: Arc<NameMap<Uid, NodeClaimName>>,
    /// The places of pods that leave their nodes.
    pub(super) succession: Succession,
    pub(super) options: PlanOptions,
    pub(super) now: Timestamp,
}

/// What is answered.
pub(super) struct Answer {
    pub(super) snapshot: Snapshot,
    pub(super) plan: Plan,
    /// Objects that the plan had to do without.
    pub(super) errors: Vec<ObjectError>,
    /// What else is to be known of the machines before they are launched.
    pub(super) launches: Launches,
    /// Pods that were left out.
    pub(super) left_out: LeftOut,
    /// Launches that turned out to have been in vain.
    pub(super) in_vain: Vec<InVain>,
    /// What NodePools are told of these.
    pub(super) troubles: BTreeMap<NodePoolName, (u32, String)>,
}

/// What is to be known of a plan's machines before they are launched.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// Those that are not launched: for their pods one machine is tried at a time.
    pub(super) held_back: BTreeSet<MachineId>,
    /// What NodeClaims say of the classes that they are launched for.
    pub(super) annotations: BTreeMap<MachineId, String>,
}

/// Pods that were left out of a plan.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Launches for them were in vain: until when, and why.
    pub(super) braked: Vec<(Arc<Pod>, Timestamp, Arc<str>)>,
    /// The planner panics with them: when they are tried again, and what it says.
    pub(super) aside: Vec<(Arc<Pod>, Timestamp, Arc<str>)>,
}

impl LeftOut {
    /// How many pods these are.
    pub(super) fn len(&self) -> usize {
        self.braked.len() + self.aside.len()
    }
}

/// Plans, and says which classes it had to set aside because the planner panicked. No answer: it panics whatever is
/// left out.
pub(super) fn plan(
    context: &Context,
    memory: &mut Memory,
    question: &Question,
) -> (Option<Answer>, Vec<(PodClass, Panicked)>) {
    let Question { state, now, .. } = question;
    let (input, now) = (isolation::input(state), *now);
    let mut round = Round {
        context,
        question,
        waiting: Waiting::of(state, &question.options.scheduler_names),
        of_commands: OfCommands::now(state, &question.succession),
        brake: &mut memory.brake,
        remembered: &mut memory.snapshot,
    };
    round.brake.forget_gone(|node_pool| state.node_pools.contains(node_pool));
    let mut all_culprits = Vec::new();
    let mut in_vain = Vec::new();
    for brakings in 0..=MOST_BRAKINGS {
        let aside: BTreeSet<PodClass> = memory.aside.now(input, now).into_keys().collect();
        let braked = round.braked(now);
        let classes: BTreeSet<PodClass> =
            round.waiting.classes.keys().copied().filter(|it| !aside.contains(it)).collect();
        let isolated = isolation::isolate(&classes, |others| {
            let left_out = round.waiting.pods_of(aside.union(others)).chain(braked.keys()).cloned().collect();
            panics::caught(|| round.made(left_out))
        });
        for (class, panicked) in &isolated.culprits {
            memory.aside.insert(*class, panicked, input, now);
        }
        let culprits: BTreeSet<PodClass> = isolated.culprits.iter().map(|(class, _)| *class).collect();
        all_culprits.extend(isolated.culprits);
        let (snapshot, plan, errors) = match isolated.made {
            Ok(made) => made,
            Err(panicked) => {
                tracing::error!(error = %panicked, backtrace = panicked.backtrace, "the planner panicked whichever pods were left out; this is a defect, please report it");
                return (None, all_culprits);
            }
        };
        let is_out = aside.union(&culprits).copied().collect();
        memory.aside.retain(&is_out, &round.waiting.all());
        let (news, mut tried) = round.judged(&snapshot, &plan, now);
        let is_settled = news.is_empty();
        in_vain.extend(news);
        if !is_settled && brakings < MOST_BRAKINGS {
            continue;
        }
        let left_out =
            LeftOut { braked: round.told(&braked), aside: round.waiting.told(&memory.aside.now(input, now)) };
        tried.extend(launched_for::being_tried(state, round.brake));
        let launches = round.launches(&snapshot, &plan, tried, now);
        let troubles = round.brake.troubles(&round.waiting.all());
        return (Some(Answer { snapshot, plan, errors, launches, left_out, in_vain, troubles }), all_culprits);
    }
    (None, all_culprits)
}

type Made = (Snapshot, Plan, Vec<ObjectError>);

struct Round<'a> {
    context: &'a Context,
    question: &'a Question,
    waiting: Waiting,
    /// Pods that are planned although they run: commands that have begun take their nodes away.
    of_commands: OfCommands<'a>,
    brake: &'a mut Brake,
    remembered: &'a mut snapshot::Memory,
}

impl Round<'_> {
    /// A plan without some pods.
    ///
    /// No machine is larger for pods of commands, which get none of their own either.
    fn made(&mut self, mut left_out: BTreeSet<Uid>) -> Made {
        let made = self.planned(left_out.clone());
        let beside = of_commands_beside_others(&made.0, &made.1, &self.of_commands);
        if beside.is_empty() {
            return made;
        }
        left_out.extend(beside);
        self.planned(left_out)
    }

    fn planned(&mut self, left_out: BTreeSet<Uid>) -> Made {
        let Question { state, node_pools, planned, succession, options, now } = self.question;
        let before = snapshot::Before { planned, succession, left_out };
        let settings = snapshot::Settings {
            whom: snapshot::For::Provisioning,
            now: *now,
            options: options.clone(),
            scheduler_config: &self.context.options.scheduler_config,
            labels: &self.context.cloud.config().labels,
            held_devices: &self.context.held_devices,
            repair: None,
        };
        // Taken out for the call: what a panic leaves is not used again.
        let mut remembered = std::mem::take(self.remembered);
        let (mut snapshot, errors) = snapshot::build(state, node_pools.clone(), before, settings, &mut remembered);
        *self.remembered = remembered;
        snapshot::share_names(&self.context.store, state, &snapshot);
        for pool in snapshot.node_pools.iter_mut() {
            pool.observed_room = observed_room(pool, self.brake, &snapshot.interner);
        }
        failpoints::panic_for(&snapshot);
        tracing::debug!(pod_count = snapshot.pods.len(), "computing scheduling decision for provisionable pod(s)");
        let mut plan = scheduling::provisioning::plan(&snapshot);
        // They wait for nothing: whether they go is their command's business.
        plan.refusals.retain(|refusal| !self.of_commands.include(&snapshot.pods[refusal.pod].pod));
        (snapshot, plan, errors)
    }

    /// The pods for which nothing is launched now, but for those whose machine is on its way.
    fn braked(&self, now: Timestamp) -> BTreeMap<Uid, (PodClass, Timestamp)> {
        let Question { state, planned, .. } = self.question;
        let mut braked = BTreeMap::new();
        if self.brake.is_idle() {
            return braked;
        }
        for (&class, pods) in &self.waiting.classes {
            let Allowance::NoneUntil(until) = self.brake.allowance(class, now) else { continue };
            let has_machine = |pod: &Pod| {
                planned.get(&pod.uid).is_some_and(|claim| launched_for::is_on_its_way(state, claim, class, self.brake))
            };
            let left_out = pods.iter().filter(|pod| !has_machine(pod));
            braked.extend(left_out.map(|pod| (pod.uid.clone(), (class, until))));
        }
        braked
    }

    /// Launches that the plan shows to have been in vain and that are news; and classes of which a machine that is
    /// tried runs some.
    fn judged(&mut self, snapshot: &Snapshot, plan: &Plan, now: Timestamp) -> (Vec<InVain>, BTreeSet<PodClass>) {
        let launched = if plan.machines.is_empty() && self.brake.is_idle() {
            Vec::new()
        } else {
            Launched::all(&self.question.state, snapshot)
        };
        let running_some = judge::note_help(self.brake, snapshot, &launched, now);
        let state = &self.question.state;
        let exists =
            |uid: &Uid| state.node_claims.values().any(|claim| claim.metadata.uid.as_deref() == Some(uid.as_str()));
        if !self.brake.is_idle() {
            self.brake.tidy(&self.waiting.all(), now, exists);
        }
        let mut found = judge::in_vain(snapshot, plan, &launched);
        found.retain(|launch| self.brake.note(launch, now));
        (found, running_some)
    }

    /// What is said of the plan's machines. Of a class that is on trial one machine is tried, unless one is `tried`
    /// already.
    fn launches(&self, snapshot: &Snapshot, plan: &Plan, mut tried: BTreeSet<PodClass>, now: Timestamp) -> Launches {
        let annotations = launched_for::annotations(snapshot, plan, self.brake);
        let held_back = only_of_commands(snapshot, plan, &self.of_commands);
        let mut launches = Launches { held_back, annotations };
        if self.brake.is_idle() {
            return launches;
        }
        let mut classes = PodClasses::new(&snapshot.interner);
        for (id, machine) in plan.machines.iter_enumerated() {
            let of_machine: BTreeSet<PodClass> =
                machine.pods.iter().map(|&pod| classes.of(&snapshot.pods[pod].pod)).collect();
            let is_on_trial = |class: &PodClass| self.brake.allowance(*class, now) != Allowance::Any;
            let has_to_wait = |class: &PodClass| match self.brake.allowance(*class, now) {
                Allowance::Any => false,
                Allowance::One => tried.contains(class),
                Allowance::NoneUntil(_) => true,
            };
            // A machine that others want comes for them.
            if !of_machine.is_empty() && of_machine.iter().all(has_to_wait) {
                launches.held_back.insert(id);
            }
            tried.extend(of_machine.into_iter().filter(is_on_trial));
        }
        launches
    }

    fn told(&self, braked: &BTreeMap<Uid, (PodClass, Timestamp)>) -> Vec<(Arc<Pod>, Timestamp, Arc<str>)> {
        let mut messages: BTreeMap<PodClass, Arc<str>> = BTreeMap::new();
        let pods = self.waiting.classes.values().flatten();
        pods.filter_map(|pod| {
            let (class, until) = *braked.get(&pod.uid)?;
            let message = || Arc::from(self.brake.message(class).unwrap_or_default());
            Some((Arc::clone(pod), until, Arc::clone(messages.entry(class).or_insert_with(message))))
        })
        .collect()
    }
}

/// Machines for nobody but pods of commands.
pub(super) fn only_of_commands(snapshot: &Snapshot, plan: &Plan, of_commands: &OfCommands<'_>) -> BTreeSet<MachineId> {
    let is_only = |machine: &Machine| {
        !machine.pods.is_empty() && machine.pods.iter().all(|&pod| of_commands.include(&snapshot.pods[pod].pod))
    };
    plan.machines.iter_enumerated().filter(|(_, machine)| is_only(machine)).map(|(id, _)| id).collect()
}

/// The pods of commands for which there are to be machines, if one of these is for others as well.
pub(super) fn of_commands_beside_others(
    snapshot: &Snapshot,
    plan: &Plan,
    of_commands: &OfCommands<'_>,
) -> BTreeSet<Uid> {
    let is_of_commands = |pod: &PodId| of_commands.include(&snapshot.pods[*pod].pod);
    let is_mixed =
        |machine: &Machine| machine.pods.iter().any(is_of_commands) && !machine.pods.iter().all(is_of_commands);
    if !plan.machines.iter().any(is_mixed) {
        return BTreeSet::new();
    }
    let pods = plan.machines.iter().flat_map(|machine| machine.pods.iter().filter(|pod| is_of_commands(pod)));
    pods.map(|&pod| snapshot.pods[pod].pod.uid.clone()).collect()
}

/// The pods that may be in a plan, by class.
struct Waiting {
    classes: BTreeMap<PodClass, Vec<Arc<Pod>>>,
}

impl Waiting {
    fn of(state: &State, schedulers: &SchedulerNames) -> Self {
        let mut of_pods = PodClasses::new(&state.interner);
        let mut classes: BTreeMap<PodClass, Vec<Arc<Pod>>> = BTreeMap::new();
        let unbound = state.unbound_pods().filter(|pod| snapshot::is_ours(pod, schedulers) || is_untried(pod));
        let going = state.nodes.values().filter(|node| node.model.deletion_timestamp.is_some());
        let leaving = going.flat_map(|node| state.pods_on_node(&node.model.name));
        let of_commands = leaving::nodes_of_commands(state);
        let of_commands = of_commands.iter().flat_map(|node| state.pods_on_node(node));
        for pod in unbound.chain(leaving).chain(of_commands) {
            classes.entry(of_pods.of(pod)).or_default().push(Arc::clone(pod));
        }
        Self { classes }
    }

    fn all(&self) -> BTreeSet<PodClass> {
        self.classes.keys().copied().collect()
    }

    fn pods_of<'a>(&'a self, classes: impl Iterator<Item = &'a PodClass>) -> impl Iterator<Item = &'a Uid> {
        classes.filter_map(|class| self.classes.get(class)).flatten().map(|pod| &pod.uid)
    }

    fn told(&self, aside: &BTreeMap<PodClass, (Timestamp, &str)>) -> Vec<(Arc<Pod>, Timestamp, Arc<str>)> {
        let mut told = Vec::new();
        for (class, (until, message)) in aside {
            let message: Arc<str> = (*message).into();
            let pods = self.classes.get(class).into_iter().flatten();
            told.extend(pods.map(|pod| (Arc::clone(pod), *until, Arc::clone(&message))));
        }
        told
    }
}

/// The room that machines of the pool turned out to have, in the snapshot's terms.
fn observed_room(
    pool: &NodePool,
    brake: &Brake,
    names: &model::Interner,
) -> Vec<(scheduling::catalogue::TypeId, Vec<(ResourceId, i64)>)> {
    let of_type = |(name, room): (&model::InstanceTypeName, &[(String, i64)])| {
        let (id, _) = pool.catalogue.types.iter_enumerated().find(|(_, it)| it.name == *name)?;
        let room = room.iter().filter_map(|(resource, amount)| Some((names.find_resource(resource)?, *amount)));
        Some((id, room.collect()))
    };
    brake.rooms(&pool.name).filter_map(of_type).collect()
}
