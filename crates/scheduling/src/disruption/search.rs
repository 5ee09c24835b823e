//! Which machines could go together so that the fleet costs less: a search on one packing.
//!
//! The problem: take a set of machines away, place their pods into free room and onto new machines, so that what is
//! saved, less what the evictions cost, is as much as possible. Machines that may go, budgets and the rules of a
//! command are the caller's ([`Question`]); what is found is a proposal, which the caller has planned by provisioning.
//!
//! 1. `bounds`: a linear relaxation says what room for all pods costs at least. If that is what the machines cost,
//!    nothing can be gained, and nothing is tried. It also says of each machine what it could bring at most by itself.
//! 2. `trials`: a set of machines is taken away ([`Packing::take_away`]), its pods are placed class by class, and the
//!    journal takes it back. That costs as many steps as there are classes on the machines, whatever the fleet's size.
//! 3. `neighbourhoods`: which sets are tried. Large-neighbourhood search (Shaw 1998, "Using constraint programming and
//!    local search methods to solve vehicle routing problems") by first improvement, begun several times; the best end
//!    counts. Karpenter's own sets, each machine alone and prefixes by saving per disruption, are among them.
//! 4. `exchanges`: of what was found, machines are put back and others go in their place, at random.
//! 5. `certificates`: each machine that stays is tried alone once more beside what was found, and has the reason in
//!    data.
//!
//! Left out: backtracking where room is contended, gangs, preferences, domains of groups; the caller's plan keeps
//! these. All steps together are bounded ([`crate::tuning::CONSOLIDATION_STEPS`]).
//!
//! [`Packing::take_away`]: crate::simulation::packing::Packing::take_away

mod bounds;
mod certificates;
mod exchanges;
mod left;
mod neighbourhoods;
mod trials;

use std::collections::{BTreeMap, BTreeSet};

use model::IdVec;

use self::bounds::Bounds;
pub(super) use self::bounds::nano;
pub(super) use self::certificates::Certificate;
use self::exchanges::Exchanges;
pub(super) use self::left::Left;
pub(super) use self::neighbourhoods::by_saving_per_disruption;
pub(super) use self::trials::NewMachine;
use self::trials::Trials;
use crate::bound::Solved;
use crate::simulation::compile::attachments;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Request;
use crate::simulation::packing::plan_run::PlanRun;
use crate::snapshot::{NodeId, PodId, Snapshot};

/// What searches leave for later ones: relaxations that were solved.
pub(super) type Memory = Solved;

/// A machine that could go.
#[derive(Debug)]
pub(super) struct CouldGo {
    pub(super) node: NodeId,
    /// What it costs, as a node too, in nano-dollars per hour.
    pub(super) cost: i128,
    /// What has to be saved so that its evictions pay; at least 1.
    pub(super) wanted: i128,
    /// Its share of what budgets count: the position of its NodePool in [`Question::left`].
    pub(super) pool: usize,
    /// What disrupting it costs, in Karpenter's units.
    pub(super) disruption_cost: i64,
    /// Equal for machines of one NodePool and zone.
    pub(super) kin: usize,
    /// Its pods that have to be placed elsewhere, of the question's snapshot.
    pub(super) pods: Vec<PodId>,
}

/// Whether a command of these machines, with what it saves and what it launches, is one that rules allow.
pub(super) type Allows<'q> = dyn Fn(&[usize], i128, &[NewMachine]) -> bool + 'q;

/// What is asked. Machines are named by their position in `machines`.
pub(super) struct Question<'q> {
    /// The snapshot in which the machines' pods wait as well as run.
    pub(super) snapshot: &'q Snapshot,
    /// By name of their nodes.
    pub(super) machines: &'q [CouldGo],
    /// Places that pods which wait have got already; buffers' virtual pods come after the snapshot's own.
    pub(super) settled: &'q [(NodeId, PodId)],
    /// Pods without a place whatever goes, and others for which nothing is launched that counts.
    pub(super) refused: &'q BTreeSet<PodId>,
    /// What machines cost that are launched for pods which wait, whatever goes.
    pub(super) launched_anyway: i128,
    /// How many more machines may go.
    pub(super) left: Left,
    /// Relaxations that were solved before.
    pub(super) solved: &'q Solved,
    /// Whether a command of these machines that saves so much and launches those is one that rules allow.
    pub(super) allows: &'q Allows<'q>,
}

