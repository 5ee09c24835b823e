//! Rules that couple pods with each other: required topology spread, pod affinity and anti-affinity, host ports, claims
//! that one pod at a time may use, and claims whose first pod decides where the others go.
//!
//! All of them are *groups*: a rule, the classes that have to keep it (owners), the classes that it counts (matched),
//! and counters per domain. A domain is a value of a label, one host, or the whole cluster. So a host port is an
//! anti-affinity between hosts, and a ReadWriteOncePod claim one over the cluster; what counts and what is checked is
//! written once ([`Group::room`]).
//!
//! * `build` finds the groups and which classes they concern; a class that none concerns pays nothing anywhere.
//! * `cells` splits the offerings of a pool by the domain that a machine from them is in, so that a machine with a copy
//!   of a concerned class is pinned to one domain before anything is counted.
//! * `counts` holds what is placed and says how many more copies may go to a domain.
//! * `running` counts the pods that run.
//! * `domains` are those over which pods are spread; a run adds to them.
//!
//! Rules are kube-scheduler's (plugins PodTopologySpread, InterPodAffinity, NodePorts, VolumeRestrictions, 1.36).
//!
//! Differs: `spread-domains`. Kube-scheduler spreads over the domains of nodes that exist. As in Karpenter, those count
//! too in which a machine could be launched for the class; hosts likewise, so that the least of hosts is 0 while
//! machines can be launched. This is never laxer: a domain more can only lower the least. Where that closes room on
//! nodes that kube-scheduler would fill, the plan is made again over the domains that it opens.

mod absent_keys;
mod build;
mod cells;
mod counts;
mod domains;
mod running;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    IdSet, IdVec, Interner, KeyId, LabelSelector, Labels, NamespacedName, NodeName, PodShape, Toleration, Uid, ValueId,
    collections::{NameMap, NameSet},
    define_id,
    pod::{HostPort, PodAffinityTerm, SpreadSource, VolumeRef},
};

use crate::simulation::compile::classes::PodClass;
use crate::snapshot::NodeId;
use crate::snapshot::affinity::Term;

pub(crate) use self::{
    build::{Builder, Coupling, MatchedByLabels, Owned, Signature},
    cells::{Cell, CellKey, cells},
    counts::{AllCounts, Before, Checking, Counts, set_domains},
    domains::{AllDomains, Domains},
};

define_id! {
    /// A group of one plan.
    pub(crate) struct GroupId;
}
define_id! {
    /// A domain of one group. Label values are numbered by name; hosts as nodes are, then machines as they open.
    pub(crate) struct DomainId;
}

/// What a group asks of its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// No domain has more than `max_skew` above the least; the least is 0 with fewer than `min_domains`.
    /// `source` is for reasons.
    Spread { max_skew: u32, min_domains: u32, source: SpreadSource },
    /// There is a matched pod in the domain.
    Affinity,
    /// There is no matched pod in the domain, nor does one come.
    AntiAffinity,
}

/// What a domain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// A value of this label.
    Label(KeyId),
    /// One node or machine.
    Host,
    /// Everything.
    Cluster,
}

/// Which pods are matched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Those of the namespace that the selector picks.
    Selected { namespace: Arc<str>, selector: LabelSelector },
    /// Those that match all of the terms.
    Terms(Vec<PodAffinityTerm>),
    /// Those with a port that conflicts with this one.
    Port(HostPort),
    /// Those that use this claim.
    Claim(NamespacedName),
}

impl Rule {
    /// The pods that terms of an affinity mean, in brackets.
    fn pods(&self, names: &Interner) -> String {
        let Self::Terms(terms) = self else { return String::new() };
        let each: Vec<String> = terms.iter().map(|term| term.selector.display("pods", names).to_string()).collect();
        format!(" ({})", each.join(" that are "))
    }
}

/// Which nodes a spread constraint counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Filter {
    /// Labels that must be there: those of all hard constraints of the pod.
    keys: Vec<KeyId>,
    /// Node selector and affinity, if they are honoured.
    terms: Option<Vec<Term>>,
    /// Tolerations, if taints are honoured.
    tolerations: Option<Vec<Toleration>>,
}

