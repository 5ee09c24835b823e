//! The offerings of a pool, split by where a machine from them is for one group.

use std::borrow::Cow;

use model::{IdSet, Interner, KeyId, Requirement, Requirements, ValueSet};

use super::{DomainId, Filter, Group, Kind, Place, Rule, Scope};
use crate::catalogue::OfferingId;
use crate::simulation::compile::pools::PoolTable;
use crate::snapshot::affinity::{accepts_unknown, untolerated};

/// Offerings whose machines are in one place.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) place: Place,
    pub(crate) offerings: IdSet<OfferingId>,
    /// What a machine's label must be made to say, where the offering leaves it open.
    pub(crate) pin: Option<Requirement>,
}

/// All that the cells of one pool depend on: rules that differ in what they select have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CellKey<'g> {
    scope: Scope,
    filter: Option<&'g Filter>,
    is_inside: bool,
}

impl<'g> CellKey<'g> {
    pub(crate) fn new(group: &'g Group, owner: bool) -> Self {
        Self {
            scope: group.scope,
            // Owners count wherever they are.
            filter: group.filter.as_ref().filter(|_| !owner),
            is_inside: owner && matches!(group.kind, Kind::Spread { .. } | Kind::Affinity),
        }
    }
}

/// The pool's members by place, domains in their order, then those outside. Owners of a spread are on nodes that count
/// by definition; owners of a spread or an affinity have no place outside.
pub(crate) fn cells(table: &PoolTable<'_>, group: &Group, owner: bool, names: &Interner) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut put = |place: Place, offering: OfferingId, pin: Option<Requirement>| match cells
        .iter_mut()
        .find(|cell| cell.place == place && cell.pin == pin)
    {
        Some(cell) => {
            cell.offerings.insert(offering);
        }
        None => {
            let mut offerings = IdSet::with_len(table.catalogue.offerings.len());
            offerings.insert(offering);
            cells.push(Cell { place, offerings, pin });
        }
    };
    for offering in table.members.iter() {
        let counts = if owner { Some(true) } else { group.counts_machine(table, offering, names) };
        match counts {
            // Whether it counts depends on a label that is open: the class goes elsewhere.
            None => continue,
            Some(false) => {
                put(Place::Outside, offering, None);
                continue;
            }
            Some(true) => {}
        }
        let key = match group.scope {
            Scope::Host => {
                put(Place::OwnHost, offering, None);
                continue;
            }
            Scope::Cluster => {
                put(Place::Domain(model::Id::from_index(0)), offering, None);
                continue;
            }
            Scope::Label(key) => key,
        };
        // A machine without the label is in no domain.
        let Some(values) = table.known(Some(offering), key, names) else {
            put(Place::Outside, offering, None);
            continue;
        };
        // A label that the offering leaves open is pinned: one cell for each value that it can have.
        let single = values.single_value();
        for (domain, value) in group.values().iter_enumerated() {
            if single == Some(*value) {
                put(Place::Domain(domain), offering, None);
            } else if single.is_none() && values.contains(Some(*value), names) {
                let pin = Requirement::new(key, ValueSet::one(*value));
                put(Place::Domain(domain), offering, Some(pin));
            }
        }
        if values.allows_absent() {
            let pin = (*values != ValueSet::only_absent()).then(|| Requirement::new(key, ValueSet::only_absent()));
            put(Place::Outside, offering, pin);
        }
    }
    if CellKey::new(group, owner).is_inside {
        cells.retain(|cell| cell.place != Place::Outside);
    }
    cells.sort_by_key(|cell| cell.place);
    cells
}

impl Group {
    /// Whether a machine from the offering counts at all; `None` if that depends on a label that is still open.
    fn counts_machine(&self, table: &PoolTable<'_>, offering: OfferingId, names: &Interner) -> Option<bool> {
        let Some(filter) = &self.filter else { return Some(true) };
        filter.counts_machine(table, offering, names)
    }

