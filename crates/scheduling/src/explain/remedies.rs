//! What keeps a refused class from every machine that could be launched, and the smallest changes that would let it in.
//!
//! Each offering of each usable NodePool is asked which rules it breaks for the class: what would have to change for
//! it. From that come
//!
//! * an irreducible set of rules: every offering breaks one of them, and no rule of the set can be left out. Rules are
//!   left out from the back of a fixed order (taints, labels by name, the Node's name, the NodePools' own requirements,
//!   resources by name, devices, availability, limits, minValues, rules between pods), so that it is the same set on
//!   every run;
//! * remedies: for each NodePool the offerings that break the fewest rules, and of those that break the same rules the
//!   one that lacks least. What a remedy lets in has to keep the NodePool's limits and minValues too.
//!
//! Devices of machines that a NodePool does not allow are not known, so these are left out for classes with claims.
//!
//! Thousands of offerings break a handful of sets of rules. So of each offering only the rules that it breaks are
//! collected, with how much is lacking ([`Sketch`]); what would have to change is put into values for the nearest of
//! each set ([`Needs`]). What concerns labels is asked once for all offerings that say the same of them.

use std::{cell::OnceCell, collections::BTreeMap};

use model::{
    Budget, IdSet, Interner, KeyId, Requirement, Taint, ValueId, ValueSet,
    collections::{FastMap, FastSet},
};
use smallvec::SmallVec;

use crate::catalogue::{OfferingId, Reservation};
use crate::explain::{label_for_rule, names_node};
use crate::plan::reason::{Excluding, Need, Reason, Remedies, Remedy};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::daemons::NetIfAllowed;
use crate::simulation::compile::pools::{MinValues, PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::DeviceState;
use crate::snapshot::Limit;
use crate::snapshot::affinity;
use crate::snapshot::affinity::{Term, accepts_unknown};
use crate::tuning::{MAX_NEEDS, MAX_REMEDIES, REMEDY_STEPS};

/// What an offering would need, with the rule that each need is about.
type Needs<'n> = BTreeMap<Rule<'n>, Need>;

/// A rule, in the order in which they are told; the text of a taint, the name of a label or resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule<'n> {
    Taints(&'n str),
    Label(&'n str),
    NodeName,
    NodePools,
    Resource(&'n str),
    Daemons,
    HostPort,
    Devices,
    Availability,
    Limits(Limit),
    MinValues(&'n str),
    PodRules,
}

/// Rules that an offering breaks, in order.
type Rules<'n> = SmallVec<[Rule<'n>; 6]>;

/// Takes what an offering would need, rule by rule. What comes later for the same rule replaces what came before.
trait Sink<'n> {
    fn put(&mut self, rule: Rule<'n>, need: impl FnOnce() -> Need);
}

impl<'n> Sink<'n> for Needs<'n> {
    fn put(&mut self, rule: Rule<'n>, need: impl FnOnce() -> Need) {
        self.insert(rule, need());
    }
}

/// As much as it takes to compare offerings.
#[derive(Clone, Default)]
struct Sketch<'n> {
    rules: Rules<'n>,
    lacking: Lacking,
}

impl<'n> Sink<'n> for Sketch<'n> {
    fn put(&mut self, rule: Rule<'n>, need: impl FnOnce() -> Need) {
        let Err(position) = self.rules.binary_search(&rule) else { return };
        self.rules.insert(position, rule);
        // Of these there is one need for each rule.
        if matches!(rule, Rule::Resource(_) | Rule::Limits(_)) {
            self.lacking.add(&need());
        }
    }
}

/// How much is missing of resources, in thousandths of what there is at most, and then of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Lacking {
    resources: i64,
    limits: i64,
}

impl Lacking {
    fn add(&mut self, need: &Need) {
        match need {
            Need::Less { by, most, .. } => {
                self.resources = self.resources.saturating_add(by.saturating_mul(1000) / (*most).max(1));
            }
            Need::Limit { by, .. } => self.limits = self.limits.saturating_add(*by),
            _ => {}
        }
    }
}

