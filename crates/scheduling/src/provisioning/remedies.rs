//! What keeps a refused class from every machine that could be launched, and the smallest changes that would let it in.
//!
//! Each offering of each usable NodePool is asked which rules it breaks for the class: what would have to change for it.
//! From that come
//!
//! * an irreducible set of rules: every offering breaks one of them, and no rule of the set can be left out. Rules are
//!   left out from the back of a fixed order (taints, labels by name, the Node's name, the NodePools' own requirements, resources by name,
//!   devices, availability, limits, minValues, rules between pods), so that it is the same set on every run;
//! * remedies: for each NodePool the offerings that break the fewest rules, and of those that break the same rules the one
//!   that lacks least.
//!
//! Devices of machines that a NodePool does not allow are not known, so these are left out for classes with claims.

use std::collections::BTreeMap;

use model::{Budget, IdSet, Interner, KeyId, ResourceVec, ValueSet};

use super::{
    affinity::{self, Term, accepts_unknown},
    classes::ClassId,
    explain::label_for_rule,
    pools::{PoolRank, PoolTable},
    problem::Problem,
};
use crate::{
    catalogue::OfferingId,
    reason::{Excluding, Need, Reason, Remedies, Remedy},
};

/// How many offerings may be asked in one plan, a class and an alternative of its node affinity at a time: what is refused
/// first is the most important. More are told what each NodePool says and no more.
pub(crate) const STEPS: u64 = 200_000;
/// Most changes that are worth telling.
const MAX_NEEDS: usize = 2;
/// Most remedies that are told.
const MAX_REMEDIES: usize = 3;

/// What an offering would need, with the rule that each need is about.
type Needs = BTreeMap<Rule, Need>;

/// A rule, in the order in which they are told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Taints,
    Label(String),
    NodeName,
    NodePools,
    Resource(String),
    Devices,
    Availability,
    Limits,
    MinValues,
    PodRules,
}

