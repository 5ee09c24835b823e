//! From pods and nodes to groups.
//!
//! Labels of pods matter only where a selector reads them, so pods are told apart by their namespace and by the labels
//! whose keys some selector mentions, and only if there is a rule that couples pods at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::labels;
use model::{
    Id, IdSet, IdVec, KeyId, LabelSelector, Labels, NamespacedName, Pod, PodShape, Requirements, Unsupported, ValueId,
    collections::{FastMap, NameMap, NameSet},
    pod::{NodeInclusionPolicy, PodAffinityTerm, VolumeRef},
    volume::{AccessMode, VolumeBindingMode},
};

use super::absent_keys::AbsentKeys;
use super::running::{by_node, running_kinds};
use super::{
    AffinitySet, Counts, DomainId, Filter, Group, GroupId, Involvement, Kind, Place, Placing, Rule, Scope, Topology,
};
use crate::snapshot::affinity;
use crate::snapshot::affinity::untolerated;
use crate::snapshot::{Excluded, Node, NodeLabels, PendingPod, RunningKind, Snapshot};

/// Namespace and labels of a pod, as far as selectors read them.
pub(crate) type Signature = (Arc<str>, Labels);

/// What couples a class with others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Coupling {
    pub(crate) involved: Vec<Involvement>,
    pub(crate) affinity_sets: Vec<AffinitySet>,
}

/// Groups a pod owns: its own spread, ports and anti-affinity, and its affinity by what counts together.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    groups: Vec<GroupId>,
    affinity: Vec<Vec<GroupId>>,
}

/// Groups that match pods by their labels, for pods of which selectors read the same.
#[derive(Debug, Default)]
pub(crate) struct MatchedByLabels(FastMap<Signature, Vec<GroupId>>);

#[derive(PartialEq, Eq, Hash, Clone)]
pub(super) struct GroupKey {
    pub(super) kind: Kind,
    pub(super) scope: Scope,
    pub(super) rule: Rule,
    pub(super) filter: Option<Filter>,
}

/// Finds the groups of a snapshot.
pub(crate) struct Builder<'s> {
    pub(super) snapshot: &'s Snapshot,
    hostname: Option<KeyId>,
    zone: Option<KeyId>,
    /// Whether any rule couples pods.
    coupled: bool,
    /// Label keys that selectors read.
    keys: BTreeSet<KeyId>,
    /// Claims that are bound when their first pod is, and that several pods wait with.
    shared: NameSet<NamespacedName>,
    /// The kinds of pods that run.
    running: Vec<&'s RunningKind>,
    groups: IdVec<GroupId, GroupKey>,
    pub(super) by_key: FastMap<GroupKey, GroupId>,
}