/// What is asked of offerings in one plan.
pub(crate) struct Survey<'s> {
    budget: Budget,
    if_allowed: FastMap<PoolRank, NetIfAllowed<'s>>,
    brought: OnceCell<Option<DeviceState>>,
}

impl Survey<'_> {
    /// The devices of the finished plan with all that its machines bring for others; worked out once.
    pub(super) fn brought(&self, packing: &Packing<'_>) -> Option<&DeviceState> {
        self.brought.get_or_init(|| packing.with_all_that_is_brought()).as_ref()
    }
}

impl Default for Survey<'_> {
    fn default() -> Self {
        Self { budget: Budget::new(REMEDY_STEPS), if_allowed: FastMap::default(), brought: OnceCell::new() }
    }
}

/// An offering of a pool, by one of the class's terms.
#[derive(Clone, Copy)]
struct Candidate {
    term: usize,
    offering: OfferingId,
}

/// Offerings of a pool that break the same rules.
struct Alike {
    /// The first of those that lack least.
    nearest: Candidate,
    lacking: Lacking,
    /// All of them, where the pool has minValues.
    members: Vec<Candidate>,
}

/// A NodePool that the class asks.
struct OfPool<'n, 's> {
    rank: PoolRank,
    table: &'n PoolTable<'s>,
    /// The offerings that would give the class its devices; `None` if it wants none.
    given: Option<IdSet<OfferingId>>,
    /// What any of its machines would need.
    always: Vec<(Rule<'n>, Need)>,
}

/// How the label of a machine keeps a class away.
enum Closed {
    /// The class wants a Node by its name.
    Node,
    /// Some machines have what is wanted; those of the offering have not.
    NotOffered,
    /// The NodePool does not allow it.
    NotAllowed,
}

/// The class as it is asked about.
pub(crate) struct Asked<'a, 's> {
    pub(crate) packing: &'a Packing<'s>,
    pub(crate) class: ClassId,
    /// Why each NodePool said no.
    pub(crate) reasons: &'a [Reason],
}

impl<'s> Asked<'_, 's> {
    /// `None` where no NodePool may launch, or the budget is used up.
    ///
    /// `given` tells which offerings of a pool would give the class its devices; `None` if it wants none.
    pub(crate) fn remedies(
        &self,
        given: impl Fn(PoolRank, &PoolTable<'_>) -> Option<IdSet<OfferingId>>,
        survey: &mut Survey<'s>,
    ) -> Option<Reason> {
        if survey.budget.remaining() == 0 {
            return None;
        }
        let pools = &self.packing.problem.pools;
        let offerings: usize = pools.iter().map(|table| table.catalogue.offerings.len()).sum();
        let terms = self.packing.problem.classes[self.class].terms.len();
        // The class that uses it up is told still.
        let _ = survey.budget.spend((offerings * terms) as u64);
        let taints: Vec<_> = pools.iter().map(|table| self.untolerated(table)).collect();
        let mut found: Vec<(PoolRank, &PoolTable<'_>, Needs<'_>)> = Vec::new();
        let mut broken: Vec<Vec<(Rule<'_>, Need)>> = Vec::new();
        for ((rank, table), taints) in pools.iter_enumerated().zip(&taints) {
            let pool = OfPool { rank, table, given: given(rank, table), always: self.always(table, taints) };
            let groups = self.groups(&pool, survey);
            let mut all: Vec<Needs<'_>> = Vec::with_capacity(groups.len());
            for alike in groups.values() {
                let needs = self.needs(&pool, alike.nearest, survey);
                all.push(self.with_min_values(&pool, needs, &groups, survey));
            }
            broken.extend(all.iter().map(|needs| needs.clone().into_iter().collect()));
            let fewest = all.iter().map(Needs::len).min().unwrap_or(0);
            let nearest = all.into_iter().filter(|needs| needs.len() == fewest && fewest <= MAX_NEEDS);
            found.extend(nearest.map(|needs| (rank, table, needs)));
        }
        if broken.is_empty() || broken.iter().any(Vec::is_empty) {
            return None;
        }
        found.retain(|(_, _, needs)| needs.values().any(can_be_done));
        found.sort_by_key(|(rank, _, needs)| (needs.len(), *rank));
        let remedies: Vec<Remedy> = found
            .into_iter()
            .take(MAX_REMEDIES)
            .map(|(_, table, needs)| Remedy {
                node_pool: table.pool.name.clone(),
                rules_may_close: !needs.contains_key(&Rule::PodRules)
                    && !self.packing.problem.classes[self.class].involved.is_empty(),
                needs: needs.into_values().collect(),
            })
            .collect();
        let excluded_by = irreducible(&broken);
        // Of a single rule of a single NodePool all was told, but by how much the resources are short.
        let was_told = match remedies.as_slice() {
            [] => excluded_by.len() == 1,
            [Remedy { needs, .. }] => {
                let is_new =
                    matches!(needs.as_slice(), [Need::Less { .. } | Need::OtherTypes { .. } | Need::OtherPort(_)]);
                pools.len() == 1 && excluded_by.len() == 1 && needs.len() == 1 && !is_new
            }
            _ => false,
        };
        (!was_told).then(|| Reason::Remedies(Box::new(Remedies { excluded_by, remedies })))
    }

    /// Taints of a pool that keep the class out, with their texts.
    fn untolerated(&self, table: &PoolTable<'_>) -> Vec<(Taint, String)> {
        let names = self.packing.problem.names();
        let tolerations = &self.packing.problem.classes[self.class].shape.tolerations;
        let keeps_out = |taint: &&Taint| affinity::untolerated(&[**taint], tolerations, names).is_some();
        let taints = table.pool.taints.iter().filter(keeps_out);
        taints.map(|taint| (*taint, taint.display(names).to_string())).collect()
    }

    /// What any machine of a pool would need.
    fn always<'n>(&self, table: &PoolTable<'_>, taints: &'n [(Taint, String)]) -> Vec<(Rule<'n>, Need)>
    where
        's: 'n,
    {
        let problem = self.packing.problem;
        let mut always: Vec<(Rule<'n>, Need)> =
            taints.iter().map(|(taint, text)| (Rule::Taints(text), Need::Tolerate(*taint))).collect();
        for (key, _) in label_for_rule(problem, table, &problem.classes[self.class]) {
            let rule = Rule::Label(problem.names().key_name(key));
            always.push((rule, Need::Allowed { key, values: ValueSet::exists() }));
        }
        let closed = |reason: &Reason| matches!(reason, Reason::PodRules { node_pool: Some(pool), .. } if *pool == table.pool.name);
        if self.reasons.iter().any(closed) {
            always.push((Rule::PodRules, Need::PodRules));
        }
        always
    }

    /// The offerings of a pool by the rules that they break, beside minValues.
    fn groups<'n>(&self, pool: &OfPool<'n, '_>, survey: &mut Survey<'s>) -> BTreeMap<Rules<'n>, Alike>
    where
        's: 'n,
    {
        let keeps_members = !pool.table.min_values.is_empty();
        let knows_devices = |offering: &OfferingId| pool.given.is_none() || pool.table.members.contains(*offering);
        let asked_of_all = || pool.table.pool.requirements.iter().map(|asked| asked.key);
        let mut groups: BTreeMap<Rules<'n>, Alike> = BTreeMap::new();
        for (index, term) in self.packing.problem.classes[self.class].terms.iter().enumerate() {
            let keys = asked_of_all().chain(term.requirements.iter().map(|wanted| wanted.key));
            let (numbers, examples) = pool.table.alike_in(keys);
            let sketch = |example: &OfferingId| {
                let mut sketch = Sketch::default();
                self.labels(pool, term, *example, &mut sketch);
                sketch
            };
            let of_labels: Vec<Sketch<'n>> = examples.iter().map(sketch).collect();
            for offering in pool.table.catalogue.offerings.ids().filter(knows_devices) {
                let candidate = Candidate { term: index, offering };
                let mut sketch = of_labels.get(numbers[offering]).cloned().unwrap_or_default();
                self.machine(pool, offering, survey, &mut sketch);
                let Sketch { rules, lacking } = sketch;
                let alike =
                    groups.entry(rules).or_insert_with(|| Alike { nearest: candidate, lacking, members: Vec::new() });
                if lacking < alike.lacking {
                    (alike.nearest, alike.lacking) = (candidate, lacking);
                }
                if keeps_members {
                    alike.members.push(candidate);
                }
            }
        }
        groups
    }

    /// What a candidate would need, beside minValues.
    fn needs<'n>(&self, pool: &OfPool<'n, '_>, candidate: Candidate, survey: &mut Survey<'s>) -> Needs<'n>
    where
        's: 'n,
    {
        let mut needs = Needs::new();
        if let Some(term) = self.packing.problem.classes[self.class].terms.get(candidate.term) {
            self.labels(pool, term, candidate.offering, &mut needs);
        }
        self.machine(pool, candidate.offering, survey, &mut needs);
        needs
    }