    /// Whether a machine from any offering, available now or not, is in the same place as a cell says.
    pub(crate) fn is_in_place(
        &self,
        table: &PoolTable<'_>,
        offering: OfferingId,
        place: Place,
        owner: bool,
        names: &Interner,
    ) -> bool {
        let counts = if owner { Some(true) } else { self.counts_machine(table, offering, names) };
        match (counts, self.scope, place) {
            (None, _, _) => false,
            (Some(false), _, place) => place == Place::Outside,
            (Some(true), Scope::Host, place) => place == Place::OwnHost,
            (Some(true), Scope::Cluster, _) => true,
            (Some(true), Scope::Label(key), place) => {
                let values = table.known(Some(offering), key, names);
                match place {
                    Place::Domain(domain) => {
                        let value = self.values().try_get(domain).copied();
                        values.is_some_and(|values| value.is_some() && values.contains(value, names))
                    }
                    Place::Outside => values.is_none_or(|values| values.allows_absent()),
                    Place::OwnHost | Place::Unknown => false,
                }
            }
        }
    }

    /// Domains in which a planned machine from the offering could land and would count, and whether it could land in
    /// one that has no number: a new host, or a value of the label that is made up at launch.
    pub(crate) fn landing(
        &self,
        table: &PoolTable<'_>,
        open: &Requirements,
        offering: OfferingId,
        names: &Interner,
    ) -> (IdSet<DomainId>, bool) {
        let nowhere = (IdSet::new(), false);
        if self.counts_machine(table, offering, names) == Some(false) {
            return nowhere;
        }
        match self.scope {
            Scope::Host => (IdSet::new(), true),
            Scope::Cluster => nowhere,
            Scope::Label(key) => {
                let Some(mut values) = table.known(Some(offering), key, names) else { return nowhere };
                if let Some(pinned) = open.get(key) {
                    values = Cow::Owned(values.intersect(&pinned.values, names));
                }
                let within = self.values().iter_enumerated().filter(|(_, value)| values.contains(Some(**value), names));
                (within.map(|(domain, _)| domain).collect(), values.finite_values().is_none())
            }
        }
    }

    /// Whether the rule is about a node's port rather than about its labels.
    pub(super) fn is_port(&self) -> bool {
        matches!(self.rule, Rule::Port(_))
    }
}

impl Filter {
    fn counts_machine(&self, table: &PoolTable<'_>, offering: OfferingId, names: &Interner) -> Option<bool> {
        if let Some(tolerations) = &self.tolerations
            && untolerated(&table.pool.taints, tolerations, names).is_some()
        {
            return Some(false);
        }
        let mut all = Some(true);
        for &key in &self.keys {
            all = and(all, holds(table, offering, key, &ValueSet::exists(), names));
        }
        let Some(terms) = &self.terms else { return all };
        let mut any = Some(false);
        for term in terms {
            let mut term_holds = Some(term.node_name.as_ref().is_none_or(accepts_unknown));
            for wanted in term.requirements.iter() {
                term_holds = and(term_holds, holds(table, offering, wanted.key, &wanted.values, names));
            }
            any = match (any, term_holds) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            };
        }
        and(all, any)
    }
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Whether a machine's label is among the wanted values: yes, no, or not settled.
fn holds(table: &PoolTable<'_>, offering: OfferingId, key: KeyId, wanted: &ValueSet, names: &Interner) -> Option<bool> {
    let known: Cow<'_, ValueSet> = match table.known(Some(offering), key, names) {
        Some(known) => known,
        None if table.is_hostname(key) => return Some(accepts_unknown(wanted) || *wanted == ValueSet::exists()),
        None => return Some(wanted.allows_absent()),
    };
    if known.is_subset(wanted, names) {
        Some(true)
    } else if !known.intersects(wanted, names) {
        Some(false)
    } else {
        None
    }
}