impl<'s> Builder<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let mut builder = Self {
            snapshot,
            hostname: snapshot.interner.find_key(labels::HOSTNAME),
            zone: snapshot.interner.find_key(labels::ZONE),
            coupled: false,
            keys: BTreeSet::new(),
            shared: NameSet::default(),
            running: Vec::new(),
            groups: IdVec::new(),
            by_key: FastMap::default(),
        };
        let mut users: NameMap<NamespacedName, u32> = NameMap::default();
        for pending in &snapshot.pods {
            builder.scan(&pending.pod.shape);
            for volume in &pending.pod.shape.volumes {
                if let VolumeRef::Claim(claim) = volume
                    && builder.waits_for_first_pod(claim)
                {
                    *users.entry(claim.clone()).or_default() += 1;
                }
            }
        }
        builder.shared = users.into_iter().filter(|(_, pods)| *pods > 1).map(|(claim, _)| claim).collect();
        builder.coupled |= !builder.shared.is_empty();
        builder.running = running_kinds(snapshot);
        for kind in builder.running.clone() {
            for term in &kind.shape.pod_anti_affinity.required {
                builder.coupled = true;
                builder.scan_selector(&term.selector);
            }
        }
        builder
    }

    fn scan(&mut self, shape: &PodShape) {
        for spread in shape.hard_spread() {
            self.coupled = true;
            self.scan_selector(&spread.selector);
            self.keys.extend(&spread.match_label_keys);
        }
        for term in shape.pod_affinity.required.iter().chain(&shape.pod_anti_affinity.required) {
            self.coupled = true;
            self.scan_selector(&term.selector);
        }
        self.coupled |= !shape.host_ports.is_empty();
        self.coupled |= shape.volumes.iter().any(|volume| self.is_exclusive(volume).is_some());
    }

    fn scan_selector(&mut self, selector: &LabelSelector) {
        match selector {
            LabelSelector::Nothing => {}
            LabelSelector::Matching(requirements) => {
                self.keys.extend(requirements.iter().map(|requirement| requirement.key));
            }
        }
    }

    /// The claim, if one pod at a time may use it.
    fn is_exclusive<'v>(&self, volume: &'v VolumeRef) -> Option<&'v NamespacedName> {
        let VolumeRef::Claim(name) = volume else { return None };
        let claim = self.snapshot.volumes.claims.get(name)?;
        claim.access_modes.contains(&AccessMode::ReadWriteOncePod).then_some(name)
    }

    fn waits_for_first_pod(&self, claim: &NamespacedName) -> bool {
        let volumes = &self.snapshot.volumes;
        volumes.claims.get(claim).is_some_and(|claim| {
            claim.volume_name.is_none()
                && volumes
                    .class_of(claim.storage_class.as_ref())
                    .is_some_and(|class| class.binding_mode == VolumeBindingMode::WaitForFirstConsumer)
        })
    }

    /// What tells pods of one shape apart; `None` if nothing couples pods.
    pub(crate) fn signature(&self, pod: &Pod) -> Option<Signature> {
        self.signature_of(&pod.name.namespace, &pod.labels)
    }

    pub(super) fn signature_of(&self, namespace: &Arc<str>, labels: &Labels) -> Option<Signature> {
        if !self.coupled {
            return None;
        }
        let read = labels.iter().filter(|(key, _)| self.keys.contains(key));
        Some((Arc::clone(namespace), read.collect()))
    }

    fn group(&mut self, kind: Kind, scope: Scope, rule: Rule, filter: Option<Filter>) -> GroupId {
        let key = GroupKey { kind, scope, rule, filter };
        if let Some(&group) = self.by_key.get(&key) {
            return group;
        }
        let group = self.groups.push(key.clone());
        self.by_key.insert(key, group);
        group
    }

    pub(super) fn scope(&self, key: KeyId) -> Scope {
        if Some(key) == self.hostname { Scope::Host } else { Scope::Label(key) }
    }

    /// The groups whose rules a pod has to keep.
    pub(crate) fn own(&mut self, pending: &PendingPod) -> Result<Owned, Unsupported> {
        let pod = &*pending.pod;
        let shape = &*pod.shape;
        // Whoever stays in a domain keeps the rules over it.
        let is_kept = |key: KeyId| pending.stays_within.as_ref().is_some_and(|within| within.contains_key(key));
        let names = &*self.snapshot.interner;
        let mut owned = Owned::default();
        if !self.coupled {
            return Ok(owned);
        }
        // kube-scheduler counts a node for a hard spread only if it has the keys of all hard constraints of the pod
        // (PodTopologySpread, `nodeLabelsMatchSpreadConstraints`).
        let mut keys: Vec<KeyId> = shape.hard_spread().map(|spread| spread.topology_key).collect();
        keys.sort_unstable();
        keys.dedup();
        for spread in shape.hard_spread().filter(|spread| !is_kept(spread.topology_key)) {
            let mut selector = spread.selector.clone();
            // `matchLabelKeys` (KEP-3243): only pods with the same values of these labels count, such as those of one
            // revision.
            for &key in &spread.match_label_keys {
                if let Some(value) = pod.labels.get(key) {
                    selector.and_label(key, value, names);
                }
            }
            let honors = |policy| policy == NodeInclusionPolicy::Honor;
            let filter = Filter {
                keys: keys.clone(),
                terms: honors(spread.node_affinity_policy).then(|| affinity::terms(shape, names)),
                tolerations: honors(spread.node_taints_policy).then(|| shape.tolerations.clone()),
            };
            let kind = Kind::Spread {
                max_skew: spread.max_skew,
                min_domains: spread.min_domains.unwrap_or(1),
                source: spread.source,
            };
            let rule = Rule::Selected { namespace: Arc::clone(&pod.name.namespace), selector };
            let scope = self.scope(spread.topology_key);
            owned.groups.push(self.group(kind, scope, rule, Some(filter)));
        }
        for term in shape.pod_anti_affinity.required.iter().filter(|term| !is_kept(term.topology_key)) {
            self.check_namespaces(term, "anti-affinity")?;
            let (scope, rule) = (self.scope(term.topology_key), Rule::Terms(vec![term.clone()]));
            owned.groups.push(self.group(Kind::AntiAffinity, scope, rule, None));
        }
        // A host port is an anti-affinity between hosts against pods with a conflicting port.
        for &port in &shape.host_ports {
            owned.groups.push(self.group(Kind::AntiAffinity, Scope::Host, Rule::Port(port), None));
        }
        for volume in &shape.volumes {
            let VolumeRef::Claim(claim) = volume else { continue };
            let rule = || Rule::Claim(claim.clone());
            // A ReadWriteOncePod claim lets one pod of the whole cluster use it.
            if self.is_exclusive(volume).is_some() {
                owned.groups.push(self.group(Kind::AntiAffinity, Scope::Cluster, rule(), None));
            }
            // A WaitForFirstConsumer claim is bound in the zone of its first pod, and the others have to follow.
            if let (true, Some(zone)) = (self.shared.contains(claim), self.zone) {
                let group = self.group(Kind::Affinity, Scope::Label(zone), rule(), None);
                owned.affinity.push(vec![group]);
            }
        }
        // kube-scheduler counts only pods that match all required terms at once, so each group has all terms as its
        // rule.
        let terms = &shape.pod_affinity.required;
        let mut affinity = Vec::new();
        for term in terms.iter().filter(|term| !is_kept(term.topology_key)) {
            self.check_namespaces(term, "affinity")?;
            let rule = Rule::Terms(terms.clone());
            let group = self.group(Kind::Affinity, self.scope(term.topology_key), rule, None);
            if !affinity.contains(&group) {
                affinity.push(group);
            }
        }
        if !affinity.is_empty() {
            owned.affinity.push(affinity);
        }
        Ok(owned)
    }

    fn check_namespaces(&self, term: &PodAffinityTerm, what: &str) -> Result<(), Unsupported> {
        let selects_by_label = match &term.namespace_selector {
            LabelSelector::Nothing => false,
            LabelSelector::Matching(requirements) => !requirements.is_empty(),
        };
        if selects_by_label && self.snapshot.namespaces.is_empty() {
            return Err(Unsupported::new(format!(
                "namespaceSelector of required pod {what}, as long as the labels of namespaces are not known,"
            )));
        }
        Ok(())
    }

    /// Adds the rules of pods that run, so that all groups are known.
    pub(crate) fn add_running(&mut self) {
        if !self.coupled {
            return;
        }
        for kind in self.running.clone() {
            for term in &kind.shape.pod_anti_affinity.required {
                let (scope, rule) = (self.scope(term.topology_key), Rule::Terms(vec![term.clone()]));
                self.group(Kind::AntiAffinity, scope, rule, None);
            }
        }
    }

    /// How all groups concern a class of pods like this one; call when all groups are known.
    pub(crate) fn coupling(&self, pending: &PendingPod, owned: &Owned, alike: &mut MatchedByLabels) -> Coupling {
        let pod = &*pending.pod;
        let mut coupling = Coupling::default();
        let Some(signature) = self.signature(pod) else { return coupling };
        let matches = |key: &GroupKey| self.matches(&key.rule, &pod.name.namespace, &pod.labels, &pod.shape);
        let matched_of = |is_asked: fn(&Rule) -> bool| {
            let asked = self.groups.iter_enumerated().filter(move |(_, key)| is_asked(&key.rule));
            asked.filter(|(_, key)| matches(key)).map(|(group, _)| group).collect::<Vec<GroupId>>()
        };
        let by_labels = alike.0.entry(signature).or_insert_with(|| matched_of(Rule::reads_labels));
        let mut matched = by_labels.clone();
        if !pod.shape.host_ports.is_empty() || !pod.shape.volumes.is_empty() {
            matched.extend(matched_of(|rule| !rule.reads_labels()));
            matched.sort_unstable();
        }
        if let Some(within) = &pending.stays_within {
            matched.retain(|group| !is_over(self.groups[*group].scope, within));
        }
        let owners = || owned.groups.iter().chain(owned.affinity.iter().flatten());
        let mut groups: Vec<GroupId> = matched.iter().chain(owners()).copied().collect();
        groups.sort_unstable();
        groups.dedup();
        coupling.involved.extend(groups.into_iter().map(|group| Involvement {
            group,
            owner: owners().any(|&own| own == group),
            matched: matched.binary_search(&group).is_ok(),
        }));
        for set in &owned.affinity {
            let positions = set
                .iter()
                .filter_map(|group| coupling.involved.iter().position(|involvement| involvement.group == *group));
            let involvements: Vec<usize> = positions.collect();
            let matches_itself = involvements
                .iter()
                .all(|&position| coupling.involved.get(position).is_some_and(|involvement| involvement.matched));
            coupling.affinity_sets.push(AffinitySet { involvements, matches_itself });
        }
        coupling
    }

    fn matches(&self, rule: &Rule, namespace: &Arc<str>, labels: &Labels, shape: &PodShape) -> bool {
        rule.matches(namespace, labels, shape, &self.snapshot.namespaces, &self.snapshot.interner)
    }

    /// The groups with what runs now. Which domains machines could open is found out later ([`super::reachable`]).
    pub(crate) fn finish(self) -> Topology {
        if self.groups.is_empty() {
            return Topology::default();
        }
        let mut known: FastMap<(Scope, bool, Option<Filter>), Arc<Placing>> = FastMap::default();
        let absent_keys = AbsentKeys::new(self.snapshot);
        let groups = self.groups.iter().map(|key| {
            // Pods of many owners are spread over the same label, and most count the same nodes.
            let of = (key.scope, matches!(key.rule, Rule::Port(_)), key.filter.clone());
            let placing = known.entry(of).or_insert_with(|| Arc::new(self.placing(key, &absent_keys)));
            Group {
                kind: key.kind,
                scope: key.scope,
                rule: key.rule.clone(),
                filter: key.filter.clone(),
                placing: Arc::clone(placing),
                start: Counts::default(),
            }
        });
        let mut groups: IdVec<GroupId, Group> = groups.collect();
        self.count_running(&mut groups);
        Topology { groups, moving: by_node(self.snapshot), ..Topology::default() }
    }

    fn placing(&self, key: &GroupKey, absent_keys: &AbsentKeys<'_>) -> Placing {
        let names = &*self.snapshot.interner;
        let nodes = &self.snapshot.nodes;
        let values: IdVec<DomainId, ValueId> = match key.scope {
            Scope::Label(label) => self.values(label).into(),
            Scope::Host | Scope::Cluster => IdVec::new(),
        };
        let by_value: FastMap<ValueId, DomainId> =
            values.iter_enumerated().map(|(domain, &value)| (value, domain)).collect();
        let mut by_hostname: FastMap<ValueId, DomainId> = FastMap::default();
        let mut hosts = 0;
        let is_port = matches!(key.rule, Rule::Port(_));
        let mut new_host = || {
            hosts += 1;
            DomainId::from_index(hosts - 1)
        };
        // For a rule over host names, nodes with one name are one host, as for kube-scheduler; a host port belongs to
        // the node whatever its name.
        let places: IdVec<_, Place> = nodes
            .iter()
            .map(|node| {
                let place = match key.scope {
                    Scope::Cluster => Place::Domain(DomainId::from_index(0)),
                    Scope::Label(label) => place_by_label(node, label, &by_value),
                    Scope::Host if is_port => Place::Domain(new_host()),
                    Scope::Host => match (&node.labels, self.hostname) {
                        (NodeLabels::Known(labels), Some(hostname)) => match labels.get(hostname) {
                            Some(value) => Place::Domain(*by_hostname.entry(value).or_insert_with(&mut new_host)),
                            None => Place::Outside,
                        },
                        (NodeLabels::Known(_), None) => Place::Outside,
                        (NodeLabels::Promised(_), _) => Place::Domain(new_host()),
                    },
                };
                match key.filter.as_ref().map_or(Some(true), |filter| filter.counts_node(node, names, absent_keys)) {
                    Some(true) => place,
                    Some(false) => Place::Outside,
                    None => Place::Unknown,
                }
            })
            .collect();
        // A spread counts the domains of nodes that are there. One that is being deleted may take its domain along.
        let mut present = IdSet::with_len(values.len());
        for (node, place) in
            nodes.iter().zip(places.iter()).filter(|(node, _)| node.excluded != Some(Excluded::Deleting))
        {
            match (place, key.scope, &node.labels) {
                (Place::Domain(domain), _, _) => drop(present.insert(*domain)),
                // It will be in one of them, or in one in which it does not count.
                (Place::Unknown, Scope::Label(label), NodeLabels::Promised(promised)) => {
                    let finite = promised.get(label).and_then(|promised| promised.values.finite_values());
                    let counts = |value: &&ValueId| {
                        key.filter.as_ref().is_none_or(|filter| filter.counts_in(label, **value, names))
                    };
                    let values = finite.unwrap_or_default().iter().filter(counts);
                    present.extend(values.filter_map(|value| by_value.get(value)).copied());
                }
                (Place::Unknown | Place::Outside | Place::OwnHost, _, _) => {}
            }
        }
        Placing { values, places, present, hosts }
    }

    /// All values that a label can have on nodes and machines, by name.
    fn values(&self, key: KeyId) -> Vec<ValueId> {
        let mut values: Vec<ValueId> = Vec::new();
        for node in &self.snapshot.nodes {
            match &node.labels {
                NodeLabels::Known(labels) => values.extend(labels.get(key)),
                NodeLabels::Promised(promised) => {
                    let finite = promised.get(key).and_then(|requirement| requirement.values.finite_values());
                    values.extend(finite.unwrap_or_default());
                }
            }
        }
        for pool in self.snapshot.node_pools.iter().filter(|pool| pool.usable.is_ok()) {
            let offered = pool.catalogue.offerings.iter().map(|offering| &offering.requirements);
            for requirements in offered.chain([&pool.requirements]) {
                let finite = requirements.get(key).and_then(|requirement| requirement.values.finite_values());
                values.extend(finite.unwrap_or_default());
            }
        }
        values.sort_unstable();
        values.dedup();
        values.sort_by_key(|value| self.snapshot.interner.value_name(*value));
        values
    }
}