    /// What has nothing to do with labels.
    fn machine<'n>(
        &self,
        pool: &OfPool<'n, '_>,
        offering: OfferingId,
        survey: &mut Survey<'s>,
        sink: &mut impl Sink<'n>,
    ) where
        's: 'n,
    {
        let pods = &self.packing.problem.classes[self.class];
        self.amounts(pool, offering, survey, sink);
        self.limits(pool, offering, sink);
        if pool.given.as_ref().is_some_and(|given| !given.contains(offering)) {
            sink.put(Rule::Devices, || Need::Devices);
        }
        if let Some(port) = pool.table.port_of_daemon(offering, pods) {
            sink.put(Rule::HostPort, || Need::OtherPort(port));
        }
        if !self.can_launch(pool.table, offering) {
            sink.put(Rule::Availability, || Need::Available);
        }
    }

    /// Whether there is such a machine beside those of the plan.
    fn can_launch(&self, table: &PoolTable<'_>, offering: OfferingId) -> bool {
        let offering = &table.catalogue.offerings[offering];
        let is_used_up = |reservation: &Reservation| self.packing.state.uses_up(reservation.id);
        offering.launchable() && !offering.reservation.as_ref().is_some_and(is_used_up)
    }

    /// Adds the minValues that what such a change lets in would not keep.
    fn with_min_values<'n>(
        &self,
        pool: &OfPool<'n, '_>,
        mut needs: Needs<'n>,
        groups: &BTreeMap<Rules<'n>, Alike>,
        survey: &mut Survey<'s>,
    ) -> Needs<'n>
    where
        's: 'n,
    {
        let names = self.packing.problem.names();
        // Those that are not kept so far. Most are, by the first machines that are looked at.
        let mins = pool.table.min_values.iter().filter(|min| min.wanted > 0);
        let mut missed: Vec<(&MinValues, FastSet<ValueId>)> = mins.map(|min| (min, FastSet::default())).collect();
        let is_part = |rules: &Rules<'n>| rules.iter().all(|rule| needs.contains_key(rule));
        let members = groups.iter().filter(|(rules, _)| is_part(rules)).flat_map(|(_, alike)| &alike.members);
        for &candidate in members {
            if missed.is_empty() {
                break;
            }
            let offered = &pool.table.catalogue.offerings[candidate.offering].requirements;
            // What the NodePool is to allow, it allows in place of what it did.
            let is_allowed = |need: &Need| match need {
                Need::Allowed { key, values } => {
                    offered.get(*key).is_none_or(|offered| offered.values.intersects(values, names))
                }
                _ => true,
            };
            if !needs.values().all(is_allowed) || !is_met_by(&self.needs(pool, candidate, survey), &needs) {
                continue;
            }
            missed.retain_mut(|(min, values)| {
                let known = offered.get(min.key).or_else(|| pool.table.pool.requirements.get(min.key));
                values.extend(known.and_then(|known| known.values.finite_values()).unwrap_or_default());
                values.len() < min.wanted
            });
        }
        needs.extend(missed.into_iter().map(|(min, values)| {
            let left = u32::try_from(values.len()).unwrap_or(u32::MAX);
            (Rule::MinValues(names.key_name(min.key)), Need::MinValues { key: min.key, left })
        }));
        needs
    }

    /// What a machine from the offering takes of limits beside what the plan has taken.
    fn limits<'n>(&self, pool: &OfPool<'n, '_>, offering: OfferingId, sink: &mut impl Sink<'n>) {
        let limits = &pool.table.limits;
        let entries = limits.entries().iter().zip(limits.taken(offering)).zip(self.packing.state.charges(pool.rank));
        for ((entry, taken), charged) in entries {
            let by = taken.saturating_add(*charged).saturating_sub(entry.remaining);
            if by > 0 {
                sink.put(Rule::Limits(entry.limit), || Need::Limit { limit: entry.limit, by });
            }
        }
    }

    /// What any machine of the pool would need, and what concerns labels: the same for all offerings that say the same
    /// of the labels that the pool or the term asks about.
    fn labels<'n>(&self, pool: &OfPool<'n, '_>, term: &Term, offering: OfferingId, sink: &mut impl Sink<'n>)
    where
        's: 'n,
    {
        let names = self.packing.problem.names();
        let table = pool.table;
        pool.always.iter().for_each(|(rule, need)| sink.put(*rule, || need.clone()));
        let offered = &table.catalogue.offerings[offering].requirements;
        if term.node_name.as_ref().is_some_and(|wanted| !accepts_unknown(wanted)) {
            sink.put(Rule::NodeName, || Need::AnyNode);
        }
        for wanted in term.requirements.iter() {
            let key = wanted.key;
            match closed(table, offering, wanted, names) {
                None => {}
                Some(Closed::Node) => sink.put(Rule::NodeName, || Need::AnyNode),
                Some(Closed::NotOffered) => {
                    let need = || Need::NotWanted { key, wanted: wanted.values.clone() };
                    sink.put(Rule::Label(names.key_name(key)), need);
                }
                Some(Closed::NotAllowed) => {
                    let need = || Need::Allowed { key, values: wanted.values.clone() };
                    sink.put(Rule::Label(names.key_name(key)), need);
                }
            }
        }
        // What the NodePool is to allow of a label for the class, it need not allow otherwise.
        let is_replaced = |key: KeyId| {
            let wanted = term.requirements.get(key);
            match wanted.and_then(|wanted| closed(table, offering, wanted, names)) {
                Some(Closed::NotAllowed) => true,
                Some(Closed::NotOffered) => false,
                Some(Closed::Node) | None => {
                    let label = Rule::Label(names.key_name(key));
                    pool.always.iter().any(|(rule, _)| *rule == label)
                }
            }
        };
        let excluded = |asked: &Requirement| {
            let offered = offered.get(asked.key).filter(|offered| !offered.values.intersects(&asked.values, names))?;
            (!is_replaced(asked.key)).then_some(&offered.values)
        };
        if !table.pool.requirements.iter().any(|asked| excluded(asked).is_some()) {
            return;
        }
        sink.put(Rule::NodePools, || {
            let by_name = table.pool.requirements.iter_by_name(names);
            let labels: Vec<(KeyId, ValueSet)> =
                by_name.filter_map(|asked| Some((asked.key, excluded(asked)?.clone()))).collect();
            match labels.as_slice() {
                [(key, values)] => Need::Allowed { key: *key, values: values.clone() },
                _ => {
                    let like = table.catalogue.types[table.catalogue.offerings[offering].instance_type].name.as_str();
                    Need::OtherTypes { labels, like: like.into() }
                }
            }
        });
    }

    fn amounts<'n>(
        &self,
        pool: &OfPool<'n, '_>,
        offering: OfferingId,
        survey: &mut Survey<'s>,
        sink: &mut impl Sink<'n>,
    ) where
        's: 'n,
    {
        let problem = self.packing.problem;
        let table = pool.table;
        let allocatable = &table.catalogue.offerings[offering].allocatable;
        let there = match table.members.contains(offering) {
            true => table.net(offering),
            false => {
                let of_pool = survey.if_allowed.entry(pool.rank);
                let of_pool = of_pool.or_insert_with(|| NetIfAllowed::new(table, problem.snapshot));
                of_pool.of(table, offering)
            }
        };
        if there.has_negative() {
            sink.put(Rule::Daemons, || Need::Daemons);
            return;
        }
        let requests = problem.requests_alone(self.class, problem.variant_at(self.class, allocatable));
        for resource in requests.exceeding(there) {
            let most = there.get(resource);
            let need = || Need::Less { resource, by: requests.get(resource).saturating_sub(most), most };
            sink.put(Rule::Resource(problem.names().resource_name(resource)), need);
        }
    }
}

