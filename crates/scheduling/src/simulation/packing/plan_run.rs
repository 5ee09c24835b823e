//! One run: what is asked of its plans, what making them finds out, and which budgets it uses up. The problem is the
//! same for all runs, and no run changes it, so several can go on at once.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeSet;
use std::sync::Arc;

use model::{IdSet, IdVec};

use super::Packing;
use super::devices::DeviceUse;
use super::mode::Mode;
use super::outside;
use super::state::{Bin, Charging};
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::pools::{Alternative, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Purpose;
use crate::simulation::topology::{AllDomains, Checking, DomainId, GroupId, Involvement, Kind, Place};
use crate::snapshot::PoolId;

/// What a plan is made for, what ends it early, and in which orders of binding it has to hold.
#[derive(Debug, Clone)]
pub(crate) struct Aim {
    pub(crate) purpose: Purpose,
    /// Ends a plan early that is only made for comparison.
    pub(crate) limit: Option<LimitByClass>,
    /// Whether the plan only has to hold in the order in which it is made: claims are not kept apart.
    pub(crate) in_its_own_order: bool,
}

/// What a plan may cost, and how many copies of each class may have no place.
#[derive(Debug, Clone)]
pub(crate) struct LimitByClass {
    /// Of all machines, in nano-dollars per hour.
    pub(crate) cost: i128,
    pub(crate) refused: IdVec<ClassId, u32>,
}

impl Aim {
    /// A plan that is made to its end.
    pub(crate) const WHOLE: &Self = &Self::of(Purpose::Needed);

    /// Without a limit, in every order.
    pub(crate) const fn of(purpose: Purpose) -> Self {
        Self { purpose, limit: None, in_its_own_order: false }
    }

    /// For a plan that is only made to be compared.
    pub(crate) fn compared(&self) -> Self {
        Self { purpose: Purpose::Compared, ..self.clone() }
    }

    /// Whether machines of that price exceed the limit.
    pub(crate) fn is_too_dear(&self, price: i128) -> bool {
        self.limit.as_ref().is_some_and(|limit| price > limit.cost)
    }

    /// Whether so many copies without a place exceed the limit.
    pub(crate) fn is_too_many(&self, class: ClassId, refused: u32) -> bool {
        self.limit.as_ref().is_some_and(|limit| refused > limit.refused[class])
    }
}

/// What the first run of a problem finds out, from which all its runs begin.
#[derive(Debug)]
struct RunStart {
    domains: AllDomains,
    devices: DeviceUse,
    /// The ways into domains that the problem keeps machines out of.
    kept_out: BTreeSet<WayId>,
}

/// A way for a class to be in a pool: the pool, the class, and the alternative's index.
type WayId = (PoolId, ClassId, usize);

/// One run: plans of a problem in several orders, each of which goes on with what those before have shown.
#[derive(Debug)]
pub(crate) struct PlanRun {
    /// Whether machines are kept out of domains that they would add to a spread.
    pub(crate) keeps_outside: bool,
    domains: AllDomains,
    /// If machines are kept outside: ways to be on a machine of the plan that would add a domain, of classes that have
    /// others.
    avoided: BTreeSet<WayId>,
    /// Domains of spreads that do not count, because no machine is opened in them for the spread's pods.
    closed: Vec<(GroupId, IdSet<DomainId>)>,
    /// The ways to be on a machine in one of these.
    closed_ways: BTreeSet<WayId>,
    /// Classes that avoid none, since they would have too few places.
    avoids_none: BTreeSet<ClassId>,
    /// The steps for devices. All packings of the run draw on them, in one thread.
    devices: RefCell<DeviceUse>,
    start: Arc<RunStart>,
}

impl PlanRun {
    /// A run that only knows the domains that nodes have.
    pub(crate) fn before_machines(problem: &Problem<'_>) -> Self {
        let domains = problem.topology.domains_of_nodes();
        let devices = DeviceUse::new(problem.snapshot.options.device_steps);
        Self::from(Arc::new(RunStart { domains, devices, kept_out: BTreeSet::new() }))
    }

    /// The first run of a problem: it finds out where machines could be launched.
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let run = Self::before_machines(problem);
        let reachable = reachable(problem, &run);
        let Self { mut domains, devices, .. } = run;
        for (group, place) in reachable {
            Arc::make_mut(&mut domains[group]).open(place);
        }
        let into = problem.kept_out.iter();
        let kept_out = into.flat_map(|(group, domains)| ways_into(problem, *group, domains)).collect();
        Self::from(Arc::new(RunStart { domains, devices: devices.into_inner(), kept_out }))
    }

    /// Another run of the problem, which begins with what this one began with.
    pub(crate) fn afresh(&self) -> Self {
        Self::from(Arc::clone(&self.start))
    }

    fn from(start: Arc<RunStart>) -> Self {
        Self {
            keeps_outside: false,
            domains: start.domains.clone(),
            avoided: BTreeSet::new(),
            closed: Vec::new(),
            closed_ways: BTreeSet::new(),
            avoids_none: BTreeSet::new(),
            devices: RefCell::new(start.devices.clone()),
            start,
        }
    }

    /// With machines kept out of the domains that another run keeps them out of.
    pub(crate) fn kept_out_as(mut self, problem: &Problem<'_>, other: &Self) -> Self {
        self.keeps_outside = other.keeps_outside;
        for (group, domains) in &other.closed {
            self.close(problem, *group, domains.clone());
        }
        self
    }

    /// Lets domains without nodes count no more for a spread, and keeps machines for its pods out of them.
    pub(crate) fn close(&mut self, problem: &Problem<'_>, group: GroupId, domains: IdSet<DomainId>) {
        Arc::make_mut(&mut self.domains[group]).close(&domains);
        self.closed_ways.extend(ways_into(problem, group, &domains));
        self.closed.push((group, domains));
    }

    /// Adds all domains that machines of any plan could add.
    pub(crate) fn open_all(&mut self, problem: &Problem<'_>) {
        problem.topology.open_all(&mut self.domains, &problem.pools, problem.names());
    }

    /// Over which domains pods are spread, as far as plans of the run have shown.
    pub(crate) fn domains(&self) -> &AllDomains {
        &self.domains
    }

    /// The steps for devices that are left. Drop the borrow before anything else asks.
    pub(crate) fn devices(&self) -> RefMut<'_, DeviceUse> {
        self.devices.borrow_mut()
    }

    /// Whether a plan that is given up half-way leaves nothing behind: none opens a domain, so that it is made once
    /// more, and none asks for devices, which says of all plans whether claims were kept apart.
    pub(crate) fn ends_with_first_round(&self, problem: &Problem<'_>) -> bool {
        problem.devices.is_none() && problem.topology.is_open(&self.domains, &problem.pools, problem.names())
    }

    /// Adds the domains in which machines of a plan count although the spread class could not have got a machine there;
    /// says whether there is one. Then the plan has to be made again, since the least is 0 there.
    pub(crate) fn open_planned(&mut self, problem: &Problem<'_>, bins: &[Bin]) -> bool {
        let mut opened = false;
        for (group, known) in problem.topology.groups.iter().zip(self.domains.iter_mut()) {
            if group.is_open(known, &problem.pools, problem.names()) {
                continue;
            }
            let (landed, elsewhere) = outside::landings(group, problem, bins);
            if known.are_opened_by(&landed, elsewhere) {
                let known = Arc::make_mut(known);
                known.was_added_to = true;
                known.present.union_with(&landed);
                known.least_is_zero |= elsewhere;
                opened = true;
            }
        }
        opened
    }

    /// Looks again which ways would add a domain, as far as they are to be avoided.
    pub(crate) fn avoid_adding(&mut self, problem: &Problem<'_>) {
        self.avoided.clear();
        if self.keeps_outside {
            self.avoided = outside::adding_ways(problem, self);
            self.avoided.retain(|(_, class, _)| !self.avoids_none.contains(class));
        }
    }

    /// Lets those of the classes that avoid ways have all of them from now on; says whether there are some.
    pub(crate) fn avoid_none(&mut self, classes: impl Iterator<Item = ClassId>) -> bool {
        let avoiding: BTreeSet<ClassId> = self.avoided.iter().map(|(_, class, _)| *class).collect();
        let before = self.avoids_none.len();
        self.avoids_none.extend(classes.filter(|class| avoiding.contains(class)));
        self.avoids_none.len() > before
    }

    /// Whether no machine is to be opened, or narrowed, that way.
    pub(crate) fn is_avoided(&self, pool: &PoolTable<'_>, class: ClassId, way: &Alternative) -> bool {
        let among = |ways: &BTreeSet<_>| !ways.is_empty() && ways.contains(&(pool.id, class, way.index));
        among(&self.avoided) || among(&self.closed_ways) || among(&self.start.kept_out)
    }

    /// Whether the class has to be spread over domains of which machines of a plan have added one.
    pub(crate) fn is_spread_over_added(&self, class: &PodClass) -> bool {
        let mut groups = class.involved.iter().filter(|mine| mine.owner);
        groups.any(|mine| self.domains[mine.group].was_added_to)
    }
}

