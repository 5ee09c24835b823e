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

use std::{cell::OnceCell, collections::BTreeMap};

use model::{
    Budget, IdSet, Interner, KeyId, ResourceVec, Taint, ValueId, ValueSet,
    collections::{FastMap, FastSet},
};

use crate::catalogue::{OfferingId, Reservation};
use crate::explain::{label_for_rule, names_node};
use crate::plan::reason::{Excluding, Need, Reason, Remedies, Remedy};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::daemons;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::DeviceState;
use crate::snapshot::Limit;
use crate::snapshot::affinity;
use crate::snapshot::affinity::{Term, accepts_unknown};
use crate::tuning::{MAX_NEEDS, MAX_REMEDIES, REMEDY_STEPS};

/// What an offering would need, with the rule that each need is about.
type Needs = BTreeMap<Rule, Need>;

/// A rule, in the order in which they are told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Taints(String),
    Label(String),
    NodeName,
    NodePools,
    Resource(String),
    Daemons,
    HostPort,
    Devices,
    Availability,
    Limits(Limit),
    MinValues(String),
    PodRules,
}

/// What is asked of offerings in one plan.
pub(crate) struct Survey {
    budget: Budget,
    /// What offerings that their pool does not allow would hold beside daemons if it did.
    if_allowed: FastMap<(PoolRank, OfferingId), ResourceVec>,
    brought: OnceCell<Option<DeviceState>>,
}

impl Survey {
    /// The devices of the finished plan with all that its machines bring for others; worked out once.
    pub(super) fn brought(&self, packing: &Packing<'_>) -> Option<&DeviceState> {
        self.brought.get_or_init(|| packing.with_all_that_is_brought()).as_ref()
    }
}

impl Default for Survey {
    fn default() -> Self {
        Self { budget: Budget::new(REMEDY_STEPS), if_allowed: FastMap::default(), brought: OnceCell::new() }
    }
}

/// An offering of a pool that some change would let in.
struct Candidate {
    offering: OfferingId,
    needs: Needs,
}

/// The class as it is asked about.
pub(crate) struct Asked<'a, 's> {
    pub(crate) packing: &'a Packing<'s>,
    pub(crate) class: ClassId,
    /// Why each NodePool said no.
    pub(crate) reasons: &'a [Reason],
}