/// How the label of machines from an offering keeps out who wants this of it.
fn closed(table: &PoolTable<'_>, offering: OfferingId, wanted: &Requirement, names: &Interner) -> Option<Closed> {
    if table.can_have(Some(offering), wanted.key, &wanted.values, names) {
        return None;
    }
    if names_node(table, wanted) {
        return Some(Closed::Node);
    }
    let offered = table.catalogue.offerings[offering].requirements.get(wanted.key);
    let is_offered = offered.is_none_or(|offered| offered.values.intersects(&wanted.values, names));
    Some(if is_offered { Closed::NotAllowed } else { Closed::NotOffered })
}

/// Whether a change lets in what needs this.
fn is_met_by(needs: &Needs<'_>, change: &Needs<'_>) -> bool {
    needs.iter().all(|(rule, need)| match (need, change.get(rule)) {
        (_, None) => false,
        (Need::Less { by, .. }, Some(Need::Less { by: most, .. })) => by <= most,
        (Need::Limit { by, .. }, Some(Need::Limit { by: most, .. })) => by <= most,
        (Need::Allowed { key, values }, Some(Need::OtherTypes { labels, .. })) => {
            labels.contains(&(*key, values.clone()))
        }
        (Need::OtherTypes { labels: own, .. }, Some(Need::OtherTypes { labels, .. })) => own == labels,
        (need, Some(change)) => need == change,
    })
}