/// Where a node or machine is, as far as one group is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In a domain.
    Domain(DomainId),
    /// On a machine of its own, whose domain is numbered when it opens.
    OwnHost,
    /// Without the label, or not counted.
    Outside,
    /// Not known yet: a machine that is still starting has no value for the label.
    Unknown,
}

/// One rule with what it concerns.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    rule: Rule,
    filter: Option<Filter>,
    placing: Arc<Placing>,
    /// What runs now.
    start: Counts,
}

/// Where nodes are, as far as groups of one scope are concerned that count the same nodes.
#[derive(Debug, Default)]
struct Placing {
    /// For labels: the value of each domain, by name.
    values: IdVec<DomainId, ValueId>,
    /// Where each existing node is.
    places: IdVec<NodeId, Place>,
    /// The domains that nodes have.
    present: IdSet<DomainId>,
    /// For hosts: how many domains existing nodes have.
    hosts: usize,
}

/// All groups of one snapshot.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) groups: IdVec<GroupId, Group>,
    /// By group: the first group of its connected part. Two groups are connected if one class is in both.
    parts: IdVec<GroupId, GroupId>,
    /// The parts in which some class has affinity.
    parts_with_affinity: IdSet<GroupId>,
    /// By node: pods there that are planned anew, and so are counted where they go. Empty without groups.
    moving: NameMap<NodeName, NameSet<Uid>>,
}

/// How a group concerns a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Involvement {
    pub(crate) group: GroupId,
    /// The class has to keep the rule.
    pub(crate) owner: bool,
    /// The rule counts the class.
    pub(crate) matched: bool,
}

/// Affinity groups of a class that only count together: all terms of its pod affinity, or one shared claim. If nothing
/// is matched anywhere, a class that matches itself may begin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct AffinitySet {
    /// Positions in the class's involvements.
    pub(crate) involvements: Vec<usize>,
    pub(crate) matches_itself: bool,
}

impl Rule {
    /// Whether labels and namespace of a pod decide; otherwise its ports or volumes do.
    fn reads_labels(&self) -> bool {
        match self {
            Rule::Selected { .. } | Rule::Terms(_) => true,
            Rule::Port(_) | Rule::Claim(_) => false,
        }
    }

    fn matches(
        &self,
        namespace: &Arc<str>,
        labels: &Labels,
        shape: &PodShape,
        namespaces: &BTreeMap<Arc<str>, Labels>,
        names: &Interner,
    ) -> bool {
        match self {
            Rule::Selected { namespace: wanted, selector } => wanted == namespace && selector.matches(labels, names),
            Rule::Terms(terms) => terms
                .iter()
                .all(|term| in_namespaces(term, namespace, namespaces, names) && term.selector.matches(labels, names)),
            Rule::Port(port) => shape.host_ports.iter().any(|other| other.conflicts_with(port)),
            Rule::Claim(claim) => uses(shape, claim),
        }
    }
}

/// Whether the pod of this shape mounts the claim.
fn uses(shape: &PodShape, claim: &NamespacedName) -> bool {
    shape.volumes.iter().any(|volume| matches!(volume, VolumeRef::Claim(used) if used == claim))
}

/// A namespace whose labels are not known counts as selected: a class that owns such a term is refused, and pods that
/// run stay further away than they might.
fn in_namespaces(
    term: &PodAffinityTerm,
    namespace: &Arc<str>,
    namespaces: &BTreeMap<Arc<str>, Labels>,
    names: &Interner,
) -> bool {
    term.namespaces.contains(namespace)
        || match &term.namespace_selector {
            LabelSelector::Nothing => false,
            selector => namespaces.get(namespace).is_none_or(|labels| selector.matches(labels, names)),
        }
}

impl Topology {
    /// Where an existing node is for one group.
    pub(crate) fn place_of_node(&self, group: GroupId, node: NodeId) -> Place {
        self.groups[group].placing.places.try_get(node).copied().unwrap_or(Place::Outside)
    }

    /// The groups that allow one pod on a host and concern this class.
    pub(crate) fn alone_on_host<'t>(&'t self, class: &'t PodClass) -> impl Iterator<Item = GroupId> + 't {
        let mine = class.involved.iter().filter(|mine| mine.owner && mine.matched).map(|mine| mine.group);
        mine.filter(|group| {
            let group = &self.groups[*group];
            group.kind == Kind::AntiAffinity && group.scope == Scope::Host
        })
    }