/// The class as it is asked about.
pub(crate) struct Asked<'a, 's> {
    pub(crate) problem: &'a Problem<'s>,
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
        budget: &mut Budget,
    ) -> Option<Reason> {
        if budget.remaining() == 0 {
            return None;
        }
        let offerings: usize = self.problem.pools.iter().map(|table| table.catalogue.offerings.len()).sum();
        let terms = self.problem.classes[self.class].terms.len();
        // The class that uses it up is told still.
        let _ = budget.spend((offerings * terms) as u64);
        let mut found: Vec<(PoolRank, &PoolTable<'_>, Needs)> = Vec::new();
        let mut broken: Vec<Vec<(Rule, Need)>> = Vec::new();
        for (rank, table) in self.problem.pools.iter_enumerated() {
            let given = given(rank, table);
            let mut best: BTreeMap<Vec<Rule>, (i64, Needs)> = BTreeMap::new();
            for needs in self.needs(table, given.as_ref()) {
                let rules: Vec<Rule> = needs.keys().cloned().collect();
                let lacking = needs.values().map(shortage).sum();
                let entry = best.entry(rules).or_insert_with(|| (lacking, needs.clone()));
                if lacking < entry.0 {
                    *entry = (lacking, needs);
                }
            }
            broken.extend(best.iter().map(|(_, (_, needs))| needs.clone().into_iter().collect()));
            let fewest = best.keys().map(Vec::len).min().unwrap_or(0);
            let nearest = best.into_iter().filter(|(rules, _)| rules.len() == fewest && fewest <= MAX_NEEDS);
            found.extend(nearest.map(|(_, (_, needs))| (rank, table, needs)));
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
                needs: needs.into_values().collect(),
                rules_may_close: self.rules_may_close(table),
            })
            .collect();
        let excluded_by = irreducible(&broken);
        // Of a single rule of a single NodePool all was told, but by how much the resources are short.
        let was_told = match remedies.as_slice() {
            [] => excluded_by.len() == 1,
            [Remedy { needs, .. }] => {
                let is_new = matches!(needs.as_slice(), [Need::Less { .. } | Need::OtherTypes]);
                self.problem.pools.len() == 1 && excluded_by.len() == 1 && needs.len() == 1 && !is_new
            }
            _ => false,
        };
        (!was_told).then(|| Reason::Remedies(Box::new(Remedies { excluded_by, remedies })))
    }

    /// Whether the class is coupled with others and the pool said no before that was asked.
    fn rules_may_close(&self, table: &PoolTable<'_>) -> bool {
        let said_before = |reason: &Reason| match reason {
            Reason::NodePoolTaint { node_pool, .. }
            | Reason::LabelNotDefined { node_pool, .. }
            | Reason::LabelForRule { node_pool, .. }
            | Reason::NodeName { node_pool, .. }
            | Reason::Requirement { node_pool, .. } => *node_pool == table.pool.name,
            _ => false,
        };
        !self.problem.classes[self.class].involved.is_empty() && self.reasons.iter().any(said_before)
    }

    /// What each offering of a pool would need.
    fn needs(&self, table: &PoolTable<'_>, given: Option<&IdSet<OfferingId>>) -> Vec<Needs> {
        let names = self.problem.names();
        let pods = &self.problem.classes[self.class];
        let mut of_pool = Needs::new();
        if let Some(taint) = affinity::untolerated(&table.pool.taints, &pods.shape.tolerations, names) {
            of_pool.insert(Rule::Taints, Need::Tolerate(taint));
        }
        for (key, _) in label_for_rule(self.problem, table, pods) {
            let rule = Rule::Label(names.key_name(key).to_owned());
            of_pool.insert(rule, Need::Allowed { key, values: ValueSet::exists() });
        }
        let of_this_pool = |reason: &&Reason| reason.node_pool() == Some(&table.pool.name);
        for reason in self.reasons.iter().filter(of_this_pool) {
            match reason {
                Reason::LimitExceeded { limit, remaining, needed, .. } => {
                    let by = needed.saturating_sub((*remaining).max(0));
                    of_pool.insert(Rule::Limits, Need::Limit { limit: *limit, by });
                }
                Reason::MinValues { key, left, .. } => {
                    of_pool.insert(Rule::MinValues, Need::MinValues { key: *key, left: *left });
                }
                Reason::PodRules { .. } => drop(of_pool.insert(Rule::PodRules, Need::PodRules)),
                _ => {}
            }
        }
        let knows_devices = |offering: &OfferingId| given.is_none() || table.members.contains(*offering);
        let offerings: Vec<OfferingId> = table.catalogue.offerings.ids().filter(knows_devices).collect();
        let mut all = Vec::new();
        for term in &pods.terms {
            for &offering in &offerings {
                let mut needs = of_pool.clone();
                self.labels(table, term, offering, &mut needs, names);
                self.amounts(table, offering, &mut needs, names);
                if given.is_some_and(|given| !given.contains(offering)) {
                    needs.insert(Rule::Devices, Need::Devices);
                }
                if !table.catalogue.offerings[offering].launchable() {
                    needs.insert(Rule::Availability, Need::Available);
                }
                all.push(needs);
            }
        }
        all
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
            let is_offered = offered.get(key).map(|offered| offered.values.intersects(&wanted.values, names));
            let need = match is_offered {
                // Some machines have it; these have not.
                Some(false) => Need::NotWanted { key, wanted: wanted.values.clone() },
                Some(true) | None => Need::Allowed { key, values: wanted.values.clone() },
            };
            needs.insert(rule(key), need);
        }
        for asked in table.pool.requirements.iter_by_name(names) {
            let Some(offered) = offered.get(asked.key).filter(|_| !needs.contains_key(&rule(asked.key))) else {
                continue;
            };
            if !offered.values.intersects(&asked.values, names) && !needs.contains_key(&Rule::NodePools) {
                let values = offered.values.clone();
                needs.insert(Rule::NodePools, Need::Allowed { key: asked.key, values });
            } else if !offered.values.intersects(&asked.values, names) {
                // More than one of its requirements: nothing that one would say in a sentence.
                needs.insert(Rule::NodePools, Need::OtherTypes);
            }
        }
    }

    fn amounts(&self, table: &PoolTable<'_>, offering: OfferingId, needs: &mut Needs, names: &Interner) {
        let allocatable = &table.catalogue.offerings[offering].allocatable;
        let there: &ResourceVec = match table.members.contains(offering) {
            true => table.net(offering),
            false => allocatable,
        };
        let requests = self.problem.requests_alone(self.class, self.problem.variant_at(self.class, allocatable));
        for resource in requests.exceeding(there) {
            let most = there.get(resource).max(0);
            let need = Need::Less { resource, by: requests.get(resource).saturating_sub(most), most };
            needs.insert(Rule::Resource(names.resource_name(resource).to_owned()), need);
        }
    }
}

/// Whether somebody can see to it who reads of it.
fn can_be_done(need: &Need) -> bool {
    match need {
        Need::Tolerate(_)
        | Need::NotWanted { .. }
        | Need::AnyNode
        | Need::Allowed { .. }
        | Need::OtherTypes
        | Need::Less { .. }
        | Need::Limit { .. }
        | Need::MinValues { .. } => true,
        Need::Devices | Need::Available | Need::PodRules => false,
    }
}

/// How much is missing, in thousandths of what there is at most.
fn shortage(need: &Need) -> i64 {
    match need {
        Need::Less { by, most, .. } => by.saturating_mul(1000) / (*most).max(1),
        _ => 0,
    }
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
    kept.into_iter().filter_map(|rule| Some(rule.excluding(all.get(rule)?))).collect()
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
            (Self::Taints, _) => Excluding::Taints,
            (Self::NodeName, _) => Excluding::NodeName,
            (Self::Devices, _) => Excluding::Devices,
            (Self::Availability, _) => Excluding::Availability,
            (Self::Limits, _) => Excluding::Limits,
            (Self::MinValues, _) => Excluding::MinValues,
            (Self::PodRules, _) => Excluding::PodRules,
            (Self::NodePools | Self::Label(_) | Self::Resource(_), _) => Excluding::NodePools,
        }
    }
}