/// Whether somebody can see to it who reads of it.
fn can_be_done(need: &Need) -> bool {
    match need {
        Need::Tolerate(_)
        | Need::NotWanted { .. }
        | Need::AnyNode
        | Need::Allowed { .. }
        | Need::OtherTypes { .. }
        | Need::Less { .. }
        | Need::OtherPort(_)
        | Need::Limit { .. }
        | Need::MinValues { .. } => true,
        Need::Daemons | Need::Devices | Need::Available | Need::PodRules => false,
    }
}

/// Rules that together break every set, none of which can be left out.
fn irreducible(broken: &[Vec<(Rule<'_>, Need)>]) -> Vec<Excluding> {
    let all: BTreeMap<&Rule<'_>, &Need> = broken.iter().flatten().map(|(rule, need)| (rule, need)).collect();
    let mut kept: Vec<&Rule<'_>> = all.keys().copied().collect();
    for rule in all.keys().rev() {
        let others: Vec<&Rule<'_>> = kept.iter().copied().filter(|other| other != rule).collect();
        if broken.iter().all(|needs| needs.iter().any(|(rule, _)| others.contains(&rule))) {
            kept = others;
        }
    }
    let mut excluding: Vec<Excluding> =
        kept.into_iter().filter_map(|rule| Some(rule.excluding(all.get(rule)?))).collect();
    // Several limits, or taints, are one rule to who reads of them.
    excluding.dedup();
    excluding
}

impl Rule<'_> {
    fn excluding(&self, need: &Need) -> Excluding {
        match (self, need) {
            (Self::Label(_), Need::NotWanted { key, wanted } | Need::Allowed { key, values: wanted }) => {
                Excluding::Label { key: *key, wanted: wanted.clone() }
            }
            (Self::Resource(_), Need::Less { resource, by, most }) => {
                Excluding::Resource { resource: *resource, wanted: most.saturating_add(*by) }
            }
            (Self::Taints(_), _) => Excluding::Taints,
            (Self::NodeName, _) => Excluding::NodeName,
            (Self::Daemons, _) => Excluding::Daemons,
            (Self::HostPort, Need::OtherPort(port)) => Excluding::HostPort(*port),
            (Self::Devices, _) => Excluding::Devices,
            (Self::Availability, _) => Excluding::Availability,
            (Self::Limits(_), _) => Excluding::Limits,
            (Self::MinValues(_), _) => Excluding::MinValues,
            (Self::PodRules, _) => Excluding::PodRules,
            (Self::NodePools | Self::Label(_) | Self::Resource(_) | Self::HostPort, _) => Excluding::NodePools,
        }
    }
}