impl Asked<'_, '_> {
    /// `None` where no NodePool may launch, or the budget is used up.
    ///
    /// `given` tells which offerings of a pool would give the class its devices; `None` if it wants none.
    pub(crate) fn remedies(
        &self,
        given: impl Fn(PoolRank, &PoolTable<'_>) -> Option<IdSet<OfferingId>>,
        survey: &mut Survey,
    ) -> Option<Reason> {
        if survey.budget.remaining() == 0 {
            return None;
        }
        let offerings: usize = self.packing.problem.pools.iter().map(|table| table.catalogue.offerings.len()).sum();
        let terms = self.packing.problem.classes[self.class].terms.len();
        // The class that uses it up is told still.
        let _ = survey.budget.spend((offerings * terms) as u64);
        let mut found: Vec<(PoolRank, &PoolTable<'_>, Needs)> = Vec::new();
        let mut broken: Vec<Vec<(Rule, Need)>> = Vec::new();
        for (rank, table) in self.packing.problem.pools.iter_enumerated() {
            let given = given(rank, table);
            let candidates = self.candidates(rank, table, given.as_ref(), survey);
            let mut best: BTreeMap<Vec<&Rule>, ((i64, i64), &Needs)> = BTreeMap::new();
            for Candidate { needs, .. } in &candidates {
                let entry = best.entry(needs.keys().collect()).or_insert_with(|| (lacking(needs), needs));
                if lacking(needs) < entry.0 {
                    *entry = (lacking(needs), needs);
                }
            }
            let all: Vec<Needs> =
                best.into_values().map(|(_, needs)| self.with_min_values(table, needs.clone(), &candidates)).collect();
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
                self.packing.problem.pools.len() == 1 && excluded_by.len() == 1 && needs.len() == 1 && !is_new
            }
            _ => false,
        };
        (!was_told).then(|| Reason::Remedies(Box::new(Remedies { excluded_by, remedies })))
    }

    /// What each offering of a pool would need, beside minValues.
    fn candidates(
        &self,
        rank: PoolRank,
        table: &PoolTable<'_>,
        given: Option<&IdSet<OfferingId>>,
        survey: &mut Survey,
    ) -> Vec<Candidate> {
        let names = self.packing.problem.names();
        let pods = &self.packing.problem.classes[self.class];
        let mut of_pool = Needs::new();
        let tolerations = &pods.shape.tolerations;
        let keeps_out = |taint: &&Taint| affinity::untolerated(&[**taint], tolerations, names).is_some();
        for taint in table.pool.taints.iter().filter(keeps_out) {
            of_pool.insert(Rule::Taints(taint.display(names).to_string()), Need::Tolerate(*taint));
        }
        for (key, _) in label_for_rule(self.packing.problem, table, pods) {
            let rule = Rule::Label(names.key_name(key).to_owned());
            of_pool.insert(rule, Need::Allowed { key, values: ValueSet::exists() });
        }
        let closed = |reason: &Reason| matches!(reason, Reason::PodRules { node_pool: Some(pool), .. } if *pool == table.pool.name);
        if self.reasons.iter().any(closed) {
            of_pool.insert(Rule::PodRules, Need::PodRules);
        }
        let knows_devices = |offering: &OfferingId| given.is_none() || table.members.contains(*offering);
        let offerings: Vec<OfferingId> = table.catalogue.offerings.ids().filter(knows_devices).collect();
        let mut all = Vec::new();
        for term in &pods.terms {
            for &offering in &offerings {
                let mut needs = of_pool.clone();
                self.labels(table, term, offering, &mut needs, names);
                self.amounts(rank, table, offering, &mut needs, survey);
                self.limits(rank, table, offering, &mut needs);
                if given.is_some_and(|given| !given.contains(offering)) {
                    needs.insert(Rule::Devices, Need::Devices);
                }
                if let Some(port) = table.port_of_daemon(offering, pods) {
                    needs.insert(Rule::HostPort, Need::OtherPort(port));
                }
                if !self.can_launch(table, offering) {
                    needs.insert(Rule::Availability, Need::Available);
                }
                all.push(Candidate { offering, needs });
            }
        }
        all
    }

    /// Whether there is such a machine beside those of the plan.
    fn can_launch(&self, table: &PoolTable<'_>, offering: OfferingId) -> bool {
        let offering = &table.catalogue.offerings[offering];
        let is_used_up = |reservation: &Reservation| self.packing.state.uses_up(reservation.id);
        offering.launchable() && !offering.reservation.as_ref().is_some_and(is_used_up)
    }

    /// Adds the minValues that what such a change lets in would not keep.
    fn with_min_values(&self, table: &PoolTable<'_>, mut needs: Needs, candidates: &[Candidate]) -> Needs {
        let names = self.packing.problem.names();
        let mut missed = Vec::new();
        for min in &table.min_values {
            let mut values: FastSet<ValueId> = FastSet::default();
            for candidate in candidates.iter().filter(|candidate| is_met_by(&candidate.needs, &needs)) {
                let offered = &table.catalogue.offerings[candidate.offering].requirements;
                // What the NodePool is to allow, it allows in place of what it did.
                let is_allowed = |need: &Need| match need {
                    Need::Allowed { key, values } => {
                        offered.get(*key).is_none_or(|offered| offered.values.intersects(values, names))
                    }
                    _ => true,
                };
                if !needs.values().all(is_allowed) {
                    continue;
                }
                let known = offered.get(min.key).or_else(|| table.pool.requirements.get(min.key));
                values.extend(known.and_then(|known| known.values.finite_values()).unwrap_or_default());
            }
            if values.len() < min.wanted {
                let left = u32::try_from(values.len()).unwrap_or(u32::MAX);
                missed.push((
                    Rule::MinValues(names.key_name(min.key).to_owned()),
                    Need::MinValues { key: min.key, left },
                ));
            }
        }
        needs.extend(missed);
        needs
    }

    /// What a machine from the offering takes of limits beside what the plan has taken.
    fn limits(&self, rank: PoolRank, table: &PoolTable<'_>, offering: OfferingId, needs: &mut Needs) {
        let entries =
            table.limits.entries().iter().zip(table.limits.taken(offering)).zip(self.packing.state.charges(rank));
        for ((entry, taken), charged) in entries {
            let by = taken.saturating_add(*charged).saturating_sub(entry.remaining);
            if by > 0 {
                needs.insert(Rule::Limits(entry.limit), Need::Limit { limit: entry.limit, by });
            }
        }
    }

    fn labels(&self, table: &PoolTable<'_>, term: &Term, offering: OfferingId, needs: &mut Needs, names: &Interner) {
        let offered = &table.catalogue.offerings[offering].requirements;
        let rule = |key: KeyId| Rule::Label(names.key_name(key).to_owned());
        if term.node_name.as_ref().is_some_and(|wanted| !accepts_unknown(wanted)) {
            needs.insert(Rule::NodeName, Need::AnyNode);
        }
        for wanted in term.requirements.iter() {
            let key = wanted.key;
            if table.can_have(Some(offering), key, &wanted.values, names) {
                continue;
            }
            if names_node(table, wanted) {
                needs.insert(Rule::NodeName, Need::AnyNode);
                continue;
            }
            let is_offered = offered.get(key).map(|offered| offered.values.intersects(&wanted.values, names));
            let need = match is_offered {
                // Some machines have it; these have not.
                Some(false) => Need::NotWanted { key, wanted: wanted.values.clone() },
                Some(true) | None => Need::Allowed { key, values: wanted.values.clone() },
            };
            needs.insert(rule(key), need);
        }
        let mut excluding: Vec<(KeyId, ValueSet)> = Vec::new();
        for asked in table.pool.requirements.iter_by_name(names) {
            let is_replaced = matches!(needs.get(&rule(asked.key)), Some(Need::Allowed { .. }));
            let Some(offered) = offered.get(asked.key).filter(|_| !is_replaced) else { continue };
            if !offered.values.intersects(&asked.values, names) {
                excluding.push((asked.key, offered.values.clone()));
            }
        }
        let need = match excluding.as_slice() {
            [] => return,
            [(key, values)] => Need::Allowed { key: *key, values: values.clone() },
            _ => {
                let like = table.catalogue.types[table.catalogue.offerings[offering].instance_type].name.as_str();
                Need::OtherTypes { labels: excluding, like: like.into() }
            }
        };
        needs.insert(Rule::NodePools, need);
    }

    fn amounts(
        &self,
        rank: PoolRank,
        table: &PoolTable<'_>,
        offering: OfferingId,
        needs: &mut Needs,
        survey: &mut Survey,
    ) {
        let names = self.packing.problem.names();
        let allocatable = &table.catalogue.offerings[offering].allocatable;
        let there = match table.members.contains(offering) {
            true => table.net(offering),
            false => survey
                .if_allowed
                .entry((rank, offering))
                .or_insert_with(|| daemons::net_if_allowed(table, offering, self.packing.problem.snapshot)),
        };
        if there.has_negative() {
            needs.insert(Rule::Daemons, Need::Daemons);
            return;
        }
        let requests =
            self.packing.problem.requests_alone(self.class, self.packing.problem.variant_at(self.class, allocatable));
        for resource in requests.exceeding(there) {
            let most = there.get(resource);
            let need = Need::Less { resource, by: requests.get(resource).saturating_sub(most), most };
            needs.insert(Rule::Resource(names.resource_name(resource).to_owned()), need);
        }
    }
}

/// Whether a change lets in what needs this.
fn is_met_by(needs: &Needs, change: &Needs) -> bool {
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

/// How much is missing of resources, in thousandths of what there is at most, and then of limits.
fn lacking(needs: &Needs) -> (i64, i64) {
    let mut lacking = (0_i64, 0_i64);
    for need in needs.values() {
        match need {
            Need::Less { by, most, .. } => {
                lacking.0 = lacking.0.saturating_add(by.saturating_mul(1000) / (*most).max(1))
            }
            Need::Limit { by, .. } => lacking.1 = lacking.1.saturating_add(*by),
            _ => {}
        }
    }
    lacking
}

/// Rules that together break every set, none of which can be left out.
fn irreducible(broken: &[Vec<(Rule, Need)>]) -> Vec<Excluding> {
    let all: BTreeMap<&Rule, &Need> = broken.iter().flatten().map(|(rule, need)| (rule, need)).collect();
    let mut kept: Vec<&Rule> = all.keys().copied().collect();
    for rule in all.keys().rev() {
        let others: Vec<&Rule> = kept.iter().copied().filter(|other| other != rule).collect();
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

impl Rule {
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