/// The ways into some domains for the classes that have to keep a group's rule.
fn ways_into<'p>(
    problem: &'p Problem<'_>,
    group: GroupId,
    domains: &'p IdSet<DomainId>,
) -> impl Iterator<Item = WayId> + 'p {
    problem.classes.iter_enumerated().flat_map(move |(id, class)| {
        let position = class.involved.iter().position(|mine| mine.owner && mine.group == group);
        position.into_iter().flat_map(move |position| {
            let leads_there = move |way: &&Alternative| matches!(way.places.get(position), Some(Place::Domain(domain)) if domains.contains(*domain));
            let of_pool = move |table: &'p PoolTable<'_>| {
                table.by_class[id].iter().filter(leads_there).map(move |way| (table.id, id, way.index))
            };
            problem.pools.iter().flat_map(of_pool)
        })
    })
}

/// Places of machines that could be launched for classes that have to be spread, if nothing else were planned.
fn reachable(problem: &Problem<'_>, run: &PlanRun) -> Vec<(GroupId, Place)> {
    let mut places = Vec::new();
    let mode = Mode { checking: Checking::AtTheEnd, ..Mode::default() };
    let mut untouched = Packing::new(problem, run, Charging::Least).in_mode(mode);
    for (id, class) in problem.classes.iter_enumerated().filter(|(_, class)| class.refused.is_none()) {
        let is_spread =
            |mine: &Involvement| mine.owner && matches!(problem.topology.groups[mine.group].kind, Kind::Spread { .. });
        if !class.involved.iter().any(is_spread) {
            continue;
        }
        for (pool, table) in problem.pools.iter_enumerated() {
            for alternative in &table.by_class[id] {
                if untouched.copies_in_new_bin(pool, id, alternative, 1).so_far() == 1 {
                    let mine = class.involved.iter().zip(&alternative.places).filter(|(mine, _)| is_spread(mine));
                    places.extend(mine.map(|(mine, place)| (mine.group, *place)));
                }
            }
        }
    }
    places
}