/// Whether domains are values of one of the labels with which a pod stays.
pub(super) fn is_over(scope: Scope, within: &Requirements) -> bool {
    matches!(scope, Scope::Label(key) if within.contains_key(key))
}

impl Filter {
    /// Whether a node can count that has this value.
    fn counts_in(&self, key: KeyId, value: ValueId, names: &model::Interner) -> bool {
        let accepts = |term: &affinity::Term| {
            term.requirements.get(key).is_none_or(|wanted| wanted.values.contains(Some(value), names))
        };
        self.terms.as_ref().is_none_or(|terms| terms.iter().any(accepts))
    }

    /// Whether an existing node counts; `None` if that depends on a label it has not got yet.
    fn counts_node(&self, node: &Node, names: &model::Interner, absent_keys: &AbsentKeys<'_>) -> Option<bool> {
        if let Some(tolerations) = &self.tolerations
            && untolerated(&node.taints, tolerations, names).is_some()
        {
            return Some(false);
        }
        let has = |key: &KeyId| match &node.labels {
            NodeLabels::Known(labels) => Some(labels.contains_key(*key)),
            NodeLabels::Promised(_) if names.key_name(*key) == labels::HOSTNAME => Some(true),
            NodeLabels::Promised(promised) => match promised.get(*key) {
                Some(promised) if !promised.values.allows_absent() => Some(true),
                Some(promised) if promised.values.has_no_value() => Some(false),
                _ => None,
            },
        };
        let keys: Vec<Option<bool>> = self.keys.iter().map(has).collect();
        if keys.contains(&Some(false)) {
            return Some(false);
        }
        // kube-scheduler counts no node that the pod's own affinity excludes, and a NodeClaim says enough to tell of
        // most machines under way that they will not count.
        let any = |accepts: &dyn Fn(&affinity::Term) -> bool| {
            self.terms.as_ref().is_none_or(|terms| terms.iter().any(accepts))
        };
        if !any(&|term| term.may_accept(node, names, |key| absent_keys.will_miss(node, key))) {
            return Some(false);
        }
        let accepted = any(&|term| term.accepts(node, names));
        match (&node.labels, accepted && !keys.contains(&None)) {
            (_, true) => Some(true),
            (NodeLabels::Known(_), false) => Some(false),
            (NodeLabels::Promised(_), false) => None,
        }
    }
}

fn place_by_label(node: &Node, key: KeyId, by_value: &FastMap<ValueId, DomainId>) -> Place {
    let domain = |value: ValueId| by_value.get(&value).map_or(Place::Unknown, |&domain| Place::Domain(domain));
    match &node.labels {
        NodeLabels::Known(labels) => labels.get(key).map_or(Place::Outside, domain),
        NodeLabels::Promised(promised) => match promised.get(key) {
            Some(promised) if promised.values.has_no_value() => Place::Outside,
            Some(promised) => promised.values.single_value().map_or(Place::Unknown, domain),
            None => Place::Unknown,
        },
    }
}