/// What has come of earlier looks.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Sets that were found before and did not hold.
    pub(super) rejected: BTreeSet<Vec<usize>>,
    /// Machines that are not to go all of them, since what was planned for them did not hold.
    pub(super) apart: BTreeSet<Vec<usize>>,
}

impl Known {
    /// Whether all of those go of which some have to stay.
    fn breaks_apart(&self, goes: impl Fn(usize) -> bool) -> bool {
        self.apart.iter().any(|apart| apart.iter().all(|&index| goes(index)))
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Sets of machines that go, each with all that it needs, in the order in which they were taken.
    pub(super) sets: Vec<Vec<usize>>,
    /// Why each of the others stays.
    pub(super) certificates: BTreeMap<usize, Certificate>,
}

/// A question that is compiled, with its bound: it can be looked at several times.
pub(super) struct Search<'q, 'p> {
    trials: Trials<'q, 'p>,
    bounds: Bounds,
    exchanges: Exchanges,
}

/// Compiles a question, and lets `ask` look at it.
pub(super) fn search<T>(question: &Question<'_>, ask: impl FnOnce(&mut Search<'_, '_>) -> T) -> T {
    let with_buffers = question.snapshot.with_virtual_pods();
    let plain = Request::of(with_buffers.as_ref().unwrap_or(question.snapshot));
    let with_volumes = attachments::as_resources(&plain);
    let problem = Problem::new(with_volumes.as_ref().unwrap_or(&plain));
    let run = PlanRun::new(&problem);
    let pods = Pods::new(question, &problem);
    let mut trials = Trials::new(question, &problem, &run, &pods);
    let bounds = Bounds::new(question, &mut trials);
    ask(&mut Search { trials, bounds, exchanges: Exchanges::default() })
}

impl Search<'_, '_> {
    /// What machines for all pods cost at least, in nano-dollars per hour: those that could go and stay, and new ones.
    pub(super) fn bound(&self) -> i128 {
        self.bounds.bound
    }

    /// Looks for sets of machines that could go.
    pub(super) fn look(&mut self, known: &Known) -> Found {
        let Self { trials, bounds, exchanges } = self;
        trials.known.clone_from(known);
        if bounds.is_at_the_least(trials.question) {
            let machines = 0..trials.question.machines.len();
            let certificates =
                machines.map(|index| (index, bounds.nothing_to_gain(trials.question, trials.pods, index)));
            return Found { sets: Vec::new(), certificates: certificates.collect() };
        }
        let sets = neighbourhoods::best_sets(trials, bounds, exchanges);
        self.decided(known, &sets)
    }

    /// What goes is decided, and it is only asked why the others stay.
    pub(super) fn decided(&mut self, known: &Known, sets: &[Vec<usize>]) -> Found {
        let Self { trials, bounds, .. } = self;
        trials.known.clone_from(known);
        let certificates = certificates::of_the_rest(trials, bounds, sets);
        Found { sets: sets.to_vec(), certificates }
    }
}

/// The pods of the machines and those that wait, by class.
struct Pods {
    class_of: IdVec<PodId, Option<ClassId>>,
    /// By machine: its classes in the order of placing, and how many of each.
    of_machine: Vec<Vec<(ClassId, u32)>>,
}

impl Pods {
    fn new(question: &Question<'_>, problem: &Problem<'_>) -> Self {
        let class_of = problem.class_of_pods();
        let classes = |machine: &CouldGo| {
            let mut classes: BTreeMap<ClassId, u32> = BTreeMap::new();
            for class in machine.pods.iter().filter_map(|pod| class_of[*pod]) {
                *classes.entry(class).or_default() += 1;
            }
            classes.into_iter().collect()
        };
        Self { of_machine: question.machines.iter().map(classes).collect(), class_of }
    }

    fn on(&self, machine: usize) -> &[(ClassId, u32)] {
        self.of_machine.get(machine).map_or(&[], Vec::as_slice)
    }
}