    /// Finds the connected parts of groups, and which of them have affinity, from all classes.
    pub(crate) fn connect(&mut self, classes: &[PodClass]) {
        // Each points to an earlier one of its part, or to itself.
        let mut parts: IdVec<GroupId, GroupId> = self.groups.ids().collect();
        fn first_of(parts: &IdVec<GroupId, GroupId>, mut group: GroupId) -> GroupId {
            while parts[group] != group {
                group = parts[group];
            }
            group
        }
        for class in classes {
            let firsts = class.involved.iter().map(|mine| first_of(&parts, mine.group));
            let Some(first) = firsts.min() else { continue };
            for mine in &class.involved {
                let other = first_of(&parts, mine.group);
                parts[other] = first;
                parts[mine.group] = first;
            }
        }
        self.parts = self.groups.ids().map(|group| first_of(&parts, group)).collect();
        let with_affinity = classes.iter().filter(|class| !class.affinity_sets.is_empty());
        self.parts_with_affinity = with_affinity.filter_map(|class| self.part_of(class)).collect();
    }

    /// The part of the groups that a class belongs to; `None` if no rule concerns it.
    pub(crate) fn part_of(&self, class: &PodClass) -> Option<GroupId> {
        class.involved.first().and_then(|mine| self.parts.try_get(mine.group)).copied()
    }

    /// The part that a group belongs to.
    pub(crate) fn part(&self, group: GroupId) -> GroupId {
        self.parts.try_get(group).copied().unwrap_or(group)
    }

    /// Whether some class of the part wants to be near to others.
    pub(crate) fn has_affinity(&self, part: GroupId) -> bool {
        self.parts_with_affinity.contains(part)
    }

    /// What runs now, by group.
    pub(crate) fn start(&self) -> AllCounts {
        self.groups.map(|group| group.start.clone())
    }

    /// What runs now, by group, in the domains that a run knows of.
    pub(crate) fn start_in(&self, domains: &AllDomains) -> AllCounts {
        let mut start = self.start();
        set_domains(&mut start, domains);
        start
    }
}

impl Group {
    /// For labels: the value of each domain, by name.
    pub(crate) fn values(&self) -> &IdVec<DomainId, ValueId> {
        &self.placing.values
    }

    /// The domains that nodes have.
    pub(crate) fn present_on_nodes(&self) -> &IdSet<DomainId> {
        &self.placing.present
    }

    /// The domain of the machine with that number on its own host.
    pub(crate) fn host_of(&self, machine: usize) -> DomainId {
        model::Id::from_index(self.placing.hosts + machine)
    }

    /// Whether two rules are about the same pods in the same domains.
    pub(crate) fn concerns_the_same_as(&self, other: &Self) -> bool {
        self.scope == other.scope && self.rule == other.rule
    }

    /// The rule in Kubernetes' words, for reasons.
    pub(crate) fn describe(&self, names: &Interner) -> String {
        let over = match self.scope {
            Scope::Label(key) => names.key_name(key),
            Scope::Host => api::labels::HOSTNAME,
            Scope::Cluster => "the cluster",
        };
        match (&self.rule, self.kind) {
            (Rule::Port(port), _) => format!("host port {port}"),
            (Rule::Claim(claim), Kind::Affinity) => {
                format!("PersistentVolumeClaim {claim}, whose pods must be in one {over},")
            }
            (Rule::Claim(claim), _) => format!("PersistentVolumeClaim {claim} with access mode ReadWriteOncePod"),
            (_, Kind::Spread { max_skew, min_domains, source }) => {
                let min_domains = if min_domains > 1 { format!(", minDomains {min_domains}") } else { String::new() };
                let source = match source {
                    SpreadSource::Pod => "",
                    SpreadSource::ClusterDefault => ", the cluster's default",
                };
                format!("required topology spread over {over} (maxSkew {max_skew}{min_domains}{source})")
            }
            (_, Kind::Affinity) => format!("required pod affinity over {over}{}", self.rule.pods(names)),
            (_, Kind::AntiAffinity) => format!("required pod anti-affinity over {over}{}", self.rule.pods(names)),
        }
    }
}
